//! What threads hand to each other where a mutex would not do.
//!
//! Beside `device/sys` this is the only folder of the crate with `unsafe` code. Each type here is
//! small, says why its `unsafe` is right, and is held by loom models.
#![allow(unsafe_code, reason = "this folder is where it belongs, audited as a whole")]

pub(crate) mod loan_cell;
mod parking;
pub(crate) mod socket_lock;
pub(crate) mod timed;
mod token;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use token::{Held, Token};

/// Locks `mutex`. A thread that panicked while it held the lock has reported its panic already;
/// the data is as good as the last completed step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
