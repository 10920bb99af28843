//! AF_PACKET: Ethernet frames of a device, by a call for each.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

use peer_common::tun::VNET_HEADER;

use super::{checked, index, is_full, moved, set_option, socket};
use crate::echo::{Echo, Fate};
use crate::failure::{Endless, Failure, Named};
use crate::tun::LARGEST;

/// `PACKET_VNET_HDR`, `PACKET_QDISC_BYPASS` and `PACKET_IGNORE_OUTGOING`.
const VNET: libc::c_int = 15;
const QDISC_BYPASS: libc::c_int = 20;
const IGNORE_OUTGOING: libc::c_int = 23;

/// Bytes that a socket keeps, like those of the other ways.
const DEEP: libc::c_int = 8 << 20;

/// `ETH_P_IP`: nothing else is looked at.
const PROTOCOL: u16 = 0x0800;

/// A socket that gets no frames yet, each of which has a header in front that tells of segments and
/// checksums.
pub(super) fn open() -> Result<OwnedFd, Failure> {
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0).named("AF_PACKET")?;
    let set = |name, value| set_option(&socket, libc::SOL_PACKET, name, &value);
    set(VNET, 1).named("PACKET_VNET_HDR")?;
    // What this program sends is not for itself, and waits for nothing.
    set(IGNORE_OUTGOING, 1).named("PACKET_IGNORE_OUTGOING")?;
    set(QDISC_BYPASS, 1).named("PACKET_QDISC_BYPASS")?;
    Ok(socket)
}

/// From now on the socket gets the frames of `device`.
pub(super) fn bind(socket: &OwnedFd, device: &str) -> Result<(), Failure> {
    let index = index(device).named("looking for the device")?;
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = PROTOCOL.to_be();
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are the whole structure.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    checked(bound).map(drop).named("binding to the device")
}

/// Sends one frame with its header. What the device has no room for is lost, as on a wire.
pub(super) fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads these bytes.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    match moved(sent) {
        Err(error) if is_full(&error) => Ok(()),
        other => other.map(drop),
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (fd, length) = (socket.as_raw_fd(), buffer.len());
    // SAFETY: the kernel writes into these bytes, no more of them than it is told.
    moved(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), length, 0) })
}

/// One frame at a time.
pub(crate) fn answer(device: &str, mut echo: Echo) -> Endless {
    let socket = open()?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &DEEP).named("SO_RCVBUFFORCE")?;
    bind(&socket, device)?;
    let mut buffer = vec![0; LARGEST];
    crate::ready()?;
    loop {
        let length = receive(&socket, &mut buffer).named("recv")?;
        let frame = buffer.get_mut(VNET_HEADER..length).unwrap_or_default();
        let size = frame.len();
        if echo.take(frame, size) == Fate::Sent {
            send(&socket, &buffer[..length]).named("send")?;
        }
    }
}
