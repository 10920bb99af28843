//! Drops of values that applications have lent, at a time when nothing is locked.
//!
//! The last range of such a value ([`Slice::from_owner`](crate::Slice::from_owner)) may go
//! anywhere: in the middle of an ACK, in a device, while sockets are owned and locks are held. Its
//! drop is the application's code. It may take long, call the stack, or panic. So a thread that
//! works for the stack says when it begins ([`PostponedDrops::begin`]); values that go meanwhile
//! wait on the thread, and are dropped when it has released everything. A drop that panics is
//! caught, with this feature of the crate: the message goes to the panic hook, and the next value
//! is dropped.
//!
//! Without the feature `std` values are dropped where the last range goes.

#[cfg(feature = "std")]
use core::cell::{Cell, RefCell};
#[cfg(feature = "std")]
use core::marker::PhantomData;
#[cfg(feature = "std")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::chunk::Foreign;

#[cfg(not(feature = "std"))]
pub(crate) fn end(value: Foreign) {
    drop(value);
}

/// Capacity, in values, that a thread keeps for the next drops.
#[cfg(feature = "std")]
const MAX_KEPT: usize = 256;

#[cfg(feature = "std")]
std::thread_local! {
    /// How many postpone drops on this thread, and whether values wait.
    static STATE: Cell<(u32, bool)> = const { Cell::new((0, false)) };
    /// The values that wait, the oldest first.
    static WAITING: RefCell<alloc::vec::Vec<Foreign>> =
        const { RefCell::new(alloc::vec::Vec::new()) };
}

/// As long as it lives, values that applications have lent are not dropped on this thread. They are
/// when the last one of these goes.
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct PostponedDrops(PhantomData<*mut ()>);

#[cfg(feature = "std")]
impl PostponedDrops {
    /// Begins to postpone drops.
    #[must_use]
    #[inline]
    pub fn begin() -> PostponedDrops {
        let (postponers, waiting) = STATE.get();
        STATE.set((postponers + 1, waiting));
        PostponedDrops(PhantomData)
    }
}

#[cfg(feature = "std")]
impl Drop for PostponedDrops {
    #[inline]
    fn drop(&mut self) {
        let (postponers, waiting) = STATE.get();
        STATE.set((postponers - 1, waiting && postponers > 1));
        if postponers == 1 && waiting {
            drop_waiting();
        }
    }
}

#[cfg(feature = "std")]
#[cold]
fn drop_waiting() {
    let mut values = WAITING.try_with(RefCell::take).unwrap_or_default();
    values.drain(..).for_each(drop_caught);
    keep(values);
}

/// Keeps an empty vector for the values that wait next, unless it is large or there is another.
#[cfg(feature = "std")]
fn keep(values: alloc::vec::Vec<Foreign>) {
    if values.capacity() > MAX_KEPT {
        return;
    }
    // A thread that comes to its end has no place for it any more.
    let _ = WAITING.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        if waiting.capacity() == 0 {
            *waiting = values;
        }
    });
}

/// The last range of `value` is gone.
#[cfg(feature = "std")]
pub(crate) fn end(value: Foreign) {
    let mut value = Some(value);
    let (postponers, _) = STATE.get();
    if postponers > 0 {
        // A thread that comes to its end has no place for it any more.
        let _ = WAITING.try_with(|waiting| waiting.borrow_mut().extend(value.take()));
        STATE.set((postponers, true));
    }
    if let Some(value) = value {
        drop_caught(value);
    }
}

#[cfg(feature = "std")]
fn drop_caught(value: Foreign) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) else { return };
    // The panic's payload is a foreign value too, and its drop may panic again: leak the second
    // one.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        core::mem::forget(another);
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use std::string::String;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Slice;

    /// Bytes that say when they are dropped.
    struct Told(&'static str, Arc<Mutex<String>>);

    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.1.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push_str(self.0);
            assert_ne!(self.0, "bad", "as the test wants");
        }
    }

    #[test]
    fn values_wait_for_the_last_postponer() {
        let log = Arc::new(Mutex::new(String::new()));
        let slice = |name| Slice::from_owner(Told(name, log.clone()));
        let told = || log.lock().unwrap().clone();
        drop(slice("now,"));
        assert_eq!(told(), "now,");
        let outer = PostponedDrops::begin();
        drop(slice("one,"));
        let inner = PostponedDrops::begin();
        drop(slice("two,"));
        drop(inner);
        assert_eq!(told(), "now,");
        drop(outer);
        assert_eq!(told(), "now,one,two,", "in their order");
        drop(PostponedDrops::begin());
        assert_eq!(told(), "now,one,two,");
    }

    #[test]
    fn each_panic_is_caught_by_itself() {
        let log = Arc::new(Mutex::new(String::new()));
        let slice = |name| Slice::from_owner(Told(name, log.clone()));
        let postponed = PostponedDrops::begin();
        ["bad", "bad", "good"].into_iter().for_each(|name| drop(slice(name)));
        drop(postponed);
        drop(slice("bad"));
        assert_eq!(*log.lock().unwrap(), "badbadgoodbad");
    }

    /// A value that drops another one when it is dropped.
    #[test]
    fn what_goes_meanwhile_goes_at_once() {
        struct Holds(#[allow(dead_code, reason = "it is dropped")] Slice);
        impl AsRef<[u8]> for Holds {
            fn as_ref(&self) -> &[u8] {
                b"x"
            }
        }
        let log = Arc::new(Mutex::new(String::new()));
        let postponed = PostponedDrops::begin();
        drop(Slice::from_owner(Holds(Slice::from_owner(Told("inner", log.clone())))));
        assert_eq!(*log.lock().unwrap(), "");
        drop(postponed);
        assert_eq!(*log.lock().unwrap(), "inner");
    }
}
