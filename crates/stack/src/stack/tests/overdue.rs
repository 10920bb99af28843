//! A stack that was stopped beyond a timeout processes arrived packets before a timer acts on
//! silence.
//!
//! Most tests run twice: once the peer has answered while the stack was stopped, and once it has
//! not. In the second run the timer does what it does on time.

use std::net::Shutdown;
use std::sync::Arc;
use std::task::Poll;

use plimsoll_buf::Pool;
use plimsoll_tcp::{ConnectionError, Duration, Instant, Options, SetOption, State};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};
use plimsoll_wire::{SeqNum, protocol};

use super::harness::*;
use super::icmp::{Bare, icmp4, v4_fragment};
use crate::device::memory_link::{self, LinkConfig};
use crate::device::{Device, DeviceError, DeviceRx, DeviceStats};
use crate::flow::FlowKey;
use crate::limits::PACKETS_BEFORE_SILENCE;
use crate::packet::Packet;
use crate::stack::work::Work;
use crate::{
    Cancelled, GateConfig, ListenOn, SocketError, Stack, TcpSocket, UdpFlowConfig, UdpTransmit,
    WaitKey,
};

const TIMED_OUT: SocketError = SocketError::Connection(ConnectionError::TimedOut);
const NO_TLP: (&str, &str) = ("net.ipv4.tcp_early_retrans", "0");

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Polls one stack until it has nothing to do now.
fn work_off(stack: &Stack, now: Instant) {
    for _ in 0..10_000 {
        if !stack.poll(now, 256).unwrap().worked {
            return;
        }
    }
    panic!("it never comes to rest");
}

/// Advances `time` while one stack is stopped. The other one runs if `answers`. Then the first one
/// continues.
fn stop(pair: &mut Pair, stopped: &Arc<Stack>, time: Duration, answers: bool) {
    let other = if Arc::ptr_eq(stopped, &pair.a) { pair.b.clone() } else { pair.a.clone() };
    let until = pair.now + time;
    if answers {
        work_off(&other, pair.now);
        while let Some(at) = other.next_deadline().filter(|&at| at < until) {
            pair.now = pair.now.max(at);
            work_off(&other, pair.now);
        }
    }
    pair.now = until;
    work_off(stopped, until);
}

/// A connection, opened by `a` with `options`.
fn open(sysctls: &[(&str, &str)], options: Options) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>) {
    let mut pair = Pair::with(LinkConfig::default(), sysctls);
    let listener = pair.listen(B4, 16);
    let client = pair.a.connect(pair.now, addr(B4, 80), None, options).unwrap();
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().expect("it has opened");
    pair.run(secs(1));
    (pair, client, server)
}

fn error(socket: &TcpSocket, now: Instant) -> Option<SocketError> {
    match socket.read(now, &mut [0; 9]) {
        Ok(_) | Err(SocketError::WouldBlock) => None,
        Err(error) => Some(error),
    }
}

/// Sends a segment that belongs to no connection of `stack`.
fn send(stack: &Stack, now: Instant, key: FlowKey, flags: TcpFlags, seq: u32) {
    let repr = TcpRepr {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: SeqNum(seq),
        flags,
        ..TcpRepr::default()
    };
    let mut work = Work::begin(stack, now);
    work.send_segment(&key, &repr, None, 0);
    work.finish();
}

fn connections(stack: &Stack) -> usize {
    stack.tables.connections().all().len()
}

#[test]
fn an_acknowledgement_is_processed_before_the_retransmission_timeout() {
    for answers in [true, false] {
        let options = Options::default().user_timeout(Some(secs(5)));
        let (mut pair, client, _server) = open(&[NO_TLP], options);
        client.write(pair.now, b"question").unwrap();
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(10), answers);
        assert_eq!(error(&client, pair.now), (!answers).then_some(TIMED_OUT));
        assert_eq!(pair.counter("TcpRetransSegs").0, 0);
        assert_eq!(pair.counter("TcpExtTCPAbortOnTimeout").0, u64::from(!answers));
    }
}

