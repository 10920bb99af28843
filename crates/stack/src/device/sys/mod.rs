//! System calls that need `unsafe`: the ioctls of TUN devices and network interfaces.
//!
//! Every function here is safe to call with any argument: the kernel checks the arguments.
#![allow(unsafe_code, reason = "this folder is where it belongs, audited as a whole")]

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

mod bpf;

use linux_raw_sys::{if_tun, ioctl as op, net};
use rustix::io::Errno;
use rustix::ioctl::{Getter, IntegerSetter, Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The longest name of an interface, without the zero behind it.
pub(super) const MAX_NAME: usize = 15;

/// `struct ifreq`: a name and a union, of which this code uses integers at its start.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; MAX_NAME + 1],
    value: [u8; size_of::<net::ifreq>() - (MAX_NAME + 1)],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<net::ifreq>());
const _: () = assert!(align_of::<InterfaceRequest>() >= align_of::<net::ifreq>());

impl InterfaceRequest {
    /// A request about `name`.
    fn new(name: &str) -> Result<InterfaceRequest, Errno> {
        let bytes = name.as_bytes();
        if bytes.len() > MAX_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        let mut request =
            InterfaceRequest { name: [0; MAX_NAME + 1], value: [0; size_of::<net::ifreq>() - 16] };
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }

    fn name(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    fn u16(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    fn set_u16(&mut self, value: u16) {
        self.value[..2].copy_from_slice(&value.to_ne_bytes());
    }

    fn i32(&self) -> i32 {
        i32::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]])
    }

    fn set_i32(&mut self, value: i32) {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Calls an ioctl that reads and writes a request.
fn update<const OPCODE: Opcode>(
    fd: impl AsFd,
    request: &mut InterfaceRequest,
) -> Result<(), Errno> {
    // SAFETY: callers use opcodes that take a pointer to a `struct ifreq`, whose size and alignment
    // `InterfaceRequest` has (asserted above), and that keep within it. All bytes are valid values.
    unsafe { ioctl(fd, Updater::<OPCODE, InterfaceRequest>::new(request)) }
}

/// Flags of a TUN file that this crate uses.
pub(super) mod flags {
    use super::if_tun;

    /// IP packets without an Ethernet header, and without the extra four bytes before each.
    pub(in super::super) const TUN_NO_PI: u16 = (if_tun::IFF_TUN | if_tun::IFF_NO_PI) as u16;
    /// A virtio header before each packet.
    pub(in super::super) const VNET_HDR: u16 = if_tun::IFF_VNET_HDR as u16;
    /// Ethernet frames.
    pub(in super::super) const TAP: u16 = if_tun::IFF_TAP as u16;
    /// The interface has several queues, and this file is one.
    pub(in super::super) const MULTI_QUEUE: u16 = if_tun::IFF_MULTI_QUEUE as u16;

    /// We take packets with partial checksums.
    pub(in super::super) const CSUM: u32 = if_tun::TUN_F_CSUM;
    /// We take IPv4 TCP super-segments.
    pub(in super::super) const TSO4: u32 = if_tun::TUN_F_TSO4;
    /// We take IPv6 TCP super-segments.
    pub(in super::super) const TSO6: u32 = if_tun::TUN_F_TSO6;
    /// We take super-segments with CWR.
    pub(in super::super) const TSO_ECN: u32 = if_tun::TUN_F_TSO_ECN;
    /// We take datagrams that are to be cut, over both IP versions: the kernel (from 6.2 on) has
    /// one only with the other.
    pub(in super::super) const USO: u32 = if_tun::TUN_F_USO4 | if_tun::TUN_F_USO6;
}

/// The features of TUN files (`IFF_*`).
pub(super) fn tun_features(fd: impl AsFd) -> Result<u32, Errno> {
    // SAFETY: TUNGETFEATURES writes an unsigned int.
    unsafe { ioctl(fd, Getter::<{ op::TUNGETFEATURES as Opcode }, u32>::new()) }
}

/// Attaches a TUN file to the interface `name`, which is created if there is none. Returns its
/// name.
pub(super) fn tun_attach(fd: impl AsFd, name: &str, flags: u16) -> Result<String, Errno> {
    let mut request = InterfaceRequest::new(name)?;
    request.set_u16(flags);
    update::<{ op::TUNSETIFF as Opcode }>(fd, &mut request)?;
    Ok(request.name())
}

/// The name of the interface that a TUN file is attached to, and the flags that it has.
pub(super) fn tun_interface(fd: impl AsFd) -> Result<(String, u16), Errno> {
    let mut request = InterfaceRequest::new("")?;
    // By its number it writes an int, but it writes a whole request.
    update::<{ op::TUNGETIFF as Opcode }>(fd, &mut request)?;
    Ok((request.name(), request.u16()))
}

/// The network namespace of the interface that a TUN file is attached to.
pub(super) fn tun_namespace(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    // SAFETY: TUNGETDEVNETNS takes no argument, and returns a descriptor that is ours from then on.
    unsafe { ioctl(fd, NewFd::<{ op::TUNGETDEVNETNS as Opcode }>) }
}

/// An ioctl without an argument that returns a new descriptor.
struct NewFd<const OPCODE: Opcode>;

// SAFETY: there is no argument that the kernel could write to. Callers use opcodes that return a
// descriptor which no other code owns.
unsafe impl<const OPCODE: Opcode> Ioctl for NewFd<OPCODE> {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: see above.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// Sets the length of the virtio header.
pub(super) fn tun_set_header_len(fd: impl AsFd, len: i32) -> Result<(), Errno> {
    // SAFETY: TUNSETVNETHDRSZ reads an int.
    unsafe { ioctl(fd, Setter::<{ op::TUNSETVNETHDRSZ as Opcode }, i32>::new(len)) }
}

/// Sets the offloads of packets that the kernel may pass to the stack.
pub(super) fn tun_set_offload(fd: impl AsFd, offloads: u32) -> Result<(), Errno> {
    let value = offloads as usize;
    // SAFETY: TUNSETOFFLOAD takes an integer in place of a pointer.
    unsafe { ioctl(fd, IntegerSetter::<{ op::TUNSETOFFLOAD as Opcode }>::new_usize(value)) }
}

/// Makes the kernel steer each packet to the queue with the number of the sending CPU, and a long
/// packet to the queue of its flow's hash. Both are taken modulo the number of queues. This is a
/// program for the kernel.
pub(super) fn tun_steer_by_processor(fd: impl AsFd) -> Result<(), Errno> {
    let program = bpf::load_socket_filter(&bpf::PROCESSOR)?;
    let program = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads an int, which is a descriptor.
    unsafe { ioctl(fd, Setter::<{ op::TUNSETSTEERINGEBPF as Opcode }, i32>::new(program)) }
}

/// Restores the kernel's own choice of queues.
pub(super) fn tun_steer_by_flow(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: TUNSETSTEERINGEBPF reads an int; -1 takes the program away.
    unsafe { ioctl(fd, Setter::<{ op::TUNSETSTEERINGEBPF as Opcode }, i32>::new(-1)) }
}

/// Any socket; the ioctls on interfaces need one.
fn any_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    // A kernel without IPv4 has IPv6.
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .or_else(|_| rustix::net::socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None))
}

