//! One of the queues of a stack: what it polls with, and what waits for it.

use std::sync::{Arc, Mutex};

use crate::error::StackError;
use crate::interfaces::Interfaces;
use crate::pollers::completion::Completions;
use crate::pollers::poll_state::PollState;
use crate::pollers::queue_pool::QueuePool;
use crate::pollers::spinner::Spinner;
use crate::pollers::timer_wheel::TimerWheel;
use crate::pollers::waiter::Waiter;
use crate::sync::timed::Timed;

/// One of the queues of a stack.
pub(crate) struct Queue {
    pub(crate) poller: Mutex<PollState>,
    pub(crate) wheel: Timed<TimerWheel>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) waiter: Waiter,
    pub(crate) buffers: QueuePool,
    pub(crate) spinner: Spinner,
}

impl Queue {
    /// As many queues as there are to be, at least one. Every interface knows which is its own.
    pub(crate) fn build_all(
        count: usize,
        interfaces: &Interfaces,
    ) -> Result<Box<[Queue]>, StackError> {
        (0..count.max(1)).map(|index| Queue::new(index as u8, interfaces)).collect()
    }

    fn new(index: u8, interfaces: &Interfaces) -> Result<Queue, StackError> {
        let waiter = Waiter::new(interfaces.of(index))?;
        Ok(Queue {
            poller: Mutex::default(),
            wheel: Timed::default(),
            completions: Arc::new(Completions::new(waiter.handle())),
            waiter,
            buffers: QueuePool::default(),
            spinner: Spinner::default(),
        })
    }
}
