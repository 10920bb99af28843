//! Traces that make one counter move and hold it to how often: those of receiving, of
//! acknowledgements and of retransmission that no other test is about.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::Timestamps;

use super::{Line, Setup, Trace};
use crate::config::Config;
use crate::counters::Counter;
use crate::event::Ending;
use crate::output::Hold;
use crate::segment::Ecn;
use crate::state::State;
use crate::time::Duration;

impl Trace {
    /// The peer sends a segment with this timestamp and this echo.
    fn recv_stamped(&mut self, line: &str, val: u32, ecr: u32) {
        let line = Line::parse(line);
        let mut repr = self.repr(&line);
        repr.options.timestamps = Some(Timestamps { val, ecr });
        let data: std::vec::Vec<u8> =
            (line.start..line.end).map(|at| super::pattern(at as usize)).collect();
        self.input(repr, &data);
    }

    /// Our timestamp now.
    fn stamp(&self) -> u32 {
        self.conn.ts.val(self.now)
    }

    /// Writes `count` full segments, which leave one by one.
    #[track_caller]
    fn fill(&mut self, count: usize) {
        self.write(count * 1000);
        assert_eq!(self.drain().len(), count, "all of them leave");
    }
}

fn with(change: impl FnOnce(&mut Config)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.config);
    setup
}

/// Established, with timestamps; the peer's first was 100.
fn stamped() -> Trace {
    let mut t = Trace::syn_sent(with(|config| config.tcp_timestamps = true));
    let ecr = t.stamp();
    let mut repr = t.repr(&Line::parse("S. 0:0 ack 1"));
    repr.options.syn_mut().mss = Some(1000 + 12);
    repr.options.syn_mut().sack_permitted = true;
    repr.options.timestamps = Some(Timestamps { val: 100, ecr });
    t.input(repr, &[]);
    t.expect(". 1:1 ack 1");
    t
}

/// Established, without SACK. The window is known, so that the same ACK again is a duplicate.
fn reno() -> Trace {
    let mut t = Trace::established(with(|config| config.tcp_sack = false));
    t.recv(". 1:1 ack 1");
    t
}

#[test]
fn data_that_comes_again_is_counted_and_reported() {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 1:101 ack 1");
    t.recv("P. 1:101 ack 1");
    assert_eq!(t.count(Counter::DelayedAckLost), 1);
    assert_eq!(t.count(Counter::TcpDsackOldSent), 1);
    t.expect(". 1:1 ack 101 sack 1:101");
    // Now it is before the window.
    t.recv("P. 1:51 ack 1");
    assert_eq!(t.count(Counter::DelayedAckLost), 2);
    assert_eq!(t.count(Counter::TcpDsackOldSent), 2);
}

#[test]
fn of_two_segments_outside_the_window_one_is_answered() {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 1:101 ack 1");
    t.expect(". 1:1 ack 101");
    for skipped in [0, 1] {
        t.recv(". 1:1 ack 1");
        assert_eq!(t.count(Counter::TcpAckSkippedSeq), skipped);
    }
    t.expect(". 1:1 ack 101");
    t.expect_nothing();
}

#[test]
fn of_two_segments_from_the_past_one_is_answered() {
    let mut t = stamped();
    for skipped in [0, 1] {
        t.recv_stamped(". 1:1 ack 1", 99_u32.wrapping_sub(2000), 1);
        assert_eq!(t.count(Counter::TcpAckSkippedPaws), skipped);
    }
    assert_eq!(t.count(Counter::PawsEstab), 2);
    t.expect(". 1:1 ack 1");
    t.expect_nothing();
}

