//! Traces through the whole input path: one end under test, the other played by hand.

use std::vec::Vec;

use plimsoll_buf::{Pool, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr, Timestamps};

use crate::config::{Config, Options, SetOption};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::event::{ConnectionError, Ending, Events, ReadError};
use crate::mtu::PathEvent;
use crate::open_params::OpenParams;
use crate::segment::{Below, Ecn, Segment, SendKind, Transmit};
use crate::serial::Serial;
use crate::state::State;
use crate::testing::under_miri;
use crate::time::{Duration, Instant, Nanos};

const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags::FIN;
const RST: TcpFlags = TcpFlags::RST;
const SYN: TcpFlags = TcpFlags::SYN;
const URG: TcpFlags = TcpFlags::URG;

/// Our ISS, and the peer's: both wrap within a test.
const ISS: SeqNum = SeqNum(u32::MAX - 10);
const IRS: SeqNum = SeqNum(u32::MAX - 20);

/// One end and everything around it.
struct Bench {
    conn: Connection,
    config: Config,
    counters: Counters,
    now: Instant,
    pool: Pool,
    /// TSval of the peer, if it uses timestamps.
    stamp: Option<u32>,
}

fn params(options: Options) -> OpenParams {
    OpenParams {
        local_port: 1000,
        remote_port: 2000,
        iss: ISS,
        ts_offset: 0,
        seed: 1,
        mtu: 1500.into(),
        ip_header_len: 20,
        max_super_segment: 0,
        options: options.into(),
        pool: Pool::new(),
    }
}

fn plain_config() -> Config {
    Config { tcp_timestamps: false, tcp_window_scaling: false, ..Config::default() }
}

impl Bench {
    fn make(
        config: Config,
        options: Options,
        open: impl FnOnce(&Context, OpenParams) -> Connection,
    ) -> Bench {
        let counters = Counters::new();
        let now = Instant::from_millis(1_000);
        let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
        let conn = open(&cx, params(options));
        Bench { conn, config, counters, now, pool: Pool::new(), stamp: None }
    }

    /// In SYN-SENT; the SYN has left.
    fn syn_sent() -> Bench {
        let mut bench = Bench::make(plain_config(), Options::default(), Connection::connect);
        assert_eq!(bench.flags(), [SYN]);
        bench
    }

    /// In SYN-RECEIVED; the SYN-ACK has left.
    fn syn_received(config: Config, options: Options, stamp: Option<u32>) -> Bench {
        let mut syn = TcpRepr { seq: IRS, flags: SYN, window: 60_000, ..TcpRepr::default() };
        syn.options.syn_mut().mss = Some(1000);
        syn.options.syn_mut().sack_permitted = true;
        syn.options.timestamps = stamp.map(|val| Timestamps { val, ecr: 0 });
        let syn = Segment { repr: syn, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct };
        let mut bench =
            Bench::make(config, options, |cx, params| Connection::accept(cx, params, &syn));
        bench.stamp = stamp;
        assert_eq!(bench.flags(), [SYN | ACK]);
        bench
    }

    fn established_with(config: Config, options: Options, stamp: Option<u32>) -> Bench {
        let mut bench = Bench::syn_received(config, options, stamp);
        bench.recv(ACK, IRS + 1, ISS + 1, b"");
        assert_eq!(bench.conn.state(), State::Established);
        assert!(bench.conn.poll_event().contains(Events::CONNECTED));
        assert!(bench.send().is_empty());
        bench
    }

    fn established() -> Bench {
        Bench::established_with(plain_config(), Options::default(), None)
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Connection, &Context) -> T) -> T {
        let cx = Context {
            now: self.now,
            below: Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() },
            config: &self.config,
            counters: &self.counters,
        };
        call(&mut self.conn, &cx)
    }

    /// The peer sends a segment.
    fn recv(&mut self, flags: TcpFlags, seq: SeqNum, ack: SeqNum, data: &[u8]) {
        let mut repr = TcpRepr { seq, ack, flags, window: 60_000, ..TcpRepr::default() };
        repr.options.timestamps = self.stamp.map(|val| Timestamps { val, ecr: 0 });
        self.recv_repr(repr, data);
    }

    fn recv_repr(&mut self, repr: TcpRepr, data: &[u8]) {
        let payload = self.pool.copy_from(data).into();
        let mut seg = Segment { repr, payload, segs: 1, ecn: Ecn::NotEct };
        self.call(|conn, cx| conn.handle_segment(cx, &mut seg));
    }

    /// Everything that leaves now.
    fn send(&mut self) -> Vec<Transmit> {
        let mut all = Vec::new();
        while let Some(packet) = self.call(|conn, cx| conn.poll_transmit(cx)) {
            assert!(all.len() < 1000, "output never ends");
            all.push(packet);
        }
        all
    }

    fn flags(&mut self) -> Vec<TcpFlags> {
        self.send().iter().map(|packet| packet.repr.flags).collect()
    }

    /// One pure ACK of `ack` leaves.
    #[track_caller]
    fn expect_ack(&mut self, ack: SeqNum) -> Transmit {
        let mut all = self.send();
        assert_eq!(all.len(), 1, "one ACK, not {all:?}");
        let packet = all.remove(0);
        assert_eq!((packet.repr.flags, packet.repr.ack), (ACK, ack));
        assert!(packet.payload.is_empty());
        packet
    }

    #[track_caller]
    fn expect_nothing(&mut self) {
        let all = self.send();
        assert!(all.is_empty(), "{all:?}");
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.call(|conn, cx| conn.handle_timeout(cx));
    }

    /// Sleeps until the next deadline.
    fn sleep(&mut self) {
        self.now = self.conn.poll_timeout().expect("something is awaited");
        self.call(|conn, cx| conn.handle_timeout(cx));
    }

    fn read(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut out = [0; 4096];
        let count = self.call(|conn, cx| conn.read(cx, &mut out))?;
        Ok(out[..count].to_vec())
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    #[track_caller]
    fn state(&self, state: State) {
        assert_eq!(self.conn.state(), state);
    }

    /// Our FIN leaves.
    #[track_caller]
    fn expect_fin(&mut self) {
        assert_eq!(self.flags(), [FIN | ACK]);
    }
}

