//! Opening a connection: SYN, SYN-ACK, and the negotiated options.

mod active_open;
pub(crate) mod fast_open_client;
pub(crate) mod fast_open_server;
pub(crate) mod isn;
mod negotiate;
mod opening;
mod passive_open;
mod syn;
pub(crate) mod syn_cookie;
mod timestamps;

use crate::time::{Instant, Nanos};

pub(crate) use timestamps::TimestampState;

/// The first timeout of a SYN or SYN-ACK (RFC 6298, section 2).
const INITIAL_RTO: Nanos = Nanos::from_secs(1);

/// The state of an open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    /// When the open began.
    started: Instant,
    /// When the SYN or SYN-ACK last left.
    sent_at: Instant,
    /// How often it left.
    pub(crate) sent: u8,
    /// How often the timer has fired for it.
    pub(crate) retries: u8,
    /// Whether the peer began (its SYN came to a listener).
    passive: bool,
    /// SACK is in use.
    pub(crate) sack: bool,
    /// Window scaling is in use.
    pub(crate) window_scaling: bool,
    /// The window shift of our SYN or SYN-ACK, chosen once: the peer applies the one that it saw.
    shift: u8,
    /// A writer sleeps and has more data.
    write_pending: bool,
    /// Data in a SYN was accepted: our SYN's data by the peer, or the peer's by us.
    pub(crate) syn_data_acked: bool,
    /// The application may read and write before the handshake is over (Fast Open).
    early: bool,
    /// An application has taken it from the queue of its listener.
    adopted: bool,
    /// The peer has acknowledged our SYN, but the listener waits for data (TCP_DEFER_ACCEPT).
    deferred: bool,
}

impl Handshake {
    pub(crate) fn new(now: Instant, shift: u8) -> Handshake {
        Handshake {
            started: now,
            sent_at: now,
            sent: 0,
            retries: 0,
            passive: false,
            sack: false,
            window_scaling: false,
            shift,
            write_pending: false,
            syn_data_acked: false,
            early: false,
            adopted: false,
            deferred: false,
        }
    }
}
