//! The parameters of opening a connection.

use alloc::sync::Arc;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use crate::config::Options;
use crate::route::PathMtu;

/// The parameters of opening a connection.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// The initial sequence number (RFC 6528: the caller derives it from a secret).
    pub iss: SeqNum,
    /// Offset of our timestamp clock (RFC 7323, section 5.4), from the same secret.
    pub ts_offset: u32,
    /// Seed of the connection's own randomness.
    pub seed: u64,
    /// The known MTU of the path. Our SYN announces an MSS that fits it.
    pub mtu: PathMtu,
    /// Bytes of the IP header: 20 or 40.
    pub ip_header_len: u16,
    /// The most payload bytes of one packet passed down (0 or less than one MSS: no
    /// super-segments).
    pub max_super_segment: usize,
    /// The socket's options, shared until they are changed: sockets with the same options store
    /// them once.
    pub options: Arc<Options>,
    /// The source of buffers.
    pub pool: Pool,
}
