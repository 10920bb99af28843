//! What is kept of one direction of a flow. Constant room, whatever goes by.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::flow::LONGEST_RTT;
use crate::kinds::Kind;
use crate::packet::Segment;
use crate::recent::Recent;
use crate::report::MssSource;
use crate::sizes::{Full, PathSize, Sizes, WriteEnds};
use crate::tally::{Mark, Tallies, Tally};

/// The payload of a full segment, as long as nothing is known about it: Ethernet, timestamps.
const USUAL_MSS: u32 = 1448;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: u32 = 12;

/// The longest payload that fits a super-segment with any headers.
const LONGEST: u32 = 65_535 - 120;

/// A message longer than this is bulk data.
const LONGEST_MESSAGE: u64 = 256 * 1024;

/// Data that lies so many bytes behind what was sent is not sent again: hardly any window is that
/// large.
const FAR: u32 = 1 << 26;

/// Segments one behind the other that tell where a flow goes on.
const ENOUGH_ELSEWHERE: u64 = 4;

/// Segments of the initial congestion window (RFC 6928).
const INITIAL_WINDOW: u32 = 10;

/// Nanoseconds that packets take from where they were captured to an end and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// To the end that data goes to.
    pub(crate) beyond: u64,
    /// To the end that sends it.
    pub(crate) behind: u64,
    /// It was captured where it arrives: the host that captured may have merged packets.
    pub(crate) arrives: bool,
}

/// Data that continues nothing, but itself.
#[derive(Clone, Copy, Debug)]
struct Elsewhere {
    end: SeqNum,
    segments: u64,
}

/// The last data that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) mark: Mark,
    pub(crate) len: u32,
    pub(crate) end: SeqNum,
    /// It does not end with a full segment.
    pub(crate) fractional: bool,
    /// It began its message.
    pub(crate) first: bool,
}

/// A segment that is not full and not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) mark: Mark,
    pub(crate) end: SeqNum,
    pub(crate) first: bool,
}

/// A run of small packets.
#[derive(Clone, Copy, Debug)]
struct Train {
    from: Mark,
    packets: u64,
    bytes: u64,
}

/// Data of one side between data of the other.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: Mark,
    packets: u64,
    bytes: u64,
    /// The other side spoke before.
    answers: bool,
}

/// One direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Direction {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) data_packets: u64,
    pub(crate) wire_segments: u64,
    pub(crate) super_segments: u64,
    pub(crate) retransmissions: u64,
    pub(crate) duplicates: u64,
    /// ACKs without data that acknowledge something new, and how much they do.
    pub(crate) pure_acks: u64,
    pub(crate) acked: u64,
    /// ACKs that deferring would leave of them.
    pub(crate) deferred: u64,
    /// Packets that found the window of the other side closed.
    pub(crate) probes: u64,
    pub(crate) syn_mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) syn: Option<SeqNum>,
    pub(crate) timestamps: bool,
    /// SND.NXT, once something has been seen.
    pub(crate) next: Option<SeqNum>,
    /// SND.UNA, once the other side has acknowledged something.
    pub(crate) una: Option<SeqNum>,
    pub(crate) largest: u32,
    pub(crate) last: Option<Last>,
    pub(crate) small: Option<Small>,
    /// A small segment whose ACK has come, and when.
    pub(crate) released: Option<(Small, u64)>,
    /// The shortest time in nanoseconds that an ACK took: a bound of the round trip, where no
    /// handshake was seen.
    pub(crate) least_wait: Option<u64>,
    /// The last packet, if it was an ACK without data.
    pub(crate) last_ack: Option<(Mark, SeqNum)>,
    /// When the current group of ACKs began, and what it had acknowledged.
    pub(crate) ack_group: Option<(u64, SeqNum)>,
    /// The other side has sent something since our last data; it has sent data.
    pub(crate) heard: bool,
    pub(crate) turn: bool,
    /// The right edge and size of the window last announced.
    pub(crate) window: Option<(SeqNum, u32)>,
    /// Since when the window is closed.
    pub(crate) closed: Option<Mark>,
    recent: Recent,
    pub(crate) write_ends: WriteEnds,
    pub(crate) found: Tallies,
    /// Stalls in which the small segment began its message.
    pub(crate) stalls_behind_first: u64,
    sizes: Sizes,
    path_size: PathSize,
    train: Option<Train>,
    message: Option<Message>,
    last_fraction: Option<SeqNum>,
    elsewhere: Option<Elsewhere>,
    /// Data packets that whoever captured had received, less those that it had sent, as far as
    /// the capture tells.
    pub(crate) arrivals: i64,
}