#[test]
fn active_open() {
    let mut bench = Bench::syn_sent();
    bench.recv(SYN | ACK, IRS, ISS + 1, b"");
    bench.state(State::Established);
    bench.expect_ack(IRS + 1);
    assert!(bench.conn.poll_event().contains(Events::CONNECTED));
    assert_eq!(bench.conn.poll_timeout(), None, "an idle connection waits for nothing");
}

#[test]
fn syn_offers_what_the_settings_say() {
    let mut bench = Bench::make(Config::default(), Options::default(), Connection::connect);
    let syn = bench.send().remove(0);
    let options = &syn.repr.options;
    assert_eq!((options.syn().mss, options.syn().window_scale), (Some(1460), Some(10)));
    assert!(options.syn().sack_permitted && options.timestamps.is_some());
    assert_eq!(syn.kind, SendKind::Syn);
    assert_eq!(syn.repr.window, 44 * 1460);
}

#[test]
fn the_window_shift_is_the_one_that_the_syn_told() {
    let config = Config { tcp_window_scaling: true, ..plain_config() };
    let mut bench = Bench::make(config, Options::default(), Connection::connect);
    let told = bench.send().remove(0).repr.options.syn().window_scale;
    bench.config.tcp_rmem[2] = 65_536;
    let (flags, ack) = (SYN | ACK, ISS + 1);
    let mut repr = TcpRepr { seq: IRS, ack, flags, window: 2048, ..TcpRepr::default() };
    repr.options.syn_mut().window_scale = Some(7);
    bench.recv_repr(repr, b"");
    assert_eq!(Some(bench.conn.info(&bench.config).rcv_wscale), told);
}

#[test]
fn segments_in_syn_sent() {
    let cases = [
        (ACK, ISS + 1, State::SynSent, None, "an ACK alone says nothing"),
        (ACK, ISS, State::SynSent, Some(RST), "an ACK of nothing is reset"),
        (SYN | ACK, ISS + 2, State::SynSent, Some(RST), "an ACK of too much is reset"),
        (RST, ISS + 1, State::SynSent, None, "a reset without ACK is ignored"),
        (RST | ACK, ISS, State::SynSent, None, "a reset with a wrong ACK is ignored"),
        (RST | ACK, ISS + 1, State::Closed, None, "refused"),
        (FIN, ISS + 1, State::SynSent, None, "a FIN alone is dropped"),
    ];
    for (flags, ack, state, answer, name) in cases {
        let mut bench = Bench::syn_sent();
        bench.recv(flags, IRS, ack, b"");
        assert_eq!(bench.conn.state(), state, "{name}");
        let sent = bench.send();
        assert_eq!(sent.first().map(|packet| packet.repr.flags), answer, "{name}");
        if let Some(packet) = sent.first() {
            assert_eq!(packet.repr.seq, ack, "{name}");
        }
        if state == State::Closed {
            assert_eq!(bench.conn.take_error(), Some(ConnectionError::Refused));
            assert_eq!(bench.conn.take_error(), None, "reported once");
            assert_eq!(bench.count(Counter::AttemptFails), 1);
        }
    }
}

#[test]
fn syn_is_sent_again_with_backoff_and_then_given_up() {
    let mut bench = Bench::syn_sent();
    let start = bench.now;
    // Four with the same distance, which do not count, and six that double.
    for expected in [1, 2, 3, 4, 5, 7, 11, 19, 35, 67] {
        bench.sleep();
        assert_eq!(bench.now.since(start), Duration::from_secs(expected));
        assert_eq!(bench.flags(), [SYN]);
    }
    bench.sleep();
    bench.state(State::Closed);
    assert_eq!(bench.now.since(start), Duration::from_secs(131));
    assert_eq!(bench.conn.error(), Some(ConnectionError::TimedOut));
    bench.expect_nothing();
}

