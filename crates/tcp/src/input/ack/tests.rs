//! Recovery as seen through acknowledgements. The sender is a real connection; data is put into its
//! retransmit queue directly, so that the traces do not depend on what output would choose to send.

extern crate std;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use plimsoll_buf::{Pool, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpOptions, TcpRepr, Timestamps};

use super::*;
use crate::algorithm::CongestionAlgorithm;
use crate::config::{Config, Options};
use crate::counters::{Counter, Counters};
use crate::event::ConnectionError;
use crate::open_params::OpenParams;
use crate::segment::{Below, Ecn};
use crate::send::flight::{NextRetransmission, RecoveryState};
use crate::serial::Serial;
use crate::state::State;
use crate::testing::under_miri;
use crate::time::{Duration, Instant};

const MSS: u32 = 1000;
const ISS: SeqNum = SeqNum(u32::MAX - 5000);
const IRS: SeqNum = SeqNum(7);

/// The features of the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Sack,
    Plain,
    SackAndTimestamps,
}

/// A sender under test. Positions are bytes from the first byte of data.
struct Trace {
    conn: Connection,
    config: Config,
    counters: Counters,
    now: Instant,
    pool: Pool,
    serial: u64,
    completed: u64,
    window: u16,
    peer: Peer,
}

impl Trace {
    fn new(peer: Peer) -> Trace {
        // Most tests are not about tail loss probes.
        let config = Config { tcp_early_retrans: 0, ..Config::default() };
        Trace::with_config(peer, config)
    }

    fn with_config(peer: Peer, config: Config) -> Trace {
        let counters = Counters::new();
        let now = Instant::from_millis(1000);
        let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
        let pool = Pool::new();
        let params = OpenParams {
            local_port: 1,
            remote_port: 2,
            iss: ISS,
            ts_offset: 0,
            seed: 0,
            mtu: if peer == Peer::SackAndTimestamps { 1052 } else { 1040 }.into(),
            ip_header_len: 20,
            max_super_segment: 64_000,
            options: Options::default().into(),
            pool: pool.clone(),
        };
        let cx = Context { now, below, config: &config, counters: &counters };
        let mut conn = Connection::connect(&cx, params);
        conn.take_syn(&cx).expect("a connect begins with a SYN");
        let mut trace = Trace {
            conn,
            config,
            counters,
            now,
            pool,
            serial: 0,
            completed: u64::MAX,
            window: 60_000,
            peer,
        };
        trace.now += Duration::from_millis(100);
        let mut repr = trace.header(0, TcpFlags::SYN | TcpFlags::ACK);
        repr.seq = IRS;
        repr.options.syn_mut().mss =
            Some(if peer == Peer::SackAndTimestamps { 1012 } else { 1000 });
        repr.options.syn_mut().window_scale = Some(7);
        repr.options.syn_mut().sack_permitted = peer != Peer::Plain;
        trace.deliver(repr);
        assert_eq!(trace.conn.state(), State::Established);
        // The first ACK brings the scaled window.
        trace.ack(0, &[]);
        assert_eq!(u32::from(trace.conn.snd.mss()), MSS);
        trace
    }

    fn seq(&self, position: u32) -> SeqNum {
        ISS + 1 + position
    }

    fn position(&self, seq: SeqNum) -> u32 {
        seq.since(ISS + 1)
    }

    fn header(&self, ack: u32, flags: TcpFlags) -> TcpRepr {
        let timestamps = (self.peer == Peer::SackAndTimestamps).then(|| Timestamps {
            val: self.now.as_millis() as u32,
            ecr: (self.now.as_millis() as u32).saturating_sub(100),
        });
        TcpRepr {
            src_port: 2,
            dst_port: 1,
            seq: IRS + 1,
            ack: self.seq(ack),
            flags,
            window: self.window,
            urgent: 0,
            options: TcpOptions { timestamps, ..TcpOptions::default() },
        }
    }

