//! One flow: two directions, and what passes between them.

use std::net::{IpAddr, SocketAddr};

use plimsoll_wire::tcp::{self, TcpFlags};
use plimsoll_wire::{ipv4, ipv6};

use crate::Options;
use crate::direction::{Direction, FAR, Paths, Peer, TooBig};
use crate::ending::Reset;
use crate::fits::TooLarge;
use crate::handshake::{Handshake, Place, Verdict};
use crate::icmp::{Notice, Says};
use crate::kinds::Kind;
use crate::packet::{Scale, Segment};
use crate::reasons::Reason;
use crate::sizes::Full;
use crate::tally::{Mark, Tally};
use crate::window::Filling;

/// A round trip beyond 10 s is not believed, in nanoseconds.
pub(crate) const LONGEST_RTT: u64 = 10_000_000_000;

/// An end that answers within this, in nanoseconds, may be the host that captured: nearer ends do
/// not differ by more than what other work on the machine makes of them.
const DISTANT: u64 = 300_000;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: u32 = 12;

/// So many times nearer is the end where it was captured.
const NEARER: u64 = 4;

fn believed(waited: Option<u64>) -> Option<u64> {
    waited.filter(|&waited| waited <= LONGEST_RTT)
}

/// The two ends of a flow, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends(pub(crate) SocketAddr, pub(crate) SocketAddr);

impl Ends {
    /// The ends of a segment, and which of them sends: 0 or 1.
    pub(crate) fn of(segment: &Segment) -> (Ends, usize) {
        Ends::between(segment.src, segment.dst)
    }

    /// The ends of a packet from `src` to `dst`, and which of them sends: 0 or 1.
    pub(crate) fn between(src: SocketAddr, dst: SocketAddr) -> (Ends, usize) {
        if src <= dst { (Ends(src, dst), 0) } else { (Ends(dst, src), 1) }
    }
}

/// A flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) ends: Ends,
    /// What each end sends.
    pub(crate) sides: [Direction; 2],
    /// The end that connected, if its SYN was seen.
    pub(crate) client: Option<usize>,
    /// Nanoseconds from SYN to the ACK that ends the handshake, if both were seen.
    pub(crate) rtt: Option<u64>,
    /// Nanoseconds since 1970.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Nanoseconds for which nothing had passed before the last packet.
    quiet: u64,
    syn_ack_at: Option<u64>,
    handshake: Handshake,
    /// The server has sent nothing behind its SYN-ACK.
    silent: bool,
    /// The reset that ended it.
    pub(crate) reset: Option<Reset>,
    /// Why there are findings of some kinds, once the flow has ended.
    reasons: Vec<(Kind, usize, Reason)>,
    /// When the last flow ended whose failure this one has taken over.
    pub(crate) failed_until: u64,
    /// Nanoseconds from where it was captured to each end and back, by the handshake.
    reach: [Option<u64>; 2],
}

impl Flow {
    pub(crate) fn new(ends: Ends, time: u64) -> Flow {
        Flow {
            ends,
            sides: Default::default(),
            client: None,
            rtt: None,
            first: time,
            last: time,
            quiet: 0,
            syn_ack_at: None,
            handshake: Handshake::default(),
            silent: true,
            reset: None,
            reasons: Vec::new(),
            failed_until: 0,
            reach: [None; 2],
        }
    }

    /// Whether this SYN begins another connection between the same ends.
    pub(crate) fn is_reused_by(&self, segment: &Segment, from: usize) -> bool {
        let syn = segment.flags.intersects(TcpFlags::SYN);
        let side = &self.sides[from];
        syn && side.next.is_some() && side.syn != Some(segment.seq)
    }

    /// The payload of a full segment from the end `from`.
    pub(crate) fn mss(&self, from: usize) -> u32 {
        self.full(from).size
    }

    /// The same, and how it is known.
    pub(crate) fn full(&self, from: usize) -> Full {
        self.full_with(from, self.sides[from].options_len)
    }

