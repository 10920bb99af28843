//! One direction of a channel: a bounded queue between the stack, which is polled and woken, and
//! the caller, which has a waker.
//!
//! One mutex guards everything. The stack's side records there that it met a full (or an empty)
//! queue; the caller's side leaves its waker there. A side that changes the queue takes out the
//! other side's wake-up, releases the lock, and then wakes. Packets complete, and wakers are woken,
//! with no lock held.
//!
//! A side that stopped at a full queue is woken when half of it is free. So a queue that stays
//! nearly full does not cost a wake-up per packet. No packet is stuck: the other side has at least
//! as many packets left to take, so it is not waiting itself.

use std::collections::VecDeque;
use std::task::Waker;

#[cfg(all(loom, test))]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(loom, test)))]
use std::sync::{Mutex, MutexGuard};

use crate::sockets::wakers::{Interest, WakeList, WakerSet, discard};

/// The other end of the lane no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut;

/// The outcome of putting packets into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) count: usize,
    /// There is no room for the rest.
    pub(super) full: bool,
}

/// A bounded queue of packets.
pub(super) struct Lane<T> {
    limit: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    packets: VecDeque<T>,
    /// The stack met a full queue, and must be woken when there is room.
    stack_stopped: bool,
    /// The caller's waker, if the caller waits.
    caller: WakerSet,
    /// No more packets will be put in.
    put_ended: bool,
    /// No more packets will be taken out.
    take_ended: bool,
}

impl<T> State<T> {
    fn wakers(&mut self) -> WakeList {
        let mut list = WakeList::default();
        self.caller.take(Interest::Read, &mut list);
        list
    }

    fn fill(&mut self, limit: usize, queue: &mut VecDeque<T>, passed: impl FnMut(&T)) -> Put {
        let count = limit.saturating_sub(self.packets.len()).min(queue.len());
        queue.iter().take(count).for_each(passed);
        if self.packets.is_empty() && count == queue.len() {
            std::mem::swap(&mut self.packets, queue);
        } else {
            self.packets.extend(queue.drain(..count));
        }
        Put { count, full: !queue.is_empty() }
    }
}

