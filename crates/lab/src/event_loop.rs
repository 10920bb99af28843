//! One thread that runs a stack to completion together with everything that uses it.
//!
//! A *task* owns a socket and is called when the socket can go on. Between calls the loop polls the
//! stack, so a packet goes from the device to the task and the answer back without a switch of
//! threads, and the answer carries the acknowledgement. When neither the stack nor a task has
//! anything to do, the loop polls on for as long as [`WhenIdle`] says, then sleeps until a device
//! is readable, a timer is due, or another thread kicks it.
//!
//! Limits: a task that has much to do returns [`Turn::Again`] after about [`Around::turn_bytes`],
//! so that the stack and the other tasks get their turn. That is less while several tasks run: what
//! one of them sends, the others wait for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use plimsoll::{
    IdlePolls, Instant, Kicker, Polled, QueueLoop, ReadyQueue, Stack, StackError, TcpStream,
};

/// Bytes that a task moves in one turn, about, while it is the only one that runs.
pub const TURN_BYTES: usize = 512 * 1024;

/// The same while others run, too, but for a read that takes all that its buffer holds. `cargo
/// xtask bench latency` shows what they wait.
pub const SHARED_TURN_BYTES: usize = 64 * 1024;

/// How long nobody else has run until a task counts as the only one.
const TIME_ALONE: Duration = Duration::from_millis(100);

/// Bytes of the buffer that the tasks of a loop share.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// What a loop does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenIdle {
    /// It sleeps at once.
    Sleep,
    /// It polls for so long before it sleeps, and keeps its processor meanwhile.
    Poll(Duration),
    /// It polls while that pays, and gives its processor to others meanwhile ([`IdlePolls`]).
    Adapt,
}

/// What a task wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To be called when its waker is woken.
    Sleep,
    /// To be called again soon: it could go on.
    Again,
    /// Nothing more; it is dropped.
    Done,
}

/// What a task finds around it.
pub struct Around<'a> {
    /// Wakes this task.
    pub waker: &'a Waker,
    /// A buffer for whatever the task reads or writes. What is in it is of no meaning.
    pub scratch: &'a mut [u8],
    /// Tasks to start.
    pub spawn: &'a mut Vec<Box<dyn Task>>,
    /// When this task is called at the latest, woken or not. It stays as the task left it until
    /// the time has come; `None` is never.
    pub deadline: &'a mut Option<Instant>,
    /// What the loop has been told by its owner.
    pub phase: u32,
    /// Bytes that this task should move before it returns [`Turn::Again`], about.
    pub turn_bytes: usize,
}

/// Something that runs in a loop.
pub trait Task {
    /// Goes on as far as it can without blocking.
    fn run(&mut self, around: &mut Around<'_>) -> Turn;

    /// Its connection, if that is at home in another queue than `own` and nothing of the task is
    /// half done: a new task of the same kind can go on with it, and this one is over.
    fn moved_from(&mut self, _own: usize) -> Option<TcpStream> {
        None
    }
}

struct Slot {
    task: Box<dyn Task>,
    waker: Waker,
    deadline: Option<Instant>,
    /// The earliest time at which `deadlines` has this slot.
    noted: Option<Instant>,
}

/// The loop.
pub struct EventLoop {
    /// What it polls; gone while it runs.
    runner: Option<Runner>,
    /// Why the stack has come to its end, if the loop has seen that.
    ended: Option<StackError>,
    ready: ReadyQueue,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Tokens to run in the next round.
    runnable: Vec<usize>,
    /// Times and tokens of tasks with a deadline, the earliest on top. A task that has moved its
    /// deadline is looked up when the old time comes.
    deadlines: BinaryHeap<Reverse<(Instant, usize)>>,
    scratch: Vec<u8>,
    idle: Idle,
    phase: u32,
    company: Company,
}

/// Whether one task has the loop for itself.
#[derive(Debug, Default)]
struct Company {
    /// When this round began.
    now: Instant,
    /// The token of the task that ran last, and since when no other has.
    last: Option<(usize, Instant)>,
}

impl Company {
    /// A task runs. Returns what it should move, in bytes.
    fn turn_bytes(&mut self, token: usize) -> usize {
        let last = self.last.filter(|&(last, _)| last == token);
        let (_, since) = *self.last.insert(last.unwrap_or((token, self.now)));
        let alone = self.now.since(since);
        if alone < TIME_ALONE { SHARED_TURN_BYTES } else { TURN_BYTES }
    }
}

/// [`WhenIdle`], with what it needs.
enum Idle {
    Sleep,
    /// For how long; since when there has been nothing to do.
    Poll(Duration, Option<Instant>),
    Adapt(IdlePolls),
}

impl Idle {
    fn new(when: WhenIdle) -> Idle {
        match when {
            WhenIdle::Sleep => Idle::Sleep,
            WhenIdle::Poll(time) => Idle::Poll(time, None),
            WhenIdle::Adapt => Idle::Adapt(IdlePolls::new()),
        }
    }

