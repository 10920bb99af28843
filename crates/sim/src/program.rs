//! Programs of users in a simulated network.
//!
//! A program is a function that is given its [`SimHost`] and returns a future. It uses the async
//! sockets of the crate `plimsoll` on the stack of that host, as it would anywhere else, and the
//! simulator polls it. There is no thread and no runtime: time passes when nobody has anything to
//! do, and [`SimHost::sleep`] is how a program waits for it. So a program, a scenario and a seed
//! give the same packets always.
//!
//! ```
//! use std::future::poll_fn;
//!
//! use plimsoll_sim::program::{Programs, SimHost};
//! use plimsoll_sim::{RunConfig, Scenario, run_programs};
//!
//! let scenario = Scenario::parse(r#"
//!     limit = "60s"
//!     faults_until = "30s"
//!     host = [{ name = "a" }, { name = "b" }]
//!     flow = []
//!     [[link]]
//!     between = ["a", "b"]
//!     forward = { delay = "20ms", loss = { independent = 0.2 } }
//! "#)?;
//! let programs = Programs::new()
//!     .daemon("b", |host: SimHost| async move {
//!         let listener = plimsoll::TcpListener::bind(host.stack(), (host.address(false), 7))?;
//!         let (stream, _peer) = listener.accept_async().await?;
//!         let mut text = [0; 16];
//!         let count = poll_fn(|cx| stream.poll_read(cx, &mut text)).await?;
//!         poll_fn(|cx| stream.poll_write(cx, &text[..count])).await?;
//!         Ok(())
//!     })
//!     .main("a", |host: SimHost| async move {
//!         let server = (host.address_of("b", false)?, 7).into();
//!         let stream = plimsoll::Connector::new(host.stack()).connect_async(server).await?;
//!         poll_fn(|cx| stream.poll_write(cx, b"ahoy")).await?;
//!         let mut text = [0; 16];
//!         let count = poll_fn(|cx| stream.poll_read(cx, &mut text)).await?;
//!         assert_eq!(&text[..count], b"ahoy");
//!         Ok(())
//!     });
//! let outcome = run_programs(&scenario, 1, &RunConfig::default(), &programs)?;
//! assert!(outcome.violation.is_none(), "{outcome:?}");
//! # Ok::<(), plimsoll_sim::ScenarioError>(())
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use plimsoll::{Clock, Stack};
use plimsoll_tcp::{Duration, Instant};
use portable_atomic::AtomicU64;

use crate::app::ReadyList;
use crate::rng::Rng;
use crate::scenario::{Scenario, ScenarioError};

/// Why a program has failed.
pub type ProgramError = Box<dyn std::error::Error>;

type Task = Pin<Box<dyn Future<Output = Result<(), ProgramError>>>>;

/// The programs of a simulation, each with its host.
#[derive(Default)]
pub struct Programs(Vec<Program>);

struct Program {
    host: String,
    main: bool,
    start: Box<dyn Fn(SimHost) -> Task>,
}

impl Programs {
    /// None yet.
    pub fn new() -> Programs {
        Programs::default()
    }

    /// Runs `program` on a host. The simulation goes on until all of these have ended; one that
    /// does not, or that returns an error, is a violation.
    ///
    /// It is called when the host starts, and again when it is back after a crash, in which its
    /// future is dropped.
    #[must_use]
    pub fn main<F, T>(self, host: impl Into<String>, program: F) -> Programs
    where
        F: Fn(SimHost) -> T + 'static,
        T: Future<Output = Result<(), ProgramError>> + 'static,
    {
        self.add(host.into(), true, program)
    }

    /// The same, but nobody waits for its end: it is dropped when all others have ended.
    #[must_use]
    pub fn daemon<F, T>(self, host: impl Into<String>, program: F) -> Programs
    where
        F: Fn(SimHost) -> T + 'static,
        T: Future<Output = Result<(), ProgramError>> + 'static,
    {
        self.add(host.into(), false, program)
    }

    fn add<F, T>(mut self, host: String, main: bool, program: F) -> Programs
    where
        F: Fn(SimHost) -> T + 'static,
        T: Future<Output = Result<(), ProgramError>> + 'static,
    {
        let start = Box::new(move |host| -> Task { Box::pin(program(host)) });
        self.0.push(Program { host, main, start });
        self
    }

