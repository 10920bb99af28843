//! Programs for the kernel (bpf(2)): as much as choosing a queue takes.

use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

/// `BPF_PROG_LOAD` of the system call.
const PROG_LOAD: libc::c_int = 5;
/// `BPF_PROG_TYPE_SOCKET_FILTER`, the type that TUN devices accept.
const SOCKET_FILTER: u32 = 1;
/// Any licence suffices: no GPL-only function is called.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// `struct bpf_insn`.
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers, offset, immediate }
}

/// Returns the number of the CPU for a packet of at most `LONG` bytes, and the hash of its flow for
/// a longer one.
pub(super) const PROCESSOR: [Instruction; 7] = [
    // r6 = packet.len and r7 = packet.hash, at their offsets in `struct __sk_buff`.
    instruction(0x61, 0x16, 0, 0),
    instruction(0x61, 0x17, 68, 0),
    // Over the next two if r6 <= LONG.
    instruction(0xb5, 0x06, 2, LONG),
    // return r7
    instruction(0xbf, 0x70, 0, 0),
    instruction(0x95, 0, 0, 0),
    // return bpf_get_smp_processor_id(), which is function 8.
    instruction(0x85, 0, 0, 8),
    instruction(0x95, 0, 0, 0),
];

/// Packets of up to this many bytes are processed on the CPU that sent them. The sender of longer
/// ones has its CPU to itself if the stack uses another.
const LONG: i32 = 16 * 1024;

/// The fields of `union bpf_attr` that `BPF_PROG_LOAD` has needed from the start.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instructions: u32,
    first: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads a socket filter, which lasts as long as its descriptor or its users. The kernel checks it.
///
/// # Errors
/// `EPERM` without the right to load programs (`CAP_BPF`, or CAP_SYS_ADMIN before Linux 5.8).
pub(super) fn load_socket_filter(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    let attributes = LoadAttributes {
        program_type: SOCKET_FILTER,
        instructions: program.len() as u32,
        first: program.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let size = size_of::<LoadAttributes>();
    // SAFETY: the kernel reads `size` bytes of the attributes, and the instructions and the string
    // that they point to, all of which live until the call returns. It writes nothing: there is no
    // log.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size) };
    match RawFd::try_from(result) {
        // SAFETY: the call has returned a new descriptor, which no other code owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::INVAL, Errno::from_raw_os_error)),
    }
}