    fn deliver(&mut self, repr: TcpRepr) {
        let mut seg = Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct };
        let below = Below { bytes: 0, completed: Serial(self.completed), ..Below::default() };
        let cx = Context { now: self.now, below, config: &self.config, counters: &self.counters };
        self.conn.handle_segment(&cx, &mut seg);
        self.conn.snd.check_invariants();
    }

    /// An ACK with SACK blocks.
    fn ack(&mut self, ack: u32, blocks: &[(u32, u32)]) {
        let mut repr = self.header(ack, TcpFlags::ACK);
        for &(left, right) in blocks {
            repr.options
                .sack_mut()
                .push(SackBlock { left: self.seq(left), right: self.seq(right) });
        }
        self.deliver(repr);
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Goes to the next deadline and lets it pass.
    fn timeout(&mut self) {
        self.now = self.conn.poll_timeout().expect("a timer is armed");
        let below = Below { bytes: 0, completed: Serial(self.completed), ..Below::default() };
        let cx = Context { now: self.now, below, config: &self.config, counters: &self.counters };
        self.conn.handle_timeout(&cx);
    }

    /// Sends up to `len` bytes of new data as cwnd allows, in packets of up to `packet` bytes.
    /// Returns how many left.
    fn send(&mut self, len: u32, packet: u32) -> u32 {
        let mut left = len.min(self.conn.snd.windows().quota);
        if left < len {
            left -= left % MSS;
        }
        let sent = left;
        while left > 0 {
            let part = left.min(packet);
            let bytes: Vec<u8> = std::vec![1; part as usize];
            let data = Slices::from(self.pool.copy_from(&bytes));
            self.serial += 1;
            let below = Below { bytes: 0, completed: Serial(self.completed), ..Below::default() };
            let cx =
                Context { now: self.now, below, config: &self.config, counters: &self.counters };
            let parts = self.conn.conn_parts(&cx);
            self.conn.snd.put_in_flight(&cx, &parts, Serial(self.serial), &data);
            self.conn.sync_retransmission_timer();
            left -= part;
        }
        let below = Below { bytes: 0, completed: Serial(self.completed), ..Below::default() };
        let cx = Context { now: self.now, below, config: &self.config, counters: &self.counters };
        let parts = self.conn.conn_parts(&cx);
        self.conn.snd.flight.end_new_first(&self.conn.snd.view(&cx, &parts));
        if self.conn.snd.has_burst() {
            self.conn.snd.end_burst(&cx, &parts);
        }
        self.conn.snd.end_output();
        self.conn.sync_retransmission_timer();
        sent
    }

    /// Retransmits the data that recovery selects, and returns the ranges.
    fn resend(&mut self) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        loop {
            let below = Below { bytes: 0, completed: Serial(self.completed), ..Below::default() };
            let cx =
                Context { now: self.now, below, config: &self.config, counters: &self.counters };
            if !self.conn.snd.flight.may_send_again() {
                return sent;
            }
            let (parts, largest) = (self.conn.conn_parts(&cx), self.conn.largest_packet(cx.config));
            let view = self.conn.snd.view(&cx, &parts);
            let (start, end) = match self.conn.snd.flight.next_retransmission(&cx, &view, largest) {
                NextRetransmission::None | NextRetransmission::Below => return sent,
                NextRetransmission::Lost { start, end }
                | NextRetransmission::Probe { start, end } => (start, end),
            };
            let again = self.conn.snd.again(start, end);
            assert_eq!(again.payload.len() as u32, end.since(start));
            self.serial += 1;
            self.conn.snd.on_sent_again(&cx, &parts, &again, (Serial(self.serial), cx.now));
            self.conn.sync_retransmission_timer();
            sent.push((self.position(start), self.position(end)));
            assert!(sent.len() < 10_000, "retransmission does not end");
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    fn cwnd(&self) -> u32 {
        self.conn.snd.flight.cc().cwnd()
    }

    fn phase(&self) -> RecoveryState {
        self.conn.snd.flight.state()
    }
}

#[test]
fn an_ack_of_the_future_and_one_too_old_are_refused() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(5 * MSS, MSS);
    let (max, max_wnd) = (trace.conn.snd.nxt(), trace.conn.snd.max_wnd());
    let base = trace.header(0, TcpFlags::ACK);
    let all = 5 * MSS;
    let table = [
        (0, max + 1, AckOutcome::Unbelievable),
        (0, max, AckOutcome::Ok),
        (0, max - all, AckOutcome::Ok),
        (0, max - all - 1, AckOutcome::Unbelievable),
        // Once more than a window was acknowledged, that is the limit.
        (1_u64 << 33, max - max_wnd, AckOutcome::Ok),
        (1 << 33, max - max_wnd - 1, AckOutcome::Unbelievable),
    ];
    for (before, ack, outcome) in table {
        trace.conn.snd.set_bytes_acked(before.max(trace.conn.snd.stats().bytes_acked));
        let repr = TcpRepr { ack, ..base.clone() };
        let seg = Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct };
        let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
        let now = trace.now;
        let cx = Context { now, below, config: &trace.config, counters: &trace.counters };
        assert_eq!(trace.conn.on_ack(&cx, &seg), outcome, "{ack:?}");
    }
}

