//! What is kept of one direction of a flow. Constant size, whatever goes by.

use std::net::IpAddr;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::Options;
use crate::flow::LONGEST_RTT;
use crate::kinds::{ALL, Kind};
use crate::loss::Losses;
use crate::nagle::Waits;
use crate::packet::{Scale, Segment};
use crate::reasons::Reason;
use crate::recent::Recent;
use crate::report::MssSource;
use crate::sizes::{Full, PathSize, Sizes, WriteEnds};
use crate::tally::{Mark, Tallies, Tally};
use crate::window::Window;

/// The payload of a full segment, as long as nothing is known about it: Ethernet, timestamps.
const USUAL_MSS: u32 = 1448;

/// Bytes of options that a segment has at most.
const MOST_OPTIONS: u32 = 40;

/// An MSS below this is not believed (RFC 9293, section 3.7.1, knows 536 for lack of any).
const LEAST_MSS: u32 = 64 + MOST_OPTIONS;

/// The longest payload that fits a super-segment with any headers.
const LONGEST: u32 = 65_535 - 120;

/// A message longer than this is bulk data.
const LONGEST_MESSAGE: u64 = 64 * 1024;

/// Data that lies so many bytes behind what was sent is not sent again: hardly any window is that
/// large.
pub(crate) const FAR: u32 = 1 << 26;

/// Segments one behind the other that tell where a flow goes on.
const ENOUGH_ELSEWHERE: u64 = 4;

/// Segments of the initial congestion window (RFC 6928).
const INITIAL_WINDOW: u32 = 10;

/// Nanoseconds that packets take from where they were captured to an end and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// To the end that data goes to, at most.
    pub(crate) beyond: u64,
    /// To the end that sends it, at most.
    pub(crate) behind: u64,
    /// The same, at least: 0 without a handshake, for an ACK may have waited.
    pub(crate) least_behind: u64,
}

/// What the other side has said when data leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The right edge of its window.
    pub(crate) edge: Option<SeqNum>,
    /// Data packets of its last message: pieces of an answer to so many requests may be answers of
    /// their own.
    pub(crate) requests: u64,
}

/// An ICMP error that a packet is too big for a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooBig {
    /// Who reported it.
    pub(crate) router: IpAddr,
    /// Bytes of a packet that the link takes, or 0 if that was not said.
    pub(crate) mtu: u32,
    /// Packets beyond that which were sent again all the same.
    pub(crate) ignored: u64,
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
    /// It ends what was queued.
    pub(crate) pushed: bool,
    /// SEG.ACK.
    pub(crate) ack: SeqNum,
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
    /// Segments that are not full, with more of the message right behind.
    pieces: u64,
    /// The other side spoke before, in so many data packets.
    answers: Option<u64>,
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
    pub(crate) scale: Scale,
    pub(crate) syn: Option<SeqNum>,
    /// Bytes of options that every segment has, as far as it was seen.
    pub(crate) options_len: u32,
    /// SND.NXT, once something has been seen.
    pub(crate) next: Option<SeqNum>,
    /// SND.UNA, once the other side has acknowledged something.
    pub(crate) una: Option<SeqNum>,
    pub(crate) largest: u32,
    pub(crate) last: Option<Last>,
    pub(crate) nagle: Waits,
    pub(crate) losses: Losses,
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
    pub(crate) window: Window,
    recent: Recent,
    pub(crate) write_ends: WriteEnds,
    pub(crate) found: Tallies,
    sizes: Sizes,
    path_size: PathSize,
    train: Option<Train>,
    message: Option<Message>,
    last_fraction: Option<SeqNum>,
    elsewhere: Option<Elsewhere>,
    /// Packets that the host that captured received, less those that it sent, as far as the
    /// capture tells.
    pub(crate) arrivals: i64,
    /// Some packet of this side was captured by the Plimsoll that sent it.
    pub(crate) by_plimsoll: bool,
    /// The first ICMP error that a packet of this side was too big.
    pub(crate) too_big: Option<TooBig>,
    /// Why the last ICMP error said that a packet of this side was not deliverable.
    pub(crate) unreachable: Option<Reason>,
    /// When its FIN passed.
    pub(crate) fin: Option<u64>,
    /// The TTL or hop limit of its last packet that was no reset.
    pub(crate) ttl: Option<u8>,
}

