//! For any losses and reordering of ACKs, the sender learns the number of marked packets.

use std::vec::Vec;

use proptest::prelude::*;

use super::feedback::Feedback;
use super::received::{OptionPolicy, Received, Want};
use super::*;
use crate::time::Nanos;

const MSS: u32 = 1000;

/// The treatment of an ACK.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    IsLost,
    /// This many ACKs overtake it.
    IsOvertaken(usize),
}

/// An ACK, as the receiver of the data sent it.
#[derive(Clone, Copy, Debug)]
struct Ack {
    delivered: u32,
    ace: u8,
    option: Option<AccEcnOption>,
    tsval: u32,
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Arrives),
        2 => Just(Fate::IsLost),
        1 => (1_usize..5).prop_map(Fate::IsOvertaken),
    ]
}

/// The ACKs of packets with these marks, if one is sent for `every` packets.
fn acks(marks: &[bool], every: usize, options: bool) -> Vec<Ack> {
    let mut received = Received::new();
    let mut acks = Vec::new();
    for (at, group) in marks.chunks(every).enumerate() {
        for &marked in group {
            received.on_packets(if marked { Ecn::Ce } else { Ecn::Ect0 }, 1, MSS);
        }
        let now = Instant::from_millis(at as u64);
        let policy =
            OptionPolicy { level: u8::from(options) * 2, beacon: 3, now, srtt: Nanos::ZERO };
        let wanted = received.wants_option(&policy) != Want::None;
        let option = wanted.then(|| received.option(3)).flatten();
        let delivered = (at * every + group.len()) as u32;
        acks.push(Ack { delivered, ace: received.ace(true), option, tsval: at as u32 });
        received.on_sent(now, option.as_ref());
    }
    acks
}

/// The ACKs that are left, in the order of their arrival. The last one arrives.
fn carry(acks: &[Ack], fates: &[Fate]) -> Vec<Ack> {
    let mut order: Vec<(usize, Ack)> = Vec::new();
    for (at, ack) in acks.iter().enumerate() {
        match fates[at % fates.len()] {
            _ if at + 1 == acks.len() => order.push((at + 9, *ack)),
            Fate::Arrives => order.push((at, *ack)),
            Fate::IsLost => {}
            Fate::IsOvertaken(by) => order.push((at + by, *ack)),
        }
    }
    order.sort_by_key(|&(at, _)| at);
    order.into_iter().map(|(_, ack)| ack).collect()
}

/// The sender's final count, and the most packets that one ACK has delivered.
fn count(acks: &[Ack]) -> (u32, u32, u32) {
    let mut feedback = Feedback::new();
    let (mut una, mut total, mut most) = (0, 0, 0);
    for ack in acks {
        if ack.delivered <= una {
            continue;
        }
        let acked = ack.delivered - una;
        let said = feedback.read(ack.ace, ack.option.as_ref(), Some(ack.tsval), MSS);
        let marked = said.packets(acked);
        feedback.take((acked, marked), ack.option.as_ref(), Some(ack.tsval), MSS);
        (una, total, most) = (ack.delivered, total + marked, most.max(acked));
    }
    (total, feedback.bytes().ceb, most)
}

proptest! {
    #[test]
    fn with_options_the_count_is_true(
        marks in prop::collection::vec(any::<bool>(), 1..400),
        every in 1_usize..20,
        fates in prop::collection::vec(fates(), 1..50),
    ) {
        let truth = marks.iter().filter(|&&marked| marked).count() as u32;
        let (counted, bytes, _) = count(&carry(&acks(&marks, every, true), &fates));
        prop_assert_eq!((counted, bytes), (truth, truth * MSS));
    }

    #[test]
    fn without_options_the_count_is_true_if_few_packets_are_acknowledged_together(
        marks in prop::collection::vec(prop::bool::weighted(0.3), 1..400),
        every in 1_usize..4,
        fates in prop::collection::vec(fates(), 1..50),
    ) {
        let truth = marks.iter().filter(|&&marked| marked).count() as u32;
        let (counted, _, most) = count(&carry(&acks(&marks, every, false), &fates));
        if most < 8 {
            prop_assert_eq!(counted, truth);
        } else {
            prop_assert_eq!(counted % 8, truth % 8);
            prop_assert!(counted <= marks.len() as u32);
        }
    }
}
