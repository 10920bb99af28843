//! Segments that are merged, segments that are not, and their processing by a stack.

use plimsoll_buf::{MAX_SLICES, Pool, Slices};
use plimsoll_tcp::{Duration, Ecn, Segment};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{
    AccEcnCounters, AccEcnOption, AccEcnOrder, SackBlock, TcpFlags, TcpRepr, Timestamps,
};

use super::{Gro, Held, PureAcks, coalesce, train_unit};
use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::stack::tests::harness::{A4, B4, Pair, drain, feed, ip, pattern};

const ACK: TcpFlags = TcpFlags::ACK;

/// A segment with the bytes from `seq` on of a stream that counts.
fn segment(seq: u32, len: usize) -> Segment {
    let bytes: Vec<u8> = (0..len).map(|at| (seq as usize + at) as u8).collect();
    let mut repr = TcpRepr { src_port: 1, dst_port: 2, ..TcpRepr::default() };
    (repr.seq, repr.ack, repr.window) = (SeqNum(seq), SeqNum(5000), 100);
    repr.flags = ACK;
    repr.options.timestamps = Some(Timestamps { val: 7, ecr: 8 });
    let payload = if len == 0 { Slices::new() } else { Pool::new().copy_from(&bytes).into() };
    Segment { repr, payload, segs: 1, ecn: Ecn::NotEct }
}

fn changed(seq: u32, len: usize, change: impl FnOnce(&mut Segment)) -> Segment {
    let mut segment = segment(seq, len);
    change(&mut segment);
    segment
}

fn flat(segment: &Segment) -> Vec<u8> {
    segment.payload.parts().iter().flat_map(|part| part.to_vec()).collect()
}

/// Merges the two and returns the outcome.
fn merged(mut tail: Segment, next: Segment) -> Segment {
    let sum = tail.segs.saturating_add(next.segs);
    let bytes = [flat(&tail), flat(&next)].concat();
    coalesce(&mut tail, next, PureAcks::Merge).expect("they are merged");
    assert_eq!((tail.segs, flat(&tail)), (sum, bytes));
    tail
}

/// Both stay as they are, with any policy.
fn refused(tail: &Segment, next: &Segment) {
    for pure in [PureAcks::Keep, PureAcks::Merge] {
        refused_by(tail, next, pure);
    }
}

fn refused_by(tail: &Segment, next: &Segment, pure: PureAcks) {
    let mut first = tail.clone();
    let back = coalesce(&mut first, next.clone(), pure).expect_err("they stay apart");
    for (now, before) in [(&first, tail), (&back, next)] {
        assert_eq!((&now.repr, now.segs, now.ecn), (&before.repr, before.segs, before.ecn));
        assert_eq!(flat(now), flat(before));
        assert_eq!(now.payload.parts().len(), before.payload.parts().len());
    }
}

#[test]
fn neighbours_become_one() {
    let one = merged(segment(100, 50), segment(150, 70));
    assert_eq!((one.repr.seq, one.repr.flags), (SeqNum(100), ACK));
    assert_eq!(one.seq_len(), 120);
    // Across the end of the sequence space, too.
    merged(segment(u32::MAX - 9, 10), segment(0, 5));
}

#[test]
fn gaps_and_overlaps_stay() {
    refused(&segment(100, 50), &segment(151, 70));
    refused(&segment(100, 50), &segment(149, 70));
    refused(&segment(150, 70), &segment(100, 50));
}

#[test]
fn marks_are_not_mixed() {
    let ce = |segment: &mut Segment| segment.ecn = Ecn::Ce;
    refused(&segment(100, 50), &changed(150, 70, ce));
    merged(changed(100, 50, ce), changed(150, 70, ce));
    for flag in [TcpFlags::ECE, TcpFlags::CWR, TcpFlags::AE] {
        let with = |segment: &mut Segment| segment.repr.flags |= flag;
        refused(&segment(100, 50), &changed(150, 70, with));
        refused(&changed(100, 50, with), &segment(150, 70));
        let both = merged(changed(100, 50, with), changed(150, 70, with));
        assert_eq!(both.repr.flags, ACK | flag);
    }
}

#[test]
fn what_concerns_one_sequence_number_stays() {
    for flag in [TcpFlags::SYN, TcpFlags::RST, TcpFlags::URG] {
        let with = |segment: &mut Segment| segment.repr.flags |= flag;
        refused(&changed(100, 50, with), &segment(150, 70));
        refused(&segment(100, 50), &changed(150, 70, with));
        refused(&changed(100, 50, with), &changed(150, 70, with));
    }
    let without = |segment: &mut Segment| segment.repr.flags = TcpFlags::PSH;
    refused(&changed(100, 50, without), &segment(150, 70));
    refused(&segment(100, 50), &changed(150, 70, without));
}