#[test]
fn slow_starts_that_end_without_a_loss_are_counted_with_their_windows() {
    let setup = || with(|config| config.initcwnd = 20);
    let counts = |t: &Trace| {
        let train = (Counter::TcpHystartTrainDetect, Counter::TcpHystartTrainCwnd);
        let delay = (Counter::TcpHystartDelayDetect, Counter::TcpHystartDelayCwnd);
        [train, delay].map(|(times, windows)| (t.count(times), t.count(windows)))
    };
    // The ACKs of one window come a millisecond apart, for more than half of 20 ms.
    let mut t = Trace::established(setup());
    t.fill(20);
    for ms in 0..20_u64 {
        t.at(20 + ms);
        t.recv(&std::format!(". 1:1 ack {}", ms * 1000 + 1001));
    }
    let train = u64::from(t.conn.snd.flight.cc().ssthresh());
    assert_eq!(counts(&t), [(1, train), (0, 0)]);
    assert!((20..40).contains(&train), "{train}");
    // The round trip doubles.
    let mut t = Trace::established(setup());
    t.fill(20);
    t.at(20);
    t.recv(". 1:1 ack 20001");
    t.fill(20);
    t.at(60);
    for segment in 0..9 {
        assert_eq!(counts(&t), [(0, 0); 2]);
        t.recv(&std::format!(". 1:1 ack {}", segment * 1000 + 21_001));
    }
    let delay = u64::from(t.conn.snd.flight.cc().ssthresh());
    assert_eq!(counts(&t), [(0, 0), (1, delay)]);
    assert!((20..50).contains(&delay), "{delay}");
}

#[test]
fn a_syn_ack_with_a_foreign_echo_is_refused() {
    let mut t = Trace::syn_sent(with(|config| config.tcp_timestamps = true));
    let ahead = t.stamp().wrapping_add(1_000_000);
    t.recv_stamped("S. 0:0 ack 1", 100, ahead);
    assert_eq!(t.count(Counter::PawsActive), 1);
    assert_eq!(t.conn.state(), State::SynSent);
    t.expect("R 1:1");
}

#[test]
fn data_in_order_takes_the_fast_path() {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 1:1001 ack 1");
    t.recv("P. 1001:2001 ack 1");
    assert_eq!(t.count(Counter::TcpHpHits), 2);
    t.recv("P. 3001:4001 ack 1");
    assert_eq!(t.count(Counter::TcpHpHits), 2, "what is out of order does not");
}

#[test]
fn small_segments_share_memory_in_the_queue() {
    let mut t = Trace::established(Setup::default());
    t.recv(". 1:101 ack 1");
    assert_eq!(t.count(Counter::TcpRcvCoalesce), 0);
    t.recv(". 101:201 ack 1");
    t.recv(". 201:301 ack 1");
    assert_eq!(t.count(Counter::TcpRcvCoalesce), 2);
}

#[test]
fn out_of_order_data_that_overlaps_is_merged() {
    let mut t = Trace::established(Setup::default());
    t.recv("P. 2001:3001 ack 1");
    assert_eq!(t.count(Counter::TcpOfoMerge), 0);
    t.recv("P. 1501:2501 ack 1");
    assert_eq!((t.count(Counter::TcpOfoMerge), t.count(Counter::TcpOfoQueue)), (1, 2));
}

#[test]
fn a_syn_on_a_connection_is_challenged() {
    let mut t = Trace::established(Setup::default());
    t.recv("S 50:50");
    assert_eq!(t.count(Counter::TcpSynChallenge), 1);
    assert_eq!(t.conn.state(), State::Established);
    t.expect(". 1:1 ack 1");
}

#[test]
fn a_syn_that_leaves_again_is_counted() {
    let mut t = Trace::syn_sent(Setup::default());
    assert_eq!(t.count(Counter::TcpSynRetrans), 0);
    t.sleep();
    t.expect("S 0:0");
    assert_eq!((t.count(Counter::TcpSynRetrans), t.count(Counter::RetransSegs)), (1, 1));
}

#[test]
fn what_is_delivered_with_an_echo_of_congestion_is_counted() {
    let mut t = Trace::established(Setup::default());
    t.conn.ecn = crate::ecn::EcnState::classic();
    t.fill(4);
    t.recv(". 1:1 ack 1001");
    assert_eq!(t.count(Counter::TcpDeliveredCe), 0);
    t.recv("E. 1:1 ack 3001");
    assert_eq!((t.count(Counter::TcpDeliveredCe), t.count(Counter::TcpDelivered)), (2, 3));
    // Segments that arrive with a mark are treated differently.
    t.recv_marked(". 1:1 ack 4001", Ecn::Ce);
    assert_eq!(t.count(Counter::TcpDeliveredCe), 2);
}

