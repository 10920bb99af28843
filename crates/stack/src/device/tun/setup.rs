//! Opens TUN devices, and explains failures.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::carrier::LinkWatch;
use super::{Before, MAX_PACKET, TunRx, TunTx, vnet};
use crate::device::sys::{self, flags};
use crate::device::{Caps, Device, DeviceError, WaitSource};
use crate::limits::{MAX_SUPER_PACKET, RX_BATCH_BYTES, RX_QUEUE_LEN};

const PATH: &str = "/dev/net/tun";

/// The offloads of [`Offloads::Required`].
const REQUIRED: u32 = flags::CSUM | flags::TSO4 | flags::TSO6;

/// The sets to try, best first. A kernel refuses the whole set if it does not support one of them.
const OFFLOAD_SETS: [u32; 6] = [
    REQUIRED | flags::TSO_ECN | flags::USO,
    REQUIRED | flags::TSO_ECN,
    REQUIRED,
    flags::CSUM | flags::TSO4,
    flags::CSUM,
    0,
];

/// The kernel's default `txqueuelen` of a TUN device: packets that may wait to be read.
const KERNEL_QUEUE_LEN: i32 = 500;

/// Whether super-segments and partial checksums are exchanged with the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// As many as the kernel offers.
    #[default]
    Auto,
    /// None: every packet is a wire segment with a complete checksum.
    Off,
    /// All of TCP's for both IP versions, or opening fails.
    Required,
}

/// The configuration of a TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunConfig {
    /// The name of the interface. An existing one is attached to; otherwise one is created and
    /// lasts until the device is dropped. A `%d` in it is replaced by a number.
    pub name: String,
    /// The offloads to use.
    pub offloads: Offloads,
    /// Sets the MTU of the interface.
    pub mtu: Option<u16>,
    /// Brings the interface up.
    pub up: bool,
    /// The queue to which the kernel sends a packet. Ignored for a device with one queue.
    pub steering: Steering,
    /// The longest super-segment passed to the kernel, in bytes with headers: 65,535 unless set, up
    /// to 262,144. Higher values count as that, values below the MTU as the MTU. The kernel itself
    /// sends none of more than 65,535.
    ///
    /// Linux accepts longer ones from 6.3 on, as BIG TCP; with an older kernel they have 65,535
    /// bytes at most. Above that, the IPv4 header's length is 0, and IPv6 has an option with the
    /// length (RFC 2675). Programs that read packets in between, such as a capture or an eBPF
    /// program, must support that. It helps where the host itself receives. The kernel segments
    /// forwarded packets in software if the next device takes less (`gso_max_size` and
    /// `gso_ipv4_max_size` of `ip -d link show`).
    pub max_super_segment: usize,
    /// Bytes that one poll takes from the device, give or take a packet: 262,144 unless set. More
    /// makes larger batches of bulk data, less lets small answers pass sooner.
    pub batch_bytes: usize,
}

/// The choice of the queue to which a TUN device sends a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// The queue on which the stack sent the flow's last packet (Linux's default).
    #[default]
    Flow,
    /// The one with the number of the processor on which the packet was sent, modulo the number of
    /// queues (`TUNSETSTEERINGEBPF`, Linux 4.16). If the thread of each queue stays on the CPU of
    /// the same number, a request, its answer and the waiting thread run on one CPU. No thread is
    /// woken on another. Connections [move](crate::TcpSocket::queue) with the peer's threads.
    ///
    /// Packets of more than 16 KiB go by the hash of their flow, which is zero for those that the
    /// kernel forwards: a bulk sender is better off with a processor to itself. With more
    /// processors than queues, several share a queue, and its loop is on another processor than
    /// most of them. It takes the right to load programs into the kernel (`CAP_BPF`).
    Processor,
}

plimsoll_tcp::setters!(TunConfig {
    offloads: Offloads,
    mtu: Option<u16>,
    up: bool,
    steering: Steering,
    max_super_segment: usize,
    batch_bytes: usize,
});

