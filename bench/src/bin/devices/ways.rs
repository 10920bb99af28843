//! The ways to hand the kernel packets and to take them.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::packet::Front;
use super::place::{HOST_DEVICE, HOST_MAC, HOST_PROCESSOR, OUR_DEVICE, OUR_MAC, Place};
use super::sys::{self, Map, Ring, Submission};

/// A way that is open, and where; it is used before its place is gone.
type Opened = (Place, Box<dyn Way>);

/// A way by its name.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    open: fn() -> Result<Opened>,
    /// What it can do.
    pub(crate) can: Can,
}

/// What a way can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Can {
    pub(crate) give: bool,
    pub(crate) take: bool,
    /// Packets of 64 KiB.
    pub(crate) long: bool,
    pub(crate) turn: bool,
}

const ALL: Can = Can { give: true, take: true, long: true, turn: true };
const NO_TURN: Can = Can { turn: false, ..ALL };
const TAKE: Can = Can { give: false, ..NO_TURN };

/// All ways, in their order. The first is what the library does.
pub(crate) const KINDS: [Kind; 12] = [
    Kind { name: "TUN, write and read", open: || tun(0, false), can: ALL },
    Kind { name: "TUN, IFF_NAPI", open: || tun(libc::IFF_NAPI, false), can: ALL },
    Kind { name: "TUN, threaded NAPI", open: || tun(libc::IFF_NAPI, true), can: ALL },
    Kind { name: "io_uring, 1 in a call", open: || uring(calls(1), false), can: ALL },
    Kind { name: "io_uring, 8 in a call", open: || uring(calls(8), false), can: NO_TURN },
    Kind { name: "io_uring, 32 in a call", open: || uring(calls(32), false), can: NO_TURN },
    Kind { name: "io_uring, multishot read", open: || uring(calls(1), true), can: TAKE },
    Kind {
        name: "io_uring, SQPOLL",
        open: || uring(Submission::Thread(32, HOST_PROCESSOR as u32), false),
        can: Can { take: false, ..NO_TURN },
    },
    Kind { name: "veth, send and recv", open: || frames(false), can: ALL },
    Kind { name: "veth, TPACKET_V3", open: || frames(true), can: TAKE },
    Kind { name: "veth, AF_XDP, 1 in a call", open: || xdp(1), can: Can { long: false, ..ALL } },
    Kind {
        name: "veth, AF_XDP, 32 in a call",
        open: || xdp(32),
        can: Can { long: false, ..NO_TURN },
    },
];

impl Kind {
    /// Opens it in a place of its own.
    pub(crate) fn open(&self) -> Result<Opened> {
        (self.open)().with_context(|| self.name.to_owned())
    }
}

/// A way to hand packets over, open.
pub(crate) trait Way {
    /// What stands in front of its packets.
    fn front(&self) -> Front;

    /// Hands a packet over `count` times.
    fn give(&mut self, packet: &[u8], count: usize) -> Result<()>;

    /// Takes some of the packets that are there. Says how many; none if nothing is.
    fn take(&mut self) -> Result<usize>;

    /// Hands a packet over, and takes the answer, asleep until it is there.
    fn turn(&mut self, packet: &[u8]) -> Result<()>;
}

const VIRTIO: Front = Front { virtio: true, ethernet: None };
const ETHERNET: Front = Front { virtio: false, ethernet: Some((HOST_MAC, OUR_MAC)) };

/// Sleeps until there is something to read, which is never long.
fn wait(fd: &OwnedFd) -> Result<()> {
    const LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&LIMIT)) {
            Ok(0) => bail!("no answer has come"),
            Err(Errno::INTR) => {}
            other => return other.map(drop).context("poll"),
        }
    }
}

fn whole(done: usize, packet: &[u8]) -> Result<()> {
    if done != packet.len() {
        bail!("{done} of {} bytes were taken", packet.len());
    }
    Ok(())
}

/// One packet, or none.
fn taken(result: Result<usize, Errno>) -> Result<usize> {
    match result {
        Ok(_) => Ok(1),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error).context("taking a packet"),
    }
}

/// A TUN file, a system call for each packet.
struct Tun {
    file: OwnedFd,
    block: Vec<u8>,
}

