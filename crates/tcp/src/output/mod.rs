//! Output: the only place from which anything leaves.
//!
//! # Theory of operation
//!
//! [`Connection::poll_transmit`] asks in one fixed order what may leave, and returns one packet
//! at a time:
//!
//! 1. a reset;
//! 2. a SYN or SYN-ACK;
//! 3. a challenge ACK, or a duplicate ACK that the peer must be able to count;
//! 4. what recovery wants sent again;
//! 5. new data and the FIN, by the [`plan`] that the [`gate`] has a part in;
//! 6. a window probe or a keepalive probe;
//! 7. a pure ACK, if one is due and nothing above took it along.
//!
//! A packet is planned, then built, then offered to what lies below, and nothing has moved until
//! that has taken it ([`Connection::poll_transmit_with`]). If it is refused, that is a hold like
//! any other.
//!
//! Every packet with ACK takes the acknowledgement and the window along and so settles what the
//! receiver had recorded. A connection that is held says by what ([`Connection::hold`]); whatever
//! ends the hold is an event after which the caller polls again.

mod autocork;
mod build;
mod cork;
pub(crate) mod cut;
mod cwnd;
mod explain;
mod gate;
pub(crate) mod hold;
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
use crate::send::recovery::NextRetransmission;
use crate::state::State;
use crate::timer::Timer;
use crate::why::{Causes, Decision, Note};
use build::Parts;
use cut::Cut;
use hold::Restart;
pub use hold::{Hold, Refusal};
use plan::{Plan, Wait, offer_again};

impl Connection {
    /// The next packet that leaves now, if one does. Call until it returns `None`.
    ///
    /// Whoever calls this takes every packet: one that gets lost on its way is noticed as a loss
    /// like any other. Who may have to refuse one calls
    /// [`poll_transmit_with`](Self::poll_transmit_with).
    pub fn poll_transmit(&mut self, cx: &Context) -> Option<Transmit> {
        self.poll_transmit_with(cx, |_| Ok(()))
    }

    /// As [`poll_transmit`](Self::poll_transmit), but a packet is offered before it leaves. If
    /// `offer` takes it, it is returned and the caller sends it. If it is refused, the connection
    /// is as if it had never been built: no sequence number, mark, window or counter has moved.
    /// What it was made of waits ([`Hold::Refused`]) until a completion or a timer, and is planned
    /// anew then.
    ///
    /// Data, FINs and plain ACKs are offered. Others are just returned: SYNs, resets, probes, and
    /// the ACKs of which the peer counts every one. These may be dropped: a timer repeats them, or
    /// nothing waits for them.
    pub fn poll_transmit_with(
        &mut self,
        cx: &Context,
        mut offer: impl FnMut(&Transmit) -> Result<(), Refusal>,
    ) -> Option<Transmit> {
        self.debug_invariants();
        let packet = self.next_packet(cx, &mut offer);
        self.debug_invariants();
        packet
    }

    /// The device is done with something that was below us; `cx.below` says what is left. What was
    /// left to this moment is left no longer, but the gate decides about it as about anything else.
    /// The caller polls.
    pub(crate) fn handle_completion(&mut self, cx: &Context) {
        self.debug_invariants();
        self.causes.add(Causes::COMPLETION);
        self.snd.end_autocork();
        if cx.below.completions && self.awaits_completion() {
            self.snd.on_awaited_completion();
        }
    }

    /// Whether the connection waits for a completion, so that
    /// [`Input::Completion`](crate::Input::Completion) must be told after one: data is held by
    /// [`Hold::Autocork`] or [`Hold::SmallQueue`], was refused by a full queue, or what shall be
    /// sent again is still below us.
    pub fn awaits_completion(&self) -> bool {
        self.snd.awaits_completion()
    }

    /// What holds the data that waits, if anything does.
    pub fn hold(&self) -> Option<Hold> {
        self.snd.hold()
    }

