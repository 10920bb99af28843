//! A device that is two queues: what the script sends in, and what leaves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_buf::Pool;
use plimsoll_stack::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress, WaitSource,
};
use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
use plimsoll_tcp::Instant;

use crate::packet::live::{self, Body};

/// The most packets that wait to be looked at. More than that is a stack that has gone wild.
const MOST: usize = 100_000;

/// The two queues.
#[derive(Default)]
pub(super) struct Wire {
    /// What left, with the time.
    pub(super) out: VecDeque<(Instant, Vec<u8>)>,
    /// What arrives.
    pub(super) inbound: VecDeque<Vec<u8>>,
    /// Nothing gets through (a queueing discipline without room).
    pub(super) drops: bool,
    /// Packets that found the queue full.
    pub(super) lost: usize,
}

/// The queues, shared with the two halves of the device.
#[derive(Clone, Default)]
pub(super) struct SharedWire(Arc<Mutex<Wire>>);

impl SharedWire {
    pub(super) fn lock(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the device is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) mtu: u16,
    /// Takes super-segments.
    pub(super) offload: bool,
    /// Segments of inbound super-segments have this size.
    pub(super) inbound_mss: Option<u16>,
}

/// A device on `wire`.
pub(super) fn device(wire: &SharedWire, shape: Shape) -> Device {
    let caps = Caps {
        name: "tun0".to_owned(),
        mtu: shape.mtu,
        tso4: shape.offload,
        tso6: shape.offload,
        tx_checksum: true,
        max_super_segment: 65_535,
        completions: false,
    };
    Device {
        tx: Box::new(Tx { wire: wire.clone(), caps, stats: DeviceStats::default() }),
        rx: Box::new(Rx {
            wire: wire.clone(),
            mss: shape.inbound_mss,
            stats: DeviceStats::default(),
        }),
        wait: WaitSource::default(),
    }
}

struct Tx {
    wire: SharedWire,
    caps: Caps,
    stats: DeviceStats,
}

impl DeviceTx for Tx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let count = queue.len();
        let mut wire = self.wire.lock();
        for packet in queue.drain(..) {
            if wire.drops {
                self.stats.dropped += 1;
            } else if wire.out.len() >= MOST {
                wire.lost += 1;
            } else {
                self.stats.passed(&packet);
                wire.out.push_back((now, packet.to_vec()));
            }
        }
        Ok(TxProgress::done(count))
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

struct Rx {
    wire: SharedWire,
    mss: Option<u16>,
    stats: DeviceStats,
}

impl DeviceRx for Rx {
    fn receive(
        &mut self,
        _now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let mut wire = self.wire.lock();
        let count = max.min(wire.inbound.len());
        for bytes in wire.inbound.drain(..count) {
            let mut packet = Packet::new();
            packet.payload = pool.copy_from(&bytes).into();
            if let Some(gso) = self.mss.and_then(|mss| super_segment(&bytes, mss)) {
                packet.gso = Some(gso);
                packet.csum = ChecksumState::Verified;
            }
            self.stats.passed(&packet);
            out.push(packet);
        }
        Ok(count)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

/// How an inbound packet is said to be cut, if it is longer than one segment.
fn super_segment(bytes: &[u8], mss: u16) -> Option<Gso> {
    let Body::Tcp(segment) = live::parse(bytes)?.body else { return None };
    let segs = segment.len.div_ceil(u32::from(mss));
    let segs = u16::try_from(segs).ok().filter(|segs| *segs > 1)?;
    Some(Gso { size: mss, segs })
}