impl<T> Lane<T> {
    /// An empty lane for at most `limit` packets.
    pub(super) fn new(limit: usize) -> Lane<T> {
        let state = State {
            packets: VecDeque::new(),
            stack_stopped: false,
            caller: WakerSet::default(),
            put_ended: false,
            take_ended: false,
        };
        Lane { limit, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether so few packets are left that a sender that found the queue full continues.
    fn is_half_free(&self, len: usize) -> bool {
        len <= self.limit / 2
    }

    /// Called by the stack: moves packets from the front of `queue` in, as many as fit, and wakes
    /// the caller. If not all fit, [`take`](Self::take) later returns that the stack must be woken.
    /// `passed` is called for each packet, under the lock.
    pub(super) fn put(&self, queue: &mut VecDeque<T>, passed: impl FnMut(&T)) -> Result<Put, Cut> {
        let mut state = self.lock();
        if state.take_ended {
            return Err(Cut);
        }
        let put = state.fill(self.limit, queue, passed);
        state.stack_stopped = put.full;
        let mut wakers = if put.count > 0 { state.wakers() } else { WakeList::default() };
        drop(state);
        // The panic of a waker is caught, and the panic hook has reported it.
        let _ = wakers.fire();
        Ok(put)
    }

    /// Called by the stack, which met a full lane: whether it may continue.
    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        state.take_ended || self.is_half_free(state.packets.len())
    }

    /// Called by the caller: moves up to `max` packets to the end of `out`. Returns their number,
    /// and whether the stack must be woken, since it waits for room. `None` means that the end was
    /// reached.
    pub(super) fn take(&self, max: usize, out: &mut impl Extend<T>) -> Option<(usize, bool)> {
        let mut state = self.lock();
        let count = state.packets.len().min(max);
        if state.packets.is_empty() && state.put_ended {
            return None;
        }
        out.extend(state.packets.drain(..count));
        let kick = state.stack_stopped && self.is_half_free(state.packets.len());
        state.stack_stopped &= !kick;
        Some((count, kick))
    }

    /// For the caller: as [`take`](Self::take); keeps `waker` if there is nothing.
    pub(super) fn take_or_wait(
        &self,
        max: usize,
        out: &mut impl Extend<T>,
        waker: &Waker,
    ) -> Option<(usize, bool)> {
        let taken = self.take(max, out);
        if !matches!(taken, Some((0, _))) || max == 0 {
            return taken;
        }
        self.wait(waker, |state| !state.packets.is_empty() || state.put_ended);
        // Packets that came meanwhile found no waker.
        self.take(max, out)
    }

    /// For the caller: moves packets from the front of `queue` in, as many as fit.
    pub(super) fn offer(&self, queue: &mut VecDeque<T>) -> Result<Put, Cut> {
        let mut state = self.lock();
        if state.take_ended {
            return Err(Cut);
        }
        Ok(state.fill(self.limit, queue, |_| ()))
    }

    /// For the caller: whether there is room for a packet; if not, keeps `waker`.
    pub(super) fn poll_room(&self, waker: &Waker) -> Result<bool, Cut> {
        let look = |state: &State<T>| match state.take_ended {
            true => Err(Cut),
            false => Ok(state.packets.len() < self.limit),
        };
        let found = look(&self.lock());
        if found != Ok(false) {
            return found;
        }
        self.wait(waker, |state| look(state) != Ok(false));
        let state = self.lock();
        look(&state)
    }

    /// Keeps `waker` unless `ready` returns true under the lock.
    fn wait(&self, waker: &Waker, ready: impl FnOnce(&State<T>) -> bool) {
        // Cloned and dropped without the lock: it is code of the application.
        let kept = waker.clone();
        let mut state = self.lock();
        let left = match ready(&state) {
            true => Some(kept),
            false => state.caller.register(Interest::Read, None, kept),
        };
        drop(state);
        let _ = discard(left);
    }

    /// Called by the caller when it stops waiting.
    pub(super) fn forget_waker(&self) {
        let left = std::mem::take(&mut self.lock().caller);
        // Dropped without the lock, and not woken.
        drop(left);
    }

    /// For the stack: moves up to `max` packets to the end of `out`. Returns how many. Wakes the
    /// caller if it waits for room and there is enough.
    pub(super) fn receive(&self, max: usize, out: &mut Vec<T>) -> usize {
        let mut state = self.lock();
        let count = state.packets.len().min(max);
        if count == 0 {
            return 0;
        }
        out.extend(state.packets.drain(..count));
        let goes_on = self.is_half_free(state.packets.len());
        let mut wakers = if goes_on { state.wakers() } else { WakeList::default() };
        drop(state);
        let _ = wakers.fire();
        count
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().packets.len()
    }

    /// Whether nothing is left to take, and nothing will come.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.lock();
        state.put_ended && state.packets.is_empty()
    }

    /// Nothing more will be put in. The queued packets can still be taken.
    pub(super) fn end_put(&self) {
        let mut state = self.lock();
        state.put_ended = true;
        let mut wakers = state.wakers();
        drop(state);
        let _ = wakers.fire();
    }

    /// Nothing more will be taken. The queued packets are dropped, and so completed.
    pub(super) fn end_take(&self) {
        let mut state = self.lock();
        state.take_ended = true;
        let mut wakers = state.wakers();
        let packets = std::mem::take(&mut state.packets);
        drop(state);
        drop(packets);
        let _ = wakers.fire();
    }
}

