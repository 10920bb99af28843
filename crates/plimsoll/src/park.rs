//! How a blocking call sleeps.
//!
//! A call that cannot go on registers the waker of its thread, under the key of the thread, with
//! the socket, which looks once
//! more whether it can, and parks. The waker unparks the thread. A wake-up between looking and
//! parking is kept by the thread's token, so none is lost, and a thread that is woken for nothing
//! looks again.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use plimsoll_stack::WaitKey;

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAITER: OnceCell<(WaitKey, Waker)> = const { OnceCell::new() };
}

/// Calls `attempt` with the key and the waker of this thread until it is ready, sleeping in
/// between. If `deadline` comes first, `give_up` takes the waker out again, and the result is
/// `None`.
pub(crate) fn wait<T>(
    deadline: Option<Instant>,
    mut attempt: impl FnMut(WaitKey, &Waker) -> Poll<T>,
    give_up: impl FnOnce(WaitKey),
) -> Option<T> {
    let new = || (WaitKey::of_thread(), Waker::from(Arc::new(ThreadWaker(thread::current()))));
    let (key, waker) = WAITER.with(|cell| cell.get_or_init(new).clone());
    loop {
        if let Poll::Ready(value) = attempt(key, &waker) {
            return Some(value);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    give_up(key);
                    return None;
                }
                thread::park_timeout(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_wake_up_before_parking_is_kept() {
        let mut calls = 0;
        let got = wait(
            None,
            |_, waker| {
                calls += 1;
                waker.wake_by_ref();
                if calls == 3 { Poll::Ready(calls) } else { Poll::Pending }
            },
            |_| (),
        );
        assert_eq!(got, Some(3));
    }

    #[test]
    fn a_wake_up_from_another_thread_ends_the_wait() {
        let ready = Arc::new(AtomicBool::new(false));
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let other = {
            let (ready, slot) = (ready.clone(), slot.clone());
            thread::spawn(move || {
                loop {
                    if let Some(waker) = slot.lock().unwrap().take() {
                        ready.store(true, Ordering::Release);
                        waker.wake();
                        return;
                    }
                    thread::yield_now();
                }
            })
        };
        wait(
            None,
            |_, waker| {
                *slot.lock().unwrap() = Some(waker.clone());
                if ready.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
            },
            |_| (),
        );
        other.join().unwrap();
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let past = Instant::now().checked_sub(Duration::from_millis(1));
        let mut gave_up = false;
        assert_eq!(wait::<()>(past, |_, _| Poll::Pending, |_| gave_up = true), None);
        assert!(gave_up);
        assert_eq!(wait(past, |_, _| Poll::Ready(1), |_| unreachable!()), Some(1));
    }
}
