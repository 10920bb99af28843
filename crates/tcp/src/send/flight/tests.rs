//! Traces: recovery in whole exchanges, row by row. Those that are scripts as well carry the name
//! of the script.

use super::testing::*;
use super::*;
use crate::counters::Counter;
use crate::mtu::search::{MtuProbe, ProbeOutcome};
use RecoveryState::{Cwr as StateCwr, Disorder, Loss, Open, Recovery as Fast};

const NOTHING: [&str; 0] = [];
const INFINITE: u32 = 0x7fff_ffff;

#[test]
fn every_row_has_a_trace() {
    let traces = [include_str!("tests.rs"), include_str!("tests_loss.rs")];
    for name in table::names() {
        let quoted = std::format!("\"{name}\"");
        assert!(traces.iter().any(|text| text.contains(&quoted)), "{name}");
    }
}

/// Sends ten segments in one packet.
fn ten(mut sender: Sender) -> Sender {
    assert_eq!(sender.write(10_000), ["N 1:10001"]);
    sender.wait(100);
    sender
}

/// fast_retransmit/sack.
#[test]
fn three_sacked_segments_mean_loss() {
    let mut s = sender();
    s.write(6000);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 3001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A4", "O3", "O6"]);
    assert_eq!(s.flight.state(), Disorder);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 4001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A7", "O3", "O6"]);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 5001)), ["R 1001:2001"]);
    assert_eq!(s.rows(), ["A1", "A7", "O3", "O8"]);
    assert_eq!(s.count(Counter::TcpSackRecovery), 1);
    assert_eq!(s.count(Counter::TcpFastRetrans), 1);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 6001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A7", "R6", "R9"]);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(6001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A6", "O3", "O6"]);
    assert_eq!(s.flight.state(), Open);
    assert_eq!((s.flight.total_retrans(), s.flight.bytes_retrans()), (1, 1000));
    assert_eq!((s.flight.delivered(), s.count(Counter::TcpDelivered)), (6, 6));
    assert_eq!(s.flight.deadline(), None);
}

/// pmtu/probe_is_lost: the window and ssthresh stay as they are.
#[test]
fn a_lost_probe_of_the_path_mtu_is_no_congestion() {
    let mut s = sender_with_mtu_probe();
    assert_eq!(s.take(&ack(1).sack(1201, 2201)).mtu_probe, None);
    assert_eq!(s.rows(), ["A1", "A4", "O3", "O6"]);
    let effects = s.take(&ack(1).sack(1201, 4201));
    assert_eq!(effects.mtu_probe, Some(ProbeOutcome::TooLong));
    assert_eq!(s.rows(), ["A1", "A7", "O3", "O7"]);
    assert_eq!(s.window(), (Loss, 11, INFINITE), "with what was taken off for the probe");
    assert_eq!(s.count(Counter::TcpMtupFail), 1);
    s.conn.mtu_probe = None;
    assert_eq!(s.output(), ["R 1:1201"], "in two segments");
    s.wait(100);
    s.take(&ack(4201));
    assert_eq!(s.window().0, Open);
    assert_eq!((s.count(Counter::TcpMtupFail), s.count(Counter::TcpSackRecovery)), (1, 0));
}

/// pmtu/probes: the window has as many bytes as before.
#[test]
fn a_probe_of_the_path_mtu_arrives() {
    let mut s = sender_with_mtu_probe();
    s.flight.cc.set_cwnd(40);
    assert_eq!(s.take(&ack(1201)).mtu_probe, Some(ProbeOutcome::Carried));
    // 40 x 1040 / 1240.
    assert_eq!(s.window(), (Open, 33, INFINITE));
    assert_eq!(s.count(Counter::TcpMtupSuccess), 1);
}