#[test]
fn an_ack_of_something_new_brings_its_window() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(2 * MSS, MSS);
    // The window in force came with a segment behind this one: a FIN of the peer that overtook.
    trace.conn.snd.confirm_window(IRS + 2, ISS + 1);
    trace.window = 0;
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 0, "the old window would reach beyond the old edge");
    trace.window = 5;
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 5 << 7);
}

#[test]
fn a_segment_may_be_longer_than_a_super_segment() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(3 * MSS, MSS);
    // As with an MTU of 65,535 bytes.
    trace.conn.snd.set_mss(65_495);
    trace.timeout();
    assert_eq!(trace.resend(), [(0, 3 * MSS)], "the small ones join");
}

#[test]
fn an_ack_gives_a_sample_and_stops_the_timer() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(2 * MSS, MSS);
    trace.wait(50);
    trace.ack(MSS, &[]);
    let srtt = trace.conn.snd.flight.rtt().srtt().expect("a sample");
    assert_eq!(srtt.to_duration(), Duration::from_micros(100_000 - 50_000 / 8));
    assert!(trace.conn.timers.is_armed(Timer::Retransmit));
    trace.ack(2 * MSS, &[]);
    assert!(!trace.conn.timers.is_armed(Timer::Retransmit));
    assert!(trace.conn.poll_event().contains(Events::DRAINED));
    assert_eq!(trace.count(Counter::TcpDelivered), 2);
}

#[test]
fn a_single_loss_is_sent_again_after_three_duplicates() {
    for peer in [Peer::Sack, Peer::SackAndTimestamps] {
        let mut trace = Trace::new(peer);
        assert_eq!(trace.send(20 * MSS, MSS), 10 * MSS);
        trace.wait(100);
        trace.ack(0, &[(MSS, 2 * MSS)]);
        trace.ack(0, &[(MSS, 3 * MSS)]);
        assert_eq!(trace.phase(), RecoveryState::Disorder);
        assert!(trace.resend().is_empty(), "two are not enough");
        trace.ack(0, &[(MSS, 4 * MSS)]);
        assert_eq!(trace.phase(), RecoveryState::Recovery);
        assert_eq!(trace.resend(), [(0, MSS)]);
        assert_eq!(trace.cwnd(), 7);
        // In flight: six of the first ten, and the copy.
        assert_eq!(trace.conn.snd.pipe(), 7);
        trace.wait(100);
        trace.ack(10 * MSS, &[]);
        assert_eq!(trace.phase(), RecoveryState::Open);
        assert_eq!(trace.count(Counter::TcpSackRecovery), 1);
        assert_eq!(trace.count(Counter::TcpFastRetrans), 1);
        assert_eq!(trace.count(Counter::TcpTimeouts), 0);
        // The ACK that ends it already counts for congestion avoidance.
        assert_eq!((trace.cwnd(), trace.conn.snd.flight.cc().ssthresh()), (8, 7));
    }
}

#[test]
fn limited_transmit_sends_on_the_first_two_duplicates() {
    for peer in [Peer::Sack, Peer::Plain] {
        let mut trace = Trace::new(peer);
        trace.send(10 * MSS, MSS);
        assert_eq!(trace.send(5 * MSS, MSS), 0, "cwnd is full");
        trace.wait(100);
        for duplicate in 1..=2 {
            let blocks = [(MSS, (duplicate + 1) * MSS)];
            trace.ack(0, if peer == Peer::Sack { &blocks } else { &[] });
            assert_eq!(trace.send(5 * MSS, MSS), MSS, "duplicate {duplicate}");
        }
        assert_eq!(trace.phase(), RecoveryState::Disorder);
    }
}

