//! What needs `unsafe`: system calls that no crate wraps safely, and memory shared with the kernel.
//!
//! TUN files (ioctl), AF_PACKET and AF_XDP sockets (options, addresses, rings in mapped memory), the
//! program that hands frames to an AF_XDP socket (bpf(2)), and requests of io_uring, which name
//! memory by its address. Every function can be called with any argument.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

/// Bytes of the longest packet with its headers, rounded up.
const SLOT: usize = 66 * 1024;

/// What a call has returned, or why it has failed.
fn checked(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Makes an interface of TUN in this thread's namespace, whose packets have a virtio header of ten
/// bytes in front, and says what we take whole.
pub(crate) fn open_tun(name: &str, flags: libc::c_int, blocking: bool) -> Result<OwnedFd> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(if blocking { 0 } else { libc::O_NONBLOCK });
    let file = options.open("/dev/net/tun")?;
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *place = byte.cast_signed();
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags;
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the descriptor is open, and the request is a whole `ifreq`, which TUNSETIFF reads and
    // writes.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    let takes = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let takes = takes | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // SAFETY: TUNSETOFFLOAD takes an integer in place of a pointer.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, u64::from(takes)) })?;
    Ok(file.into())
}

/// A socket of a family for which there is no crate.
pub(crate) fn socket(family: libc::c_int, kind: libc::c_int, protocol: u16) -> Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: it takes no pointer.
    let fd = checked(unsafe { libc::socket(family, kind, i32::from(protocol.to_be())) })?;
    // SAFETY: the call has returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket to an address, given as the bytes of its structure.
pub(crate) fn bind(fd: &OwnedFd, address: &[u8]) -> Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes.
    checked(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr().cast(), len) }).map(drop)
}

/// Sets an option of a socket. For options whose value holds no address of memory.
pub(crate) fn set_option(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    words: &[u32],
) -> Result<()> {
    let len = size_of_val(words) as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `len` bytes.
    checked(unsafe { libc::setsockopt(fd, level, name, words.as_ptr().cast(), len) }).map(drop)
}

/// The offsets of the fields of AF_XDP's rings: of the receive ring, the one to send, the one of free
/// frames and the one of completed ones. Each has those of its producer, its consumer, its entries
/// and its flags.
pub(crate) fn xdp_offsets(fd: &OwnedFd) -> Result<[[u64; 4]; 4]> {
    const XDP_MMAP_OFFSETS: libc::c_int = 1;
    let mut offsets = [[0_u64; 4]; 4];
    let mut len = size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, and all of them are integers.
    checked(unsafe {
        let into = offsets.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, XDP_MMAP_OFFSETS, into, &raw mut len)
    })?;
    Ok(offsets)
}

/// Lends a mapping to an AF_XDP socket, in frames of `frame` bytes. The kernel keeps its pages.
pub(crate) fn register_frames(fd: &OwnedFd, memory: &Map, frame: u32) -> Result<()> {
    const XDP_UMEM_REG: libc::c_int = 4;
    // Address, length, and then the size of a frame, its headroom, flags and room for metadata.
    let region = [memory.at as u64, memory.len as u64, pair(frame, 0), 0];
    let len = size_of_val(&region) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes. What they name is a mapping of that length, whose pages
    // it holds; `Map` reads and writes them as memory that others change.
    checked(unsafe {
        let from = region.as_ptr().cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, XDP_UMEM_REG, from, len)
    })
    .map(drop)
}

