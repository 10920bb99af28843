//! The packets of a run, for messages and for lists of segments.

use crate::lang::ast::Direction;
use crate::packet::live::{Body, Live};
use crate::packet::show::{self, seconds};

/// The most packets that are remembered.
const MOST: usize = 20_000;

/// A segment that left: what `--segments` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSegment {
    /// The letters of the flags.
    pub flags: String,
    /// The relative sequence number.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
}

/// The packets of a run.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    lines: Vec<String>,
    left_out: usize,
    segments: Vec<SentSegment>,
}

impl Journal {
    /// Notes a packet with the numbers of the script.
    pub(super) fn note(&mut self, at: i64, direction: Direction, live: &Live) {
        if self.lines.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let arrow = if direction == Direction::Inbound { '<' } else { '>' };
        self.lines.push(format!("{} {arrow} {}", seconds(at), show::packet(live)));
        if let (Direction::Outbound, Body::Tcp(tcp)) = (direction, &live.body) {
            let flags = show::flags(tcp.flags);
            self.segments.push(SentSegment { flags, offset: tcp.seq, len: tcp.len });
        }
    }

    /// All lines, each with its time.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Packets that found no room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The segments that left, super-segments whole.
    pub fn segments(&self) -> &[SentSegment] {
        &self.segments
    }
}