#[test]
fn reordering_below_the_threshold_changes_nothing() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 2 * MSS)]);
    trace.ack(0, &[(MSS, 3 * MSS)]);
    trace.ack(3 * MSS, &[]);
    assert!(trace.resend().is_empty());
    assert_eq!(trace.phase(), RecoveryState::Open);
    assert!(trace.cwnd() >= 10);
    assert_eq!(trace.count(Counter::TcpSackReorder), 1);
}

#[test]
fn a_burst_loss_is_repaired_in_one_recovery() {
    let mut trace = Trace::new(Peer::Sack);
    // One super-segment of ten; the first four segments are lost.
    trace.send(10 * MSS, 10 * MSS);
    trace.wait(100);
    trace.ack(0, &[(4 * MSS, 10 * MSS)]);
    assert_eq!(trace.phase(), RecoveryState::Recovery, "six SACKed segments say it at once");
    assert_eq!(trace.resend(), [(0, 2 * MSS), (2 * MSS, 4 * MSS)], "a slow sender's packets");
    trace.wait(100);
    trace.ack(10 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Open);
    assert_eq!(trace.count(Counter::TcpFastRetrans), 4);
}

#[test]
fn a_lost_retransmission_is_found_by_what_left_after_it() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 5 * MSS)]);
    assert_eq!(trace.resend(), [(0, MSS)]);
    assert_eq!(trace.send(MSS, MSS), MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 10 * MSS)]);
    assert!(trace.resend().is_empty(), "the first copies tell nothing of the second");
    trace.ack(0, &[(MSS, 11 * MSS)]);
    assert_eq!(trace.phase(), RecoveryState::Recovery);
    assert_eq!(trace.count(Counter::TcpLostRetransmit), 1);
    assert_eq!(trace.resend(), [(0, MSS)]);
    trace.wait(100);
    trace.ack(11 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Open);
    assert!(trace.conn.snd.flight.board().is_empty());
    assert_eq!(trace.count(Counter::TcpTimeouts), 0);
}

#[test]
fn without_three_duplicates_a_quarter_of_the_round_trip_tells() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(4 * MSS, MSS);
    let begun = trace.now;
    trace.wait(100);
    trace.ack(0, &[(3 * MSS, 4 * MSS)]);
    assert_eq!(trace.phase(), RecoveryState::Disorder);
    trace.timeout();
    assert_eq!(trace.now.since(begun), Duration::from_millis(127));
    assert_eq!(
        (trace.phase(), trace.conn.snd.flight.board().lost_out()),
        (RecoveryState::Recovery, 3)
    );
    assert_eq!(trace.resend(), [(0, MSS)]);
    assert_eq!(trace.count(Counter::TcpTimeouts), 0);
}

#[test]
fn a_timeout_goes_back_in_slow_start_and_leaves_what_was_sacked() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(3 * MSS, 4 * MSS)]);
    // First the reordering window ends.
    trace.timeout();
    trace.timeout();
    assert_eq!(trace.count(Counter::TcpTimeouts), 1);
    assert_eq!(trace.cwnd(), 1);
    assert_eq!(trace.resend(), [(0, MSS)]);
    trace.wait(100);
    trace.ack(MSS, &[(3 * MSS, 4 * MSS)]);
    assert_eq!(trace.cwnd(), 2);
    assert_eq!(trace.resend(), [(MSS, 2 * MSS), (2 * MSS, 3 * MSS)]);
    trace.wait(100);
    trace.ack(4 * MSS, &[]);
    assert_eq!(
        trace.resend(),
        [(4 * MSS, 5 * MSS), (5 * MSS, 6 * MSS), (6 * MSS, 7 * MSS), (7 * MSS, 8 * MSS)]
    );
}

#[test]
fn a_timeout_with_reneging_sends_everything_again() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 3 * MSS)]);
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.flight.board().sacked_out(), 2);
    trace.timeout();
    assert_eq!(trace.count(Counter::TcpSackReneging), 1);
    assert_eq!(trace.conn.snd.flight.board().lost_out(), 9);
    assert_eq!(trace.resend(), [(MSS, 2 * MSS)]);
}

