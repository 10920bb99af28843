//! Traces of timeouts, probes, the timer and departures.

use super::testing::*;
use super::*;
use crate::counters::Counter;
use crate::time::Nanos;
use RecoveryState::{Disorder, Loss, Open, Recovery as Fast};

const NOTHING: [&str; 0] = [];
const INFINITE: u32 = 0x7fff_ffff;

fn ten(mut sender: Sender) -> Sender {
    assert_eq!(sender.write(10_000), ["N 1:10001"]);
    sender
}

/// rto/spurious.
#[test]
fn f_rto_takes_a_spurious_timeout_back() {
    let mut s = ten(sender_without_probes());
    s.conn.unsent = 10_000;
    assert_eq!(s.timer(), Some((Waits::Rto, 300)));
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    assert_eq!((s.window(), s.flight.board.lost_out()), ((Loss, 1, 7), 10));
    s.rows();
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001)), ["N 10001:12001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L4", "L8"]);
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Loss, 2));
    s.wait(50);
    s.take(&ack(2001));
    assert_eq!(s.rows(), ["A1", "A7", "L2", "L8", "L9", "O3", "O6"]);
    assert_eq!((s.window(), s.flight.board.lost_out()), ((Open, 11, INFINITE), 0));
    assert_eq!(s.count(Counter::TcpSpuriousRtos), 1);
    assert_eq!((s.count(Counter::TcpLossUndo), s.flight.retries()), (1, 0));
}

/// rto/real_loss.
#[test]
fn f_rto_finds_a_real_loss() {
    let mut s = ten(sender_without_probes());
    s.conn.unsent = 2000;
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001)), ["N 10001:12001"]);
    s.rows();
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001).sack(10_001, 11_001)), ["R 1001:2001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L3", "L7", "L8"]);
    assert_eq!((s.flight.state(), s.flight.board.lost_out(), s.flight.cc.cwnd()), (Loss, 9, 2));
}

#[test]
fn f_rto_without_new_data_sends_what_is_lost() {
    let mut s = ten(sender_without_probes());
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.rows();
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001)), ["R 1001:3001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L4", "L7", "L8"]);
    // New data that waits, but does not leave, gives way to lost data in the same call.
    let mut s = ten(sender_without_probes());
    s.on_timer();
    s.conn.unsent = 1000;
    s.take(&ack(1001));
    s.conn.unsent = 0;
    assert!(s.flight.sends_new_first());
    assert_eq!(s.output(), ["R 1001:3001"]);
}

/// rto/eifel_undo.
#[test]
fn a_timeout_is_undone_by_timestamps() {
    let config = Config { tcp_early_retrans: 0, ..Config::default() };
    let mut s = sender_with_timestamps();
    s.config = config;
    s.write(5000);
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    assert_eq!(s.window(), (Loss, 1, 7));
    s.rows();
    s.wait(20);
    s.on_ack(&ack(5001).tsecr(100));
    assert_eq!(s.rows(), ["A1", "A7", "L1", "L8", "L9", "O3", "O6"]);
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Open, INFINITE));
    assert!(s.flight.cc.cwnd() >= 10);
}

#[test]
fn loss_ends_with_what_was_outstanding() {
    let mut s = ten(sender_without_probes());
    s.on_timer();
    s.wait(100);
    s.on_ack(&ack(1001));
    s.rows();
    s.wait(100);
    s.on_ack(&ack(10_001));
    assert_eq!(s.rows(), ["A1", "A7", "L5", "L8", "L9", "O3", "O6"]);
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Open, 7));
}

/// rto/only_first_segment.
#[test]
fn slow_start_after_a_timeout() {
    let config = Config { tcp_frto: 0, ..Config::default() };
    let mut s = Sender::with(config, ConnView { sack: false, ..conn_view() });
    s.write(4000);
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.rows();
    s.wait(50);
    assert_eq!(s.on_ack(&ack(2001)), ["R 2001:4001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L6", "L7", "L8"]);
    assert_eq!(s.count(Counter::TcpSlowStartRetrans), 3);
    s.wait(50);
    s.on_ack(&ack(4001));
    assert_eq!(s.flight.state(), Loss, "without SACK until more is acknowledged");
    s.write(1000);
    s.wait(50);
    s.on_ack(&ack(5001));
    assert_eq!(s.flight.state(), Open);
}