    fn next_packet(&mut self, cx: &Context, offer: &mut impl Accept) -> Option<Transmit> {
        if let Some(rst) = self.pending.rst.take() {
            return Some(self.build_rst(cx, rst));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                if let Some((repr, kind)) = self.take_syn(cx) {
                    return Some(self.count_syn(cx, repr, kind));
                }
            }
            _ => {}
        }
        if self.state == State::SynSent {
            return None;
        }
        if core::mem::take(&mut self.pending.challenge_ack) {
            return Some(self.send_bare(cx, self.snd.acceptable_seq(), SendKind::ChallengeAck));
        }
        if self.rcv.dup_ack_due() {
            return Some(self.send_bare(cx, self.snd.acceptable_seq(), SendKind::Ack));
        }
        if (self.state != State::SynReceived || self.is_early())
            && let Some(packet) = self.send_data(cx, offer)
        {
            return Some(packet);
        }
        if self.rcv.ack_due(cx.now).is_some()
            && let Some(packet) = self.send_ack(cx, offer)
        {
            return Some(packet);
        }
        self.end_output(cx);
        None
    }

    /// Nothing more leaves now.
    fn end_output(&mut self, cx: &Context) {
        self.causes = Causes::NONE;
        self.log_deferred_ack(cx);
        let parts = self.conn_parts(cx);
        self.snd.end_output(cx, &parts);
        self.sync_retransmission_timer();
        self.wake_writer(cx);
    }

    /// A pure ACK, unless it is refused: then it stays due.
    fn send_ack(&mut self, cx: &Context, offer: &mut impl Accept) -> Option<Transmit> {
        let built = self.build_ack(cx);
        if offer(&built.packet).is_err() {
            cx.counters.bump(Counter::HoldRefused);
            let (at, armed) = (offer_again(cx.now), self.timers.deadline(Timer::Pacing));
            self.timers.arm(Timer::Pacing, armed.map_or(at, |armed| armed.min(at)));
            return None;
        }
        Some(self.commit_bare(cx, built))
    }

    /// Steps 4 to 6.
    fn send_data(&mut self, cx: &Context, offer: &mut impl Accept) -> Option<Transmit> {
        let mut wait = None;
        if self.snd.has_outstanding() && !self.is_early() {
            match self.retransmit(cx, offer) {
                Ok(None) => {}
                Ok(packet) => return packet,
                Err(again) => wait = Some(again),
            }
        }
        if let Some(wait) = wait {
            // New data does not overtake what is lost.
            self.note_hold(cx, &wait);
        } else if self.snd.unsent_len() > 0 || self.fin_is_due() {
            match self.send_new(cx, offer) {
                Ok(packet) => return Some(packet),
                Err(wait) => self.note_hold(cx, &wait),
            }
        } else if self.snd.hold().is_some() {
            self.end_hold(cx);
        }
        if self.end_new_first(cx) {
            match self.retransmit(cx, offer) {
                Ok(None) => {}
                Ok(packet) => return packet,
                Err(wait) => self.note_hold(cx, &wait),
            }
        }
        let before_window = self.snd.una() - 1;
        if core::mem::take(&mut self.pending.window_probe) {
            cx.counters.bump(Counter::TcpWinProbe);
            return Some(self.send_bare(cx, before_window, SendKind::WindowProbe));
        }
        if core::mem::take(&mut self.pending.keepalive) {
            return Some(self.send_bare(cx, before_window, SendKind::Keepalive));
        }
        None
    }

    /// Sends again what recovery asks for, or a front part of it, unless something holds it.
    fn retransmit(
        &mut self,
        cx: &Context,
        offer: &mut impl Accept,
    ) -> Result<Option<Transmit>, Wait> {
        let (conn, largest) = (self.conn_parts(cx), self.largest_packet(cx.config));
        let (start, end) = match self.snd.next_retransmission(cx, &conn, largest) {
            NextRetransmission::None | NextRetransmission::Below => return Ok(None),
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
        let mut built = self.build_data(cx, parts);
        let len = built.packet.payload.len() as u32;
        let note = Note {
            released: None,
            decision: Decision::Resent { len, reason: self.resend_reason() },
        };
        self.note(cx, &mut built.packet, note);
        offer(&built.packet).map_err(|refusal| Wait::refused(cx, refusal))?;
        let serial = self.snd.next_serial();
        self.commit_data(cx, &built);
        let packet = built.packet;
        self.snd.on_sent_again(cx, &conn, &again, (serial, packet.departure));
        self.sync_retransmission_timer();
        self.log(cx, note);
        Ok(Some(packet))
    }

    /// No more new data leaves in this call. Returns whether what is lost leaves in its place.
    fn end_new_first(&mut self, cx: &Context) -> bool {
        self.snd.recovery().sends_new_first() && {
            let parts = self.conn_parts(cx);
            self.snd.end_new_first(cx, &parts)
        }
    }

    /// Sends new data, and the FIN behind the last of it, or says what holds it.
    fn send_new(&mut self, cx: &Context, offer: &mut impl Accept) -> Result<Transmit, Wait> {
        let fin = self.fin_is_due();
        match self.snd.plan(cx, &self.options, fin) {
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

    /// Records what holds the data, and makes sure that something will end it.
    fn note_hold(&mut self, cx: &Context, wait: &Wait) {
        if self.snd.hold() != Some(wait.hold) {
            cx.counters.bump(wait.hold.counter());
            self.begin_hold(cx, wait);
        }
        self.snd.begin_hold(wait);
        match wait.restart {
            Restart::Completion | Restart::Ack => {}
            Restart::Timer(timer, at) => self.timers.arm(timer, at),
            Restart::Persist => self.arm_persist(cx),
        }
        if !self.snd.has_outstanding() && cx.below.bytes == 0 {
            let timer = match wait.hold {
                Hold::Rwnd | Hold::SillyWindow | Hold::Cork => Some(Timer::Persist),
                Hold::Pacing | Hold::Refused => Some(Timer::Pacing),
                _ => None,
            };
            debug_assert!(
                timer.is_some_and(|timer| self.timers.is_armed(timer)),
                "{:?} holds an idle sender and nothing will end it",
                wait.hold
            );
        }
    }

    /// Sends what the plan says, unless it is refused.
    fn send_cut(
        &mut self,
        cx: &Context,
        cut: &Cut,
        offer: &mut impl Accept,
    ) -> Result<Transmit, Wait> {
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
        let mut built = self.build_data(cx, parts);
        let Cut { len, bound, tail, .. } = *cut;
        let decision = Decision::Cut { len, segs: built.packet.segs, bound, tail };
        let note = Note { released: self.released(cx), decision };
        self.note(cx, &mut built.packet, note);
        offer(&built.packet).map_err(|refusal| Wait::refused(cx, refusal))?;
        self.log(cx, note);
        self.end_hold(cx);
        self.commit_cut(cx, cut, &built);
        self.writes = 0;
        Ok(built.packet)
    }

    /// The packet has left: everything moves.
    fn commit_cut(&mut self, cx: &Context, cut: &Cut, built: &build::Built) {
        let serial = self.snd.next_serial();
        self.commit_data(cx, built);
        // First: the backoff of window probes is not that of what leaves now.
        self.end_persist();
        let committed = self.snd.commit(cut);
        self.timers.stop(Timer::TsoDefer);
        let packet = &built.packet;
        let sent = (serial, packet.departure);
        let parts = self.conn_parts(cx);
        self.snd.on_sent(cx, &parts, &committed, sent, &packet.payload);
        self.sync_retransmission_timer();
        if self.snd.report_sent(cx.now) {
            self.events.insert(Events::REPORT);
        }
        cx.counters.add(Counter::TcpOrigDataSent, u64::from(packet.segs));
    }
}

/// What lies below, asked whether it takes a packet.
trait Accept: FnMut(&Transmit) -> Result<(), Refusal> {}

impl<F: FnMut(&Transmit) -> Result<(), Refusal>> Accept for F {}

/// No bytes.
const NOTHING: Slices = Slices::new();

#[cfg(test)]
mod properties;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
