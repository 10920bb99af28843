//! Devices: sources and sinks of IP packets.
//!
//! # Theory of operation
//!
//! A [`Device`] has two halves and a wait source. The stack polls the halves; they never call back.
//! The holder of the transmit token uses [`DeviceTx`], the holder of the poll token uses
//! [`DeviceRx`], and one thread at a time uses each half. No call may block, sleep or spin.
//!
//! *Time.* A device has no clock. Every call gets `now`. [`next_event`](DeviceTx::next_event)
//! returns the time at which the device must be polled next even if nothing arrives. A poller
//! sleeps until that time, until the file descriptor of the [`WaitSource`] is readable, or until
//! the device calls the [`Kick`] that the poller installed there.
//!
//! *Back-pressure.* [`transmit`](DeviceTx::transmit) takes packets from the front of a queue and
//! leaves those that do not fit. It then returns [`TxStatus::Busy`], and the poller tries again
//! after the next event or wake-up. A full device never drops a packet.
//!
//! *Completions.* A device drops a packet's [`Charge`](crate::packet::Charge) when it has finished
//! with the packet: TUN when the write returned; the memory link when the peer took the packet or
//! when its serialisation time has passed; a channel when the caller took it. A packet that the
//! device does not keep is completed when it is dropped.
//!
//! *Wrapping.* Capture ([`pcapng`]) and faults ([`fault`]) are devices that wrap a device. They can
//! wrap any device, and each other.
//!
//! Devices have no queueing discipline (see [`crate::qdisc`]), no addresses and no routes.

pub mod channel;
pub mod fault;
mod impair;
pub mod memory_link;
pub mod pcapng;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod sys;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod tun;

use std::collections::VecDeque;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;
use plimsoll_wire::protocol;

use crate::kick::Kick;
use crate::offload::Layout;
use crate::packet::Packet;
use crate::platform::Descriptor;

pub use self::channel::channel;

/// The capabilities of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// The name to display.
    pub name: String,
    /// The longest IP packet, in bytes, except for super-segments.
    pub mtu: u16,
    /// Takes IPv4 TCP super-segments whole.
    pub tso4: bool,
    /// Takes IPv6 TCP super-segments whole.
    pub tso6: bool,
    /// Takes UDP datagrams that are still to be segmented (UDP segmentation offload) whole, for
    /// both IP versions.
    pub uso: bool,
    /// Takes packets with [`ChecksumState::Partial`](crate::packet::ChecksumState::Partial).
    pub tx_checksum: bool,
    /// The longest super-segment, in bytes with headers. Above 65,535 bytes the length field of its
    /// IP header is 0.
    pub max_super_segment: usize,
    /// Completions come after `transmit` has returned, so the count of bytes below is meaningful.
    pub completions: bool,
}

plimsoll_tcp::setters!(Caps {
    tso4: bool,
    tso6: bool,
    uso: bool,
    tx_checksum: bool,
    max_super_segment: usize,
    completions: bool,
});

impl Caps {
    /// The capabilities of a device without offloads that completes each packet before `transmit`
    /// returns. `mtu` is the longest IP packet in bytes, 576 to 65535.
    pub fn new(name: impl Into<String>, mtu: u16) -> Caps {
        Caps {
            name: name.into(),
            mtu,
            tso4: false,
            tso6: false,
            uso: false,
            tx_checksum: false,
            max_super_segment: usize::from(u16::MAX),
            completions: false,
        }
    }

    /// Whether the device segments this packet itself. False for a packet that needs no
    /// segmentation.
    pub(crate) fn cuts(&self, packet: &Packet) -> bool {
        match Layout::of_packet(packet) {
            Some(layout) if layout.protocol == protocol::UDP => self.uso,
            // Devices leave CWR to the first segment.
            Some(_) if crate::offload::gso::has_cwr_on_all(packet) => false,
            Some(layout) if layout.version == 4 => self.tso4,
            Some(_) => self.tso6,
            None => false,
        }
    }
}

/// The error of a device call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has gone permanently.
    #[error("{0}")]
    Gone(String),
    /// The device could not be opened or set up.
    #[error("{0}")]
    Setup(String),
    /// A call of the device panicked. The stack does not call it any more.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// A system call failed unexpectedly.
    #[error("{call}: {source}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}

/// Whether a device took all packets that it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxStatus {
    /// The queue is empty now.
    Done,
    /// The device has no room for the rest of the queue. Try again after the device's next event,
    /// after a wake-up, or when its file descriptor is writable.
    Busy,
}

/// The outcome of [`DeviceTx::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxProgress {
    /// Packets taken from the queue, including those that the device had to drop.
    pub packets: usize,
    /// Whether the device took all packets.
    pub status: TxStatus,
    /// The capabilities have changed: the system refused an offload, which is off from now on.
    pub caps_changed: bool,
}

impl TxProgress {
    /// The device took all of `packets`.
    pub const fn done(packets: usize) -> TxProgress {
        TxProgress { packets, status: TxStatus::Done, caps_changed: false }
    }

    /// The device took only `packets`: it has no room for the rest.
    pub const fn busy(packets: usize) -> TxProgress {
        TxProgress { packets, status: TxStatus::Busy, caps_changed: false }
    }
}

/// Statistics of one half of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Packets passed on; a super-segment is one.
    pub packets: u64,
    /// Bytes of these, from the IP header on.
    pub bytes: u64,
    /// Super-segments among them.
    pub super_segments: u64,
    /// Wire segments in these super-segments.
    pub wire_segments: u64,
    /// Packets dropped for lack of room, or on purpose (loss).
    pub dropped: u64,
    /// Packets dropped because the system refused them.
    pub errors: u64,
    /// Packets delivered twice on purpose.
    pub duplicated: u64,
    /// Packets delayed on purpose so that later ones overtake them.
    pub reordered: u64,
    /// Packets corrupted on purpose.
    pub corrupted: u64,
    /// Super-segments cut in software because the system refused them whole.
    pub software_gso: u64,
    /// Offloads that were switched off at run time.
    pub offloads_refused: u64,
}