/// A probe of 1,200 bytes of payload has left, and three segments behind it.
fn sender_with_mtu_probe() -> Sender {
    let mut s = sender();
    s.conn.smss = 1200;
    s.send_now(1200);
    s.conn.smss = 1000;
    let (start, end) = (s.conn.una, s.conn.nxt);
    s.conn.mtu_probe = Some(MtuProbe { start, end, mtu: 1240, base: 1040 });
    s.send_now(3000);
    s.wait(100);
    s
}

/// The example of section 12, and fast_retransmit/eifel_undo.
#[test]
fn two_late_segments_are_undone_by_timestamps() {
    let mut s = ten(sender_with_timestamps());
    // The data left at 100 ms; its copies leave at 200 ms.
    assert_eq!(s.on_ack(&ack(1).sack(2001, 5001).tsecr(100)), ["R 1:2001"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    assert_eq!(
        (s.flight.board.pipe(), s.flight.board.lost_out(), s.flight.board.retrans_out()),
        (7, 2, 2)
    );
    s.rows();
    s.wait(20);
    s.on_ack(&ack(5001).tsecr(100));
    assert_eq!(s.rows(), ["A1", "A7", "R1", "R3"]);
    assert_eq!(
        (s.flight.state(), s.flight.cc.ssthresh(), s.flight.dup_thresh()),
        (Open, INFINITE, 5)
    );
    assert!(s.flight.cc.cwnd() >= 10);
    assert_eq!(s.count(Counter::TcpPartialUndo), 1);
    assert_eq!((s.count(Counter::TcpTsReorder), s.flight.reordering_seen()), (1, 1));
}

#[test]
fn an_ack_of_a_part_waits_for_copies_in_flight() {
    let mut s = ten(sender_with_timestamps());
    assert_eq!(s.on_ack(&ack(1).sack(2001, 5001).tsecr(100)), ["R 1:2001"]);
    s.rows();
    s.wait(20);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 5001).tsecr(100)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A7", "R1", "R2"]);
    assert_eq!(s.flight.state(), Fast);
    assert_eq!(s.count(Counter::TcpPartialUndo), 0);
}

/// fast_retransmit/dsack_undo.
#[test]
fn a_reduction_is_undone_when_all_copies_are_named() {
    let mut s = ten(sender());
    assert_eq!(s.on_ack(&ack(1).sack(2001, 5001)), ["R 1:2001"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(50);
    s.on_ack(&ack(6001));
    s.rows();
    s.wait(50);
    s.on_ack(&ack(6001).sack(1, 1001));
    assert_eq!(s.rows(), ["A1", "A7", "R6", "R9"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(50);
    s.on_ack(&ack(6001).sack(1001, 2001));
    assert_eq!(s.rows(), ["A1", "A7", "R5", "R6", "R7"]);
    assert_eq!(s.window(), (Open, 10, INFINITE));
    assert_eq!((s.count(Counter::TcpDsackUndo), s.count(Counter::TcpDsackRecv)), (1, 2));
    assert_eq!((s.count(Counter::TcpDsackRecvSegs), s.flight.dsack_dups()), (2, 2));
}

/// fast_retransmit/dsack_undo_after_the_end.
#[test]
fn a_dsack_after_the_end_undoes_as_well() {
    let mut s = ten(sender());
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001)), ["R 1:1001"]);
    s.wait(100);
    s.on_ack(&ack(10_001));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Open, 7));
    s.rows();
    s.wait(10);
    s.on_ack(&ack(10_001).sack(1, 1001));
    assert_eq!(s.rows(), ["A1", "A4", "O2", "O3", "O6"]);
    assert_eq!(s.window(), (Open, 10, INFINITE));
    assert_eq!(s.count(Counter::TcpDsackUndo), 1);
}

