//! Makes patterns: which there are, and how often.
//!
//! Times keep clear of the sender's timers, since what is compared is decisions and not who wins
//! a race. All are multiples of the kernel's tick, and its timers come between two of them
//! (`ticks.rs`). The reordering window is a multiple of a quarter of the round trip (RFC 8985
//! section 6.2): the round trips are such that one, two or three quarters are no such multiples,
//! and whatever is late is late by about an odd number of eighths.

use std::ops::Range;

use crate::draw::{Draw, hash};
use crate::pattern::{
    AckPolicy, AckRule, Controller, Effect, GRID, Pattern, SEGMENT, SegmentRule, Write,
};

/// Half of what is added to delays at random, in ms.
const SHAKEN: u32 = 6;

/// One kind of pattern: its name, and what it adds to a plain transfer.
struct Family {
    name: &'static str,
    /// How many of a hundred patterns are of it.
    share: u32,
    make: fn(&mut Draw, &mut Pattern),
}

const fn family(name: &'static str, share: u32, make: fn(&mut Draw, &mut Pattern)) -> Family {
    Family { name, share, make }
}

/// All kinds; the shares make a hundred.
const FAMILIES: &[Family] = &[
    family("one loss", 6, one_loss),
    family("burst of losses", 8, burst),
    family("scattered losses", 10, scattered),
    family("lost retransmissions", 10, lost_again),
    family("tail loss", 10, tail),
    family("a whole flight lost", 5, flight),
    family("reordering", 7, reordered_group),
    family("scattered reordering", 7, reordered_anywhere),
    family("duplication", 5, duplicated),
    family("late, not lost", 6, late),
    family("loss and reordering", 8, loss_and_reordering),
    family("lost ACKs", 6, lost_acks),
    family("late ACKs", 5, late_acks),
    family("small window", 3, small_window),
    family("small writes", 4, small_writes),
];

/// The pattern of this number.
pub(crate) fn pattern(seed: u64, id: u32) -> Pattern {
    let mut draw = Draw::new(hash(seed, &[u64::from(id)]));
    let mut place = id % 100;
    // Families take turns: any thousand in a row have them in their shares.
    place = place * 37 % 100;
    let mut chosen = &FAMILIES[0];
    for family in FAMILIES {
        chosen = family;
        match place.checked_sub(family.share) {
            Some(rest) => place = rest,
            None => break,
        }
    }
    let mut pattern = plain(&mut draw, id, chosen.name);
    (chosen.make)(&mut draw, &mut pattern);
    pattern
}

/// A transfer to which nothing happens.
fn plain(draw: &mut Draw, id: u32, family: &'static str) -> Pattern {
    let sack = draw.chance(750);
    Pattern {
        id,
        family,
        seed: draw.next(),
        controller: draw.pick(&[Controller::Cubic, Controller::Reno]),
        sack,
        timestamps: draw.chance(600),
        dsack: sack && draw.chance(800),
        rtt_ms: draw.pick(&[116, 132, 148, 164, 180, 196]),
        deferral: draw.chance(50),
        window: 500,
        writes: writes(draw),
        acks: acks(draw),
        segment_rules: Vec::new(),
        ack_rules: Vec::new(),
    }
}

fn writes(draw: &mut Draw) -> Vec<Write> {
    match draw.within(0..=9) {
        // Bulk.
        0..=5 => vec![write(draw.within(14..=60) * SEGMENT, 0)],
        // Requests and responses: each is answered before the next.
        6..=7 => {
            let thinks = [8, 8, 52, 432];
            (0..draw.within(3..=6))
                .map(|_| write(draw.within(1..=16) * SEGMENT, draw.pick(&thinks)))
                .collect()
        }
        // Limited by the application: the next write comes while some of the last is in flight.
        _ => (0..draw.within(4..=8))
            .map(|_| Write {
                bytes: draw.within(2..=9) * SEGMENT,
                think_ms: draw.pick(&[4, 12]),
                unacked: draw.within(0..=3) * SEGMENT,
            })
            .collect(),
    }
}

