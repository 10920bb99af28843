//! A value that its handle uses without a lock, and that one thread's loop may take from it.
//!
//! # Theory of operation
//!
//! A [`LoanCell`] is the only handle to a value, and may move between threads. It can *lend* the
//! value to its present thread ([`LoanCell::lend`]). Then that thread may take the value
//! ([`Loan::take`]) when the code that uses the handle has returned: a loop does so at the end of a
//! turn, to collect the work that was put aside in the turn. The loan stays on the thread; the
//! handle may leave it.
//!
//! One word holds the thread to which the value is lent. On that thread, the handle and the loan
//! are used one after the other. So plain loads and stores of the word suffice, and using the value
//! costs no locked instruction. A handle that finds its value lent to another thread ends the loan
//! first, under a lock. Taking is done under that lock as well, and the taker holds it until it has
//! put the taken value in its place ([`LoanGuard`]). So no later action of the handle overtakes it.
//! On its own thread the handle does not wait for that: code that runs there meanwhile, such as a
//! waker, comes after the taken value.
//!
//! While a handle uses the value, the word records it. A loan that is taken during that, on the
//! same thread, finds no value.
//!
//! A handle that returns to a thread may lend the value to it again, while the thread still has the
//! earlier loan. So loans are numbered: only the one with the latest number is valid.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

#[cfg(all(loom, test))]
use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

/// It has the interface of loom's type.
#[cfg(not(all(loom, test)))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(loom, test)))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
        work(self.0.get())
    }
}

/// Only the handle may use the value.
const HANDLE: usize = 0;
/// The handle is using it.
const IN_USE: usize = 1;
/// Added to the thread: its loan has taken the value, and is putting it where it belongs.
const TAKEN: usize = 2;

/// A thread's number; a thread that has ended may have had the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(usize);

thread_local! {
    /// Its address is the thread's number: it is cheap to find, and a multiple of 4 above 0.
    static HERE: u64 = const { 0 };
}

impl Thread {
    /// The calling thread.
    #[inline]
    fn here() -> Thread {
        HERE.with(|here| Thread(std::ptr::from_ref(here).addr()))
    }
}

/// The state that the handle and a loan share.
struct Shared<T> {
    /// [`HANDLE`], [`IN_USE`], or the thread that it is lent to, with [`TAKEN`] or without.
    lent_to: AtomicUsize,
    /// The number of the last loan. The handle writes it on the thread of the loan; a loan that
    /// reads it elsewhere finds, by the word, that it has ended.
    loan: AtomicUsize,
    /// Held by a loan that takes the value, and by a handle that ends another thread's loan.
    taking: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the only handle, or by the thread to which it is lent, never by
// both (see the module). It may go to other threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, from: usize, to: usize) -> bool {
        self.lent_to.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The handle to a value that can be lent to the loop of a thread.
pub struct LoanCell<T> {
    shared: Arc<Shared<T>>,
}

/// A thread's right to take the value. It stays on the thread. Dropping it ends the loan.
pub struct Loan<T> {
    shared: Arc<Shared<T>>,
    thread: Thread,
    /// Its number.
    loan: usize,
    /// It may not leave the thread.
    stays: PhantomData<*mut T>,
}

/// While this guard exists, the handle cannot be used on another thread.
#[must_use = "what was taken is put where it belongs before this is dropped"]
pub struct LoanGuard<'a, T> {
    shared: &'a Shared<T>,
    thread: Thread,
    _taking: MutexGuard<'a, ()>,
}

impl<T: Default> LoanCell<T> {
    /// A handle to `value`, which is not lent.
    pub fn new(value: T) -> LoanCell<T> {
        let (lent_to, loan) = (AtomicUsize::new(HANDLE), AtomicUsize::new(0));
        let value = UnsafeCell::new(value);
        LoanCell { shared: Arc::new(Shared { lent_to, loan, taking: Mutex::new(()), value }) }
    }

