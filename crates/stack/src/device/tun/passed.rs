//! A descriptor that another program has opened: the VPN service of Android, a process with more
//! rights, a container's manager, or the other end of a socket pair.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::setup::{Queue, agree, is_at_least, longest, mtu, setup};
use super::{Before, Offloads, vnet};
use crate::device::sys::{self, flags};
use crate::device::{Device, DeviceError};
use crate::limits::{MIN_MTU, RX_BATCH_BYTES};

/// The header before each packet of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketHeader {
    /// A virtio header if the kernel reports one for the descriptor (`TUNGETIFF`). None if it is
    /// not a TUN file or the process may not ask, as on Android. The kernel does not report packet
    /// information.
    #[default]
    Detect,
    /// Nothing.
    None,
    /// Packet information of 4 bytes: flags, and the protocol by its Ethernet number. TUN has it
    /// unless it was opened with `IFF_NO_PI`. A virtio header follows if the kernel reports one.
    Info,
    /// A virtio header of 10 bytes (`IFF_VNET_HDR`), in the byte order of the machine.
    Vnet,
}

/// The configuration of a descriptor that was opened elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FdConfig {
    /// The name to display. Unless set it is that of the interface, or `fd` and the descriptor's
    /// number.
    pub name: Option<String>,
    /// The longest packet in bytes, 576 to 65535. Unless set it is that of the interface, read in
    /// the interface's network namespace. That requires Linux 5.2, CAP_NET_ADMIN in that namespace,
    /// and CAP_SYS_ADMIN if it is not the caller's.
    pub mtu: Option<u16>,
    /// The header before each packet.
    pub header: PacketHeader,
    /// The offloads to use. There are none without a virtio header.
    pub offloads: Offloads,
    /// As [`TunConfig::max_super_segment`](super::TunConfig::max_super_segment), for a TUN file.
    pub max_super_segment: usize,
    /// As [`TunConfig::batch_bytes`](super::TunConfig::batch_bytes).
    pub batch_bytes: usize,
}

impl Default for FdConfig {
    fn default() -> FdConfig {
        FdConfig {
            name: None,
            mtu: None,
            header: PacketHeader::Detect,
            offloads: Offloads::Auto,
            max_super_segment: super::MAX_PACKET,
            batch_bytes: RX_BATCH_BYTES,
        }
    }
}

plimsoll_tcp::setters!(FdConfig {
    mtu: Option<u16>,
    header: PacketHeader,
    offloads: Offloads,
    max_super_segment: usize,
    batch_bytes: usize,
});

impl FdConfig {
    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The default configuration with another MTU in bytes.
    pub fn with_mtu(mtu: u16) -> FdConfig {
        FdConfig { mtu: Some(mtu), ..FdConfig::default() }
    }
}

/// A device on a descriptor that was opened elsewhere: a TUN file (IP packets, with or without
/// packet information before them), or a socket whose messages are IP packets. The descriptor
/// becomes non-blocking, and is closed when the device is dropped.
///
/// The queues of one interface are several descriptors, each a device of its own; the interface
/// must have been [created](super::create) with several. Their steering stays as it is.
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
/// nor readable, or if offloads are required and not available.
pub fn from_fd(fd: OwnedFd, config: FdConfig) -> Result<Device, DeviceError> {
    use std::os::fd::AsRawFd as _;
    let interface = sys::tun_interface(&fd).ok();
    let name = config.name.clone();
    let name = name.or_else(|| interface.as_ref().map(|(name, _)| name.clone()));
    let name = name.unwrap_or_else(|| format!("fd{}", fd.as_raw_fd()));
    if interface.as_ref().is_some_and(|&(_, has)| has & flags::TAP != 0) {
        let message = "it carries Ethernet frames (IFF_TAP); a TUN interface is needed";
        return Err(setup(format!("{name}: {message}")));
    }
    let has_vnet = interface.as_ref().is_some_and(|&(_, has)| has & flags::VNET_HDR != 0);
    let before = match config.header {
        PacketHeader::Detect => Before { info: false, vnet: has_vnet },
        PacketHeader::None => Before::default(),
        PacketHeader::Info => Before { info: true, vnet: has_vnet },
        PacketHeader::Vnet => Before { info: false, vnet: true },
    };
    let bytes = match (config.mtu, &interface) {
        (Some(given), _) => given,
        (None, Some((kernels, _))) => mtu_in_its_namespace(&fd, kernels)?,
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
    let offloads = agree_on(&name, &fd, &config, before.vnet && interface.is_some())?;
    let longest = longest(config.max_super_segment, interface.is_some() && is_at_least(6, 3));
    let batch = config.batch_bytes;
    Ok(Queue { fd, name, before, offloads, longest, batch }.device_with(bytes))
}

/// The MTU of the interface that a TUN file is attached to. An interface of the same name in the
/// caller's own network namespace is another one.
fn mtu_in_its_namespace(fd: &OwnedFd, interface: &str) -> Result<u16, DeviceError> {
    let unknown = |error: Errno| {
        setup(format!("{interface}: mtu: its network namespace cannot be asked ({error}); give it"))
    };
    let namespace = sys::tun_namespace(fd).map_err(unknown)?;
    if is_own(&namespace).map_err(unknown)? {
        return mtu(interface);
    }
    // A namespace belongs to a thread.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).map_err(unknown)?;
            mtu(interface)
        });
        asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether this network namespace is that of the calling thread.
