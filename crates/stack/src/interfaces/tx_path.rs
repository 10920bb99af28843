//! The sending side of an interface: queueing discipline, token, sending half.
//!
//! # Theory of operation
//!
//! Packets are queued while a thread owns a socket, and drained after it has released the socket.
//! The sending half and the packets on their way into it belong to the holder of the token. No
//! thread waits for the token, since an application's `writev` may be slow. A thread that finds the
//! token taken sets a flag and returns. The holder sees the flag, makes another round, and does the
//! poller's work in it as well. After [`DRAIN_PACKETS`] the holder hands over to the poller, so
//! that no application thread works for all others.
//!
//! Before it releases the token, the holder publishes the state that the poller must be able to
//! read without the token: when the device must be polled, and whether it has room. If that time is
//! earlier than the published one, the holder wakes the poller after it has released the token.
//!
//! The holder releases the token on every return path. A device that panics has failed, as if it
//! had returned an error.
//!
//! # Locks
//!
//! The discipline's lock is a leaf, held for one call of the discipline. Dropping packets completes
//! them, and connections that waited for space are put into a queue. Both may take other locks, so
//! both happen after the lock is released. The token is not a lock, since no thread waits for it:
//! its holder may take the lock and drop packets.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_tcp::Instant;

use crate::device::{self, Caps, DeviceError, DeviceStats, DeviceTx, TxProgress, TxStatus};
use crate::interfaces::pending_replacement::PendingReplacement;
use crate::interfaces::published::{Deadline, Figures};
use crate::interfaces::space::{SpaceWaiter, SpaceWaiters};
use crate::kick::Kick;
use crate::limits::DRAIN_PACKETS;
use crate::offload::{checksum, gso};
use crate::packet::Packet;
use crate::qdisc::fq::FqStats;
use crate::qdisc::{Kind, Qdisc, QdiscStats};
use crate::snmp::{IpCounter, Shard};
use crate::sync::{Held, Token, lock};

/// The context of a thread that works on an interface.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    now: Instant,
    counters: &'a Shard,
    /// Wakes the poller of the interface.
    kick: &'a Kick,
}

impl<'a> Around<'a> {
    /// A context at `now`, with this thread's counters.
    pub(crate) fn new(now: Instant, counters: &'a Shard, kick: &'a Kick) -> Around<'a> {
        Around { now, counters, kick }
    }
}

/// The failure of a device's half.
#[derive(Debug)]
pub(crate) struct Failure {
    error: DeviceError,
    /// The epoch of the device.
    epoch: u32,
}

impl Failure {
    /// The device's error.
    pub(crate) fn error(&self) -> &DeviceError {
        &self.error
    }

    /// The epoch of the device.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Calls a device; a panic becomes an error.
#[inline]
pub(crate) fn call_device<T>(
    epoch: u32,
    call: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, Failure> {
    // A device that panicked is not used again, so its half-changed state does no harm.
    let error = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error,
        Err(panic) => said_by(panic.as_ref()),
    };
    Err(Failure { error, epoch })
}

/// The error for a panic of a device.
#[cold]
fn said_by(panic: &(dyn Any + Send)) -> DeviceError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    DeviceError::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
}

/// Drops a device that was replaced. A panic of its destructor is ignored.
pub(crate) fn drop_device<T>(device: T) {
    // No caller is left that could be notified of a panic.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(device)));
}

/// The work that the token's holder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Moves queued packets into the device.
    Drain,
    /// The poller's work: first makes the device do its due work, then drains.
    Poll,
}

/// The sending side of an interface.
pub(crate) struct TxPath {
    queue: Mutex<Queue>,
    /// Packets in the discipline. Written under its lock.
    queued: AtomicUsize,
    /// The discipline keeps departure times. Written under its lock.
    departures: AtomicBool,
    /// The interface is down: nothing is queued. Written under the discipline's lock.
    closed: AtomicBool,
    half: Token<Half>,
    /// The replacement of the device in `half`.
    replacement: PendingReplacement<Successor>,
    /// The device did not accept the rest of `Half::staged`.
    busy: AtomicBool,
    /// `Half::staged` or `Half::raw` held packets when the token was released.
    loaded: AtomicBool,
    next: Deadline,
    figures: Figures,
}