/// The MTU of an interface.
pub(super) fn interface_mtu(name: &str) -> io::Result<i32> {
    let mut request = InterfaceRequest::new(name)?;
    update::<{ op::SIOCGIFMTU as Opcode }>(any_socket()?, &mut request)?;
    Ok(request.i32())
}

/// Sets the MTU of an interface.
pub(super) fn set_interface_mtu(name: &str, mtu: u16) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request.set_i32(i32::from(mtu));
    update::<{ op::SIOCSIFMTU as Opcode }>(any_socket()?, &mut request)?;
    Ok(())
}

/// How many packets may wait for an interface (`txqueuelen`).
pub(super) fn interface_queue_len(name: &str) -> io::Result<i32> {
    let mut request = InterfaceRequest::new(name)?;
    update::<{ op::SIOCGIFTXQLEN as Opcode }>(any_socket()?, &mut request)?;
    Ok(request.i32())
}

/// Sets how many packets may wait for an interface.
pub(super) fn set_interface_queue_len(name: &str, packets: i32) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    request.set_i32(packets);
    update::<{ op::SIOCSIFTXQLEN as Opcode }>(any_socket()?, &mut request)?;
    Ok(())
}

/// Whether an interface may be used, and whether it is.
pub(super) struct InterfaceState {
    /// It was set up (`IFF_UP`).
    pub(super) up: bool,
    /// It has a carrier and the kernel uses it (`IFF_RUNNING`).
    pub(super) running: bool,
}

/// The state of an interface.
pub(super) fn interface_state(name: &str) -> io::Result<InterfaceState> {
    let mut request = InterfaceRequest::new(name)?;
    update::<{ op::SIOCGIFFLAGS as Opcode }>(any_socket()?, &mut request)?;
    let has = |flag: net::net_device_flags| u32::from(request.u16()) & flag as u32 != 0;
    let (up, running) = (net::net_device_flags::IFF_UP, net::net_device_flags::IFF_RUNNING);
    Ok(InterfaceState { up: has(up), running: has(running) })
}

/// Sets an interface up.
pub(super) fn set_interface_up(name: &str) -> io::Result<()> {
    let socket = any_socket()?;
    let mut request = InterfaceRequest::new(name)?;
    update::<{ op::SIOCGIFFLAGS as Opcode }>(&socket, &mut request)?;
    request.set_u16(request.u16() | net::net_device_flags::IFF_UP as u16);
    update::<{ op::SIOCSIFFLAGS as Opcode }>(&socket, &mut request)?;
    Ok(())
}