#[test]
fn a_late_answer_to_the_first_syn_does_not_reduce_the_window() {
    // The first SYN leaves at 1000 ms, the copies at 2000 and 3000 ms.
    for (echo, expected) in [(Some(1000), 10), (Some(2000), 1), (Some(3000), 1), (None, 1)] {
        let config = Config { tcp_timestamps: true, ..plain_config() };
        let mut bench = Bench::make(config, Options::default(), Connection::connect);
        assert_eq!(bench.flags(), [SYN]);
        bench.sleep();
        bench.sleep();
        assert_eq!(bench.flags(), [SYN]);
        let repr = TcpRepr { seq: IRS, ack: ISS + 1, flags: SYN | ACK, ..TcpRepr::default() };
        let mut repr = TcpRepr { window: 60_000, ..repr };
        repr.options.timestamps = echo.map(|ecr| Timestamps { val: 1, ecr });
        bench.recv_repr(repr, b"");
        bench.state(State::Established);
        assert_eq!(bench.conn.info(&bench.config).snd_cwnd, expected, "{echo:?}");
    }
}

#[test]
fn a_listener_may_wait_for_data() {
    let options = Options { defer_accept: 3, ..Options::default() };
    let mut bench = Bench::syn_received(plain_config(), options.clone(), None);
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    bench.state(State::SynReceived);
    assert_eq!(bench.count(Counter::TcpDeferAcceptDrop), 1);
    // The SYN-ACK was acknowledged and need not leave again, but the time runs on.
    bench.sleep();
    bench.sleep();
    bench.expect_nothing();
    bench.sleep();
    assert_eq!(bench.flags(), [SYN | ACK], "the last one asks once more");
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    bench.state(State::Established);

    let mut bench = Bench::syn_received(plain_config(), options, None);
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    bench.recv(ACK, IRS + 1, ISS + 1, b"data");
    bench.state(State::Established);
}

#[test]
fn simultaneous_open() {
    let mut bench = Bench::syn_sent();
    bench.recv(SYN, IRS, SeqNum(0), b"");
    bench.state(State::SynReceived);
    let answer = bench.send().remove(0);
    assert_eq!((answer.repr.flags, answer.repr.seq, answer.repr.ack), (SYN | ACK, ISS, IRS + 1));
    bench.recv(SYN | ACK, IRS, ISS + 1, b"");
    bench.state(State::Established);
}

#[test]
fn the_window_of_a_crossing_syn_ack_is_not_scaled() {
    let config = Config { tcp_window_scaling: true, ..plain_config() };
    let mut bench = Bench::make(config, Options::default(), Connection::connect);
    assert_eq!(bench.flags(), [SYN]);
    for (flags, window, expected) in [(SYN, 2048, 2048), (SYN | ACK, 2048, 2048)] {
        let ack = if flags == SYN { SeqNum(0) } else { ISS + 1 };
        let mut repr = TcpRepr { seq: IRS, ack, flags, window, ..TcpRepr::default() };
        repr.options.syn_mut().window_scale = Some(7);
        bench.recv_repr(repr, b"");
        assert_eq!(bench.conn.snd.wnd(), expected, "{flags:?}");
    }
    bench.state(State::Established);
}

#[test]
fn segments_in_syn_received() {
    let cases = [
        (ACK, IRS + 1, ISS + 1, State::Established, None, "the ACK"),
        (ACK, IRS + 1, ISS, State::SynReceived, Some(RST), "an ACK of nothing"),
        (ACK, IRS + 1, ISS + 2, State::SynReceived, Some(RST), "an ACK of too much"),
        (SYN, IRS, SeqNum(0), State::SynReceived, Some(SYN | ACK), "the SYN again"),
        (SYN, IRS + 9, SeqNum(0), State::SynReceived, Some(ACK), "another SYN"),
        (RST, IRS + 1, SeqNum(0), State::Closed, None, "an exact reset"),
        (RST, IRS + 2, SeqNum(0), State::SynReceived, Some(ACK), "a reset within the window"),
        (FIN | ACK, IRS + 1, ISS + 1, State::CloseWait, None, "ACK and FIN in one"),
    ];
    for (flags, seq, ack, state, answer, name) in cases {
        let mut bench = Bench::syn_received(plain_config(), Options::default(), None);
        bench.recv(flags, seq, ack, b"");
        assert_eq!(bench.conn.state(), state, "{name}");
        assert_eq!(bench.flags().first().copied(), answer, "{name}");
    }
}

#[test]
fn an_answer_to_one_of_two_syn_acks_gives_no_round_trip() {
    let mut bench = Bench::syn_received(plain_config(), Options::default(), None);
    bench.wait(Duration::from_millis(900));
    bench.recv(SYN, IRS, SeqNum(0), b"");
    assert_eq!(bench.flags(), [SYN | ACK]);
    assert_eq!(bench.count(Counter::RetransSegs), 1);
    bench.wait(Duration::from_millis(10));
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    bench.state(State::Established);
    assert_eq!(bench.conn.snd.flight.srtt(), Nanos::ZERO, "the ACK may be for the first");
    assert_eq!(bench.conn.current_rto(&bench.config), Nanos::from_secs(3));
}