    /// The loop has found work.
    fn on_work(&mut self) {
        match self {
            Idle::Sleep => {}
            Idle::Poll(_, since) => *since = None,
            Idle::Adapt(polls) => polls.on_work(),
        }
    }

    /// Whether the loop, which has found nothing at `now`, polls again.
    fn poll_again(&mut self, now: Instant) -> bool {
        match self {
            Idle::Sleep => false,
            Idle::Poll(time, since) => {
                let again = now.since(*since.get_or_insert(now)) < *time;
                if again {
                    std::hint::spin_loop();
                } else {
                    *since = None;
                }
                again
            }
            Idle::Adapt(polls) => polls.poll_again(),
        }
    }
}

/// What a loop polls and waits for.
enum Runner {
    /// All queues of a stack.
    Stack(Stack),
    /// One of them.
    Queue(QueueLoop),
}

impl Runner {
    fn poll_with(&mut self, turn: impl FnMut()) -> Polled {
        match self {
            Runner::Stack(stack) => stack.poll_with(turn),
            Runner::Queue(queue) => queue.poll_with(turn),
        }
    }

    fn wait(&mut self, until: Option<Instant>, ready: impl Fn() -> bool) -> Result<(), StackError> {
        match self {
            Runner::Stack(stack) => stack.wait(until, ready),
            Runner::Queue(queue) => queue.wait(until, ready),
        }
    }
}

/// Asks a loop, or all loops of a stack, to stop, from any thread.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    kicker: Kicker,
}

impl Stopper {
    /// A stopper for loops that run `stack`.
    pub fn new(stack: &Stack) -> Stopper {
        Stopper { stop: Arc::default(), kicker: stack.kicker() }
    }

