//! How a connection opened: which SYN was repeated, refused or left without an answer.

use plimsoll_wire::tcp::TcpFlags;

use crate::kinds::Kind;
use crate::packet::Segment;
use crate::reasons::Reason;
use crate::tally::Mark;

/// A capture that goes on for so many nanoseconds behind a single SYN shows that nobody answered
/// it: the first timeout of a SYN is one second, or three (RFC 6298, section 2.1 and appendix A).
const ANSWERED_BY: u64 = 3_000_000_000;

/// Segments of one kind: the first one, how many there were, and when the last one passed.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    first: Mark,
    last: u64,
    count: u64,
}

impl Sent {
    fn add(&mut self, segment: &Segment) {
        if self.count == 0 {
            self.first = Mark { number: segment.number, time: segment.time };
        }
        self.last = self.last.max(segment.time);
        self.count += 1;
    }

    /// Nanoseconds from the first to the last.
    fn nanos(&self) -> u64 {
        self.last.saturating_sub(self.first.time)
    }
}

/// What a handshake shows, and what it cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) reason: Reason,
    /// Whether it is about the packets of the client.
    pub(crate) of_client: bool,
    pub(crate) mark: Mark,
    /// SYNs that were sent, or segments that were sent again.
    pub(crate) packets: u64,
    pub(crate) nanos: u64,
}

/// Where a handshake was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Client,
    Server,
    /// Between them, or nothing tells.
    Between,
}

/// A handshake, as it passed where it was captured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handshake {
    syns: Sent,
    /// SYN-ACKs that passed before the client acknowledged one.
    syn_acks: Sent,
    /// All SYN-ACKs.
    answers: u64,
    /// SYNs that passed although a SYN-ACK had passed.
    syns_behind: u64,
    /// SYN-ACKs that the server sent although it must have had the client's ACK.
    ignoring: Sent,
    /// Data that the client sent again while the server had sent nothing behind its SYN-ACK.
    untaken: Sent,
    /// When the client first sent anything but a SYN.
    open: Option<u64>,
    /// The time stamps of the first and of the last SYN, and which of them the first SYN-ACK
    /// echoes (RFC 7323, section 3.2).
    stamps: Option<(u32, u32)>,
    echo: Option<u32>,
    /// Both ends sent a SYN.
    crossed: bool,
    /// The server's reset instead of a SYN-ACK.
    refused: Option<Mark>,
    /// An ICMP error that the SYN cannot be delivered.
    unreachable: Option<(Mark, Reason)>,
    /// The client gave up with a reset.
    aborted: bool,
}

impl Handshake {
    /// A SYN without ACK passes. The `other` end has sent one, too.
    pub(crate) fn syn(&mut self, segment: &Segment, other: bool) {
        self.crossed |= other;
        if self.open.is_some() {
            return;
        }
        self.syns_behind += u64::from(self.answers > 0);
        self.syns.add(segment);
        if let Some(stamp) = segment.timestamps {
            let first = self.stamps.map_or(stamp.val, |(first, _)| first);
            self.stamps = Some((first, stamp.val));
        }
    }

    /// A SYN-ACK passes, of a server that packets take so long to reach and to come back from, in
    /// nanoseconds.
    pub(crate) fn syn_ack(&mut self, segment: &Segment, reach: Option<u64>) {
        if self.answers == 0 {
            self.echo = segment.timestamps.map(|stamps| stamps.ecr);
        }
        self.answers += 1;
        let Some(open) = self.open else { return self.syn_acks.add(segment) };
        // Each SYN may have its answer, and one that passes sooner than this left before the ACK
        // can have come to the server.
        let reach =
            reach.unwrap_or_else(|| self.syn_acks.first.time.saturating_sub(self.syns.first.time));
        if self.answers > self.syns.count && segment.time.saturating_sub(open) >= reach {
            self.ignoring.add(segment);
        }
    }

    /// The client sends anything but a SYN or a reset. Whether it had not done so before.
    pub(crate) fn opened(&mut self, time: u64) -> bool {
        let first = self.open.is_none();
        self.open.get_or_insert(time);
        first
    }

    /// The client sends data again, and the server has sent nothing behind its SYN-ACK.
    pub(crate) fn untaken(&mut self, segment: &Segment) {
        self.untaken.add(segment);
    }

    /// The first data that the client sent again without a word of the server, if there was more
    /// than that.
    pub(crate) fn first_untaken(&self) -> Option<Mark> {
        (self.untaken.count > 1).then_some(self.untaken.first)
    }

    /// An ICMP error about a segment of the client passes.
    pub(crate) fn unreachable(&mut self, mark: Mark, reason: Reason) {
        if self.open.is_none() {
            self.unreachable.get_or_insert((mark, reason));
        }
    }