    /// The same of a segment with so many bytes of options.
    fn full_with(&self, from: usize, options_len: u32) -> Full {
        self.sides[from].full(self.sides[1 - from].syn_mss, options_len)
    }

    /// Takes one segment in.
    pub(crate) fn segment(&mut self, segment: &Segment, from: usize, options: &Options) {
        let idle = segment.time.saturating_sub(self.last);
        self.last = self.last.max(segment.time);
        if self.sides[from].is_copy(segment, options) {
            return;
        }
        let side = &mut self.sides[from];
        side.packets += 1;
        side.bytes += u64::from(segment.len);
        side.arrivals += segment.sent.map_or(0, |sent| if sent { -1 } else { 1 });
        side.by_plimsoll |= segment.by_plimsoll && segment.sent == Some(true);
        if segment.flags.intersects(TcpFlags::SYN) {
            self.syn(segment, from);
        } else if segment.flags.intersects(TcpFlags::RST) {
            self.reset(segment, from, idle.max(self.quiet));
            return;
        } else {
            self.established(segment, from, options);
        }
        self.quiet = idle;
        self.sides[from].ttl = Some(segment.ttl);
        // The sender of a reset that goes on did not mean it, or another has sent it.
        self.reset = self.reset.filter(|reset| reset.from != from || reset.is_by_device());
    }

    /// A reset. Before it, or before the packet that it answers, nothing had passed for `idle`
    /// nanoseconds.
    fn reset(&mut self, segment: &Segment, from: usize, idle: u64) {
        if self.handshake.reset(segment, self.client == Some(from)) || self.reset.is_some() {
            return;
        }
        let ends = (&self.sides[from], &self.sides[1 - from]);
        self.reset = Reset::new(segment, from, ends, idle);
    }

    fn syn(&mut self, segment: &Segment, from: usize) {
        let side = &mut self.sides[from];
        side.retransmissions += u64::from(side.syn == Some(segment.seq));
        side.syn = Some(segment.seq);
        side.syn_mss = segment.mss;
        side.scale = segment.scale;
        side.options_len = if segment.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        side.next = Some(segment.seq + 1 + segment.len);
        side.una = Some(segment.seq);
        if segment.flags.intersects(TcpFlags::ACK) {
            self.sides[1 - from].una = Some(segment.ack);
            self.handshake.syn_ack(segment, self.reach[from]);
            let at = self.handshake.answered_at();
            let waited = at.map(|at| segment.time.saturating_sub(at));
            self.reach[from] = self.reach[from].or(believed(waited));
            self.syn_ack_at = Some(segment.time);
        } else {
            self.handshake.syn(segment, self.client == Some(1 - from));
            self.client = Some(from);
        }
    }