#[test]
fn a_window_that_opens_is_processed_before_the_user_timeout() {
    for answers in [true, false] {
        let options = Options::default().user_timeout(Some(secs(5)));
        let (mut pair, client, server) = open(&[], options);
        let (data, mut at) = (vec![7; 4 << 20], 0);
        for _ in 0..20 {
            feed(&client, pair.now, &data, &mut at);
            pair.run(Duration::from_millis(50));
        }
        pair.run(secs(1));
        assert!(pair.counter("TcpExtTCPWinProbe").0 > 0, "the window is closed");
        if answers {
            drain(&server, pair.now, &mut Vec::new());
        }
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(10), answers);
        assert_eq!(error(&client, pair.now), (!answers).then_some(TIMED_OUT));
        assert_eq!(pair.counter("TcpExtTCPAbortOnTimeout").0, u64::from(!answers));
    }
}

#[test]
fn the_answer_to_a_probe_is_processed_before_keepalive_gives_up() {
    for answers in [true, false] {
        let options = Options::default()
            .keepalive(true)
            .keep_idle(Some(secs(10)))
            .keep_intvl(Some(secs(1)))
            .keep_cnt(Some(1));
        let (mut pair, client, _server) = open(&[], options);
        pair.now += secs(10);
        work_off(&pair.a, pair.now);
        assert_eq!(pair.counter("TcpExtTCPKeepAlive").0, 1, "it has asked");
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(5), answers);
        assert_eq!(error(&client, pair.now), (!answers).then_some(TIMED_OUT));
    }
}

#[test]
fn an_acknowledgement_is_processed_before_an_orphan_is_given_up() {
    for answers in [true, false] {
        let retries = ("net.ipv4.tcp_orphan_retries", "1");
        let (mut pair, client, _server) = open(&[NO_TLP, retries], Options::default());
        client.write(pair.now, b"last words").unwrap();
        client.close(pair.now);
        // The first timeout is on time. It retransmits nothing, since the link has the packet
        // still.
        while pair.counter("TcpExtTCPSpuriousRtxHostQueues").0 == 0 {
            pair.now = pair.a.next_deadline().unwrap();
            work_off(&pair.a, pair.now);
        }
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(30), answers);
        assert_eq!(connections(&pair.a), usize::from(answers));
        assert_eq!(pair.counter("TcpExtTCPAbortOnTimeout").0, u64::from(!answers));
    }
}

#[test]
fn a_fin_is_processed_before_fin_wait_2_ends() {
    for answers in [true, false] {
        let (mut pair, client, server) = open(&[], Options::default());
        client.close(pair.now);
        pair.run(secs(1));
        if answers {
            server.close(pair.now);
        }
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(70), answers);
        assert_eq!((connections(&pair.a), pair.a.time_wait_count()), (0, usize::from(answers)));
    }
}

#[test]
fn data_is_processed_before_the_bound_on_half_closed_connections() {
    for answers in [true, false] {
        let options = Options::default().half_close_timeout(Some(secs(5)));
        let (mut pair, client, server) = open(&[], options);
        client.shutdown(pair.now, Shutdown::Write).unwrap();
        pair.run(secs(1));
        if answers {
            server.write(pair.now, b"there is more").unwrap();
        }
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(6), answers);
        assert_eq!(client.state(), if answers { State::FinWait2 } else { State::Closed });
    }
}

#[test]
fn a_syn_ack_is_processed_before_connect_gives_up() {
    for answers in [true, false] {
        let sysctls =
            [("net.ipv4.tcp_syn_retries", "1"), ("net.ipv4.tcp_syn_linear_timeouts", "0")];
        let mut pair = Pair::with(LinkConfig::default(), &sysctls);
        let _listener = pair.listen(B4, 16);
        let client = pair.connect(B4);
        pair.now += secs(1);
        work_off(&pair.a, pair.now);
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(20), answers);
        let outcome = if answers { Ok(()) } else { Err(TIMED_OUT) };
        assert_eq!(connected(&client), Poll::Ready(outcome));
    }
}