    /// A reset passes. Whether it belongs to the handshake, and not to a connection.
    pub(crate) fn reset(&mut self, segment: &Segment, of_client: bool) -> bool {
        if self.syns.count == 0 || self.open.is_some() {
            return false;
        }
        if of_client {
            self.aborted = true;
            return self.answers == 0;
        }
        if self.answers > 0 {
            return false;
        }
        // A client takes only a reset that acknowledges its SYN (RFC 9293, section 3.10.7.3).
        if segment.flags.intersects(TcpFlags::ACK) {
            self.refused = Some(Mark { number: segment.number, time: segment.time });
        }
        true
    }

    /// When the SYN left that the SYN-ACK which passes now answers. Behind a repeated SYN only its
    /// echo tells which one that is, and only if it is the last.
    pub(crate) fn answered_at(&self) -> Option<u64> {
        let of_earlier = self.stamps.zip(self.echo).is_some_and(|((_, last), echo)| last != echo);
        (self.syns.count > 0 && !of_earlier).then_some(self.syns.last)
    }

    /// Whether the server answered the first SYN, by the echo of its time stamp.
    fn first_arrived(&self) -> bool {
        self.stamps
            .zip(self.echo)
            .is_some_and(|((first, last), echo)| first == echo && first != last)
    }

    /// What it shows, in a capture that goes on until `end`.
    pub(crate) fn verdicts(&self, place: Place, end: u64) -> impl Iterator<Item = Verdict> {
        let whole = !self.crossed;
        let of_syn = if whole { self.of_syn(place, end) } else { None };
        let of_answer = if whole { self.of_answer(place) } else { None };
        of_syn.into_iter().chain(of_answer)
    }

    fn of_syn(&self, place: Place, end: u64) -> Option<Verdict> {
        let Sent { first: mark, count: packets, .. } = self.syns;
        let mut verdict = Verdict {
            kind: Kind::RepeatedSyn,
            reason: Reason::SynLost,
            of_client: true,
            mark,
            packets,
            nanos: self.syns.nanos(),
        };
        if let Some(refused) = self.refused {
            (verdict.kind, verdict.reason) = (Kind::Refused, Reason::PortClosed);
            verdict.of_client = false;
            verdict.nanos = refused.time.saturating_sub(mark.time);
            return Some(verdict);
        }
        if self.answers == 0 && self.open.is_none() && !self.aborted {
            if let Some((error, reason)) = self.unreachable {
                (verdict.kind, verdict.reason) = (Kind::Refused, reason);
                verdict.of_client = false;
                verdict.nanos = self.syns.last.max(error.time).saturating_sub(mark.time);
                return Some(verdict);
            }
            verdict.kind = Kind::NoAnswer;
            let at_server = place == Place::Server;
            verdict.reason = if at_server { Reason::SynIgnored } else { Reason::NobodyThere };
            let long = end.saturating_sub(self.syns.last) >= ANSWERED_BY;
            return (packets > 1 || packets == 1 && long).then_some(verdict);
        }
        if packets < 2 {
            return None;
        }
        if self.syns_behind > 0 {
            verdict.reason = Reason::AnswerLost;
        } else if self.first_arrived() {
            // Each SYN has its answer: the round trip is longer than the client's timeout.
            if self.answers >= packets {
                return None;
            }
            verdict.reason = Reason::AnswerLost;
        } else if place == Place::Server {
            verdict.reason = Reason::SynIgnored;
        }
        Some(verdict)
    }

    fn of_answer(&self, place: Place) -> Option<Verdict> {
        let kind = Kind::LateHandshake;
        let open = self.open.unwrap_or(0);
        if place == Place::Server && self.first_untaken().is_some() {
            return Some(Verdict {
                kind,
                reason: Reason::AckIgnored,
                of_client: false,
                mark: self.untaken.first,
                packets: self.untaken.count,
                nanos: self.untaken.last.max(self.ignoring.last).saturating_sub(open),
            });
        }
        if self.ignoring.count > 0 {
            let at_server = place == Place::Server;
            let reason = if at_server { Reason::AckIgnored } else { Reason::AckLostOrIgnored };
            return Some(Verdict {
                kind,
                reason,
                of_client: false,
                mark: self.ignoring.first,
                packets: self.ignoring.count,
                nanos: self.ignoring.last.saturating_sub(open),
            });
        }
        let Sent { first: mark, count: packets, .. } = self.syn_acks;
        // The client's own SYNs tell the rest.
        (packets > 1 && self.syns.count < 2).then(|| Verdict {
            kind,
            reason: Reason::SynAckLost,
            of_client: false,
            mark,
            packets: packets - 1,
            nanos: self.syn_acks.nanos(),
        })
    }
}
