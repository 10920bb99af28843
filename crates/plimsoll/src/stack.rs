//! The handle of a running stack, and the threads that run it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_stack::device::Device;
use plimsoll_stack::qdisc::KindError;
use plimsoll_stack::{
    InterfaceStatus, MemoryUse, QdiscSummary, SocketSummary, Stack as Core, StackError,
};
use plimsoll_tcp::Instant;

use crate::builder::StackBuilder;
use crate::clock::now;

/// Packets that one poll takes from each device at most, so that sockets get their turn.
const BUDGET: usize = 256;

/// A stack. Clones are handles of the same stack; so is every socket. When the last handle is
/// dropped the stack ends.
#[derive(Clone)]
pub struct Stack {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

/// What a softirq thread holds: the stack, but not its handle, so that handles can run out.
struct Inner {
    core: Arc<Core>,
    busy_poll: Duration,
    spin_while_sending: bool,
    stop: AtomicBool,
    /// Nanoseconds of the clock after which the threads need not wait for connections to close.
    grace: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        if threads.is_empty() {
            return;
        }
        self.inner.stop.store(true, Ordering::SeqCst);
        self.inner.core.kick_all();
        // A socket whose last handle went away inside a callback may end the stack on its own
        // thread, which cannot wait for itself, nor for others that wait for its work.
        let me = std::thread::current().id();
        if threads.iter().all(|thread| thread.thread().id() != me) {
            for thread in threads {
                // A panic of the thread has been reported by its hook.
                let _ = thread.join();
            }
        }
    }
}

/// Ends a [`Stack::wait`] from anywhere. It does not keep the stack alive; once the stack has
/// ended, it does nothing.
#[derive(Clone, Debug)]
pub struct Kicker(Weak<Core>);

impl Kicker {
    /// As [`Stack::kick`].
    pub fn kick(&self) {
        if let Some(core) = self.0.upgrade() {
            core.wait_handle().kick();
        }
    }
}

/// What [`Stack::poll`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Whether anything was done; if so, polling again may find more.
    pub worked: bool,
    /// When the next timer is due.
    pub next: Option<Instant>,
    /// The stack has come to its end, because a device has gone. Every socket has been told, and
    /// polling again is of no use.
    pub ended: bool,
}

impl Polled {
    fn of(outcome: Result<plimsoll_stack::Poll, StackError>) -> Polled {
        match outcome {
            Ok(poll) => Polled { worked: poll.worked, next: poll.next, ended: false },
            Err(_) => Polled { worked: false, next: None, ended: true },
        }
    }
}

impl Stack {
    /// A builder with no device yet.
    pub fn builder() -> StackBuilder {
        StackBuilder::new()
    }

    pub(crate) fn run(
        core: Arc<Core>,
        (busy_poll, spin_while_sending): (Duration, bool),
        thread: Option<String>,
    ) -> std::io::Result<Stack> {
        let (stop, grace) = (AtomicBool::new(false), AtomicU64::new(0));
        let inner = Arc::new(Inner { core, busy_poll, spin_while_sending, stop, grace });
        let queues = inner.core.queue_count();
        let mut shared = Shared { inner, threads: Vec::new() };
        let Some(name) = thread else { return Ok(Stack { shared: Arc::new(shared) }) };
        for queue in 0..queues {
            let inner = shared.inner.clone();
            let name = if queue == 0 { name.clone() } else { format!("{name}/{queue}") };
            let thread = std::thread::Builder::new().name(name);
            shared.threads.push(thread.spawn(move || inner.softirq(queue))?);
        }
        Ok(Stack { shared: Arc::new(shared) })
    }

    /// Does what is due: timers, packets that arrived, completions, packets to send. For the loop
    /// that runs a stack built [without a thread](StackBuilder::build_without_thread); with a
    /// thread it does no harm.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let builder = plimsoll::Stack::builder().device(device).address("192.0.2.1/24");
    /// # let stack = builder.build_without_thread()?;
    /// let polled = stack.poll();
    /// assert!(!polled.worked);
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    pub fn poll(&self) -> Polled {
        self.shared.inner.poll(0)
    }

    /// As [`poll`](Self::poll), for a loop that also runs what uses the sockets. `turn` is called
    /// when packets have arrived, their readers have been woken, and nothing is acknowledged yet:
    /// an answer that it writes carries the ACK, so that a request and its response are one packet
    /// each. It may use sockets, but must not poll.
    pub fn poll_with(&self, mut turn: impl FnMut()) -> Polled {
        let core = &self.shared.inner.core;
        Polled::of(core.poll_with(now(), BUDGET, &mut turn))
    }

    /// Sleeps until a device is readable, somebody [kicks](Self::kick), or `until` comes. Returns
    /// at once if `ready` says so when asked after the stack has published that it sleeps: that is
    /// the place to look at a [`ReadyQueue`](crate::ReadyQueue).
    pub fn wait(&self, until: Option<Instant>, ready: impl Fn() -> bool) {
        self.shared.inner.wait(0, until, &ready);
    }

    /// Ends a [`wait`](Self::wait), now or the next one. Costs a system call only if the loop
    /// sleeps.
    pub fn kick(&self) {
        self.shared.inner.core.wait_handle().kick();
    }

    /// Something that can kick without keeping the stack alive.
    pub fn kicker(&self) -> Kicker {
        Kicker(Arc::downgrade(&self.shared.inner.core))
    }

