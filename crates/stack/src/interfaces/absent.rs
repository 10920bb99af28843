//! The device of an interface that waits for its next device. Packets sent to it are lost, as on an
//! unplugged cable, and none arrives.

use std::collections::VecDeque;

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress, TxStatus,
    WaitSource,
};
use crate::packet::Packet;

struct Absent {
    caps: Caps,
    stats: DeviceStats,
}

/// Makes the device, for an interface with this name and MTU.
pub(crate) fn device(name: String, mtu: u16) -> Device {
    let caps = Caps {
        name,
        mtu,
        tso4: true,
        tso6: true,
        uso: true,
        tx_checksum: true,
        max_super_segment: usize::from(u16::MAX),
        completions: true,
    };
    let half = || Absent { caps: caps.clone(), stats: DeviceStats::default() };
    let wait = WaitSource::from_kick(KickSlot::new());
    Device { tx: Box::new(half()), rx: Box::new(half()), wait }
}

impl DeviceTx for Absent {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        _now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let packets = queue.len();
        queue.clear();
        self.stats.errors += packets as u64;
        Ok(TxProgress { packets, status: TxStatus::Done, caps_changed: false })
    }

    fn poll_completions(&mut self, _now: Instant) -> Result<usize, DeviceError> {
        Ok(0)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl DeviceRx for Absent {
    fn receive(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        _out: &mut Vec<Packet>,
        _max: usize,
    ) -> Result<usize, DeviceError> {
        Ok(0)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}