#[test]
fn reports_of_duplicates_are_counted_by_where_they_point() {
    let mut t = Trace::established(with(|config| config.tcp_frto = 0));
    t.fill(3);
    t.sleep();
    t.expect(". 1:1001 ack 1");
    // A part of the out-of-order data came twice: it is above the acknowledgement.
    t.recv(". 1:1 ack 1 sack 1001:1501 sack 1001:3001");
    assert_eq!((t.count(Counter::TcpDsackOfoRecv), t.count(Counter::TcpDsackRecv)), (1, 0));
    assert_eq!(t.count(Counter::TcpDsackRecvSegs), 1);
    // One more than was retransmitted is impossible.
    t.recv(". 1:1 ack 3001 sack 1:1001");
    assert_eq!((t.count(Counter::TcpDsackOfoRecv), t.count(Counter::TcpDsackRecv)), (1, 1));
    assert_eq!(t.count(Counter::TcpDsackRecvSegs), 1);
    assert_eq!(t.count(Counter::TcpDsackIgnoredDubious), 1);
}

#[test]
fn a_block_of_what_was_never_sent_is_discarded() {
    let mut t = Trace::established(Setup::default());
    t.fill(3);
    t.recv(". 1:1 ack 1 sack 2001:3001");
    assert_eq!(t.count(Counter::TcpSackDiscard), 0);
    t.recv(". 1:1 ack 1 sack 5001:6001");
    assert_eq!(t.count(Counter::TcpSackDiscard), 1);
}

#[test]
fn what_a_timeout_sends_again_is_slow_start() {
    let mut t = Trace::established(with(|config| config.tcp_frto = 0));
    t.fill(3);
    t.sleep();
    t.expect(". 1:1001 ack 1");
    assert_eq!((t.count(Counter::TcpSlowStartRetrans), t.count(Counter::TcpTimeouts)), (1, 1));
    assert_eq!(t.count(Counter::TcpLossFailures), 0);
    // One arrives; the next two leave and are lost, and the timer fires again.
    t.recv(". 1:1 ack 1001");
    assert_eq!(t.drain().len(), 2);
    assert_eq!(t.count(Counter::TcpSlowStartRetrans), 3);
    t.sleep();
    assert_eq!((t.count(Counter::TcpLossFailures), t.count(Counter::TcpTimeouts)), (1, 2));
}

#[test]
fn timeouts_say_what_had_not_helped() {
    let timeout = |mut t: Trace| {
        while t.count(Counter::TcpTimeouts) == 0 {
            t.sleep();
            t.drain();
        }
        [
            Counter::TcpSackFailures,
            Counter::TcpSackRecoveryFail,
            Counter::TcpRenoFailures,
            Counter::TcpRenoRecoveryFail,
        ]
        .map(|counter| t.count(counter))
    };
    let mut t = Trace::established(Setup::default());
    t.fill(6);
    assert_eq!(timeout(t), [0, 0, 0, 0], "nothing had come");
    // The sent data was retransmitted as a tail loss probe, and a duplicate comes.
    let mut t = Trace::established(with(|config| config.tcp_early_retrans = 3));
    t.recv(". 1:1 ack 1");
    t.fill(1);
    t.sleep();
    assert_eq!((t.drain().len(), t.count(Counter::TcpLossProbes)), (1, 1));
    t.recv(". 1:1 ack 1");
    assert_eq!(timeout(t), [1, 0, 0, 0]);
    let mut t = Trace::established(Setup::default());
    t.fill(6);
    t.recv(". 1:1 ack 1 sack 1001:5001");
    assert_eq!((t.drain().len(), t.count(Counter::TcpSackRecovery)), (1, 1));
    assert_eq!(timeout(t), [0, 1, 0, 0]);
    for (duplicates, expected) in [(1, [0, 0, 1, 0]), (4, [0, 0, 0, 1])] {
        let mut t = reno();
        t.fill(6);
        (0..duplicates).for_each(|_| t.recv(". 1:1 ack 1"));
        t.drain();
        assert_eq!(timeout(t), expected, "{duplicates} duplicates");
    }
}

