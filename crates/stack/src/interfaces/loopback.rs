//! The loopback device: packets from one local address to another, without leaving the stack.
//!
//! A bounded queue between two halves of one device. A packet is below until the receiving half has
//! taken it. Checksums are never computed: no packet can be corrupted on the way.
//!
//! The number of waiting packets can be read without a lock, so a poller skips an empty loopback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress, TxStatus,
    WaitSource,
};
use crate::limits::LOOPBACK_QUEUE_LEN;
use crate::packet::Packet;
use crate::sync::lock;

/// Linux's loopback has one byte more, which an IPv4 packet cannot use.
const MTU: u16 = 65_535;

type Queue = Arc<Mutex<VecDeque<Packet>>>;
/// The length of the queue, written under its lock.
type Waiting = Arc<AtomicUsize>;

struct LoopbackTx {
    caps: Caps,
    queue: Queue,
    waiting: Waiting,
    kick: KickSlot,
    stats: DeviceStats,
}

struct LoopbackRx {
    queue: Queue,
    waiting: Waiting,
    stats: DeviceStats,
}

/// Makes the device. Returns next to it how many packets wait to be received.
pub(crate) fn device() -> (Device, Arc<AtomicUsize>) {
    let queue = Queue::default();
    let waiting = Waiting::default();
    let kick = KickSlot::new();
    let caps = Caps {
        name: "lo".to_owned(),
        mtu: MTU,
        tso4: true,
        tso6: true,
        uso: true,
        tx_checksum: true,
        max_super_segment: usize::from(MTU),
        completions: true,
    };
    let stats = DeviceStats::default();
    let tx = LoopbackTx {
        caps,
        queue: queue.clone(),
        waiting: waiting.clone(),
        kick: kick.clone(),
        stats,
    };
    let rx = LoopbackRx { queue, waiting: waiting.clone(), stats };
    let wait = WaitSource::from_kick(kick);
    (Device { tx: Box::new(tx), rx: Box::new(rx), wait }, waiting)
}

impl DeviceTx for LoopbackTx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        _now: Instant,
        packets: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut queue = lock(&self.queue);
        let room = LOOPBACK_QUEUE_LEN.saturating_sub(queue.len()).min(packets.len());
        let stats = &mut self.stats;
        queue.extend(packets.drain(..room).inspect(|packet| stats.passed(packet)));
        self.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        if room > 0 {
            self.kick.kick();
        }
        let status = if packets.is_empty() { TxStatus::Done } else { TxStatus::Busy };
        Ok(TxProgress { packets: room, status, caps_changed: false })
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl DeviceRx for LoopbackRx {
    fn receive(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let mut queue = lock(&self.queue);
        let count = max.min(queue.len());
        let before = out.len();
        out.extend(queue.drain(..count));
        self.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        for packet in &mut out[before..] {
            packet.complete();
            self.stats.passed(packet);
        }
        Ok(count)
    }

    fn next_event(&self) -> Option<Instant> {
        (!lock(&self.queue).is_empty()).then_some(Instant::ZERO)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}