#[test]
fn without_sack_a_partial_ack_sends_the_next_hole() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    for _ in 0..3 {
        trace.ack(0, &[]);
    }
    assert_eq!(trace.phase(), RecoveryState::Recovery);
    assert_eq!(trace.count(Counter::TcpRenoRecovery), 1);
    assert_eq!(trace.resend(), [(0, MSS)]);
    trace.wait(100);
    trace.ack(4 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Recovery);
    assert_eq!(trace.resend(), [(4 * MSS, 5 * MSS)]);
    trace.wait(100);
    trace.ack(10 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Recovery, "until more than that is acknowledged");
    // The duplicates of the recovery itself do not start another.
    trace.send(4 * MSS, MSS);
    for _ in 0..5 {
        trace.ack(10 * MSS, &[]);
    }
    assert!(trace.resend().is_empty());
    assert_eq!(trace.count(Counter::TcpRenoRecovery), 1);
    trace.ack(11 * MSS, &[]);
    assert_eq!((trace.phase(), trace.cwnd()), (RecoveryState::Open, 7));
}

#[test]
fn a_window_update_is_not_a_duplicate() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(10 * MSS, MSS);
    for step in 1..=4 {
        trace.window = 60_000 + step;
        trace.ack(0, &[]);
    }
    assert_eq!(trace.conn.snd.flight.board().sacked_out(), 0);
    assert_eq!(trace.conn.snd.wnd(), 60_004 << 7);
}

#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut trace = Trace::new(Peer::Plain);
    trace.send(10 * MSS, MSS);
    trace.ack(2 * MSS, &[]);
    trace.window = 1;
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 60_000 << 7);
    trace.ack(2 * MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 60_000 << 7, "nor does a duplicate shrink it");
    trace.ack(3 * MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 1 << 7, "a shrunken window is taken");
}

#[test]
fn nothing_is_sent_again_while_it_is_still_below_us() {
    let mut trace = Trace::new(Peer::Sack);
    trace.completed = 0;
    trace.send(10 * MSS, MSS);
    trace.timeout();
    assert_eq!(trace.phase(), RecoveryState::Open);
    assert_eq!(trace.count(Counter::TcpSpuriousRtxHostQueues), 1);
    assert_eq!(trace.count(Counter::TcpTimeouts), 0);
    trace.ack(0, &[(MSS, 5 * MSS)]);
    assert_eq!(trace.phase(), RecoveryState::Recovery);
    for _ in 0..3 {
        // For any number of polls, one retransmission was omitted.
        assert!(trace.resend().is_empty());
        assert_eq!(trace.count(Counter::TcpSpuriousRtxHostQueues), 2);
    }
    trace.completed = 1;
    assert_eq!(trace.resend(), [(0, MSS)]);
}

#[test]
fn a_dsack_is_counted() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.ack(4 * MSS, &[]);
    trace.ack(4 * MSS, &[(MSS, 2 * MSS)]);
    assert_eq!(trace.count(Counter::TcpDsackRecv), 1);
    assert_eq!(trace.count(Counter::TcpDsackIgnoredDubious), 1, "nothing was sent twice");
}

#[test]
fn a_silent_peer_is_given_up_after_the_time_of_tcp_retries2() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(MSS, MSS);
    let begun = trace.now;
    let mut timeouts = 0;
    while trace.conn.state() != State::Closed {
        trace.timeout();
        trace.resend();
        timeouts += 1;
        assert!(timeouts < 40, "it must end");
    }
    assert_eq!(trace.conn.error(), Some(ConnectionError::TimedOut));
    let waited = trace.now.since(begun);
    assert!(waited > Duration::from_secs(924) && waited < Duration::from_secs(1100), "{waited:?}");
}

#[test]
fn the_remembered_soft_error_is_reported() {
    let config = Config { tcp_retries2: 2, ..Config::default() };
    let mut trace = Trace::with_config(Peer::Sack, config);
    trace.send(MSS, MSS);
    trace.conn.soft_error = Some(ConnectionError::HostUnreachable);
    while trace.conn.state() != State::Closed {
        trace.timeout();
        trace.resend();
    }
    assert_eq!(trace.conn.error(), Some(ConnectionError::HostUnreachable));
    assert_eq!(trace.count(Counter::TcpAbortOnTimeout), 1);
}