/// rto/lost_again.
#[test]
fn what_is_lost_again_after_a_timeout_begins_recovery() {
    let config = Config { tcp_early_retrans: 0, tcp_frto: 0, ..Config::default() };
    let mut s = Sender::with(config, conn_view());
    s.write(4000);
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001)), ["R 1001:3001"]);
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Loss, 2));
    s.rows();
    s.wait(120);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 3001)), ["R 1001:2001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L7", "L8", "L9", "O3", "O8"]);
    assert_eq!((s.flight.state(), s.flight.board.retrans_out()), (Fast, 1));
}

/// rto/late_segment_stays.
#[test]
fn a_timeout_spares_what_left_lately() {
    let mut s = sender_without_probes();
    s.write(1000);
    s.wait(100);
    s.on_ack(&ack(1001));
    s.write(1000);
    s.wait(250);
    s.write(1000);
    assert_eq!(s.on_timer(), ["R 1001:2001"]);
    assert_eq!((s.flight.state(), s.flight.board.lost_out(), s.flight.cc.cwnd()), (Loss, 1, 2));
}

/// rto/backoff and rto/karn.
#[test]
fn the_timeout_doubles_until_a_sample() {
    let mut s = sender_without_sack();
    s.write(1000);
    for (millis, backoff) in [(300, 1), (600, 2), (1200, 3)] {
        assert_eq!(s.timer(), Some((Waits::Rto, millis)));
        assert_eq!(s.on_timer(), ["R 1:1001"]);
        assert_eq!((s.flight.rtt().backoff(), s.flight.retries()), (backoff, backoff));
    }
    s.wait(50);
    s.on_ack(&ack(1001));
    assert_eq!((s.flight.rtt().backoff(), s.flight.retries()), (3, 0), "no sample (Karn)");
    s.write(1000);
    assert_eq!(s.timer(), Some((Waits::Rto, 2400)));
    s.wait(100);
    s.on_ack(&ack(2001));
    assert_eq!(s.flight.rtt().backoff(), 0);
}

/// rto/timeout_restarts_on_ack.
#[test]
fn an_advance_restarts_the_timeout() {
    let mut s = sender_without_sack();
    s.write(2000);
    s.wait(100);
    s.on_ack(&ack(1001));
    assert_eq!(s.timer(), Some((Waits::Rto, 300)));
    s.wait(10);
    s.on_ack(&ack(1001));
    assert_eq!(s.timer(), Some((Waits::Rto, 290)), "a duplicate does not");
    s.on_ack(&ack(2001));
    assert_eq!(s.timer(), None);
}

/// timestamps/round_trip_of_retransmission.
#[test]
fn timestamps_give_the_round_trip_of_a_retransmission() {
    let mut s = sender_with_timestamps();
    s.config.tcp_early_retrans = 0;
    s.write(900);
    s.on_timer();
    assert_eq!(s.flight.rtt().backoff(), 1);
    s.wait(50);
    s.on_ack(&ack(901).tsecr(400));
    assert_eq!(
        (s.flight.rtt().backoff(), s.flight.rtt().min_rtt().map(|r| r.as_millis())),
        (0, Some(50))
    );
}

#[test]
fn counters_of_timeouts() {
    let of = |s: &Sender, counter| (s.count(Counter::TcpTimeouts), s.count(counter));
    let mut s = ten(sender_without_probes());
    s.fire();
    let failed = [Counter::TcpSackFailures, Counter::TcpRenoFailures, Counter::TcpLossFailures];
    assert!(failed.iter().all(|&counter| of(&s, counter) == (1, 0)), "in Open");
    s.fire();
    assert!(failed.iter().all(|&counter| of(&s, counter) == (2, 0)), "a repeated one");
    s.output();
    s.on_ack(&ack(1001));
    s.fire();
    assert_eq!(of(&s, Counter::TcpLossFailures), (3, 1));
    let mut s = ten(sender_without_sack());
    s.take(&ack(1));
    s.fire();
    assert_eq!(of(&s, Counter::TcpRenoFailures), (1, 1));
    let mut s = ten(sender_without_sack());
    s.on_ack(&ack(1).merged(3));
    s.fire();
    assert_eq!(of(&s, Counter::TcpRenoRecoveryFail), (1, 1));
    let mut s = ten(sender_without_probes());
    s.wait(100);
    s.take(&ack(1).sack(3001, 4001));
    s.flight.timer.set(Waits::Rto, s.now);
    s.fire();
    assert_eq!(of(&s, Counter::TcpSackFailures), (1, 1));
    let mut s = ten(sender_without_probes());
    s.wait(100);
    s.on_ack(&ack(1).sack(3001, 7001));
    s.fire();
    assert_eq!(of(&s, Counter::TcpSackRecoveryFail), (1, 1));
}