    fn established(&mut self, segment: &Segment, from: usize, options: &Options) {
        if self.client == Some(from) && self.handshake.opened(segment.time) {
            let since = |at: u64| segment.time.saturating_sub(at);
            self.rtt = believed(self.handshake.answered_at().map(since));
            self.reach[from] = believed(self.syn_ack_at.map(since));
        }
        if segment.flags.intersects(TcpFlags::FIN) {
            self.sides[from].fin.get_or_insert(segment.time);
        }
        let (full, their_mss) = (self.full_with(from, segment.options_len), self.mss(1 - from));
        let (scale, paths) = (self.scale(from), self.paths(from));
        let packet = self.packet_len(from, segment.len.min(full.size));
        let lag = self.paths(1 - from).least_behind;
        self.silent &= self.client == Some(from);
        let untaken = self.silent.then_some(&mut self.handshake);
        let [low, high] = &mut self.sides;
        let (side, peer) = if from == 0 { (low, high) } else { (high, low) };
        peer.heard = true;
        let new = if segment.flags.intersects(TcpFlags::ACK) {
            let ends_handshake = peer.syn.is_some_and(|syn| syn + 1 == segment.ack);
            if segment.duplicate_sack {
                peer.losses.came_twice();
            }
            if let Some(block) = segment.sacked {
                peer.losses.fits.sacked(block);
            }
            let new = peer.acknowledged(segment.ack, segment.len == 0, segment.time);
            side.window.announce(segment, scale, (their_mss, lag), &mut side.found);
            if ends_handshake { 0 } else { new }
        } else {
            0
        };
        if segment.len == 0 {
            side.without_data(segment, (new, their_mss), peer, options);
            return;
        }
        if !segment.sack {
            side.options_len = segment.options_len;
        }
        let end = segment.seq + segment.len;
        if side.goes_on_elsewhere(segment, full.size) {
            peer.window.forget();
        } else if side.next.is_some_and(|next| end <= next) {
            side.last_ack = None;
            if side.again(segment, peer, (paths, full.size), packet)
                && let Some(handshake) = untaken
            {
                handshake.untaken(segment);
            }
            return;
        }
        side.carries(segment, options);
        let mark = Mark { number: segment.number, time: segment.time };
        let (mss, lag) = (full.size, paths.least_behind);
        let recovering = side.losses.is_recovering();
        let filling = Filling { mark, end, mss, lag, recovering };
        peer.window.filled(filling, options, &mut peer.found);
        let said = Peer { edge: peer.window.edge(), requests: peer.spoken() };
        side.data(segment, full, paths, said, options);
        side.next = Some(end + u32::from(segment.flags.intersects(TcpFlags::FIN)));
        peer.turn = true;
    }

    /// Nanoseconds from where it was captured to an end and back: the shortest time that the
    /// handshake or an ACK of that end took.
    fn reach(&self, end: usize) -> Option<u64> {
        let (handshake, ack) = (self.reach[end], self.sides[1 - end].least_wait);
        handshake.into_iter().chain(ack).min()
    }

    /// How long packets take from where it was captured to the peer of `from`, and to `from`
    /// itself, and back.
    fn paths(&self, from: usize) -> Paths {
        let reach = |end: usize| self.reach(end).unwrap_or(0);
        let behind = reach(from);
        let least_behind = if self.reach[from].is_some() { behind } else { 0 };
        Paths { beyond: reach(1 - from), behind, least_behind }
    }

    /// The end where it was captured, by what the capture says of the packets or by how soon each
    /// end answers; none, if neither tells.
    pub(crate) fn captured_at(&self) -> Option<usize> {
        match (self.sides[0].arrivals.signum(), self.sides[1].arrivals.signum()) {
            (0, 0) => {}
            (-1, 0 | 1) | (0, 1) => return Some(0),
            (0 | 1, -1) | (1, 0) => return Some(1),
            _ => return None,
        }
        let [low, high] = [self.reach(0)?, self.reach(1)?];
        let near = low.min(high);
        let far = low.max(high);
        (far >= DISTANT && near <= far / NEARER).then_some(usize::from(high < low))
    }

    /// Whether what `from` sends was captured where it arrives, and merged there (GRO).
    pub(crate) fn is_merged(&self, from: usize) -> bool {
        self.captured_at() == Some(1 - from) && self.sides[from].super_segments > 0
    }

    /// The scale of the windows that the end `from` announces: its own, if both SYNs have one.
    pub(crate) fn scale(&self, from: usize) -> Scale {
        let other = self.sides[1 - from].scale;
        match (self.sides[from].scale, other) {
            (Scale::Unknown, _) | (_, Scale::Unknown) => Scale::Unknown,
            (own @ Scale::Shift(_), Scale::Shift(_)) => own,
            _ => Scale::Absent,
        }
    }