#[test]
fn a_reset_may_have_the_number_of_the_fin_before_it() {
    let mut bench = Bench::established();
    bench.recv(FIN | ACK, IRS + 1, ISS + 1, b"");
    bench.sleep();
    bench.expect_ack(IRS + 2);
    bench.recv(RST, IRS, ISS + 1, b"");
    bench.state(State::CloseWait);
    bench.recv(RST, IRS + 1, ISS + 1, b"");
    bench.state(State::Closed);
}

#[test]
fn syn_ack_is_sent_again_and_given_up() {
    let mut bench = Bench::syn_received(plain_config(), Options::default(), None);
    for _ in 0..5 {
        bench.sleep();
        assert_eq!(bench.flags(), [SYN | ACK]);
    }
    bench.sleep();
    bench.state(State::Closed);
}

#[test]
fn rst_and_syn_on_a_connection() {
    let nxt = IRS + 1;
    let cases = [
        (RST, nxt, State::Closed, 0, "exact"),
        (RST, nxt + 1, State::Established, 1, "within the window: challenge"),
        (RST, nxt + 59_999, State::Established, 1, "within the window: challenge"),
        (RST, nxt - 1, State::Established, 0, "before the window: dropped"),
        (RST, nxt + 70_000, State::Established, 0, "behind the window: dropped"),
        (SYN, nxt, State::Established, 1, "a SYN within the window: challenge"),
        (SYN | ACK, nxt + 5, State::Established, 1, "a SYN-ACK within the window"),
    ];
    for (flags, seq, state, answers, name) in cases {
        let mut bench = Bench::established();
        bench.recv(flags, seq, ISS + 1, b"");
        assert_eq!(bench.conn.state(), state, "{name}");
        let sent = bench.send();
        assert_eq!(sent.len(), answers, "{name}");
        assert_eq!(bench.count(Counter::TcpChallengeAck), answers as u64, "{name}");
        for packet in sent {
            let repr = &packet.repr;
            assert_eq!((repr.flags, repr.seq, repr.ack), (ACK, ISS + 1, nxt), "{name}");
        }
    }
}

#[test]
fn a_reset_ends_reads_and_is_reported() {
    let mut bench = Bench::established();
    bench.recv(ACK, IRS + 1, ISS + 1, b"last");
    bench.recv(RST, IRS + 5, ISS + 1, b"");
    assert!(bench.conn.poll_event().contains(Events::ERROR));
    assert_eq!(bench.read().as_deref(), Ok(&b"last"[..]), "what arrived can still be read");
    assert_eq!(bench.read(), Err(ReadError::Failed(ConnectionError::Reset)));
    assert_eq!(bench.count(Counter::EstabResets), 1);
    bench.expect_nothing();
}

#[test]
fn challenge_acks_are_rate_limited() {
    let mut bench = Bench::established();
    for _ in 0..3 {
        bench.recv(SYN, IRS + 1, ISS + 1, b"");
    }
    assert_eq!(bench.flags(), [ACK]);
    assert_eq!(bench.count(Counter::TcpAckSkippedChallenge), 2);
    bench.wait(Duration::from_millis(500));
    bench.recv(SYN, IRS + 1, ISS + 1, b"");
    assert_eq!(bench.flags(), [ACK]);
}

#[test]
fn acks_outside_of_what_was_sent() {
    let mut bench = Bench::established();
    bench.recv(ACK, IRS + 1, ISS + 2, b"data");
    bench.expect_ack(IRS + 1);
    assert_eq!(bench.read(), Err(ReadError::WouldBlock), "its data is dropped");
    bench.recv(ACK, IRS + 1, ISS + 2, b"");
    bench.expect_nothing();
    assert_eq!(bench.count(Counter::TcpAckSkippedChallenge), 1, "no storm of ACKs");
    bench.wait(Duration::from_millis(500));
    bench.recv(ACK, IRS + 1, ISS + 1 - 70_000, b"data");
    bench.expect_ack(IRS + 1);
    assert_eq!(bench.count(Counter::TcpChallengeAck), 2, "RFC 5961, section 5.2");
    let _ = bench.call(|conn, cx| conn.write(cx, b"answer"));
    bench.send();
    bench.recv(ACK, IRS + 1, ISS + 7, b"");
    bench.recv(ACK, IRS + 1, ISS + 1, b"data");
    assert_eq!(bench.read().as_deref(), Ok(&b"data"[..]), "an old ACK does not spoil the data");
    bench.wait(Duration::from_millis(500));
    bench.recv(ACK, IRS + 5, ISS, b"more");
    assert_eq!(bench.count(Counter::TcpChallengeAck), 3, "our SYN was acknowledged long ago");
    assert_eq!(bench.read(), Err(ReadError::WouldBlock));
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut bench = Bench::established();
    bench.recv(TcpFlags::default(), IRS + 1, ISS + 1, b"data");
    bench.expect_nothing();
    assert_eq!(bench.read(), Err(ReadError::WouldBlock));
}

