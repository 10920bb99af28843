//! The window that one side announces, and what it costs the side that sends.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::kinds::Kind;
use crate::packet::{Scale, Segment};
use crate::tally::{Mark, Tallies, Tally};

/// Announcements that are remembered.
const REMEMBERED: usize = 16;

/// Announcements of one round trip that are told apart; less than are remembered, so that those of
/// a whole round trip are.
const PER_ROUND_TRIP: u64 = 12;

/// A window as it was announced.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    /// When it passed the place of the capture, in nanoseconds.
    time: u64,
    edge: SeqNum,
    size: u32,
    /// The largest size up to then, in bytes.
    largest: u32,
}

/// The window of one side, as its segments announced it.
///
/// Where a capture was taken, the sender's data meets windows that the sender did not know yet when
/// the data left. `lag` is the time in nanoseconds from there to the sender and back: data that
/// passes now left with the window that passed so long ago.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    /// The last announcements, the newest at `newest`, the others before it in a ring.
    announced: [Announced; REMEMBERED],
    newest: usize,
    count: usize,
    /// The largest size announced, in bytes.
    largest: u32,
    /// The same when the sender first waited for a window of that size.
    small: Option<u32>,
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
    /// When data can pass that the sender sent for a window with space for a segment.
    until: Option<u64>,
}

/// Data that fills or does not fill a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    pub(crate) mark: Mark,
    pub(crate) end: SeqNum,
    /// The payload of a full segment.
    pub(crate) mss: u32,
    /// See [`Window`].
    pub(crate) lag: u64,
    /// The sender has lost data to send again first: the window does not hold it.
    pub(crate) recovering: bool,
}

impl Window {
    /// The announcements that are remembered, the newest first.
    fn latest(&self) -> impl Iterator<Item = &Announced> {
        let back = |n: usize| &self.announced[(self.newest + REMEMBERED - n) % REMEMBERED];
        (0..self.count).map(back)
    }

    /// The right edge as last announced.
    pub(crate) fn edge(&self) -> Option<SeqNum> {
        self.latest().next().map(|last| last.edge)
    }

    /// The size as last announced, in bytes.
    pub(crate) fn size(&self) -> Option<u32> {
        self.latest().next().map(|last| last.size)
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
        (self.count, self.full) = (0, None);
    }

    /// A segment announces a window. Without its scale only its being closed counts. `mss` is that
    /// of the data that comes to this side.
    pub(crate) fn announce(
        &mut self,
        segment: &Segment,
        scale: Scale,
        (mss, lag): (u32, u64),
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
        if let (Some(before), Some(left)) = (self.edge(), self.size()) {
            let opened = if edge > before { edge.since(before) } else { 0 };
            if left < mss && size < mss && (1..mss).contains(&opened) {
                found.of(Kind::SillyWindow).add(mark, 1.0, 0);
            }
        }
        if self.small.is_some_and(|small| size > small.saturating_add(small / 8)) {
            // The buffer grows as the path needs it: it was small for a few round trips only.
            *found.of(Kind::SmallBuffer) = Tally::default();
            self.small = None;
        }
        self.largest = self.largest.max(size);
        let announced = Announced { time: segment.time, edge, size, largest: self.largest };
        self.remember(announced, lag);
        let enough = self.enough(mss);
        if let Some(full) = self.full.as_mut().filter(|full| full.until.is_none())
            && announced.takes(full.end, enough)
        {
            full.until = Some(segment.time.saturating_add(lag));
        }
    }

    /// One more announcement. Those that follow each other closely become one, with the time of
    /// the first: the sender is then thought to have known the window too early, and not too late.
    fn remember(&mut self, announced: Announced, lag: u64) {
        let since = |last: &Announced| announced.time.saturating_sub(last.time);
        if self.latest().next().is_some_and(|last| since(last) < lag / PER_ROUND_TRIP) {
            let last = &mut self.announced[self.newest];
            *last = Announced { time: last.time, ..announced };
            return;
        }
        self.newest = (self.newest + 1) % REMEMBERED;
        self.announced[self.newest] = announced;
        self.count = (self.count + 1).min(REMEMBERED);
    }

    /// The space below which a sender waits for more: a segment, or half of a window that never had
    /// two (RFC 9293, section 3.8.6.2.1).
    fn enough(&self, mss: u32) -> u32 {
        mss.min(self.largest / 2).max(1)
    }

    /// The peer sends data. If it waited for space in the window before, and data left as soon as
    /// there was some, the wait is told.
    pub(crate) fn filled(&mut self, data: Filling, options: &Options, found: &mut Tallies) {
        let Filling { mark, end, mss, lag, recovering } = data;
        if let Some(Full { since, why, until: Some(until), .. }) = self.full {
            let waited = until.min(mark.time).saturating_sub(since.time);
            let prompt = options.soon.saturating_add(lag / 2);
            let at_once = mark.time.saturating_sub(until) <= prompt;
            if at_once && waited >= options.soon && !recovering {
                found.of(why).add(since, 0.0, waited);
                if why == Kind::SmallBuffer {
                    self.small.get_or_insert(self.largest);
                }
            }
            self.full = None;
        }
        let left = mark.time.saturating_sub(lag);
        let Some(known) = self.latest().find(|each| each.time <= left).copied() else { return };
        let enough = self.enough(mss);
        if known.takes(end, enough) || known.size == 0 {
            return;
        }
        // What is on its way to the sender already; the newest come first.
        let newer = self.latest().take_while(|each| each.time > left);
        let opens = newer.filter(|each| each.takes(end, enough)).last();
        let until = opens.map(|each| each.time.saturating_add(lag));
        // A receiver that reads at once announces the same window again and again; where data
        // waits for its reader, the window is what is left.
        let why = if known.size < known.largest / 2 { Kind::FullWindow } else { Kind::SmallBuffer };
        let full = self.full.get_or_insert(Full { since: mark, end, why, until });
        (full.end, full.until) = (end, until);
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
        let full = found.get(Kind::FullWindow).nanos;
        let of_reader = full.saturating_add(found.get(Kind::ZeroWindow).nanos);
        if of_reader > found.get(Kind::SmallBuffer).nanos {
            // One cause: a slow reader fills any buffer.
            let waits = std::mem::take(found.of(Kind::SmallBuffer));
            found.of(Kind::FullWindow).join(&waits);
        }
    }
}

impl Announced {
    /// Whether so many bytes may follow data that ends at `end`.
    fn takes(&self, end: SeqNum, bytes: u32) -> bool {
        self.edge > end && self.edge.since(end) >= bytes
    }
}