#[test]
fn options_must_be_the_same() {
    let tick = |segment: &mut Segment| {
        segment.repr.options.timestamps = Some(Timestamps { val: 8, ecr: 8 });
    };
    refused(&segment(100, 50), &changed(150, 70, tick));
    let none = |segment: &mut Segment| segment.repr.options.timestamps = None;
    refused(&segment(100, 50), &changed(150, 70, none));
    merged(changed(100, 50, none), changed(150, 70, none));
    let sack = |segment: &mut Segment| {
        segment.repr.options.sack_mut().push(SackBlock { left: SeqNum(1), right: SeqNum(2) });
    };
    refused(&segment(100, 50), &changed(150, 70, sack));
    refused(&changed(100, 50, sack), &changed(150, 70, sack));
    let counts = |segment: &mut Segment| {
        let counters = AccEcnCounters { e0b: 1, ceb: 0, e1b: 1 };
        let option = AccEcnOption::new(AccEcnOrder::Ect1First, 3, counters);
        segment.repr.options.acc_ecn = Some(option);
    };
    refused(&segment(100, 50), &changed(150, 70, counts));
    merged(changed(100, 50, counts), changed(150, 70, counts));
    let signed = |segment: &mut Segment| segment.repr.options.md5 = Some([1; 16]);
    refused(&segment(100, 50), &changed(150, 70, signed));
}

/// A FIN was once lost because only one of its two records was updated.
#[test]
fn fin_and_push_of_the_later_survive() {
    let later = TcpFlags::FIN | TcpFlags::PSH;
    let one = merged(segment(100, 50), changed(150, 70, |s| s.repr.flags |= later));
    assert_eq!(one.repr.flags, ACK | later);
    assert_eq!(one.seq_len(), 121, "the FIN has its sequence number");
    refused(&one, &segment(220, 10));
    refused(&one, &segment(221, 10));
    let bare = merged(segment(100, 50), changed(150, 0, |s| s.repr.flags |= TcpFlags::FIN));
    assert_eq!(bare.seq_len(), 51);
    let pushed = merged(changed(100, 50, |s| s.repr.flags |= TcpFlags::PSH), segment(150, 70));
    assert_eq!(pushed.repr.flags, ACK | TcpFlags::PSH);
}

/// A window of a later segment with an older acknowledgement once made data seem to lie outside.
#[test]
fn the_window_comes_with_its_acknowledgement() {
    let with = |seq, ack, window| {
        changed(seq, 10, |s| (s.repr.ack, s.repr.window) = (SeqNum(ack), window))
    };
    let newer = merged(with(100, 5000, 100), with(110, 5400, 60));
    assert_eq!((newer.repr.ack, newer.repr.window), (SeqNum(5400), 60));
    let older = merged(with(100, 5000, 100), with(110, 4900, 300));
    assert_eq!((older.repr.ack, older.repr.window), (SeqNum(5000), 100));
    let same = merged(with(100, 5000, 100), with(110, 5000, 300));
    assert_eq!((same.repr.ack, same.repr.window), (SeqNum(5000), 300));
}

/// A merge once wrote to bytes that another owner shared.
#[test]
fn what_is_shared_is_not_touched() {
    let (first, second) = (segment(100, 50), segment(150, 70));
    let (tail, next) = (first.clone(), second.clone());
    let one = merged(tail, next);
    assert_eq!(one.payload.len(), 120);
    assert_eq!((first.payload.len(), second.payload.len()), (50, 70));
    assert_eq!((first.payload.parts().len(), second.payload.parts().len()), (1, 1));
    assert_eq!(flat(&first), flat(&segment(100, 50)));
    assert_eq!(flat(&second), flat(&segment(150, 70)));
}

#[test]
fn acknowledgements_without_data_stay_unless_a_later_one_says_more() {
    let pure =
        |ack, window| changed(100, 0, |s| (s.repr.ack, s.repr.window) = (SeqNum(ack), window));
    let one = merged(pure(5000, 100), pure(6000, 90));
    assert_eq!((one.repr.ack, one.repr.window), (SeqNum(6000), 90));
    refused_by(&pure(5000, 100), &pure(6000, 90), PureAcks::Keep);
    // A duplicate, a window update, an old one.
    refused(&pure(5000, 100), &pure(5000, 100));
    refused(&pure(5000, 100), &pure(5000, 200));
    refused(&pure(5000, 100), &pure(4000, 100));
    // Between data they stay, too.
    refused(&segment(100, 50), &changed(150, 0, |s| s.repr.ack = SeqNum(6000)));
    refused(&pure(5000, 100), &segment(100, 50));
    refused(&pure(5000, 100), &changed(100, 0, |s| s.repr.flags |= TcpFlags::FIN));
}

#[test]
fn lengths_ranges_and_counts_are_bounded() {
    let mut tail = segment(0, 60_000);
    refused(&tail, &segment(60_000, 5536));
    tail = merged(tail, segment(60_000, 5535));
    refused(&tail, &segment(65_535, 1));
    let mut tail = segment(0, 10);
    for at in 1..MAX_SLICES as u32 {
        tail = merged(tail, segment(10 * at, 10));
    }
    refused(&tail, &segment(10 * MAX_SLICES as u32, 10));
    let many = |s: &mut Segment| s.segs = u16::MAX - 1;
    assert_eq!(merged(changed(0, 10, many), changed(10, 10, many)).segs, u16::MAX);
}