/// Packets that wait to leave, and sockets that wait for space.
struct Queue {
    qdisc: Box<dyn Qdisc>,
    waiters: SpaceWaiters,
}

impl Queue {
    /// `packets` have left. Returns the connections that may continue.
    fn woken_by(&mut self, packets: usize) -> Vec<Arc<dyn SpaceWaiter>> {
        if self.waiters.is_empty() {
            return Vec::new();
        }
        self.waiters.take(if self.qdisc.is_empty() { usize::MAX } else { packets })
    }
}

/// Wakes the sockets that waited for space. Must be called without a lock.
#[inline]
fn wake(waiters: Vec<Arc<dyn SpaceWaiter>>) {
    if waiters.is_empty() {
        return;
    }
    for waiter in waiters {
        waiter.go_on();
    }
}

/// The state that belongs to the token's holder.
struct Half {
    device: Box<dyn DeviceTx>,
    /// The device's capabilities, as of the last call.
    caps: Caps,
    epoch: u32,
    /// Packets that the device can take.
    staged: VecDeque<Packet>,
    /// Packets that may still need work in software.
    raw: VecDeque<Packet>,
}

struct Successor {
    device: Box<dyn DeviceTx>,
    caps: Caps,
    epoch: u32,
    /// The previous device failed: packets on their way into it are dropped.
    after_failure: bool,
}

impl TxPath {
    /// The sending side of the interface with the index `interface`.
    pub(crate) fn new(device: Box<dyn DeviceTx>, interface: u8) -> TxPath {
        let (staged, raw) = (VecDeque::new(), VecDeque::new());
        let caps = device.caps().clone();
        let half = Half { device, caps, epoch: 0, staged, raw };
        TxPath {
            queue: Mutex::new(Queue {
                qdisc: Kind::PFIFO.build(),
                waiters: SpaceWaiters::new(interface),
            }),
            queued: AtomicUsize::new(0),
            departures: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            half: Token::new(half),
            replacement: PendingReplacement::none(),
            busy: AtomicBool::new(false),
            loaded: AtomicBool::new(false),
            next: Deadline::none(),
            figures: Figures::default(),
        }
    }

