//! What lies below a side: packets that were handed down, and the device that takes them.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use plimsoll_buf::Slices;
use plimsoll_tcp::{Below, Ecn, Instant, MemoryRoom, Segment, Serial, Transmit};
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

/// How a device takes packets, and what it tells of it.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A packet is on its way at once. Its memory is given back later, which nobody is told.
    Silent,
    /// A packet is on its way when it completes, and the connection is told.
    Completes,
    /// The same, behind a queueing discipline that keeps departure times.
    Paces,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// The header.
    pub repr: TcpRepr,
    /// The data.
    pub payload: Slices,
    /// Payload bytes of each wire segment but the last.
    pub segment_size: u16,
    /// The ECN field as it is by now.
    pub ecn: Ecn,
}

impl Flight {
    fn of(transmit: Transmit) -> Flight {
        let Transmit { repr, payload, segment_size, ecn, .. } = transmit;
        Flight { repr, payload, segment_size, ecn }
    }

    fn segs(&self) -> u16 {
        match self.segment_size {
            0 => 1,
            size => (self.payload.len().div_ceil(usize::from(size))).max(1) as u16,
        }
    }

    /// The whole as one segment, as a coalescing receiver sees it.
    pub(super) fn whole(self) -> Segment {
        let segs = self.segs();
        Segment { repr: self.repr, payload: self.payload, segs, ecn: self.ecn }
    }

    /// Cuts off the first wire segment, if there is more than one.
    pub(super) fn split_first(&mut self) -> Option<Segment> {
        if self.segs() < 2 {
            return None;
        }
        let size = usize::from(self.segment_size);
        let mut repr = self.repr.clone();
        // FIN and PSH belong to the last wire segment.
        repr.flags.0 &= !(TcpFlags::FIN | TcpFlags::PSH).0;
        let payload = self.payload.range(0, size);
        self.payload.advance(size);
        self.repr.seq += size as u32;
        Some(Segment { repr, payload, segs: 1, ecn: self.ecn })
    }

    /// A router marks it, if the sender knows what that means.
    pub(super) fn mark(&mut self) {
        if self.ecn != Ecn::NotEct {
            self.ecn = Ecn::Ce;
        }
    }
}

/// A packet that has not completed.
struct Waiting {
    serial: Option<Serial>,
    bytes: u32,
    departure: Instant,
    /// `None` if it is on its way already, or was dropped.
    flight: Option<Flight>,
}

/// The device of one side and the queue before it.
pub(super) struct Device {
    kind: Kind,
    takes_notes: bool,
    waiting: VecDeque<Waiting>,
    completed: Serial,
}

impl Device {
    /// A device with nothing below it.
    pub(super) fn new(kind: Kind, takes_notes: bool) -> Device {
        Device { kind, takes_notes, waiting: VecDeque::new(), completed: Serial(0) }
    }

    /// What the connection is told of it.
    pub(super) fn below(&self, memory: MemoryRoom) -> Below {
        Below {
            bytes: self.waiting.iter().map(|packet| packet.bytes).sum(),
            completed: self.completed,
            completions: self.kind != Kind::Silent,
            takes_notes: self.takes_notes,
            keeps_departures: self.kind == Kind::Paces,
            memory,
        }
    }

    /// Takes a packet. Returns what is on its way at once.
    pub(super) fn push(&mut self, transmit: Transmit, now: Instant) -> Option<Flight> {
        assert_eq!(
            transmit.note.is_some(),
            self.takes_notes && says_why(&transmit),
            "a note that nobody asked for, or none: {transmit:?}"
        );
        if self.kind != Kind::Paces {
            assert!(transmit.departure <= now, "a packet for later, and nobody keeps it");
        }
        let (serial, departure) = (transmit.serial, transmit.departure);
        let bytes = if serial.is_some() { transmit.payload.len() as u32 } else { 0 };
        let flight = Flight::of(transmit);
        let (leaves, kept) = match self.kind {
            Kind::Silent => (Some(flight), None),
            Kind::Completes | Kind::Paces => (None, Some(flight)),
        };
        if kept.is_some() || serial.is_some() {
            self.waiting.push_back(Waiting { serial, bytes, departure, flight: kept });
        }
        leaves
    }

    /// Completes up to `count` packets whose time has come, and returns those that are on their way
    /// with that.
    pub(super) fn complete(&mut self, now: Instant, count: usize) -> Vec<Flight> {
        let mut leaves = Vec::new();
        for _ in 0..count {
            let Some(front) = self.waiting.pop_front_if(|front| front.departure <= now) else {
                break;
            };
            if let Some(serial) = front.serial {
                assert!(serial > self.completed, "packets complete in order");
                self.completed = serial;
            }
            leaves.extend(front.flight);
        }
        leaves
    }

    /// The queue drops a packet: it will complete without having been on its way.
    pub(super) fn lose(&mut self, which: u8) {
        if !self.waiting.is_empty() {
            let at = usize::from(which) % self.waiting.len();
            self.waiting[at].flight = None;
        }
    }

    /// Until when the front waits for its departure.
    pub(super) fn next_departure(&self, now: Instant) -> Option<Instant> {
        self.waiting.front().map(|front| front.departure).filter(|&at| now < at)
    }

    /// Whether nothing is below the connection.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether the engine explains packets of this kind.
fn says_why(transmit: &Transmit) -> bool {
    use plimsoll_tcp::SendKind;
    !matches!(transmit.kind, SendKind::Syn | SendKind::SynAck | SendKind::Rst)
}
