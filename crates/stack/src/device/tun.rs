//! TUN: IP packets to and from the host kernel, whole super-segments both ways.
//!
//! # Theory of operation
//!
//! Every packet has a virtio header before it (`IFF_VNET_HDR`), which says where a partial checksum
//! is to be completed and how a super-segment is to be segmented. One `writev` passes that header,
//! the packet's head and its slices to the kernel without a copy. One `read` takes a packet of up
//! to 64 KiB directly into a chunk of the pool. The next follows it as long as the longest one
//! fits, so that small packets share a chunk. Packets that leave may be longer, if the kernel and
//! the configuration allow it ([`TunConfig::max_super_segment`]).
//!
//! A packet is complete when the write has returned. The kernel's queue is not visible to the
//! stack.
//!
//! *Fall back.* Offloads that the kernel refuses at the start are omitted one by one ([`open`]). If
//! it later refuses a packet because of an offload, the packet is segmented and its checksum filled
//! in software; if the kernel then accepts it, the offload stays off.
//!
//! *Several queues.* Each is its own file ([`open_queues`]), and they share only the kernel's
//! interface.
//!
//! *Queue.* Packets from the kernel wait in a queue of `txqueuelen` packets; packets that find it
//! full are dropped there. Opening sets a longer one than the default ([`queue_len`]).
//!
//! *A descriptor from elsewhere* ([`from_fd`]) is read and written in the same way. It may be a TUN
//! file that a service has opened, or a socket whose messages are packets.
//!
//! *Interface down.* Writes fail with `EIO` and reads find nothing. Packets are dropped and counted
//! until it is up again. *Interface deleted.* Calls fail with `EBADFD`: [`DeviceError::Gone`]. *Any
//! other error* costs the packet and is counted (`errors`). If such errors continue for a while
//! without a successful call, the device has failed: [`DeviceError::Io`].
//!
//! Addresses and routes of the kernel's side are set by the user (`ip address add ...`).

mod carrier;
mod jumbo;
mod passed;
mod setup;
mod vnet;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use plimsoll_buf::{ChunkWriter, MAX_CHUNK, MAX_SLICES, Pool};
use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::{ipv6, protocol};
use rustix::io::Errno;

use self::vnet::Header;
use super::{Caps, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress, TxStatus};
use crate::limits::RX_BATCH_TRAIN_BYTES;
use crate::offload::{Layout, checksum, gso};
use crate::packet::{ChecksumState, Packet};

pub use self::passed::{FdConfig, PacketHeader, from_fd};
pub use self::setup::{
    Offloads, Steering, TunConfig, bring_up, create, is_up, mtu, open, open_queues, queue_len,
    set_mtu,
};

/// The longest packet that a read can return.
const MAX_PACKET: usize = 65_535;
/// Calls in a row that fail for no known reason before the device counts as failed.
const TROUBLE_CALLS: u32 = 64;
/// The time after which continued errors count as a failure.
const TROUBLE_TIME: Duration = Duration::from_secs(10);

/// The system calls on a TUN file, so that tests can refuse any of them.
trait Port: Send {
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno>;
    fn read(&self, into: &mut [u8]) -> Result<usize, Errno>;
}

impl Port for Arc<OwnedFd> {
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        rustix::io::writev(self, parts)
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(self, into)
    }
}

/// The header before each packet, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Before {
    /// Packet information: `struct tun_pi`, flags and the protocol as Ethernet numbers it.
    info: bool,
    /// A virtio header.
    vnet: bool,
}

/// Bytes of the packet information.
const INFO_LEN: usize = 4;

impl Before {
    fn len(self) -> usize {
        (if self.info { INFO_LEN } else { 0 }) + if self.vnet { vnet::LEN } else { 0 }
    }
}

/// The packet information of a packet that leaves.
fn info_of(packet: &Packet) -> &'static [u8; INFO_LEN] {
    match packet.headers().first().map(|first| first >> 4) {
        Some(6) => &[0, 0, 0x86, 0xdd],
        _ => &[0, 0, 0x08, 0x00],
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Yes,
    /// The kernel has no room at present.
    Full,
    /// The kernel refuses this packet.
    Refused(Errno),
}