fn tun(flags: libc::c_int, threaded: bool) -> Result<Opened> {
    let place = Place::for_tun()?;
    let file = sys::open_tun(HOST_DEVICE, flags, false).context("a TUN device")?;
    place.set_up_tun(threaded)?;
    Ok((place, Box::new(Tun { file, block: vec![0; 66 * 1024] })))
}

impl Way for Tun {
    fn front(&self) -> Front {
        VIRTIO
    }

    fn give(&mut self, packet: &[u8], count: usize) -> Result<()> {
        (0..count).try_for_each(|_| whole(rustix::io::write(&self.file, packet)?, packet))
    }

    fn take(&mut self) -> Result<usize> {
        taken(rustix::io::read(&self.file, &mut self.block[..]))
    }

    fn turn(&mut self, packet: &[u8]) -> Result<()> {
        self.give(packet, 1)?;
        loop {
            wait(&self.file)?;
            if self.take()? > 0 {
                return Ok(());
            }
        }
    }
}

/// A TUN file, many packets in a call, or none.
struct Uring {
    ring: Ring,
    /// One multishot read takes all.
    multishot: bool,
}

fn calls(count: usize) -> Submission {
    Submission::Calls(count)
}

fn uring(submission: Submission, multishot: bool) -> Result<Opened> {
    let place = Place::for_tun()?;
    let file = sys::open_tun(HOST_DEVICE, 0, multishot).context("a TUN device")?;
    place.set_up_tun(false)?;
    let ring = Ring::new(&file, submission, if multishot { 64 } else { 32 });
    Ok((place, Box::new(Uring { ring: ring.context("an io_uring")?, multishot })))
}

impl Way for Uring {
    fn front(&self) -> Front {
        VIRTIO
    }

    fn give(&mut self, packet: &[u8], count: usize) -> Result<()> {
        self.ring.write(packet, count).context("io_uring")
    }

    fn take(&mut self) -> Result<usize> {
        if self.multishot { self.ring.read_on() } else { self.ring.read() }.context("io_uring")
    }

    fn turn(&mut self, packet: &[u8]) -> Result<()> {
        self.ring.turn(packet).context("io_uring")
    }
}

const ETH_P_IP: u16 = 0x0800;

/// `struct sockaddr_ll` of our end of a veth pair: frames of IPv4.
fn link_address(interface: u32) -> Vec<u8> {
    let mut address = (libc::AF_PACKET as u16).to_ne_bytes().to_vec();
    address.extend(ETH_P_IP.to_be_bytes());
    address.extend(interface.to_ne_bytes());
    address.resize(20, 0);
    address
}

/// A socket that sends and receives frames, a system call for each; or reads them from a ring.
struct Frames {
    socket: OwnedFd,
    ring: Option<Blocks>,
    block: Vec<u8>,
}

fn frames(ring: bool) -> Result<Opened> {
    const PACKET_VNET_HDR: libc::c_int = 15;
    let place = Place::for_veth()?;
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).context("AF_PACKET")?;
    sys::set_option(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &[1]).context("vnet header")?;
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &[64 << 20])?;
    let ring = ring.then(|| Blocks::new(&socket)).transpose().context("PACKET_RX_RING")?;
    let interface = name_to_index(&socket, OUR_DEVICE)?;
    sys::bind(&socket, &link_address(interface)).context("binding to the interface")?;
    Ok((place, Box::new(Frames { socket, ring, block: vec![0; 66 * 1024] })))
}

impl Way for Frames {
    fn front(&self) -> Front {
        Front { virtio: true, ..ETHERNET }
    }

    fn give(&mut self, packet: &[u8], count: usize) -> Result<()> {
        let send = || send(&self.socket, packet, SendFlags::empty());
        (0..count).try_for_each(|_| whole(send()?, packet))
    }

    fn take(&mut self) -> Result<usize> {
        match &mut self.ring {
            Some(ring) => Ok(ring.take()),
            None => {
                let result = recv(&self.socket, &mut self.block[..], RecvFlags::empty());
                taken(result.map(|(count, _)| count))
            }
        }
    }

    fn turn(&mut self, packet: &[u8]) -> Result<()> {
        self.give(packet, 1)?;
        loop {
            wait(&self.socket)?;
            if self.take()? > 0 {
                return Ok(());
            }
        }
    }
}

/// The receive ring of TPACKET_V3: blocks with many frames in each. They stay where they are, so
/// what is counted is the least that a reader does: it looks at the header of each.
struct Blocks {
    memory: Map,
    next: usize,
}