#[test]
fn a_timeout_within_a_reduction_does_not_reduce_again() {
    let mut s = ten(sender_without_probes());
    s.wait(100);
    s.on_ack(&ack(1).sack(3001, 7001));
    assert_eq!(s.flight.cc.ssthresh(), 7);
    s.fire();
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Loss, 7));
    s.fire();
    assert_eq!(s.flight.cc.ssthresh(), 7, "nor one of the same data");
}

/// rto/loss_probe.
#[test]
fn a_loss_probe_is_the_last_segment_again() {
    let mut s = sender();
    s.write(3000);
    assert_eq!(s.timer(), Some((Waits::Probe, 202)));
    assert_eq!(s.on_timer(), ["P 2001:3001"]);
    assert_eq!(
        (s.flight.state(), s.flight.total_retrans(), s.flight.board.retrans_out()),
        (Open, 1, 0)
    );
    assert_eq!((s.count(Counter::TcpLossProbes), s.count(Counter::TcpFastRetrans)), (1, 0));
    assert_eq!(s.timer(), Some((Waits::Rto, 300)), "from now");
    s.wait(110);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 3001)), NOTHING);
    assert_eq!(s.flight.waits_for(), Some(Waits::Reordering));
    assert_eq!(s.on_timer(), ["R 1001:2001"]);
}

/// rto/loss_probe_new_data.
#[test]
fn a_loss_probe_is_new_data_if_there_is_some() {
    let mut s = sender();
    s.write(1100);
    s.conn.unsent = 100;
    assert_eq!(s.on_timer(), ["N 1101:1201"]);
    assert_eq!((s.count(Counter::TcpLossProbes), s.flight.total_retrans()), (1, 0));
    assert_eq!(s.timer(), Some((Waits::Rto, 300)), "no second probe");
}

/// rto/loss_probe_repairs.
#[test]
fn a_repaired_loss_reduces_the_window() {
    let mut s = sender();
    s.write(3000);
    s.wait(100);
    s.on_ack(&ack(2001));
    let cwnd = s.flight.cc.cwnd();
    assert_eq!(s.timer(), Some((Waits::Probe, 300)), "one segment: not later than the RTO");
    assert_eq!(s.on_timer(), ["P 2001:3001"]);
    s.wait(100);
    s.on_ack(&ack(3001));
    assert_eq!(s.write(1000), ["N 3001:4001"]);
    s.wait(100);
    s.on_ack(&ack(4001));
    assert_eq!(s.count(Counter::TcpLossProbeRecovery), 1);
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Open, 7));
    assert!(s.flight.cc.cwnd() < cwnd);
}

#[test]
fn a_probe_that_is_named_was_not_needed() {
    let mut s = sender();
    s.write(3000);
    assert_eq!(s.on_timer(), ["P 2001:3001"]);
    s.on_ack(&ack(3001));
    s.on_ack(&ack(3001).sack(2001, 3001));
    s.write(1000);
    s.on_ack(&ack(4001));
    assert_eq!(s.count(Counter::TcpLossProbeRecovery), 0);
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Open, INFINITE));
}

#[test]
fn one_probe_at_a_time() {
    let mut s = sender();
    s.write(3000);
    assert_eq!(s.on_timer(), ["P 2001:3001"]);
    s.wait(10);
    s.on_ack(&ack(1001));
    assert_eq!(s.flight.waits_for(), Some(Waits::Probe));
    assert_eq!(s.on_timer(), NOTHING);
    assert_eq!((s.count(Counter::TcpLossProbes), s.flight.waits_for()), (1, Some(Waits::Rto)));
    assert_eq!(s.on_timer(), ["R 1001:2001"], "the timeout follows");
}