#[test]
fn the_user_timeout_takes_the_place_of_the_retries() {
    let mut trace = Trace::new(Peer::Sack);
    let options = Options { user_timeout: Some(Duration::from_secs(5)), ..Options::default() };
    trace.conn.options = options.into();
    trace.send(MSS, MSS);
    let begun = trace.now;
    while trace.conn.state() != State::Closed {
        trace.timeout();
        trace.resend();
    }
    assert_eq!(trace.now.since(begun), Duration::from_secs(5));
    assert_eq!(trace.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn an_orphan_is_given_up_earlier() {
    let mut trace = Trace::new(Peer::Sack);
    trace.conn.orphan = true;
    trace.send(MSS, MSS);
    let begun = trace.now;
    while trace.conn.state() != State::Closed {
        trace.timeout();
        trace.resend();
    }
    let waited = trace.now.since(begun);
    assert!(waited > Duration::from_secs(50) && waited < Duration::from_secs(250), "{waited:?}");
}

#[test]
fn an_idle_connection_starts_again_from_the_initial_window() {
    let mut trace = Trace::new(Peer::Sack);
    for round in 0..4 {
        trace.send(1_000_000, MSS);
        trace.wait(100);
        let end = trace.position(trace.conn.snd.nxt());
        trace.ack(end, &[]);
        assert_eq!(trace.cwnd(), 20 << round);
    }
    trace.wait(60_000);
    let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
    let cx = Context { now: trace.now, below, config: &trace.config, counters: &trace.counters };
    trace.conn.snd.flight.restart_after_idle(&cx);
    assert_eq!(trace.cwnd(), 10);
}

#[test]
fn a_window_closed_over_sent_data_is_asked_with_one_segment() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, 10 * MSS);
    trace.window = 0;
    trace.ack(2 * MSS, &[]);
    assert_eq!(trace.conn.snd.wnd(), 0);
    trace.timeout();
    assert_eq!(trace.resend(), [(2 * MSS, 3 * MSS)]);
    // The peer answers and stays closed for an hour; that is no reason to give up.
    for _ in 0..60 {
        trace.timeout();
        trace.resend();
        trace.ack(2 * MSS, &[]);
        assert_eq!(trace.conn.state(), State::Established);
    }
    trace.window = 60_000;
    trace.ack(10 * MSS, &[]);
    assert!(trace.conn.snd.flight.board().is_empty());
}

#[test]
fn a_smaller_path_sends_the_long_segments_again_without_a_smaller_window() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(4 * MSS, MSS);
    let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
    let cx = Context { now: trace.now, below, config: &trace.config, counters: &trace.counters };
    let cwnd = trace.conn.snd.flight.cc().cwnd();
    trace.conn.handle_path_event(&cx, crate::mtu::PathEvent::Mtu(540));
    assert_eq!(trace.conn.snd.mss(), 500);
    assert_eq!(trace.cwnd(), cwnd);
    assert_eq!(trace.resend(), [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]);
    trace.ack(4 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Open);
    assert!(trace.cwnd() >= cwnd);
}

#[test]
fn a_second_timeout_holds_ssthresh() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.timeout();
    let ssthresh = trace.conn.snd.flight.cc().ssthresh();
    assert_eq!(ssthresh, 7);
    trace.resend();
    let first = trace.now;
    trace.timeout();
    assert_eq!(trace.conn.snd.flight.cc().ssthresh(), ssthresh);
    assert_eq!(trace.now.since(first), Duration::from_millis(600), "the timeout has doubled");
    trace.resend();
    trace.wait(100);
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.flight.rtt().backoff(), 1 + 1, "Karn: no sample, no shorter timeout");
}

#[test]
fn timestamps_end_the_backoff_after_a_retransmission() {
    let mut trace = Trace::new(Peer::SackAndTimestamps);
    trace.send(10 * MSS, MSS);
    trace.timeout();
    trace.resend();
    trace.wait(100);
    trace.ack(MSS, &[]);
    assert_eq!(trace.conn.snd.flight.rtt().backoff(), 0);
}

