#[cfg(not(loom))]
mod plain {
    use super::super::*;

    #[test]
    fn what_is_lent_can_be_taken_once() {
        let mut handle = LoanCell::new(Vec::new());
        handle.with(|list| list.push(1));
        let lent = handle.lend().expect("it was lent to nobody");
        assert!(handle.lend().is_none(), "it is lent to this thread already");
        handle.with(|list| list.push(2));
        let (list, taken) = lent.take().expect("it is lent");
        assert_eq!(list, [1, 2]);
        // A value that is put in before the taker is done comes later, on its own thread.
        handle.with(|list| list.push(3));
        drop(taken);
        assert!(lent.take().is_none(), "the loan has ended");
        assert_eq!(handle.with(std::mem::take), [3]);
    }

    #[test]
    fn a_loan_that_is_dropped_leaves_the_value() {
        let mut handle = LoanCell::new(vec![1]);
        drop(handle.lend());
        assert!(handle.lend().is_some(), "it can be lent again");
        assert_eq!(handle.with(std::mem::take), [1]);
    }

    #[test]
    fn a_loan_that_is_taken_while_the_handle_is_in_use_finds_nothing() {
        let mut handle = LoanCell::new(vec![1]);
        let lent = handle.lend().expect("it was lent to nobody");
        handle.with(|list| {
            assert!(lent.take().is_none());
            list.push(2);
        });
        assert_eq!(lent.take().expect("it is lent").0, [1, 2]);
    }

    #[test]
    fn another_loan_may_begin_before_the_taker_is_done() {
        let mut handle = LoanCell::new(vec![1]);
        let lent = handle.lend().expect("it was lent to nobody");
        let (_, taken) = lent.take().expect("it is lent");
        handle.with(|list| list.push(2));
        let again = handle.lend().expect("the loan has ended");
        drop(taken);
        drop(lent);
        assert_eq!(again.take().expect("the end of the one before does not end it").0, [2]);
    }

    #[test]
    fn a_loan_from_before_the_handle_was_elsewhere_is_none() {
        let mut handle = LoanCell::new(vec![1]);
        let lent = handle.lend().expect("it was lent to nobody");
        let elsewhere = std::thread::spawn(move || {
            drop(handle.lend());
            handle
        });
        let mut handle = elsewhere.join().expect("no panic");
        let again = handle.lend().expect("the loan has ended");
        assert!(handle.is_lent_here());
        assert!(lent.take().is_none());
        assert_eq!((lent.is_active(), again.is_active()), (false, true));
        drop(lent);
        assert_eq!(again.take().expect("it is lent").0, [1]);
        assert!(!handle.is_lent_here());
    }

    #[test]
    fn a_handle_that_leaves_the_thread_ends_the_loan() {
        let mut handle = LoanCell::new(vec![1]);
        let lent = handle.lend().expect("it was lent to nobody");
        let other = std::thread::spawn(move || handle.with(std::mem::take));
        assert_eq!(other.join().expect("no panic"), [1]);
        assert!(lent.take().is_none());
    }

    #[test]
    fn a_panic_in_the_use_harms_nothing() {
        let mut handle = LoanCell::new(vec![1]);
        let lent = handle.lend().expect("it was lent to nobody");
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            handle.with(|_| panic!("on purpose"));
        }));
        assert!(used.is_err());
        assert!(lent.take().is_none());
        assert_eq!(handle.with(std::mem::take), [1]);
        assert!(handle.lend().is_some());
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::super::*;

    const LOOP: Thread = Thread(8);
    const OTHER: Thread = Thread(16);

    /// A handle puts a value aside on the thread of the loop and moves to another thread, where it
    /// puts another aside and passes both on, while the loop takes the lent value. `done` is
    /// whether the loop has passed on the value taken before the handle continues.
    fn taken_while_the_handle_leaves(done: bool) {
        loom::model(move || {
            let log = loom::sync::Arc::new(Mutex::new(Vec::new()));
            let mut handle = LoanCell::new(Vec::new());
            handle.with_on(LOOP, |list| list.push(1));
            let lent = handle.lend_on(LOOP).expect("it was lent to nobody");
            let other = {
                let log = log.clone();
                loom::thread::spawn(move || {
                    handle.with_on(OTHER, |list| list.push(2));
                    let list = handle.with_on(OTHER, std::mem::take);
                    log.lock().unwrap().extend(list);
                })
            };
            if let Some((list, taken)) = lent.take() {
                let taken = done.then_some(taken);
                log.lock().unwrap().extend(list);
                drop(taken);
            }
            other.join().unwrap();
            assert_eq!(*log.lock().unwrap(), [1, 2], "out of order");
        });
    }

    #[test]
    fn nothing_overtakes_what_a_loop_takes() {
        taken_while_the_handle_leaves(true);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn a_loop_that_lets_the_handle_go_on_too_early_is_overtaken() {
        taken_while_the_handle_leaves(false);
    }

    /// The handle is lent on another thread while the loop takes.
    #[test]
    fn a_loan_that_was_ended_elsewhere_takes_nothing() {
        loom::model(|| {
            let mut handle = LoanCell::new(vec![1]);
            let lent = handle.lend_on(LOOP).expect("it was lent to nobody");
            let other = loom::thread::spawn(move || {
                let list = handle.with_on(OTHER, std::mem::take);
                let again = handle.lend_on(OTHER).expect("the loan of the other has ended");
                assert_eq!(again.take().map(|taken| taken.0), Some(Vec::new()));
                list
            });
            let mut all = lent.take().map(|taken| taken.0).unwrap_or_default();
            all.extend(other.join().unwrap());
            assert_eq!(all, [1]);
        });
    }

    /// The handle returns to the thread of the loop, which still has the earlier loan.
    #[test]
    fn an_older_loan_does_not_end_the_one_that_stands() {
        loom::model(|| {
            let mut handle = LoanCell::new(vec![1]);
            let lent = handle.lend_on(LOOP).expect("it was lent to nobody");
            let other = loom::thread::spawn(move || {
                let again = handle.lend_on(OTHER).expect("it was lent to the loop");
                handle.with_on(OTHER, |list| list.push(2));
                drop(again);
                handle
            });
            let mut all = lent.take().map(|taken| taken.0).unwrap_or_default();
            let mut handle = other.join().unwrap();
            let again = handle.lend_on(LOOP).expect("the loan of the other has ended");
            handle.with_on(LOOP, |list| list.push(3));
            drop(lent);
            all.extend(again.take().expect("it is lent").0);
            assert_eq!(all, [1, 2, 3]);
        });
    }
}