#[test]
fn the_last_ack_of_a_handshake_is_processed_before_it_is_given_up() {
    for answers in [true, false] {
        let retries = ("net.ipv4.tcp_synack_retries", "0");
        let mut pair = Pair::with(LinkConfig::default(), &[retries]);
        let listener = pair.listen(B4, 16);
        let _client = pair.connect(B4);
        work_off(&pair.a, pair.now);
        work_off(&pair.b, pair.now);
        assert_eq!(connections(&pair.b), 1);
        let b = pair.b.clone();
        stop(&mut pair, &b, secs(20), answers);
        assert_eq!(connections(&pair.b), usize::from(answers));
        assert_eq!(listener.accept(pair.now).unwrap().is_some(), answers);
    }
}

#[test]
fn a_reset_is_processed_before_the_time_of_an_attempt_is_over() {
    for answers in [true, false] {
        let mut pair = Pair::new();
        let gate = GateConfig { wait: secs(5), ..GateConfig::default() };
        let all = ListenOn::Everything;
        let listener = pair.b.listen_on(all, 16, Options::default(), Some(gate)).unwrap();
        let key = FlowKey { local: ip(A4), remote: ip(B4), local_port: 999, remote_port: 80 };
        send(&pair.a, pair.now, key, TcpFlags::SYN, 100);
        pair.settle();
        let incoming = listener.take_incoming(pair.now).unwrap().expect("an attempt waits");
        if answers {
            send(&pair.a, pair.now, key, TcpFlags::RST, 101);
        }
        let b = pair.b.clone();
        stop(&mut pair, &b, secs(6), false);
        let why = if answers { Cancelled::Reset } else { Cancelled::TimedOut };
        assert_eq!(incoming.cancelled(), Some(why));
    }
}

#[test]
fn a_segment_is_processed_before_time_wait_ends() {
    for answers in [true, false] {
        let (mut pair, client, server) = open(&[], Options::default());
        let key = pair.b.tables.connections().all().remove(0).key;
        client.close(pair.now);
        pair.run(secs(1));
        server.close(pair.now);
        pair.run(secs(1));
        assert_eq!(pair.a.time_wait_count(), 1);
        if answers {
            send(&pair.b, pair.now, key, TcpFlags::ACK | TcpFlags::FIN, 0);
        }
        let sent = pair.counter("TcpOutSegs").0;
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(61), false);
        assert_eq!(pair.counter("TcpOutRsts").0, 0, "its entry answers");
        assert_eq!(pair.counter("TcpOutSegs").0 - sent, u64::from(answers));
        assert_eq!(pair.a.time_wait_count(), 0);
    }
}