    /// Queues a packet. Without space the packet is returned, and `waiter`, if given, is woken when
    /// there is space.
    #[expect(
        clippy::result_large_err,
        reason = "the packet goes back to its owner, not up a stack"
    )]
    #[inline]
    pub(crate) fn offer<W: SpaceWaiter + 'static>(
        &self,
        now: Instant,
        packet: Packet,
        waiter: Option<&Arc<W>>,
    ) -> Result<(), Packet> {
        let mut queue = lock(&self.queue);
        let refused = match self.closed.load(Ordering::Relaxed) {
            true => Some(packet),
            false => queue.qdisc.enqueue(now, packet).err(),
        };
        self.queued.store(queue.qdisc.len(), Ordering::Relaxed);
        let Some(packet) = refused else { return Ok(()) };
        if let Some(waiter) = waiter {
            queue.waiters.push(waiter);
        }
        Err(packet)
    }

    /// Removes the waiter of a socket that has ended.
    pub(crate) fn forget<W: SpaceWaiter>(&self, waiter: &Arc<W>) {
        lock(&self.queue).waiters.forget(waiter);
    }

    /// Whether the queueing discipline holds packets until their departure times.
    pub(crate) fn keeps_departures(&self) -> bool {
        self.departures.load(Ordering::Relaxed)
    }

    /// Replaces the discipline and moves the queued packets. Returns the number of packets for
    /// which the new one has no room.
    pub(crate) fn set_qdisc(&self, now: Instant, kind: Kind) -> usize {
        let mut refused = Vec::new();
        let mut queue = lock(&self.queue);
        let mut other = kind.build();
        while let Some(packet) = queue.qdisc.take_any() {
            refused.extend(other.enqueue(now, packet).err());
        }
        queue.qdisc = other;
        self.queued.store(queue.qdisc.len(), Ordering::Relaxed);
        self.departures.store(kind.keeps_departures(), Ordering::Relaxed);
        // The new discipline may have space for packets that the old one refused.
        let woken = queue.waiters.take(usize::MAX);
        drop(queue);
        wake(woken);
        refused.len()
    }

    /// The discipline and its statistics.
    pub(crate) fn qdisc(&self) -> (Kind, QdiscStats, Option<FqStats>) {
        let queue = lock(&self.queue);
        let qdisc = &queue.qdisc;
        (qdisc.kind(), qdisc.stats(), qdisc.fq_stats())
    }

    /// The statistics of the sending half: current, or as of when the present holder took it.
    pub(crate) fn stats(&self, kick: &Kick) -> DeviceStats {
        let Some(holding) = self.hold(kick) else { return self.figures.get() };
        holding.stats()
    }

    /// Whether the device is full.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether the device is sending, and will complete a packet at a known time.
    pub(crate) fn is_sending(&self) -> bool {
        self.next.get().is_some()
    }

    /// Whether a poller has work here.
    #[inline]
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
            || self.is_busy()
            || self.loaded.load(Ordering::Relaxed)
            || self.next.get().is_some_and(|at| at <= now)
            || self.replacement.is_waiting()
    }

    /// The earliest departure time of the packets that wait here, if the device accepts packets and
    /// no thread drains it. A thread that drains it makes another round, and handles the rest
    /// itself.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        // A packet that has left the discipline may leave at once.
        let at = match self.loaded.load(Ordering::Relaxed) {
            true => Instant::ZERO,
            false if self.queued.load(Ordering::Relaxed) == 0 => return None,
            false => lock(&self.queue).qdisc.next_event()?,
        };
        if self.half.leave_to_holder() { None } else { Some(at) }
    }

    /// The time at which the poller must look here, as far as it is known. A holder of the token
    /// wakes the poller itself.
    #[inline]
    pub(crate) fn next_event(&self, kick: &Kick) -> Option<Instant> {
        // Usually there is no work, now or later.
        if self.has_work(Instant::FAR_FUTURE) { self.next_work(kick) } else { None }
    }

    fn next_work(&self, kick: &Kick) -> Option<Instant> {
        if self.replacement.is_waiting() && !self.half.leave_to_holder() {
            return Some(Instant::ZERO);
        }
        if self.is_busy() {
            // The device may have become writable before the poller announced its sleep.
            let mut holding = self.hold(kick)?;
            let published = holding.publish();
            // The caller is the poller itself.
            holding.tell = None;
            // If the device fails here, it fails again when it is polled.
            return published.map_or(Some(Instant::ZERO), |()| self.next.get());
        }
        let device = match self.next.get() {
            Some(_) if self.half.leave_to_holder() => None,
            next => next,
        };
        device::earlier(device, self.next_departure())
    }

    /// Moves queued packets into the device, and does the poller's work if `turn` is `Poll`. If
    /// another thread holds the token, that thread makes another round instead. Returns the number
    /// of packets sent or completed.
    #[inline]
    pub(crate) fn work(&self, around: &Around<'_>, turn: Turn) -> Result<usize, Failure> {
        let mut turn = turn;
        let Some(mut holding) = self.hold(around.kick) else { return Ok(0) };
        let mut done = 0;
        loop {
            match holding.round(around, turn) {
                Ok(count) => done += count,
                Err(failure) => {
                    holding.give_up();
                    return Err(failure);
                }
            }
            if holding.is_exhausted() {
                holding.hands_over = true;
                drop(holding);
                break;
            }
            match holding.let_go() {
                None => break,
                Some(again) => holding = again,
            }
            // The thread that missed the token may have been the poller.
            turn = Turn::Poll;
        }
        if self.keeps_departures()
            && let Some(at) = self.next_departure()
        {
            around.kick.kick_before(at);
        }
        Ok(done)
    }

    /// Called after an idle time: frees memory that only packets need. Does not wait for a holder
    /// of the token.
    pub(crate) fn on_idle(&self, kick: &Kick) {
        lock(&self.queue).qdisc.on_idle();
        let Some(mut holding) = self.hold(kick) else { return };
        let Some(half) = holding.held.as_deref_mut() else { return };
        for queue in [&mut half.staged, &mut half.raw] {
            if queue.is_empty() {
                *queue = VecDeque::new();
            }
        }
        // If the device fails here, it fails again when it sends.
        let _ = call_device(half.epoch, || {
            half.device.on_idle();
            Ok(())
        });
    }

    #[inline]
    fn hold<'a>(&'a self, kick: &'a Kick) -> Option<Holding<'a>> {
        let held = Some(self.half.take()?);
        let (left, tell) = (DRAIN_PACKETS, None);
        Some(Holding { path: self, kick, held, left, tell, missed: false, hands_over: false })
    }

    /// Called when the interface goes down: drops the queued packets, and refuses all others.
    /// Sockets that wait for space are woken and get the error.
    pub(crate) fn close(&self) {
        let mut dropped = Vec::new();
        let mut queue = lock(&self.queue);
        self.closed.store(true, Ordering::Relaxed);
        while let Some(packet) = queue.qdisc.take_any() {
            dropped.push(packet);
        }
        self.queued.store(queue.qdisc.len(), Ordering::Relaxed);
        let woken = queue.waiters.take(usize::MAX);
        drop(queue);
        wake(woken);
    }

    /// Replaces the device, as soon as no thread uses the old one any more.
    pub(crate) fn replace(&self, device: Box<dyn DeviceTx>, epoch: u32, kick: &Kick) {
        let caps = device.caps().clone();
        let after_failure = {
            let _queue = lock(&self.queue);
            self.closed.load(Ordering::Relaxed)
        };
        let successor = Successor { device, caps, epoch, after_failure };
        drop_device(self.replacement.leave(successor));
        let woken = {
            let mut queue = lock(&self.queue);
            self.closed.store(false, Ordering::Relaxed);
            queue.waiters.take(usize::MAX)
        };
        wake(woken);
        // Now, or in the next round of the token's holder.
        if let Some(mut holding) = self.hold(kick) {
            holding.succeed();
            // If the device fails here, it fails again when it is polled.
            let _ = holding.publish();
            // The new device takes packets that the old one did not accept.
            holding.hands_over = true;
        }
    }

    #[inline]
    fn dequeue(&self, now: Instant, max: usize, out: &mut VecDeque<Packet>) {
        if self.queued.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = lock(&self.queue);
        let count = queue.qdisc.dequeue_batch(now, max, out);
        self.queued.store(queue.qdisc.len(), Ordering::Relaxed);
        let woken = queue.woken_by(count);
        drop(queue);
        wake(woken);
    }
}