#[test]
fn what_is_lost_after_an_undo_begins_recovery_again() {
    let mut s = ten(sender());
    // The first and the sixth are lost; cwnd lets both leave.
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001)), ["R 1:1001"]);
    s.wait(10);
    // The front arrives twice, while the sixth segment is found lost.
    s.on_ack(&ack(5001));
    s.rows();
    s.on_ack(&ack(5001).sack(1, 1001).sack(6001, 10_001));
    assert_eq!(s.rows(), ["A1", "A7", "R5", "R6", "R8", "R9"]);
    assert_eq!(s.flight.state(), Fast);
    assert_eq!(s.count(Counter::TcpSackRecovery), 2);
    assert_eq!(s.flight.board.retrans_out(), 1, "and leaves at once");
}

#[test]
fn a_recovery_that_was_not_needed_is_undone_at_its_end() {
    let mut s = ten(sender_with_timestamps());
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001).tsecr(100)), ["R 1:1001"]);
    s.wait(10);
    s.rows();
    s.on_ack(&ack(10_001).tsecr(100));
    assert_eq!(s.rows(), ["A1", "A6", "O3", "O6"]);
    assert_eq!((s.count(Counter::TcpFullUndo), s.flight.cc.ssthresh()), (1, INFINITE));
    assert!(s.flight.cc.cwnd() >= 10);
}

/// fast_retransmit/limited_transmit.
#[test]
fn each_duplicate_lets_new_data_go() {
    let mut s = ten(sender());
    s.conn.unsent = 2000;
    assert_eq!(s.on_ack(&ack(1).sack(1001, 2001)), ["N 10001:11001"]);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 3001)), ["N 11001:12001"]);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 4001)), ["R 1:1001"]);
}

/// fast_retransmit/lost_again.
#[test]
fn a_lost_retransmission_is_found_by_time() {
    let mut s = ten(sender());
    s.conn.unsent = 3000;
    assert_eq!(s.on_ack(&ack(1).sack(1001, 7001)), ["R 1:1001", "N 10001:13001"]);
    assert_eq!((s.flight.board.lost_out(), s.flight.board.retrans_out()), (1, 1));
    s.wait(120);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 10_001)), NOTHING);
    s.wait(10);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 12_001)), ["R 1:1001"]);
    assert_eq!(s.count(Counter::TcpLostRetransmit), 1);
}

/// fast_retransmit/resent_behind_new_data.
#[test]
fn a_retransmission_behind_new_data_left_later() {
    let mut s = ten(sender());
    s.conn.unsent = 2000;
    assert_eq!(s.on_ack(&ack(1).sack(1001, 3001)), ["N 10001:12001"]);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001)), ["R 1:1001"]);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 11_001)), NOTHING);
    s.wait(10);
    assert_eq!(s.on_ack(&ack(12_001)), NOTHING);
    assert_eq!(s.flight.total_retrans(), 1);
}

/// fast_retransmit/rack_reordering_timer.
#[test]
fn the_reordering_timer_finds_a_loss() {
    let mut s = sender();
    s.write(3000);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1001).sack(2001, 3001)), NOTHING);
    assert_eq!(s.timer(), Some((Waits::Reordering, 27)), "100 ms / 4 + 2 ms");
    assert_eq!(s.on_timer(), ["R 1001:2001"]);
    // One is delivered, so that pipe + 1 leave: cwnd is 10 x 717 / 1024 at most.
    assert_eq!(s.flight.state(), Fast);
    assert_eq!(s.count(Counter::TcpSackRecovery), 1);
    assert_eq!(s.flight.waits_for(), Some(Waits::Rto));
}