    /// # Errors
    /// If one is on a host that is not there.
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        for Program { host, .. } in &self.0 {
            if scenario.host_index(host).is_none() {
                let names: Vec<&str> = scenario.host.iter().map(|host| &*host.name).collect();
                let names = names.join(", ");
                let reason = format!("a program is to run on '{host}', and the hosts are {names}");
                return Err(ScenarioError::new("host", reason));
            }
        }
        Ok(())
    }

    /// Whether any is on this host.
    pub(crate) fn are_on(&self, host: &str) -> bool {
        self.0.iter().any(|program| program.host == host)
    }
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|program| &program.host)).finish()
    }
}

/// The clock of a host, which the simulation moves.
#[derive(Debug, Default)]
pub(crate) struct HostClock(AtomicU64);

impl HostClock {
    pub(crate) fn set(&self, now: Instant) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for HostClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The host of a program: its stack, its clock, and random numbers from the seed.
#[derive(Clone)]
pub struct SimHost(Rc<Inner>);

struct Inner {
    name: String,
    stack: Stack,
    clock: Arc<HostClock>,
    addresses: Vec<(String, [IpAddr; 2])>,
    timers: Timers,
    spawned: Rc<RefCell<Vec<Task>>>,
    rng: RefCell<Rng>,
}

impl SimHost {
    /// Its name in the scenario.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its stack, for the async sockets of `plimsoll`. Calls that block never return: nothing else
    /// happens while a program runs.
    pub fn stack(&self) -> &Stack {
        &self.0.stack
    }

    /// Its address: of IPv6, or of IPv4.
    pub fn address(&self, v6: bool) -> IpAddr {
        let own = self.0.addresses.iter().find(|(name, _)| *name == self.0.name);
        own.map_or(IpAddr::from([0, 0, 0, 0]), |(_, both)| both[usize::from(v6)])
    }

    /// The address of another host, by its name.
    ///
    /// # Errors
    /// `NotFound` if there is no such host.
    pub fn address_of(&self, name: &str, v6: bool) -> io::Result<IpAddr> {
        let found = self.0.addresses.iter().find(|(known, _)| known == name);
        found.map(|(_, both)| both[usize::from(v6)]).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("there is no host '{name}'"))
        })
    }

    /// What its clock shows. Clocks of hosts may differ, if the scenario steps one of them.
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Waits for some time of its clock.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep {
            until: self.now() + time,
            id: None,
            clock: self.0.clock.clone(),
            timers: self.0.timers.clone(),
        }
    }

    /// 64 random bits, which follow from the seed.
    pub fn random(&self) -> u64 {
        self.0.rng.borrow_mut().bits()
    }

    /// Runs a further task on this host. Nobody waits for its end, and its error is a violation.
    pub fn spawn(&self, task: impl Future<Output = Result<(), ProgramError>> + 'static) {
        self.0.spawned.borrow_mut().push(Box::pin(task));
    }
}

impl std::fmt::Debug for SimHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimHost").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// Who waits for which time of a host's clock; the number keeps those of one time apart.
#[derive(Clone, Default)]
struct Timers(Rc<RefCell<TimerList>>);

#[derive(Default)]
struct TimerList {
    waiting: BTreeMap<(Instant, u64), Waker>,
    last: u64,
}

