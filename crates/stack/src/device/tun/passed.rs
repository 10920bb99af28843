//! A descriptor that somebody else has opened: the VPN service of Android, a process with more
//! rights, a container's manager, or the other end of a socket pair.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::setup::{Queue, agree, mtu, setup};
use super::{Offloads, vnet};
use crate::device::sys::{self, flags};
use crate::device::{Device, DeviceError};
use crate::limits::MIN_MTU;

/// What stands before each packet of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketHeader {
    /// What the kernel says of the descriptor (`TUNGETIFF`); nothing, if it is no TUN file or the
    /// process may not ask, as on Android.
    #[default]
    Detect,
    /// Nothing.
    None,
    /// A virtio header of 10 bytes (`IFF_VNET_HDR`), in the byte order of the machine.
    Vnet,
}

/// How to use a descriptor that was opened elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FdConfig {
    /// The name to show. Unless set it is that of the interface, or `fd` and the descriptor's
    /// number.
    pub name: Option<String>,
    /// The longest packet in bytes, 576 to 65535. Unless set it is that of the interface, which
    /// must be in the network namespace of the process.
    pub mtu: Option<u16>,
    /// What stands before each packet.
    pub header: PacketHeader,
    /// Which offloads to use. There are none without a virtio header.
    pub offloads: Offloads,
}

plimsoll_tcp::setters!(FdConfig {
    mtu: Option<u16>,
    header: PacketHeader,
    offloads: Offloads,
});

impl FdConfig {
    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A configuration with an MTU in bytes, and all else at its default.
    pub fn with_mtu(mtu: u16) -> FdConfig {
        FdConfig { mtu: Some(mtu), ..FdConfig::default() }
    }
}

/// A device on a descriptor that was opened elsewhere: a TUN file (IP packets, without the extra
/// four bytes that `IFF_NO_PI` leaves out), or a socket of which every message is an IP packet. The
/// descriptor becomes non-blocking, and is closed when the device is dropped.
///
/// ```
/// use plimsoll_stack::device::tun::{self, FdConfig};
/// let (ours, theirs) = std::os::unix::net::UnixDatagram::pair()?;
/// let device = tun::from_fd(ours.into(), FdConfig::with_mtu(1400))?;
/// assert_eq!(device.tx.caps().mtu, 1400);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`DeviceError::Setup`] if the descriptor carries Ethernet frames, if its MTU is neither given
/// nor to be found, or if offloads are required and not to be had.
pub fn from_fd(fd: OwnedFd, config: FdConfig) -> Result<Device, DeviceError> {
    use std::os::fd::AsRawFd as _;
    let interface = sys::tun_interface(&fd).ok();
    let name = config.name.clone();
    let name = name.or_else(|| interface.as_ref().map(|(name, _)| name.clone()));
    let name = name.unwrap_or_else(|| format!("fd{}", fd.as_raw_fd()));
    if let Some((_, has)) = interface {
        check_flags(&name, has)?;
    }
    let has_vnet = interface.as_ref().is_some_and(|&(_, has)| has & flags::VNET_HDR != 0);
    let vnet = match config.header {
        PacketHeader::Detect => has_vnet,
        PacketHeader::None => false,
        PacketHeader::Vnet => true,
    };
    let bytes = match (config.mtu, &interface) {
        (Some(given), _) => given,
        (None, Some((kernels, _))) => mtu(kernels)?,
        (None, None) => {
            return Err(setup(format!("{name}: mtu: it cannot be asked for; give it")));
        }
    };
    if bytes < MIN_MTU {
        return Err(setup(format!(
            "{name}: mtu: {bytes} is less than the {MIN_MTU} that TCP needs"
        )));
    }
    set_nonblocking(&name, &fd)?;
    let offloads = agree_on(&name, &fd, &config, vnet && interface.is_some())?;
    let longest = super::MAX_PACKET;
    Ok(Queue { fd, name, vnet, offloads, longest }.device_with(bytes))
}