#[test]
fn the_reordering_timer_within_recovery() {
    let config = Config { tcp_early_retrans: 0, ..Config::default() };
    let mut s = ten(Sender::with(config, conn_view()));
    // Reordering is seen, so that the window is a quarter of the round trip also in Recovery.
    s.on_ack(&ack(1).sack(1001, 2001));
    s.on_ack(&ack(2001).sack(3001, 6001));
    assert_eq!(s.flight.waits_for(), Some(Waits::Reordering));
    s.wait(10);
    s.on_timer();
    assert_eq!((s.flight.state(), s.flight.board.lost_out()), (Fast, 1));
    s.on_ack(&ack(2001).sack(3001, 6001).sack(7001, 8001));
    assert_eq!(s.flight.waits_for(), Some(Waits::Reordering), "again");
    let left = s.on_timer();
    assert_eq!((s.flight.state(), s.flight.board.lost_out(), left.len()), (Fast, 2, 1));
    assert_eq!(s.count(Counter::TcpSackRecovery), 1, "the same recovery");
    assert_eq!(s.flight.waits_for(), Some(Waits::Rto));
}

#[test]
fn a_reordering_timer_that_finds_nothing_leaves_the_timeout() {
    let mut s = sender();
    s.write(3000);
    s.wait(100);
    s.on_ack(&ack(1001).sack(2001, 3001));
    // The data that the timer would find lost has been SACKed in the meantime.
    s.take(&ack(1001).sack(1001, 2001));
    s.fire();
    assert_eq!((s.flight.board.lost_out(), s.flight.waits_for()), (0, Some(Waits::Rto)));
}

/// fast_retransmit/newreno.
#[test]
fn without_sack_a_partial_ack_shows_the_next_hole() {
    let mut s = sender_without_sack();
    s.write(8000);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    s.rows();
    s.wait(10);
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A4", "O1", "O3", "O6"]);
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    assert_eq!(s.on_ack(&ack(1001)), ["R 1001:2001"]);
    assert_eq!(s.count(Counter::TcpRenoRecovery), 1);
    s.rows();
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A7", "R4", "R6", "R9"]);
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(5001)), ["R 5001:6001"]);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(8001)), NOTHING);
    assert_eq!(s.flight.state(), Fast, "later duplicates may be about what was sent again");
}

/// fast_retransmit/newreno_window.
#[test]
fn the_window_of_a_recovery_without_sack() {
    let mut s = ten(sender_without_sack());
    s.conn.unsent = 10_000;
    assert_eq!(s.on_ack(&ack(1)), ["N 10001:11001"]);
    assert_eq!((s.window(), s.flight.board.sacked_out()), ((Disorder, 10, INFINITE), 1));
    s.wait(20);
    assert_eq!(s.on_ack(&ack(1)), ["N 11001:12001"]);
    s.wait(20);
    assert_eq!(s.on_ack(&ack(1)), ["R 1:1001"]);
    assert_eq!((s.window(), s.flight.board.sacked_out()), ((Fast, 9, 7), 3));
    s.wait(20);
    s.on_ack(&ack(1));
    assert_eq!(s.window(), (Fast, 9, 7));
    s.wait(20);
    s.on_ack(&ack(1));
    s.wait(20);
    s.on_ack(&ack(1));
    assert_eq!(s.window(), (Fast, 8, 7));
    s.wait(20);
    s.take(&ack(5001));
    assert_eq!(s.window(), (Fast, 7, 7));
    s.output();
    s.conn.unsent = 0;
    s.wait(50);
    s.rows();
    s.on_ack(&ack(12_001));
    assert_eq!(s.rows(), ["A1", "A6"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(100);
    s.on_ack(&ack(13_001));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Open, 7));
}