impl TunConfig {
    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

impl Default for TunConfig {
    fn default() -> TunConfig {
        TunConfig {
            name: "plimsoll%d".into(),
            offloads: Offloads::Auto,
            mtu: None,
            up: false,
            steering: Steering::Flow,
            max_super_segment: MAX_PACKET,
            batch_bytes: RX_BATCH_BYTES,
        }
    }
}

/// Opens a TUN device.
///
/// # Errors
/// [`DeviceError::Setup`] names the missing requirement and its remedy.
pub fn open(config: TunConfig) -> Result<Device, DeviceError> {
    let [queue] = <[Queue; 1]>::try_from(Queue::open_all(&config, 1)?)
        .unwrap_or_else(|_| unreachable!("one was asked for"));
    queue.device()
}

/// Opens a TUN device with `count` queues (at least one), each of which is a separate device that
/// one thread can poll. [`TunConfig::steering`] chooses the queue of the kernel's packets: by
/// default the one on which the stack sent the flow's last packet.
///
/// # Errors
/// As [`open`]. An existing interface must have been created with several queues.
pub fn open_queues(config: TunConfig, count: usize) -> Result<Vec<Device>, DeviceError> {
    let queues = Queue::open_all(&config, count)?;
    queues.into_iter().map(Queue::device).collect()
}

/// As [`open_queues`], but returns the interface's name and the descriptors of its queues, to be
/// passed to another process, which makes devices of them with [`from_fd`](super::from_fd). A
/// program that has the right to create an interface in some network namespace serves one that has
/// not. The interface lasts until all descriptors are closed.
///
/// # Errors
/// As [`open_queues`].
pub fn create(config: TunConfig, count: usize) -> Result<(String, Vec<OwnedFd>), DeviceError> {
    let queues = Queue::open_all(&config, count)?;
    let name = queues[0].name.clone();
    Ok((name, queues.into_iter().map(|queue| queue.fd).collect()))
}

/// Steers packets to each queue by the CPU that sends them.
fn steer_by_processor(queue: &Queue) -> Result<(), DeviceError> {
    sys::tun_steer_by_processor(&queue.fd).map_err(|error| {
        let hint = match error {
            Errno::PERM | Errno::ACCESS => "; run as root, or with CAP_BPF",
            Errno::INVAL | Errno::NOTTY | Errno::NOSYS => "; it takes Linux 4.16",
            _ => "",
        };
        setup(format!("{}: cannot choose queues by processor: {error}{hint}", queue.name))
    })
}

/// Sets the interface up with `config`, and waits until it works.
fn finish_setup(config: &TunConfig, name: &str, links: &LinkWatch) -> Result<(), DeviceError> {
    if let Some(mtu) = config.mtu {
        set_mtu(name, mtu)?;
    }
    if config.up {
        bring_up(name)?;
    }
    lengthen_queue(name);
    links.wait_until_running(name);
    Ok(())
}

/// Sets a longer queue of packets that wait to be read, unless another length was chosen or the
/// process lacks the right. At 300,000 packets a second, 500 places are used up after 1.7 ms: less
/// than the poller may have to wait for a CPU. Further packets are lost before the stack can
/// distinguish an honest SYN from a flood.
fn lengthen_queue(name: &str) {
    if queue_len(name).is_ok_and(|packets| packets == KERNEL_QUEUE_LEN) {
        let _ = sys::set_interface_queue_len(name, RX_QUEUE_LEN);
    }
}

/// An open file that is attached to an interface.
pub(super) struct Queue {
    pub(super) fd: OwnedFd,
    pub(super) name: String,
    pub(super) before: Before,
    pub(super) offloads: u32,
    /// The longest super-segment that the kernel takes.
    pub(super) longest: usize,
    /// Bytes of one poll.
    pub(super) batch: usize,
}

impl Queue {
    /// Opens all queues of an interface, at least one, and sets it up.
    fn open_all(config: &TunConfig, count: usize) -> Result<Vec<Queue>, DeviceError> {
        let (links, several) = (LinkWatch::new(), count > 1);
        let first = Queue::open(config, several)?;
        // The name may have been a pattern; the others join the interface that it became.
        let named = TunConfig { name: first.name.clone(), ..config.clone() };
        let mut queues = vec![first];
        for _ in 1..count {
            queues.push(Queue::open(&named, true)?);
        }
        let offloads = queues.iter().fold(u32::MAX, |all, queue| all & queue.offloads);
        if queues.iter().any(|queue| queue.offloads != offloads) {
            return Err(setup(format!("{}: its queues differ in what they can do", named.name)));
        }
        match named.steering {
            _ if !several => {}
            Steering::Processor => steer_by_processor(&queues[0])?,
            // A device that outlives programs keeps the steering that the last one chose. A kernel
            // that cannot remove it does not have it.
            Steering::Flow => _ = sys::tun_steer_by_flow(&queues[0].fd),
        }
        finish_setup(&named, &named.name, &links)?;
        Ok(queues)
    }