#[test]
fn probes_by_state_and_setting() {
    for bits in [0, 1, 2, 5] {
        let config = Config { tcp_early_retrans: bits, ..Config::default() };
        let mut s = Sender::with(config, conn_view());
        s.write(1000);
        assert_eq!(s.flight.waits_for(), Some(Waits::Rto), "{bits}");
    }
    let mut s = sender();
    s.conn.state = crate::State::SynReceived;
    s.write(1000);
    assert_eq!(s.flight.waits_for(), Some(Waits::Rto), "before ESTABLISHED");
    let mut s = ten(sender());
    s.wait(100);
    s.take(&ack(1).sack(1001, 2001));
    s.write(1000);
    assert_eq!((s.flight.state(), s.flight.waits_for()), (Disorder, Some(Waits::Reordering)));
}

#[test]
fn a_probe_of_new_data_that_does_not_leave_is_given_up() {
    let mut s = sender();
    s.write(3000);
    s.conn.unsent = 1000;
    s.fire();
    assert_eq!(s.flight.due_probe(), Some(Probe::New));
    s.conn.unsent = 0;
    assert_eq!(s.output(), NOTHING);
    assert_eq!((s.flight.due_probe(), s.timer()), (None, Some((Waits::Rto, 300))));
}

#[test]
fn a_fin_is_a_probe() {
    let mut s = sender();
    s.write(500);
    s.send_fin();
    s.output();
    assert_eq!(s.on_timer(), ["P 501:502"]);
    let mut s = sender();
    s.write(500);
    s.conn.unsent_fin = true;
    s.fire();
    assert_eq!(s.flight.due_probe(), Some(Probe::New), "one that never left counts as new data");
}

/// pmtu/state.
#[test]
fn a_lower_mtu_is_no_congestion() {
    let mut s = sender();
    s.write(1000);
    s.wait(50);
    (s.conn.mss, s.conn.smss) = (600, 600);
    s.call(|flight, cx, conn| flight.on_mss_lowered(cx, conn));
    assert_eq!(s.output(), ["R 1:1001"]);
    assert_eq!(s.window(), (Loss, 10, INFINITE));
    assert_eq!(s.flight.board.packets_out(), 2, "in two segments now");
    s.wait(50);
    s.on_ack(&ack(1001));
    assert_eq!(s.flight.state(), Open);
    s.write(500);
    s.call(|flight, cx, conn| flight.on_mss_lowered(cx, conn));
    assert_eq!((s.flight.state(), s.flight.board.lost_out()), (Open, 0), "it is not too large");
}

/// small_queue/not_sent_again.
#[test]
fn what_is_below_us_is_not_sent_again() {
    let mut s = sender_without_sack();
    s.completed = Serial(0);
    s.write(1000);
    let effects = s.fire();
    assert_eq!(effects.user_timeout_since, Some(Instant::from_millis(100)));
    assert_eq!(s.timer(), Some((Waits::Rto, 300)));
    assert_eq!((s.flight.state(), s.flight.retries(), s.flight.rtt().backoff()), (Open, 0, 0));
    assert_eq!(s.count(Counter::TcpSpuriousRtxHostQueues), 1);
    let mut s = ten(sender());
    s.conn.unsent = 5000;
    s.completed = Serial(0);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001)), ["N 10001:12001"], "new data overtakes it");
    assert!(s.flight.waits_below());
    s.output();
    assert!(s.flight.waits_below(), "though cwnd is full");
    assert_eq!(s.count(Counter::TcpSpuriousRtxHostQueues), 1, "once for the packet");
    s.completed = Serial(9);
    s.take(&ack(1).sack(1001, 6001));
    assert_eq!(s.output(), ["R 1:1001"]);
    let mut s = sender();
    s.completed = Serial(0);
    s.write(1000);
    assert_eq!(s.on_timer(), NOTHING, "nor is a probe");
    assert_eq!(
        (s.flight.waits_for(), s.count(Counter::TcpSpuriousRtxHostQueues)),
        (Some(Waits::Rto), 1)
    );
}