struct TunTx<P> {
    port: P,
    caps: Caps,
    before: Before,
    /// Wire segments of a packet that was cut, of which the kernel has not taken all.
    pending: VecDeque<Packet>,
    caps_changed: bool,
    trouble: Trouble,
    /// The time of this call.
    now: Instant,
    stats: DeviceStats,
}

/// Counts consecutive failures of unknown cause.
#[derive(Debug, Default)]
struct Trouble {
    calls: u32,
    since: Option<Instant>,
}

impl Trouble {
    /// A call has succeeded.
    fn end(&mut self) {
        *self = Trouble::default();
    }

    /// A call has failed. The device has failed if none has succeeded for long.
    fn note(&mut self, now: Instant, call: &'static str, error: Errno) -> Result<(), DeviceError> {
        self.calls = self.calls.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        if self.calls < TROUBLE_CALLS || now.since(since) < TROUBLE_TIME {
            return Ok(());
        }
        Err(DeviceError::Io { call, source: error.into() })
    }
}

impl<P: Port> TunTx<P> {
    fn new(port: P, caps: Caps, before: Before) -> TunTx<P> {
        let stats = DeviceStats::default();
        let (pending, trouble) = (VecDeque::new(), Trouble::default());
        let (caps_changed, now) = (false, Instant::ZERO);
        TunTx { port, caps, before, pending, caps_changed, trouble, now, stats }
    }

    /// Whether the device may be given the packet as it is.
    fn takes_whole(&self, packet: &Packet) -> bool {
        match packet.gso {
            Some(_) => self.caps.cuts(packet),
            None => packet.csum != ChecksumState::Partial || self.caps.tx_checksum,
        }
    }

