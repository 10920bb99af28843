//! Probes into a closed window (RFC 9293, section 3.8.6.1), and the end of silly-window avoidance.
//!
//! The Persist timer runs while unsent data waits for the peer's window and nothing is in flight
//! whose acknowledgement could bring news. It backs off like the retransmission timer. A probe is a
//! segment without data just left of the window, as on Linux: the peer must answer it with its
//! present window, and no byte of the stream depends on the probe, so an autotuned buffer or a
//! probe that is lost cannot confuse anything. A peer that answers keeps the connection alive for
//! ever; one that does not is given up like one that acknowledges nothing.

use crate::connection::{Connection, Context};
use crate::output::Hold;
use crate::timer::Timer;

impl Connection {
    /// The peer's window held something back and nothing is in flight: makes the timer run.
    pub(crate) fn sync_persist(&mut self, cx: &Context) {
        let waits = matches!(self.last_hold, Some(Hold::Rwnd | Hold::SillyWindow));
        if !waits || !self.snd.rtx.is_empty() {
            self.timers.stop(Timer::Persist);
        } else if !self.timers.is_armed(Timer::Persist) {
            self.timers.arm(Timer::Persist, cx.now + self.recovery.rto(cx.config));
        }
    }

    /// The Persist timer fired.
    pub(crate) fn on_persist_timeout(&mut self, cx: &Context) {
        if !self.wants_to_send() || !self.snd.rtx.is_empty() {
            return;
        }
        if self.snd.usable_window() > 0 {
            self.snd.override_silly_window = true;
            return;
        }
        if self.give_up_if_exhausted(cx) {
            return;
        }
        let since = *self.recovery.retrying_since.get_or_insert(cx.now);
        self.recovery.retries = self.recovery.retries.saturating_add(1);
        self.watch_user_timeout(cx, since);
        self.recovery.back_off();
        self.pending.window_probe = true;
        self.timers.arm(Timer::Persist, cx.now + self.recovery.rto(cx.config));
    }
}