#[test]
fn paws_drops_old_segments() {
    let mut bench = Bench::established_with(Config::default(), Options::default(), Some(100));
    bench.stamp = Some(99);
    bench.recv(ACK, IRS + 1, ISS + 1, b"old");
    assert_eq!(bench.count(Counter::PawsEstab), 1);
    bench.expect_ack(IRS + 1);
    bench.stamp = Some(101);
    bench.recv(ACK, IRS + 1, ISS + 1, b"new");
    assert_eq!(bench.read().as_deref(), Ok(&b"new"[..]));
    let ack = bench.expect_ack(IRS + 4);
    assert_eq!(ack.repr.options.timestamps.map(|stamps| stamps.ecr), Some(101));
    bench.stamp = Some(5);
    bench.recv(RST, IRS + 4, ISS + 1, b"");
    bench.state(State::Closed);
}

#[test]
fn a_wrong_ack_does_not_move_the_clock_of_paws() {
    let mut bench = Bench::established_with(Config::default(), Options::default(), Some(100));
    bench.stamp = Some(100 + (1 << 30));
    bench.recv(ACK, IRS + 1, ISS + 9, b"forged");
    bench.expect_ack(IRS + 1);
    bench.stamp = Some(101);
    bench.recv(ACK, IRS + 1, ISS + 1, b"true");
    assert_eq!(bench.count(Counter::PawsEstab), 0);
    assert_eq!(bench.read().as_deref(), Ok(&b"true"[..]));
}

#[test]
fn a_pure_ack_is_counted_on_one_path_only() {
    let mut bench = Bench::established();
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    let counts = [Counter::TcpHpAcks, Counter::TcpPureAcks].map(|counter| bench.count(counter));
    assert_eq!(counts, [1, 0], "fast path");
    bench.recv(ACK | TcpFlags::ECE, IRS + 1, ISS + 1, b"");
    let counts = [Counter::TcpHpAcks, Counter::TcpPureAcks].map(|counter| bench.count(counter));
    assert_eq!(counts, [1, 1], "slow path");
}

#[test]
fn the_echoed_timestamp_is_that_of_the_oldest_unacknowledged_segment() {
    let mut bench = Bench::established_with(Config::default(), Options::default(), Some(100));
    bench.stamp = Some(110);
    bench.recv(ACK, IRS + 1, ISS + 1, b"a");
    bench.stamp = Some(120);
    bench.recv(ACK, IRS + 2, ISS + 1, b"b");
    let ack = bench.expect_ack(IRS + 3);
    assert_eq!(ack.repr.options.timestamps.map(|stamps| stamps.ecr), Some(110), "RFC 7323, 4.3");
}

#[test]
fn out_of_order_data_is_reported_and_reassembled() {
    let mut bench = Bench::established();
    let nxt = IRS + 1;
    bench.recv(ACK, nxt + 10, ISS + 1, b"cc");
    bench.recv(ACK, nxt + 20, ISS + 1, b"ee");
    let acks = bench.send();
    assert_eq!(acks.len(), 2, "duplicate ACKs are counted one by one");
    let blocks: Vec<_> =
        acks[1].repr.options.sack().iter().map(|block| (block.left, block.right)).collect();
    assert_eq!(blocks, [(nxt + 20, nxt + 22), (nxt + 10, nxt + 12)], "most recent first");
    bench.recv(ACK, nxt, ISS + 1, b"0123456789");
    bench.expect_ack(nxt + 12);
    bench.recv(ACK, nxt + 12, ISS + 1, b"defghijk");
    let ack = bench.expect_ack(nxt + 22);
    assert!(ack.repr.options.sack().is_empty());
    assert_eq!(bench.read().as_deref(), Ok(&b"0123456789ccdefghijkee"[..]));
    assert_eq!(bench.count(Counter::TcpOfoQueue), 2);
}

#[test]
fn tiny_segments_out_of_order_do_not_bind_much_memory() {
    let last = under_miri(4000, 100);
    let backwards: Vec<u32> = (2..last).rev().collect();
    let every_third: Vec<u32> = (2..last).map(|at| at * 3).collect();
    for (offsets, name) in
        [((2..last).collect(), "forwards"), (backwards, "backwards"), (every_third, "with holes")]
    {
        let mut bench = Bench::established();
        for offset in offsets {
            bench.recv(ACK, IRS + 1 + offset, ISS + 1, b"x");
            bench.send();
        }
        let in_use = bench.pool.stats().in_use_bytes;
        assert!(in_use <= 65_536, "{name}: {in_use} bytes");
        assert!(bench.conn.rcv.held() <= 3 * bench.conn.rcv.buffer(), "{name}");
        bench.recv(ACK, IRS + 1, ISS + 1, b"ab");
        assert!(bench.read().is_ok_and(|bytes| bytes.starts_with(b"ab")), "{name}");
    }
}

#[test]
fn repeated_data_is_reported_by_dsack() {
    let mut bench = Bench::established();
    let nxt = IRS + 1;
    bench.recv(ACK, nxt, ISS + 1, b"0123456789");
    bench.expect_ack(nxt + 10);
    bench.recv(ACK, nxt, ISS + 1, b"0123456789");
    let ack = bench.expect_ack(nxt + 10);
    let block = ack.repr.options.sack().first().expect("a DSACK");
    assert_eq!((block.left, block.right), (nxt, nxt + 10));
    bench.recv(ACK, nxt + 5, ISS + 1, b"56789abc");
    assert_eq!(bench.read().as_deref(), Ok(&b"0123456789abc"[..]));
}

