//! Accurate ECN feedback (RFC 9768): the state of a connection whose ends have agreed on it.
//!
//! Each end counts the packets and bytes that arrive with each codepoint. It reports them to the
//! other end in the three bits of the ACE field of every packet and in an option of some.
//! [`received`] has the reports to the peer, [`feedback`] the reports from it.
//!
//! A middlebox may clear the flags, change the codepoints, or drop or clear the option. Each fault
//! is detected where possible, and fields that are no longer valid are not used from then on
//! ([`Faults`]). The mode stays: reports to the peer continue.

pub(crate) mod feedback;
pub(crate) mod received;

use alloc::boxed::Box;

use plimsoll_wire::tcp::{AccEcnCounters, AccEcnOption, AccEcnOrder};

use crate::ecn::negotiation::codepoint_of_handshake;
use crate::segment::{Ecn, Segment};
use crate::time::Instant;
use feedback::{Counted, Feedback};
use received::{FIRST_BYTES, FIRST_COUNTERS, OptionPolicy, Received, Want};

/// Level of `tcp_ecn_option` at which options are sent even if none arrive.
const ALWAYS: u8 = 3;

/// The detected faults of the path. The bits are those of `tcpi_accecn_fail_mode`. Linux has one
/// more, 4: our option does not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(u8);

impl Faults {
    /// Our flags did not arrive, or had to be omitted: our later packets are not ECN-capable.
    pub(crate) const ACE_SENT: Faults = Faults(1);
    /// The peer's flags, or our codepoints, are changed on the way: our later packets are not
    /// ECN-capable, and the peer's reports of marks are ignored.
    pub(crate) const ACE_RECEIVED: Faults = Faults(2);
    /// The peer's option does not arrive, or not as it was sent.
    pub(crate) const OPTION_RECEIVED: Faults = Faults(8);

    fn add(&mut self, fault: Faults) {
        self.0 |= fault.0;
    }

    fn has(self, fault: Faults) -> bool {
        self.0 & fault.0 != 0
    }
}

/// Which options of the peer have been seen. Its numbers are those of `tcpi_accecn_opt_seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionSeen {
    None = 0,
    Empty = 1,
    Counters = 2,
    /// One was expected, and it was missing or wrong.
    Failed = 3,
}

/// The option of a SYN-ACK, before anything has come.
pub(crate) fn first_option() -> AccEcnOption {
    AccEcnOption::new(AccEcnOrder::Ect1First, AccEcnOption::MOST_COUNTERS, FIRST_COUNTERS)
}

/// The state of Accurate ECN.
#[derive(Debug)]
pub(crate) struct AccEcn {
    received: Received,
    feedback: Feedback,
    faults: Faults,
    seen: OptionSeen,
    /// The codepoint of our SYN or SYN-ACK, until the peer has reported how it arrived.
    sent: Option<Ecn>,
    /// Nothing but SYNs has come from the peer.
    first: bool,
    /// The handshake is being ended by a packet whose ACE field does not count.
    ends_handshake: bool,
}

impl AccEcn {
    /// The state of a connection whose peer has sent a SYN or SYN-ACK with this codepoint and `len`
    /// bytes of data.
    pub(super) fn new(codepoint: Ecn, len: u32) -> Box<AccEcn> {
        let mut received = Received::new();
        received.on_syn(codepoint, len);
        Box::new(AccEcn {
            received,
            feedback: Feedback::new(),
            faults: Faults::default(),
            seen: OptionSeen::None,
            sent: None,
            first: true,
            ends_handshake: false,
        })
    }

    /// One of our packets left without the flags that it should have.
    pub(super) fn note(&mut self, fault: Faults) {
        self.faults.add(fault);
    }

    /// The peer's SYN came again, with this codepoint.
    pub(super) fn on_syn_again(&mut self, codepoint: Ecn) {
        self.received.on_handshake_again(codepoint);
    }