    /// Passes one packet to the kernel.
    fn write(&self, packet: &Packet) -> Result<Written, DeviceError> {
        let Some(header) = Header::for_packet(packet) else {
            return Ok(Written::Refused(Errno::INVAL));
        };
        let header = header.write();
        let jumbo = jumbo::head(packet);
        let mut parts: ArrayVec<IoSlice<'_>, { MAX_SLICES + 4 }> = ArrayVec::new();
        if self.before.info {
            parts.push(IoSlice::new(info_of(packet)));
        }
        if self.before.vnet {
            parts.push(IoSlice::new(&header));
        }
        // Its first bytes are replaced; they are in one part.
        let mut skip = 0;
        if let Some(head) = &jumbo {
            parts.push(IoSlice::new(head));
            skip = ipv6::HEADER_LEN;
        }
        for part in packet.parts() {
            parts.push(IoSlice::new(&part[std::mem::take(&mut skip).min(part.len())..]));
        }
        loop {
            return match self.port.write(&parts) {
                Ok(_) => Ok(Written::Yes),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Written::Full),
                Err(error) if is_gone(error) => Err(gone(&self.caps.name, error)),
                Err(error) => Ok(Written::Refused(error)),
            };
        }
    }

    /// Passes the packet at the front of `queue` on. Returns false if the kernel has no room.
    fn send_front(&mut self, queue: &mut VecDeque<Packet>) -> Result<bool, DeviceError> {
        let Some(packet) = queue.front() else { return Ok(true) };
        let whole = self.takes_whole(packet);
        let refused = match if whole { self.write(packet)? } else { Written::Refused(Errno::INVAL) }
        {
            Written::Full => return Ok(false),
            Written::Yes => {
                self.stats.passed(packet);
                self.trouble.end();
                queue.pop_front();
                return Ok(true);
            }
            Written::Refused(error) => error,
        };
        let Some(packet) = queue.pop_front() else { return Ok(true) };
        if packet.gso.is_none() && packet.csum != ChecksumState::Partial {
            // The packet needs no offload, so no offload caused the refusal.
            self.refuse(refused)?;
            return Ok(true);
        }
        let suspect = (whole && blames_offload(refused)).then(|| Suspect::of(&packet));
        self.stats.software_gso += u64::from(packet.gso.is_some());
        self.pending.extend(gso::split(packet));
        self.flush_pending(suspect)
    }

    /// Sends packets that were segmented in software. If the kernel accepts them, the offload that
    /// was used before caused the refusal, and is switched off. Returns false if the kernel has no
    /// room.
    fn flush_pending(&mut self, mut suspect: Option<Suspect>) -> Result<bool, DeviceError> {
        while let Some(segment) = self.pending.front_mut() {
            if suspect.is_some_and(Suspect::is_checksum) || !self.caps.tx_checksum {
                checksum::fill(segment);
            }
            let Some(segment) = self.pending.front() else { break };
            match self.write(segment)? {
                Written::Full => return Ok(false),
                Written::Yes => {
                    self.stats.passed(segment);
                    self.trouble.end();
                    if let Some(suspect) = suspect.take() {
                        self.switch_off(suspect);
                    }
                }
                // The interface is down: the others need not be tried.
                Written::Refused(Errno::IO) => {
                    self.stats.errors += self.pending.len() as u64;
                    self.pending.clear();
                }
                Written::Refused(error) => self.refuse(error)?,
            }
            self.pending.pop_front();
        }
        Ok(true)
    }

    /// Counts a packet that the kernel did not take.
    fn refuse(&mut self, error: Errno) -> Result<(), DeviceError> {
        self.stats.errors += 1;
        if is_about_packet(error) {
            return Ok(());
        }
        self.trouble.note(self.now, "writing a packet", error)
    }

    fn switch_off(&mut self, suspect: Suspect) {
        match suspect {
            Suspect::Length => self.caps.max_super_segment = MAX_PACKET,
            Suspect::Tso4 => self.caps.tso4 = false,
            Suspect::Tso6 => self.caps.tso6 = false,
            Suspect::Uso => self.caps.uso = false,
            Suspect::Checksum => {
                // A super-segment needs its checksums completed.
                self.caps.tso4 = false;
                self.caps.tso6 = false;
                self.caps.uso = false;
                self.caps.tx_checksum = false;
            }
        }
        self.stats.offloads_refused += 1;
        self.caps_changed = true;
    }
}

/// An offload that may have caused the kernel's refusal of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspect {
    /// More bytes than an IP header can express.
    Length,
    Tso4,
    Tso6,
    Uso,
    Checksum,
}

impl Suspect {
    fn of(packet: &Packet) -> Suspect {
        let layout = Layout::of_packet(packet);
        match (packet.gso, layout.map(|layout| (layout.protocol, layout.version))) {
            (None, _) => Suspect::Checksum,
            (Some(_), _) if packet.len() > MAX_PACKET => Suspect::Length,
            (Some(_), Some((protocol::UDP, _))) => Suspect::Uso,
            (Some(_), Some((_, 4))) => Suspect::Tso4,
            (Some(_), _) => Suspect::Tso6,
        }
    }

    fn is_checksum(self) -> bool {
        self == Suspect::Checksum
    }
}

/// Whether this error of the kernel may be about an offload. An interface that is down also returns
/// `EIO`; then the segments fail as well, and nothing is switched off.
fn blames_offload(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP)
}

/// Whether a write failed because of the packet, of an interface that is down, or for lack of
/// memory: nothing of which ends the device.
fn is_about_packet(error: Errno) -> bool {
    blames_offload(error) || matches!(error, Errno::NOBUFS | Errno::NOMEM)
}

fn is_gone(error: Errno) -> bool {
    is_deleted(error)
        || matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED)
}

fn is_deleted(error: Errno) -> bool {
    matches!(error, Errno::BADFD | Errno::BADF | Errno::NODEV | Errno::NXIO)
}

fn gone(name: &str, error: Errno) -> DeviceError {
    DeviceError::Gone(match is_deleted(error) {
        true => format!("interface {name} was deleted ({error})"),
        false => format!("the other end of {name} was closed ({error})"),
    })
}

