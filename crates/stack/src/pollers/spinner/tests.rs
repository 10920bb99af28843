//! All interleavings of a poller that goes to sleep under a lease, and a spinner that ends it.
#![cfg(loom)]

mod model {
    //! A poller that relies on a lease ends its thread; when the spinner is done, it must have been
    //! woken. (Really it would wake when the lease was to end, which is too late for a packet.)
    //! Each model is run as it is and with one part taken out.

    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::*;
    use crate::kick::Sleep;

    const NOW: Instant = Instant::from_nanos(1);

    struct World {
        spinner: Spinner,
        sleep: Sleep,
        event: Mutex<bool>,
    }

    #[derive(Clone, Copy)]
    struct Parts {
        poller_says_first: bool,
        spinner_fence: bool,
    }

    const WHOLE: Parts = Parts { poller_says_first: true, spinner_fence: true };

    /// Whether the poller sleeps without the devices.
    fn relies(world: &World, parts: Parts) -> bool {
        if parts.poller_says_first {
            world.spinner.rely(true);
        }
        world.sleep.announce(None);
        let lease = world.spinner.lease(NOW).is_some();
        world.spinner.rely(lease);
        lease
    }

    fn end(spinner: &Spinner, parts: Parts) -> bool {
        if parts.spinner_fence {
            return spinner.end();
        }
        spinner.lease.store(0, Ordering::Relaxed);
        spinner.relied_on.load(Ordering::Relaxed)
    }

    fn run(parts: Parts) {
        loom::model(move || {
            let (spinner, sleep) = (Spinner::default(), Sleep::new());
            spinner.lease.store(2, Ordering::Relaxed);
            let world = Arc::new(World { spinner, sleep, event: Mutex::new(false) });
            let poller = {
                let world = world.clone();
                thread::spawn(move || relies(&world, parts))
            };
            if end(&world.spinner, parts) && world.sleep.must_wake(Instant::ZERO) {
                *world.event.lock().unwrap() = true;
            }
            let asleep = poller.join().unwrap();
            assert!(!asleep || *world.event.lock().unwrap(), "the wake-up is lost");
        });
    }

    #[test]
    fn a_poller_that_relies_on_a_lease_is_told_of_its_end() {
        run(WHOLE);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn one_that_does_not_say_so_first_is_not() {
        run(Parts { poller_says_first: false, ..WHOLE });
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_of_the_spinner_it_is_not() {
        run(Parts { spinner_fence: false, ..WHOLE });
    }
}
