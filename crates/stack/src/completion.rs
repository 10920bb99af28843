//! Bytes below us: what a connection has handed down and the device has not completed.
//!
//! The count is an atomic, because completions come from whatever thread drains the device. A data
//! packet is charged once, when it enters the queueing discipline, and released once, when the
//! device is done with it or it was dropped. A completion never touches the connection; waking a
//! connection that waits for completions is a later room.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plimsoll_tcp::{Below, Serial};

/// What lies below one connection.
#[derive(Debug, Default)]
pub(crate) struct BelowUs {
    bytes: AtomicU32,
    completed: AtomicU64,
}

impl BelowUs {
    /// Adds a packet with `bytes` of data.
    pub(crate) fn charge(&self, bytes: u32) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes a packet off.
    pub(crate) fn release(&self, bytes: u32, serial: u64) {
        // The serial is published before the bytes go, so that whoever sees nothing below also sees
        // the last packet completed.
        self.completed.fetch_max(serial, Ordering::Release);
        self.bytes.fetch_sub(bytes, Ordering::Release);
    }

    /// What the engine is told.
    pub(crate) fn get(&self) -> Below {
        let bytes = self.bytes.load(Ordering::Acquire);
        Below {
            bytes,
            completed: Serial(self.completed.load(Ordering::Acquire)),
            ..Below::default()
        }
    }
}