    /// Attaches to the interface, as one of several queues if `several`.
    fn open(config: &TunConfig, several: bool) -> Result<Queue, DeviceError> {
        check_name(&config.name)?;
        let fd = open_file()?;
        let offered =
            sys::tun_features(&fd).map_or(true, |all| all & u32::from(flags::VNET_HDR) != 0);
        let mut vnet = config.offloads != Offloads::Off && offered;
        let name = attach(&fd, &config.name, vnet, several)?;
        // The stack uses the default length, but the previous user of the interface may have set
        // another.
        if vnet && sys::tun_set_header_len(&fd, vnet::LEN as i32).is_err() {
            vnet = false;
            attach(&fd, &name, vnet, several)?;
        }
        let offloads = if vnet { agree(&fd) } else { 0 };
        if config.offloads == Offloads::Required && offloads & REQUIRED != REQUIRED {
            let message = format!("{name}: the kernel does not offer TSO and checksum offload");
            return Err(setup(message));
        }
        let longest = longest(config.max_super_segment, is_at_least(6, 3));
        let before = Before { info: false, vnet };
        let batch = config.batch_bytes;
        Ok(Queue { fd, name, before, offloads, longest, batch })
    }

    fn device(self) -> Result<Device, DeviceError> {
        let mtu = mtu(&self.name)?;
        Ok(self.device_with(mtu))
    }