impl<P: Port> DeviceTx for TunTx<P> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.now = now;
        let before = queue.len();
        let mut room = self.flush_pending(None)?;
        while room && !queue.is_empty() {
            room = self.send_front(queue)?;
        }
        Ok(TxProgress {
            packets: before - queue.len(),
            status: if room { TxStatus::Done } else { TxStatus::Busy },
            caps_changed: std::mem::take(&mut self.caps_changed),
        })
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        self.now = now;
        let before = self.pending.len();
        self.flush_pending(None)?;
        Ok(before - self.pending.len())
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

struct TunRx<P> {
    port: P,
    name: String,
    before: Before,
    /// Bytes of one call.
    batch: usize,
    /// The chunk that packets are read into.
    chunk: Option<ChunkWriter>,
    trouble: Trouble,
    /// The last call ended because of the number of bytes.
    stopped_early: bool,
    stats: DeviceStats,
}

impl<P: Port> TunRx<P> {
    fn new(port: P, name: String, before: Before, batch: usize) -> TunRx<P> {
        let (trouble, stats) = (Trouble::default(), DeviceStats::default());
        // A call takes at least one packet.
        let batch = batch.max(1);
        TunRx { port, name, before, batch, chunk: None, trouble, stopped_early: false, stats }
    }

    /// Reads one packet, and returns whether it is a train of UDP. `None` if there is none at
    /// present.
    fn read(&mut self, now: Instant, pool: &Pool) -> Result<Option<(Packet, bool)>, DeviceError> {
        let before_len = self.before.len();
        let longest = MAX_PACKET + before_len;
        if let Some(chunk) = &mut self.chunk {
            chunk.rewind();
        }
        let chunk = match &mut self.chunk {
            Some(chunk) if chunk.remaining() >= longest => chunk,
            slot => slot.insert(pool.chunk(MAX_CHUNK)),
        };
        let len = loop {
            match self.port.read(chunk.spare_mut()) {
                // A socket returns this permanently once its other end is closed.
                Ok(0) => return Err(gone(&self.name, Errno::PIPE)),
                Ok(len) => break len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.trouble.end();
                    return Ok(None);
                }
                Err(error) if is_gone(error) => return Err(gone(&self.name, error)),
                // A queue returns EFAULT while it is being torn down, a kernel without memory
                // ENOMEM and ENOBUFS. The poller retries at once.
                Err(error) => {
                    self.stats.errors += 1;
                    self.trouble.note(now, "reading a packet", error)?;
                    return Ok(None);
                }
            }
        };
        self.trouble.end();
        let mut slice = chunk.freeze(len);
        let mut packet = Packet::new();
        if len <= before_len {
            // There is nothing after the headers. The stack will refuse an empty packet.
            self.stats.errors += 1;
            return Ok(Some((packet, false)));
        }
        if self.before.info {
            // The packet itself has the version.
            slice.advance(INFO_LEN);
        }
        let header = slice.first_chunk::<{ vnet::LEN }>().map(Header::read).unwrap_or_default();
        if self.before.vnet {
            slice.advance(vnet::LEN);
        }
        packet.payload = slice.into();
        if self.before.vnet {
            header.describe(&mut packet);
        }
        self.stats.passed(&packet);
        Ok(Some((packet, self.before.vnet && header.is_udp_train())))
    }
}

impl<P: Port> DeviceRx for TunRx<P> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let (mut bytes, mut train_bytes) = (0, 0);
        self.stopped_early = false;
        for count in 0..max {
            if bytes >= self.batch || train_bytes >= RX_BATCH_TRAIN_BYTES {
                self.stopped_early = true;
                return Ok(count);
            }
            match self.read(now, pool)? {
                Some((packet, is_train)) => {
                    bytes += packet.len();
                    train_bytes += if is_train { packet.len() } else { 0 };
                    out.push(packet);
                }
                None => return Ok(count),
            }
        }
        Ok(max)
    }

    fn may_hold_more(&self) -> bool {
        self.stopped_early
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
