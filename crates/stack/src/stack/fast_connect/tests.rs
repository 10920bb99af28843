//! Connecting with data, over a link and with a peer that may not support Fast Open.

use std::net::Shutdown;
use std::task::Poll;

use plimsoll_tcp::{ConnectionError, Duration, Options, State};
use plimsoll_wire::tcp::{FastOpenCookie, FastOpenOption};

use super::*;
use crate::stack::tests::harness::*;

/// A cookie for B, as if it had given one.
fn teach(pair: &Pair) {
    let cookie = FastOpenCookie::new(&[1, 2, 3, 4]).unwrap();
    let option = Some(FastOpenOption { cookie, experimental: false });
    let key = pair.a.flow_to(addr(B4, 80), None).unwrap();
    pair.a.policies.metrics().teach(&key, option);
}

fn connect(pair: &Pair, data: &[u8]) -> (Arc<TcpSocket>, usize) {
    pair.a.connect_with_data(pair.now, addr(B4, 80), None, Options::default(), &[data]).unwrap()
}

fn deferred(pair: &Pair) -> Arc<TcpSocket> {
    pair.a.connect_deferred(pair.now, addr(B4, 80), None, Options::default()).unwrap()
}

#[test]
fn the_setting_forbids() {
    let pair = Pair::new();
    pair.a.sysctl().set("net.ipv4.tcp_fastopen", "0x2").unwrap();
    let refused =
        pair.a.connect_with_data(pair.now, addr(B4, 80), None, Options::default(), &[b"x"]);
    assert_eq!(refused.unwrap_err(), SocketError::NotSupported);
    assert_eq!(pair.a.connection_memory().connections, 0);
}

#[test]
fn without_a_cookie_nothing_is_taken_and_one_is_asked_for() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    for refused in [1, 2, 2] {
        let (socket, taken) = connect(&pair, b"hello");
        assert_eq!(taken, 0);
        assert!(!socket.is_connect_deferred());
        assert_eq!(socket.read(pair.now, &mut [0; 9]), Err(SocketError::WouldBlock));
        assert_eq!(socket.write(pair.now, b"hello"), Err(SocketError::WouldBlock));
        pair.settle();
        assert_eq!(connected(&socket), Poll::Ready(Ok(())));
        let key = pair.a.flow_to(addr(B4, 80), None).unwrap();
        assert_eq!(pair.a.policies.metrics().refusals(&key), refused);
        assert_eq!(pair.a.peer_metrics()[0].cookie, None);
        drop(listener.accept(pair.now).unwrap());
    }
    pair.a.flush_metrics();
    assert_eq!(pair.a.peer_metrics(), []);
}

#[test]
fn data_of_the_syn_arrives_also_at_a_peer_that_does_not_take_it() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    teach(&pair);
    let data = pattern(3000, 1);
    let (socket, taken) = connect(&pair, &data);
    assert!(0 < taken && taken < 1500, "{taken}");
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    let mut at = taken;
    feed(&socket, pair.now, &data, &mut at);
    pair.run(Duration::from_millis(100));
    let mut got = Vec::new();
    drain(&server, pair.now, &mut got);
    assert_eq!(got, data);
    let acked = socket.info(pair.now).options & 32 != 0;
    let (active, _) = pair.counter("TcpExtTCPFastOpenActive");
    let (failed, _) = pair.counter("TcpExtTCPFastOpenActiveFail");
    assert_eq!((active, failed), (u64::from(acked), u64::from(!acked)));
}

#[test]
fn a_deferred_connect_opens_with_the_first_write() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    assert!(!deferred(&pair).is_connect_deferred(), "no cookie: it is under way");
    pair.settle();
    drop(listener.accept(pair.now).unwrap());
    teach(&pair);
    let any = Options::default();
    assert_eq!(pair.a.may_fast_open(pair.now, addr(B4, 80), None, &any), Ok(true));
    let socket = deferred(&pair);
    assert!(socket.is_connect_deferred());
    assert_eq!(socket.poll_writable(std::task::Waker::noop()), Poll::Ready(()));
    let sent = pair.a.counter("TcpOutSegs");
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.a.counter("TcpOutSegs"), sent, "nothing leaves");
    assert_eq!(socket.state(), State::SynSent);
    assert_eq!(socket.read(pair.now, &mut [0; 9]), Err(SocketError::WouldBlock));
    assert_eq!(socket.write(pair.now, b"hello"), Ok(5));
    assert!(!socket.is_connect_deferred());
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    pair.settle();
    let mut got = Vec::new();
    drain(&server, pair.now, &mut got);
    assert_eq!(got, b"hello");
}

#[test]
fn an_empty_first_write_is_in_progress() {
    let mut pair = Pair::new();
    let _listener = pair.listen(B4, 16);
    teach(&pair);
    let socket = deferred(&pair);
    assert_eq!(socket.write(pair.now, b""), Err(SocketError::InProgress));
    assert_eq!(SocketError::InProgress.errno(), libc::EINPROGRESS);
    pair.settle();
    assert_eq!(connected(&socket), Poll::Ready(Ok(())));
}

#[test]
fn a_deferred_connect_that_is_closed_was_never_there() {
    let mut pair = Pair::new();
    teach(&pair);
    let socket = deferred(&pair);
    socket.close(pair.now);
    pair.settle();
    assert_eq!(pair.counter("TcpOutSegs"), (0, 0));
    assert_eq!(pair.a.connection_memory().connections, 0);
}

#[test]
fn a_shutdown_while_connecting_ends_the_attempt() {
    let mut pair = Pair::new();
    let socket = pair.connect(B4);
    assert_eq!(socket.shutdown(pair.now, Shutdown::Write), Ok(()));
    assert_eq!(socket.state(), State::Closed);
    assert_eq!(socket.take_error(), Some(ConnectionError::Reset));
    pair.settle();
    assert_eq!(socket.shutdown(pair.now, Shutdown::Write), Err(SocketError::NotConnected));
}

#[test]
fn a_black_hole_pauses_fast_open() {
    let mut pair = Pair::new();
    pair.a.sysctl().set("net.ipv4.tcp_fastopen_blackhole_timeout_sec", "3600").unwrap();
    teach(&pair);
    // This address has no host, so no answer comes.
    let nobody = addr("192.0.2.77", 80);
    let start = pair.now;
    let any = Options::default().fastopen_no_cookie(true);
    let (_socket, taken) =
        pair.a.connect_with_data(pair.now, nobody, None, any.clone(), &[b"x"]).unwrap();
    assert_eq!(taken, 1);
    let paused = |pair: &Pair| pair.a.counter("TcpExtTCPFastOpenBlackhole") == Some(1);
    assert!(pair.run_until(Duration::from_secs(60), |pair| paused(pair)));
    assert_eq!(pair.now.since(start), Duration::from_secs(3), "at the third timeout");
    assert_eq!(pair.a.may_fast_open(pair.now, addr(B4, 80), None, &any), Ok(false));
    let later = pair.now + Duration::from_secs(3600);
    assert_eq!(pair.a.may_fast_open(later, addr(B4, 80), None, &any), Ok(true));
}
