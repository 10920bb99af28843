//! The loopback device: what one of our addresses sends to another, without leaving the stack.
//!
//! A bounded queue between two halves of one device. A packet is below us until the receiving half
//! has taken it. Checksums are never computed: nothing can go wrong on the way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress, TxStatus,
    WaitSource,
};
use crate::limits::LOOPBACK_QUEUE_LEN;
use crate::packet::Packet;
use crate::socket_lock::lock;

/// Linux's loopback has one byte more, which an IPv4 packet cannot use.
const MTU: u16 = 65_535;

type Queue = Arc<Mutex<VecDeque<Packet>>>;

struct LoopbackTx {
    caps: Caps,
    queue: Queue,
    kick: KickSlot,
    stats: DeviceStats,
}

struct LoopbackRx {
    queue: Queue,
    stats: DeviceStats,
}

/// Makes the device.
pub(crate) fn device() -> Device {
    let queue = Queue::default();
    let kick = KickSlot::new();
    let caps = Caps {
        name: "lo".to_owned(),
        mtu: MTU,
        tso4: true,
        tso6: true,
        tx_checksum: true,
        max_super_segment: usize::from(MTU),
        completions: true,
    };
    let stats = DeviceStats::default();
    Device {
        tx: Box::new(LoopbackTx { caps, queue: queue.clone(), kick: kick.clone(), stats }),
        rx: Box::new(LoopbackRx { queue, stats }),
        wait: WaitSource::from_kick(kick),
    }
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
        for mut packet in queue.drain(..count) {
            packet.complete();
            self.stats.passed(&packet);
            out.push(packet);
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