#[test]
fn more_duplicates_than_segments_mean_reordering() {
    let mut t = reno();
    t.fill(3);
    t.recv(". 1:1 ack 1");
    t.recv(". 1:1 ack 1");
    assert_eq!(t.count(Counter::TcpRenoReorder), 0);
    t.recv(". 1:1 ack 1");
    assert_eq!(t.count(Counter::TcpRenoReorder), 1);
}

#[test]
fn a_timeout_is_undone_when_what_was_not_sent_again_arrives() {
    let mut t = Trace::established(Setup::default());
    t.fill(3);
    let before = t.conn.snd.flight.cc().cwnd();
    t.sleep();
    t.expect(". 1:1001 ack 1");
    assert!(t.conn.snd.flight.cc().cwnd() < before);
    t.write(1000);
    t.recv(". 1:1 ack 1001");
    assert_eq!(t.drain().len(), 1, "new data goes first");
    assert_eq!(t.count(Counter::TcpLossUndo), 0);
    t.recv(". 1:1 ack 2001");
    assert_eq!((t.count(Counter::TcpLossUndo), t.count(Counter::TcpSpuriousRtos)), (1, 1));
    assert!(t.conn.snd.flight.cc().cwnd() >= before);
}

#[test]
fn a_recovery_is_undone_when_a_hole_is_filled_by_what_was_late() {
    let mut t = stamped();
    let sent = t.stamp();
    t.fill(8);
    t.at(100);
    // The first and the third are late.
    let blocks =
        ["sack 1001:2001", "sack 3001:4001 sack 1001:2001", "sack 3001:8001 sack 1001:2001"];
    for blocks in blocks {
        t.recv_stamped(&std::format!(". 1:1 ack 1 {blocks}"), 101, sent);
    }
    let again = t.next().expect("the first is sent again");
    assert_eq!(again.repr.seq, super::ISS + 1);
    assert_eq!((t.count(Counter::TcpPartialUndo), t.count(Counter::TcpTsReorder)), (0, 0));
    // The first arrives after all: the timestamp that it echoes is older than the copy.
    t.at(101);
    t.recv_stamped(". 1:1 ack 2001 sack 3001:8001", 102, sent);
    assert_eq!((t.count(Counter::TcpPartialUndo), t.count(Counter::TcpTsReorder)), (1, 1));
}

#[test]
fn what_holds_new_data_is_counted_by_its_name() {
    let held = |win: u16, len: usize| {
        let mut t = Trace::established(Setup::default().win(win));
        t.write(len);
        t.drain();
        let counters = [Counter::HoldCwnd, Counter::HoldRwnd, Counter::HoldSillyWindow];
        (t.conn.hold(), counters.map(|counter| t.count(counter) > 0))
    };
    assert_eq!(held(60_000, 15_000), (Some(Hold::Cwnd), [true, false, false]));
    assert_eq!(held(3000, 5000), (Some(Hold::Rwnd), [false, true, false]));
    assert_eq!(held(2500, 5000), (Some(Hold::SillyWindow), [false, false, true]));
    assert_eq!(held(60_000, 5000), (None, [false, false, false]));
}

#[test]
fn an_orphan_that_may_not_linger_is_counted() {
    let mut setup = Setup::default();
    setup.options.linger2 = Some(Duration::ZERO);
    let mut t = Trace::established(setup);
    t.call(|conn, cx| conn.close(cx));
    t.expect("F. 1:1 ack 1");
    assert_eq!(t.count(Counter::TcpAbortOnLinger), 0);
    t.recv(". 1:1 ack 2");
    assert_eq!(t.count(Counter::TcpAbortOnLinger), 1);
    assert_eq!(t.conn.ending(), Some(Ending::Discarded));
}

#[test]
fn numbers_wrap_within_these_traces() {
    // Otherwise they would test less than they seem to.
    assert!(super::ISS + 3001 < SeqNum(3000) && super::IRS + 1001 < SeqNum(1000));
}