impl Direction {
    /// The payload of a full segment that this side sends.
    pub(crate) fn full(&self, peer_mss: Option<u16>) -> Full {
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 };
        let said = match (self.syn_mss, peer_mss) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        // Nobody may announce less than this and mean it.
        let said = said.map(|said| u32::from(said).max(64 + TIMESTAMPS_LEN) - options);
        let (size, source) = match (said, self.path_size.get(), self.sizes.full()) {
            (Some(said), Some(size), _) if size < said => (size, MssSource::Path),
            (Some(said), ..) => (said, MssSource::Syn),
            (None, _, Some(size)) => (size, MssSource::Sizes),
            (None, _, None) => (USUAL_MSS, MssSource::Assumed),
        };
        Full { size, said, source }
    }

    /// Takes `last` as a size that the path may have, as more data is right behind it. What was
    /// found by a larger size is taken back once the path tells a smaller one.
    fn learn(&mut self, last: &mut Last, full: &mut Full) {
        let Some(said) = full.said else { return };
        if !self.path_size.add(last.len, said) {
            return;
        }
        if let Some(size) = self.path_size.get() {
            (full.size, full.source) = (size, MssSource::Path);
        }
        last.fractional = full.is_partial(last.len);
        (self.train, self.last_fraction, self.write_ends) = (None, None, WriteEnds::default());
        for kind in [Kind::Fractional, Kind::TailApart, Kind::SmallWrites] {
            *self.found.of(kind) = Tally::default();
        }
    }

    /// Whether the packet was captured before, on another interface.
    pub(crate) fn is_copy(&mut self, segment: &Segment, options: &Options) -> bool {
        let is_copy = self.recent.has(segment, options);
        self.duplicates += u64::from(is_copy);
        is_copy
    }

    /// Data leaves that was not sent before.
    pub(crate) fn data(
        &mut self,
        segment: &Segment,
        mut full: Full,
        paths: Paths,
        options: &Options,
    ) {
        let mss = full.size;
        let mark = Mark { number: segment.number, time: segment.time };
        let (len, end) = (segment.len, segment.seq + segment.len);
        if segment.seq != self.next.unwrap_or(segment.seq) {
            // Something is missing in the capture: what came before says nothing about this.
            self.forget(mss);
        }
        let first = self.turn || self.last.is_none();
        if first {
            self.end_train(mss);
            self.end_message(mss, self.turn, paths.arrives);
            self.message = Some(Message { from: mark, packets: 0, bytes: 0, answers: self.turn });
            self.released = None;
            self.last_fraction = None;
        }
        if let Some(mut last) = self.last.filter(|_| !first) {
            if segment.time.saturating_sub(last.mark.time) <= options.soon {
                self.learn(&mut last, &mut full);
            }
            self.judge(&last, segment, full, paths, options);
        }
        let fractional = !segment.sack && full.is_partial(len);
        if let Some(message) = &mut self.message {
            message.packets += 1;
            message.bytes += u64::from(len);
        }
        if fractional {
            if let Some(before) = self.last_fraction.replace(end) {
                self.write_ends.distance(end.since(before));
            }
            self.small = Some(Small { mark, end, first });
        }
        self.count(len, full);
        self.last = Some(Last { mark, len, end, fractional, first });
        (self.heard, self.turn) = (false, false);
    }

    fn count(&mut self, len: u32, full: Full) {
        let segments = full.segments(len);
        self.data_packets += 1;
        self.wire_segments += u64::from(segments);
        self.super_segments += u64::from(segments > 1);
        self.largest = self.largest.max(len);
        self.sizes.add(len);
    }

    /// What `segment` says about `last`, which was sent before it, without data of the other side
    /// between them.
    fn judge(
        &mut self,
        last: &Last,
        segment: &Segment,
        full: Full,
        paths: Paths,
        options: &Options,
    ) {
        let (len, mss) = (segment.len, full.size);
        let gap = segment.time.saturating_sub(last.mark.time);
        let soon = gap <= options.soon;
        let is_tail = full.is_less(len) && !segment.sack;
        let mark = Mark { number: segment.number, time: segment.time };
        if let Some((small, acked)) = self.released.take()
            && !len.is_multiple_of(mss)
        {
            self.stall(&small, acked, mark, paths, options);
        }
        let whole = full.is_known() && last.len >= mss && !last.fractional;
        let both = last.len.saturating_add(len);
        let fits =
            both <= LONGEST && (last.first || both <= self.largest) && self.super_segments > 0;
        if whole && is_tail && soon && !self.heard && fits && !paths.arrives {
            self.found.of(Kind::TailApart).add(mark, 1.0, 0);
        }
        let in_flight = self.una.is_none_or(|una| last.end > una);
        let merges = soon && (in_flight || gap <= options.soon / 5);
        if last.fractional && last.len < mss && is_tail && merges {
            let begin = Train { from: last.mark, packets: 1, bytes: u64::from(last.len) };
            let train = self.train.get_or_insert(begin);
            train.packets += 1;
            train.bytes += u64::from(len);
            return;
        }
        self.end_train(mss);
        // Bulk: at least one of the two is more than a small message.
        if last.fractional && soon && full.is_known() && (len >= mss || last.len > mss) {
            let missing = mss - last.len % mss;
            let saved = f64::from(missing.min(len)) / f64::from(mss);
            self.found.of(Kind::Fractional).add(last.mark, saved, 0);
        }
    }

    /// Data left at `mark` behind the ACK of a small segment: did it wait for that?
    ///
    /// The ACK came from the one end, and the data from the other, each as soon as it could, but
    /// for the time by which the ACK was delayed.
    fn stall(&mut self, small: &Small, acked: u64, mark: Mark, paths: Paths, options: &Options) {
        let waited = acked.saturating_sub(small.mark.time);
        let gap = mark.time.saturating_sub(acked);
        let behind = paths.behind.saturating_add(paths.behind / 2);
        let prompt = gap <= options.soon.saturating_add(behind);
        let delay = waited.saturating_sub(paths.beyond);
        if prompt && (options.stall_least..=options.stall_most).contains(&delay) {
            let lost = mark.time.saturating_sub(small.mark.time);
            self.found.of(Kind::Stall).add(mark, 0.0, lost);
            self.stalls_behind_first += u64::from(small.first);
        }
    }

    fn end_train(&mut self, mss: u32) {
        let Some(train) = self.train.take() else { return };
        let needed = train.bytes.div_ceil(u64::from(mss));
        let saved = train.packets.saturating_sub(needed);
        if saved > 0 {
            self.found.of(Kind::SmallWrites).add(train.from, saved as f64, 0);
        }
    }

    /// The message ends; `answered` by data of the other side. If it was captured where it
    /// `arrives`, super-segments say how packets were merged, not how they were sent.
    fn end_message(&mut self, mss: u32, answered: bool, arrives: bool) {
        let Some(message) = self.message.take() else { return };
        let unit = if self.super_segments > 0 {
            self.largest.max((INITIAL_WINDOW * mss).min(LONGEST))
        } else {
            mss
        };
        let needed = message.bytes.div_ceil(u64::from(unit));
        let saved = message.packets.saturating_sub(needed);
        let whole = answered && message.answers && message.bytes <= LONGEST_MESSAGE;
        let merged = arrives && self.super_segments > 0;
        if saved > 0 && whole && !merged {
            self.found.of(Kind::WakeUps).add(message.from, saved as f64, 0);
        }
    }

    /// Whether data that seems to be old goes on somewhere else: the segment that led here was
    /// none of this flow, or another connection has the same ports. What is known of the sequence
    /// numbers is forgotten then.
    pub(crate) fn goes_on_elsewhere(&mut self, segment: &Segment, mss: u32) -> bool {
        let end = segment.seq + segment.len;
        let far = self.next.is_some_and(|next| next > end && next.since(end) > FAR);
        if !far {
            self.elsewhere = None;
            return false;
        }
        let before = self.elsewhere.filter(|before| before.end == segment.seq);
        let segments = before.map_or(0, |before| before.segments) + 1;
        if segments < ENOUGH_ELSEWHERE {
            self.elsewhere = Some(Elsewhere { end, segments });
            return false;
        }
        self.elsewhere = None;
        self.retransmissions = self.retransmissions.saturating_sub(segments - 1);
        self.forget(mss);
        (self.next, self.una) = (Some(segment.seq), None);
        true
    }

    fn forget(&mut self, mss: u32) {
        self.end_train(mss);
        self.message = None;
        (self.last, self.small, self.released) = (None, None, None);
        (self.last_fraction, self.last_ack) = (None, None);
    }

    /// The other side acknowledges up to `ack`, without data if `pure`.
    pub(crate) fn acknowledged(&mut self, ack: SeqNum, pure: bool, time: u64) -> u32 {
        let before = self.una;
        let new = match before {
            Some(una) if ack > una => ack.since(una),
            Some(_) => return 0,
            None => 0,
        };
        self.una = Some(ack);
        if let Some(last) = self.last.filter(|last| last.end <= ack) {
            let waited = time.saturating_sub(last.mark.time).min(LONGEST_RTT);
            self.least_wait = Some(self.least_wait.map_or(waited, |least| least.min(waited)));
        }
        if let Some(small) = self.small.filter(|small| small.end <= ack) {
            self.small = None;
            self.released = pure.then_some((small, time));
        }
        new
    }

    /// This side sends an ACK without data that acknowledges `new` bytes.
    pub(crate) fn pure_ack(&mut self, segment: &Segment, new: u32, options: &Options) {
        if new == 0 {
            self.last_ack = None;
            return;
        }
        self.pure_acks += 1;
        self.acked += u64::from(new);
        let quarter = self.window.map_or(LONGEST, |(_, size)| (size / 4).max(LONGEST));
        let joins = self.ack_group.is_some_and(|(time, ack)| {
            segment.time.saturating_sub(time) <= options.batch && segment.ack.since(ack) <= quarter
        });
        if !joins {
            self.ack_group = Some((segment.time, segment.ack));
            self.deferred += 1;
        }
        let mark = Mark { number: segment.number, time: segment.time };
        self.last_ack = Some((mark, segment.ack));
    }

    /// This side sends data: could it have carried the ACK before it?
    pub(crate) fn carries(&mut self, segment: &Segment, options: &Options) {
        if let Some((mark, ack)) = self.last_ack.take()
            && ack == segment.ack
            && segment.time.saturating_sub(mark.time) <= options.soon
        {
            self.found.of(Kind::AckAlone).add(mark, 1.0, 0);
        }
    }

    /// This side announces a window. Without its scale only its being closed counts. `mss` is that
    /// of the data that comes to it.
    pub(crate) fn announces(&mut self, segment: &Segment, scale: Option<u8>, mss: u32) {
        if segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST) {
            return;
        }
        let size = u32::from(segment.window) << scale.unwrap_or(0);
        let edge = segment.ack + size;
        let mark = Mark { number: segment.number, time: segment.time };
        if size == 0 {
            self.closed.get_or_insert(mark);
        } else {
            self.opens(segment.time);
        }
        if let Some((before, room)) = self.window.filter(|_| scale.is_some()) {
            let opened = if edge > before { edge.since(before) } else { 0 };
            if room < mss && size < mss && (1..mss).contains(&opened) {
                self.found.of(Kind::SillyWindow).add(mark, 1.0, 0);
            }
        }
        self.window = Some((edge, size));
    }

    fn opens(&mut self, time: u64) {
        if let Some(since) = self.closed.take() {
            let nanos = time.saturating_sub(since.time);
            self.found.of(Kind::ZeroWindow).add(since, 0.0, nanos);
        }
    }

    /// The capture ends at `time`, or the flow is given up.
    pub(crate) fn end(&mut self, mss: u32, time: u64) {
        self.end_train(mss);
        self.end_message(mss, false, false);
        self.opens(time);
        // Pieces inside bulk data come from small writes, or from the tails of large ones.
        if self.write_ends.are_small(mss) {
            let pieces = std::mem::take(self.found.of(Kind::Fractional));
            self.found.of(Kind::SmallWrites).join(&pieces);
        }
    }
}