    /// The peer's SYN-ACK came again, with this codepoint, which the ACK of it reports.
    pub(super) fn on_syn_ack_again(&mut self, codepoint: Ecn) {
        self.received.on_handshake_again(codepoint);
        self.received.answer_syn_ack();
    }

    /// Our SYN-ACK leaves with this codepoint.
    pub(super) fn expect_answer(&mut self, sent: Ecn) {
        self.sent = Some(sent);
    }

    /// The SYN-ACK came, and reports that our SYN, which left as `sent`, arrived as `arrived`.
    /// `checks` as in [`on_handshake_ack`](Self::on_handshake_ack).
    pub(super) fn on_syn_ack(&mut self, seg: &Segment, (sent, arrived): (Ecn, Ecn), checks: bool) {
        self.take_codepoint((sent, arrived), checks);
        self.received.answer_syn_ack();
        self.see_option(seg.repr.options.acc_ecn.as_ref());
        if self.seen == OptionSeen::None {
            self.fail_option();
        }
    }

    /// The peer reports how our SYN or SYN-ACK arrived. A codepoint that no router may have written
    /// means that a node changes it arbitrarily (section 3.2.2.3). Returns whether it was marked.
    fn take_codepoint(&mut self, (sent, arrived): (Ecn, Ecn), checks: bool) -> bool {
        let allowed = match sent {
            Ecn::NotEct => arrived == Ecn::NotEct,
            Ecn::Ect0 => arrived != Ecn::NotEct,
            Ecn::Ect1 | Ecn::Ce => matches!(arrived, Ecn::Ect1 | Ecn::Ce),
        };
        if checks && !allowed {
            self.faults.add(Faults::ACE_RECEIVED);
        }
        let marked = arrived == Ecn::Ce;
        if marked {
            self.feedback.on_syn_marked();
        }
        marked
    }

    /// The first packet that is no SYN came: checks whether the path leaves ECN unchanged, as far
    /// as possible (sections 3.2.2.1, 3.2.2.4 and 3.2.3.2).
    pub(super) fn on_first(&mut self, ace: u8) {
        if core::mem::take(&mut self.first) && ace == 0 {
            self.faults.add(Faults::ACE_RECEIVED);
        }
    }

    /// As [`on_first`](Self::on_first), for a packet that answers our SYN-ACK. Until
    /// [`end_handshake`](Self::end_handshake) its ACE field is not a count. If it is a pure ACK
    /// without blocks, the field reports how the SYN-ACK arrived. `checks` if an impossible
    /// codepoint ends our marking. Returns whether the SYN-ACK was marked, which no later packet
    /// repeats.
    pub(super) fn on_handshake_ack(&mut self, ace: u8, seg: &Segment, checks: bool) -> bool {
        self.on_first(ace);
        self.ends_handshake = true;
        if seg.repr.options.acc_ecn.is_none() {
            self.fail_option();
        }
        let says = seg.payload.is_empty() && seg.repr.options.sack().is_empty();
        let sent = self.sent.take().filter(|_| says);
        let codepoints = sent.zip(codepoint_of_handshake(ace));
        codepoints.is_some_and(|codepoints| self.take_codepoint(codepoints, checks))
    }

    /// The packet of [`on_handshake_ack`](Self::on_handshake_ack) was taken.
    pub(super) fn end_handshake(&mut self) {
        self.ends_handshake = false;
    }

    fn fail_option(&mut self) {
        self.seen = OptionSeen::Failed;
        self.faults.add(Faults::OPTION_RECEIVED);
    }

