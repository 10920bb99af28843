//! AF_XDP with copies: frames go between the device and memory of ours without the kernel's stack.
//!
//! A frame that does not fit into a page comes, and goes, in several pieces.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{sockaddr_xdp, xdp_desc, xdp_mmap_offsets, xdp_ring_offset, xdp_umem_reg};

use super::map::Map;
use super::{bpf, checked, index, kick, set_option, socket, wait_readable};
use crate::echo::{Echo, Fate};
use crate::failure::{Endless, Failure, Named};

/// Where the program runs that takes the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Before the kernel's stack, with packets as that has them.
    Generic,
    /// In the driver.
    Native,
}

impl Hook {
    /// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
    fn flags(self) -> u32 {
        match self {
            Hook::Generic => 1 << 1,
            Hook::Native => 1 << 2,
        }
    }
}

/// Bytes of a place for a frame, or a piece of one, and how many there are. Each ring could take
/// all of them.
const CHUNK: usize = 4096;
const CHUNKS: u32 = 2048;

/// `XDP_PKT_CONTD`: the frame goes on in the next place.
const GOES_ON: u32 = 1;

/// One of the four rings, whose entries are `T`.
struct Ring<T> {
    map: Map,
    producer: usize,
    consumer: usize,
    entries: usize,
    /// How far this side is.
    at: u32,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(socket: &OwnedFd, offsets: xdp_ring_offset, page: u64) -> io::Result<Ring<T>> {
        let entries = offsets.desc as usize;
        let map = Map::of(socket, entries + CHUNKS as usize * size_of::<T>(), page as i64)?;
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        Ok(Ring { map, producer, consumer, entries, at: 0, of: std::marker::PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: it is within the mapping and aligned (`at`), and both sides access it as a word.
        unsafe { AtomicU32::from_ptr(self.map.at(offset, size_of::<u32>())) }
    }

    fn entry(&self, number: u32) -> *mut T {
        let place = (number % CHUNKS) as usize * size_of::<T>();
        self.map.at(self.entries + place, size_of::<T>())
    }

    /// What the kernel has put here next.
    fn take(&mut self) -> Option<T> {
        if self.at == self.word(self.producer).load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the entry is within the mapping and aligned (`at`). The kernel has written it
        // before it has moved the producer, and does not write it again before the consumer moves.
        let entry = unsafe { self.entry(self.at).read() };
        self.at = self.at.wrapping_add(1);
        self.word(self.consumer).store(self.at, Ordering::Release);
        Some(entry)
    }

    /// Hands these to the kernel. There is room: no ring has fewer entries than there are places.
    fn put(&mut self, entries: impl IntoIterator<Item = T>) {
        for entry in entries {
            // SAFETY: the entry is within the mapping and aligned (`at`), and the kernel does not
            // read it before the producer moves.
            unsafe { self.entry(self.at).write(entry) };
            self.at = self.at.wrapping_add(1);
        }
        self.word(self.producer).store(self.at, Ordering::Release);
    }

    /// Whether the kernel has taken all.
    fn is_empty(&self) -> bool {
        self.word(self.consumer).load(Ordering::Acquire) == self.at
    }
}

/// A socket with its memory.
struct Socket {
    memory: Map,
    fill: Ring<u64>,
    completion: Ring<u64>,
    rx: Ring<xdp_desc>,
    tx: Ring<xdp_desc>,
    fd: OwnedFd,
}

impl Socket {
    fn new() -> Result<Socket, Failure> {
        let fd = socket(libc::AF_XDP, libc::SOCK_RAW, 0).named("AF_XDP")?;
        let length = CHUNK * CHUNKS as usize;
        let memory = Map::anonymous(length).named("mapping memory for frames")?;
        let area = xdp_umem_reg {
            addr: memory.at::<u8>(0, length) as u64,
            len: length as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        let size = size_of::<xdp_umem_reg>() as libc::socklen_t;
        let (raw, from) = (fd.as_raw_fd(), (&raw const area).cast());
        // SAFETY: the kernel reads `size` bytes, which are the whole structure. The memory that it
        // names lives as long as the socket: `Socket` has both, and drops the memory's mapping only
        // as it ends, when the kernel keeps the pages that it uses.
        let set = unsafe { libc::setsockopt(raw, libc::SOL_XDP, libc::XDP_UMEM_REG, from, size) };
        checked(set).named("XDP_UMEM_REG")?;
        for (ring, name) in [
            (libc::XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING"),
            (libc::XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING"),
            (libc::XDP_RX_RING, "XDP_RX_RING"),
            (libc::XDP_TX_RING, "XDP_TX_RING"),
        ] {
            set_option(&fd, libc::SOL_XDP, ring, &CHUNKS).named(name)?;
        }
        let offsets = offsets(&fd).named("XDP_MMAP_OFFSETS")?;
        let name = "mapping a ring";
        let fill = Ring::new(&fd, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING).named(name)?;
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let completion = Ring::new(&fd, offsets.cr, page).named(name)?;
        let rx = Ring::new(&fd, offsets.rx, libc::XDP_PGOFF_RX_RING as u64).named(name)?;
        let tx = Ring::new(&fd, offsets.tx, libc::XDP_PGOFF_TX_RING as u64).named(name)?;
        let mut socket = Socket { memory, fill, completion, rx, tx, fd };
        socket.fill.put((0..u64::from(CHUNKS)).map(|chunk| chunk * CHUNK as u64));
        Ok(socket)
    }

    fn bind(&self, device: u32) -> io::Result<()> {
        let address = sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
            sxdp_ifindex: device,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of::<sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads `size` bytes, which are the whole structure.
        let bound = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size) };
        checked(bound).map(drop)
    }

    /// The next frame, in its pieces. The kernel puts all of them here at once.
    fn frame(&mut self, pieces: &mut Vec<xdp_desc>) -> bool {
        pieces.clear();
        while let Some(piece) = self.rx.take() {
            pieces.push(piece);
            if piece.options & GOES_ON == 0 {
                return true;
            }
        }
        false
    }

    /// The bytes of a piece.
    fn bytes(&mut self, piece: xdp_desc) -> &mut [u8] {
        // SAFETY: the kernel has handed the place over. It gets it back by `fill` or `tx` only, for
        // which the whole socket has to be borrowed.
        unsafe { self.memory.bytes(piece.addr as usize, piece.len as usize) }
    }
}

fn offsets(fd: &OwnedFd) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut offsets: xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut size = size_of::<xdp_mmap_offsets>() as libc::socklen_t;
    let (raw, to) = (fd.as_raw_fd(), (&raw mut offsets).cast());
    let name = libc::XDP_MMAP_OFFSETS;
    // SAFETY: the kernel writes `size` bytes at most, which are the whole structure.
    checked(unsafe { libc::getsockopt(raw, libc::SOL_XDP, name, to, &raw mut size) })?;
    Ok(offsets)
}

/// Answers frames of `device`, all of which come here and not to the kernel's stack.
pub(crate) fn answer(device: &str, hook: Hook, mut echo: Echo) -> Endless {
    let device = index(device).named("looking for the device")?;
    let mut socket = Socket::new()?;
    socket.bind(device).named("binding to the device")?;
    let _attached = bpf::redirect(device, &socket.fd, hook.flags())?;
    crate::ready()?;
    let mut pieces = Vec::new();
    loop {
        while socket.frame(&mut pieces) {
            let length = pieces.iter().map(|piece| piece.len as usize).sum();
            if echo.take(socket.bytes(pieces[0]), length) == Fate::Sent {
                socket.tx.put(pieces.iter().copied());
            } else {
                socket.fill.put(pieces.iter().map(|piece| piece.addr));
            }
        }
        // A call sends some of them only.
        while !socket.tx.is_empty() {
            kick(&socket.fd).named("send")?;
            while let Some(sent) = socket.completion.take() {
                socket.fill.put([sent]);
            }
        }
        if socket.rx.at == socket.rx.word(socket.rx.producer).load(Ordering::Acquire) {
            wait_readable(socket.fd.as_fd()).named("poll")?;
        }
    }
}