/// small_queue/gives_up.
#[test]
fn a_queue_that_lets_nothing_go_is_given_up() {
    let config = Config { tcp_early_retrans: 0, tcp_retries2: 2, ..Config::default() };
    let mut s = Sender::with(config, conn_view());
    s.completed = Serial(0);
    s.write(1000);
    // The timer waits for 300 ms each time, and 1.4 s are over five times later.
    for _ in 0..5 {
        assert!(!s.fire().give_up);
        assert_eq!((s.output().len(), s.flight.state(), s.flight.retries()), (0, Open, 0));
    }
    assert!(s.fire().give_up);
    let mut s = Sender::with(Config { tcp_early_retrans: 0, ..s.config }, conn_view());
    s.completed = Serial(0);
    s.write(1000);
    s.fire();
    s.completed = Serial(9);
    assert_eq!(s.on_timer(), ["R 1:1001"], "it has left, and nothing came");
}

/// rto/gives_up.
#[test]
fn a_silent_peer_is_given_up() {
    let config = Config { tcp_early_retrans: 0, tcp_retries2: 3, ..Config::default() };
    let mut s = Sender::with(config, ConnView { sack: false, ..conn_view() });
    s.write(1000);
    for _ in 0..3 {
        assert!(!s.fire().give_up);
        assert_eq!(s.output(), ["R 1:1001"]);
    }
    assert!(s.fire().give_up, "after 0.6 + 1.2 + 2.4 s");
    assert_eq!(s.now.as_millis(), 100 + 300 + 600 + 1200 + 2400);
}

#[test]
fn an_advance_stops_the_clock_of_giving_up() {
    let mut s = ten(sender_without_probes());
    s.conn.peer.user_timeout = Some(Nanos::from_millis(500));
    s.on_timer();
    s.wait(400);
    s.take(&ack(1001));
    assert_eq!(s.flight.trying_since, None);
    s.output();
    assert!(!s.fire().give_up, "the first timeout is never asked");
    assert!(s.fire().give_up);
}

#[test]
fn cwnd_bounds_what_leaves_again() {
    let mut s = ten(sender_without_probes());
    s.fire();
    s.flight.cc.set_cwnd(3);
    assert_eq!(s.output(), ["R 1:3001"]);
}

#[test]
fn the_window_of_the_peer_bounds_what_leaves_again() {
    let cases = [
        (2500, "R 1:2001", "whole segments"),
        (700, "R 1:701", "less than one"),
        (0, "R 1:1001", "the front leaves into a closed window"),
    ];
    for (wnd, left, name) in cases {
        let mut s = ten(sender_without_probes());
        s.fire();
        s.flight.cc.set_cwnd(5);
        s.conn.wnd = wnd;
        assert_eq!(s.output().first().map(|text| text.as_str()), Some(left), "{name}");
    }
}

#[test]
fn small_ranges_leave_together() {
    let small = || {
        let mut s = sender_without_probes();
        for len in [300, 400, 200, 900] {
            s.conn.unsent = len;
            s.output();
        }
        s.fire();
        s.flight.cc.set_cwnd(9);
        s
    };
    assert_eq!(small().output(), ["R 1:901", "R 901:1801"]);
    let mut s = small();
    s.conn.urgent = true;
    assert_eq!(s.output(), ["R 1:301", "R 301:701", "R 701:901", "R 901:1801"]);
}

#[test]
fn timers_of_a_paced_connection() {
    let mut s = sender_without_sack();
    s.conn.pacing_delay = Nanos::from_millis(7);
    s.write(1000);
    assert_eq!(s.timer(), Some((Waits::Rto, 307)));
    let mut s = sender();
    s.conn.pacing_delay = Nanos::from_millis(7);
    s.write(2000);
    assert_eq!(s.timer(), Some((Waits::Probe, 209)));
}

#[test]
fn new_data_ends_the_wait_for_a_probe() {
    let mut s = sender();
    s.write(1000);
    assert_eq!(s.timer(), Some((Waits::Probe, 300)));
    s.wait(50);
    s.send_now(1000);
    assert_eq!(s.timer(), Some((Waits::Rto, 250)), "since the front left");
    s.output();
    assert_eq!(s.timer(), Some((Waits::Probe, 202)));
}

