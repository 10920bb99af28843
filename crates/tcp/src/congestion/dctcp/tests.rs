use plimsoll_wire::tcp::TcpRepr;

use super::*;
use crate::algorithm::CongestionAlgorithm;
use crate::config::Options;
use crate::congestion::tests::SAMPLE;
use crate::segment::Ecn;
use crate::testing::{Setup, Trace};

/// A window of `delivered` segments passes, of which `marked` are marked.
fn pass(dctcp: &mut Dctcp, delivered: u32, marked: u32) {
    let nxt = dctcp.end.unwrap_or(SeqNum(0));
    let sample = AckSample { una: nxt, nxt: nxt + delivered, delivered, marked, ..SAMPLE };
    dctcp.on_ack(&sample);
}

fn alpha_in_percent(dctcp: &Dctcp) -> u32 {
    (u64::from(dctcp.alpha) * 100 / u64::from(ONE)) as u32
}

#[test]
fn alpha_follows_the_share_of_marks() {
    let mut dctcp = Dctcp::default();
    assert_eq!(alpha_in_percent(&dctcp), 100);
    pass(&mut dctcp, 0, 0);
    for _ in 0..100 {
        pass(&mut dctcp, 20, 10);
    }
    assert!(alpha_in_percent(&dctcp).abs_diff(50) <= 1, "{dctcp:?}");
    let before = dctcp.alpha;
    pass(&mut dctcp, 20, 0);
    assert_eq!(dctcp.alpha, before - before.div_ceil(16));
    for _ in 0..400 {
        pass(&mut dctcp, 20, 0);
    }
    assert_eq!(dctcp.alpha, 0);
    pass(&mut dctcp, 20, 20);
    assert_eq!(dctcp.alpha, ONE / 16);
}

#[test]
fn the_window_comes_down_by_half_of_alpha() {
    for (cwnd, alpha, expected) in
        [(20, ONE, 10), (20, ONE / 2, 15), (20, ONE / 8, 19), (20, 0, 20), (2, ONE, 2)]
    {
        let mut window = Window::new(cwnd);
        Dctcp { alpha, ..Dctcp::default() }.on_marks(&mut window);
        assert_eq!(window.ssthresh, expected, "cwnd {cwnd}, alpha {alpha}");
    }
}

fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.config.tcp_ecn = 0;
    setup.options = Options { congestion: Some(CongestionAlgorithm::Dctcp), ..Options::default() };
    setup
}

fn connected() -> Trace {
    let mut t = Trace::syn_sent_any(setup(), "SEW 0:0");
    t.recv_syn_ack("SE. 0:0 ack 1", None);
    assert_eq!(t.expect(". 1:1 ack 1").ecn, Ecn::Ect0, "ACKs are ECN-capable too");
    t
}

#[test]
fn everything_is_ecn_capable_whatever_the_setting_says() {
    let mut t = connected();
    t.write(1000);
    assert_eq!(t.expect("P. 1:1001 ack 1").ecn, Ecn::Ect0);
    t.sleep();
    assert_eq!(t.expect("P. 1:1001 ack 1").ecn, Ecn::Ect0, "and what is sent again");
}

#[test]
fn acks_say_which_data_was_marked() {
    let mut t = connected();
    // Past the quick ACKs of a young connection.
    for at in 0..20 {
        t.recv_marked(&std::format!(". {}:{} ack 1", at * 1000 + 1, at * 1000 + 1001), Ecn::Ect0);
        t.drain();
    }
    t.recv_marked(". 20001:21001 ack 1", Ecn::Ect0);
    t.expect_nothing();
    t.recv_marked(". 21001:22001 ack 1", Ecn::Ce);
    let earlier = t.expect(". 1:1 ack 21001").repr;
    let later = t.expect("E. 1:1 ack 22001").repr;
    let scale = t.info().rcv_wscale;
    let edge = |repr: &TcpRepr| repr.ack + (u32::from(repr.window) << scale);
    assert!(edge(&earlier) >= edge(&later), "the right edge of the window does not go back");
    t.recv_marked(". 22001:23001 ack 1", Ecn::Ce);
    t.recv_marked("W. 23001:24001 ack 1", Ecn::Ce);
    t.expect("E. 1:1 ack 24001");
    t.recv_marked(". 24001:25001 ack 1", Ecn::Ce);
    t.recv_marked(". 25001:26001 ack 1", Ecn::Ect0);
    t.expect("E. 1:1 ack 25001");
    t.expect(". 1:1 ack 26001");
}

#[test]
fn a_mark_reduces_once_per_window_and_loss_halves() {
    let mut t = connected();
    t.write(20_000);
    t.drain();
    t.recv("E. 1:1 ack 1001");
    let info = t.info();
    assert_eq!((info.ca_state, info.snd_ssthresh), (2, 5), "alpha begins with one");
    t.recv("E. 1:1 ack 2001");
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), (2, 5));
    assert_eq!(t.info().delivered_ce, 2);
}
