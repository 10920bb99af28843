//! The handle of a running stack, and the threads that run it.
//!
//! A softirq thread holds the stack but no handle of it, so that the last handle can be dropped. It
//! has the waiter's role of its queue for its whole life, so no other thread waits there. Dropping
//! the last handle does not wait for the thread: that may happen on a thread of an executor, or in
//! a waker that the thread itself has woken.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_stack::device::Device;
use plimsoll_stack::qdisc::KindError;
use plimsoll_stack::{
    Budget, BudgetUse, InterfaceConfig, InterfaceStatus, MemoryUse, Metrics, QdiscSummary,
    QueueWaiter, RouteConfig, RouteMetrics, SocketSummary, Stack as Core, StackError,
    UdpSocketSummary,
};
use plimsoll_tcp::Instant;

use crate::builder::{BuildError, StackBuilder, parse};
use crate::clock::{Clock, now};
use crate::error::refused;
use crate::queue_loop::QueueLoop;
use crate::resolve::Resolve;
use crate::turns;

/// Packets that one poll takes from each device at most, so that sockets get their turn.
pub(crate) const BUDGET: usize = 256;

/// A stack. Clones are handles of the same stack; so is every socket. When the last handle is
/// dropped the stack ends: its threads end by themselves, and the drop does not wait for them.
/// [`shutdown`](Self::shutdown) does.
#[derive(Clone)]
pub struct Stack {
    shared: Arc<Shared>,
}

/// The application's function that runs on each softirq thread when it starts.
pub(crate) type OnThreadStart = Arc<dyn Fn(usize) + Send + Sync>;

/// The settings of softirq threads.
#[derive(Default)]
pub(crate) struct Threads {
    /// The name of the first.
    pub(crate) name: String,
    pub(crate) on_start: Option<OnThreadStart>,
}

struct Shared {
    inner: Arc<Inner>,
    has_threads: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The part of a stack that its softirq threads hold. It is not a handle, so the last handle can
/// go.
pub(crate) struct Inner {
    core: Arc<Core>,
    /// `None` is the clock of the process.
    clock: Option<Arc<dyn Clock>>,
    /// `None` is the host's.
    resolver: Option<Arc<dyn Resolve>>,
    busy_poll: Duration,
    spin_while_sending: bool,
    stop: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

/// Ends a [`Stack::wait`] or a [`QueueLoop::wait`] from anywhere. It does not keep the stack alive;
/// once the stack has ended, it does nothing.
#[derive(Clone, Debug)]
pub struct Kicker {
    core: Weak<Core>,
    /// `None` is all of them.
    queue: Option<usize>,
}

impl Kicker {
    pub(crate) fn of(core: &Arc<Core>, queue: Option<usize>) -> Kicker {
        Kicker { core: Arc::downgrade(core), queue }
    }

    /// Ends the wait, as [`Stack::kick`].
    pub fn kick(&self) {
        let Some(core) = self.core.upgrade() else { return };
        match self.queue {
            Some(queue) => core.kick(queue),
            None => core.kick_all(),
        }
    }
}

/// The result of [`Stack::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// Whether anything was done; if so, polling again may find more.
    pub worked: bool,
    /// When the next timer is due.
    pub next: Option<Instant>,
    /// Why the stack has come to its end, if it has: a device has failed, or a thread that ran the
    /// stack has panicked. Every socket was notified, and polling again has no effect.
    pub ended: Option<StackError>,
}

impl Polled {
    pub(crate) fn of(outcome: Result<plimsoll_stack::Poll, StackError>) -> Polled {
        match outcome {
            Ok(poll) => Polled { worked: poll.worked, next: poll.next, ended: None },
            Err(error) => Polled { worked: false, next: None, ended: Some(error) },
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
        clock: Option<Arc<dyn Clock>>,
        resolver: Option<Arc<dyn Resolve>>,
        (busy_poll, spin_while_sending): (Duration, bool),
        threads: Option<Threads>,
    ) -> Result<Stack, BuildError> {
        let stop = AtomicBool::new(false);
        let inner = Arc::new(Inner { core, clock, resolver, busy_poll, spin_while_sending, stop });
        let (has_threads, running) = (threads.is_some(), Mutex::default());
        let queues = if has_threads { inner.core.queue_count() } else { 0 };
        let Threads { name, on_start } = threads.unwrap_or_default();
        // If a thread cannot be had, dropping this stops those that run already.
        let shared = Shared { inner, has_threads, threads: running };
        for queue in 0..queues {
            let inner = shared.inner.clone();
            let waiter = inner.core.queue_waiter(queue)?;
            let name = if queue == 0 { name.clone() } else { format!("{name}/{queue}") };
            let thread = std::thread::Builder::new().name(name);
            let on_start = on_start.clone();
            let life = move || inner.softirq(waiter, on_start);
            let thread = thread.spawn(life).map_err(BuildError::Thread)?;
            shared.lock_threads().push(thread);
        }
        Ok(Stack { shared: Arc::new(shared) })
    }

    /// Does all work that is due, in all queues: timers, packets that arrived, completions, packets
    /// to send. Call it in the loop that runs a stack built [without a
    /// thread](StackBuilder::build_without_thread); with a thread it does no harm.
    ///
    /// If the last working device fails or panics, this ends the stack, and [`Polled::ended`] says
    /// so. A panic of a device is caught.
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
        turns::end();
        Polled::of(self.core().poll(self.now(), BUDGET))
    }

