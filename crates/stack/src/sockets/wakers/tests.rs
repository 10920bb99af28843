//! Tests of the set of wakers: the wakers that are kept or removed, and the effect of one's panic
//! on the others.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (count.clone(), Waker::from(count))
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Panics when it is woken, or when it is dropped without.
struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        std::mem::forget(self);
        panic!("woken, as the test wants it");
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        panic!("dropped, as the test wants it");
    }
}

fn fire(set: &mut WakerSet, interest: Interest) -> u64 {
    let mut list = WakeList::default();
    set.take(interest, &mut list);
    list.fire()
}

#[test]
fn an_idle_socket_has_no_more_for_its_wakers_than_before() {
    // Two sets of 24 bytes, one for each direction, before there were keys.
    assert!(size_of::<WakerSet>() <= 48, "{}", size_of::<WakerSet>());
}

#[test]
fn the_latest_waker_without_a_key_is_kept() {
    let (mut set, (first, waker), (second, other)) = (WakerSet::default(), counting(), counting());
    assert!(set.register(Interest::Read, None, waker.clone()).is_none());
    assert!(set.register(Interest::Read, None, other).is_some_and(|old| old.will_wake(&waker)));
    assert!(set.register(Interest::Write, None, waker).is_none(), "another direction");
    assert_eq!(fire(&mut set, Interest::Read), 0);
    assert_eq!((first.get(), second.get()), (0, 1));
    assert!(set.is_waiting(Interest::Write) && !set.is_waiting(Interest::Read));
}

#[test]
fn a_key_has_one_waker_and_takes_only_its_own_out() {
    let mut set = WakerSet::default();
    let (keys, all) = ([0; 3].map(|_| WaitKey::new()), [0; 3].map(|_| counting()));
    for (key, (_, waker)) in keys.iter().zip(&all) {
        assert!(set.register(Interest::Read, Some(*key), waker.clone()).is_none());
    }
    let (again, waker) = counting();
    assert!(set.register(Interest::Read, Some(keys[2]), waker).is_some(), "replaced");
    assert!(set.cancel(Interest::Read, keys[0]).is_some());
    assert!(set.cancel(Interest::Read, keys[0]).is_none(), "it has gone");
    assert!(set.cancel(Interest::Write, keys[1]).is_none(), "it waits for something else");
    assert_eq!(fire(&mut set, Interest::Read), 0);
    assert_eq!(all.each_ref().map(|(count, _)| count.get()), [0, 1, 0]);
    assert_eq!(again.get(), 1);
    assert_eq!(set.counts().0, 0, "a waker fires once");
}

#[test]
fn those_who_gave_up_leave_nothing() {
    let (mut set, (count, waker)) = (WakerSet::default(), counting());
    let keys: Vec<WaitKey> = (0..10_000).map(|_| WaitKey::new()).collect();
    for &key in &keys {
        assert!(set.register(Interest::Read, Some(key), waker.clone()).is_none());
    }
    assert_eq!(set.counts().0, 10_000);
    for &key in &keys {
        assert!(set.cancel(Interest::Read, key).is_some());
    }
    let (waiting, room) = set.counts();
    assert_eq!(waiting, 0);
    assert!(room <= 2 * KEPT_WAITERS, "room for {room}");
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "no copy of the waker is left");
}

#[test]
fn one_that_panics_keeps_no_other_from_being_woken() {
    let mut set = WakerSet::default();
    let all = [0; 12].map(|_| counting());
    for (place, (_, waker)) in all.iter().enumerate() {
        if place % 4 == 1 {
            let rude = Waker::from(Arc::new(Rude));
            assert!(set.register(Interest::Read, Some(WaitKey::new()), rude).is_none());
        }
        assert!(set.register(Interest::Read, Some(WaitKey::new()), waker.clone()).is_none());
    }
    assert_eq!(fire(&mut set, Interest::Read), 3);
    assert!(all.iter().all(|(count, _)| count.get() == 1));
}

#[test]
fn one_that_panics_when_it_is_dropped_is_caught() {
    assert_eq!(discard(Some(Waker::from(Arc::new(Rude)))), 1);
    let (mut set, (count, waker)) = (WakerSet::default(), counting());
    assert!(set.register(Interest::Write, None, Waker::from(Arc::new(Rude))).is_none());
    assert!(set.register(Interest::Write, Some(WaitKey::new()), waker).is_none());
    drop(set);
    assert_eq!(Arc::strong_count(&count), 1, "the other was dropped as well");
}

#[test]
fn who_collected_them_and_panicked_wakes_them_all_the_same() {
    let (mut set, (count, waker)) = (WakerSet::default(), counting());
    assert!(set.register(Interest::Read, None, waker).is_none());
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut list = WakeList::default();
        set.take(Interest::Read, &mut list);
        panic!("as the test wants it");
    }));
    assert!(unwound.is_err());
    assert_eq!(count.get(), 1);
}