    /// Asks.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.kicker.kick();
    }

    /// Whether somebody has asked.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl EventLoop {
    /// A loop that runs `stack`, all its queues.
    pub fn new(stack: &Stack, idle: WhenIdle) -> EventLoop {
        EventLoop::with(Runner::Stack(stack.clone()), ReadyQueue::new(stack), idle)
    }

    /// A loop that runs one queue of a stack. Others run the others, and what uses a connection
    /// runs in the loop of its queue ([`TcpStream::queue`](plimsoll::TcpStream::queue)).
    pub fn of_queue(queue: QueueLoop, idle: WhenIdle) -> EventLoop {
        let ready = ReadyQueue::with_kicker(queue.kicker());
        EventLoop::with(Runner::Queue(queue), ready, idle)
    }

    fn with(runner: Runner, ready: ReadyQueue, idle: WhenIdle) -> EventLoop {
        EventLoop {
            runner: Some(runner),
            ended: None,
            ready,
            slots: Vec::new(),
            free: Vec::new(),
            runnable: Vec::new(),
            deadlines: BinaryHeap::new(),
            scratch: vec![0; SCRATCH_BYTES],
            idle: Idle::new(idle),
            phase: 0,
            company: Company::default(),
        }
    }

    /// Starts a task. It is called in the next round.
    pub fn spawn(&mut self, task: Box<dyn Task>) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        // A waker of the token's former task may still be queued; being called once too often is
        // harmless.
        let waker = self.ready.waker(token);
        self.slots[token] = Some(Slot { task, waker, deadline: None, noted: None });
        self.runnable.push(token);
    }

    /// Tasks that are not done.
    pub fn tasks(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Tells every task, by [`Around::phase`], that something has begun or ended.
    pub fn set_phase(&mut self, phase: u32) {
        self.phase = phase;
        let live = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        self.runnable.extend(live.map(|(token, _)| token));
    }

    /// Why the stack has come to its end, if the loop has seen that.
    pub fn ended(&self) -> Option<&StackError> {
        self.ended.as_ref()
    }

    /// Runs until `done` says so, until `limit`, or until the stack has come to its
    /// [end](Self::ended).
    ///
    /// `done` is asked in every round, and once more after the loop has announced that it is about
    /// to sleep. A change that another thread makes is therefore seen if that thread kicks the
    /// stack after it; [`Stopper::stop`] does.
    pub fn run(&mut self, limit: Option<Instant>, done: impl Fn(&EventLoop) -> bool) {
        let Some(mut runner) = self.runner.take() else { return };
        self.run_with(&mut runner, limit, &done);
        self.runner = Some(runner);
    }

    fn run_with(
        &mut self,
        runner: &mut Runner,
        limit: Option<Instant>,
        done: &impl Fn(&EventLoop) -> bool,
    ) {
        while !done(self) {
            let now = plimsoll::now();
            if limit.is_some_and(|limit| now >= limit) {
                return;
            }
            self.company.now = now;
            self.expire(now);
            let polled = runner.poll_with(|| {
                self.run_tasks();
            });
            if self.run_tasks() || polled.worked {
                self.idle.on_work();
                continue;
            }
            if polled.ended.is_some() {
                self.ended = polled.ended;
                return;
            }
            if self.idle.poll_again(now) {
                continue;
            }
            let deadline = self.deadlines.peek().map(|Reverse((at, _))| *at);
            let until = [polled.next, limit, deadline].into_iter().flatten().min();
            let waited = runner.wait(until, || !self.ready.is_empty() || done(self));
            if let Err(error) = waited {
                // Only a panic or a second waiter makes it fail, and polling on would spin.
                self.ended = Some(error);
                return;
            }
        }
    }

    /// Makes every task runnable whose deadline has come.
    fn expire(&mut self, now: Instant) {
        while let Some(&Reverse((at, token))) = self.deadlines.peek()
            && at <= now
        {
            self.deadlines.pop();
            // The slot may have another task since, or a later deadline.
            let Some(Some(slot)) = self.slots.get_mut(token) else { continue };
            if slot.noted != Some(at) {
                continue;
            }
            slot.noted = None;
            if slot.deadline.is_some_and(|deadline| deadline <= now) {
                slot.deadline = None;
                self.runnable.push(token);
            } else {
                note(&mut self.deadlines, slot, token);
            }
        }
    }

    /// Calls every task that can run; tells whether there was one.
    fn run_tasks(&mut self) -> bool {
        self.ready.take(&mut self.runnable);
        if self.runnable.is_empty() {
            return false;
        }
        let mut spawn = Vec::new();
        let mut tokens = std::mem::take(&mut self.runnable);
        for token in tokens.drain(..) {
            let Some(Some(slot)) = self.slots.get_mut(token) else { continue };
            let mut around = Around {
                waker: &slot.waker,
                scratch: &mut self.scratch,
                spawn: &mut spawn,
                deadline: &mut slot.deadline,
                phase: self.phase,
                turn_bytes: self.company.turn_bytes(token),
            };
            match slot.task.run(&mut around) {
                Turn::Sleep => note(&mut self.deadlines, slot, token),
                Turn::Again => slot.waker.wake_by_ref(),
                Turn::Done => {
                    self.slots[token] = None;
                    self.free.push(token);
                }
            }
        }
        // The buffer of tokens is kept, so that a round allocates nothing.
        tokens.append(&mut self.runnable);
        self.runnable = tokens;
        spawn.into_iter().for_each(|task| self.spawn(task));
        true
    }
}

/// Sees to it that the loop wakes for the deadline of a slot.
fn note(deadlines: &mut BinaryHeap<Reverse<(Instant, usize)>>, slot: &mut Slot, token: usize) {
    let Some(at) = slot.deadline else { return };
    if slot.noted.is_none_or(|noted| at < noted) {
        slot.noted = Some(at);
        deadlines.push(Reverse((at, token)));
    }
}

#[cfg(test)]
mod tests;