#[test]
fn a_window_that_opens_in_loss_lets_everything_leave() {
    let mut s = ten(sender_without_probes());
    s.conn.wnd = 0;
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.wait(150);
    s.take(&ack(1).window(20_000));
    assert_eq!((s.flight.board.lost_out(), s.flight.board.retrans_out()), (10, 0));
    assert_eq!(s.output(), ["R 1:1001"]);
}

#[test]
fn the_third_syn_ack_loses_early_data() {
    let mut s = sender_without_sack();
    s.conn.state = crate::State::SynReceived;
    s.write(3000);
    s.call(|flight, cx, conn| flight.on_third_syn_ack(cx, conn));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd(), s.flight.rtt().backoff()), (Loss, 1, 0));
    s.conn.state = crate::State::Established;
    s.call(|flight, cx, conn| flight.on_early_handshake_done(cx, conn));
    assert_eq!((s.flight.retries(), s.timer()), (0, Some((Waits::Rto, 300))));
    assert_eq!(s.output(), ["R 1:1001"]);
}

#[test]
fn an_idle_sender_starts_slowly() {
    let mut s = sender();
    s.flight.cc.set_cwnd(40);
    s.wait(300);
    s.call(|flight, cx, _| flight.restart_after_idle(cx));
    assert_eq!(s.flight.cc.cwnd(), 40, "not after exactly an RTO");
    s.wait(301);
    s.call(|flight, cx, _| flight.restart_after_idle(cx));
    assert_eq!(
        (s.flight.cc.cwnd(), s.flight.cc.ssthresh()),
        (10, INFINITE),
        "three timeouts: halved twice"
    );
}

#[test]
fn f_rto_without_sack() {
    let outstanding = || {
        let mut s = ten(sender_without_sack());
        s.conn.unsent = 10_000;
        s.on_timer();
        s.wait(50);
        assert_eq!(s.on_ack(&ack(1001)), ["N 10001:12001"]);
        s.wait(50);
        s
    };
    let mut s = outstanding();
    s.take(&ack(2001));
    assert_eq!((s.flight.state(), s.count(Counter::TcpSpuriousRtos)), (Open, 1));
    let mut s = outstanding();
    s.take(&ack(10_001));
    assert_eq!(
        (s.flight.state(), s.count(Counter::TcpSpuriousRtos)),
        (Loss, 1),
        "at RecoveryPoint"
    );
    let mut s = outstanding();
    s.rows();
    s.take(&ack(1001));
    assert_eq!(s.rows(), ["A1", "A7", "L3", "L6", "L7", "L8"]);
    assert_eq!(s.flight.board.sacked_out(), 1, "the duplicate is for new data");
}

#[test]
fn without_sack_an_undone_timeout_stays_in_loss() {
    let mut s = Sender::with(Config::default(), ConnView { sack: false, ..conn_view() });
    s.conn.ts.enabled = true;
    s.write(5000);
    s.on_timer();
    s.rows();
    s.take(&ack(2001).tsecr(100));
    assert_eq!(s.rows(), ["A1", "A7", "L1", "L8"]);
    assert_eq!(
        (s.flight.state(), s.flight.cc.ssthresh(), s.flight.board.lost_out()),
        (Loss, INFINITE, 0)
    );
}

#[test]
fn sack_of_what_left_before_the_front_restarts_the_timeout() {
    let mut s = sender_without_probes();
    s.write(1000);
    s.wait(50);
    s.write(1000);
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    assert_eq!(s.timer(), Some((Waits::Rto, 600)));
    s.wait(10);
    // The second segment left 260 ms ago. SRTT 100 + 160/8, V = 200 + 110.
    s.take(&ack(1).sack(1001, 2001));
    assert_eq!(s.timer(), Some((Waits::Rto, 430)));
    let mut s = sender_without_probes();
    s.write(1000);
    s.wait(50);
    s.write(1000);
    s.wait(50);
    s.take(&ack(1).sack(1001, 2001));
    assert_ne!(s.flight.waits_for(), Some(Waits::Probe));
    s.flight.timer.set(Waits::Rto, s.now);
    s.take(&ack(1).sack(1001, 2001));
    assert_eq!(s.timer(), Some((Waits::Rto, 0)), "nothing new");
}