/// The undo puts ssthresh back, but the state stays, and PRR moves cwnd to the data in flight
/// (Linux, too): section 5 of docs/recovery.md. As of seeds 73550 and 90662 of the simulator.
#[test]
fn a_recovery_without_sack_is_undone_and_stays() {
    let mut s = sender_with_timestamps();
    s.conn.sack = false;
    let mut s = ten(s);
    s.on_ack(&ack(1).tsecr(100));
    s.on_ack(&ack(1).tsecr(100));
    assert_eq!(s.on_ack(&ack(1).tsecr(100)), ["R 1:1001"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(10);
    s.rows();
    // All has arrived, the first segment late.
    s.on_ack(&ack(10_001).tsecr(100));
    assert_eq!(s.rows(), ["A1", "A6"]);
    assert_eq!(s.count(Counter::TcpFullUndo), 1);
    assert_eq!(s.window(), (Fast, 8, INFINITE));
    // The ACK beyond RecoveryPoint ends the state, and does not reduce again.
    s.write(2000);
    s.wait(100);
    s.on_ack(&ack(12_001).tsecr(210));
    assert_eq!(s.window(), (Open, 8, INFINITE));
}

/// fast_retransmit/too_many_duplicates.
#[test]
fn too_many_duplicates_mean_reordering() {
    let mut s = sender_without_sack();
    s.write(2000);
    s.wait(100);
    s.on_ack(&ack(1));
    s.wait(10);
    s.on_ack(&ack(1));
    assert_eq!(
        (s.flight.board.sacked_out(), s.flight.reordering_seen(), s.flight.dup_thresh()),
        (1, 1, 2)
    );
    assert_eq!(s.count(Counter::TcpRenoReorder), 1);
}

#[test]
fn duplicates_by_their_number() {
    let mut s = ten(sender_without_sack());
    s.take(&ack(1).with_data());
    assert_eq!(s.flight.board.sacked_out(), 0, "data");
    s.take(&ack(1).window(60_000));
    assert_eq!(s.flight.board.sacked_out(), 0, "a window");
    s.take(&ack(1).merged(2));
    assert_eq!(s.flight.board.sacked_out(), 2, "two segments were merged");
    s.take(&ack(3001));
    assert_eq!(s.flight.board.sacked_out(), 0, "an advance ends them");
}

/// sack/several_holes.
#[test]
fn holes_are_filled_in_order() {
    let mut s = sender();
    s.write(10_000);
    s.wait(50);
    s.on_ack(&ack(1001).sack(2001, 3001));
    s.on_ack(&ack(1001).sack(4001, 5001).sack(2001, 3001));
    let left = s.on_ack(&ack(1001).sack(4001, 10_001).sack(2001, 3001));
    assert_eq!(left, ["R 1001:2001", "R 3001:4001"]);
}

/// sack/several_new_blocks.
#[test]
fn blocks_are_taken_in_ascending_order() {
    let mut s = ten(sender());
    s.on_ack(&ack(1).sack(4001, 5001).sack(2001, 3001));
    assert_eq!((s.flight.reordering_seen(), s.flight.board.sacked_out()), (0, 2));
}

/// sack/reordering_is_learnt.
#[test]
fn reordering_is_learnt() {
    let mut s = ten(sender());
    s.on_ack(&ack(1).sack(1001, 3001));
    s.wait(10);
    s.on_ack(&ack(3001));
    assert_eq!((s.flight.reordering_seen(), s.flight.dup_thresh(), s.flight.state()), (1, 3, Open));
    s.wait(10);
    s.on_ack(&ack(3001).sack(4001, 9001));
    assert_eq!((s.flight.state(), s.flight.board.lost_out()), (Disorder, 0));
    s.wait(10);
    s.on_ack(&ack(9001));
    assert_eq!((s.flight.reordering_seen(), s.flight.dup_thresh(), s.flight.state()), (2, 6, Open));
    assert_eq!((s.flight.total_retrans(), s.count(Counter::TcpSackReorder)), (0, 2));
}

/// ecn/reduces_once.
#[test]
fn ece_reduces_the_window_once() {
    let mut s = ten(Sender::with(Config::default(), ConnView { ecn: true, ..conn_view() }));
    s.conn.unsent = 20_000;
    s.take(&ack(2001).ece());
    assert_eq!(s.rows(), ["A1", "A2", "A4", "O3", "O4"]);
    assert_eq!(s.cwr.take(), Some(Cwr::Queue));
    assert_eq!(s.output(), ["N 10001:12001"]);
    assert_eq!(s.window(), (StateCwr, 10, 7));
    s.wait(50);
    s.on_ack(&ack(4001).ece());
    assert_eq!(s.rows(), ["A1", "A2", "A7", "O3", "O5"]);
    assert_eq!((s.window(), s.cwr), ((StateCwr, 9, 7), None));
    s.wait(50);
    s.on_ack(&ack(6001).ece());
    s.wait(50);
    s.on_ack(&ack(8001).ece());
    assert_eq!(s.window(), (StateCwr, 7, 7));
    assert_eq!((s.flight.delivered_ce(), s.count(Counter::TcpDeliveredCe)), (8, 8));
}

/// ecn/ends.
#[test]
fn the_reduction_of_ece_lasts_for_a_window() {
    let mut s = ten(Sender::with(Config::default(), ConnView { ecn: true, ..conn_view() }));
    s.on_ack(&ack(10_001).ece());
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (StateCwr, 7));
    assert_eq!(s.write(1000), ["N 10001:11001"]);
    s.wait(100);
    s.rows();
    s.on_ack(&ack(11_001));
    assert_eq!(s.rows(), ["A1", "A5", "O3", "O6"]);
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Open, 7));
}