/// The token of a path, taken. Dropping it releases the token, and wakes the poller if there is a
/// reason.
struct Holding<'a> {
    path: &'a TxPath,
    kick: &'a Kick,
    /// `Some` until it is released.
    held: Option<Held<'a, Half>>,
    /// Packets that this thread may still send before it hands over.
    left: usize,
    /// A deadline of which the poller must be notified.
    tell: Option<Instant>,
    /// Another thread found the token taken.
    missed: bool,
    /// The poller must continue.
    hands_over: bool,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.publish_load();
        let Some(held) = self.held.take() else { return };
        if held.abandon() || self.hands_over || std::thread::panicking() {
            self.kick.kick();
        } else if let Some(at) = self.tell {
            self.kick.kick_before(at);
        }
    }
}

impl Holding<'_> {
    /// Makes one round. Returns the number of packets sent or completed.
    #[inline]
    fn round(&mut self, around: &Around<'_>, turn: Turn) -> Result<usize, Failure> {
        self.succeed();
        let path = self.path;
        let mut done = 0;
        if let Some(half) = self.held.as_deref_mut() {
            if turn == Turn::Poll {
                let Half { device, epoch, .. } = half;
                done += call_device(*epoch, || device.poll_completions(around.now))?;
            }
            while self.left > 0 {
                if half.staged.is_empty() {
                    path.dequeue(around.now, self.left, &mut half.raw);
                    half.make_ready(around.counters);
                }
                if half.staged.is_empty() {
                    path.busy.store(false, Ordering::Relaxed);
                    break;
                }
                let progress = half.transmit(around)?;
                done += progress.packets;
                self.left = self.left.saturating_sub(progress.packets);
                if progress.status == TxStatus::Busy {
                    if !path.is_busy() {
                        path.busy.store(true, Ordering::Relaxed);
                        // The poller may sleep without watching for writability.
                        around.kick.kick();
                    }
                    around.counters.bump(IpCounter::TxRingFull);
                    break;
                }
                if half.staged.is_empty() {
                    path.busy.store(false, Ordering::Relaxed);
                }
            }
            if done > 0 {
                path.figures.set(&call_device(half.epoch, || Ok(half.device.stats()))?);
            }
        }
        self.publish()?;
        Ok(done)
    }

    /// Publishes whether packets are on their way into the device.
    #[inline]
    fn publish_load(&self) {
        let Some(half) = self.held.as_deref() else { return };
        let loaded = !half.staged.is_empty() || !half.raw.is_empty();
        self.path.loaded.store(loaded, Ordering::Relaxed);
    }

    /// Publishes when the device must be polled, and whether packets wait for it.
    #[inline]
    fn publish(&mut self) -> Result<(), Failure> {
        self.publish_load();
        let Some(half) = self.held.as_deref_mut() else { return Ok(()) };
        let next = call_device(half.epoch, || Ok(half.device.next_event()))?;
        let earlier = self.path.next.set(next);
        // A poller that missed the token must be notified of any deadline.
        let earlier = if self.missed { next } else { earlier };
        self.tell = device::earlier(self.tell, earlier);
        Ok(())
    }

    /// Puts the replacement in the place of the device, if there is one.
    fn succeed(&mut self) {
        let path = self.path;
        let Some(half) = self.held.as_deref_mut() else { return };
        let Some(successor) = path.replacement.take() else { return };
        let Successor { device, caps, epoch, after_failure } = successor;
        let before = std::mem::replace(&mut half.device, device);
        half.caps = caps;
        half.epoch = epoch;
        if after_failure {
            half.staged.clear();
            half.raw.clear();
        }
        // Packets made ready for the old device are made ready again.
        half.staged.append(&mut half.raw);
        std::mem::swap(&mut half.raw, &mut half.staged);
        path.busy.store(false, Ordering::Relaxed);
        path.next.set(None);
        // If the device fails here, it fails again at the next send.
        if let Ok(stats) = call_device(epoch, || Ok(half.device.stats())) {
            path.figures.set(&stats);
        }
        drop_device(before);
    }

    /// Whether this thread has sent its share, and more packets wait.
    #[inline]
    fn is_exhausted(&self) -> bool {
        let more = |held: &Held<'_, Half>| {
            !held.staged.is_empty()
                || !held.raw.is_empty()
                || self.path.queued.load(Ordering::Relaxed) > 0
        };
        // A full device notifies the poller when it accepts packets again.
        self.left == 0 && !self.path.is_busy() && self.held.as_ref().is_some_and(more)
    }

    /// Releases the token. If another thread failed to take it meanwhile, this returns it for
    /// another round.
    #[inline]
    fn let_go(mut self) -> Option<Self> {
        self.held = self.held.take()?.let_go();
        if self.held.is_none() {
            if let Some(at) = self.tell {
                self.kick.kick_before(at);
            }
            return None;
        }
        self.missed = true;
        self.left = self.left.saturating_sub(1);
        Some(self)
    }

    /// Releases the token of a device that has failed. Packets on their way into it are dropped.
    fn give_up(mut self) {
        let Some(mut held) = self.held.take() else { return };
        let dropped = (std::mem::take(&mut held.staged), std::mem::take(&mut held.raw));
        self.path.busy.store(false, Ordering::Relaxed);
        self.path.loaded.store(false, Ordering::Relaxed);
        self.path.next.set(None);
        if held.abandon() {
            self.kick.kick();
        }
        drop(dropped);
    }

    /// The device's statistics; if it fails to return them, the previous ones.
    fn stats(&self) -> DeviceStats {
        let said = self.held.as_deref().map(|half| {
            // If the device fails here, it fails again at the next send.
            call_device(half.epoch, || Ok(half.device.stats()))
        });
        said.and_then(Result::ok).unwrap_or_else(|| self.path.figures.get())
    }
}