    /// As [`poll`](Self::poll), for a loop that also runs the users of the sockets. `turn` is
    /// called when packets have arrived and their readers have been woken, before anything is
    /// acknowledged. An answer that it writes carries the ACK, so that a request and its response
    /// are one packet each. It may use sockets, but must not poll. If it panics, the panic
    /// continues at the end of the poll, and the stack stays usable.
    pub fn poll_with(&self, mut turn: impl FnMut()) -> Polled {
        turns::end();
        let mut turn = || {
            turn();
            turns::end();
        };
        Polled::of(self.core().poll_with(self.now(), BUDGET, &mut turn))
    }

    /// Sleeps until a device of any queue is readable, a thread calls [`kick`](Self::kick), or
    /// `until` is reached. After the stack has published that it sleeps, it calls `ready`, and
    /// returns at once if that is true. Check a [`ReadyQueue`](crate::ReadyQueue) there.
    ///
    /// Only one thread at a time may wait for a stack. A second one could consume a wake-up that
    /// the first needs.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let builder = plimsoll::Stack::builder().device(device).address("192.0.2.1/24");
    /// let stack = builder.build()?;
    /// let refused = stack.wait(None, || false).expect_err("the stack's own thread waits");
    /// assert!(refused.to_string().starts_with("another thread already waits for queue 0"));
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If another thread waits already, or the stack has threads or a [`QueueLoop`]; if the system
    /// refuses to wait.
    pub fn wait(&self, until: Option<Instant>, ready: impl Fn() -> bool) -> Result<(), StackError> {
        turns::end();
        self.core().wait_unless(self.now(), until, ready)
    }

    /// Ends a [`wait`](Self::wait), now or the next one. Costs a system call only if the loop
    /// sleeps.
    pub fn kick(&self) {
        self.core().kick_all();
    }

    /// A handle that can end a wait without keeping the stack alive.
    pub fn kicker(&self) -> Kicker {
        Kicker::of(self.core(), None)
    }

    /// How many queues there are, as [`StackBuilder::queues`] has asked for.
    pub fn queue_count(&self) -> usize {
        self.core().queue_count()
    }

    /// The loop of one of the queues, which are counted from 0.
    ///
    /// # Errors
    /// If there is no such queue, or it has a loop or a thread already.
    pub fn queue(&self, index: usize) -> Result<QueueLoop, StackError> {
        QueueLoop::new(self, index)
    }

    /// Why the stack has come to its end, if it has.
    pub fn error(&self) -> Option<StackError> {
        self.core().error().cloned()
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

    /// All figures of the stack as they are now: counters, connections by state, memory, queues and
    /// interfaces. It costs the same with ten connections and with a million. It delays packet
    /// processing only for the time that it takes to copy the figures of one interface or one
    /// listener.
    ///
    /// ```
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let _listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// let _stream = plimsoll::TcpStream::connect(&stack, "192.0.2.2:7")?;
    /// let metrics = stack.metrics();
    /// assert_eq!(metrics.connections.established, 1);
    /// assert_eq!(metrics.counter("TcpActiveOpens"), Some(1));
    /// assert!(metrics.interfaces[0].up);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.core().metrics()
    }

