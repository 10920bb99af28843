#[cfg(not(loom))]
mod plain {
    use super::super::*;

    #[test]
    fn the_holder_hears_of_those_who_missed() {
        let token = Token::new(1);
        let mut held = token.take().unwrap();
        assert!(token.take().is_none());
        assert!(token.take().is_none());
        *held += 1;
        let held = held.let_go().expect("one more round");
        assert!(held.let_go().is_none());
        let held = token.take().unwrap();
        assert_eq!(*held, 2);
        assert!(token.take().is_none());
        assert!(held.abandon(), "somebody missed it");
        assert!(!token.leave_to_holder(), "nobody holds it");
        let held = token.take().unwrap();
        assert!(token.leave_to_holder());
        assert!(held.let_go().expect("one more round").let_go().is_none());
        assert!(!token.take().unwrap().abandon());
    }

    #[test]
    fn a_panic_lets_go() {
        let token = Token::new(());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = token.take().unwrap();
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert!(token.take().is_some());
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::super::*;
    use crate::kick::Sleep;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, AtomicUsize};
    use plimsoll_tcp::Instant;

    fn drain(token: &Token<usize>, queued: &AtomicUsize) {
        let Some(mut held) = token.take() else { return };
        loop {
            *held = queued.load(Ordering::Relaxed);
            match held.let_go() {
                None => return,
                Some(again) => held = again,
            }
        }
    }

    /// Two threads queue one packet each (relaxed, so that only the token orders them) and drain.
    #[test]
    fn no_packet_is_left_behind() {
        loom::model(|| {
            let token = Arc::new(Token::new(0));
            let queued = Arc::new(AtomicUsize::new(0));
            let work = |token: &Token<usize>, queued: &AtomicUsize| {
                queued.fetch_add(1, Ordering::Relaxed);
                drain(token, queued);
            };
            let other = {
                let (token, queued) = (token.clone(), queued.clone());
                loom::thread::spawn(move || work(&token, &queued))
            };
            work(&token, &queued);
            other.join().unwrap();
            let held = token.take().expect("the token is free again");
            assert_eq!(*held, 2);
        });
    }

    /// The same with a holder that releases without checking the flag: a packet stays behind.
    #[test]
    #[should_panic(expected = "left behind")]
    fn a_holder_that_does_not_look_leaves_a_packet() {
        loom::model(|| {
            let token = Arc::new(Token::new(0));
            let queued = Arc::new(AtomicUsize::new(0));
            let work = |token: &Token<usize>, queued: &AtomicUsize| {
                queued.fetch_add(1, Ordering::Relaxed);
                let Some(mut held) = token.take() else { return };
                *held = queued.load(Ordering::Relaxed);
                drop(held);
            };
            let other = {
                let (token, queued) = (token.clone(), queued.clone());
                loom::thread::spawn(move || work(&token, &queued))
            };
            work(&token, &queued);
            other.join().unwrap();
            assert_eq!(*token.take().unwrap(), 2, "left behind");
        });
    }

    /// A thread queues a packet and goes; a poller that finds the token taken sleeps.
    #[test]
    fn a_poller_may_leave_what_is_queued_to_the_holder() {
        loom::model(|| {
            let token = Arc::new(Token::new(0));
            let queued = Arc::new(AtomicUsize::new(0));
            let holder = {
                let (token, queued) = (token.clone(), queued.clone());
                loom::thread::spawn(move || drain(&token, &queued))
            };
            queued.fetch_add(1, Ordering::Relaxed);
            // The poller's check before it sleeps; otherwise it would check again.
            if !token.leave_to_holder() {
                drain(&token, &queued);
            }
            holder.join().unwrap();
            assert_eq!(*token.take().unwrap(), 1);
        });
    }

    /// The time at which the holder notifies the poller of the deadline that it has published.
    #[derive(Clone, Copy)]
    enum Tells {
        Behind,
        Before,
    }

    /// A thread holds the token and gets a deadline. The poller skips, is about to sleep, and reads
    /// the deadline that the holder publishes. In the end the poller has read the deadline, or it
    /// is woken.
    fn poller_hears_of_a_deadline(tells: Tells) {
        const DUE: Instant = Instant::from_nanos(7);
        loom::model(move || {
            let token = Arc::new(Token::new(()));
            let next = Arc::new(AtomicU64::new(u64::MAX));
            let sleep = Arc::new(Sleep::new());
            let holder = {
                let (token, next, sleep) = (token.clone(), next.clone(), sleep.clone());
                loom::thread::spawn(move || {
                    let mut woken = false;
                    let Some(mut held) = token.take() else { return woken };
                    loop {
                        if matches!(tells, Tells::Before) {
                            woken |= sleep.must_wake(DUE);
                        }
                        next.store(DUE.as_nanos(), Ordering::Relaxed);
                        match held.let_go() {
                            None => break,
                            Some(again) => held = again,
                        }
                    }
                    if matches!(tells, Tells::Behind) {
                        woken |= sleep.must_wake(DUE);
                    }
                    woken
                })
            };
            // The poller: it processes the packets that it gets, and does not wait.
            if let Some(held) = token.take() {
                let _ = held.abandon();
            }
            sleep.announce(None);
            let known = next.load(Ordering::Relaxed) != u64::MAX;
            let woken = holder.join().unwrap();
            // A holder that came after the poller was gone found the token free and notified it.
            let ran = next.load(Ordering::Relaxed) != u64::MAX;
            assert!(!ran || known || woken, "nobody tells the poller");
        });
    }

    #[test]
    fn a_poller_that_skips_hears_of_the_deadline() {
        poller_hears_of_a_deadline(Tells::Behind);
    }

    #[test]
    #[should_panic(expected = "nobody tells the poller")]
    fn a_holder_that_tells_first_may_be_missed() {
        poller_hears_of_a_deadline(Tells::Before);
    }
}