impl Half {
    #[inline]
    fn transmit(&mut self, around: &Around<'_>) -> Result<TxProgress, Failure> {
        let Half { device, epoch, staged, .. } = self;
        let mut progress = call_device(*epoch, || device.transmit(around.now, staged))?;
        if progress.packets == 0 && !progress.caps_changed {
            // Its status is ignored: it took nothing.
            progress.status = TxStatus::Busy;
        }
        if progress.caps_changed {
            self.caps = call_device(self.epoch, || Ok(self.device.caps().clone()))?;
            // Packets with an offload that the device now refuses are made ready again, without it.
            std::mem::swap(&mut self.raw, &mut self.staged);
            self.make_ready(around.counters);
        }
        Ok(progress)
    }

    /// Moves packets from `raw` to `staged`, and does in software the offloads that the device
    /// lacks.
    #[inline]
    fn make_ready(&mut self, counters: &Shard) {
        let Half { caps, staged, raw, .. } = self;
        // A checksum that was filled in already stays.
        let is_ready = |packet: &mut Packet| {
            takes_whole(caps, packet) && (caps.tx_checksum || checksum::fill(packet))
        };
        if staged.is_empty() && (0..raw.len()).all(|at| is_ready(&mut raw[at])) {
            // The queues are swapped, and no packet is moved.
            std::mem::swap(staged, raw);
            return;
        }
        for packet in raw.drain(..) {
            if takes_whole(caps, &packet) {
                staged.push_back(packet);
            } else {
                counters.bump(IpCounter::GsoSoftware);
                staged.extend(gso::split(packet));
            }
        }
        if !caps.tx_checksum {
            staged.retain_mut(|packet| is_filled(counters, packet));
        }
    }
}

/// Whether a device takes a packet without segmentation in software.
#[inline]
fn takes_whole(caps: &Caps, packet: &Packet) -> bool {
    packet.gso.is_none() || (caps.cuts(packet) && packet.len() <= caps.max_super_segment)
}

/// Fills in the checksum of a packet if the device was to do that. A packet without a place for it
/// is counted, and the caller must drop it.
fn is_filled(counters: &Shard, packet: &mut Packet) -> bool {
    let filled = checksum::fill(packet);
    if !filled {
        counters.bump(discards(packet.headers().first().is_some_and(|first| first >> 4 == 4)));
    }
    filled
}

/// The counter of packets dropped on the way out.
pub(crate) fn discards(is_v4: bool) -> IpCounter {
    if is_v4 { IpCounter::IpOutDiscards } else { IpCounter::Ip6OutDiscards }
}
