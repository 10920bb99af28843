//! An event as a flag under a mutex, for systems whose descriptors cannot be polled together.
//!
//! A thread that sleeps for several events waits on the condition variable of the first one, and
//! stores a reference to it in the others. A thread that sets one of the others takes the first
//! one's lock for a moment before it notifies. The sleeper checks all flags under that lock. So it
//! either has seen the flag or is waiting already.

#[cfg(loom)]
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::Watched;

/// See [`platform`](super).
#[derive(Debug)]
pub(crate) struct Event(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    set: bool,
    /// The event on which a thread sleeps that waits for this one, too.
    sleeps_at: Option<Arc<Bell>>,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    /// None; other systems may have no descriptor left.
    pub(crate) fn new() -> io::Result<Event> {
        let state = Mutex::new(State { set: false, sleeps_at: None });
        Ok(Event(Arc::new(Bell { state, changed: Condvar::new() })))
    }

    /// Sets it.
    pub(crate) fn set(&self) {
        let elsewhere = {
            let mut state = self.0.lock();
            state.set = true;
            state.sleeps_at.clone()
        };
        self.0.changed.notify_all();
        if let Some(bell) = elsewhere {
            drop(bell.lock());
            bell.changed.notify_all();
        }
    }

    /// Clears it.
    #[cfg_attr(loom, allow(dead_code, reason = "its model has no use for it"))]
    pub(crate) fn clear(&self) {
        self.0.lock().set = false;
    }

    fn sleeps_at(&self, bell: Option<&Arc<Bell>>) {
        self.0.lock().sleeps_at = bell.cloned();
    }
}

/// Sleeps until one of `events` is set or `timeout` is over; without a time, for as long as it
/// takes. It may also end early. Returns the set of the events that are set, by their places. There
/// are no descriptors of devices.
///
/// # Errors
/// None; other systems may refuse to wait.
pub(crate) fn sleep<'a>(
    events: &[&Event],
    _devices: impl Iterator<Item = Watched<'a>>,
    timeout: Option<Duration>,
) -> io::Result<u16> {
    let Some((first, others)) = events.split_first() else { return Ok(0) };
    others.iter().for_each(|event| event.sleeps_at(Some(&first.0)));
    // A time that is out of reach is none.
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut state = first.0.lock();
    let set = loop {
        let flags = others.iter().map(|event| event.0.lock().set);
        let set = std::iter::once(state.set)
            .chain(flags)
            .enumerate()
            .fold(0, |all, (place, set)| all | u16::from(set) << place);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if set != 0 || left.is_some_and(|left| left.is_zero()) {
            break set;
        }
        state = wait(&first.0.changed, state, left);
    };
    drop(state);
    others.iter().for_each(|event| event.sleeps_at(None));
    Ok(set)
}

fn wait<'a>(
    changed: &Condvar,
    state: MutexGuard<'a, State>,
    left: Option<Duration>,
) -> MutexGuard<'a, State> {
    match left {
        None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(left) => changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
    }
}

#[cfg(all(test, loom))]
mod model {
    //! If the wake-up is lost, loom finds threads that sleep for ever, and aborts: so it does when
    //! `Event::set` does not take the lock of the first, which therefore no test can show.

    use super::*;
    use loom::thread;

    fn two() -> [Arc<Event>; 2] {
        [(); 2].map(|()| Arc::new(Event::new().unwrap()))
    }

    #[test]
    fn whichever_event_is_set_the_sleeper_wakes() {
        for place in 0..2 {
            loom::model(move || {
                let events = two();
                let setter = events[place].clone();
                let thread = thread::spawn(move || setter.set());
                let set = sleep(&[&*events[0], &*events[1]], std::iter::empty(), None).unwrap();
                assert_eq!(set, 1 << place);
                thread.join().unwrap();
            });
        }
    }
}