    /// The flow ends here, in a capture that goes on until `end`.
    pub(crate) fn end(&mut self, end: u64, options: &Options) {
        for from in 0..2 {
            let mss = self.mss(from);
            self.sides[from].end(mss, self.last, options);
        }
        if let Some(client) = self.client {
            self.judge_handshake(client, end);
        }
        for from in 0..2 {
            self.judge_losses(from);
        }
        if let Some(reset) = self.reset {
            let found = &mut self.sides[reset.from].found;
            found.of(Kind::Reset).add(reset.mark, 0.0, reset.waited);
            self.reasons.push((Kind::Reset, reset.from, reset.reason));
        }
    }

    /// Why data of one side was lost.
    fn judge_losses(&mut self, from: usize) {
        let sizes = self.too_large(from);
        let never_came = sizes.is_none() && self.never_came(from);
        let side = &mut self.sides[from];
        side.losses.judge_large(sizes.is_some() || never_came, &mut side.found);
        let lost = *side.found.get(Kind::Loss);
        if (sizes.is_some() || never_came) && !side.knows_path() {
            // The path has cut it, and not the program.
            side.take_cutting_back();
        }
        if never_came {
            // Where data arrives nothing tells what was lost for another reason.
            side.found.of(Kind::TooLarge).join(&lost);
            *side.found.of(Kind::Loss) = Tally::default();
        }
        let (ignored, proven) = (side.too_big.map(|told| told.ignored), sizes.map(|it| it.proven));
        let of_size = match (ignored, proven) {
            _ if never_came => Reason::LargeNeverCame,
            (Some(0 | 1), _) => Reason::SizeReported,
            (Some(_), _) => Reason::SizeIgnored,
            (None, Some(true)) => Reason::BlackHole,
            (None, _) => Reason::PerhapsBlackHole,
        };
        self.reasons.push((Kind::TooLarge, from, of_size));
        // One error among many losses does not explain them.
        if let Some(reason) = side.unreachable.filter(|_| lost.count == 1) {
            self.reasons.push((Kind::Loss, from, reason));
        }
    }

    /// The sizes that did not get through, if some did not.
    pub(crate) fn too_large(&self, from: usize) -> Option<TooLarge> {
        let side = &self.sides[from];
        let sizes = side.losses.fits.too_large(side.too_big.is_some())?;
        (self.packet_len(from, sizes.lost) > self.always_fits()).then_some(sizes)
    }

    /// Bytes of a packet that every path takes (RFC 1122, section 3.3.3; RFC 8200, section 5).
    fn always_fits(&self) -> u32 {
        if self.ends.0.is_ipv4() { 576 } else { 1280 }
    }

    /// Whether full segments of `from` never came to where it was captured, but left holes that
    /// smaller ones filled.
    fn never_came(&self, from: usize) -> bool {
        let side = &self.sides[from];
        let Some(said) = self.full(from).said else { return false };
        let hole = side.losses.largest_hole();
        side.found.get(Kind::Loss).count > 0 && hole >= said && side.largest < said
    }

    /// An ICMP error about a segment of `from` passes.
    pub(crate) fn notice(&mut self, notice: &Notice, from: usize) {
        // Whoever does not see the connection can forge an error, but not know its numbers (RFC
        // 5927, section 4).
        let side = &mut self.sides[from];
        let start = side.una.map(|una| una.since(notice.seq)).filter(|&behind| behind < FAR);
        let ahead = side.next.map(|next| next.since(notice.seq)).filter(|&ahead| ahead < FAR);
        if start.or(ahead).is_none() {
            return;
        }
        match notice.says {
            Says::TooBig(mtu) => {
                let new = TooBig { router: notice.from, mtu, ignored: 0 };
                side.too_big.get_or_insert(new);
            }
            Says::Unreachable(reason) => {
                side.unreachable = Some(reason);
                if self.client == Some(from) {
                    self.handshake.unreachable(notice.mark, reason);
                }
            }
        }
    }

    /// Bytes of a packet of `from` with so many bytes of payload.
    pub(crate) fn packet_len(&self, from: usize, payload: u32) -> u32 {
        let ip = if self.ends.0.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        payload + self.sides[from].options_len + (tcp::HEADER_LEN + ip) as u32
    }