/// SACK blocks as pairs of positions.
type Blocks = Vec<(u32, u32)>;

/// A receiver that keeps arrived data and acknowledges at once, with SACK blocks if `sack`.
#[derive(Default)]
struct Sink {
    next: u32,
    /// Out-of-order ranges, by start.
    held: BTreeMap<u32, u32>,
    last: u32,
}

impl Sink {
    fn take(&mut self, start: u32, end: u32) {
        self.last = start;
        let (mut start, mut end) = (start.max(self.next), end);
        if start >= end {
            return;
        }
        let touching: Vec<u32> = self
            .held
            .range(..=end)
            .filter(|&(_, &right)| right >= start)
            .map(|(&left, _)| left)
            .collect();
        for left in touching {
            let right = self.held.remove(&left).expect("it was just found");
            (start, end) = (start.min(left), end.max(right));
        }
        if start == self.next {
            self.next = end;
        } else {
            self.held.insert(start, end);
        }
    }

    fn blocks(&self) -> Blocks {
        let newest = self.held.iter().find(|&(&left, &right)| (left..right).contains(&self.last));
        let others = self.held.iter().rev();
        let mut blocks = Blocks::new();
        for (&left, &right) in newest.into_iter().chain(others) {
            if !blocks.contains(&(left, right)) && blocks.len() < 3 {
                blocks.push((left, right));
            }
        }
        blocks
    }
}

/// Sends `total` bytes over a path of 20 ms each way that loses `loss` of 1000 packets in both
/// directions, and returns the virtual time it took.
fn lossy_transfer(peer: Peer, algorithm: CongestionAlgorithm, loss: u64, seed: u64) -> Duration {
    let config = Config { tcp_congestion_control: algorithm, ..Config::default() };
    let mut trace = Trace::with_config(peer, config);
    let total = under_miri(400, 12) * MSS;
    let begun = trace.now;
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut lost = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % 1000 < loss
    };
    let one_way = Duration::from_millis(20);
    let mut data: VecDeque<(Instant, u32, u32)> = VecDeque::new();
    let mut acks: VecDeque<(Instant, u32, Blocks)> = VecDeque::new();
    let mut sink = Sink::default();
    let mut steps = 0;
    while trace.position(trace.conn.snd.una()) < total {
        steps += 1;
        assert!(steps < 200_000, "no progress");
        assert_ne!(trace.conn.state(), State::Closed, "given up");
        let before = trace.position(trace.conn.snd.nxt());
        let mut out = trace.resend();
        let sent = trace.send(total - before, 4 * MSS);
        if sent > 0 {
            out.push((before, before + sent));
        }
        for (start, end) in out {
            for start in (start..end).step_by(MSS as usize) {
                if !lost() {
                    data.push_back((trace.now + one_way, start, end.min(start + MSS)));
                }
            }
        }
        let mut next = trace.conn.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        next = next.min(data.front().map_or(Instant::FAR_FUTURE, |packet| packet.0));
        next = next.min(acks.front().map_or(Instant::FAR_FUTURE, |packet| packet.0));
        assert_ne!(next, Instant::FAR_FUTURE, "everything waits for ever");
        trace.now = trace.now.max(next);
        if data.front().is_some_and(|packet| packet.0 <= trace.now) {
            let (_, start, end) = data.pop_front().expect("there is a front");
            sink.take(start, end);
            if !lost() {
                let blocks = if peer == Peer::Plain { Vec::new() } else { sink.blocks() };
                acks.push_back((trace.now + one_way, sink.next, blocks));
            }
        } else if acks.front().is_some_and(|packet| packet.0 <= trace.now) {
            let (_, ack, blocks) = acks.pop_front().expect("there is a front");
            trace.ack(ack, &blocks);
        } else {
            trace.timeout();
        }
        assert!(trace.cwnd() >= 1);
        assert!(trace.conn.snd.pipe() <= trace.conn.snd.flight.board().packets_out() * 2);
    }
    assert_eq!(sink.next, total);
    trace.now.since(begun)
}

