//! What ECN does to a connection: marks that arrive, what the peer says of ours, and what leaves
//! with every ACK.

use plimsoll_wire::tcp::{AccEcnOption, TcpFlags, TcpOptions};

use super::accurate::received::{OptionPolicy, Want};
use super::negotiation::{Mode, Policy, ace};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::AckReason;
use crate::segment::{Ecn, Segment};
use crate::send::recovery::Marks;

impl Connection {
    /// What is asked for and agreed to.
    pub(crate) fn ecn_policy(&self, cx: &Context) -> Policy {
        let algorithm = self.snd.controller().algorithm();
        Policy::new(cx.config.tcp_ecn, algorithm, self.options.route.ecn)
    }

    /// An acceptable segment that is no SYN came: its mark is counted, and with Accurate ECN an ACK
    /// may be due for it.
    pub(crate) fn count_marks(&mut self, cx: &Context, seg: &Segment) {
        if seg.ecn == Ecn::Ce && self.ecn.is_on() {
            cx.counters.bump(Counter::EcnMarksReceived);
        }
        self.ecn.seen |= self.ecn.is_on() && seg.ecn != Ecn::NotEct;
        if let Some(accurate) = &mut self.ecn.accurate
            && accurate.on_packets(seg)
        {
            self.rcv.acknowledge_now(AckReason::Marks);
        }
    }

    /// The first segment that is no SYN tells whether the path leaves ECN alone.
    pub(crate) fn check_first(&mut self, seg: &Segment) {
        if let Some(accurate) = &mut self.ecn.accurate {
            accurate.on_first(ace(seg.repr.flags));
        }
    }

    /// The segment that answers our SYN-ACK tells how that arrived. `finish` is what else it does.
    pub(crate) fn with_handshake_ack(
        &mut self,
        seg: &Segment,
        finish: impl FnOnce(&mut Connection),
    ) {
        if let Some(accurate) = &mut self.ecn.accurate {
            accurate.on_handshake_ack(ace(seg.repr.flags), seg);
        }
        finish(self);
        if let Some(accurate) = &mut self.ecn.accurate {
            accurate.end_handshake();
        }
    }

    /// What the segment says of marks on what we sent.
    pub(crate) fn marks_of(&mut self, seg: &Segment) -> Marks {
        let flags = seg.repr.flags;
        let syn = flags.contains(TcpFlags::SYN);
        let facts = (self.tsval(seg), self.snd.segment_size().into());
        match (&mut self.ecn.accurate, self.ecn.mode) {
            (Some(accurate), _) if !syn => {
                accurate.read(ace(flags), seg, facts).map_or(Marks::None, Marks::Counted)
            }
            (None, Mode::Classic) if !syn && flags.contains(TcpFlags::ECE) => Marks::Echo,
            _ => Marks::None,
        }
    }

    /// Whether the segment says anything of marks that was not known, or may do so.
    pub(crate) fn says_marks(&self, seg: &Segment) -> bool {
        let (ace, option) = (ace(seg.repr.flags), seg.repr.options.acc_ecn.is_some());
        self.ecn.accurate.as_ref().is_some_and(|accurate| option || accurate.is_new(ace))
    }

    /// What the segment said of marks was taken: it has delivered so many packets, of which so many
    /// were newly found marked.
    pub(crate) fn take_marks(&mut self, counts: (u32, u32), seg: &Segment) {
        let facts = (self.tsval(seg), self.snd.segment_size().into());
        if let Some(accurate) = &mut self.ecn.accurate {
            accurate.take(counts, seg, facts);
        }
    }

    fn tsval(&self, seg: &Segment) -> Option<u32> {
        seg.repr.options.timestamps.filter(|_| self.ts.enabled).map(|stamps| stamps.val)
    }

    /// The peer says that it has reacted to our ECE. Its window may be tiny now, so that data gets
    /// its ACK at once. CWR on a segment without data is taken as well. With DCTCP the ACKs of
    /// marked data have ECE whatever the peer does, and with Accurate ECN the bit is another.
    pub(crate) fn take_cwr(&mut self, seg: &Segment) {
        let counts = self.ecn.mode == Mode::Accurate || self.ecn.needed;
        if seg.repr.flags.contains(TcpFlags::CWR) && !counts {
            self.ecn.demand_cwr = false;
            if seg.seq_len() > 0 {
                self.rcv.acknowledge_now(AckReason::Congestion);
            }
        }
    }

    /// Data came, which is not taken yet. With DCTCP, where marks begin or end, what came before
    /// has an ACK of its own if one is still due for it (RFC 8257, section 3.2).
    pub(crate) fn divide_marks(&mut self, seg: &Segment) {
        let marked = seg.ecn == Ecn::Ce;
        let divides = self.ecn.mode == Mode::Classic && self.ecn.needed && !seg.payload.is_empty();
        if divides && marked != self.ecn.demand_cwr {
            self.ecn.earlier = (self.rcv.unacked() > 0).then(|| self.rcv.nxt());
            self.ecn.demand_cwr = marked;
        }
    }

    /// Data of a segment with this codepoint was taken.
    pub(crate) fn on_codepoint(&mut self, ecn: Ecn) {
        if self.ecn.mode == Mode::Classic && ecn == Ecn::Ce {
            self.ecn.demand_cwr = true;
        }
    }

    /// The option of a packet that leaves with `options`, which take `space` bytes with it at most.
    pub(crate) fn acc_ecn_option(
        &self,
        cx: &Context,
        options: &TcpOptions,
        space: usize,
    ) -> Option<AccEcnOption> {
        if self.wants_acc_ecn_option(cx) == Want::None {
            return None;
        }
        self.ecn.option(options.acc_ecn_space(space)?)
    }

    /// Whether the next packet has an option of Accurate ECN.
    fn wants_acc_ecn_option(&self, cx: &Context) -> Want {
        // Every packet asks, and most connections have not agreed on Accurate ECN.
        let Some(accurate) = &self.ecn.accurate else { return Want::None };
        accurate.wants_option(&OptionPolicy {
            level: cx.config.tcp_ecn_option,
            beacon: cx.config.tcp_ecn_option_beacon,
            now: cx.now,
            srtt: self.srtt(),
        })
    }

    /// Data has left. An option that was due and found no space beside it leaves with an ACK of its
    /// own, unless a peer without SACK could take that for a duplicate, or blocks leave no space.
    pub(crate) fn send_option_alone(&mut self, cx: &Context) {
        let fits = self.handshake.sack && self.rcv.is_plain();
        if fits && self.wants_acc_ecn_option(cx) == Want::Due {
            self.rcv.acknowledge_now(AckReason::Marks);
        }
    }
}
