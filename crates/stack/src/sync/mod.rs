//! Types for sharing state between threads where a mutex does not fit.
//!
//! Only this folder and `device/sys` contain `unsafe` code in this crate. Each type here is small,
//! documents why its `unsafe` is sound, and is verified with loom.
#![allow(unsafe_code, reason = "this folder is where it belongs, audited as a whole")]

pub(crate) mod loan_cell;
mod parking;
pub(crate) mod socket_lock;
pub(crate) mod timed;
mod token;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use token::{Held, Token};

/// Locks `mutex`. A thread that panicked while it held the lock has reported its panic already; the
/// data is in the state of the last completed step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
