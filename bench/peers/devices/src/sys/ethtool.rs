//! Two features of a device, as `ethtool -K` sets them: what can be had without that program.

use std::os::fd::AsRawFd;

use super::{checked, socket};
use crate::failure::{Failure, Named};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// The device fills in checksums of what is sent.
    TxChecksum,
    /// Received packets are put together. On a veth device this brings its NAPI.
    Gro,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `ETHTOOL_STXCSUM` and `ETHTOOL_SGRO`.
const SET_TX_CHECKSUM: u32 = 0x17;
const SET_GRO: u32 = 0x2c;

/// Sets a feature of a device of this namespace.
pub(crate) fn set(device: &str, feature: Feature, on: bool) -> Result<(), Failure> {
    let (command, what) = match feature {
        Feature::TxChecksum => (SET_TX_CHECKSUM, "ETHTOOL_STXCSUM"),
        Feature::Gro => (SET_GRO, "ETHTOOL_SGRO"),
    };
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).named("a socket")?;
    let mut value = Value { command, data: u32::from(on) };
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(device.bytes()) {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the descriptor is open; SIOCETHTOOL reads a whole `ifreq`, and the value that it
    // points to, both of which live until the call returns.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    checked(set).map(drop).named(what)
}
