//! Tests of the wait for the last orphan: in order, and all interleavings under loom.

#[cfg(not(loom))]
#[test]
fn who_waits_is_woken_by_the_last() {
    use super::*;

    let (orphans, key) = (Orphans::default(), WaitKey::new());
    let mut wakers = WakeList::default();
    assert_eq!((orphans.add(), orphans.add()), (0, 1));
    assert!(orphans.register(key, Waker::noop().clone()).is_none());
    orphans.remove(&mut wakers);
    assert!(orphans.lock().is_waiting(Interest::Read));
    orphans.remove(&mut wakers);
    assert!(!orphans.lock().is_waiting(Interest::Read));
    assert_eq!(orphans.count(), 0);
    assert!(orphans.register(key, Waker::noop().clone()).is_none());
    assert!(orphans.cancel(key).is_some());
    assert!(!orphans.lock().is_waiting(Interest::Read));
}

#[cfg(loom)]
mod model {
    //! A thread that goes to sleep ends; when the last orphan has gone, it must have been woken.

    use std::sync::Arc as StdArc;
    use std::task::Wake;

    use loom::sync::Arc;
    use loom::thread;

    use super::super::*;

    struct Token(Mutex<bool>);

    impl Wake for Token {
        fn wake(self: StdArc<Self>) {
            *self.0.lock().unwrap() = true;
        }
    }

    fn run(looks_after: bool) {
        loom::model(move || {
            let orphans = Arc::new(Orphans::default());
            orphans.add();
            let token = StdArc::new(Token(Mutex::new(false)));
            let ending = {
                let orphans = orphans.clone();
                thread::spawn(move || {
                    let mut wakers = WakeList::default();
                    orphans.remove(&mut wakers);
                    assert_eq!(wakers.fire(), 0);
                })
            };
            let before = orphans.count();
            drop(orphans.register(WaitKey::new(), Waker::from(token.clone())));
            let left = if looks_after { orphans.count() } else { before };
            ending.join().unwrap();
            let woken = *token.0.lock().unwrap();
            assert!(left == 0 || woken, "the wake-up is lost");
        });
    }

    #[test]
    fn the_last_one_wakes_who_waits() {
        run(true);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn who_looks_before_it_registers_sleeps_for_ever() {
        run(false);
    }
}
