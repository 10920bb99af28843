//! What the servers of `cargo xtask bench peers` have in common.
//!
//! Each server is one program on one stack. It is started as `PROGRAM DEVICE ADDRESS:PORT`, prints
//! `ready` when it accepts connections, and runs until it is killed. All of them speak one protocol
//! ([`Job`]), so that one client on the kernel's sockets can measure them all. There is an engine
//! of the protocol for each shape that sockets have: [`blocking`] calls, sockets that are
//! [`polled`], and, with the feature `tokio`, `asynchronous` streams. With the feature `tun` there
//! is a TUN device.

#[cfg(feature = "tokio")]
pub mod asynchronous;
pub mod blocking;
mod job;
pub mod polled;
#[cfg(feature = "tokio")]
pub mod tun;

use std::io::{self, Error, ErrorKind, Write};
use std::net::SocketAddr;

pub use job::{HEADER, Job, MARK};

/// Bytes of the buffer that a server reads into, and writes from.
pub const SCRATCH: usize = 256 * 1024;

/// How many writes are made before the clock is looked at again: to look after each one would weigh
/// upon small writes.
const WRITES_PER_LOOK: u32 = 32;

/// The prefix of the network in which the server has its address.
pub const PREFIX: u8 = 24;

/// The command line of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The network device that the stack is to use; of no meaning for the kernel.
    pub device: String,
    /// Where to listen.
    pub address: SocketAddr,
}

impl Args {
    /// The command line of this program.
    ///
    /// # Errors
    /// If it is not `DEVICE ADDRESS:PORT`.
    pub fn of_program() -> io::Result<Args> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [device, address] = words.as_slice() else {
            return Err(wrong(format!("usage: PROGRAM DEVICE ADDRESS:PORT, not {words:?}")));
        };
        let parsed = address.parse();
        let address = parsed.map_err(|_| wrong(format!("`{address}` is no ADDRESS:PORT")))?;
        Ok(Args { device: device.clone(), address })
    }
}

/// Tells whoever has started the server that it accepts connections.
///
/// # Errors
/// If nobody reads it.
pub fn ready() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidInput, what)
}
