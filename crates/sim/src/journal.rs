//! What the hosts of a run see and do, in order: packets that reach a host and that leave it, and
//! the calls of its applications. A packetdrill script can be made of it.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_stack::packet::Packet;
use plimsoll_tcp::Duration;

use crate::fault::is_intact;

/// Something that one host has seen or done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// The number of the host.
    pub host: usize,
    /// What.
    pub what: What,
}

/// What a host has seen or done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A packet has reached it, from the IP header on.
    Arrived {
        /// Its bytes, with all checksums.
        packet: Vec<u8>,
        /// It was damaged on its way: the checksum does not fit.
        damaged: bool,
    },
    /// A packet has left it, from the IP header on. A super-segment is whole; its checksums may not
    /// be filled in.
    Left(Vec<u8>),
    /// The application of a flow has called.
    Called {
        /// The flow, from 0.
        flow: usize,
        /// What it has called.
        call: Call,
    },
}

impl What {
    pub(crate) fn arrived(packet: &Packet) -> What {
        What::Arrived { packet: packet.to_vec(), damaged: !is_intact(packet) }
    }
}

/// A call of an application that has succeeded. Those that would have blocked are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// It listens, with these options.
    Listen(SocketOptions),
    /// It has begun to connect, with these options.
    Connect(SocketOptions),
    /// It has taken a connection.
    Accept,
    /// It has written so many bytes.
    Write(usize),
    /// It has read bytes; 0 is the end of the stream.
    Read {
        /// The length of its buffer.
        size: usize,
        /// What it got.
        got: usize,
    },
    /// It has shut its sending side.
    Shutdown,
    /// It has closed the socket.
    Close,
}

/// Options that an application has set before it connects or listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
}

/// Collects entries, if anybody wants them. It is shared by the world and its applications.
#[derive(Clone, Default)]
pub(crate) struct Journal(Option<Arc<Mutex<Vec<Entry>>>>);

impl Journal {
    /// A journal, or one that keeps nothing.
    pub(crate) fn new(wanted: bool) -> Journal {
        Journal(wanted.then(Arc::default))
    }

    /// Takes note of something. What it was is only asked for if it is kept.
    pub(crate) fn note(&self, at: Duration, host: usize, what: impl FnOnce() -> What) {
        if let Some(entries) = &self.0 {
            let entry = Entry { at, host, what: what() };
            entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        }
    }

    /// All entries, which are no longer in it.
    pub(crate) fn take(&self) -> Vec<Entry> {
        let Some(entries) = &self.0 else { return Vec::new() };
        core::mem::take(&mut *entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