#[test]
fn a_loss_within_the_reduction_of_ece_does_not_reduce_again() {
    let mut s = ten(Sender::with(Config::default(), ConnView { ecn: true, ..conn_view() }));
    s.on_ack(&ack(1001).ece());
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (StateCwr, 7));
    s.on_ack(&ack(1001).sack(2001, 6001));
    assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Fast, 7));
    s.on_ack(&ack(10_001));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd(), s.flight.cc.ssthresh()), (Open, 7, 7));
    s.on_ack(&ack(10_001).sack(1001, 2001));
    assert_eq!(s.count(Counter::TcpDsackUndo), 1, "counted");
    assert_eq!((s.flight.cc.cwnd(), s.flight.cc.ssthresh()), (7, 7), "and nothing is restored");
}

/// sack/reneging_times_out.
#[test]
fn a_peer_that_takes_back_what_it_sacked() {
    let mut s = sender();
    s.write(4000);
    s.wait(100);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 4001)), ["R 1:1001"]);
    s.wait(100);
    s.rows();
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A3"]);
    assert_eq!(s.timer(), Some((Waits::Rto, 50)), "half a round trip");
    assert_eq!(s.on_timer(), ["R 1001:2001"]);
    assert_eq!(s.count(Counter::TcpSackReneging), 1);
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Loss, 1));
    assert_eq!((s.flight.board.sacked_out(), s.flight.board.lost_out()), (0, 3));
}

#[test]
fn old_acks_bring_blocks_only() {
    let mut s = ten(sender());
    s.on_ack(&ack(3001));
    s.rows();
    s.take(&ack(1001));
    assert_eq!(s.rows(), NOTHING, "no block");
    s.take(&ack(1001).sack(5001, 6001));
    assert_eq!((s.rows().len(), s.flight.board.sacked_out(), s.flight.delivered()), (4, 1, 4));
    let before = s.flight.cc.cwnd();
    s.take(&ack(1001).sack(5001, 9001));
    assert_eq!((s.flight.state(), s.flight.cc.cwnd()), (Fast, before), "the window follows later");
}

/// sack/old_ack_after_a_probe.
#[test]
fn an_old_ack_with_a_block_is_judged_though_it_tells_nothing() {
    let mut s = sender();
    s.write(1000);
    s.wait(50);
    s.on_ack(&ack(1001));
    s.write(1000);
    assert_eq!(s.on_timer(), ["P 1001:2001"]);
    s.rows();
    assert_eq!(s.on_ack(&ack(1)), NOTHING);
    assert_eq!((s.rows().len(), s.flight.state()), (0, Open));
    assert_eq!(s.on_ack(&ack(1).sack(1, 501)), NOTHING);
    assert_eq!(s.rows(), ["A1", "A4", "O3", "O6"]);
    assert_eq!(s.flight.state(), Disorder, "the front was sent again");
}