impl DeviceStats {
    /// Counts a packet that is passed on.
    pub fn passed(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
        self.wire_segments += packet.segs() as u64;
        self.super_segments += u64::from(packet.gso.is_some());
    }
}

/// The sending half of a device.
pub trait DeviceTx: Send {
    /// The capabilities of the device now.
    fn caps(&self) -> &Caps;

    /// Whether the device uses the [notes](Packet::note) of packets.
    fn takes_notes(&self) -> bool {
        false
    }

    /// Takes as many packets as fit from the front of `queue`, in order.
    ///
    /// # Errors
    /// [`DeviceError::Gone`] if the device no longer exists. A packet that the system refuses is
    /// dropped and counted; that is no error.
    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError>;

    /// Called when the stack has been idle for a second. The device may free memory that it needs
    /// only for packets.
    fn on_idle(&mut self) {}

    /// Does the work that is due by `now`: completes packets whose time has passed, and passes on
    /// packets that were delayed. A poll calls it when [`next_event`](Self::next_event) has come,
    /// when the device is busy, and when there is something to send. Returns the number of packets
    /// it completed or passed on; if it is not 0, a busy device may have room again.
    ///
    /// # Errors
    /// As [`transmit`](Self::transmit).
    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let _ = now;
        Ok(0)
    }

    /// The next time at which [`poll_completions`](Self::poll_completions) has work. While the
    /// device is not busy, this changes only by calls of the device. While it is busy, the poller
    /// reads it again before it sleeps.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// The statistics so far.
    fn stats(&self) -> DeviceStats;
}

/// The receiving half of a device.
pub trait DeviceRx: Send {
    /// Appends up to `max` packets that have arrived by `now` to `out` and returns their number.
    ///
    /// # Errors
    /// [`DeviceError::Gone`] if the device no longer exists.
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError>;

    /// Whether more packets may have arrived, although the last call of [`receive`](Self::receive)
    /// returned fewer than it was asked for. A timer that acts on a peer's silence is delayed until
    /// the device is empty.
    fn may_hold_more(&self) -> bool {
        false
    }

    /// Called when the stack has been idle for a second. The device may free memory that it needs
    /// only for packets.
    fn on_idle(&mut self) {}

    /// The link event since the last call, if there was one. Called after
    /// [`receive`](Self::receive). A device that has an event wakes its poller, or makes its file
    /// descriptor readable, as for a packet.
    fn take_event(&mut self) -> Option<LinkEvent> {
        None
    }

    /// The time at which a packet in transit will have arrived. Other packets are announced by the
    /// wait source. If that is a file descriptor, this changes only by calls of the device.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// The statistics so far.
    fn stats(&self) -> DeviceStats;
}

/// An event of a link that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// The new length of the longest IP packet in bytes, super-segments apart. The sending half
    /// reports the same in its [`Caps`]. Connections adapt to it.
    Mtu(u16),
}

/// How a device notifies its poller: by a file descriptor, a [`Kick`], or neither.
#[derive(Clone, Default)]
pub struct WaitSource {
    fd: Option<Arc<Descriptor>>,
    kick: Option<KickSlot>,
}

impl WaitSource {
    /// A source that is a file descriptor. Only on Unix.
    #[cfg(unix)]
    pub fn from_fd(fd: Arc<OwnedFd>) -> WaitSource {
        WaitSource { fd: Some(fd), kick: None }
    }

    /// A source that wakes the poller through `slot`.
    pub fn from_kick(slot: KickSlot) -> WaitSource {
        WaitSource { fd: None, kick: Some(slot) }
    }

    /// The file descriptor that becomes readable when there is something to receive, if the device
    /// has one. Only on Unix.
    #[cfg(unix)]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// The file descriptor, if the source is one.
    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        self.fd.as_deref()
    }

    /// Stores the handle by which the device wakes the poller when there is something to receive,
    /// or room to send. Only the first call for a device has an effect.
    pub fn install(&self, kick: &Kick) {
        if let Some(slot) = &self.kick {
            slot.install(kick.clone());
        }
    }
}

/// The place in which a poller stores its [`Kick`] for the device.
#[derive(Clone, Default)]
pub struct KickSlot(Arc<OnceLock<Kick>>);

impl KickSlot {
    /// An empty slot.
    pub fn new() -> KickSlot {
        KickSlot::default()
    }

    /// Fills the slot, once.
    pub fn install(&self, kick: Kick) {
        // A device has only one poller, so the first handle stays.
        let _ = self.0.set(kick);
    }

    /// Wakes the poller, if one is installed, unless another thread polls the device.
    pub fn kick(&self) {
        if let Some(kick) = self.0.get() {
            kick.kick_for_arrival();
        }
    }

    /// Wakes the poller, if one is installed, because there is room to send.
    pub fn kick_for_room(&self) {
        if let Some(kick) = self.0.get() {
            kick.kick();
        }
    }
}

/// A device: its two halves and its wait source.
pub struct Device {
    /// The sending half.
    pub tx: Box<dyn DeviceTx>,
    /// The receiving half.
    pub rx: Box<dyn DeviceRx>,
    /// How the device notifies its poller.
    pub wait: WaitSource,
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Device({})", self.tx.caps().name)
    }
}

/// The earlier of two events.
#[inline]
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