/// Refuses a TUN file whose packets are not what we read.
fn check_flags(name: &str, has: u16) -> Result<(), DeviceError> {
    if has & flags::TAP != 0 {
        let message = "it carries Ethernet frames (IFF_TAP); a TUN interface is needed";
        return Err(setup(format!("{name}: {message}")));
    }
    if has & flags::NO_PI == 0 {
        let message = "it has four bytes before each packet; open it with IFF_NO_PI";
        return Err(setup(format!("{name}: {message}")));
    }
    Ok(())
}

fn set_nonblocking(name: &str, fd: &OwnedFd) -> Result<(), DeviceError> {
    rustix::fs::fcntl_getfl(fd)
        .and_then(|before| rustix::fs::fcntl_setfl(fd, before | OFlags::NONBLOCK))
        .map_err(|error| setup(format!("{name}: cannot make it non-blocking: {error}")))
}

/// The offloads of a descriptor; `asks` is whether the kernel is to be asked for them.
fn agree_on(name: &str, fd: &OwnedFd, config: &FdConfig, asks: bool) -> Result<u32, DeviceError> {
    if asks && let Err(error) = sys::tun_set_header_len(fd, vnet::LEN as i32) {
        return Err(setup(format!("{name}: cannot set the length of its header: {error}")));
    }
    let agreed = match (asks, config.offloads) {
        (false, _) => 0,
        (true, Offloads::Off) => {
            // Whoever had it before may have agreed to some.
            let _ = sys::tun_set_offload(fd, 0);
            0
        }
        (true, _) => agree(fd),
    };
    let all = flags::CSUM | flags::TSO4 | flags::TSO6;
    if config.offloads == Offloads::Required && agreed & all != all {
        return Err(setup(format!("{name}: TSO and checksum offload are not to be had")));
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use plimsoll_buf::Pool;
    use plimsoll_tcp::Instant;

    use super::*;
    use crate::packet::tests::marked;

    fn pair(config: FdConfig) -> (Device, UnixDatagram) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (from_fd(ours.into(), config).unwrap(), theirs)
    }

    #[test]
    fn every_message_of_a_socket_is_a_packet() {
        let pool = Pool::new();
        for (header, before) in [(PacketHeader::Detect, 0), (PacketHeader::Vnet, 10)] {
            let config = FdConfig { header, ..FdConfig::with_mtu(1300) };
            let (mut device, theirs) = pair(config);
            assert_eq!((device.tx.caps().mtu, device.tx.caps().tso4), (1300, false));
            let mut packet = marked(&pool, 3);
            assert!(crate::offload::checksum::fill(&mut packet));
            let bytes = packet.to_vec();
            device.tx.transmit(Instant::ZERO, &mut [packet].into()).unwrap();
            let mut buf = [0; 2000];
            let len = theirs.recv(&mut buf).unwrap();
            assert_eq!(buf[before..len], bytes);
            theirs.send(&buf[..len]).unwrap();
            let mut out = Vec::new();
            device.rx.receive(Instant::ZERO, &pool, &mut out, 9).unwrap();
            assert_eq!(out.iter().map(crate::packet::Packet::to_vec).collect::<Vec<_>>(), [bytes]);
        }
    }

    #[test]
    fn a_socket_whose_other_end_is_closed_is_gone_and_not_polled_for_ever() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let config = FdConfig { name: Some("guest".to_owned()), ..FdConfig::with_mtu(1300) };
        let mut device = from_fd(ours, config).unwrap();
        drop(theirs);
        let error = device.rx.receive(Instant::ZERO, &Pool::new(), &mut Vec::new(), 9);
        assert!(error.unwrap_err().to_string().starts_with("the other end of guest was closed"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |config| {
            let (ours, _theirs) = UnixDatagram::pair().unwrap();
            from_fd(ours.into(), config).unwrap_err().to_string()
        };
        assert!(refused(FdConfig::default()).ends_with("mtu: it cannot be asked for; give it"));
        assert!(refused(FdConfig::with_mtu(100)).contains("mtu: 100 is less than the 576"));
        let required = FdConfig { offloads: Offloads::Required, ..FdConfig::with_mtu(1500) };
        assert!(refused(required).contains("TSO and checksum offload are not to be had"));
        assert!(check_flags("tap0", flags::TAP | flags::NO_PI).is_err());
        assert!(check_flags("tun0", 1).unwrap_err().to_string().contains("IFF_NO_PI"));
    }
}