const fn write(bytes: u32, think_ms: u32) -> Write {
    Write { bytes, think_ms, unacked: 0 }
}

fn acks(draw: &mut Draw) -> AckPolicy {
    match draw.within(0..=9) {
        0..=4 => AckPolicy::Every,
        5..=6 => AckPolicy::EveryNth(2),
        7 => AckPolicy::EveryNth(draw.within(3..=8)),
        _ => AckPolicy::Batches,
    }
}

/// An odd number of eighths of the round trip, less than all of it; with what is added at random
/// it lies around that.
fn eighths(draw: &mut Draw, pattern: &Pattern) -> u32 {
    on_grid(pattern.rtt_ms * draw.pick(&[1, 3, 5, 7]) / 8 - SHAKEN)
}

/// The multiple of the grid at or below.
const fn on_grid(ms: u32) -> u32 {
    ms - ms % GRID
}

/// Segments of the pattern.
fn count(pattern: &Pattern) -> u32 {
    pattern.total().div_ceil(SEGMENT)
}

/// Some segments in a row, `most` at most, anywhere.
fn group(draw: &mut Draw, pattern: &Pattern, most: u32) -> Range<u32> {
    let first = draw.within(0..=count(pattern) - 1);
    first..first + draw.within(1..=most)
}

fn lose(pattern: &mut Pattern, segments: Range<u32>, transmissions: Range<u32>, permille: u32) {
    let effect = Effect::Drop;
    pattern.segment_rules.push(SegmentRule { segments, transmissions, permille, effect });
}

fn one_loss(draw: &mut Draw, pattern: &mut Pattern) {
    let which = group(draw, pattern, 1);
    lose(pattern, which, 1..2, 1000);
}

fn burst(draw: &mut Draw, pattern: &mut Pattern) {
    for _ in 0..draw.within(1..=2) {
        let which = group(draw, pattern, 10);
        lose(pattern, which, 1..2, 1000);
    }
}

fn scattered(draw: &mut Draw, pattern: &mut Pattern) {
    let permille = draw.pick(&[20, 50, 100, 200, 350]);
    lose(pattern, 0..u32::MAX, 1..2, permille);
    lose(pattern, 0..u32::MAX, 2..4, permille / 2);
}

fn lost_again(draw: &mut Draw, pattern: &mut Pattern) {
    let which = group(draw, pattern, 3);
    let times = draw.within(2..=3);
    lose(pattern, which.clone(), 1..1 + times, 1000);
    if draw.chance(500) {
        let more = group(draw, pattern, 5);
        lose(pattern, more, 1..2, 1000);
    }
}

fn tail(draw: &mut Draw, pattern: &mut Pattern) {
    let ends: Vec<u32> = pattern
        .writes
        .iter()
        .scan(0, |sum, write| {
            *sum += write.bytes;
            Some(sum.div_ceil(SEGMENT))
        })
        .collect();
    let end = draw.pick(&ends);
    let few = draw.within(1..=8).min(end);
    let times = draw.pick(&[1, 1, 1, 2, 3]);
    lose(pattern, end - few..end, 1..2, 1000);
    lose(pattern, end - 1..end, 2..1 + times, 1000);
}

fn flight(draw: &mut Draw, pattern: &mut Pattern) {
    let first = draw.pick(&[0, 0, 10, 20]);
    let len = draw.within(10..=20);
    lose(pattern, first..first + len, 1..2, 1000);
    if draw.chance(300) {
        lose(pattern, first..first + 1, 2..3, 1000);
    }
}

fn reordered_group(draw: &mut Draw, pattern: &mut Pattern) {
    for _ in 0..draw.within(1..=3) {
        let segments = group(draw, pattern, 4);
        let effect = Effect::Delay(eighths(draw, pattern));
        pattern.segment_rules.push(SegmentRule {
            segments,
            transmissions: 1..2,
            permille: 1000,
            effect,
        });
    }
}