#[test]
fn the_front_that_leaves_again_restarts_the_timeout() {
    let mut s = ten(sender_without_probes());
    s.wait(100);
    s.take(&ack(1).sack(1001, 2001).sack(3001, 6001));
    s.flight.cc.set_cwnd(s.flight.board.pipe() + 1);
    assert_eq!(s.output(), ["R 1:1001"]);
    assert_eq!(s.timer(), Some((Waits::Rto, 300)));
    s.wait(50);
    s.flight.cc.set_cwnd(s.flight.board.pipe() + 1);
    assert_eq!(s.output(), ["R 2001:3001"]);
    assert_eq!(s.timer(), Some((Waits::Rto, 250)), "what is not the front does not");
}

#[test]
fn a_window_that_is_not_used_stays_while_acks_come() {
    let mut s = sender();
    s.flight.cc.set_cwnd(40);
    for segment in 0..6 {
        s.write(1000);
        s.wait(99);
        s.take(&ack(1001 + segment * 1000));
        s.wait(1);
    }
    s.write(1000);
    assert_eq!(s.window(), (Open, 40, INFINITE));
}

#[test]
fn a_window_that_is_not_used_shrinks_when_no_ack_comes() {
    let trickle = |writer_waits: bool| {
        let mut s = sender();
        s.conn.writer_waits = writer_waits;
        s.flight.cc.set_cwnd(40);
        for _ in 0..4 {
            s.write(1000);
            s.wait(99);
        }
        s.write(1000);
        s.window()
    };
    assert_eq!(trickle(false), (Open, 25, INFINITE), "half way to the initial window");
    assert_eq!(trickle(true), (Open, 40, INFINITE));
}

#[test]
fn handshakes_without_a_sample() {
    let mut s = sender();
    s.flight = Flight::new(&s.config, &Options::default());
    assert_eq!(s.flight.rto(&s.config), Nanos::from_secs(1));
    s.call(|flight, cx, conn| flight.on_established(cx, conn, (None, true)));
    assert_eq!((s.flight.rto(&s.config), s.flight.cc.cwnd()), (Nanos::from_secs(3), 1));
    assert_eq!(s.flight.rtt().srtt(), None);
    s.flight.on_syn_retransmitted();
    s.flight.on_syn_acked(s.conn.una);
    assert_eq!((s.flight.total_retrans(), s.flight.delivered()), (1, 1));
}

#[test]
fn backoff_is_shared_with_window_probes() {
    let mut s = sender_without_sack();
    s.flight.back_off();
    assert_eq!(s.flight.rto(&s.config), Nanos::from_millis(600));
    s.flight.end_backoff();
    assert_eq!(s.flight.rto(&s.config), Nanos::from_millis(300));
}

/// fast_open/recovery_after_lost_ack.
#[test]
fn early_data_that_was_not_lost_begins_recovery() {
    let mut s = sender_with_timestamps();
    s.conn.state = crate::State::SynReceived;
    s.write(10_000);
    s.wait(3000);
    s.call(|flight, cx, conn| flight.on_third_syn_ack(cx, conn));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Loss, 1));
    s.conn.state = crate::State::Established;
    s.call(|flight, cx, conn| flight.on_early_handshake_done(cx, conn));
    s.rows();
    assert_eq!(s.on_ack(&ack(1).sack(2001, 10_001).window(65_536).tsecr(90)), ["R 1:2001"]);
    assert_eq!(s.rows(), ["A1", "A7", "L2", "L8", "L9", "O3", "O8"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(50);
    s.on_ack(&ack(1).sack(2001, 10_001).tsecr(3100));
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(10);
    s.on_ack(&ack(10_001).tsecr(3100));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Open, 7));
}

#[test]
fn an_old_ack_does_not_end_the_wait_for_new_data() {
    let mut s = ten(sender_without_probes());
    s.conn.unsent = 2000;
    s.on_timer();
    s.wait(100);
    s.on_ack(&ack(1001));
    s.rows();
    assert_eq!(s.on_ack(&ack(1)), NOTHING);
    assert_eq!(s.rows(), NOTHING);
}

