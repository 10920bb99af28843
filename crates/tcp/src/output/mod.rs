//! Output: the only place from which packets leave.
//!
//! # Theory of operation
//!
//! [`Connection::poll_transmit`] checks in one fixed order what may leave, and returns one packet
//! at a time:
//!
//! 1. a reset;
//! 2. a SYN or SYN-ACK;
//! 3. a challenge ACK, or an ACK that the peer must be able to count or distinguish;
//! 4. data to retransmit;
//! 5. new data and the FIN, by the [`plan`], which uses the [`gate`];
//! 6. a window probe or a keepalive probe;
//! 7. a pure ACK, if one is due and no packet above carried it.
//!
//! A packet is planned, then built, then offered to the layer below. No state changes until that
//! layer has taken it ([`Connection::poll_transmit_with`]). A refused packet is held like any
//! other, and congestion control reacts as to a local loss.
//!
//! Every packet with ACK carries the acknowledgement and the window and so settles the receiver's
//! pending ACK. [`Connection::hold`] is the reason why a connection is held; the caller polls again
//! after every event that may end the hold.

mod autocork;
mod build;
mod cork;
pub(crate) mod cut;
mod cwnd;
pub(crate) mod explain;
mod gate;
pub(crate) mod hold;
mod mtu_probe;
pub(crate) mod nagle;
pub(crate) mod plan;
mod rwnd;
mod silly_window;
pub(crate) mod small_queue;
pub(crate) mod tso_defer;
mod tso_tail;
pub(crate) mod view;

use plimsoll_buf::Slices;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::Events;
use crate::segment::{SendKind, Transmit};
use crate::send::flight::NextRetransmission;
use crate::state::State;
use crate::timer::Timer;
use crate::why::{Bound, Causes, Decision, Note};
use build::{Built, Moves, Parts};
use cut::Cut;
use explain::resend_reason;
use hold::Restart;
pub use hold::{Hold, Refusal};
use plan::{Plan, Wait, offer_again};

impl Connection {
    /// The next packet that leaves now, if there is one. Call until it returns `None`.
    ///
    /// The caller must take every packet: a packet that it loses counts as a loss like any other. A
    /// caller that may refuse one calls [`poll_transmit_with`](Self::poll_transmit_with).
    pub fn poll_transmit(&mut self, cx: &Context) -> Option<Transmit> {
        let mut left = None;
        self.poll_transmit_with(cx, |packet| {
            left = Some(packet);
            Ok(())
        });
        left
    }

    /// Passes the next packet that leaves now to `offer`, which sends it or returns a refusal.
    /// Returns whether one has left; call until none does.
    ///
    /// If data, a FIN or a plain ACK is refused, nothing has left: no sequence number, mark, window
    /// or counter of sent packets has changed. Its data waits ([`Hold::Refused`]) and is planned
    /// again. [`Refusal`] says what restarts it.
    ///
    /// Other packets count as sent even if they are refused: SYNs, resets, probes, and the ACKs of
    /// which the peer counts every one. A timer repeats them, or nothing depends on them.
    pub fn poll_transmit_with(
        &mut self,
        cx: &Context,
        mut offer: impl FnMut(Transmit) -> Result<(), Refusal>,
    ) -> bool {
        self.debug_invariants();
        let left = self.next_packet(cx, &mut offer);
        self.debug_invariants();
        left
    }

    /// The device has finished with a packet below; `cx.below` has the rest. Data that waited for
    /// this moment is released, subject to the gate. The caller polls.
    pub(crate) fn handle_completion(&mut self, cx: &Context) {
        self.debug_invariants();
        self.explain.add_cause(Causes::COMPLETION);
        self.snd.end_autocork();
        if cx.below.completions && self.awaits_completion() {
            self.snd.on_awaited_completion();
        }
    }

    /// Whether the connection waits for a completion, so that
    /// [`Input::Completion`](crate::Input::Completion) must follow one: data is held by
    /// [`Hold::Autocork`] or [`Hold::SmallQueue`], was refused by a full queue, or data to
    /// retransmit is still below.
    pub fn awaits_completion(&self) -> bool {
        self.snd.awaits_completion()
    }

