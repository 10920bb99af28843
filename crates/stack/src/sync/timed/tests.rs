use super::*;

impl Deadlines for Option<Instant> {
    fn next(&self) -> Option<Instant> {
        *self
    }
}

#[cfg(not(loom))]
#[test]
fn what_is_due_is_seen_without_the_lock() {
    let timed = Timed::<Option<Instant>>::default();
    assert!(timed.is_empty() && !timed.is_due(Instant::FAR_FUTURE));
    let at = Instant::from_millis(5);
    let mut guard = timed.lock();
    *guard = Some(at);
    assert!(timed.is_empty(), "it is published when the lock is let go");
    drop(guard);
    assert_eq!(timed.next(), Some(at));
    assert!(timed.is_due(at) && !timed.is_due(Instant::from_millis(4)));
    *timed.lock() = None;
    assert!(timed.is_empty());
}

#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::kick::Sleep;
    use loom::sync::Arc;

    const SOON: Instant = Instant::from_millis(1);

    /// A thread brings a deadline forward while the poller goes to sleep for good. Returns whether
    /// the poller wakes in time.
    fn armed_while_falling_asleep(arm: fn(&Timed<Option<Instant>>, &Sleep) -> bool) {
        loom::model(move || {
            let timed = Arc::new(Timed::new(None));
            let sleep = Arc::new(Sleep::new());
            let other = {
                let (timed, sleep) = (timed.clone(), sleep.clone());
                loom::thread::spawn(move || arm(&timed, &sleep))
            };
            sleep.announce(None);
            let seen = timed.next();
            let woken = other.join().unwrap();
            assert!(seen == Some(SOON) || woken, "the poller sleeps beyond the deadline");
        });
    }

    #[test]
    fn a_poller_that_falls_asleep_sees_the_deadline_or_is_woken() {
        armed_while_falling_asleep(|timed, sleep| {
            *timed.lock() = Some(SOON);
            sleep.must_wake(SOON)
        });
    }

    #[test]
    #[should_panic(expected = "sleeps beyond the deadline")]
    fn a_kick_before_the_deadline_is_published_may_be_lost() {
        armed_while_falling_asleep(|timed, sleep| {
            let mut guard = timed.lock();
            *guard = Some(SOON);
            let woken = sleep.must_wake(SOON);
            drop(guard);
            woken
        });
    }
}