    /// The memory in the queues of all connections, and the limits on it (`net.ipv4.tcp_mem`).
    pub fn memory(&self) -> MemoryUse {
        self.core().memory()
    }

    /// The memory in the receive queues of all UDP sockets, and the limit on it
    /// (`net.ipv4.udp_mem`).
    pub fn udp_memory(&self) -> plimsoll_stack::UdpMemoryUse {
        self.core().udp_memory()
    }

    /// Limits what all connections together may use at a time: it sets `plimsoll.max_connections`,
    /// `plimsoll.max_half_open` and `net.ipv4.tcp_mem`. A field that is `None` gets this machine's
    /// default. It may change at any time; existing connections stay. Beyond the limits, a connect
    /// fails with `QuotaExceeded`, and a SYN is refused as its listener is set
    /// ([`TcpListener::set_refusal`](crate::TcpListener::set_refusal)). When memory is short,
    /// writers wait. Each of these is counted (`plimsoll.Budget*`).
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// use plimsoll::Budget;
    /// let budget = Budget::default().connections(Some(10_000)).memory(Some(64 << 20));
    /// stack.set_budget(&budget)?;
    /// assert_eq!((stack.budget(), stack.budget_use().connections), (budget, 0));
    /// let zero = budget.half_open(Some(0));
    /// assert!(stack.set_budget(&zero).unwrap_err().to_string().contains("budget.half_open is 0"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` names the field that is out of its range; nothing has changed then.
    pub fn set_budget(&self, budget: &Budget) -> io::Result<()> {
        let set = self.core().set_budget(self.now(), budget);
        set.map_err(|error| refused(self.core(), error))
    }

    /// The budget, as the settings say.
    pub fn budget(&self) -> Budget {
        self.core().budget()
    }

    /// The current use of the budget.
    ///
    /// ```
    /// use plimsoll::BudgetUse;
    /// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// let BudgetUse { connections, half_open, .. } = stack.budget_use();
    /// assert_eq!((connections, half_open), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn budget_use(&self) -> BudgetUse {
        self.core().budget_use()
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
        self.core().set_sysctl(self.now(), name, value)
    }

    /// All settings by name.
    pub fn sysctls(&self) -> Vec<(&'static str, String)> {
        self.core().sysctl().list()
    }

    /// The queueing discipline of every interface, the loopback last, and its counters.
    pub fn qdiscs(&self) -> Vec<QdiscSummary> {
        self.core().qdiscs()
    }

