//! ECN after the handshake: arriving marks, the peer's reports of marks on our packets, and the
//! option that leaves with ACKs. The consequences for other parts are returned.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{AccEcnOption, TcpFlags, TcpOptions};

use super::EcnState;
use super::accurate::received::{OptionPolicy, Want};
use super::negotiation::{Mode, ace};
use crate::config::Config;
use crate::context::Context;
use crate::counters::Counter;
use crate::segment::{Ecn, Segment};
use crate::send::flight::Marks;
use crate::time::Nanos;

impl EcnState {
    /// An acceptable segment that is no SYN came: its mark is counted. Returns whether an ACK is
    /// due for it, which only happens with Accurate ECN.
    pub(crate) fn on_packets(&mut self, cx: &Context, seg: &Segment) -> bool {
        if seg.ecn == Ecn::Ce && self.is_on() {
            cx.counters.bump(Counter::EcnMarksReceived);
        }
        self.seen |= self.is_on() && seg.ecn != Ecn::NotEct;
        self.accurate.as_mut().is_some_and(|accurate| accurate.on_packets(seg))
    }

    /// The first segment that is no SYN shows whether the path leaves ECN unchanged.
    pub(crate) fn check_first(&mut self, seg: &Segment) {
        if let Some(accurate) = &mut self.accurate {
            accurate.on_first(ace(seg.repr.flags));
        }
    }

    /// The segment that answers our SYN-ACK shows how that arrived. Must be called before any other
    /// processing of it; after that, [`end_handshake`](Self::end_handshake). Without
    /// `tcp_ecn_fallback` an impossible codepoint is accepted. Returns whether the SYN-ACK was
    /// marked.
    pub(crate) fn on_handshake_ack(&mut self, config: &Config, seg: &Segment) -> bool {
        let Some(accurate) = &mut self.accurate else { return false };
        accurate.on_handshake_ack(ace(seg.repr.flags), seg, config.tcp_ecn_fallback)
    }

    /// The segment that answers our SYN-ACK was fully processed.
    pub(crate) fn end_handshake(&mut self) {
        if let Some(accurate) = &mut self.accurate {
            accurate.end_handshake();
        }
    }

    /// The marks on our packets that the segment reports. `facts` are its timestamp, if timestamps
    /// are in use, and the payload bytes of a full segment.
    pub(crate) fn read(&mut self, seg: &Segment, facts: (Option<u32>, u32)) -> Marks {
        let flags = seg.repr.flags;
        let syn = flags.contains(TcpFlags::SYN);
        match (&mut self.accurate, self.mode) {
            (Some(accurate), _) if !syn => {
                accurate.read(ace(flags), seg, facts).map_or(Marks::None, Marks::Counted)
            }
            (None, Mode::Classic) if !syn && flags.contains(TcpFlags::ECE) => Marks::Echo,
            _ => Marks::None,
        }
    }

    /// Whether the segment may report new marks.
    pub(crate) fn is_told(&self, seg: &Segment) -> bool {
        let (ace, option) = (ace(seg.repr.flags), seg.repr.options.acc_ecn.is_some());
        self.accurate.as_ref().is_some_and(|accurate| option || accurate.is_new(ace))
    }

    /// The segment's report of marks was processed: it has delivered so many packets, of which so
    /// many were newly marked. `facts` as in [`read`](Self::read).
    pub(crate) fn take(&mut self, counts: (u32, u32), seg: &Segment, facts: (Option<u32>, u32)) {
        if let Some(accurate) = &mut self.accurate {
            accurate.take(counts, seg, facts);
        }
    }

    /// The peer reports that it has reacted to our ECE. CWR on a segment without data is accepted
    /// as well. With DCTCP the ACKs of marked data always have ECE, and with Accurate ECN the bit
    /// has another meaning. Returns whether its data gets its ACK at once: its window may be tiny
    /// now.
    pub(crate) fn take_cwr(&mut self, seg: &Segment) -> bool {
        let counts = self.mode == Mode::Accurate || self.needed;
        let reacted = seg.repr.flags.contains(TcpFlags::CWR) && !counts;
        if reacted {
            self.demand_cwr = false;
        }
        reacted && seg.seq_len() > 0
    }

    /// Data came, which is not accepted yet. With DCTCP, where marks begin or end, the data before
    /// has its own ACK if one is still due for it (RFC 8257, section 3.2): up to `unacknowledged`,
    /// if there is any.
    pub(crate) fn divide(&mut self, seg: &Segment, unacknowledged: Option<SeqNum>) {
        let marked = seg.ecn == Ecn::Ce;
        let divides = self.mode == Mode::Classic && self.needed && !seg.payload.is_empty();
        if divides && marked != self.demand_cwr {
            self.earlier = unacknowledged;
            self.demand_cwr = marked;
        }
    }

    /// Data of a segment with this codepoint was taken.
    pub(crate) fn on_codepoint(&mut self, ecn: Ecn) {
        if self.mode == Mode::Classic && ecn == Ecn::Ce {
            self.demand_cwr = true;
        }
    }

    /// The option of a packet that leaves with `options`, which take `space` bytes with it at most.
    pub(crate) fn fitting_option(
        &self,
        cx: &Context,
        srtt: Nanos,
        (options, space): (&TcpOptions, usize),
    ) -> Option<AccEcnOption> {
        if self.wants_option(cx, srtt) == Want::None {
            return None;
        }
        self.option(options.acc_ecn_space(space)?)
    }

    /// Whether an option is due that has not left.
    pub(crate) fn owes_option(&self, cx: &Context, srtt: Nanos) -> bool {
        self.wants_option(cx, srtt) == Want::Due
    }

    /// Whether the next packet has an option of Accurate ECN.
    fn wants_option(&self, cx: &Context, srtt: Nanos) -> Want {
        // Every packet is checked here, and most connections have not agreed on Accurate ECN.
        let Some(accurate) = &self.accurate else { return Want::None };
        accurate.wants_option(&OptionPolicy {
            level: cx.config.tcp_ecn_option,
            beacon: cx.config.tcp_ecn_option_beacon,
            now: cx.now,
            srtt,
        })
    }
}
