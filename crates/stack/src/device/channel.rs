//! A device whose other end is the program: packets as values, in both directions.
//!
//! It is for a program whose packets come from a source that is not a local interface: a tunnel
//! that it decrypts itself, a virtual machine, a socket of another process, a test.
//!
//! # Theory of operation
//!
//! Each direction is a bounded queue. The stack fills the queue toward the caller. When that is
//! full, packets wait in the interface's queueing discipline, as with any busy device, and none is
//! dropped. A packet is complete when the caller takes it: until then its bytes count as below the
//! connection (`tcp_limit_output_bytes`, automatic corking). The caller fills the queue toward the
//! stack; when that is full, the caller waits. No packet is copied.
//!
//! *Interfaces.* A [`ChannelReceiver`] returns packets one at a time (`recv`), many (`recv_many`),
//! or blocks; a [`ChannelSender`] takes them likewise, also as a `Vec<u8>`. With the feature
//! `futures` they are a `Stream` and a `Sink` of packets. For packets as bytes, as with a file
//! descriptor or a tunnel's cipher, each `read` is one packet and each `write` is one: by
//! `AsyncRead` and `AsyncWrite` with the feature `tokio` or `futures-io`, and without either by
//! [`poll_read_packet`](ChannelReceiver::poll_read_packet) and
//! [`poll_write_packet`](ChannelSender::poll_write_packet). A read needs a buffer of at least the
//! MTU; its packet is complete, even with offloads. Functions that copy streams of bytes
//! (`tokio::io::copy`) do not fit: they may merge two reads, and so two packets, into one write.
//!
//! *Wake-ups.* The poller is woken when a packet arrives and when a queue that it found full is
//! half empty. The caller's waker is woken when a packet can be taken, when there is room again,
//! and at the end: once each, never without a reason. A waker is woken on a thread that works for
//! the stack, with no lock held.
//!
//! *Offloads* are the forms of packets that the caller accepts from the stack. Without any
//! ([`ChannelOffloads::None`]) every packet is one segment of at most the MTU with a complete
//! checksum. With them a packet may have a [`Partial`](crate::packet::ChecksumState::Partial)
//! checksum, or be a super-segment of up to 64 KiB, which is longer than the MTU; its
//! [`segment size`](crate::packet::Gso) counts against the MTU. The stack always accepts both, with
//! any MTU: the caller sets the fields of the packet.
//!
//! *The end.* If the caller drops a half, the interface goes down, and its connections end with an
//! error that names the channel; packets that the caller had sent before are still processed. If
//! the device is dropped, because the stack has ended or the interface has another device, the
//! caller receives the packets sent before, and then the end.
//!
//! *The MTU* can be changed at any time ([`ChannelSender::set_mtu`]); connections adapt to it.
//!
//! The channel does not parse packets. A packet of any bytes may be sent; the stack drops and
//! counts invalid ones.

mod ends;
mod io;
mod lane;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use self::lane::Lane;
use super::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, LinkEvent, TxProgress,
    TxStatus, WaitSource,
};
use crate::limits::{CHANNEL_QUEUE_LEN, MIN_MTU};
use crate::packet::Packet;

pub use self::ends::{
    Channel, ChannelClosed, ChannelReceiver, ChannelSender, Recv, RecvMany, SendError, Sending,
    TryRecvError,
};

/// The longest IP packet.
const MAX_PACKET: usize = 65_535;

/// The packets of the stack that the caller's end of a channel accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelOffloads {
    /// No offloads: segments of at most the MTU with complete checksums.
    #[default]
    None,
    /// It completes the checksums of TCP and UDP
    /// ([`checksum::fill`](crate::offload::checksum::fill) does).
    Checksum,
    /// It also cuts super-segments, or passes them on whole to something that does
    /// ([`gso::split`](crate::offload::gso::split) cuts them).
    Segmentation,
}

/// The configuration of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// The name of the interface, for errors, captures and statistics; `channel` unless set.
    pub name: String,
    /// The longest IP packet in bytes, super-segments apart: 576 to 65535; 1500 unless set.
    pub mtu: u16,
    /// The offloads that the caller supports; none unless set.
    pub offloads: ChannelOffloads,
    /// The largest number of packets that wait for the caller; 512 unless set. A super-segment is
    /// one.
    pub to_caller: usize,
    /// The largest number of packets that wait for the stack; 512 unless set.
    pub to_stack: usize,
}

plimsoll_tcp::setters!(ChannelConfig {
    mtu: u16,
    offloads: ChannelOffloads,
    to_caller: usize,
    to_stack: usize,
});

impl Default for ChannelConfig {
    fn default() -> ChannelConfig {
        ChannelConfig {
            name: "channel".to_owned(),
            mtu: 1500,
            offloads: ChannelOffloads::None,
            to_caller: CHANNEL_QUEUE_LEN,
            to_stack: CHANNEL_QUEUE_LEN,
        }
    }
}

impl ChannelConfig {
    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The default configuration with another MTU in bytes.
    pub fn with_mtu(mtu: u16) -> ChannelConfig {
        ChannelConfig { mtu, ..ChannelConfig::default() }
    }