impl Blocks {
    const SIZE: u32 = 512 * 1024;
    const COUNT: u32 = 64;
    /// After so many milliseconds a block is handed over that is not full.
    const MILLISECONDS: u32 = 1;
    /// Where fields are, in a block and in the header of a frame.
    const STATUS: usize = 8;
    const FRAMES: usize = 12;
    const FIRST: usize = 16;
    const LENGTH: usize = 12;

    fn new(socket: &OwnedFd) -> Result<Blocks> {
        const PACKET_RX_RING: libc::c_int = 5;
        const PACKET_VERSION: libc::c_int = 10;
        const TPACKET_V3: u32 = 2;
        const FRAME: u32 = 2048;
        sys::set_option(socket, libc::SOL_PACKET, PACKET_VERSION, &[TPACKET_V3])?;
        let frames = Self::SIZE / FRAME * Self::COUNT;
        let request = [Self::SIZE, Self::COUNT, FRAME, frames, Self::MILLISECONDS, 0, 0];
        sys::set_option(socket, libc::SOL_PACKET, PACKET_RX_RING, &request)?;
        let memory = Map::new(Some(socket), (Self::SIZE * Self::COUNT) as usize, 0)?;
        Ok(Blocks { memory, next: 0 })
    }

    /// All frames of a block, if one is ours.
    fn take(&mut self) -> usize {
        let block = self.next * Self::SIZE as usize;
        if self.memory.load(block + Self::STATUS) & 1 == 0 {
            return 0;
        }
        let count = self.memory.load(block + Self::FRAMES);
        let mut frame = block + self.memory.load(block + Self::FIRST) as usize;
        for _ in 0..count {
            std::hint::black_box(self.memory.load(frame + Self::LENGTH));
            frame += self.memory.load(frame) as usize;
        }
        self.memory.store(block + Self::STATUS, 0);
        self.next = (self.next + 1) % Self::COUNT as usize;
        count as usize
    }
}

/// One of the four rings of AF_XDP.
struct XdpRing {
    memory: Map,
    /// Where the producer's count, the consumer's and the entries are.
    offsets: [u64; 4],
    /// Bytes of an entry.
    entry: usize,
    /// Our count: what we have produced, or consumed.
    ours: u32,
}

impl XdpRing {
    /// Entries; a power of two.
    const ENTRIES: u32 = 2048;

    fn new(socket: &OwnedFd, page: u64, offsets: [u64; 4]) -> Result<XdpRing> {
        // The rings of packets have an address and a length in each entry, the others an address.
        let entry = if page < 1 << 32 { 16 } else { 8 };
        let len = offsets[2] as usize + entry * Self::ENTRIES as usize;
        Ok(XdpRing { memory: Map::new(Some(socket), len, page)?, offsets, entry, ours: 0 })
    }

    fn producer(&self) -> u32 {
        self.memory.load(self.offsets[0] as usize)
    }

    fn consumer(&self) -> u32 {
        self.memory.load(self.offsets[1] as usize)
    }

    fn place(&self, at: u32) -> usize {
        self.offsets[2] as usize + self.entry * (at % Self::ENTRIES) as usize
    }

    /// Adds an entry, without telling yet.
    fn add(&mut self, address: u64, len: u32) {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&address.to_ne_bytes());
        entry[8..12].copy_from_slice(&len.to_ne_bytes());
        self.memory.write(self.place(self.ours), &entry[..self.entry]);
        self.ours = self.ours.wrapping_add(1);
    }

    fn publish(&self) {
        self.memory.store(self.offsets[0] as usize, self.ours);
    }

    /// The address in the next entry, which is taken.
    fn next(&mut self) -> u64 {
        let mut address = [0; 8];
        self.memory.read(self.place(self.ours), &mut address);
        self.ours = self.ours.wrapping_add(1);
        u64::from_ne_bytes(address)
    }

    fn release(&self) {
        self.memory.store(self.offsets[1] as usize, self.ours);
    }
}

/// AF_XDP: frames in memory that the kernel copies from and to.
struct Xdp {
    socket: OwnedFd,
    frames: Map,
    /// Frames for the kernel to fill, and those that it has.
    fill: XdpRing,
    received: XdpRing,
    /// Frames to be sent, and those that were.
    sent: XdpRing,
    completed: XdpRing,
    batch: usize,
    /// Keeps the program attached.
    _program: [OwnedFd; 3],
}