#[test]
fn datagrams_are_processed_before_a_flow_ends() {
    for answers in [true, false] {
        let mut pair = Pair::new();
        let listener = pair.b.listen_udp_any(0, UdpFlowConfig::default()).unwrap();
        let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
        let to = UdpTransmit { to: Some(addr(B4, 53)), ..UdpTransmit::default() };
        client.send(pair.now, &to, &[b"first"]).unwrap();
        pair.settle();
        let flow = listener.accept(pair.now).unwrap().expect("a flow");
        if answers {
            (0..60).for_each(|_| client.send(pair.now, &to, &[b"more"]).map(drop).unwrap());
        }
        let b = pair.b.clone();
        stop(&mut pair, &b, secs(40), answers);
        let mut count = 0;
        let end = loop {
            match flow.recv(pair.now, &mut [0; 9]) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        let expected = if answers { (61, SocketError::WouldBlock) } else { (1, TIMED_OUT) };
        assert_eq!((count, end), expected);
        assert_eq!(pair.counter("plimsoll.UdpFlowTimeouts").1, u64::from(!answers));
    }
}

#[test]
fn a_fragment_is_processed_before_its_reassembly_ends() {
    for answers in [true, false] {
        let mut bare = Bare::new(&[]);
        let data = pattern(1000, 3);
        let request = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: &data });
        let (front, back) = request.split_at(504);
        assert!(bare.exchange(&v4_fragment(protocol::ICMP, back, 504, false)).is_empty());
        let due = bare.a.next_deadline();
        assert_eq!(due, Some(bare.now + secs(30)), "a stack on time is not late");
        bare.now += secs(40);
        if answers {
            assert_eq!(bare.exchange(&v4_fragment(protocol::ICMP, front, 0, true)).len(), 1);
        }
        bare.take();
        assert_eq!(bare.count("IpReasmTimeout"), u64::from(!answers));
        assert_eq!(bare.a.next_deadline(), None);
    }
}

/// The socket is owned while the answer and the timer come: both wait for the owner.
#[test]
fn a_segment_in_the_backlog_is_processed_before_the_timer() {
    let options = Options::default().user_timeout(Some(secs(5)));
    let (mut pair, client, _server) = open(&[NO_TLP], options);
    client.write(pair.now, b"question").unwrap();
    let endpoint = pair.a.tables.connections().all().remove(0);
    let owned = endpoint.own();
    let a = pair.a.clone();
    stop(&mut pair, &a, secs(10), true);
    assert!(endpoint.backlog().bytes() > 0, "it waits");
    drop(owned);
    pair.settle();
    assert_eq!(error(&client, pair.now), None);
    assert_eq!(pair.counter("TcpRetransSegs").0, 0);
}

/// The ACK waits behind data for a reader that is blocked.
#[test]
fn a_segment_in_the_prequeue_is_processed_before_the_timer() {
    let options = Options::default().user_timeout(Some(secs(5)));
    let (mut pair, client, server) = open(&[NO_TLP, ("net.ipv4.tcp_low_latency", "0")], options);
    client.write(pair.now, b"question").unwrap();
    work_off(&pair.a, pair.now);
    let (_count, waker) = CountingWaker::new();
    assert!(client.poll_readable_blocked(WaitKey::new(), &waker).is_pending());
    server.write(pair.now, b"answer").unwrap();
    let a = pair.a.clone();
    stop(&mut pair, &a, secs(10), true);
    assert_eq!(client.read(pair.now, &mut [0; 9]), Ok(6));
    assert_eq!(pair.counter("TcpRetransSegs").0, 0);
}

/// Receives junk before the device's packets.
struct Flooded {
    inner: Box<dyn DeviceRx>,
    /// Packets of junk that are left.
    left: usize,
    /// The junk is all there is from then on.
    from: Instant,
}

impl DeviceRx for Flooded {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let junk = if now < self.from { 0 } else { max.min(self.left) };
        self.left -= junk;
        for _ in 0..junk {
            out.push(Packet { payload: pool.copy_from(b"junk").into(), ..Packet::new() });
        }
        Ok(junk + self.inner.receive(now, pool, out, max - junk)?)
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

/// A pair whose `a` receives `junk` before all other packets from the next second on.
fn flooded(junk: usize) -> Pair {
    let (left, right) = memory_link::pair(LinkConfig::default());
    let now = Instant::from_millis(1000);
    let rx = Flooded { inner: left.rx, left: junk, from: now + secs(1) };
    let left = Device { rx: Box::new(rx), ..left };
    Pair { a: stack(left, A4, A6, &[NO_TLP]), b: stack(right, B4, B6, &[]), now }
}

/// A connection of a flooded client that has just sent a request.
fn asked(junk: usize) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>) {
    let mut pair = flooded(junk);
    let listener = pair.listen(B4, 16);
    let options = Options::default().user_timeout(Some(secs(5)));
    let client = pair.a.connect(pair.now, addr(B4, 80), None, options).unwrap();
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().expect("it has opened");
    client.write(pair.now, b"question").unwrap();
    (pair, client, server)
}

