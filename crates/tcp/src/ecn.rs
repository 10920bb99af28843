//! Explicit Congestion Notification: RFC 3168, and with more accurate feedback RFC 9768.
//!
//! Both ends agree in the handshake ([`negotiation`]). From then on data that is sent for the first
//! time carries ECT(0); a router marks it CE instead of dropping it. With RFC 9768 every packet
//! without SYN carries ECT(0), as RFC 8311, section 4.3 allows. The receiver's response to a mark
//! depends on the agreed mode:
//!
//! - RFC 3168: it sets ECE on all its packets, until a segment with CWR shows that the sender has
//!   reacted. A sender that receives ECE reduces its window once per window of data and sets CWR on
//!   the next data.
//! - RFC 9768: it counts the mark, and reports the count with every packet ([`accurate`]).
//! - With DCTCP and the flags of RFC 3168 it sets ECE on exactly the ACKs of marked data (RFC 8257,
//!   section 3.2), and all packets carry ECT(0).
//!
//! Recovery makes the reduction itself (`send/flight/`). A retransmitted SYN does not request
//! ECN, since some path may have dropped the one that did (`tcp_ecn_fallback`); one that requests
//! Accurate ECN is tried twice.

pub(crate) mod accurate;
pub(crate) mod negotiation;
mod signals;

use alloc::boxed::Box;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{AccEcnOption, TcpFlags};

use crate::config::Config;
use crate::segment::{CwrFlag, Ecn, Segment};
use crate::time::Instant;
use accurate::{AccEcn, AccEcnInfo, Faults};
use negotiation::{Mode, Policy, ace, ace_flags, agreed, syn_flags};

/// The kinds of departing packets that ECN distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Data that was never sent before.
    NewData,
    /// Data that was, or a FIN alone.
    OtherText,
    /// Nothing but an ACK.
    Bare,
}

/// The ECN state of one connection.
#[derive(Debug, Default)]
pub(crate) struct EcnState {
    /// The mode that our SYN has requested, while no answer is known.
    asked: Mode,
    /// The agreed mode.
    mode: Mode,
    /// The congestion control needs marks: packets of every kind carry ECT(0).
    needed: bool,
    /// A CE mark came, and no CWR since: our packets carry ECE. With DCTCP, the last data was
    /// marked.
    demand_cwr: bool,
    /// Whether the last ACK that left carried ECE.
    echo_sent: bool,
    /// The window was reduced: the next new data carries CWR.
    queue_cwr: bool,
    /// Our SYN left without a request, after one that requested Accurate ECN.
    plain: bool,
    /// The peer has sent a packet with an ECN codepoint.
    pub(crate) seen: bool,
    /// A pending ACK of the data before the marks began or ended (RFC 8257).
    earlier: Option<SeqNum>,
    /// The state of Accurate ECN, once both have agreed on it.
    accurate: Option<Box<AccEcn>>,
}

impl EcnState {
    /// Whether both ends have agreed on ECN of either kind.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// Whether a reduction is reported with CWR.
    pub(crate) fn tells_reductions(&self) -> bool {
        self.mode == Mode::Classic
    }

    /// Whether a segment with `codepoint`, if its data is taken, and the next get their ACKs at
    /// once.
    pub(crate) fn wants_quick_acks(&self, codepoint: Ecn) -> bool {
        self.mode == Mode::Classic
            && !self.needed
            && match codepoint {
                // The peer sets ECT on all data except retransmissions: it has lost a packet.
                Ecn::NotEct => self.seen,
                Ecn::Ect0 | Ecn::Ect1 => false,
                Ecn::Ce => !self.demand_cwr,
            }
    }

    /// The congestion control was changed; `needed` is whether it needs marks.
    pub(crate) fn set_needed(&mut self, needed: bool) {
        self.needed = needed;
    }

    /// The window was reduced, or the timer fired.
    pub(crate) fn queue_cwr(&mut self) {
        self.queue_cwr = self.tells_reductions();
    }

