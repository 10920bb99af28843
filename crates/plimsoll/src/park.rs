//! How a blocking call sleeps.
//!
//! A call that cannot go on registers the waker of its thread with the socket, which looks once
//! more whether it can, and parks. The waker unparks the thread. A wake-up between looking and
//! parking is kept by the thread's token, so none is lost, and a thread that is woken for nothing
//! looks again.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

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
    static WAKER: OnceCell<Waker> = const { OnceCell::new() };
}

/// Calls `attempt` with the waker of this thread until it is ready, sleeping in between. `None`
/// means that `deadline` came first.
pub(crate) fn wait<T>(
    deadline: Option<Instant>,
    mut attempt: impl FnMut(&Waker) -> Poll<T>,
) -> Option<T> {
    let waker = WAKER.with(|cell| {
        cell.get_or_init(|| Waker::from(Arc::new(ThreadWaker(thread::current())))).clone()
    });
    loop {
        if let Poll::Ready(value) = attempt(&waker) {
            return Some(value);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
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
        let got = wait(None, |waker| {
            calls += 1;
            waker.wake_by_ref();
            if calls == 3 { Poll::Ready(calls) } else { Poll::Pending }
        });
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
        wait(None, |waker| {
            *slot.lock().unwrap() = Some(waker.clone());
            if ready.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        });
        other.join().unwrap();
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let past = Instant::now().checked_sub(Duration::from_millis(1));
        assert_eq!(wait::<()>(past, |_| Poll::Pending), None);
        assert_eq!(wait(past, |_| Poll::Ready(1)), Some(1));
    }
}
