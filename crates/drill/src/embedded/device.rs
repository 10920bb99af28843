//! A device that is two queues: what the script sends in, and what leaves.
//!
//! A packet is complete when it leaves, which is at once, unless a token bucket holds it back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_buf::Pool;
use plimsoll_stack::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress, WaitSource,
};
use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
use plimsoll_stack::qdisc::Kind;
use plimsoll_tcp::{Duration, Instant};

use crate::packet::live::{self, Body};
use crate::shell::TokenBucket;

/// The most packets that wait to be looked at. More than that is a stack that has gone wild.
const MOST: usize = 100_000;

/// The two queues.
#[derive(Default)]
pub(super) struct Wire {
    /// What left, with the time.
    pub(super) out: VecDeque<(Instant, Vec<u8>)>,
    /// What arrives.
    pub(super) inbound: VecDeque<Vec<u8>>,
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
    /// What leaves goes through this.
    pub(super) bucket: Option<TokenBucket>,
    /// How it is queued before, if a script has chosen that.
    pub(super) qdisc: Option<Kind>,
}

/// A device on `wire`.
pub(super) fn device(wire: &SharedWire, shape: Shape) -> Device {
    let caps = Caps::new("tun0", shape.mtu)
        .tso4(shape.offload)
        .tso6(shape.offload)
        .tx_checksum(true)
        .completions(true);
    Device {
        tx: Box::new(Tx {
            wire: wire.clone(),
            caps,
            stats: DeviceStats::default(),
            bucket: shape.bucket.map(Bucket::new),
            waiting: VecDeque::new(),
        }),
        rx: Box::new(Rx {
            wire: wire.clone(),
            mss: shape.inbound_mss,
            stats: DeviceStats::default(),
        }),
        wait: WaitSource::default(),
    }
}

/// A token bucket. Tokens are nanoseconds of its rate.
#[derive(Clone, Copy)]
struct Bucket {
    shape: TokenBucket,
    tokens: u64,
    at: Instant,
}

impl Bucket {
    fn new(shape: TokenBucket) -> Bucket {
        let mut bucket = Bucket { shape, tokens: 0, at: Instant::ZERO };
        bucket.tokens = bucket.cost(shape.burst);
        bucket
    }

    fn cost(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(1_000_000_000) / self.shape.rate.max(1)
    }

    /// When `bytes` may leave. More than the bucket holds need it full.
    fn ready(&self, bytes: usize) -> Instant {
        let cost = self.cost((bytes as u64).min(self.shape.burst));
        self.at + Duration::from_nanos(cost.saturating_sub(self.tokens))
    }

    /// Takes what `bytes` cost, if they may leave.
    fn take(&mut self, now: Instant, bytes: usize) -> bool {
        if now < self.ready(bytes) {
            return false;
        }
        let passed = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        let full = self.cost(self.shape.burst);
        let tokens = self.tokens.saturating_add(passed).min(full);
        self.tokens = tokens - self.cost((bytes as u64).min(self.shape.burst)).min(tokens);
        self.at = now;
        true
    }
}

struct Tx {
    wire: SharedWire,
    caps: Caps,
    stats: DeviceStats,
    bucket: Option<Bucket>,
    /// What has no token yet.
    waiting: VecDeque<Packet>,
}

impl Tx {
    /// Lets one packet go, which completes it.
    fn leave(&mut self, now: Instant, packet: &Packet) {
        let mut wire = self.wire.lock();
        if wire.out.len() >= MOST {
            wire.lost += 1;
        } else {
            self.stats.passed(packet);
            wire.out.push_back((now, packet.to_vec()));
        }
    }
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
        if self.bucket.is_some() {
            self.waiting.append(queue);
            self.poll_completions(now)?;
        } else {
            for packet in queue.drain(..) {
                self.leave(now, &packet);
            }
        }
        Ok(TxProgress::done(count))
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let mut count = 0;
        while let Some((first, bucket)) = self.waiting.front().zip(self.bucket.as_mut())
            && bucket.take(now, first.len())
            && let Some(packet) = self.waiting.pop_front()
        {
            self.leave(now, &packet);
            count += 1;
        }
        Ok(count)
    }

    fn next_event(&self) -> Option<Instant> {
        let (first, bucket) = self.waiting.front().zip(self.bucket)?;
        Some(bucket.ready(first.len()))
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