    /// The reason why waiting data is held, if it is.
    pub fn hold(&self) -> Option<Hold> {
        self.snd.hold()
    }

    fn next_packet(&mut self, cx: &Context, offer: &mut impl Accept) -> bool {
        if let Some(packet) = self.next_that_may_be_lost(cx) {
            // Nothing waits for it, or a timer repeats it.
            let _ = offer(packet);
            return true;
        }
        if matches!(self.state, State::Closed | State::SynSent) {
            return false;
        }
        if (self.state != State::SynReceived || self.is_early()) && self.send_data(cx, offer) {
            return true;
        }
        if self.rcv.ack_due(cx.now).is_some() && self.send_ack(cx, offer) {
            return true;
        }
        self.end_output(cx);
        false
    }

    /// Steps 1 to 3. Usually none of them applies.
    #[inline]
    fn next_that_may_be_lost(&mut self, cx: &Context) -> Option<Transmit> {
        let quiet = self.state.is_synchronized()
            && self.pending.rst.is_none()
            && !self.pending.challenge_ack
            && !self.ecn.owes_earlier()
            && !self.rcv.dup_ack_due();
        if quiet { None } else { self.first_that_may_be_lost(cx) }
    }

    #[inline(never)]
    fn first_that_may_be_lost(&mut self, cx: &Context) -> Option<Transmit> {
        if let Some(rst) = self.pending.rst.take() {
            return Some(self.build_rst(cx, rst));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                if let Some((syn, kind)) = self.take_syn(cx) {
                    return Some(self.count_syn(cx, syn, kind));
                }
            }
            _ => {}
        }
        if self.state == State::SynSent {
            return None;
        }
        if let Some(ack) = self.take_earlier_ack(cx) {
            return Some(ack);
        }
        if core::mem::take(&mut self.pending.challenge_ack) {
            return Some(self.send_bare(cx, self.snd.acceptable_seq(), SendKind::ChallengeAck));
        }
        if self.rcv.dup_ack_due() {
            return Some(self.send_bare(cx, self.snd.acceptable_seq(), SendKind::Ack));
        }
        None
    }

    /// Nothing more leaves now.
    fn end_output(&mut self, cx: &Context) {
        self.explain.end_output();
        self.explain.log_deferred_ack(cx, self.rcv.ack_waits_until());
        if self.snd.has_burst() {
            let parts = self.conn_parts(cx);
            self.snd.end_burst(cx, &parts);
        }
        self.snd.end_output();
        self.sync_retransmission_timer();
        self.wake_writer(cx);
    }

    /// A pure ACK. If it is refused, it stays due, and a timer offers it again.
    fn send_ack(&mut self, cx: &Context, offer: &mut impl Accept) -> bool {
        let Built { packet, moves } = self.build_ack(cx);
        if offer(packet).is_err() {
            cx.counters.bump(Counter::HoldRefused);
            let (at, armed) = (offer_again(cx.now), self.timers.deadline(Timer::Pacing));
            self.timers.arm(Timer::Pacing, armed.map_or(at, |armed| armed.min(at)));
            return false;
        }
        self.commit_bare(cx, &moves);
        true
    }

    /// Steps 4 to 6. Returns whether something has left.
    fn send_data(&mut self, cx: &Context, offer: &mut impl Accept) -> bool {
        let mut wait = None;
        if self.snd.has_outstanding() && !self.is_early() {
            match self.retransmit(cx, offer) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(again) => wait = Some(again),
            }
        }
        if let Some(wait) = wait {
            // New data does not overtake lost data.
            self.note_hold(cx, &wait);
        } else if self.snd.unsent_len() > 0 || self.fin_is_due() {
            match self.send_new(cx, offer) {
                Ok(()) => return true,
                Err(wait) => self.note_hold(cx, &wait),
            }
        } else if self.snd.hold().is_some() {
            self.explain.end_hold(cx, self.snd.hold());
            self.snd.end_hold();
        }
        if self.end_new_first(cx) {
            match self.retransmit(cx, offer) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(wait) => self.note_hold(cx, &wait),
            }
        }
        self.send_probe(cx, offer)
    }

    /// A window probe or a keepalive probe, if one is due. One that is refused is lost.
    fn send_probe(&mut self, cx: &Context, offer: &mut impl Accept) -> bool {
        let kind = if core::mem::take(&mut self.pending.window_probe) {
            cx.counters.bump(Counter::TcpWinProbe);
            SendKind::WindowProbe
        } else if core::mem::take(&mut self.pending.keepalive) {
            SendKind::Keepalive
        } else {
            return false;
        };
        let probe = self.send_bare(cx, self.snd.una() - 1, kind);
        let _ = offer(probe);
        true
    }

    /// Retransmits the data that recovery selects, or a front part of it, unless it is held.
    /// Returns whether a packet has left.
    #[inline]
    fn retransmit(&mut self, cx: &Context, offer: &mut impl Accept) -> Result<bool, Wait> {
        if self.snd.flight.may_send_again() { self.retransmit_next(cx, offer) } else { Ok(false) }
    }

    #[inline(never)]
    fn retransmit_next(&mut self, cx: &Context, offer: &mut impl Accept) -> Result<bool, Wait> {
        let (conn, largest) = (self.conn_parts(cx), self.largest_packet(cx.config));
        let (start, end) =
            match self.snd.flight.next_retransmission(cx, &self.snd.view(cx, &conn), largest) {
                NextRetransmission::None | NextRetransmission::Below => return Ok(false),
                NextRetransmission::Probe { start, end } => (start, end),
                NextRetransmission::Lost { start, end } => {
                    let len = end.since(start);
                    match self.snd.again_waits(cx, &self.options, len) {
                        None => (start, end),
                        Some(wait) => return Err(wait),
                    }
                }
            };
        let mut again = self.snd.again(start, end);
        let flags = if again.fin { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::ACK };
        let parts = Parts {
            seq: start,
            flags: if again.push { flags | TcpFlags::PSH } else { flags },
            payload: core::mem::take(&mut again.payload),
            mss: again.mss,
            kind: SendKind::Retransmit,
        };
        let Built { mut packet, moves } = self.build_data(cx, parts);
        let len = packet.payload.len() as u32;
        let reason = resend_reason(&self.snd, self.handshake.sack);
        let note = Note { released: None, decision: Decision::Resent { len, reason } };
        explain::note(cx, &mut packet, note);
        if let Err(refusal) = offer(packet) {
            return Err(self.refused(cx, refusal, SendKind::Retransmit));
        }
        let serial = self.snd.next_serial();
        self.commit_data(cx, &moves);
        self.snd.on_sent_again(cx, &conn, &again, (serial, moves.departure.at));
        self.path.forget_probe();
        self.sync_retransmission_timer();
        self.explain.log_note(cx, note);
        Ok(true)
    }

    /// A packet with data or a FIN was refused. Returns the resulting wait.
    fn refused(&mut self, cx: &Context, refusal: Refusal, kind: SendKind) -> Wait {
        if refusal == Refusal::QueueFull {
            let parts = self.conn_parts(cx);
            let cwr = self.snd.flight.on_refused(cx, &self.snd.view(cx, &parts), kind);
            self.on_cwr(cwr);
            self.sync_retransmission_timer();
        }
        Wait::refused(cx, refusal)
    }

    /// No more new data leaves in this call. Returns whether lost data leaves in its place.
    #[inline]
    fn end_new_first(&mut self, cx: &Context) -> bool {
        self.snd.flight.sends_new_first() && {
            let parts = self.conn_parts(cx);
            self.snd.flight.end_new_first(&self.snd.view(cx, &parts))
        }
    }

    /// Sends new data, and the FIN after the last of it, or returns the hold.
    #[inline(never)]
    fn send_new(&mut self, cx: &Context, offer: &mut impl Accept) -> Result<(), Wait> {
        let fin = self.fin_is_due();
        self.forget_old_mtu(cx);
        // SACK blocks, which not every segment has, would make a probe longer than it is to be.
        let probe = if self.path.is_searched() && !self.rcv.has_sack_blocks() {
            self.path.next_probe(cx, self.every_option(), self.snd.mss())
        } else {
            None
        };
        match self.snd.plan(cx, &self.options, fin, probe) {
            Plan::Send(cut) => {
                self.snd.note_limits(cx, None);
                self.send_cut(cx, &cut, offer)
            }
            Plan::Wait(wait) => {
                self.snd.note_limits(cx, wait.limiter);
                self.snd.on_wait(&wait);
                Err(wait)
            }
        }
    }

    /// Records the hold, and makes sure that an event will end it.
    fn note_hold(&mut self, cx: &Context, wait: &Wait) {
        if self.snd.hold() != Some(wait.hold) {
            cx.counters.bump(wait.hold.counter());
            self.explain.begin_hold(cx, wait, self.snd.hold(), self.snd.unsent_len());
            self.snd.end_hold();
        }
        self.snd.begin_hold(wait);
        match wait.restart {
            Restart::Completion | Restart::Ack => {}
            Restart::Timer(timer, at) => self.timers.arm(timer, at),
            Restart::Persist | Restart::Space => self.arm_persist(cx),
        }
        if !self.snd.has_outstanding() && cx.below.bytes == 0 {
            let timer = match (wait.hold, wait.restart) {
                (Hold::Rwnd | Hold::SillyWindow | Hold::Cork, _) => Some(Timer::Persist),
                (Hold::Refused, Restart::Space) => Some(Timer::Persist),
                (Hold::Pacing | Hold::Refused, _) => Some(Timer::Pacing),
                _ => None,
            };
            debug_assert!(
                timer.is_some_and(|timer| self.timers.is_armed(timer)),
                "{:?} holds an idle sender and nothing will end it",
                wait.hold
            );
        }
    }

    /// Sends the planned packet, unless it is refused.
    fn send_cut(&mut self, cx: &Context, cut: &Cut, offer: &mut impl Accept) -> Result<(), Wait> {
        let mut flags = TcpFlags::ACK;
        if cut.fin {
            flags |= TcpFlags::FIN;
        }
        if cut.len > cut.mss || self.snd.pushes(cut) {
            flags |= TcpFlags::PSH;
        }
        let (seq, payload) = (self.snd.nxt(), self.snd.payload(cut));
        debug_assert_eq!(payload.len(), cut.len as usize);
        let parts = Parts { seq, flags, payload, mss: cut.mss, kind: SendKind::New };
        let Built { mut packet, moves } = self.build_data(cx, parts);
        let Cut { len, bound, tail, .. } = *cut;
        let decision = Decision::Cut { len, segs: packet.segs, bound, tail };
        let note = Note { released: self.explain.released(cx, self.snd.hold()), decision };
        explain::note(cx, &mut packet, note);
        if let Err(refusal) = offer(packet) {
            return Err(self.refused(cx, refusal, SendKind::New));
        }
        self.explain.log_note(cx, note);
        self.explain.end_hold(cx, self.snd.hold());
        self.snd.end_hold();
        self.commit_cut(cx, cut, &moves);
        self.explain.on_new_data();
        Ok(())
    }

    /// The packet has left: everything moves.
    fn commit_cut(&mut self, cx: &Context, cut: &Cut, moves: &Moves) {
        let serial = self.snd.next_serial();
        self.commit_data(cx, moves);
        // First: the backoff of window probes does not apply to this packet.
        self.end_persist();
        let committed = self.snd.commit(cut);
        self.timers.stop(Timer::TsoDefer);
        let sent = (serial, moves.departure.at);
        let parts = self.conn_parts(cx);
        self.snd.on_sent(cx, &parts, &committed, sent);
        self.explain.note_model(cx, &mut self.snd);
        if cut.bound == Bound::MtuProbe {
            let (option, mss) = (self.every_option(), self.snd.mss());
            if self.path.on_probe_sent((committed.start, committed.end), option, mss) {
                self.snd.flight.on_mtu_probe_sent();
            }
        }
        self.sync_retransmission_timer();
        if self.snd.report_sent(cx.now) {
            self.events.insert(Events::REPORT);
        }
        cx.counters.add(Counter::TcpOrigDataSent, moves.segs());
    }
}

/// The layer below: it takes a packet, or refuses it.
trait Accept: FnMut(Transmit) -> Result<(), Refusal> {}

impl<F: FnMut(Transmit) -> Result<(), Refusal>> Accept for F {}

/// No bytes.
const NOTHING: Slices = Slices::new();

#[cfg(test)]
mod properties;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