impl Direction {
    /// The payload of a full segment of this side that has so many bytes of options: what the other
    /// side takes (RFC 9293, section 3.7.1; RFC 6691), unless the path takes less.
    pub(crate) fn full(&self, peer_mss: Option<u16>, options_len: u32) -> Full {
        let said = match (self.syn_mss, peer_mss) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        // Nobody may announce less than this and mean it.
        let said = said.map(|said| u32::from(said).max(LEAST_MSS) - options_len.min(MOST_OPTIONS));
        let (size, source) = match (said, self.path_size.get()) {
            (Some(said), Some(size)) if size < said => (size, MssSource::Path),
            (Some(said), _) => (said, MssSource::Syn),
            (None, _) => match self.sizes.full() {
                Some(size) => (size, MssSource::Sizes),
                None => (USUAL_MSS, MssSource::Assumed),
            },
        };
        Full { size, said, source }
    }

    /// Takes `last` as a size that the path may have, as more data is right behind it. What was
    /// found by a larger size is taken back once the path tells a smaller one.
    fn learn(&mut self, last: &mut Last, full: &mut Full) {
        let Some(said) = full.said else { return };
        if !self.path_size.add(last.len, last.pushed, said) {
            return;
        }
        if let Some(size) = self.path_size.get() {
            (full.size, full.source) = (size, MssSource::Path);
        }
        last.fractional = full.is_partial(last.len);
        (self.train, self.last_fraction, self.write_ends) = (None, None, WriteEnds::default());
        if let Some(message) = &mut self.message {
            message.pieces = 0;
        }
        self.take_cutting_back();
    }

    /// What was found of how data was cut is not so.
    pub(crate) fn take_cutting_back(&mut self) {
        for kind in ALL.into_iter().filter(|kind| kind.is_of_cutting()) {
            *self.found.of(kind) = Tally::default();
        }
    }

    /// Whether the size of segments that the path takes is known.
    pub(crate) fn knows_path(&self) -> bool {
        self.path_size.get().is_some()
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
        peer: Peer,
        options: &Options,
    ) {
        let mark = Mark { number: segment.number, time: segment.time };
        let (len, end) = (segment.len, segment.seq + segment.len);
        let next = self.next.unwrap_or(segment.seq);
        if segment.seq != next {
            // Something is missing in the capture: what came before says nothing about this.
            self.forget(full.size);
            if segment.seq > next && segment.seq.since(next) < FAR {
                self.losses.hole(segment.seq.since(next), segment.time);
            }
        }
        let size = len.min(full.size);
        self.losses.fits.sent(segment.seq, len, size);
        self.losses.sent(segment.time, self.una.is_some_and(|una| una >= segment.seq));
        // A higher ACK is for data of the other side, be it in the capture or not.
        let asked = self.last.filter(|last| segment.ack > last.ack);
        let asked = asked.map_or(0, |last| segment.ack.since(last.ack));
        let first = self.turn || self.last.is_none() || asked > 0;
        if first {
            let requests = peer.requests.max(u64::from(asked.div_ceil(full.size)));
            self.begin_message(mark, full.size, requests);
        }
        if let Some(mut last) = self.last.filter(|_| !first) {
            if segment.time.saturating_sub(last.mark.time) <= options.soon {
                self.learn(&mut last, &mut full);
            }
            self.follows(&last, segment, full, paths, options);
        }
        // What fills the window was cut to fit, and what carries SACK blocks has a size of its own.
        let cut = peer.edge == Some(end) || segment.sack && full.source != MssSource::Syn;
        let fractional = !cut && full.is_partial(len);
        if let Some(message) = &mut self.message {
            message.packets += 1;
            message.bytes += u64::from(len);
        }
        if fractional {
            if let Some(before) = self.last_fraction.replace(end) {
                self.write_ends.distance(end.since(before), full.size);
            }
            let ends = segment.flags.intersects(TcpFlags::FIN);
            self.nagle.small(mark, end, first, full.is_less(len) && !ends);
        }
        self.count(len, full);
        let pushed = segment.flags.intersects(TcpFlags::PSH);
        let ack = segment.ack;
        self.last = Some(Last { mark, len, end, fractional, first, pushed, ack });
        (self.heard, self.turn) = (false, false);
    }

    /// The first data of this side, or the first behind data of the other, which may hold so many
    /// requests.
    fn begin_message(&mut self, mark: Mark, mss: u32, requests: u64) {
        self.end_train(mss);
        self.end_message(mss, self.turn);
        self.nagle.message(self.turn, &mut self.found);
        let answers = (self.turn || requests > 0).then_some(requests);
        self.message = Some(Message { from: mark, packets: 0, bytes: 0, pieces: 0, answers });
        self.last_fraction = None;
    }