    fn check(&self) -> Result<(), DeviceError> {
        let bad = |field: &str, reason: String| {
            Err(DeviceError::Setup(format!("channel '{}': {field}: {reason}", self.name)))
        };
        check_mtu(self.mtu).or_else(|reason| bad("mtu", reason))?;
        for (field, value) in [("to_caller", self.to_caller), ("to_stack", self.to_stack)] {
            if value == 0 {
                return bad(field, "0 packets would let none through; give at least 1".to_owned());
            }
        }
        Ok(())
    }
}

fn check_mtu(mtu: u16) -> Result<(), String> {
    match mtu {
        ..MIN_MTU => Err(format!("{mtu} is less than the {MIN_MTU} that TCP needs")),
        _ => Ok(()),
    }
}

/// Makes a channel: the device, for a stack, and the caller's end.
///
/// ```
/// use plimsoll_stack::device::{self, channel::ChannelConfig};
/// let (device, mut channel) = device::channel(ChannelConfig::with_mtu(1280))?;
/// drop(device);
/// assert!(channel.blocking_recv().is_none(), "the end is seen as one");
/// # Ok::<(), device::DeviceError>(())
/// ```
///
/// # Errors
/// [`DeviceError::Setup`] names the invalid field.
pub fn channel(config: ChannelConfig) -> Result<(Device, Channel), DeviceError> {
    config.check()?;
    let full = config.offloads == ChannelOffloads::Segmentation;
    let caps = Caps {
        name: config.name,
        mtu: config.mtu,
        tso4: full,
        tso6: full,
        uso: full,
        tx_checksum: config.offloads != ChannelOffloads::None,
        max_super_segment: MAX_PACKET,
        completions: true,
    };
    let kick = KickSlot::new();
    let shared = Arc::new(Shared {
        to_caller: Lane::new(config.to_caller),
        to_stack: Lane::new(config.to_stack),
        kick: kick.clone(),
        mtu: AtomicU16::new(config.mtu),
        cut: OnceLock::new(),
    });
    let stats = DeviceStats::default();
    let mtu = config.mtu;
    let tx = ChannelTx { caps, shared: shared.clone(), refused: false, stats };
    let rx = ChannelRx { shared: shared.clone(), mtu, stats };
    let device = Device { tx: Box::new(tx), rx: Box::new(rx), wait: WaitSource::from_kick(kick) };
    Ok((device, Channel::new(shared)))
}

/// The state that the ends share.
struct Shared {
    to_caller: Lane<Packet>,
    to_stack: Lane<Packet>,
    kick: KickSlot,
    /// The MTU that the caller has set.
    mtu: AtomicU16,
    /// Why the caller has ended the channel, if it has.
    cut: OnceLock<String>,
}

impl Shared {
    /// The caller ends the channel. The first reason stays.
    fn cut(&self, reason: impl FnOnce() -> String) {
        self.cut.get_or_init(reason);
    }

    /// The stack's view after the caller has ended the channel.
    fn gone(&self) -> DeviceError {
        let reason = self.cut.get().map_or("the caller has ended the channel", String::as_str);
        DeviceError::Gone(reason.to_owned())
    }
}

struct ChannelTx {
    caps: Caps,
    shared: Arc<Shared>,
    /// The lane was full when something was sent last.
    refused: bool,
    stats: DeviceStats,
}

impl DeviceTx for ChannelTx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        _now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.caps.mtu = self.shared.mtu.load(Ordering::Relaxed);
        if self.shared.cut.get().is_some() {
            return Err(self.shared.gone());
        }
        let stats = &mut self.stats;
        let put = self.shared.to_caller.put(queue, |packet| stats.passed(packet));
        let put = put.map_err(|_| self.shared.gone())?;
        self.refused = put.full;
        let status = if put.full { TxStatus::Busy } else { TxStatus::Done };
        Ok(TxProgress { packets: put.count, status, caps_changed: false })
    }

    fn next_event(&self) -> Option<Instant> {
        // The wake-up may have come before the poller announced its sleep.
        (self.refused && self.shared.to_caller.has_room()).then_some(Instant::ZERO)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl Drop for ChannelTx {
    fn drop(&mut self) {
        self.shared.to_caller.end_put();
    }
}

struct ChannelRx {
    shared: Arc<Shared>,
    /// The MTU that the stack was notified of.
    mtu: u16,
    stats: DeviceStats,
}

impl DeviceRx for ChannelRx {
    fn receive(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        // Read before the lane, so that packets sent before the end are in it.
        let cut = self.shared.cut.get().is_some();
        let before = out.len();
        let count = self.shared.to_stack.receive(max, out);
        out[before..].iter().for_each(|packet| self.stats.passed(packet));
        if count == 0 && cut && max > 0 {
            return Err(self.shared.gone());
        }
        Ok(count)
    }

    fn take_event(&mut self) -> Option<LinkEvent> {
        let mtu = self.shared.mtu.load(Ordering::Relaxed);
        let changed = mtu != self.mtu;
        self.mtu = mtu;
        changed.then_some(LinkEvent::Mtu(mtu))
    }

    fn next_event(&self) -> Option<Instant> {
        let waits = self.shared.to_stack.len() > 0
            || self.shared.cut.get().is_some()
            || self.shared.mtu.load(Ordering::Relaxed) != self.mtu;
        waits.then_some(Instant::ZERO)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl Drop for ChannelRx {
    fn drop(&mut self) {
        self.shared.to_stack.end_take();
        // A half that is left alone cannot carry a connection.
        self.shared.to_caller.end_put();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
