//! What a script runs on.
//!
//! The runner knows nothing of clocks, threads and devices: it asks a [`Host`]. The embedded host
//! is the stack with a virtual clock; the kernel host is this machine's kernel with a TUN device
//! in a network namespace of its own.

use std::net::IpAddr;
use std::path::Path;

use crate::posix::{Call, Reply};
use plimsoll_tcp::{Duration, Instant};

use crate::shell::Command;

/// How the network around the stack under test looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Our address.
    pub local: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
    /// The address of the far end of the device, in our own network.
    pub gateway: IpAddr,
    /// The address that packets of the script come from.
    pub remote: IpAddr,
    /// The MTU of the device.
    pub mtu: u16,
    /// Segments of inbound super-segments have this size (`--mss`), if the script says so.
    pub inbound_mss: Option<u16>,
    /// Sockets are of the IPv6 family with IPv4 packets on the wire (`ipv4-mapped-ipv6`).
    pub mapped: bool,
}

/// A packet that the stack under test sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When.
    pub at: Instant,
    /// From the IP header on. A super-segment is whole.
    pub bytes: Vec<u8>,
}

/// How a call that was started went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It returned at once.
    Returned(Reply),
    /// It sleeps.
    Sleeps,
}

/// Something that went wrong beside what a script checks.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// What a script runs on.
pub trait Host {
    /// The time since the script began.
    fn now(&self) -> Instant;

    /// The script begins now: what its first shell lines took on a real clock does not count.
    fn begin(&mut self) {}

    /// Lets time pass until `until`, or until a further packet has left or the sleeping call has
    /// returned, whichever comes first.
    ///
    /// # Errors
    /// If the host is broken.
    fn wait(&mut self, until: Instant) -> Result<(), HostError>;

    /// A packet that arrives, from the IP header on; checksums are right.
    ///
    /// # Errors
    /// If the host is broken.
    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError>;

    /// The next packet that has left, in order.
    fn sniff(&mut self) -> Option<Captured>;

    /// The device is done with all that has left. Where nobody calls this it keeps what it can.
    fn complete(&mut self) {}

    /// Makes a call. `may_sleep` says that the script expects it to sleep; one that sleeps although
    /// the script does not expect it is still `Sleeps`.
    ///
    /// # Errors
    /// If the host is broken, or a call is made while another sleeps and it cannot do both.
    fn call(&mut self, call: Call, may_sleep: bool) -> Result<Started, HostError>;

    /// What the sleeping call returned, and when, once it has.
    fn returned(&mut self) -> Option<(Instant, Reply)>;

    /// Does what a shell line asks.
    ///
    /// # Errors
    /// If it cannot be done here; the message names what.
    fn command(&mut self, command: &Command) -> Result<(), HostError>;

    /// Runs shell lines as they are, if the host is one that has a shell. `None` asks for them to
    /// be translated into [`command`](Self::command)s.
    fn shell(&mut self, text: &str, folder: Option<&Path>) -> Option<Result<(), HostError>> {
        let _ = (text, folder);
        None
    }

    /// Linux's `struct tcp_info` of a socket, as bytes.
    ///
    /// # Errors
    /// If the descriptor is not a TCP socket.
    fn tcp_info(&mut self, fd: i32) -> Result<Vec<u8>, HostError>;

    /// Why a socket that has something to send does not, in words, for a message. One line for
    /// each socket.
    fn holds(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The clock of timestamps (`SCM_TIMESTAMPING`) at the moment when the script began.
    fn epoch(&self) -> Duration {
        Duration::ZERO
    }

    /// How long the host takes at most from an event to its effect. The tolerance on a virtual
    /// clock is what the script says; on a real one this is added.
    fn slack(&self) -> Duration {
        Duration::ZERO
    }
}