#[test]
fn a_fin_out_of_order_waits_for_the_data() {
    let mut bench = Bench::established();
    let nxt = IRS + 1;
    bench.recv(FIN | ACK, nxt + 3, ISS + 1, b"def");
    bench.state(State::Established);
    bench.recv(ACK, nxt, ISS + 1, b"abc");
    bench.state(State::CloseWait);
    assert_eq!(bench.read().as_deref(), Ok(&b"abcdef"[..]));
    assert_eq!(bench.read().as_deref(), Ok(&b""[..]), "end of stream");
    bench.recv(ACK, nxt + 6, ISS + 1, b"zzz");
    assert_eq!(bench.read().as_deref(), Ok(&b""[..]), "nothing follows a FIN");
}

#[test]
fn a_fin_before_data_that_was_received_is_not_believed() {
    let mut bench = Bench::established();
    let nxt = IRS + 1;
    bench.recv(ACK, nxt + 10, ISS + 1, b"later");
    bench.recv(FIN | ACK, nxt + 5, ISS + 1, b"");
    bench.recv(ACK, nxt, ISS + 1, b"0123456789");
    bench.state(State::Established);
    assert_eq!(bench.conn.readable(), 15);
}

#[test]
fn close_from_our_side() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.shutdown(cx));
    bench.state(State::FinWait1);
    bench.expect_fin();
    bench.recv(ACK, IRS + 1, ISS + 2, b"still talking");
    bench.state(State::FinWait2);
    assert_eq!(bench.read().as_deref(), Ok(&b"still talking"[..]), "half-closed");
    bench.send();
    bench.recv(FIN | ACK, IRS + 14, ISS + 2, b"");
    bench.state(State::TimeWait);
    bench.expect_ack(IRS + 15);
    assert!(bench.conn.poll_event().contains(Events::TIME_WAIT));
    bench.wait(Duration::from_secs(1));
    bench.recv(FIN | ACK, IRS + 14, ISS + 2, b"");
    bench.expect_ack(IRS + 15);
    let expires = bench.conn.poll_timeout().expect("2 MSL");
    assert_eq!(expires.since(bench.now), Duration::from_secs(60), "2 MSL begin again");
    bench.sleep();
    bench.state(State::Closed);
    assert!(bench.conn.poll_event().contains(Events::CLOSED));
}

#[test]
fn close_from_the_peer() {
    let mut bench = Bench::established();
    bench.recv(FIN | ACK, IRS + 1, ISS + 1, b"bye");
    bench.state(State::CloseWait);
    bench.expect_nothing();
    assert!(bench.conn.read_closed());
    assert_eq!(bench.read().as_deref(), Ok(&b"bye"[..]));
    bench.call(|conn, cx| conn.close(cx));
    bench.state(State::LastAck);
    // Our FIN takes the ACK of the other along.
    bench.expect_fin();
    bench.recv(ACK, IRS + 5, ISS + 2, b"");
    bench.state(State::Closed);
    assert_eq!(bench.conn.error(), None);
}

#[test]
fn simultaneous_close() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.shutdown(cx));
    bench.expect_fin();
    bench.recv(FIN | ACK, IRS + 1, ISS + 1, b"");
    bench.state(State::Closing);
    bench.expect_ack(IRS + 2);
    bench.recv(ACK, IRS + 2, ISS + 2, b"");
    bench.state(State::TimeWait);
}

#[test]
fn fin_that_acks_our_fin() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.shutdown(cx));
    bench.expect_fin();
    bench.recv(FIN | ACK, IRS + 1, ISS + 2, b"");
    bench.state(State::TimeWait);
    bench.expect_ack(IRS + 2);
}

#[test]
fn resets_in_closing_states_are_errors() {
    let mut bench = Bench::established();
    bench.recv(FIN | ACK, IRS + 1, ISS + 1, b"");
    bench.call(|conn, cx| conn.close(cx));
    bench.send();
    bench.recv(RST, IRS + 2, ISS + 1, b"");
    bench.state(State::Closed);
    assert_eq!(bench.conn.error(), Some(ConnectionError::Reset));
}

#[test]
fn closing_with_unread_data_resets() {
    let mut bench = Bench::established();
    bench.recv(ACK, IRS + 1, ISS + 1, b"unread");
    bench.send();
    bench.call(|conn, cx| conn.close(cx));
    bench.state(State::Closed);
    assert_eq!(bench.flags(), [RST | ACK]);
    assert_eq!(bench.count(Counter::TcpAbortOnClose), 1);
    assert_eq!(bench.conn.ending(), Some(Ending::Discarded));
}

#[test]
fn data_after_close_resets() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.close(cx));
    bench.expect_fin();
    bench.recv(ACK, IRS + 1, ISS + 2, b"");
    bench.state(State::FinWait2);
    bench.recv(ACK, IRS + 1, ISS + 2, b"nobody reads this");
    bench.state(State::Closed);
    assert_eq!(bench.count(Counter::TcpAbortOnData), 1);
    let reset = bench.send().remove(0);
    assert_eq!(reset.repr.flags, RST);
    assert_eq!(reset.repr.seq, ISS + 2);
}