fn is_own(namespace: &OwnedFd) -> Result<bool, Errno> {
    let (one, own) = (rustix::fs::fstat(namespace)?, rustix::fs::stat("/proc/thread-self/ns/net")?);
    Ok((one.st_dev, one.st_ino) == (own.st_dev, own.st_ino))
}

fn set_nonblocking(name: &str, fd: &OwnedFd) -> Result<(), DeviceError> {
    rustix::fs::fcntl_getfl(fd)
        .and_then(|before| rustix::fs::fcntl_setfl(fd, before | OFlags::NONBLOCK))
        .map_err(|error| setup(format!("{name}: cannot make it non-blocking: {error}")))
}

/// The offloads of a descriptor; `asks` is whether to query the kernel.
fn agree_on(name: &str, fd: &OwnedFd, config: &FdConfig, asks: bool) -> Result<u32, DeviceError> {
    if asks && let Err(error) = sys::tun_set_header_len(fd, vnet::LEN as i32) {
        return Err(setup(format!("{name}: cannot set the length of its header: {error}")));
    }
    let agreed = match (asks, config.offloads) {
        (false, _) => 0,
        (true, Offloads::Off) => {
            // The previous user may have enabled some.
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
    use std::io::{Read as _, Write as _};
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use plimsoll_buf::Pool;
    use plimsoll_tcp::Instant;

    use super::super::{TunConfig, create};
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
        let headers: [(_, &[u8]); 4] = [
            (PacketHeader::Detect, &[]),
            (PacketHeader::None, &[]),
            (PacketHeader::Info, &[0, 0, 8, 0]),
            (PacketHeader::Vnet, &[0; 10]),
        ];
        for (header, before) in headers {
            let config = FdConfig { header, ..FdConfig::with_mtu(1300) };
            let (mut device, theirs) = pair(config);
            assert_eq!((device.tx.caps().mtu, device.tx.caps().tso4), (1300, false));
            let mut packet = marked(&pool, 3);
            assert!(crate::offload::checksum::fill(&mut packet));
            let bytes = packet.to_vec();
            device.tx.transmit(Instant::ZERO, &mut [packet].into()).unwrap();
            let mut buf = [0; 2000];
            let len = theirs.recv(&mut buf).unwrap();
            assert_eq!(buf[..len], [before, &bytes].concat());
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
    }

    /// Runs `body` on a thread in its own network namespace.
    fn in_a_namespace<T: Send>(body: impl FnOnce() -> T + Send) -> T {
        let mut holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It answers when it is there.
        holder.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let namespace = std::fs::File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        drop(holder.stdin.take());
        holder.wait().unwrap();
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).unwrap();
                body()
            });
            thread.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn ip(args: &str) {
        assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
    }

    /// A new TUN file and its interface, which is up and has this MTU.
    fn tun_file(name: &str, flags: u16, mtu: u16) -> OwnedFd {
        let fd: OwnedFd = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .map(Into::into)
            .unwrap();
        sys::tun_attach(&fd, name, flags).unwrap();
        ip(&format!("link set {name} up mtu {mtu}"));
        fd
    }

    #[test]
    #[ignore = "needs root, network namespaces and /dev/net/tun"]
    fn an_interface_is_asked_in_its_own_namespace() {
        let elsewhere = in_a_namespace(|| tun_file("same0", flags::TUN_NO_PI, 9000));
        in_a_namespace(|| {
            let _same_name = tun_file("same0", flags::TUN_NO_PI, 1280);
            let device = from_fd(elsewhere, FdConfig::default()).unwrap();
            let caps = device.tx.caps();
            assert_eq!((&*caps.name, caps.mtu), ("same0", 9000));
            let frames = from_fd(tun_file("tap0", flags::TAP, 1500), FdConfig::default());
            assert!(frames.unwrap_err().to_string().contains("Ethernet frames (IFF_TAP)"));
            let own = tun_file("own0", flags::TUN_NO_PI, 1400);
            assert_eq!(from_fd(own, FdConfig::default()).unwrap().tx.caps().mtu, 1400);
        });
    }

    #[test]
    #[ignore = "needs root, network namespaces and /dev/net/tun"]
    fn queues_made_in_another_namespace_are_devices_here() {
        let config = TunConfig::default().name("made0").mtu(Some(9000)).up(true);
        let (name, queues) = in_a_namespace(|| create(config, 2).unwrap());
        assert_eq!((&*name, queues.len()), ("made0", 2));
        for queue in queues {
            let config = FdConfig { max_super_segment: usize::MAX, ..FdConfig::default() };
            let device = from_fd(queue, config.batch_bytes(4096)).unwrap();
            let caps = device.tx.caps();
            assert_eq!((&*caps.name, caps.mtu, caps.tso4), ("made0", 9000, true));
            assert!(caps.max_super_segment > 65_535, "{}", caps.max_super_segment);
        }
    }

    #[test]
    #[ignore = "needs root, network namespaces and /dev/net/tun"]
    fn packet_information_is_taken_and_given() {
        for extra in [0, flags::VNET_HDR] {
            in_a_namespace(|| {
                // `IFF_TUN` alone.
                let flags = 1 | extra;
                let file = tun_file("info0", flags, 1500);
                let config = FdConfig::default().header(PacketHeader::Info);
                let mut device = from_fd(file, config).unwrap();
                ip("address add 192.0.2.1/24 dev info0");
                let kernel = UdpSocket::bind("192.0.2.1:7000").unwrap();
                kernel.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let (pool, mut out, mut asked) = (Pool::new(), Vec::new(), None);
                // The kernel drops packets that it sends before it has noticed that a process is
                // attached.
                for _ in 0..1000 {
                    kernel.send_to(b"ahoy", "192.0.2.2:7001").unwrap();
                    device.rx.receive(Instant::ZERO, &pool, &mut out, 9).unwrap();
                    let udp = |bytes: &Vec<u8>| bytes[0] == 0x45 && bytes[9] == 17;
                    asked = out.drain(..).map(|packet| packet.to_vec()).find(udp);
                    if asked.is_some() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                let asked = asked.expect("a datagram arrives within ten seconds");
                assert!(asked.ends_with(b"ahoy"));
                // Addresses and ports change places, which leaves all checksums as they are.
                let mut answer = asked.clone();
                answer[12..16].copy_from_slice(&asked[16..20]);
                answer[16..20].copy_from_slice(&asked[12..16]);
                answer[20..22].copy_from_slice(&asked[22..24]);
                answer[22..24].copy_from_slice(&asked[20..22]);
                answer[26..28].copy_from_slice(&[0, 0]);
                let packet = crate::packet::Packet {
                    payload: pool.copy_from(&answer).into(),
                    ..Default::default()
                };
                device.tx.transmit(Instant::ZERO, &mut [packet].into()).unwrap();
                let mut buf = [0; 16];
                let (len, from) = kernel.recv_from(&mut buf).unwrap();
                assert_eq!(
                    (&buf[..len], from.to_string()),
                    (&b"ahoy"[..], "192.0.2.2:7001".into())
                );
            });
        }
    }
}
