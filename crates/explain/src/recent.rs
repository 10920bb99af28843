//! The last packets of a direction, to tell those that were captured twice.
//!
//! A capture on all interfaces of a router or of a host with containers sees a packet on each of
//! them, and a few others in between: the kernel takes packets in by the batch.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::packet::Segment;

/// Packets that are remembered: a batch of the kernel.
const MOST: usize = 8;

/// What a copy has in common with its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    ident: u16,
    seq: SeqNum,
    ack: SeqNum,
    len: u32,
    window: u16,
    flags: TcpFlags,
}

/// The last packets of a direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    seen: [Option<(Print, u64)>; MOST],
    next: usize,
}

impl Recent {
    /// Whether a packet like this was seen just now; it is remembered if not.
    pub(crate) fn has(&mut self, segment: &Segment, options: &Options) -> bool {
        let Segment { seq, ack, len, window, flags, time, .. } = *segment;
        let ident = segment.ident.unwrap_or(0);
        let print = Print { ident, seq, ack, len, window, flags };
        // Without an identification (IPv6) what is sent again looks the same, but not so soon,
        // and duplicate ACKs differ in their blocks.
        let within = match ident {
            // One RST for each segment that came too late, all of them the same.
            0 if segment.sack || flags.intersects(TcpFlags::RST) => None,
            0 => Some(options.batch),
            _ => Some(options.soon),
        };
        let mut seen = self.seen.iter().flatten();
        let is_copy = within.is_some_and(|within| {
            seen.any(|(other, at)| *other == print && time.abs_diff(*at) <= within)
        });
        if !is_copy {
            self.seen[self.next] = Some((print, time));
            self.next = (self.next + 1) % MOST;
        }
        is_copy
    }
}
