//! State transitions, and the end of a connection.

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::{ConnectionError, Events};
use crate::state::State;
use crate::time::Nanos;
use crate::timer::Timer;

impl Connection {
    /// Enters the state `next` and does the work of entering it.
    pub(crate) fn set_state(&mut self, cx: &Context, next: State) {
        debug_assert!(self.state.may_become(next), "{:?} -> {next:?}", self.state);
        let was = self.state;
        #[cfg(test)]
        crate::state::tests::note(was, next);
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
        self.tell_fast_open();
        self.timers.stop_all();
        self.timers.arm(Timer::TimeWait, cx.now + Nanos::from(cx.config.tcp_fin_timeout));
        self.events.insert(Events::TIME_WAIT);
    }

    /// Reports the outcome of a Fast Open when the connection has ended.
    fn tell_fast_open(&mut self) {
        if let Some(open) = &mut self.fast_open {
            open.on_end(self.rcv.stats().segs > 0, self.rcv.awaits_data_before_fin());
        }
    }

    fn enter_closed(&mut self, cx: &Context, was: State) {
        self.tell_fast_open();
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

    /// Ends a connection that the application has released, and not in order. No reset is sent by
    /// this alone.
    pub(crate) fn discard(&mut self, cx: &Context) {
        self.discarded = true;
        self.set_state(cx, State::Closed);
    }

    /// How long an orphan may stay in FIN-WAIT-2.
    fn fin_wait_2_time(&self, cx: &Context) -> Nanos {
        self.options.linger2.unwrap_or(cx.config.tcp_fin_timeout).into()
    }

    /// An orphan waits in FIN-WAIT-2 for the peer's FIN, but not for ever.
    pub(crate) fn arm_fin_wait_2(&mut self, cx: &Context) {
        self.rcv.forget_out_of_order();
        let time = self.fin_wait_2_time(cx);
        if time.is_zero() {
            cx.counters.bump(Counter::TcpAbortOnLinger);
            self.queue_rst();
            self.discard(cx);
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