    /// Gives the interface with the place `index` in [`qdiscs`](Self::qdiscs) another queueing
    /// discipline, in the syntax of `tc qdisc`. Queued packets move to the new discipline.
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
        self.core().set_qdisc(self.now(), index, text)
    }

    /// All interfaces in the order of [`qdiscs`](Self::qdiscs), and why one is down if it is.
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.core().interfaces()
    }

    /// Gives the interface with the place `index` in [`interfaces`](Self::interfaces) another
    /// device, whether its present one works or has failed. Addresses and queueing discipline stay.
    /// Connections over a working device continue.
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
    /// has ended. A stack ends when its last device fails, unless it
    /// [waits](crate::StackBuilder::wait_for_devices) for the next one.
    pub fn replace_device(&self, index: usize, device: Device) -> Result<(), StackError> {
        self.core().replace_device(self.now(), index, device)
    }

    /// Changes the longest IP packet, in bytes, of the interface with the place `index` in
    /// [`interfaces`](Self::interfaces), at most to its device's MTU. Connections follow: they send
    /// shorter segments, or longer ones up to the peer's limit.
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// stack.set_mtu(0, 1280).expect("at most the device's 1500");
    /// assert_eq!(stack.interfaces()[0].mtu, 1280);
    /// assert!(stack.set_mtu(0, 9000).is_err());
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, or the MTU is below 576 or above the
    /// device's.
    pub fn set_mtu(&self, index: usize, mtu: u16) -> Result<(), StackError> {
        self.core().set_mtu(self.now(), index, mtu)
    }

    /// Adds a device with these addresses, each with its prefix length, to the stack. Returns the
    /// place of the interface in [`interfaces`](Self::interfaces), for
    /// [`set_mtu`](Self::set_mtu), [`set_qdisc`](Self::set_qdisc) and the others. It is polled by
    /// the first queue.
    ///
    /// ```
    /// # use plimsoll::device::memory_link;
    /// # let (device, _peer) = memory_link::pair(Default::default());
    /// let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// let (another, _peer) = memory_link::pair(Default::default());
    /// let place = stack.add_interface(another, &["198.51.100.1/24"])?;
    /// let listener = plimsoll::TcpListener::bind(&stack, "198.51.100.1:80")?;
    /// stack.remove_interface(place)?;
    /// assert!(listener.accept().is_err(), "it was on an address of that interface");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If an address is none or is the stack's already, the device's MTU is too small, there are
    /// 15 interfaces already, or the stack has come to its end.
    pub fn add_interface(&self, device: Device, addresses: &[&str]) -> Result<usize, BuildError> {
        let addresses = addresses.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
        Ok(self.core().add_interface(InterfaceConfig { device, addresses, mtu: None })?)
    }

    /// Removes the interface with the place `index` in [`interfaces`](Self::interfaces), with its
    /// addresses and routes, and drops its device. Connections over it and listeners on its
    /// addresses end with an error. The other interfaces keep their places; that of this one may be
    /// taken by the next that is [added](Self::add_interface). Removing the last does not end the
    /// stack.
    ///
    /// # Errors
    /// If there is no such interface, it is loopback or a further queue of a device, or it was
    /// removed before.
    pub fn remove_interface(&self, index: usize) -> Result<(), StackError> {
        self.core().remove_interface(self.now(), index)
    }

    /// Adds an address with its prefix length, as in `192.0.2.7/24`, to the interface with the
    /// place `index` in [`interfaces`](Self::interfaces).
    ///
    /// ```
    /// # let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
    /// # let stack = plimsoll::Stack::builder().device(device).address("192.0.2.1/24").build()?;
    /// stack.add_address(0, "192.0.2.7/24")?;
    /// let listener = plimsoll::TcpListener::bind(&stack, "192.0.2.7:80")?;
    /// stack.remove_address(0, "192.0.2.7".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such interface, it is loopback, or the stack has the address already; if the
    /// text is no address with a prefix length.
    pub fn add_address(&self, index: usize, address: &str) -> Result<(), BuildError> {
        let (ip, prefix) = parse(address)?;
        Ok(self.core().add_address(index, ip, prefix)?)
    }

    /// Takes an address away from the interface with the place `index`. As on Linux, connections
    /// from it and listeners on it are not ended: nothing arrives for them any more, until the
    /// address is back or they time out.
    ///
    /// # Errors
    /// If the interface does not have the address, or is loopback.
    pub fn remove_address(&self, index: usize, ip: IpAddr) -> Result<(), StackError> {
        self.core().remove_address(index, ip)
    }

    /// Sends packets to a prefix, as in `10.0.0.0/8`, by the interface with the place `index`, also
    /// where another route led before. The longest prefix counts; `0.0.0.0/0` is the default route.
    ///
    /// # Errors
    /// If there is no such interface, or it is loopback; if the text is no prefix.
    pub fn add_route(&self, prefix: &str, index: usize) -> Result<(), BuildError> {
        self.add_route_with(prefix, index, RouteMetrics::default())
    }

    /// As [`add_route`](Self::add_route), with attributes. Connections that open from now on have
    /// them; those that are open follow the MTU.
    ///
    /// # Errors
    /// As [`add_route`](Self::add_route), and if an attribute is out of its range; the error names
    /// it.
    pub fn add_route_with(
        &self,
        prefix: &str,
        index: usize,
        metrics: RouteMetrics,
    ) -> Result<(), BuildError> {
        Ok(self.core().add_route(route(prefix, index, metrics)?)?)
    }

    /// Takes a route away that was added.
    ///
    /// # Errors
    /// If there is no such route; if the text is no prefix.
    pub fn remove_route(&self, prefix: &str, index: usize) -> Result<(), BuildError> {
        Ok(self.core().remove_route(route(prefix, index, RouteMetrics::default())?)?)
    }

    /// All TCP sockets, for `ss`.
    pub fn sockets(&self) -> Vec<SocketSummary> {
        self.core().sockets()
    }

    /// All UDP sockets, flows to any address among them.
    ///
    /// ```
    /// let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// let server = plimsoll::UdpSocket::bind(&stack, "127.0.0.1:53")?;
    /// let all = stack.udp_sockets();
    /// assert_eq!((all.len(), all[0].local, all[0].remote), (1, server.local_addr()?, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn udp_sockets(&self) -> Vec<UdpSocketSummary> {
        self.core().udp_sockets()
    }

    /// The time, by the clock of the stack ([`StackBuilder::clock`]).
    pub fn now(&self) -> Instant {
        self.shared.inner.now()
    }

    /// Whether its own threads run it.
    pub(crate) fn has_threads(&self) -> bool {
        self.shared.has_threads
    }

    /// Has the threads of the stack end, and waits for them unless this is one of them.
    pub(crate) fn stop_threads(&self) {
        self.shared.inner.stop();
        let threads = std::mem::take(&mut *self.shared.lock_threads());
        let me = std::thread::current().id();
        // A thread of the stack cannot wait for itself, nor for others that may wait for it.
        if threads.iter().all(|thread| thread.thread().id() != me) {
            // Their panics were caught, and have ended the stack.
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }

    /// The part that runs the stack, which is not a handle of it.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.shared.inner
    }

    /// The core below: the stack without clock and threads.
    pub fn core(&self) -> &Arc<Core> {
        &self.shared.inner.core
    }
}