#[test]
fn lossy_paths_are_survived_in_bounded_time() {
    for peer in [Peer::Sack, Peer::Plain, Peer::SackAndTimestamps] {
        for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
            // (loss in 1000, seconds it may take)
            for (loss, most) in [(0, 1), (10, 15), (30, 40), (100, 300)] {
                for seed in 1..under_miri(12, 2) {
                    let took = lossy_transfer(peer, algorithm, loss, seed);
                    assert!(took < Duration::from_secs(most), "{loss}/1000, seed {seed}: {took:?}");
                }
            }
        }
    }
}

#[test]
fn a_tail_loss_probe_asks_before_the_timeout() {
    let mut trace = Trace::with_config(Peer::Sack, Config::default());
    trace.send(4 * MSS, MSS);
    let begun = trace.now;
    trace.timeout();
    assert_eq!(trace.now.since(begun), Duration::from_millis(202), "two round trips");
    assert_eq!(trace.resend(), [(3 * MSS, 4 * MSS)]);
    assert_eq!(trace.count(Counter::TcpLossProbes), 1);
    // It was indeed lost: the window is reduced although no loss was seen.
    trace.wait(100);
    trace.ack(4 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Open);
    trace.send(MSS, MSS);
    trace.wait(100);
    trace.ack(5 * MSS, &[]);
    assert_eq!(trace.count(Counter::TcpLossProbeRecovery), 1);
    assert_eq!(trace.cwnd(), 7);
}

#[test]
fn a_probe_that_arrived_twice_changes_nothing() {
    let mut trace = Trace::with_config(Peer::Sack, Config::default());
    trace.send(4 * MSS, MSS);
    trace.timeout();
    trace.resend();
    trace.wait(10);
    trace.ack(4 * MSS, &[]);
    trace.ack(4 * MSS, &[(3 * MSS, 4 * MSS)]);
    trace.send(MSS, MSS);
    trace.wait(100);
    trace.ack(5 * MSS, &[]);
    assert_eq!(trace.count(Counter::TcpLossProbeRecovery), 0);
    assert_eq!(trace.cwnd(), 10);
}

#[test]
fn a_timestamp_undoes_a_recovery_that_reordering_caused() {
    let mut trace = Trace::new(Peer::SackAndTimestamps);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 4 * MSS)]);
    assert_eq!((trace.phase(), trace.cwnd()), (RecoveryState::Recovery, 7));
    assert_eq!(trace.resend(), [(0, MSS)]);
    // The echo is a hundred milliseconds old: the first copy has arrived.
    trace.wait(5);
    trace.ack(10 * MSS, &[]);
    assert_eq!((trace.phase(), trace.cwnd() >= 10), (RecoveryState::Open, true));
    assert_eq!(trace.count(Counter::TcpFullUndo), 1);
    assert!(!trace.conn.snd.flight.cc().is_threshold_known());
}

#[test]
fn dsacks_undo_a_recovery() {
    let mut trace = Trace::new(Peer::Sack);
    trace.send(10 * MSS, MSS);
    trace.wait(100);
    trace.ack(0, &[(MSS, 4 * MSS)]);
    trace.resend();
    trace.wait(5);
    trace.ack(4 * MSS, &[]);
    assert_eq!(trace.phase(), RecoveryState::Recovery);
    trace.ack(4 * MSS, &[(0, MSS)]);
    assert_eq!(trace.count(Counter::TcpDsackUndo), 1);
    assert!(trace.cwnd() >= 10, "{}", trace.cwnd());
}

#[test]
fn an_echoed_mark_reduces_the_window_once() {
    let mut trace = Trace::new(Peer::Sack);
    trace.conn.ecn = crate::ecn::EcnState::classic();
    trace.send(4 * MSS, MSS);
    trace.wait(100);
    let mut repr = trace.header(MSS, TcpFlags::ACK | TcpFlags::ECE);
    trace.deliver(repr.clone());
    assert_eq!(
        (trace.phase(), trace.cwnd(), trace.conn.snd.flight.cc().ssthresh()),
        (RecoveryState::Cwr, 5, 7)
    );
    repr.ack = trace.seq(2 * MSS);
    trace.deliver(repr);
    assert_eq!((trace.phase(), trace.conn.snd.flight.cc().ssthresh()), (RecoveryState::Cwr, 7));
    assert_eq!(trace.conn.snd.flight.delivered_ce(), 2);
}