#[test]
fn blocks_that_nobody_sends() {
    let mut s = ten(sender());
    s.take(&ack(1001).sack(2001, 2001).sack(3001, 12_001).sack(501, 1001));
    assert_eq!((s.count(Counter::TcpSackDiscard), s.flight.board.sacked_out()), (2, 0));
    let mut s = ten(sender_without_sack());
    s.take(&ack(1).sack(2001, 4001));
    assert_eq!((s.flight.board.sacked_out(), s.flight.delivered()), (1, 1), "sack/not_negotiated");
}

#[test]
fn dsacks_that_cannot_be_true() {
    let mut s = ten(sender());
    s.take(&ack(5001).sack(1, 1001));
    assert_eq!(s.count(Counter::TcpDsackIgnoredDubious), 1, "nothing was ever sent again");
    assert_eq!((s.flight.dsack_dups(), s.flight.delivered()), (1, 5));
    s.take(&ack(5001).sack(1001, 1001));
    assert_eq!(s.count(Counter::TcpDsackIgnoredDubious), 2, "no length");
    assert_eq!((s.flight.dsack_dups(), s.count(Counter::TcpDsackRecvSegs)), (1, 0));
    s.take(&ack(5001).sack(7001, 8001).sack(6001, 9001));
    assert_eq!(s.count(Counter::TcpDsackOfoRecv), 1);
    assert_eq!(s.flight.board.sacked_out(), 3, "it is taken as an ordinary block");
}

#[test]
fn a_dsack_above_the_acknowledgement_names_what_was_sent_again() {
    let mut s = ten(sender());
    let left = s.on_ack(&ack(1).sack(1001, 2001).sack(3001, 6001));
    assert_eq!(left, ["R 1:1001", "R 2001:3001"]);
    // The third segment arrives twice, while the first is still missing.
    s.take(&ack(1).sack(2001, 3001).sack(1001, 6001));
    assert_eq!((s.count(Counter::TcpDsackOfoRecv), s.flight.dsack_dups()), (1, 1));
    s.take(&ack(6001).sack(1, 1001));
    assert_eq!(s.count(Counter::TcpDsackUndo), 1, "it was outstanding before this ACK");
    s.take(&ack(6001).sack(1, 1001));
    assert_eq!(s.count(Counter::TcpDsackIgnoredDubious), 1, "more than was ever sent again");
}

#[test]
fn the_reordering_window_grows_by_a_dsack() {
    let mut s = ten(sender());
    s.on_ack(&ack(1).sack(1001, 2001));
    s.on_ack(&ack(2001));
    assert_eq!(s.flight.reordering_seen(), 1);
    s.on_ack(&ack(2001).sack(3001, 4001));
    assert_eq!(s.timer(), Some((Waits::Reordering, 27)), "a quarter of the least round trip");
    assert_eq!(s.on_timer(), ["R 2001:3001"]);
    s.on_ack(&ack(4001));
    assert_eq!(s.write(1000), ["N 10001:11001"]);
    s.on_ack(&ack(4001).sack(2001, 3001));
    assert_eq!(s.count(Counter::TcpDsackUndo), 1);
    s.on_ack(&ack(10_001));
    s.wait(100);
    s.on_ack(&ack(11_001));
    s.send_now(1000);
    s.send_now(1000);
    s.wait(100);
    s.on_ack(&ack(11_001).sack(12_001, 13_001));
    assert_eq!(s.timer(), Some((Waits::Reordering, 52)), "twice that");
}