impl Xdp {
    /// Bytes of a frame. The first half of them is for receiving.
    const FRAME: u32 = 2048;

    /// Gets back the frames that were sent.
    fn reap(&mut self) {
        self.completed.ours = self.completed.producer();
        self.completed.release();
    }

    fn in_flight(&self) -> usize {
        self.sent.ours.wrapping_sub(self.completed.ours) as usize
    }

    fn kick(&self) -> Result<()> {
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error).context("sending frames"),
        }
    }
}

fn xdp(batch: usize) -> Result<Opened> {
    // The option that sets a ring's size, and where the ring is mapped.
    const RX: (libc::c_int, u64) = (2, 0);
    const TX: (libc::c_int, u64) = (3, 0x8000_0000);
    const FILL: (libc::c_int, u64) = (5, 0x1_0000_0000);
    const COMPLETION: (libc::c_int, u64) = (6, 0x1_8000_0000);
    const XDP_COPY: u16 = 2;
    let place = Place::for_veth()?;
    let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).context("AF_XDP")?;
    let frames = Map::new(None, 2 * (XdpRing::ENTRIES * Xdp::FRAME) as usize, 0)?;
    sys::register_frames(&socket, &frames, Xdp::FRAME).context("XDP_UMEM_REG")?;
    for (option, _) in [FILL, COMPLETION, RX, TX] {
        let size = [XdpRing::ENTRIES];
        sys::set_option(&socket, libc::SOL_XDP, option, &size).context("the size of a ring")?;
    }
    let offsets = sys::xdp_offsets(&socket).context("XDP_MMAP_OFFSETS")?;
    let ring = |(_, page): (libc::c_int, u64), at: usize| XdpRing::new(&socket, page, offsets[at]);
    let (received, sent) = (ring(RX, 0)?, ring(TX, 1)?);
    let (mut fill, completed) = (ring(FILL, 2)?, ring(COMPLETION, 3)?);
    for frame in 0..XdpRing::ENTRIES {
        fill.add(u64::from(frame * Xdp::FRAME), 0);
    }
    fill.publish();
    // A socket of AF_XDP does not know the call that tells the number.
    let other = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).context("AF_PACKET")?;
    let interface = name_to_index(&other, OUR_DEVICE).context("the interface's number")?;
    let mut address = (libc::AF_XDP as u16).to_ne_bytes().to_vec();
    address.extend(XDP_COPY.to_ne_bytes());
    address.extend(interface.to_ne_bytes());
    address.resize(16, 0);
    sys::bind(&socket, &address).context("binding to the interface")?;
    let program = sys::redirect_frames(interface, &socket).context("attaching a program")?;
    let way = Xdp { socket, frames, fill, received, sent, completed, batch, _program: program };
    Ok((place, Box::new(way)))
}

impl Way for Xdp {
    fn front(&self) -> Front {
        ETHERNET
    }

    fn give(&mut self, packet: &[u8], count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let batch = self.batch.min(left);
            while self.in_flight() + batch > XdpRing::ENTRIES as usize {
                self.kick()?;
                self.reap();
            }
            for _ in 0..batch {
                let frame = XdpRing::ENTRIES + self.sent.ours % XdpRing::ENTRIES;
                let at = frame as usize * Xdp::FRAME as usize;
                self.frames.write(at, packet);
                self.sent.add(at as u64, packet.len() as u32);
            }
            self.sent.publish();
            self.kick()?;
            self.reap();
            left -= batch;
        }
        // A call sends so many at most.
        while self.sent.consumer() != self.sent.ours {
            self.kick()?;
            self.reap();
        }
        Ok(())
    }

    fn take(&mut self) -> Result<usize> {
        let count = self.received.producer().wrapping_sub(self.received.ours).min(64);
        for _ in 0..count {
            let address = self.received.next();
            self.fill.add(address & !u64::from(Self::FRAME - 1), 0);
        }
        if count > 0 {
            self.received.release();
            self.fill.publish();
        }
        Ok(count as usize)
    }

    fn turn(&mut self, packet: &[u8]) -> Result<()> {
        self.give(packet, 1)?;
        loop {
            wait(&self.socket)?;
            if self.take()? > 0 {
                return Ok(());
            }
        }
    }
}