    /// Waits until all connections have delivered what was written to them and have closed, but no
    /// longer than `grace`. Connections in TIME-WAIT count as closed.
    ///
    /// Without a thread this polls the stack itself. With one, the wait is that of the last handle
    /// that is dropped, and this handle is often the last: the thread ends only when streams,
    /// listeners and clones are gone as well, and goes on for at most `grace` then.
    pub fn drain(self, grace: Duration) {
        let inner = &self.shared.inner;
        let limit = now() + grace;
        if self.shared.threads.is_empty() {
            inner.run_until(0, || inner.is_quiet() || now() >= limit, Some(limit));
            return;
        }
        inner.grace.store(limit.as_nanos(), Ordering::SeqCst);
        inner.core.kick_all();
    }

    /// All counters by Linux's names, in the order in which `nstat` prints them.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// assert!(stack.counters().contains(&("TcpOutSegs", 0)));
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.core().counters()
    }

    /// What the queues of all connections hold, and the limits on it (`net.ipv4.tcp_mem`).
    pub fn memory(&self) -> MemoryUse {
        self.core().memory()
    }

    /// A setting by Linux's name, as text; `None` if there is no such setting.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        self.core().sysctl().get(name).ok()
    }

    /// Changes a setting by Linux's name.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// stack.set_sysctl("net.ipv4.tcp_sack", "0").expect("a known setting");
    /// assert_eq!(stack.sysctl("net.ipv4.tcp_sack").as_deref(), Some("0"));
    /// assert!(stack.set_sysctl("net.ipv4.tcp_sock", "0").is_err());
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such setting, or it cannot have that value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), plimsoll_stack::SysctlError> {
        self.core().set_sysctl(now(), name, value)
    }

    /// All settings by name.
    pub fn sysctls(&self) -> Vec<(&'static str, String)> {
        self.core().sysctl().list()
    }

    /// The queueing discipline of every interface, the loopback last, and what it has counted.
    pub fn qdiscs(&self) -> Vec<QdiscSummary> {
        self.core().qdiscs()
    }

    /// Gives the interface with the place `index` in [`qdiscs`](Self::qdiscs) another queueing
    /// discipline, as `tc qdisc` takes it. What is queued moves over.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// stack.set_qdisc(0, "fq flow_limit 50").expect("a known discipline");
    /// assert_eq!(stack.qdiscs()[0].kind.name(), "fq");
    /// assert!(stack.set_qdisc(0, "sfq").is_err());
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such interface or discipline, or a parameter is wrong.
    pub fn set_qdisc(&self, index: usize, text: &str) -> Result<(), KindError> {
        self.core().set_qdisc(now(), index, text)
    }

    /// All interfaces in the order of [`qdiscs`](Self::qdiscs), and why one is down if it is.
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.core().interfaces()
    }

    /// Gives the interface with the place `index` in [`interfaces`](Self::interfaces) another
    /// device, whether the one that it has works or has failed. Addresses and queueing discipline
    /// stay. Connections over a device that still worked go on.
    ///
    /// ```
    /// # use plimsoll::device::memory_link;
    /// # let (device, _peer) = memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// let (another, _peer) = memory_link::pair(Default::default());
    /// stack.replace_device(0, another).expect("an interface of the configuration");
    /// assert!(stack.interfaces()[0].error.is_none());
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, the device's MTU is too small, or the stack
    /// has come to its end, as it does when its only device fails.
    pub fn replace_device(&self, index: usize, device: Device) -> Result<(), StackError> {
        self.core().replace_device(now(), index, device)
    }

    /// All sockets, for `ss`.
    pub fn sockets(&self) -> Vec<SocketSummary> {
        self.core().sockets()
    }

    /// The core below: the stack without clock and threads.
    pub fn core(&self) -> &Arc<Core> {
        &self.shared.inner.core
    }
}

impl Inner {
    fn poll(&self, queue: usize) -> Polled {
        Polled::of(self.core.poll_queue(queue, now(), BUDGET))
    }

    fn wait(&self, queue: usize, until: Option<Instant>, ready: &dyn Fn() -> bool) {
        if self.core.wait_for_queue(queue, now(), until, ready).is_err() {
            // The system refuses to wait; what it takes is there again in a moment.
            std::thread::yield_now();
        }
    }

    /// The life of the softirq thread of one queue.
    fn softirq(&self, queue: usize) {
        self.run_until(queue, || self.stop.load(Ordering::SeqCst), None);
        let grace = Instant::from_nanos(self.grace.load(Ordering::SeqCst));
        self.run_until(queue, || self.is_quiet() || now() >= grace, Some(grace));
        // The last connection may have been of this queue, and the others wait for it.
        self.core.kick_all();
    }

    fn run_until(&self, queue: usize, done: impl Fn() -> bool, limit: Option<Instant>) {
        let mut last_work = now();
        while !done() {
            let polled = self.poll(queue);
            if polled.ended {
                return;
            }
            if polled.worked {
                if !self.busy_poll.is_zero() {
                    last_work = now();
                }
                continue;
            }
            if !self.busy_poll.is_zero() && now().since(last_work) < self.busy_poll {
                std::hint::spin_loop();
                continue;
            }
            if self.spin_while_sending && self.core.is_sending() {
                std::hint::spin_loop();
                continue;
            }
            let until = match (polled.next, limit) {
                (Some(next), Some(limit)) => Some(next.min(limit)),
                (next, limit) => next.or(limit),
            };
            let ends = || match limit {
                None => self.stop.load(Ordering::SeqCst),
                Some(_) => self.is_quiet(),
            };
            self.wait(queue, until, &ends);
        }
    }

    /// Whether every connection has closed, or waits only for old packets to die.
    fn is_quiet(&self) -> bool {
        self.core.orphan_count() == 0
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("has_thread", &!self.shared.threads.is_empty())
            .finish_non_exhaustive()
    }
}
