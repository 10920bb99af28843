//! The shards in which threads count: each thread has its own, which no other thread writes.
//!
//! # Theory of operation
//!
//! The first time that a thread counts for a stack it *claims* a shard: it takes the writers that
//! an ended thread has left, or makes new ones. The claim stays in a thread-local list, so that the
//! next call finds it with a comparison. A [`Writer`] is not `Sync` and a claim is an `Rc`, which
//! is not `Send`: two threads cannot write one shard. A thread may hold its claim several times (a
//! call during a poll), which is still one writer.
//!
//! When a thread ends, its writers return to the stack, with their counts. So there are never more
//! shards than threads that counted at the same time, and at most [`MAX_SHARDS`]. Threads beyond
//! that count together, with locked instructions.
//!
//! The lock of the list is a leaf. It is taken when a thread claims a shard or ends, and by
//! readers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use plimsoll_tcp::{Counter, CounterValues, Counters, State, Values, Writer};

use super::states::{STATE_COUNT, StateWriter, place};
use super::{IP_COUNT, IpCounter};
use crate::limits::MAX_SHARDS;
use crate::policies::sysctl::SettingsCache;
use crate::sync::lock;

/// The right to write one shard.
#[derive(Debug)]
struct Writers {
    tcp: Counters,
    ip: Writer<IP_COUNT>,
    states: StateWriter,
}

/// The numbers of one shard.
#[derive(Debug)]
struct Counted {
    tcp: Arc<CounterValues>,
    ip: Arc<Values<IP_COUNT>>,
    states: Arc<Values<STATE_COUNT>>,
}

/// A thread's part of a stack: the shard that it counts in, and its copy of the settings.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Some until it is dropped.
    writers: Option<Writers>,
    home: Weak<List>,
    settings: SettingsCache,
}

impl Shard {
    /// The settings as the thread saw them last.
    pub(crate) fn settings(&self) -> &SettingsCache {
        &self.settings
    }

    fn writers(&self) -> &Writers {
        self.writers.as_ref().expect("they are there until it is dropped")
    }

    /// Where the engine counts.
    #[inline]
    pub(crate) fn tcp(&self) -> &Counters {
        &self.writers().tcp
    }

    /// Adds one.
    #[inline]
    pub(crate) fn bump(&self, counter: IpCounter) {
        self.add(counter, 1);
    }

    /// Adds `count`.
    #[inline]
    pub(crate) fn add(&self, counter: IpCounter, count: u64) {
        self.writers().ip.add(counter as usize, count);
    }

    /// A connection that counted as in the state `from` counts as in `to`; `None` is in none.
    pub(crate) fn move_state(&self, from: Option<State>, to: Option<State>) {
        let states = &self.writers().states;
        if let Some(to) = to {
            states.add(place(to), 1);
        }
        if let Some(from) = from {
            // Only the sum over all shards is meaningful; one shard may be below zero.
            states.add(place(from), 1_u64.wrapping_neg());
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        if let (Some(list), Some(writers)) = (self.home.upgrade(), self.writers.take()) {
            list.give_back(writers);
        }
    }
}

/// All shards of a stack.
#[derive(Debug)]
struct List {
    inner: Mutex<Inner>,
    /// The numbers of threads that get no shard of their own.
    shared: Counted,
}

#[derive(Debug, Default)]
struct Inner {
    all: Vec<Counted>,
    /// Those of ended threads.
    free: Vec<Writers>,
}

impl List {
    fn claim(&self) -> Writers {
        let mut inner = lock(&self.inner);
        if let Some(writers) = inner.free.pop() {
            return writers;
        }
        if inner.all.len() >= MAX_SHARDS {
            return self.join();
        }
        let writers = Writers { tcp: Counters::new(), ip: Writer::new(), states: Writer::new() };
        let counted = Counted {
            tcp: writers.tcp.values().clone(),
            ip: writers.ip.values().clone(),
            states: writers.states.values().clone(),
        };
        inner.all.push(counted);
        writers
    }

    /// Writers that others have as well.
    fn join(&self) -> Writers {
        let (tcp, ip) = (Counters::join(&self.shared.tcp), Writer::join(&self.shared.ip));
        let states = Writer::join(&self.shared.states).unwrap_or_default();
        Writers { tcp: tcp.unwrap_or_default(), ip: ip.unwrap_or_default(), states }
    }

    fn give_back(&self, writers: Writers) {
        // Those that are shared need not be kept.
        if !Arc::ptr_eq(writers.tcp.values(), &self.shared.tcp) {
            lock(&self.inner).free.push(writers);
        }
    }
}

/// The sums of all shards.
pub(super) struct Sums {
    pub(super) ip: Vec<u64>,
    pub(super) tcp: Vec<u64>,
}

pub(super) struct Shards(Arc<List>);

thread_local! {
    /// The shards of this thread, for all stacks.
    static MINE: RefCell<Vec<Rc<Shard>>> = const { RefCell::new(Vec::new()) };
}

impl Shards {
    pub(super) fn new() -> Shards {
        let (tcp, ip) = (CounterValues::for_many(), Values::for_many());
        let shared = Counted { tcp, ip, states: Values::for_many() };
        Shards(Arc::new(List { inner: Mutex::default(), shared }))
    }