fn route(prefix: &str, interface: usize, metrics: RouteMetrics) -> Result<RouteConfig, BuildError> {
    let (prefix, prefix_len) = parse(prefix)?;
    Ok(RouteConfig { prefix, prefix_len, interface, metrics })
}

impl Shared {
    fn lock_threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Has the threads end.
    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.core.kick_all();
    }

    /// The time, by the clock of the stack.
    pub(crate) fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(now, |clock| clock.now())
    }

    pub(crate) fn resolver(&self) -> Option<&Arc<dyn Resolve>> {
        self.resolver.as_ref()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Whether the last handle is gone, or the stack was shut down.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Runs the softirq thread of one queue. No other thread would run the queue after it, so a
    /// panic that reaches this function ends the stack.
    fn softirq(&self, mut waiter: QueueWaiter, on_start: Option<OnThreadStart>) {
        let run = catch_unwind(AssertUnwindSafe(|| {
            if let Some(on_start) = on_start {
                on_start(waiter.queue());
            }
            self.run(&mut waiter);
        }));
        if let Err(thrown) = run {
            self.core.end_by_panic(self.now(), thrown);
        }
    }

    fn run(&self, waiter: &mut QueueWaiter) {
        let mut last_work = self.now();
        waiter.lend_to_readers();
        while !self.is_stopped() {
            // The last poll may have left the devices to a reader, or one has taken them over.
            let mut now = self.now();
            if waiter.is_lent(now) {
                if waiter.wait_while_lent(|| self.now(), || self.is_stopped()).is_err() {
                    std::thread::yield_now();
                }
                now = self.now();
            }
            let Ok(polled) = self.core.poll_queue(waiter.queue(), now, BUDGET) else {
                return;
            };
            if polled.worked {
                if !self.busy_poll.is_zero() {
                    last_work = self.now();
                }
                continue;
            }
            if !self.busy_poll.is_zero() && self.now().since(last_work) < self.busy_poll {
                std::hint::spin_loop();
                continue;
            }
            if self.spin_while_sending && self.core.is_sending() {
                std::hint::spin_loop();
                continue;
            }
            if waiter.wait(self.now(), polled.next, || self.is_stopped()).is_err() {
                // The system refuses to wait; what it takes is there again in a moment.
                std::thread::yield_now();
            }
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("has_thread", &self.shared.has_threads)
            .finish_non_exhaustive()
    }
}
