//! Programs for the kernel (bpf(2)): one that hands all frames of a device to a socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::checked;
use crate::failure::{Failure, Named};

/// Commands of the call.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

/// `BPF_MAP_TYPE_XSKMAP`, `BPF_PROG_TYPE_XDP`, `BPF_XDP` and `BPF_F_XDP_HAS_FRAGS`.
const XSKMAP: u32 = 17;
const XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;

/// Any licence does: no function is called that is for the GPL alone.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// `struct bpf_insn`.
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, registers: u8, immediate: i32) -> Instruction {
    Instruction { code, registers, offset: 0, immediate }
}

/// `return bpf_redirect_map(map, 0, XDP_PASS)`: to the socket that is the map's first, or to the
/// kernel if there is none.
fn program(map: &OwnedFd) -> [Instruction; 6] {
    [
        // r1 = map, in two halves.
        instruction(0x18, 0x11, map.as_raw_fd()),
        instruction(0, 0, 0),
        // r2 = 0, r3 = XDP_PASS
        instruction(0xb7, 0x02, 0),
        instruction(0xb7, 0x03, 2),
        // bpf_redirect_map, which is function 51
        instruction(0x85, 0, 51),
        instruction(0x95, 0, 0),
    ]
}

#[repr(C)]
struct MapAttributes {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct UpdateAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// As far as the flags.
#[repr(C)]
struct LoadAttributes {
    kind: u32,
    instructions: u32,
    first: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct LinkAttributes {
    program: u32,
    device: u32,
    attach: u32,
    flags: u32,
}

/// Calls bpf(2) with attributes, and returns what it returns.
///
/// # Safety
/// The attributes are those of the command, and what they point to lives.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    let (at, size) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the kernel reads `size` bytes of the attributes, and what they point to, which lives
    // as the caller promises.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, size) };
    checked(result as libc::c_int)
}

/// As [`call`], of a command that returns a descriptor.
///
/// # Safety
/// As there.
unsafe fn descriptor<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the call has returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Hands the frames of a device to a socket for as long as the descriptors live that are returned.
pub(super) fn redirect(device: u32, socket: &OwnedFd, flags: u32) -> Result<[OwnedFd; 2], Failure> {
    let attributes = MapAttributes { kind: XSKMAP, key: 4, value: 4, entries: 1, flags: 0 };
    // SAFETY: these are the attributes of the command, and there are no pointers.
    let map = unsafe { descriptor(MAP_CREATE, &attributes) }.named("BPF_MAP_CREATE")?;
    let (key, value) = (0_u32, socket.as_raw_fd().cast_unsigned());
    let attributes = UpdateAttributes {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: these are the attributes of the command; key and value live until it returns.
    unsafe { call(MAP_UPDATE, &attributes) }.named("BPF_MAP_UPDATE_ELEM")?;
    let instructions = program(&map);
    let attributes = LoadAttributes {
        kind: XDP,
        instructions: instructions.len() as u32,
        first: instructions.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGS,
    };
    // SAFETY: these are the attributes of the command; the instructions and the string live until
    // it returns, and there is no log.
    let program = unsafe { descriptor(PROG_LOAD, &attributes) }.named("BPF_PROG_LOAD")?;
    let attributes = LinkAttributes {
        program: program.as_raw_fd().cast_unsigned(),
        device,
        attach: ATTACH_XDP,
        flags,
    };
    // SAFETY: these are the attributes of the command, and there are no pointers.
    let link = unsafe { descriptor(LINK_CREATE, &attributes) }.named("BPF_LINK_CREATE")?;
    Ok([map, link])
}