fn held(segment: Segment) -> Held {
    let unit = train_unit(&segment, None).expect("a train may begin with it");
    let key = FlowKey { local: ip(A4), remote: ip(B4), local_port: 1, remote_port: 2 };
    Held { key, segment, tos: 0, unit, stamp: 0 }
}

#[test]
fn all_segments_of_a_train_but_the_last_have_one_length() {
    let mut train = held(segment(0, 100));
    assert!(train.append(segment(100, 100)).unwrap(), "it goes on");
    train.append(segment(200, 101)).unwrap_err();
    train.append(segment(200, 0)).unwrap_err();
    assert!(!train.append(segment(200, 99)).unwrap(), "a shorter one ends it");
    let mut train = held(segment(0, 100));
    let push = changed(100, 100, |s| s.repr.flags |= TcpFlags::PSH);
    assert!(!train.append(push).unwrap(), "so does a push");
    assert_eq!(train.segment.segs, 2);
}

#[test]
fn super_segments_are_parts_of_trains() {
    let large = |seq, len, segs| changed(seq, len, |s| s.segs = segs);
    assert_eq!(train_unit(&large(0, 300, 3), Some(100)), Some(100));
    assert_eq!(train_unit(&large(0, 290, 3), Some(100)), None, "it has ended");
    let mut train = held(segment(0, 100));
    train.append(large(100, 310, 3)).unwrap_err();
    train.append(large(100, 200, 3)).unwrap_err();
    assert!(train.append(large(100, 300, 3)).unwrap());
    assert!(!train.append(large(400, 250, 3)).unwrap());
    assert_eq!((train.segment.segs, train.segment.payload.len()), (7, 650));
}

#[test]
fn trains_do_not_begin_with_what_cannot_wait() {
    for flag in [TcpFlags::PSH, TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST, TcpFlags::URG] {
        assert_eq!(train_unit(&changed(0, 9, |s| s.repr.flags |= flag), None), None);
    }
    assert_eq!(train_unit(&segment(0, 0), None), None);
    assert_eq!(train_unit(&changed(0, 9, |s| s.repr.flags = TcpFlags(0)), None), None);
}

#[test]
fn the_oldest_comes_out_first() {
    let mut gro = Gro::default();
    for port in 0..3 {
        let Held { key, segment, unit, .. } = held(segment(0, 9));
        gro.hold(FlowKey { local_port: port, ..key }, (segment, 0), unit);
    }
    let first = gro.take_oldest().unwrap();
    gro.hold(FlowKey { local_port: 9, ..first.key }, (first.segment, 0), first.unit);
    let order = std::iter::from_fn(|| gro.take_oldest()).map(|held| held.key.local_port);
    assert_eq!(order.collect::<Vec<_>>(), [1, 2, 9]);
}

/// Sends `data` over one connection and returns the pair when it has arrived.
fn transfer(link: LinkConfig, sysctls: &[(&str, &str)], flows: usize) -> Pair {
    let mut pair = Pair::with(link, sysctls);
    let listener = pair.listen(B4, 64);
    let mut ends: Vec<_> = (0..flows)
        .map(|seed| (pair.open(B4, &listener), pattern(300_000, seed as u64 + 1), 0, Vec::new()))
        .collect();
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        for ((client, server), data, at, out) in &mut ends {
            feed(client, pair.now, data, at);
            drain(server, pair.now, out);
        }
        ends.iter().all(|(_, data, _, out)| data.len() == out.len())
    });
    assert!(done, "all arrives");
    assert!(ends.iter().all(|(_, data, _, out)| data == out), "byte for byte");
    pair
}

fn plain_link() -> LinkConfig {
    LinkConfig { offloads: false, ..LinkConfig::default() }
}

#[test]
fn a_stack_merges_what_a_batch_brings() {
    let pair = transfer(plain_link(), &[], 1);
    let (_, merged) = pair.counter("plimsoll.GroMerged");
    let (_, arrived) = pair.counter("TcpInSegs");
    assert!(arrived >= 300_000 / 1448, "wire segments are counted: {arrived}");
    assert!(merged > arrived / 2, "{merged} of {arrived}");
}

#[test]
fn merging_can_be_switched_off() {
    let pair = transfer(plain_link(), &[("plimsoll.gro", "0")], 1);
    assert_eq!(pair.counter("plimsoll.GroMerged"), (0, 0));
}

#[test]
fn more_flows_than_places_and_a_bad_link_deliver_everything() {
    for seed in 1..4 {
        let link = LinkConfig {
            loss: 0.01,
            reorder: 0.02,
            duplicate: 0.02,
            corrupt: 0.005,
            delay: Duration::from_millis(5),
            seed,
            ..plain_link()
        };
        let pair = transfer(link, &[], 3 * super::FLOWS);
        assert!(pair.counter("plimsoll.GroMerged").1 > 0);
    }
}
