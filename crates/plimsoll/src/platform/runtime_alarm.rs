//! An alarm that is the runtime's own timer.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use plimsoll_stack::StackError;
use plimsoll_tcp::Instant;
use tokio::time::Sleep;

use super::Alarm;

/// Wakes a task at a time.
#[derive(Default)]
pub(crate) struct RuntimeAlarm(Option<Pin<Box<Sleep>>>);

impl RuntimeAlarm {
    /// Forgets that it has gone off.
    pub(crate) fn forget(&mut self, _cx: &mut Context<'_>) -> Result<(), StackError> {
        Ok(())
    }

    /// Has `cx` be woken at `until`.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        until: Instant,
        cx: &mut Context<'_>,
    ) -> Result<Alarm, StackError> {
        let at = tokio::time::Instant::now() + until.since(now);
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        sleep.as_mut().reset(at);
        let due = sleep.as_mut().poll(cx).is_ready();
        Ok(if due { Alarm::Due } else { Alarm::Later })
    }
}
