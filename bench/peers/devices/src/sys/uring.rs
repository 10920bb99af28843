//! A TUN device by io_uring.
//!
//! A packet is written, and the next one read, in one call.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};
use peer_common::tun::VNET_HEADER;

use super::map::Map;
use crate::echo::{Echo, Fate};
use crate::failure::{Endless, Failure, Named};
use crate::tun::LARGEST;

/// How the ring is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One read at a time.
    Pair,
    /// One read that goes on, into whichever buffer is free.
    Multishot,
    /// As `Pair`; a thread of the kernel looks for what is to be done.
    Sqpoll,
}

/// Buffers, and bytes from the beginning of one to that of the next.
const BUFFERS: u16 = 64;
const STRIDE: usize = LARGEST.next_multiple_of(4096);

/// The device's place among the ring's files, and the number of the group of buffers.
const DEVICE: Fixed = Fixed(0);
const GROUP: u16 = 0;

/// Milliseconds until a thread of the kernel that has nothing to do sleeps.
const IDLE: u32 = 1000;

/// What a write is known by; a read is known by its buffer.
const WRITE: u64 = u64::MAX;

struct Ring {
    ring: IoUring,
    buffers: Map,
}

impl Ring {
    fn new(device: &File, mode: Mode) -> Result<Ring, Failure> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer();
        match mode {
            Mode::Sqpoll => builder.setup_sqpoll(IDLE),
            Mode::Pair | Mode::Multishot => builder.setup_defer_taskrun(),
        };
        let ring: IoUring = builder.build(2 * u32::from(BUFFERS)).named("io_uring_setup")?;
        ring.submitter().register_files(&[device.as_raw_fd()]).named("IORING_REGISTER_FILES")?;
        let buffers = Map::anonymous(usize::from(BUFFERS) * STRIDE).named("mapping buffers")?;
        Ok(Ring { ring, buffers })
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Failure> {
        // SAFETY: entries name buffers of `self.buffers`, which lives as long as the ring, and the
        // device by its place among the files.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(io::Error::other).named("the submission queue")
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        self.buffers.at(usize::from(buffer) * STRIDE, LARGEST)
    }

    fn read(&mut self, buffer: u16) -> Result<(), Failure> {
        let read = opcode::Read::new(DEVICE, self.address(buffer), LARGEST as u32);
        self.push(&read.offset(u64::MAX).build().user_data(u64::from(buffer)))
    }

    /// Nothing is told of a write that succeeds. The device takes a packet at once, so the buffer
    /// is free after the call that hands it over.
    fn write(&mut self, buffer: u16, length: usize) -> Result<(), Failure> {
        let write = opcode::Write::new(DEVICE, self.address(buffer), length as u32);
        let write = write.offset(u64::MAX).build().user_data(WRITE);
        self.push(&write.flags(squeue::Flags::SKIP_SUCCESS))
    }

    /// What the device has given, and how much of it.
    fn packet(&mut self, buffer: u16, length: usize) -> &mut [u8] {
        // SAFETY: the read into this buffer has ended, and the next one is handed to the kernel
        // with the whole ring borrowed.
        let bytes = unsafe { self.buffers.bytes(usize::from(buffer) * STRIDE, length) };
        bytes.get_mut(VNET_HEADER..).unwrap_or_default()
    }

    /// Hands over what was pushed, and returns one result, for which it waits.
    fn next(&mut self) -> Result<cqueue::Entry, Failure> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                return Ok(entry);
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => drop(done.named("io_uring_enter")?),
            }
        }
    }
}

/// How much was moved.
fn amount(entry: &cqueue::Entry, what: &str) -> Result<usize, Failure> {
    let result = entry.result();
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)).named(what)
}

/// Answers by a ring.
pub(crate) fn answer(device: &File, mode: Mode, echo: Echo) -> Endless {
    let ring = Ring::new(device, mode)?;
    match mode {
        Mode::Pair | Mode::Sqpoll => pairs(ring, echo),
        Mode::Multishot => multishot(ring, echo),
    }
}

fn pairs(mut ring: Ring, mut echo: Echo) -> Endless {
    ring.read(0)?;
    crate::ready()?;
    loop {
        let entry = ring.next()?;
        if entry.user_data() == WRITE {
            amount(&entry, "writing by io_uring")?;
            continue;
        }
        let length = amount(&entry, "reading by io_uring")?;
        let buffer = entry.user_data() as u16;
        let packet = ring.packet(buffer, length);
        let size = packet.len();
        if echo.take(packet, size) == Fate::Sent {
            ring.write(buffer, length)?;
        }
        ring.read((buffer + 1) % BUFFERS)?;
    }
}

/// The ring of buffers that the kernel takes one from for each packet.
struct Free {
    entries: Map,
    tail: u16,
}

impl Free {
    fn new(ring: &Ring) -> Result<Free, Failure> {
        let length = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let entries = Map::anonymous(length).named("mapping the ring of buffers")?;
        let base = entries.at::<BufRingEntry>(0, length) as u64;
        let submitter = ring.ring.submitter();
        // SAFETY: the memory has these entries, and lives as long as the loop that has both.
        unsafe { submitter.register_buf_ring_with_flags(base, BUFFERS, GROUP, 0) }
            .named("IORING_REGISTER_PBUF_RING")?;
        let mut free = Free { entries, tail: 0 };
        for buffer in 0..BUFFERS {
            free.give(ring, buffer);
        }
        Ok(free)
    }

    /// Lets the kernel have a buffer.
    fn give(&mut self, ring: &Ring, buffer: u16) {
        let size = size_of::<BufRingEntry>();
        let place: *mut BufRingEntry =
            self.entries.at(usize::from(self.tail % BUFFERS) * size, size);
        // SAFETY: the place is within the mapping and aligned (`at`), any bytes are a value, and
        // the kernel does not look at it before the tail moves.
        let entry = unsafe { &mut *place };
        entry.set_addr(ring.address(buffer) as u64);
        entry.set_len(LARGEST as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: it is the first entry of the ring.
        let tail = unsafe { BufRingEntry::tail(self.entries.at(0, size)) };
        // SAFETY: the tail is within the mapping and aligned, and is accessed as one word.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }.store(self.tail, Ordering::Release);
    }
}

fn multishot(mut ring: Ring, mut echo: Echo) -> Endless {
    let mut free = Free::new(&ring)?;
    let mut used = Vec::new();
    let mut reads = false;
    crate::ready()?;
    loop {
        if !reads {
            ring.push(&opcode::ReadMulti::new(DEVICE, 0, GROUP).offset(u64::MAX).build())?;
            reads = true;
        }
        let idle = ring.ring.completion().is_empty();
        let entry = ring.next()?;
        if idle {
            // What was pushed before has been handed over, so these are free.
            used.drain(..).for_each(|buffer| free.give(&ring, buffer));
        }
        if entry.user_data() == WRITE {
            amount(&entry, "writing by io_uring")?;
            continue;
        }
        reads = cqueue::more(entry.flags());
        let length = match amount(&entry, "IORING_OP_READ_MULTISHOT") {
            Err(_) if entry.result() == -libc::ENOBUFS => continue,
            other => other?,
        };
        let Some(buffer) = cqueue::buffer_select(entry.flags()) else { continue };
        let packet = ring.packet(buffer, length);
        let size = packet.len();
        if echo.take(packet, size) == Fate::Sent {
            ring.write(buffer, length)?;
        }
        used.push(buffer);
    }
}