#[cfg(all(loom, test))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::kick::Sleep;
    use plimsoll_tcp::Instant;

    /// The stack meets a full lane and goes to sleep; the caller takes the packet. Either the stack
    /// sees the room, or the caller sees that it must wake the stack.
    #[test]
    fn a_stack_that_met_a_full_lane_is_kicked() {
        loom::model(|| {
            let lane = Arc::new(Lane::new(1));
            let sleep = Arc::new(Sleep::new());
            lane.put(&mut VecDeque::from([1]), |_| ()).unwrap();
            let caller = {
                let (lane, sleep) = (lane.clone(), sleep.clone());
                thread::spawn(move || {
                    let (_, kick) = lane.take(1, &mut Vec::new()).unwrap();
                    kick && sleep.must_wake(Instant::ZERO)
                })
            };
            let put = lane.put(&mut VecDeque::from([2]), |_| ()).unwrap();
            sleep.announce(None);
            let sees_room = !put.full || lane.has_room();
            let woken = caller.join().unwrap();
            assert!(sees_room || woken, "the stack sleeps over a lane that has room");
        });
    }

    /// The caller finds no packet and leaves its waker; the stack puts a packet in.
    #[test]
    fn a_caller_that_found_nothing_is_woken() {
        loom::model(|| {
            let lane = Arc::new(Lane::new(2));
            let flag = std::sync::Arc::new(Flag::default());
            let stack = {
                let lane = lane.clone();
                thread::spawn(move || lane.put(&mut VecDeque::from([1]), |_| ()).unwrap())
            };
            let waker = Waker::from(flag.clone());
            let taken = lane.take_or_wait(1, &mut Vec::new(), &waker).unwrap();
            stack.join().unwrap();
            assert!(taken.0 == 1 || flag.is_up(), "a packet waits, and nobody comes for it");
        });
    }

    /// The caller finds no room and leaves its waker; the stack takes the packets.
    #[test]
    fn a_caller_that_found_no_room_is_woken() {
        loom::model(|| {
            let lane = Arc::new(Lane::new(1));
            lane.offer(&mut VecDeque::from([1])).unwrap();
            let flag = std::sync::Arc::new(Flag::default());
            let stack = {
                let lane = lane.clone();
                thread::spawn(move || assert_eq!(lane.receive(1, &mut Vec::new()), 1))
            };
            let waker = Waker::from(flag.clone());
            let room = lane.poll_room(&waker).unwrap();
            stack.join().unwrap();
            assert!(room || flag.is_up(), "there is room, and nobody comes to use it");
        });
    }

    /// The caller waits for a packet, or for room, while the other end goes.
    #[test]
    fn a_caller_that_waits_hears_of_the_end() {
        loom::model(|| {
            let (to_caller, to_stack) = (Arc::new(Lane::<u8>::new(1)), Arc::new(Lane::new(1)));
            to_stack.offer(&mut VecDeque::from([1])).unwrap();
            let flags = [(); 2].map(|()| std::sync::Arc::new(Flag::default()));
            let stack = {
                let (to_caller, to_stack) = (to_caller.clone(), to_stack.clone());
                thread::spawn(move || {
                    to_caller.end_put();
                    to_stack.end_take();
                })
            };
            let [first, second] = flags.each_ref().map(|flag| Waker::from(flag.clone()));
            let taken = to_caller.take_or_wait(1, &mut Vec::new(), &first);
            let room = to_stack.poll_room(&second);
            stack.join().unwrap();
            assert!(taken.is_none() || flags[0].is_up(), "it waits for packets for ever");
            assert!(room == Err(Cut) || flags[1].is_up(), "it waits for room for ever");
        });
    }

    /// The caller stops waiting while a packet arrives: the packet stays, the waker does not.
    #[test]
    fn a_caller_that_gives_up_leaves_nothing_and_takes_nothing() {
        loom::model(|| {
            let lane = Arc::new(Lane::new(2));
            let flag = std::sync::Arc::new(Flag::default());
            let stack = {
                let lane = lane.clone();
                thread::spawn(move || {
                    let put = lane.put(&mut VecDeque::from([1]), |_| ()).unwrap();
                    assert_eq!(put.count, 1);
                })
            };
            let waker = Waker::from(flag.clone());
            let mut out = Vec::new();
            lane.take_or_wait(1, &mut out, &waker).unwrap();
            lane.forget_waker();
            drop(waker);
            stack.join().unwrap();
            assert_eq!(out.len() + lane.len(), 1, "the packet is lost, or there twice");
            assert_eq!(std::sync::Arc::strong_count(&flag), 1, "the waker is kept");
        });
    }

    impl Flag {
        fn is_up(&self) -> bool {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    #[derive(Default)]
    struct Flag(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