    /// Bytes that the capture lacks: holes that nothing filled, and what was acknowledged without
    /// having been seen.
    pub(crate) fn missing(&self) -> u64 {
        let unseen = match (self.next, self.una) {
            (Some(next), Some(una)) if una > next && una.since(next) < FAR => una.since(next),
            _ => 0,
        };
        // One more for a FIN that was not captured.
        self.losses.missing() + u64::from(unseen.saturating_sub(1))
    }

    /// Data packets of the current message.
    pub(crate) fn spoken(&self) -> u64 {
        self.message.map_or(0, |message| message.packets)
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
    fn follows(
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
        if full.is_less(len) {
            self.nagle.data(mark, paths, options, &mut self.found);
        } else {
            self.nagle.passed();
        }
        let whole = full.is_known() && last.len >= mss && !last.fractional;
        let both = last.len.saturating_add(len);
        let fits =
            both <= LONGEST && (last.first || both <= self.largest) && self.super_segments > 0;
        let apart = whole && is_tail && soon && !self.heard && fits;
        if apart {
            self.found.of(Kind::TailApart).add(mark, 1.0, 0);
        }
        if let Some(message) = self.message.as_mut().filter(|_| soon && last.fractional || apart) {
            message.pieces += 1;
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

    fn end_train(&mut self, mss: u32) {
        let Some(train) = self.train.take() else { return };
        // A part of a segment counts as such: what follows fills it up.
        let needed = (train.bytes as f64 / f64::from(mss)).max(self.least_packets() as f64);
        let saved = train.packets as f64 - needed;
        if saved > 0.0 {
            self.found.of(Kind::SmallWrites).add(train.from, saved, 0);
        }
    }

    /// The packets that the current message may well take: one for each request.
    fn least_packets(&self) -> u64 {
        self.message.and_then(|message| message.answers).unwrap_or(1).max(1)
    }

    /// The message ends; `answered` by data of the other side.
    fn end_message(&mut self, mss: u32, answered: bool) {
        let least = self.least_packets();
        let Some(message) = self.message.take() else { return };
        let unit = if self.super_segments > 0 {
            self.largest.max((INITIAL_WINDOW * mss).min(LONGEST))
        } else {
            mss
        };
        let needed = message.bytes.div_ceil(u64::from(unit)).max(least);
        let saved = message.packets.saturating_sub(needed).min(message.pieces);
        let whole = answered && message.answers.is_some() && message.bytes <= LONGEST_MESSAGE;
        if saved > 0 && whole {
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
        (self.message, self.last) = (None, None);
        (self.last_fraction, self.last_ack) = (None, None);
        self.nagle.forget();
        self.losses.forget();
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
        self.losses.acknowledged(ack, time, &mut self.found);
        if let Some(last) = self.last.filter(|last| last.end <= ack) {
            let waited = time.saturating_sub(last.mark.time).min(LONGEST_RTT);
            self.least_wait = Some(self.least_wait.map_or(waited, |least| least.min(waited)));
        }
        self.nagle.acknowledged(ack, pure, time);
        new
    }

    /// This side sends an ACK without data that acknowledges `new` bytes, of which a full segment
    /// has `mss`.
    pub(crate) fn pure_ack(&mut self, segment: &Segment, new: u32, mss: u32, options: &Options) {
        if new == 0 {
            self.last_ack = None;
            return;
        }
        self.pure_acks += 1;
        self.acked += u64::from(new);
        let quarter = self.window.size().map_or(LONGEST, |size| (size / 4).max(LONGEST));
        let joins = self.ack_group.is_some_and(|(time, ack)| {
            segment.time.saturating_sub(time) <= options.batch && segment.ack.since(ack) <= quarter
        });
        if !joins {
            self.ack_group = Some((segment.time, segment.ack));
            self.deferred += 1;
        }
        let mark = Mark { number: segment.number, time: segment.time };
        // Every second full segment is owed an ACK (RFC 9293, section 3.8.6.3); less may wait.
        self.last_ack = (new < 2 * mss).then_some((mark, segment.ack));
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

    /// The capture ends at `time`, or the flow is given up.
    pub(crate) fn end(&mut self, mss: u32, time: u64, options: &Options) {
        self.end_train(mss);
        self.end_message(mss, false);
        self.nagle.end(options, &mut self.found);
        self.losses.end(time, &mut self.found);
        self.window.end(time, &mut self.found);
        // Pieces inside bulk data come from small writes, or from the tails of large ones.
        if self.write_ends.are_small(mss) {
            let pieces = std::mem::take(self.found.of(Kind::Fractional));
            self.found.of(Kind::SmallWrites).join(&pieces);
        }
    }
}