/// Memory that the kernel reads and writes as well. Copies go in and out; what is read while the
/// kernel writes it is any bytes.
pub(crate) struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    /// Of a socket, from an offset on; of nothing without one.
    pub(crate) fn new(fd: Option<&OwnedFd>, len: usize, offset: u64) -> Result<Map> {
        let (fd, kind) = match fd {
            Some(fd) => (fd.as_raw_fd(), libc::MAP_SHARED),
            None => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        let flags = kind | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = offset.cast_signed();
        // SAFETY: the kernel chooses the place, so nothing that is there already changes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Map { at: at.cast(), len })
    }

    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "{offset} and {len} are inside");
        // SAFETY: the place is inside of the mapping, or just behind it if nothing is there.
        unsafe { self.at.add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "{offset} is a place of a word");
        // SAFETY: a mapping begins at a page, so the place is one for a word; the mapping lives as
        // long as `self`, and words that are shared are only used as atomic ones.
        unsafe { AtomicU32::from_ptr(self.place(offset, 4).cast()) }
    }

    /// A word that the kernel publishes with.
    pub(crate) fn load(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Publishes what was written before.
    pub(crate) fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.place(offset, into.len());
        // SAFETY: both are as long, and do not overlap: nobody has a reference into the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.place(offset, bytes.len());
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is what mmap has returned, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A command of bpf(2) with the fields of its attributes, as words of eight bytes.
///
/// # Safety
/// Addresses in it are those of memory that lives, and that the command only reads.
unsafe fn bpf(command: libc::c_int, attributes: &[u64]) -> Result<OwnedFd> {
    let (at, len) = (attributes.as_ptr(), size_of_val(attributes));
    // SAFETY: the kernel reads `len` bytes; for the rest the caller answers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, len) };
    let fd = RawFd::try_from(result).map_err(|_| Error::last_os_error())?;
    // SAFETY: the commands below return new descriptors, which nobody else has.
    checked(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Two words of four bytes as one of eight.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Has frames that come by the interface go to an AF_XDP socket, before the kernel looks at them, as
/// long as what is returned lives. Generic: the driver has no part in it.
pub(crate) fn redirect_frames(interface: u32, socket: &OwnedFd) -> Result<[OwnedFd; 3]> {
    const MAP_CREATE: libc::c_int = 0;
    const MAP_UPDATE: libc::c_int = 2;
    const PROG_LOAD: libc::c_int = 5;
    const LINK_CREATE: libc::c_int = 28;
    const XSKMAP: u32 = 17;
    const PROGRAM_OF_XDP: u32 = 6;
    const ATTACH_TO_XDP: u32 = 37;
    const GENERIC: u32 = 2;
    let descriptor = |fd: &OwnedFd| fd.as_raw_fd().cast_unsigned();
    // SAFETY: there is no address in it.
    let map = unsafe { bpf(MAP_CREATE, &[pair(XSKMAP, 4), pair(4, 1), 0]) }?;
    let (key, value) = (0_u32, descriptor(socket));
    let entry = [pair(descriptor(&map), 0), (&raw const key) as u64, (&raw const value) as u64, 0];
    // SAFETY: the two addresses are those of words on our stack, which the kernel reads.
    let done = unsafe { libc::syscall(libc::SYS_bpf, MAP_UPDATE, entry.as_ptr(), 32) };
    checked(RawFd::try_from(done).unwrap_or(-1))?;
    let instruction = |code: u8, registers: u8, offset: u16, immediate: u32| {
        let [low, high] = offset.to_ne_bytes();
        let head = u32::from_ne_bytes([code, registers, low, high]);
        pair(head, immediate)
    };
    let program = [
        // r2 = context.rx_queue_index
        instruction(0x61, 0x12, 16, 0),
        // r1 = the map, in two instructions
        instruction(0x18, 0x11, 0, descriptor(&map)),
        0,
        // r3 = XDP_PASS, for what finds no socket
        instruction(0xb7, 0x03, 0, 2),
        // return bpf_redirect_map(r1, r2, r3)
        instruction(0x85, 0, 0, 51),
        instruction(0x95, 0, 0, 0),
    ];
    let licence = c"Dual MIT/GPL";
    let load = [
        pair(PROGRAM_OF_XDP, program.len() as u32),
        program.as_ptr() as u64,
        licence.as_ptr() as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the addresses are those of the instructions and the string above, which it reads.
    let loaded = unsafe { bpf(PROG_LOAD, &load) }?;
    let link = [pair(descriptor(&loaded), interface), pair(ATTACH_TO_XDP, GENERIC)];
    // SAFETY: there is no address in it.
    let link = unsafe { bpf(LINK_CREATE, &link) }?;
    Ok([map, loaded, link])
}

/// How a ring of io_uring is worked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submission {
    /// So many requests in a call, and their results with it.
    Calls(usize),
    /// A thread of the kernel looks for requests, on a processor.
    Thread(usize, u32),
}

/// An io_uring for one file, and the memory that its requests are about.
pub(crate) struct Ring {
    ring: IoUring,
    submission: Submission,
    /// Slots of a packet each. It is never freed: a request may be under way at any time.
    memory: &'static mut [u8],
    /// A multishot read is under way.
    reading: bool,
}

/// The name of the buffers of a multishot read.
const GROUP: u16 = 1;

/// As the kernel says it in the result of a request.
const AGAIN: i32 = -libc::EAGAIN;

impl Ring {
    pub(crate) fn new(file: &OwnedFd, submission: Submission, slots: usize) -> Result<Ring> {
        let mut builder = IoUring::builder();
        match submission {
            Submission::Calls(_) => {
                builder.setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun();
            }
            Submission::Thread(_, processor) => {
                builder.setup_sqpoll(1000).setup_sqpoll_cpu(processor);
            }
        }
        let ring = builder.build(256)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let memory = vec![0; slots * SLOT].leak();
        Ok(Ring { ring, submission, memory, reading: false })
    }

    /// Adds a request. Its memory is in `self.memory`.
    fn push(&mut self, entry: &Entry) -> Result<()> {
        // SAFETY: all requests of this file name memory of `self.memory`, in bounds, which lives
        // for ever, and which nobody uses before their results are there.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| Error::from(ErrorKind::WouldBlock))
    }

    /// Writes a packet `count` times.
    pub(crate) fn write(&mut self, packet: &[u8], count: usize) -> Result<()> {
        self.memory[..packet.len()].copy_from_slice(packet);
        let len = packet.len() as u32;
        let write = opcode::Write::new(Fixed(0), self.memory.as_ptr(), len).build();
        let (mut pushed, mut done) = (0, 0);
        while done < count {
            let (most, part) = match self.submission {
                Submission::Calls(most) => (most, 1),
                // It goes on while we add to them.
                Submission::Thread(most, _) => (most, 2),
            };
            while pushed < count && pushed - done < most {
                self.push(&write)?;
                pushed += 1;
            }
            self.ring.submit_and_wait((pushed - done).div_ceil(part))?;
            for result in self.ring.completion() {
                done += 1;
                whole(result.result(), len)?;
            }
        }
        Ok(())
    }

    /// Reads as many packets as a call asks for, and says how many there were.
    pub(crate) fn read(&mut self) -> Result<usize> {
        let (Submission::Calls(count) | Submission::Thread(count, _)) = self.submission;
        for slot in 0..count.min(self.memory.len() / SLOT) {
            let into = self.memory[slot * SLOT..].as_mut_ptr();
            self.push(&opcode::Read::new(Fixed(0), into, SLOT as u32).build())?;
        }
        self.ring.submit_and_wait(count)?;
        let results = self.ring.completion().map(|result| result.result());
        let found = results.filter(|result| *result != AGAIN).map(positive);
        Ok(found.collect::<Result<Vec<_>>>()?.len())
    }

    /// Takes what a multishot read has found, and keeps one under way.
    pub(crate) fn read_on(&mut self) -> Result<usize> {
        if !self.reading {
            self.provide(0, self.memory.len() / SLOT)?;
            self.push(&opcode::ReadMulti::new(Fixed(0), 0, GROUP).build())?;
            self.reading = true;
        }
        let limit = Timespec::new().nsec(1_000_000);
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit)) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
            other => drop(other?),
        }
        let results: Vec<_> =
            self.ring.completion().map(|found| (found.result(), found.flags())).collect();
        let mut count = 0;
        for (result, flags) in results {
            if let Some(slot) = cqueue::buffer_select(flags) {
                positive(result)?;
                count += 1;
                self.provide(slot, 1)?;
            } else if result != -libc::ENOBUFS {
                // The answer to one that provides buffers.
                zero_or_more(result)?;
                continue;
            }
            if !cqueue::more(flags) {
                self.push(&opcode::ReadMulti::new(Fixed(0), 0, GROUP).build())?;
            }
        }
        Ok(count)
    }

    fn provide(&mut self, slot: u16, count: usize) -> Result<()> {
        let at = self.memory[usize::from(slot) * SLOT..].as_mut_ptr();
        let entry = opcode::ProvideBuffers::new(at, SLOT as i32, count as u16, GROUP, slot).build();
        self.push(&entry.flags(Flags::SKIP_SUCCESS))
    }

    /// Writes a packet, waits for one, and reads it, in one call.
    pub(crate) fn turn(&mut self, packet: &[u8]) -> Result<()> {
        self.memory[..packet.len()].copy_from_slice(packet);
        let (from, len) = (self.memory.as_ptr(), packet.len() as u32);
        let into = self.memory[SLOT..].as_mut_ptr();
        let write = opcode::Write::new(Fixed(0), from, len).build();
        let wait = opcode::PollAdd::new(Fixed(0), libc::POLLIN as u32).build();
        let read = opcode::Read::new(Fixed(0), into, SLOT as u32).build();
        for entry in [write.flags(Flags::IO_LINK), wait.flags(Flags::IO_LINK), read] {
            self.push(&entry)?;
        }
        self.ring.submit_and_wait(3)?;
        self.ring.completion().try_for_each(|result| positive(result.result()).map(drop))
    }
}

fn zero_or_more(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn positive(result: i32) -> Result<i32> {
    match zero_or_more(result)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn whole(result: i32, len: u32) -> Result<()> {
    match zero_or_more(result)? == len.cast_signed() {
        true => Ok(()),
        false => Err(ErrorKind::WriteZero.into()),
    }
}
