//! One call: its working state, and the known properties of its ACK.

use plimsoll_wire::SeqNum;

use super::scoreboard::{Delivered, LostSums, XmitOrder};
use super::view::{AckView, ConnView, Cwr, Marks};
use super::{Flight, RecoveryState};
use crate::context::Context;
use crate::counters::Counter;
use crate::mtu::search::ProbeOutcome;
use crate::time::Nanos;

/// The contents of a DSACK of the ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BelievedDsack {
    /// There was none, or it was not plausible.
    #[default]
    None,
    /// It names a loss probe.
    OfProbe,
    /// It names other data.
    OfData,
}

/// The newest range that an ACK delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) order: XmitOrder,
    /// Segments that had been delivered when it left.
    pub(super) delivered: u32,
}

/// The values of the present ACK. They are not valid in other calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// SND.UNA.
    pub(super) una: SeqNum,
    /// SND.UNA moved.
    pub(super) advanced: bool,
    /// It is a duplicate, and this is its count.
    pub(super) duplicates: Option<u32>,
    /// It reports congestion (ECE).
    pub(super) ece: bool,
    /// The marks that it reports.
    pub(super) marks: Marks,
    /// Packets that were newly found marked, unless the count is old or there is none.
    pub(super) marked: Option<u32>,
    pub(super) tsecr: Option<u32>,
    pub(super) dsack: BelievedDsack,
    /// The ranges that it SACKs.
    pub(super) sacked: Delivered,
    /// The ranges that it acknowledges.
    pub(super) acked: Delivered,
    /// Segments that it delivers.
    pub(super) delivered: u32,
    pub(super) newest: Option<Newest>,
    /// The RTT sample of the latest segment that it covers, if it gave one.
    pub(super) newest_rtt: Option<Nanos>,
    /// The outcome of the path MTU probe.
    pub(super) mtu_probe: Option<ProbeOutcome>,
    /// It undid a reduction.
    pub(super) undone: bool,
    /// It started the reordering timer, or the wait for reneging.
    pub(super) timer_started: bool,
    /// Segments ever marked lost before it.
    pub(super) lost_before: LostSums,
}

/// One call.
pub(super) struct Run<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) conn: &'a ConnView,
    pub(super) flight: &'a mut Flight,
    pub(super) facts: Facts,
    /// The treatment of CWR, if there is one.
    pub(super) cwr: Option<Cwr>,
}

impl<'a> Run<'a> {
    pub(super) fn new(cx: &'a Context<'a>, conn: &'a ConnView, flight: &'a mut Flight) -> Run<'a> {
        let lost_before = flight.board.lost_sums();
        let facts = Facts { una: conn.una, lost_before, ..Facts::default() };
        Run { cx, conn, flight, facts, cwr: None }
    }

    /// Reads the values of the segment itself.
    pub(super) fn read(&mut self, ack: &AckView) {
        let facts = &mut self.facts;
        facts.una = self.conn.una.max(ack.ack);
        facts.advanced = self.conn.una < ack.ack;
        facts.marks = ack.marks;
        facts.ece = ack.marks == Marks::Echo;
        facts.tsecr = ack.tsecr.filter(|&tsecr| tsecr != 0);
        let duplicate = ack.ack == self.conn.una && !ack.has_text && !ack.brings_window;
        facts.duplicates = duplicate.then(|| u32::from(ack.segs));
    }

    /// Segments for which duplicate ACKs count; none if a DSACK shows that they report copies.
    pub(super) fn duplicates(&self) -> u32 {
        let told = self.facts.dsack == BelievedDsack::None;
        self.facts.duplicates.filter(|_| told).unwrap_or(0)
    }

    /// The state is one of these.
    pub(super) fn is_in(&self, states: &[RecoveryState]) -> bool {
        states.contains(&self.flight.state)
    }

    /// Whether something is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.flight.board.lost_out() > 0
    }

    /// Whether the call has found something lost.
    pub(super) fn found_lost(&self) -> bool {
        self.flight.board.lost_sums().ever != self.facts.lost_before.ever
    }

    /// Segments that the call has found lost which had been retransmitted.
    fn lost_again(&self) -> u32 {
        self.flight.board.lost_sums().again.wrapping_sub(self.facts.lost_before.again)
    }

    /// Whether the call has found something lost that had been retransmitted.
    pub(super) fn found_lost_again(&self) -> bool {
        self.lost_again() > 0
    }

    /// The call is over: counts its results. Returns the treatment of CWR.
    pub(super) fn finish(&self) -> Option<Cwr> {
        self.cx.counters.add(Counter::TcpLostRetransmit, self.lost_again().into());
        self.cwr
    }

    /// Whether the ACK delivers something that was never retransmitted and left before
    /// RecoveryPoint.
    pub(super) fn delivers_original(&self) -> bool {
        let facts = &self.facts;
        if self.conn.sack {
            facts.acked.original || facts.sacked.original
        } else {
            facts.acked.original && !facts.acked.retransmitted
        }
    }

    /// *All named* of section 6.
    pub(super) fn is_all_named(&self) -> bool {
        self.flight.undo.is_all_named()
    }

    /// *Delayed* of section 6, while the reduction may be undone.
    pub(super) fn is_delayed(&self) -> bool {
        let (facts, flight) = (&self.facts, &*self.flight);
        flight.undo.point().is_some()
            && flight.undo.is_delayed(self.conn, facts.una, facts.tsecr, flight.recovery_point)
    }

    /// Without SACK, everything up to RecoveryPoint is acknowledged and nothing beyond it: later
    /// duplicates may still be about retransmitted data (RFC 6582).
    pub(super) fn must_stay(&self) -> bool {
        !self.conn.sack && self.facts.una == self.flight.recovery_point
    }
}
