//! A pattern: what the path and the receiver do to a sender, said beforehand.
//!
//! Nobody can say beforehand what a sender will send. A pattern therefore names segments by what
//! they are and not by when they come: the *n*th transmission of the segment at this offset is
//! lost, late, or doubled. So two senders that decide alike meet the same path, whatever the
//! clock shows.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::draw::{happens, hash};

/// Payload of a full segment, in bytes, with and without timestamps.
pub(crate) const SEGMENT: u32 = 1000;

/// All times of a pattern are multiples of this many ms, which is a tick of the kernel's clock.
pub(crate) const GRID: u32 = 4;

/// Everything that a run needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pattern {
    /// Its number.
    pub(crate) id: u32,
    /// What it is about.
    pub(crate) family: &'static str,
    /// What its draws depend on.
    pub(crate) seed: u64,
    pub(crate) controller: Controller,
    /// Whether the receiver agrees to SACK.
    pub(crate) sack: bool,
    /// Whether it agrees to timestamps.
    pub(crate) timestamps: bool,
    /// Whether it reports duplicates (RFC 2883).
    pub(crate) dsack: bool,
    /// From a segment to its ACK, in ms, if nothing happens to either.
    pub(crate) rtt_ms: u32,
    /// A packet that the window cuts short may wait for the next ACK (`tcp_tso_win_divisor`).
    pub(crate) deferral: bool,
    /// The receiver's window, in segments.
    pub(crate) window: u32,
    pub(crate) writes: Vec<Write>,
    pub(crate) acks: AckPolicy,
    pub(crate) segment_rules: Vec<SegmentRule>,
    pub(crate) ack_rules: Vec<AckRule>,
}

/// A congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Controller {
    Cubic,
    Reno,
}

impl Controller {
    /// Its name in `tcp_congestion_control`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Controller::Cubic => "cubic",
            Controller::Reno => "reno",
        }
    }
}

/// One write of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Write {
    pub(crate) bytes: u32,
    /// Made so many ms after all bytes of earlier writes but `unacked` were acknowledged.
    pub(crate) think_ms: u32,
    /// See `think_ms`.
    pub(crate) unacked: u32,
}

/// When the receiver acknowledges data that arrives in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum AckPolicy {
    /// Each segment.
    Every,
    /// Each *n*th, the rest after 40 ms (RFC 5681 section 4.2 with *n* = 2; more is stretched).
    EveryNth(u32),
    /// Whatever came within 2 ms together, out-of-order segments too.
    Batches,
}

/// What happens to a segment or an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Effect {
    Drop,
    /// It comes so many ms later, and up to 12 more; together multiples of [`GRID`].
    Delay(u32),
    /// It comes twice, the second so many ms later, and up to 12 more if that is not 0.
    Duplicate(u32),
}

/// What happens to some transmissions of some segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SegmentRule {
    /// Which segments, counted from 0.
    pub(crate) segments: Range<u32>,
    /// Which transmissions of them, counted from 1.
    pub(crate) transmissions: Range<u32>,
    /// To how many in a thousand.
    pub(crate) permille: u32,
    pub(crate) effect: Effect,
}

/// What happens to some ACKs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AckRule {
    /// Which ACKs, counted from 0.
    pub(crate) numbers: Range<u32>,
    /// To how many in a thousand.
    pub(crate) permille: u32,
    pub(crate) effect: Effect,
}

/// What the rules come to for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) delay_ms: u32,
    /// The second copy comes so much after the first.
    pub(crate) copy_ms: Option<u32>,
}

impl Fate {
    /// `draw` shakes what is late, so that two things that are late do not come at the same time.
    fn suffer(&mut self, effect: Effect, draw: u64) {
        let shaken = |ms: u32| match ms + GRID * (draw % 4) as u32 {
            _ if ms == 0 => 0,
            // HyStart leaves slow start when the round trip is longer by more than this.
            16 => 16 + GRID,
            late => late,
        };
        match effect {
            Effect::Drop => self.lost = true,
            Effect::Delay(ms) => self.delay_ms = self.delay_ms.max(shaken(ms)),
            Effect::Duplicate(ms) => self.copy_ms = Some(shaken(ms)),
        }
    }
}

impl Pattern {
    /// What happens to the `transmission`th copy of the segment whose first byte is `offset`.
    pub(crate) fn segment_fate(&self, offset: u32, transmission: u32) -> Fate {
        let mut fate = Fate::default();
        let segment = offset / SEGMENT;
        for (number, rule) in (0..).zip(&self.segment_rules) {
            let words = [1, number, u64::from(offset), u64::from(transmission)];
            if rule.segments.contains(&segment)
                && rule.transmissions.contains(&transmission)
                && happens(self.seed, &words, rule.permille)
            {
                fate.suffer(rule.effect, hash(self.seed, &words) >> 32);
            }
        }
        fate
    }

    /// What happens to the ACK of this number.
    pub(crate) fn ack_fate(&self, ack: u32) -> Fate {
        let mut fate = Fate::default();
        for (number, rule) in (0..).zip(&self.ack_rules) {
            let words = [2, number, u64::from(ack)];
            if rule.numbers.contains(&ack) && happens(self.seed, &words, rule.permille) {
                fate.suffer(rule.effect, hash(self.seed, &words) >> 32);
            }
        }
        fate
    }

    /// All bytes that the application writes.
    pub(crate) fn total(&self) -> u32 {
        self.writes.iter().map(|write| write.bytes).sum()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |on: bool| if on { "on" } else { "off" };
        writeln!(f, "pattern {}: {}", self.id, self.family)?;
        writeln!(
            f,
            "  {}, RTT {} ms, SACK {}, timestamps {}, DSACK {}, deferral {}, window {} segments, ACKs \
             {:?}",
            self.controller.name(),
            self.rtt_ms,
            on(self.sack),
            on(self.timestamps),
            on(self.dsack),
            on(self.deferral),
            self.window,
            self.acks,
        )?;
        for write in &self.writes {
            let Write { bytes, think_ms, unacked } = write;
            writeln!(f, "  write {bytes} bytes, {think_ms} ms after {unacked} bytes are left")?;
        }
        for rule in &self.segment_rules {
            let SegmentRule { segments, transmissions, permille, effect } = rule;
            writeln!(
                f,
                "  segments {segments:?}, transmissions {transmissions:?}, {permille} permille: \
                 {effect:?}"
            )?;
        }
        for AckRule { numbers, permille, effect } in &self.ack_rules {
            writeln!(f, "  ACKs {numbers:?}, {permille} permille: {effect:?}")?;
        }
        Ok(())
    }
}