    /// Uses the value.
    #[inline]
    pub fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with_on(Thread::here(), work)
    }

    #[inline]
    fn with_on<R>(&mut self, here: Thread, work: impl FnOnce(&mut T) -> R) -> R {
        let shared = &*self.shared;
        let mut lent_to = shared.lent_to.load(Ordering::Acquire);
        if lent_to != HANDLE && lent_to & !TAKEN != here.0 {
            self.end_loan();
            lent_to = HANDLE;
        }
        shared.lent_to.store(IN_USE, Ordering::Relaxed);
        let result = shared.value.with_mut(|value| {
            // SAFETY: there is one handle, and it is borrowed exclusively. A loan of another thread
            // has ended; one of this thread finds it in use.
            work(unsafe { &mut *value })
        });
        shared.lent_to.store(lent_to, Ordering::Relaxed);
        result
    }

    /// Whether the value is lent to this thread.
    #[inline]
    pub fn is_lent_here(&self) -> bool {
        self.shared.lent_to.load(Ordering::Relaxed) == Thread::here().0
    }

    /// Lends the value to this thread, unless it is already.
    pub fn lend(&mut self) -> Option<Loan<T>> {
        self.lend_on(Thread::here())
    }

    fn lend_on(&mut self, here: Thread) -> Option<Loan<T>> {
        let lent_to = self.shared.lent_to.load(Ordering::Acquire);
        if lent_to == here.0 {
            return None;
        }
        if lent_to != HANDLE && lent_to & !TAKEN != here.0 {
            self.end_loan();
        }
        let loan = self.shared.loan.load(Ordering::Relaxed).wrapping_add(1);
        self.shared.loan.store(loan, Ordering::Relaxed);
        self.shared.lent_to.store(here.0, Ordering::Relaxed);
        Some(Loan { shared: self.shared.clone(), thread: here, loan, stays: PhantomData })
    }

    /// Ends a loan of another thread, and waits until the taken value is in its place. Also called
    /// if the handle was in use during a panic.
    #[cold]
    fn end_loan(&self) {
        let _taking = self.shared.lock();
        self.shared.lent_to.store(HANDLE, Ordering::Relaxed);
    }
}

impl<T: Default> Loan<T> {
    /// Takes the value, and leaves the default in its place: the loan ends. Returns `None` if the
    /// loan has ended before, or the handle is in use just now.
    pub fn take(&self) -> Option<(T, LoanGuard<'_, T>)> {
        let (shared, thread) = (&*self.shared, self.thread);
        let taking = shared.lock();
        if !self.is_last() || !shared.swap(thread.0, IN_USE) {
            return None;
        }
        let value = shared.value.with_mut(|value| {
            // SAFETY: it was lent to this thread, and the word shows that the handle does not use
            // it now. On another thread the handle waits for the lock, whether it finds the word as
            // it is or as it was before.
            std::mem::take(unsafe { &mut *value })
        });
        shared.lent_to.store(thread.0 | TAKEN, Ordering::Release);
        Some((value, LoanGuard { shared, thread, _taking: taking }))
    }
}

impl<T> Loan<T> {
    /// Whether the loan has not ended yet, as far as this thread can see.
    pub fn is_active(&self) -> bool {
        self.is_last() && self.shared.lent_to.load(Ordering::Relaxed) & !TAKEN == self.thread.0
    }

    /// Whether the handle has not lent the value again. One that does so on another thread just now
    /// has changed the word before.
    fn is_last(&self) -> bool {
        self.shared.loan.load(Ordering::Relaxed) == self.loan
    }
}

impl<T> Drop for LoanGuard<'_, T> {
    fn drop(&mut self) {
        // Unless it is lent again.
        self.shared.swap(self.thread.0 | TAKEN, HANDLE);
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        if self.is_last() {
            self.shared.swap(self.thread.0, HANDLE);
        }
    }
}

impl<T> fmt::Debug for LoanCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoanCell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