/// A wait of [`SimHost::sleep`]. Dropping it ends it.
pub struct Sleep {
    until: Instant,
    id: Option<u64>,
    clock: Arc<HostClock>,
    timers: Timers,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let timers = self.timers.clone();
        let mut list = timers.0.borrow_mut();
        let id = match self.id {
            Some(id) => id,
            None => {
                list.last += 1;
                list.last
            }
        };
        self.id = Some(id);
        list.waiting.insert((self.until, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.timers.0.borrow_mut().waiting.remove(&(self.until, id));
        }
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

/// A task, and where it runs.
struct Slot {
    host: usize,
    main: bool,
    task: Task,
    waker: Waker,
}

/// What a host's programs share with the simulation.
#[derive(Default)]
struct Desk {
    timers: Timers,
    spawned: Rc<RefCell<Vec<Task>>>,
}

/// Polls programs.
pub(crate) struct Executor<'a> {
    programs: &'a Programs,
    desks: Vec<Desk>,
    tasks: Vec<Option<Slot>>,
    ready: ReadyList,
    /// Tasks that were woken while their host did not run.
    held: Vec<usize>,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(programs: &'a Programs, hosts: usize) -> Executor<'a> {
        Executor {
            programs,
            desks: (0..hosts).map(|_| Desk::default()).collect(),
            tasks: Vec::new(),
            ready: ReadyList::default(),
            held: Vec::new(),
        }
    }

    /// Starts the programs of a host that has begun to run.
    pub(crate) fn start(
        &mut self,
        scenario: &Scenario,
        host: usize,
        (stack, clock): (Stack, Arc<HostClock>),
        rng: Rng,
    ) {
        let address = |index| [false, true].map(|v6| Scenario::address(index, v6));
        let hosts = scenario.host.iter().enumerate();
        let name = &scenario.host[host].name;
        let place = SimHost(Rc::new(Inner {
            name: name.clone(),
            stack,
            clock,
            addresses: hosts.map(|(index, host)| (host.name.clone(), address(index))).collect(),
            timers: self.desks[host].timers.clone(),
            spawned: self.desks[host].spawned.clone(),
            rng: RefCell::new(rng),
        }));
        let programs = self.programs;
        for program in programs.0.iter().filter(|program| program.host == *name) {
            self.add(host, program.main, (program.start)(place.clone()));
        }
    }

    fn add(&mut self, host: usize, main: bool, task: Task) {
        let index = self.tasks.len();
        let waker = self.ready.waker(index);
        self.tasks.push(Some(Slot { host, main, task, waker }));
        self.ready.push(index);
    }

    /// Drops what runs on a host that has crashed.
    pub(crate) fn crash(&mut self, host: usize) {
        for task in self.tasks.iter_mut() {
            task.take_if(|slot| slot.host == host);
        }
        self.desks[host].spawned.borrow_mut().clear();
    }

    /// Wakes those whose time has come by the clock of a host.
    pub(crate) fn wake_due(&mut self, host: usize, now: Instant) {
        loop {
            let mut list = self.desks[host].timers.0.borrow_mut();
            let Some(entry) = list.waiting.first_entry() else { return };
            if entry.key().0 > now {
                return;
            }
            let waker = entry.remove();
            drop(list);
            waker.wake();
        }
    }

    /// The earliest time, by the clock of a host, that a program there waits for.
    pub(crate) fn next(&self, host: usize) -> Option<Instant> {
        let list = self.desks[host].timers.0.borrow();
        list.waiting.first_key_value().map(|(&(at, _), _)| at)
    }

    /// A host goes on.
    pub(crate) fn resume(&mut self, host: usize) {
        let tasks = &self.tasks;
        let of = |index: &usize| tasks[*index].as_ref().is_some_and(|slot| slot.host == host);
        let (woken, held) = self.held.iter().copied().partition(of);
        self.held = held;
        let woken: Vec<usize> = woken;
        woken.into_iter().for_each(|index| self.ready.push(index));
    }

    /// Polls those that were woken and whose host runs. Says on which hosts any were, and which
    /// have failed.
    pub(crate) fn run(&mut self, running: impl Fn(usize) -> bool) -> (Vec<usize>, Vec<String>) {
        let mut woken = self.ready.take();
        woken.sort_unstable();
        woken.dedup();
        let (mut hosts, mut failed) = (Vec::new(), Vec::new());
        for index in woken {
            let Some(slot) = self.tasks.get_mut(index).and_then(Option::as_mut) else { continue };
            if !running(slot.host) {
                self.held.push(index);
                continue;
            }
            hosts.push(slot.host);
            let host = slot.host;
            let polled = slot.task.as_mut().poll(&mut Context::from_waker(&slot.waker));
            if let Poll::Ready(ended) = polled {
                self.tasks[index] = None;
                failed.extend(ended.err().map(|error| error.to_string()));
            }
            let spawned = core::mem::take(&mut *self.desks[host].spawned.borrow_mut());
            spawned.into_iter().for_each(|task| self.add(host, false, task));
        }
        (hosts, failed)
    }

    /// The hosts of programs that somebody waits for.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = usize> + '_ {
        self.tasks.iter().flatten().filter(|slot| slot.main).map(|slot| slot.host)
    }

    /// Drops all that is left. Says whether there was any.
    pub(crate) fn end(&mut self) -> bool {
        let any = self.tasks.iter().any(Option::is_some);
        self.tasks.clear();
        any
    }
}