#[test]
fn an_orphan_leaves_fin_wait_2_after_a_while() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.close(cx));
    bench.expect_fin();
    bench.recv(ACK, IRS + 1, ISS + 2, b"");
    let start = bench.now;
    bench.sleep();
    assert_eq!(bench.now.since(start), bench.config.tcp_fin_timeout);
    bench.state(State::Closed);
    bench.expect_nothing();
}

#[test]
fn a_half_closed_connection_with_an_owner_stays_in_fin_wait_2() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.shutdown(cx));
    bench.expect_fin();
    bench.recv(ACK, IRS + 1, ISS + 2, b"");
    bench.state(State::FinWait2);
    assert_eq!(bench.conn.poll_timeout(), None);
    bench.call(|conn, cx| conn.close(cx));
    assert!(bench.conn.poll_timeout().is_some(), "now it is an orphan");
}

#[test]
fn shutdown_before_established_takes_effect_then() {
    let mut bench = Bench::syn_sent();
    bench.call(|conn, cx| conn.shutdown(cx));
    bench.state(State::SynSent);
    bench.recv(SYN | ACK, IRS, ISS + 1, b"");
    bench.state(State::FinWait1);
    bench.expect_fin();
}

#[test]
fn abort_resets() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.abort(cx));
    bench.state(State::Closed);
    assert_eq!(bench.flags(), [RST | ACK]);
    assert_eq!(bench.conn.error(), Some(ConnectionError::Aborted));
}

#[test]
fn data_is_acknowledged_late_alone_and_early_in_pairs() {
    let mut bench = Bench::established();
    let mut nxt = IRS + 1;
    // The first sixteen are answered at once.
    for _ in 0..16 {
        bench.recv(ACK, nxt, ISS + 1, b"x");
        nxt += 1;
        bench.expect_ack(nxt);
    }
    bench.recv(ACK, nxt, ISS + 1, b"y");
    nxt += 1;
    bench.expect_nothing();
    let due = bench.conn.poll_timeout().expect("a delayed ACK");
    assert!(due.since(bench.now) >= bench.config.tcp_delack_min);
    bench.sleep();
    bench.expect_ack(nxt);
    assert_eq!(bench.count(Counter::DelayedAcks), 1);
    bench.recv(ACK, nxt, ISS + 1, &[0; 1000]);
    bench.expect_nothing();
    bench.recv(ACK, nxt + 1000, ISS + 1, &[0; 1000]);
    bench.expect_ack(nxt + 2000);
}

#[test]
fn the_window_closes_and_reopens() {
    let options = Options { rcvbuf: Some(4380), ..Options::default() };
    let mut bench = Bench::established_with(plain_config(), options, None);
    let mut nxt = IRS + 1;
    for _ in 0..4 {
        bench.recv(ACK, nxt, ISS + 1, &[7; 1095]);
        nxt += 1095;
    }
    let ack = bench.send().pop().expect("an ACK");
    assert_eq!((ack.repr.ack, ack.repr.window), (nxt, 0));
    // A probe is answered and its byte not taken.
    bench.recv(ACK, nxt, ISS + 1, b"p");
    let ack = bench.send().pop().expect("an answer");
    assert_eq!((ack.repr.ack, ack.repr.window), (nxt, 0));
    assert_eq!(bench.count(Counter::TcpZeroWindowDrop), 1);
    let mut out = [0; 500];
    assert_eq!(bench.call(|conn, cx| conn.read(cx, &mut out)), Ok(500));
    bench.expect_nothing();
    let mut out = [0; 3880];
    assert_eq!(bench.call(|conn, cx| conn.read(cx, &mut out)), Ok(3880));
    let ack = bench.send().pop().expect("a window update");
    assert_eq!(ack.repr.window, 4380);
}

#[test]
fn data_behind_the_window_is_cut_off_while_some_is_unread() {
    for unread in [0, 1000] {
        let options = Options { rcvbuf: Some(4380), ..Options::default() };
        let mut bench = Bench::established_with(plain_config(), options, None);
        bench.recv(ACK, IRS + 1, ISS + 1, &[7; 1000][..unread as usize]);
        bench.recv(FIN | ACK, IRS + 1 + unread, ISS + 1, &[7; 5000]);
        let (state, readable) = match unread {
            0 => (State::CloseWait, 5000),
            _ => (State::Established, 4380),
        };
        bench.state(state);
        assert_eq!(bench.conn.readable(), readable);
    }
}

#[test]
fn urgent_data_out_of_line() {
    let mut bench = Bench::established();
    let nxt = IRS + 1;
    let repr = TcpRepr {
        seq: nxt,
        ack: ISS + 1,
        flags: ACK | URG,
        window: 60_000,
        urgent: 4,
        ..TcpRepr::default()
    };
    bench.recv_repr(repr, b"abc!def");
    assert_eq!(bench.conn.readable(), 6);
    assert_eq!(bench.conn.read_urgent(), Some(b'!'));
    assert_eq!(bench.conn.read_urgent(), None);
    assert_eq!(bench.read().as_deref(), Ok(&b"abc"[..]), "a read stops at the mark");
    assert_eq!(bench.read().as_deref(), Ok(&b"def"[..]));
}