    /// A packet came with this option. Returns it if its contents can be used.
    pub(super) fn see_option<'a>(
        &mut self,
        option: Option<&'a AccEcnOption>,
    ) -> Option<&'a AccEcnOption> {
        let option = option?;
        let first = matches!(self.seen, OptionSeen::None | OptionSeen::Failed);
        let cleared = |said: Option<u32>| said.is_some_and(|said| said < FIRST_BYTES);
        if first && (cleared(option.e0b()) || cleared(option.e1b())) {
            // No peer begins with zero (section 3.2.3.2.4).
            self.fail_option();
            return None;
        }
        let empty = option.present() == 0 && self.seen != OptionSeen::Counters;
        self.seen = if empty { OptionSeen::Empty } else { OptionSeen::Counters };
        Some(option)
    }

    /// Packets came, whose counts do not depend on their ACK. Returns whether an ACK is due at
    /// once.
    pub(super) fn on_packets(&mut self, seg: &Segment) -> bool {
        let (segs, len) = (u32::from(seg.segs.max(1)), seg.payload.len() as u32);
        self.received.on_packets(seg.ecn, segs, len)
    }

    /// The marks reported by an ACK with this ACE field, unless they are not plausible.
    pub(super) fn read(
        &mut self,
        ace: u8,
        seg: &Segment,
        (tsval, mss): (Option<u32>, u32),
    ) -> Option<Counted> {
        let option = self.see_option(seg.repr.options.acc_ecn.as_ref());
        let usable = !self.faults.has(Faults::ACE_RECEIVED) && !self.ends_handshake;
        usable.then(|| self.feedback.read(ace, option, tsval, mss))
    }

    /// Whether this ACE field reports something new.
    pub(super) fn is_new(&self, ace: u8) -> bool {
        self.first || self.feedback.is_new(ace)
    }

    /// The ACK of [`read`](Self::read) was processed: it has delivered so many packets, of which so
    /// many were newly marked.
    pub(super) fn take(
        &mut self,
        counts: (u32, u32),
        seg: &Segment,
        (tsval, mss): (Option<u32>, u32),
    ) {
        let option = seg.repr.options.acc_ecn.as_ref();
        let option = option.filter(|_| self.seen != OptionSeen::Failed);
        self.feedback.take(counts, option, tsval, mss);
    }

    /// The ACE field of the next packet. `bare` if it has no data.
    pub(super) fn ace(&self, bare: bool) -> u8 {
        self.received.ace(bare)
    }

    /// The ACE field of our SYN-ACK.
    pub(super) fn syn_ack_ace(&self) -> u8 {
        self.received.handshake_ace()
    }

    /// The codepoint of all our packets without SYN, with data or without (RFC 8311, section 4.3).
    pub(super) fn codepoint(&self) -> Ecn {
        let impaired = self.faults.has(Faults::ACE_SENT) || self.faults.has(Faults::ACE_RECEIVED);
        if impaired { Ecn::NotEct } else { Ecn::Ect0 }
    }

    /// Whether the next packet has an option. Without any from the peer none is sent, unless it is
    /// to be sent always.
    pub(super) fn wants_option(&self, policy: &OptionPolicy) -> Want {
        match self.seen == OptionSeen::Failed && policy.level < ALWAYS {
            true => Want::None,
            false => self.received.wants_option(policy),
        }
    }

    /// The option with as many counters as find space, if those that have changed do.
    pub(super) fn option(&self, space: usize) -> Option<AccEcnOption> {
        self.received.option(space)
    }

    /// A packet with ACK has left.
    pub(super) fn on_sent(&mut self, now: Instant, option: Option<&AccEcnOption>) {
        self.received.on_sent(now, option);
    }

    /// The marks to report with the next ACK cannot wait for the end of a batch.
    pub(super) fn is_urgent(&self) -> bool {
        self.received.is_urgent()
    }

    /// The figures.
    pub(super) fn info(&self) -> AccEcnInfo {
        AccEcnInfo {
            received_ce: self.received.ce_packets(),
            received: self.received.bytes(),
            delivered: self.feedback.bytes(),
            fail_mode: self.faults.0,
            opt_seen: self.seen as u8,
        }
    }
}

/// The figures of `TCP_INFO` about Accurate ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccEcnInfo {
    pub(crate) received_ce: u32,
    pub(crate) received: AccEcnCounters,
    pub(crate) delivered: AccEcnCounters,
    pub(crate) fail_mode: u8,
    pub(crate) opt_seen: u8,
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
