//! What the kernel host needs of the kernel and only `unsafe` code can ask for: a network
//! namespace, a TUN device, a packet socket, and the calls of scripts.
//!
//! Every function here is safe to call with any argument. What an argument means to the kernel is
//! checked by the kernel.

#![allow(unsafe_code)]

mod calls;

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::time::Duration;

pub(super) use calls::perform;

/// What a call returned, with the error if it was one.
fn check(result: i32) -> io::Result<i32> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this process may do what only root may.
pub(super) fn is_root() -> bool {
    // SAFETY: the call cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Moves the calling thread, and what it starts from now on, into a new network namespace.
pub(super) fn new_network_namespace() -> io::Result<()> {
    // SAFETY: the call takes flags only, and this one concerns no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}

/// Moves the calling thread into the network namespace that a file refers to.
pub(super) fn enter_network_namespace(file: &File) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and a kind.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// The number of the calling thread.
pub(super) fn thread_id() -> i32 {
    // SAFETY: the call cannot fail.
    unsafe { libc::gettid() }
}

/// Asks for wake-ups as exact as the kernel has them, for the calling thread.
pub(super) fn exact_wake_ups() {
    // SAFETY: these calls take numbers, and a structure that lives during the call. When they fail,
    // wake-ups are as good as they were.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters);
    }
}

/// Takes [`exact_wake_ups`] back.
pub(super) fn usual_wake_ups() {
    // SAFETY: as above.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 0 as libc::c_ulong);
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters);
    }
}

/// `struct virtio_net_hdr`, which stands before every packet that we write.
pub(super) const VIRTIO_HEADER: usize = 10;

/// A new TUN device of this name, which takes super-segments and goes away with the file.
///
/// Like an Ethernet device it can cut and sum, so that a packet socket sees what the kernel's TCP
/// made: super-segments whole.
pub(super) fn tun(name: &CStr) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open("/dev/net/tun")?;
    // SAFETY: all zero is a valid value of this structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as i16;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // SAFETY: TUNSETIFF takes a `struct ifreq`, TUNSETOFFLOAD a number.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request))?;
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offloads as libc::c_ulong))?;
    }
    Ok(file)
}

/// A packet that left through a device.
pub(super) struct Sniffed {
    /// When, on the clock of [`now`].
    pub(super) at: Duration,
    /// From the IP header on.
    pub(super) bytes: Vec<u8>,
}

/// Sees every packet of a device.
pub(super) struct PacketSocket {
    fd: OwnedFd,
    room: Vec<u8>,
}

impl PacketSocket {
    /// Room for the largest packet, and for what may wait.
    const PACKET: usize = 1 << 17;
    const QUEUE: i32 = 4 << 20;

    pub(super) fn new(device: &CStr) -> io::Result<PacketSocket> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the structures live during the calls and have the lengths that stand beside
        // them; all zero is a valid value of theirs.
        unsafe {
            let fd = owned(libc::socket(libc::AF_PACKET, kind, i32::from(protocol)))?;
            let index = libc::if_nametoindex(device.as_ptr());
            if index == 0 {
                return Err(io::Error::last_os_error());
            }
            let mut name: libc::sockaddr_ll = std::mem::zeroed();
            name.sll_family = libc::AF_PACKET as u16;
            name.sll_protocol = protocol;
            name.sll_ifindex = index as i32;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            check(libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len))?;
            for (option, value) in [(libc::SO_RCVBUFFORCE, Self::QUEUE), (libc::SO_TIMESTAMPNS, 1)]
            {
                let value: libc::c_int = value;
                let pointer = (&raw const value).cast();
                check(libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, pointer, 4))?;
            }
            Ok(PacketSocket { fd, room: vec![0; Self::PACKET] })
        }
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next packet that left. Those that arrived are passed over.
    pub(super) fn next(&mut self) -> Option<Sniffed> {
        loop {
            let mut control = [0u64; 16];
            // SAFETY: every pointer has the length that stands beside it, and all zero is a valid
            // value of these structures. The time is copied out of the control data only if the
            // kernel says that it wrote one.
            unsafe {
                let mut from: libc::sockaddr_ll = std::mem::zeroed();
                let mut iov =
                    libc::iovec { iov_base: self.room.as_mut_ptr().cast(), iov_len: Self::PACKET };
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_name = (&raw mut from).cast();
                message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
                message.msg_iov = &raw mut iov;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control);
                let len = libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0);
                let len = usize::try_from(len).ok()?;
                if from.sll_pkttype != libc::PACKET_OUTGOING {
                    continue;
                }
                let at = timestamp(&message).unwrap_or_else(now);
                return Some(Sniffed { at, bytes: self.room[..len].to_vec() });
            }
        }
    }
}

/// The time in the control data of a received packet.
///
/// # Safety
/// `message` is as `recvmsg` has left it, and its control data is still there.
unsafe fn timestamp(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the macros keep within the control data, and SCM_TIMESTAMPNS is a timespec, for
    // which the alignment of control data is enough.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
                let time: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(head).cast());
                return Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    None
}

/// The time of day, which is the clock of packet sockets too.
pub(super) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Something that another thread does, as a descriptor to wait for.
pub(super) struct Bell(File);

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        // SAFETY: the call takes numbers only.
        let fd = owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        Ok(Bell(File::from(fd)))
    }

    pub(super) fn ring(&self) {
        // The counter cannot overflow: each ring adds one.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    pub(super) fn silence(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of the descriptors can be read, for this long at most.
pub(super) fn wait_readable<const N: usize>(fds: [RawFd; N], limit: Duration) -> io::Result<()> {
    let mut raw = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let limit = libc::timespec {
        tv_sec: limit.as_secs().min(1 << 32) as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the pointers have the lengths that stand beside them.
    let result = check(unsafe {
        libc::ppoll(raw.as_mut_ptr(), N as libc::nfds_t, &raw const limit, ptr::null())
    });
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