    /// The device, of which packets have at most `mtu` bytes.
    pub(super) fn device_with(self, mtu: u16) -> Device {
        let Queue { fd, name, before, offloads, longest, batch } = self;
        let caps = Caps {
            mtu,
            tso4: offloads & flags::TSO4 != 0,
            tso6: offloads & flags::TSO6 != 0,
            uso: offloads & flags::USO == flags::USO,
            tx_checksum: offloads & flags::CSUM != 0,
            max_super_segment: longest,
            completions: true,
            name,
        };
        let fd = Arc::new(fd);
        Device {
            rx: Box::new(TunRx::new(fd.clone(), caps.name.clone(), before, batch)),
            tx: Box::new(TunTx::new(fd.clone(), caps, before)),
            wait: WaitSource::from_fd(fd),
        }
    }
}

/// The longest super-segment of a device, from the configured length `asked` and whether the kernel
/// takes any of more than 65,535 bytes.
pub(super) fn longest(asked: usize, big: bool) -> usize {
    asked.min(if big { MAX_SUPER_PACKET } else { MAX_PACKET })
}

/// Whether the kernel's version is this one or a later one. One that cannot be read is not.
pub(super) fn is_at_least(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname();
    release.release().to_str().is_ok_and(|release| version(release) >= Some((major, minor)))
}

/// The first two numbers of a kernel's release, as in `6.18.44-generic`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The MTU of an interface; more than 65535 counts as that.
///
/// # Errors
/// If there is no such interface.
pub fn mtu(name: &str) -> Result<u16, DeviceError> {
    let mtu = sys::interface_mtu(name)
        .map_err(|error| setup(format!("cannot read the MTU of interface {name}: {error}")))?;
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// The number of packets that may wait in the kernel to be read from an interface (`txqueuelen`).
/// Opening a device with the kernel's default of 500 sets 8192. Without the right to do so the
/// length stays; `ip link set NAME txqueuelen 8192` as root does the same. Any other length is
/// kept.
///
/// # Errors
/// If there is no such interface.
pub fn queue_len(name: &str) -> Result<i32, DeviceError> {
    sys::interface_queue_len(name)
        .map_err(|error| setup(format!("cannot read txqueuelen of interface {name}: {error}")))
}

/// Sets the MTU of an interface.
///
/// # Errors
/// If there is no such interface, the MTU is out of range, or the process lacks the right.
pub fn set_mtu(name: &str, mtu: u16) -> Result<(), DeviceError> {
    sys::set_interface_mtu(name, mtu).map_err(|error| {
        setup(format!(
            "cannot set the MTU of interface {name} to {mtu}: {error}; as root, try \
             'ip link set {name} mtu {mtu}'"
        ))
    })
}

/// Whether an interface is up. One that does not exist is not.
pub fn is_up(name: &str) -> bool {
    sys::interface_state(name).is_ok_and(|state| state.up)
}

/// Brings an interface up.
///
/// # Errors
/// If there is no such interface or the process lacks the right.
pub fn bring_up(name: &str) -> Result<(), DeviceError> {
    sys::set_interface_up(name).map_err(|error| {
        setup(format!(
            "cannot bring interface {name} up: {error}; as root, try 'ip link set {name} up'"
        ))
    })
}

pub(super) fn setup(message: String) -> DeviceError {
    DeviceError::Setup(message)
}

fn check_name(name: &str) -> Result<(), DeviceError> {
    let problem = if name.is_empty() {
        "it is empty"
    } else if name.len() > sys::MAX_NAME {
        "it is longer than 15 bytes"
    } else if name == "." || name == ".." || name.contains(['/', ':', '\0']) {
        "an interface cannot be called that"
    } else if name.contains(char::is_whitespace) {
        "it has white space in it"
    } else {
        return Ok(());
    };
    Err(setup(format!("bad interface name '{}': {problem}", name.escape_debug())))
}

fn open_file() -> Result<OwnedFd, DeviceError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(PATH, flags, Mode::empty()).map_err(|error| {
        let hint = match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                "; load the driver with 'modprobe tun', or, in a container, pass the device in with \
                 '--device /dev/net/tun'"
            }
            Errno::ACCESS | Errno::PERM => "; run as root, or make the file accessible",
            _ => "",
        };
        setup(format!("cannot open {PATH}: {error}{hint}"))
    })
}

fn attach(fd: &OwnedFd, name: &str, vnet: bool, several: bool) -> Result<String, DeviceError> {
    let queue = if several { flags::MULTI_QUEUE } else { 0 };
    let wanted = flags::TUN_NO_PI | queue | if vnet { flags::VNET_HDR } else { 0 };
    let result = match sys::tun_attach(fd, name, wanted) {
        // An interface with several queues can only be attached to as one of them.
        Err(Errno::INVAL) if !several => sys::tun_attach(fd, name, wanted | flags::MULTI_QUEUE),
        other => other,
    };
    result.map_err(|error| {
        let hint = match error {
            Errno::PERM => format!(
                "; run as root, or let root make the device for you: \
                 'ip tuntap add dev {name} mode tun user $USER'"
            ),
            Errno::BUSY => "; another process has it, or it is no TUN device".into(),
            Errno::INVAL if several => format!(
                "; an interface that exists must have several queues: \
                 'ip tuntap add dev {name} mode tun multi_queue'"
            ),
            Errno::INVAL => "; is there an interface of that name that is no TUN device?".into(),
            _ => String::new(),
        };
        setup(format!("cannot attach to interface {name}: {error}{hint}"))
    })
}

/// Agrees on offloads with the kernel and returns them.
pub(super) fn agree(fd: &OwnedFd) -> u32 {
    let taken = |set: &&u32| sys::tun_set_offload(fd, **set).is_ok();
    OFFLOAD_SETS.iter().find(taken).copied().unwrap_or(0)
}