#[test]
fn a_closed_window_ends_f_rto() {
    let mut s = ten(sender_without_probes());
    s.conn.unsent = 5000;
    s.on_timer();
    s.wait(100);
    s.rows();
    // The peer's window ends at SND.NXT.
    s.take(&ack(1001).window(9000));
    assert_eq!(s.rows(), ["A1", "A7", "L4", "L7", "L8"]);
    assert!(!s.flight.frto && !s.flight.sends_new_first());
}

#[test]
fn when_f_rto_runs() {
    let mut s = ten(sender_without_probes());
    s.fire();
    assert!(s.flight.frto, "from Open");
    let mut s = ten(sender_without_probes());
    s.wait(100);
    s.on_ack(&ack(1).sack(3001, 7001));
    s.fire();
    assert!(!s.flight.frto, "from Recovery");
    s.fire();
    assert!(s.flight.frto, "a repeated timeout");
    let mut s = ten(sender_without_probes());
    s.config.tcp_frto = 0;
    s.fire();
    assert!(!s.flight.frto, "it is off");
}

#[test]
fn a_timeout_forgets_that_the_path_reorders() {
    let mut s = ten(sender_without_probes());
    s.flight.reordering.on_late_bytes(6 * MSS, MSS, &s.config);
    assert_eq!(s.flight.dup_thresh(), 6);
    s.wait(100);
    s.take(&ack(1).sack(1001, 3001));
    s.flight.timer.set(Waits::Rto, s.now);
    s.fire();
    assert_eq!(s.flight.dup_thresh(), 6, "two SACKed segments are not tcp_reordering");
    let mut s = ten(sender_without_probes());
    s.flight.reordering.on_late_bytes(6 * MSS, MSS, &s.config);
    s.wait(100);
    s.take(&ack(1).sack(1001, 4001));
    assert_eq!(s.flight.state(), Disorder);
    s.flight.timer.set(Waits::Rto, s.now);
    s.fire();
    assert_eq!(s.flight.dup_thresh(), 3);
}

/// Three packets of one segment that leave at 100, 110 and 120 ms, and no round trip yet.
fn three_without_sample() -> Sender {
    let mut s = sender();
    s.conn.ts.enabled = true;
    s.flight = Flight::new(&s.config, &Options::default());
    for _ in 0..3 {
        s.send_now(1000);
        s.wait(10);
    }
    s.wait(70);
    s
}

#[test]
fn samples_of_the_round_trip() {
    let cases = [
        (ack(1001).sack(2001, 3001), Some((100, 80)), "the lowest, and the highest SACKed"),
        (ack(2001), Some((100, 90)), "the lowest and the highest"),
        (ack(1).sack(1001, 3001), Some((90, 80)), "SACKed ones alone"),
        (ack(1).tsecr(150), None, "nothing advances"),
        (ack(2001).tsecr(150), Some((100, 90)), "times go before timestamps"),
    ];
    for (ack, expected, name) in cases {
        let mut s = three_without_sample();
        s.take(&ack);
        let rtt = s.flight.rtt();
        let millis = |time: Nanos| time.as_millis();
        let sample = rtt.srtt().map(millis).zip(rtt.min_rtt().map(millis));
        assert_eq!(sample, expected, "{name}");
    }
}

#[test]
fn retransmissions_give_no_sample() {
    let again = || {
        let mut s = three_without_sample();
        s.on_timer();
        // The timeout came 1 s after the third left, and the front left again.
        s.wait(50);
        s
    };
    let srtt = |s: &Sender| s.flight.rtt().srtt().map(|srtt| srtt.as_millis());
    let mut s = again();
    let since_third = s.now.as_millis() - 120;
    s.take(&ack(2001));
    assert_eq!(srtt(&s), None, "Karn");
    let mut s = again();
    s.take(&ack(2001).sack(2001, 3001));
    assert_eq!(srtt(&s), Some(since_third), "what is SACKed was sent once");
    let mut s = again();
    let stamp = (s.now.as_millis() - 50) as u32;
    s.take(&ack(2001).tsecr(stamp));
    assert_eq!(srtt(&s), Some(50), "a timestamp tells which copy it was");
    let mut s = again();
    s.take(&ack(2001).tsecr(s.now.as_millis() as u32));
    assert_eq!(srtt(&s), Some(1), "1 ms at least");
}
