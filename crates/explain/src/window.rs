//! The window that one side announces, and what it costs the side that sends.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::kinds::Kind;
use crate::packet::{Scale, Segment};
use crate::tally::{Mark, Tallies, Tally};

/// The window of one side, as its segments announced it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    /// Its right edge and size, as last announced.
    last: Option<(SeqNum, u32)>,
    /// The largest size announced, in bytes.
    largest: u32,
    closed: Option<Mark>,
    full: Option<Full>,
}

/// The data of the sender has filled the window.
#[derive(Clone, Copy, Debug)]
struct Full {
    since: Mark,
    /// The end of the data that fills it.
    end: SeqNum,
    why: Kind,
    /// When the window had space for a segment again.
    until: Option<u64>,
}

impl Window {
    /// The right edge as last announced.
    pub(crate) fn edge(&self) -> Option<SeqNum> {
        self.last.map(|(edge, _)| edge)
    }

    /// The size as last announced, in bytes.
    pub(crate) fn size(&self) -> Option<u32> {
        self.last.map(|(_, size)| size)
    }

    /// The largest size announced, in bytes; 0 if none is known.
    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The sequence numbers are others from here on.
    pub(crate) fn forget(&mut self) {
        (self.last, self.full) = (None, None);
    }

    /// A segment announces a window. Without its scale only its being closed counts. `mss` is that
    /// of the data that comes to this side.
    pub(crate) fn announce(
        &mut self,
        segment: &Segment,
        scale: Scale,
        mss: u32,
        found: &mut Tallies,
    ) {
        if segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST) {
            return;
        }
        let mark = Mark { number: segment.number, time: segment.time };
        if segment.window == 0 {
            self.closed.get_or_insert(mark);
            // From here on the window is not full, but closed.
            self.full = None;
        } else {
            self.open(segment.time, found);
        }
        let shift = match scale {
            Scale::Unknown => return,
            Scale::Absent => 0,
            Scale::Shift(shift) => shift,
        };
        let size = u32::from(segment.window) << shift;
        let edge = segment.ack + size;
        if let Some((before, room)) = self.last {
            let opened = if edge > before { edge.since(before) } else { 0 };
            if room < mss && size < mss && (1..mss).contains(&opened) {
                found.of(Kind::SillyWindow).add(mark, 1.0, 0);
            }
        }
        self.last = Some((edge, size));
        if size > self.largest + self.largest / 8 {
            // The buffer grows as the path needs it: it was small for a few round trips only.
            *found.of(Kind::SmallBuffer) = Tally::default();
        }
        self.largest = self.largest.max(size);
        let enough = self.enough(mss);
        if let Some(full) = self.full.as_mut().filter(|full| full.until.is_none())
            && edge > full.end
            && edge.since(full.end) >= enough
        {
            full.until = Some(segment.time);
        }
    }

    /// The space below which a sender waits for more: a segment, or half of a window that never had
    /// two (RFC 9293, section 3.8.6.2.1).
    fn enough(&self, mss: u32) -> u32 {
        mss.min(self.largest / 2).max(1)
    }

    /// The peer sends data up to `end`. If it waited for space in the window before, and data left
    /// as soon as there was some (`prompt` is the time in nanoseconds that the way there and back
    /// takes), the wait is told. `recovering` says that it has lost data to send again first, and
    /// is not held by the window.
    pub(crate) fn filled(
        &mut self,
        (mark, end): (Mark, SeqNum),
        mss: u32,
        recovering: bool,
        prompt: u64,
        options: &Options,
        found: &mut Tallies,
    ) {
        if let Some(Full { since, why, until: Some(until), .. }) = self.full {
            let waited = until.saturating_sub(since.time);
            let at_once = mark.time.saturating_sub(until) <= prompt;
            if at_once && waited >= options.soon && !recovering {
                found.of(why).add(since, 0.0, waited);
            }
            self.full = None;
        }
        let Some((edge, size)) = self.last else { return };
        let room = if edge > end { edge.since(end) } else { 0 };
        if room < self.enough(mss) && size > 0 {
            // A receiver that reads at once announces the same window again and again; where data
            // waits for its reader, the window is what is left.
            let why = if size < self.largest / 2 { Kind::FullWindow } else { Kind::SmallBuffer };
            let full = self.full.get_or_insert(Full { since: mark, end, why, until: None });
            full.end = end;
        }
    }

    fn open(&mut self, time: u64, found: &mut Tallies) {
        if let Some(since) = self.closed.take() {
            let nanos = time.saturating_sub(since.time);
            found.of(Kind::ZeroWindow).add(since, 0.0, nanos);
        }
    }

    /// The flow ends at `time`.
    pub(crate) fn end(&mut self, time: u64, found: &mut Tallies) {
        self.open(time, found);
    }
}
