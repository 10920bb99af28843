//! The states of RFC 9293, section 3.3.2, and which may follow which.

use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::event::{ConnectionError, Events};
use crate::time::Duration;
use crate::timer::Timer;

/// The state of a connection. LISTEN belongs to the stack's listener table; a connection begins in
/// SYN-SENT or SYN-RECEIVED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are RFC 9293's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Every transition of RFC 9293, figure 5, without those to CLOSED, which every state has;
/// `state.dot` beside this file draws them.
///
/// Three edges of the figure are walked in two steps, and one is missing. A close in SYN-RECEIVED
/// only queues the FIN, which the RFC allows, and ESTABLISHED is left at once; a segment that ends
/// the handshake and carries a FIN passes ESTABLISHED; and one that acknowledges our FIN and
/// carries the peer's passes FIN-WAIT-2. The way from LAST-ACK ends in CLOSED.
pub(crate) const TRANSITIONS: [(State, State); 10] = {
    use State::*;
    [
        (SynSent, SynReceived),
        (SynSent, Established),
        (SynReceived, Established),
        (Established, FinWait1),
        (Established, CloseWait),
        (FinWait1, FinWait2),
        (FinWait1, Closing),
        (FinWait2, TimeWait),
        (CloseWait, LastAck),
        (Closing, TimeWait),
    ]
};

impl State {
    /// Whether both sequence numbers are known to both sides (RFC 9293, section 3.10.7.4 lists
    /// them; CLOSED is not among them).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether our FIN is queued or sent in this state.
    pub const fn sent_fin(self) -> bool {
        use State::*;
        matches!(self, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
    }

    /// Whether the peer's FIN has been taken in this state.
    pub const fn received_fin(self) -> bool {
        use State::*;
        matches!(self, CloseWait | Closing | LastAck | TimeWait)
    }

    pub(crate) fn may_become(self, next: State) -> bool {
        next == State::Closed || TRANSITIONS.contains(&(self, next))
    }

    /// The state after our FIN was queued.
    pub(crate) const fn after_shutdown(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }
}

impl Connection {
    /// Goes to `next` and does what belongs to entering it.
    pub(crate) fn set_state(&mut self, cx: &Context, next: State) {
        debug_assert!(self.state.may_become(next), "{:?} -> {next:?}", self.state);
        let was = self.state;
        #[cfg(test)]
        tests::note(was, next);
        self.state = next;
        match next {
            State::Established => self.enter_established(cx),
            State::FinWait2 if self.orphan => self.arm_fin_wait_2(cx),
            State::FinWait1 | State::FinWait2 | State::CloseWait => self.sync_half_close(cx),
            State::TimeWait => self.enter_time_wait(cx),
            State::Closed => self.enter_closed(cx, was),
            _ => {}
        }
    }

    fn enter_established(&mut self, cx: &Context) {
        self.events.insert(Events::CONNECTED);
        self.events.insert(Events::WRITABLE);
        self.sync_keepalive(cx);
    }

    fn enter_time_wait(&mut self, cx: &Context) {
        self.judge_fast_open();
        self.timers.stop_all();
        self.timers.arm(Timer::TimeWait, cx.now + cx.config.tcp_fin_timeout);
        self.events.insert(Events::TIME_WAIT);
    }

    fn enter_closed(&mut self, cx: &Context, was: State) {
        self.judge_fast_open();
        self.timers.stop_all();
        self.pending.syn = false;
        self.pending.challenge_ack = false;
        self.pending.keepalive = false;
        self.pending.window_probe = false;
        self.rcv.end();
        self.snd.clear();
        match was {
            State::SynSent | State::SynReceived => cx.counters.bump(Counter::AttemptFails),
            State::Established | State::CloseWait => cx.counters.bump(Counter::EstabResets),
            _ => {}
        }
        self.events.insert(Events::CLOSED);
    }

    /// Ends the connection with `error`. No reset is sent by this alone.
    pub(crate) fn fail(&mut self, cx: &Context, error: ConnectionError) {
        if self.state == State::Closed {
            return;
        }
        self.error = Some(error);
        self.set_state(cx, State::Closed);
        self.events.insert(Events::ERROR);
        self.events.insert(Events::READABLE);
        self.events.insert(Events::WRITABLE);
    }

    /// How long an orphan may stay in FIN-WAIT-2.
    fn fin_wait_2_time(&self, cx: &Context) -> Duration {
        self.options.linger2.unwrap_or(cx.config.tcp_fin_timeout)
    }

    /// An orphan waits in FIN-WAIT-2 for the peer's FIN, but not for ever.
    pub(crate) fn arm_fin_wait_2(&mut self, cx: &Context) {
        self.rcv.forget_out_of_order();
        let time = self.fin_wait_2_time(cx);
        if time.is_zero() {
            cx.counters.bump(Counter::TcpAbortOnLinger);
            self.queue_rst();
            self.set_state(cx, State::Closed);
        } else {
            self.timers.arm(Timer::FinWait2, cx.now + time);
        }
    }

    pub(crate) fn on_fin_wait_2_timeout(&mut self, cx: &Context) {
        if self.state == State::FinWait2 && self.orphan {
            // As on Linux, the orphan ends without a word; a late segment meets a reset.
            self.set_state(cx, State::Closed);
        }
    }

    pub(crate) fn on_time_wait_timeout(&mut self, cx: &Context) {
        if self.state == State::TimeWait {
            cx.counters.bump(Counter::TimeWaitEntered);
            self.set_state(cx, State::Closed);
        }
    }
}

#[cfg(test)]
mod tests;