#[test]
fn sack_stands_for_advances_on_a_path_that_reorders() {
    let filled = || {
        let mut s = ten(sender());
        s.on_ack(&ack(10_001));
        let cwnd = s.flight.cc.cwnd();
        s.write(cwnd * MSS);
        s.wait(100);
        s
    };
    let mut s = filled();
    let before = s.flight.cc.cwnd();
    s.take(&ack(10_001).sack(11_001, 12_001));
    assert_eq!(s.flight.cc.cwnd(), before);
    let mut s = filled();
    s.flight.reordering.on_late_bytes(6 * MSS, MSS, &s.config);
    s.take(&ack(10_001).sack(11_001, 12_001));
    assert_eq!(s.flight.cc.cwnd(), before + 1);
}

#[test]
fn slow_start_ends_when_the_round_trip_rises() {
    let mut s = sender();
    s.write(1000);
    s.wait(100);
    s.on_ack(&ack(1001));
    s.flight.cc.set_cwnd(20);
    (0..20).for_each(|_| drop(s.send_now(1000)));
    s.wait(150);
    let before = |s: &Sender| s.count(Counter::TcpHystartDelayDetect);
    for segment in 2..10 {
        s.take(&ack(1001 + (segment - 1) * 1000));
        assert_eq!(before(&s), 0, "{segment}");
    }
    s.take(&ack(10_001));
    assert_eq!((before(&s), s.flight.cc.ssthresh()), (1, 20));
    assert_eq!(s.count(Counter::TcpHystartDelayCwnd), 20);
}

/// sack/reneging_is_survived.
#[test]
fn reneging_after_the_reordering_timer() {
    let mut s = sender();
    s.write(2000);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(1).sack(1001, 2001)), NOTHING);
    assert_eq!(s.flight.waits_for(), Some(Waits::Reordering));
    assert_eq!(s.on_timer(), ["R 1:1001"]);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(1001)), NOTHING);
    assert_eq!(s.on_timer(), ["R 1001:2001"]);
    s.wait(50);
    assert_eq!(s.on_ack(&ack(2001)), NOTHING);
    assert_eq!((s.flight.state(), s.flight.deadline()), (Open, None));
}

#[test]
fn an_undo_after_ece_is_counted_and_changes_no_window() {
    let ts = crate::handshake::TimestampState { enabled: true, ..conn_view().ts };
    let conn = ConnView { ecn: true, ts, ..conn_view() };
    let mut s = ten(Sender::with(Config::default(), conn));
    assert_eq!(s.on_ack(&ack(1).sack(1001, 5001).tsecr(100).ece()), ["R 1:1001"]);
    assert_eq!(s.window(), (Fast, 7, 7));
    s.wait(10);
    s.take(&ack(10_001).tsecr(100));
    assert_eq!(s.count(Counter::TcpFullUndo), 1);
    assert_eq!(s.flight.cc.ssthresh(), 7);
    assert!(s.flight.cc.cwnd() < 10);
}

#[test]
fn an_undo_withdraws_cwr() {
    let ts = crate::handshake::TimestampState { enabled: true, ..conn_view().ts };
    let conn = ConnView { ecn: true, ts, ..conn_view() };
    let mut s = ten(Sender::with(Config::default(), conn));
    s.on_ack(&ack(1).sack(1001, 5001).tsecr(100));
    assert_eq!(s.cwr.take(), Some(Cwr::Queue));
    s.wait(10);
    s.take(&ack(10_001).tsecr(100));
    assert_eq!(s.cwr, Some(Cwr::Withdraw));
}

#[test]
fn the_alternative_backoff_is_for_marks_only() {
    for (abe, of_marks) in [(false, 7), (true, 8)] {
        let config = Config { tcp_abe: abe, ..Config::default() };
        let conn = ConnView { ecn: true, ..conn_view() };
        let mut s = ten(Sender::with(config.clone(), conn));
        s.take(&ack(2001).ece());
        assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (StateCwr, of_marks));
        let mut s = ten(Sender::with(config, conn));
        s.on_ack(&ack(1).sack(1001, 5001));
        assert_eq!((s.flight.state(), s.flight.cc.ssthresh()), (Fast, 7), "a loss");
    }
}