#[test]
fn urgent_data_in_line() {
    let options = Options { oobinline: true, ..Options::default() };
    let mut bench = Bench::established_with(plain_config(), options, None);
    let repr = TcpRepr {
        seq: IRS + 1,
        ack: ISS + 1,
        flags: ACK | URG,
        window: 60_000,
        urgent: 4,
        ..TcpRepr::default()
    };
    bench.recv_repr(repr, b"abc!def");
    assert_eq!(bench.conn.read_urgent(), None);
    assert_eq!(bench.read().as_deref(), Ok(&b"abc"[..]));
    assert_eq!(bench.read().as_deref(), Ok(&b"!def"[..]));
}

#[test]
fn keepalive_probes_and_gives_up() {
    let options = Options {
        keepalive: true,
        keep_idle: Some(Duration::from_secs(10)),
        keep_intvl: Some(Duration::from_secs(2)),
        keep_cnt: Some(2),
        ..Options::default()
    };
    let mut bench = Bench::established_with(plain_config(), options, None);
    let start = bench.now;
    bench.sleep();
    let probe = bench.send().remove(0);
    assert_eq!((probe.kind, probe.repr.seq), (SendKind::Keepalive, ISS));
    bench.recv(ACK, IRS + 1, ISS + 1, b"");
    bench.sleep();
    assert_eq!(bench.now.since(start), Duration::from_secs(12), "looked again");
    bench.sleep();
    bench.send();
    bench.sleep();
    bench.send();
    bench.sleep();
    bench.state(State::Closed);
    assert_eq!(bench.conn.error(), Some(ConnectionError::TimedOut));
    assert_eq!(bench.flags(), [RST | ACK]);
    assert_eq!(bench.count(Counter::TcpKeepAlive), 3);
}

#[test]
fn path_events() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(576)));
    let info = bench.conn.info(&bench.config);
    assert_eq!((info.snd_mss, info.pmtu), (536, 576));
    bench.call(|conn, cx| conn.handle_path_event(cx, PathEvent::Mtu(20)));
    assert_eq!(bench.conn.info(&bench.config).pmtu, 68, "nobody talks us below the least MTU");
    let error = ConnectionError::HostUnreachable;
    bench.call(|conn, cx| conn.handle_path_event(cx, PathEvent::SoftError(error)));
    bench.state(State::Established);
    assert_eq!(bench.conn.take_error(), Some(error));
    let gone = PathEvent::HardError(ConnectionError::DeviceGone);
    bench.call(|conn, cx| conn.handle_path_event(cx, gone));
    bench.state(State::Closed);

    let mut bench = Bench::syn_sent();
    bench.call(|conn, cx| conn.handle_path_event(cx, PathEvent::SoftError(error)));
    assert_eq!(bench.conn.error(), Some(error), "an open fails at once");
}

#[test]
fn quickack_and_low_water_marks() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(false)));
    bench.call(|conn, cx| conn.set_option(cx, SetOption::RcvLowat(4)));
    bench.recv(ACK, IRS + 1, ISS + 1, b"abc");
    bench.expect_nothing();
    assert!(!bench.conn.poll_event().contains(Events::READABLE));
    bench.call(|conn, cx| conn.set_option(cx, SetOption::QuickAck(true)));
    bench.expect_ack(IRS + 4);
    bench.recv(ACK, IRS + 4, ISS + 1, b"d");
    assert!(bench.conn.poll_event().contains(Events::READABLE));
}

#[test]
fn a_low_water_mark_above_the_buffer_does_not_stall_the_reader() {
    let options = Options { rcvbuf: Some(10_000), rcvlowat: 1 << 20, ..Options::default() };
    let mut bench = Bench::established_with(plain_config(), options, None);
    bench.recv(ACK, IRS + 1, ISS + 1, &[1; 4999]);
    assert!(!bench.conn.is_readable());
    bench.recv(ACK, IRS + 5000, ISS + 1, &[1; 1]);
    assert!(bench.conn.is_readable(), "half of the buffer");
    assert!(bench.conn.poll_event().contains(Events::READABLE));
}

#[test]
fn an_idle_connection_is_small() {
    let mut bench = Bench::established();
    bench.recv(ACK, IRS + 1, ISS + 1, &[1; 3000]);
    while bench.read().is_ok() {}
    bench.send();
    assert!(bench.conn.memory_bytes() <= 2048, "{}", bench.conn.memory_bytes());
}

#[test]
fn no_segment_ends_a_closed_connection_twice() {
    let mut bench = Bench::established();
    bench.call(|conn, cx| conn.abort(cx));
    bench.send();
    bench.recv(ACK, IRS + 1, ISS + 1, b"late");
    bench.recv(RST, IRS + 1, ISS + 1, b"");
    bench.expect_nothing();
    bench.state(State::Closed);
}