    /// The shard of the calling thread.
    #[inline]
    pub(super) fn mine(&self) -> Rc<Shard> {
        let found = MINE.try_with(|mine| {
            let mine = mine.borrow();
            // A weak reference keeps the address from being used again.
            mine.iter().find(|shard| shard.home.as_ptr() == Arc::as_ptr(&self.0)).cloned()
        });
        match found {
            Ok(Some(shard)) => shard,
            Ok(None) => self.enter(),
            // The locals of this thread are gone already.
            Err(_) => self.shard(self.0.join()),
        }
    }

    fn shard(&self, writers: Writers) -> Rc<Shard> {
        let settings = SettingsCache::default();
        Rc::new(Shard { writers: Some(writers), home: Arc::downgrade(&self.0), settings })
    }

    #[cold]
    fn enter(&self) -> Rc<Shard> {
        let shard = self.shard(self.0.claim());
        // Claims on stacks that no longer exist are dropped here, not under the borrow.
        let gone = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            let is_gone = |shard: &mut Rc<Shard>| shard.home.strong_count() == 0;
            let gone: Vec<_> = mine.extract_if(.., is_gone).collect();
            mine.push(shard.clone());
            gone
        });
        drop(gone);
        shard
    }

    pub(super) fn sums(&self) -> Sums {
        let inner = lock(&self.0.inner);
        let all = || inner.all.iter().chain([&self.0.shared]);
        let ip = (0..IP_COUNT).map(|index| all().map(|shard| shard.ip.get(index)).sum());
        let tcp = (0..Counter::ALL.len()).map(|at| all().map(|shard| shard.tcp.get(at)).sum());
        Sums { ip: ip.collect(), tcp: tcp.collect() }
    }

    /// How many connections count as in each state, by its [`place`].
    pub(super) fn states(&self) -> [u64; STATE_COUNT] {
        let inner = lock(&self.0.inner);
        let all = || inner.all.iter().chain([&self.0.shared]);
        std::array::from_fn(|place| {
            let sum = all().fold(0_u64, |sum, shard| sum.wrapping_add(shard.states.get(place)));
            // A move between two shards may be seen in one of them only, for a moment.
            u64::try_from(sum.cast_signed()).unwrap_or(0)
        })
    }

    pub(super) fn sum_of_ip(&self, index: usize) -> u64 {
        let inner = lock(&self.0.inner);
        inner.all.iter().chain([&self.0.shared]).map(|shard| shard.ip.get(index)).sum()
    }

    pub(super) fn sum_of_tcp(&self, index: usize) -> u64 {
        let inner = lock(&self.0.inner);
        inner.all.iter().chain([&self.0.shared]).map(|shard| shard.tcp.get(index)).sum()
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.0.inner).all.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const IN: IpCounter = IpCounter::IpInReceives;

    #[test]
    fn ended_threads_leave_their_shards_and_counts() {
        let shards = Shards::new();
        for _ in 0..10 {
            std::thread::scope(|scope| scope.spawn(|| shards.mine().bump(IN)).join().unwrap());
        }
        assert_eq!((shards.count(), shards.sum_of_ip(IN as usize)), (1, 10));
        let (outer, inner) = (shards.mine(), shards.mine());
        assert!(Rc::ptr_eq(&outer, &inner), "a call in the middle of another counts there, too");
        outer.tcp().bump(Counter::InSegs);
        inner.tcp().add(Counter::InSegs, 2);
        assert_eq!(shards.sums().tcp[Counter::InSegs as usize], 3);
    }

    #[test]
    fn threads_without_a_shard_of_their_own_lose_no_count() {
        const THREADS: usize = MAX_SHARDS + 8;
        let (shards, all) = (Shards::new(), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mine = shards.mine();
                    all.wait();
                    (0..1000).for_each(|_| mine.bump(IN));
                });
            }
        });
        assert_eq!(shards.count(), MAX_SHARDS);
        assert_eq!(shards.sum_of_ip(IN as usize), 1000 * THREADS as u64);
    }

    #[test]
    fn shards_of_stacks_that_are_gone_are_forgotten() {
        for _ in 0..20 {
            Shards::new().mine().bump(IN);
        }
        let alive = Shards::new();
        alive.mine().bump(IN);
        MINE.with(|mine| {
            let gone = mine.borrow().iter().filter(|shard| shard.home.strong_count() == 0).count();
            assert_eq!(gone, 0);
        });
    }
}