fn reordered_anywhere(draw: &mut Draw, pattern: &mut Pattern) {
    let permille = draw.pick(&[30, 60, 120, 250]);
    let effect = Effect::Delay(eighths(draw, pattern));
    pattern.segment_rules.push(SegmentRule {
        segments: 0..u32::MAX,
        transmissions: 1..3,
        permille,
        effect,
    });
}

fn duplicated(draw: &mut Draw, pattern: &mut Pattern) {
    let late = if draw.chance(500) { 0 } else { eighths(draw, pattern) };
    pattern.segment_rules.push(SegmentRule {
        segments: 0..u32::MAX,
        transmissions: 1..3,
        permille: draw.pick(&[50, 150, 300]),
        effect: Effect::Duplicate(late),
    });
    if draw.chance(500) {
        let which = group(draw, pattern, 2);
        lose(pattern, which, 1..2, 1000);
    }
}

/// So late that probes and timeouts come before it: they were not needed.
fn late(draw: &mut Draw, pattern: &mut Pattern) {
    let segments = group(draw, pattern, 12);
    let ms = on_grid(pattern.rtt_ms * draw.pick(&[9, 13, 21, 29, 37]) / 8);
    pattern.segment_rules.push(SegmentRule {
        segments,
        transmissions: 1..draw.pick(&[2, 3]),
        permille: 1000,
        effect: Effect::Delay(ms),
    });
}

fn loss_and_reordering(draw: &mut Draw, pattern: &mut Pattern) {
    reordered_group(draw, pattern);
    match draw.within(0..=2) {
        0 => burst(draw, pattern),
        1 => lost_again(draw, pattern),
        _ => tail(draw, pattern),
    }
}

fn lost_acks(draw: &mut Draw, pattern: &mut Pattern) {
    pattern.ack_rules.push(AckRule {
        numbers: 0..200,
        permille: draw.pick(&[100, 300, 600]),
        effect: Effect::Drop,
    });
    if draw.chance(600) {
        burst(draw, pattern);
    }
}

fn late_acks(draw: &mut Draw, pattern: &mut Pattern) {
    let effect = Effect::Delay(eighths(draw, pattern));
    pattern.ack_rules.push(AckRule {
        numbers: 0..200,
        permille: draw.pick(&[50, 150, 300]),
        effect,
    });
    if draw.chance(600) {
        burst(draw, pattern);
    }
}

fn small_window(draw: &mut Draw, pattern: &mut Pattern) {
    pattern.window = draw.within(4..=20);
    burst(draw, pattern);
}

/// Writes that do not fill segments; a retransmission may join what they became.
fn small_writes(draw: &mut Draw, pattern: &mut Pattern) {
    pattern.writes = (0..draw.within(6..=14))
        .map(|_| Write {
            bytes: draw.pick(&[100, 300, 700, 1300, 2500]),
            think_ms: draw.pick(&[4, 12]),
            unacked: draw.within(0..=3) * 700,
        })
        .collect();
    lose(pattern, 0..u32::MAX, 1..2, draw.pick(&[100, 250]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_hundred() {
        assert_eq!(FAMILIES.iter().map(|family| family.share).sum::<u32>(), 100);
        for family in FAMILIES {
            let made = (0..100).filter(|&id| pattern(1, id).family == family.name).count();
            assert_eq!(made, family.share as usize, "{}", family.name);
        }
    }

    #[test]
    fn a_pattern_depends_on_seed_and_number_alone() {
        assert_eq!(pattern(1, 17), pattern(1, 17));
        assert_ne!(pattern(1, 17).seed, pattern(2, 17).seed);
        assert_ne!(pattern(1, 17).seed, pattern(1, 117).seed);
    }

    #[test]
    fn every_pattern_can_end() {
        for id in 0..1000 {
            let pattern = pattern(3, id);
            assert!(pattern.total() > 0, "{pattern}");
            assert!(pattern.rtt_ms >= 100);
            for segment in 0..count(&pattern) {
                let fate = pattern.segment_fate(segment * SEGMENT, 5);
                assert!(!fate.lost, "{pattern}");
            }
        }
    }
}