    /// The reduction is undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.queue_cwr = false;
    }

    /// The bits of our SYN, which leaves for the first time or has left `before` times, and its
    /// codepoint.
    pub(crate) fn on_syn_leaves(
        &mut self,
        before: u8,
        policy: Policy,
        fallback: bool,
    ) -> (TcpFlags, Ecn) {
        let Policy { ask, needed, .. } = policy;
        let tries = if ask == Mode::Accurate { 2 } else { 1 };
        let asks = before < tries || !fallback;
        if !asks {
            self.plain = self.asked == Mode::Accurate;
            return (TcpFlags::default(), Ecn::NotEct);
        }
        (self.asked, self.needed) = (ask, needed);
        (syn_flags(ask), if needed { Ecn::Ect0 } else { Ecn::NotEct })
    }

    /// The bits of our SYN-ACK, which has left `before` times, and its codepoint.
    pub(crate) fn on_syn_ack_leaves(&mut self, before: u8, config: &Config) -> (TcpFlags, Ecn) {
        let codepoint = if self.needed && self.is_on() { Ecn::Ect0 } else { Ecn::NotEct };
        let Some(accurate) = &mut self.accurate else {
            return (if self.is_on() { TcpFlags::ECE } else { TcpFlags::default() }, codepoint);
        };
        // Tried twice, as a SYN.
        if before > 1 && config.tcp_ecn_fallback {
            accurate.note(Faults::ACE_SENT);
            return (TcpFlags::default(), Ecn::NotEct);
        }
        (ace_flags(accurate.syn_ack_ace()), codepoint)
    }

    /// The option of our SYN-ACK, which has left `before` times, within so much space. A
    /// retransmitted one has no option, because of which the first may have been dropped. Later
    /// packets have one if the peer has sent one, since that shows that it can read them (section
    /// 3.2.3.2.2).
    pub(crate) fn syn_ack_option(
        &self,
        before: u8,
        config: &Config,
        space: usize,
    ) -> Option<AccEcnOption> {
        let wanted = before == 0 && config.tcp_ecn_option > 0;
        self.accurate.as_ref().filter(|_| wanted)?.option(space)
    }

    /// The peer's SYN came.
    pub(crate) fn on_syn(&mut self, seg: &Segment, policy: Policy) {
        self.needed = policy.needed;
        self.mode = policy.answer(seg.repr.flags, seg.ecn);
        if self.mode == Mode::Accurate {
            let mut accurate = AccEcn::new(seg.ecn, seg.payload.len() as u32);
            accurate.expect_answer(if self.needed { Ecn::Ect0 } else { Ecn::NotEct });
            self.accurate = Some(accurate);
        }
    }

    /// The peer's SYN came again. The mode stays, and the answer reports this SYN's codepoint. If
    /// it does not request ECN, the peer may end up without it: our later packets are not
    /// ECN-capable (section 3.1.5).
    pub(crate) fn on_syn_again(&mut self, seg: &Segment) {
        let Some(accurate) = &mut self.accurate else { return };
        accurate.on_syn_again(seg.ecn);
        if ace(seg.repr.flags) == 0 {
            accurate.note(Faults::ACE_SENT);
        }
    }

    /// The peer's SYN-ACK came again, and an ACK answers it.
    pub(crate) fn on_syn_ack_again(&mut self, seg: &Segment) {
        if let Some(accurate) = &mut self.accurate {
            accurate.on_syn_ack_again(seg.ecn);
        }
    }

    /// The peer's SYN-ACK came.
    pub(crate) fn on_syn_ack(&mut self, config: &Config, seg: &Segment) {
        let (mode, arrived) = agreed(self.asked, seg.repr.flags);
        self.mode = mode;
        if mode == Mode::Accurate {
            let mut accurate = AccEcn::new(seg.ecn, seg.payload.len() as u32);
            let sent = if self.needed { Ecn::Ect0 } else { Ecn::NotEct };
            accurate.on_syn_ack(seg, (sent, arrived), config.tcp_ecn_fallback);
            if self.plain {
                accurate.note(Faults::ACE_SENT);
            }
            self.accurate = Some(accurate);
        }
    }

    /// Whether the next ACK reports another congestion state than the last one.
    pub(crate) fn has_something_to_tell(&self) -> bool {
        match (&self.accurate, self.mode) {
            (Some(accurate), _) => accurate.is_urgent(),
            (None, Mode::Off) => false,
            (None, _) => self.demand_cwr != self.echo_sent,
        }
    }

    /// The codepoint and the bits of an outgoing segment.
    pub(crate) fn marks(&self, leaving: Leaving) -> (Ecn, TcpFlags) {
        let new_data = leaving == Leaving::NewData;
        if let Some(accurate) = &self.accurate {
            return (accurate.codepoint(), ace_flags(accurate.ace(leaving == Leaving::Bare)));
        }
        let mut flags = TcpFlags::default();
        if self.mode == Mode::Off {
            return (Ecn::NotEct, flags);
        }
        if self.demand_cwr {
            flags |= TcpFlags::ECE;
        }
        if new_data && self.queue_cwr {
            flags |= TcpFlags::CWR;
        }
        let codepoint = if new_data || self.needed { Ecn::Ect0 } else { Ecn::NotEct };
        (codepoint, flags)
    }

    /// The flags of the ACK of the data before the marks changed, and its number, if one waits.
    pub(crate) fn take_earlier(&mut self) -> Option<(SeqNum, TcpFlags)> {
        let number = self.earlier.take()?;
        let ece = if self.demand_cwr { TcpFlags::default() } else { TcpFlags::ECE };
        Some((number, TcpFlags::ACK | ece))
    }

    /// Whether such an ACK waits.
    pub(crate) fn owes_earlier(&self) -> bool {
        self.earlier.is_some()
    }

    /// The option with as many counters as find space, if those that have changed do.
    pub(crate) fn option(&self, space: usize) -> Option<AccEcnOption> {
        self.accurate.as_ref()?.option(space)
    }

    /// A segment with these [`marks`](Self::marks) and this option has left.
    pub(crate) fn on_sent(&mut self, now: Instant, flags: TcpFlags, option: Option<&AccEcnOption>) {
        match (&mut self.accurate, self.mode) {
            (Some(accurate), _) => accurate.on_sent(now, option),
            (None, Mode::Off) => {}
            (None, _) => {
                self.echo_sent = self.demand_cwr;
                self.queue_cwr &= !flags.contains(TcpFlags::CWR);
            }
        }
    }

    /// The flags that count marks: a segment with any of them may still be as predicted.
    pub(crate) fn counter_flags(&self) -> TcpFlags {
        if self.accurate.is_some() { ace_flags(7) } else { TcpFlags::default() }
    }

    /// The treatment of CWR in a super-segment.
    pub(crate) fn cwr_flag(&self) -> CwrFlag {
        if self.accurate.is_some() { CwrFlag::OnAll } else { CwrFlag::OnFirst }
    }

    /// The codepoint and the bits of a reset, and of the ACKs of TIME-WAIT. Unless the count
    /// continues, they have no ECN.
    pub(crate) fn last_marks(&self) -> (Ecn, TcpFlags) {
        match &self.accurate {
            Some(accurate) => (accurate.codepoint(), ace_flags(accurate.ace(false))),
            None => (Ecn::NotEct, TcpFlags::default()),
        }
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.accurate.as_ref().map_or(0, |_| size_of::<AccEcn>())
    }

    /// The figures of Accurate ECN; zero without it.
    pub(crate) fn info(&self) -> AccEcnInfo {
        self.accurate.as_ref().map_or_else(AccEcnInfo::default, |accurate| accurate.info())
    }
}

#[cfg(test)]
impl EcnState {
    /// That of a connection which has agreed on RFC 3168.
    pub(crate) fn classic() -> EcnState {
        EcnState { mode: Mode::Classic, ..EcnState::default() }
    }
}

#[cfg(test)]
mod tests;