#[test]
fn an_answer_behind_what_one_poll_takes_is_processed() {
    for junk in [1, 256, PACKETS_BEFORE_SILENCE - 1] {
        let (mut pair, client, _server) = asked(junk);
        let a = pair.a.clone();
        stop(&mut pair, &a, secs(10), true);
        assert_eq!(error(&client, pair.now), None, "behind {junk}");
        assert_eq!(pair.counter("TcpRetransSegs").0, 0);
    }
}

#[test]
fn a_flood_defers_no_timer_for_ever() {
    let (mut pair, client, _server) = asked(usize::MAX);
    work_off(&pair.b, pair.now);
    pair.now += secs(10);
    let given_up = (1..).find(|_| {
        assert!(pair.a.poll(pair.now, 256).unwrap().worked, "it asks for the next poll");
        error(&client, pair.now).is_some()
    });
    // The first poll defers the timer, and those after it count.
    assert_eq!(given_up, Some(1 + PACKETS_BEFORE_SILENCE / 256));
}

/// A delayed ACK does not act on silence.
#[test]
fn a_flood_defers_no_other_timer() {
    let mut pair = flooded(usize::MAX);
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().expect("it has opened");
    client.set_option(pair.now, SetOption::QuickAck(false));
    server.write(pair.now, b"data").unwrap();
    work_off(&pair.b, pair.now);
    work_off(&pair.a, pair.now);
    let sent = pair.counter("TcpOutSegs").0;
    pair.now += secs(2);
    pair.a.poll(pair.now, 256).unwrap();
    assert_eq!(pair.counter("TcpOutSegs").0, sent + 1);
}

/// Hours pass at once, as for a clock that counts the time of a suspended machine. The connection
/// continues if its peer still exists.
#[test]
fn a_clock_may_jump_forward() {
    let (mut pair, client, server) = open(&[], Options::default());
    client.write(pair.now, b"before").unwrap();
    pair.now += secs(5 * 3600);
    client.write(pair.now, b" and after").unwrap();
    pair.run(secs(60));
    let mut got = Vec::new();
    drain(&server, pair.now, &mut got);
    assert_eq!(got, b"before and after");
}

/// A clock should not run backward. If it does nevertheless, timers come late.
#[test]
fn a_clock_that_runs_backward_does_no_harm() {
    let mut pair = Pair::with(LinkConfig::default(), &[NO_TLP]);
    pair.now += secs(1000);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let udp = pair.b.listen_udp_any(53, UdpFlowConfig::default()).unwrap();
    let sender = pair.a.bind_udp(addr(A4, 0)).unwrap();
    let to = UdpTransmit { to: Some(addr(B4, 53)), ..UdpTransmit::default() };
    sender.send(pair.now, &to, &[b"datagram"]).unwrap();
    client.write(pair.now, b"before").unwrap();
    pair.settle();
    for back in [secs(500), secs(490), Duration::ZERO] {
        pair.now = Instant::from_millis(1000) + back;
        client.write(pair.now, b" and after").unwrap();
        sender.send(pair.now, &to, &[b"datagram"]).unwrap();
        pair.settle();
        let (other, _) = pair.open(B4, &listener);
        other.close(pair.now);
        pair.settle();
    }
    let flow = udp.accept(pair.now).unwrap().expect("a flow");
    assert_eq!(flow.recv(pair.now, &mut [0; 9]).unwrap().len, 8);
    pair.now += secs(2000);
    pair.run(secs(60));
    let mut got = Vec::new();
    drain(&server, pair.now, &mut got);
    assert_eq!(got, b"before and after and after and after");
}