    fn judge_handshake(&mut self, client: usize, end: u64) {
        let place = match self.captured_at() {
            None => Place::Between,
            Some(at) if at == client => Place::Client,
            Some(_) => Place::Server,
        };
        for verdict in self.handshake.verdicts(place, end) {
            let Verdict { kind, reason, of_client, mark, packets, nanos } = verdict;
            let from = if of_client { client } else { 1 - client };
            self.sides[from].found.of(kind).add(mark, packets as f64, nanos);
            self.reasons.push((kind, from, reason));
        }
        let Some(mark) = self.handshake.first_untaken() else { return };
        let side = &mut self.sides[client];
        let lost = side.found.of(Kind::Loss);
        if place == Place::Server {
            lost.take_back(mark);
            side.losses.was_ignored(mark);
        } else if lost.count == 1 {
            self.reasons.push((Kind::Loss, client, Reason::NotTaken));
        }
    }

    /// What its failure has in common with others: the same kind and reason, from the same host to
    /// the same place.
    pub(crate) fn failure(&self) -> Option<(Kind, Reason, IpAddr, SocketAddr)> {
        let client = self.client?;
        let (kind, _, reason) = self.reasons.iter().find(|(kind, ..)| kind.is_failure())?;
        let ends = [self.ends.0, self.ends.1];
        Some((*kind, *reason, ends[client].ip(), ends[1 - client]))
    }

    /// Takes over the failure of a later flow that has it in common with this one.
    pub(crate) fn join_failure(&mut self, later: &mut Flow) {
        let Some((kind, ..)) = self.failure() else { return };
        for from in 0..2 {
            // Ends are in the order of their addresses and ports, which differ.
            let as_client = Some(from) == later.client;
            let tally = std::mem::take(later.sides[from].found.of(kind));
            let own = if as_client { self.client } else { self.client.map(|client| 1 - client) };
            self.sides[own.unwrap_or(from)].found.of(kind).join(&tally);
        }
        self.failed_until = self.failed_until.max(later.last);
    }

    /// Why it has findings of this kind, if the capture tells several causes apart.
    pub(crate) fn reason(&self, kind: Kind, from: usize) -> Option<Reason> {
        let mut reasons = self.reasons.iter();
        reasons.find(|(of, end, _)| (*of, *end) == (kind, from)).map(|(.., reason)| *reason)
    }
}

impl Direction {
    /// A segment without data, which acknowledges `new` bytes; a full segment has `mss`.
    fn without_data(
        &mut self,
        segment: &Segment,
        (new, mss): (u32, u32),
        peer: &Direction,
        options: &Options,
    ) {
        if peer.window.is_closed() && self.next == Some(segment.seq + 1) {
            self.probes += 1;
        }
        if segment.flags.intersects(TcpFlags::FIN) {
            self.last_ack = None;
            self.next = self.next.map(|next| next.max(segment.seq + 1));
        } else {
            self.pure_ack(segment, new, mss, options);
        }
    }

    /// Data that was sent before: a probe of a closed window or of the peer's life, or it was
    /// lost. Whether it was that. A full segment has `mss`, and this one takes packets of `packet`
    /// bytes.
    fn again(
        &mut self,
        segment: &Segment,
        peer: &Direction,
        (paths, mss): (Paths, u32),
        packet: u32,
    ) -> bool {
        let one = segment.len <= 1;
        let beside = self.next.is_some_and(|next| next == segment.seq + 1);
        if one && peer.window.is_closed() {
            self.probes += 1;
            return false;
        }
        let again = !(one && beside) && self.losses.again(segment, paths.least_behind, mss);
        self.retransmissions += u64::from(again);
        if let Some(told) = self.too_big.as_mut().filter(|told| told.mtu > 0) {
            told.ignored += u64::from(again && packet > told.mtu);
        }
        again
    }
}
