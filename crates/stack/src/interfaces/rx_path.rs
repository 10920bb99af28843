//! The receiving side of an interface.
//!
//! The half belongs to the thread that holds its token, normally the poller, which receives. A
//! thread that reads statistics takes the token for a moment. No thread waits for the token. A
//! thread that finds it taken sets a flag, and the holder then wakes the poller when it releases
//! the token.
//!
//! An interface that is known to be empty is not touched at all; only loopback can report that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::device::{DeviceRx, DeviceStats, LinkEvent, WaitSource};
use crate::interfaces::pending_replacement::PendingReplacement;
use crate::interfaces::published::{Deadline, Figures};
use crate::interfaces::tx_path::{Failure, call_device, drop_device};
use crate::kick::Kick;
use crate::packet::Packet;
use crate::sync::{Held, Token};

/// The receiving side.
pub(crate) struct RxPath {
    half: Token<Half>,
    /// The replacement of `half`.
    replacement: PendingReplacement<Half>,
    /// Arrivals are reported by a file descriptor: `next_event` changes only by calls of the
    /// device. Without one, the device is asked before the poller sleeps.
    by_descriptor: AtomicBool,
    /// The number of packets that wait, if the device counts them.
    waiting: Option<Arc<AtomicUsize>>,
    next: Deadline,
    figures: Figures,
    /// The MTU that the device has reported and the stack has not yet taken; 0 means none.
    told_mtu: AtomicU16,
}

/// The outcome of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Number of packets.
    pub(crate) count: usize,
    /// The device has no more arrived packets.
    pub(crate) all: bool,
}

impl Received {
    /// Nothing was received.
    pub(crate) const NOTHING: Received = Received { count: 0, all: true };

    /// Adds the outcome of another receive call.
    pub(crate) fn add(&mut self, other: Received) {
        self.count += other.count;
        self.all &= other.all;
    }
}

struct Half {
    device: Box<dyn DeviceRx>,
    epoch: u32,
}

impl RxPath {
    /// The receiving side of a device. `waiting` counts the arrived packets, if the device does so.
    pub(crate) fn new(
        device: Box<dyn DeviceRx>,
        wait: &WaitSource,
        waiting: Option<Arc<AtomicUsize>>,
    ) -> RxPath {
        RxPath {
            half: Token::new(Half { device, epoch: 0 }),
            replacement: PendingReplacement::none(),
            by_descriptor: AtomicBool::new(wait.descriptor().is_some()),
            waiting,
            next: Deadline::none(),
            figures: Figures::default(),
            told_mtu: AtomicU16::new(0),
        }
    }

    /// Appends up to `max` packets that have arrived by `now` to `out`. `None` means that another
    /// thread holds the device, so it is unknown whether anything has arrived.
    #[inline]
    pub(crate) fn receive(
        &self,
        around: (Instant, &Kick),
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<Option<Received>, Failure> {
        if self.is_empty() { Ok(Some(Received::NOTHING)) } else { self.ask(around, pool, out, max) }
    }

    /// As [`receive`](Self::receive), for a device that may hold packets.
    #[inline]
    fn ask(
        &self,
        (now, kick): (Instant, &Kick),
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<Option<Received>, Failure> {
        let Some(mut holding) = self.hold(kick) else { return Ok(None) };
        if self.replacement.is_waiting() {
            holding.succeed();
        }
        let Some(Half { device, epoch }) = holding.held.as_deref_mut() else { return Ok(None) };
        call_device(*epoch, || {
            let count = device.receive(now, pool, out, max)?;
            if let Some(LinkEvent::Mtu(mtu)) = device.take_event() {
                self.told_mtu.store(mtu, Ordering::Relaxed);
            }
            if count > 0 {
                self.figures.set(&device.stats());
            }
            if self.by_descriptor.load(Ordering::Relaxed) {
                self.next.set(device.next_event());
            }
            let all = count < max && !device.may_hold_more();
            Ok(Some(Received { count, all }))
        })
    }

    /// The link event that the device reported at the last receive call.
    pub(crate) fn take_link_event(&self) -> Option<LinkEvent> {
        // While there is no event, nothing is written.
        let told = match self.told_mtu.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.told_mtu.swap(0, Ordering::Relaxed),
        };
        (told != 0).then_some(LinkEvent::Mtu(told))
    }

    /// Whether there is a link event that has not been taken.
    #[inline]
    pub(crate) fn has_link_event(&self) -> bool {
        self.told_mtu.load(Ordering::Relaxed) != 0
    }

    /// The time at which the poller must poll the device. If the token was taken, its holder wakes
    /// the poller.
    #[inline]
    pub(crate) fn next_event(&self, kick: &Kick) -> Option<Instant> {
        if self.replacement.is_waiting() {
            return Some(Instant::ZERO);
        }
        if let Some(waiting) = &self.waiting {
            return (waiting.load(Ordering::Relaxed) > 0).then_some(Instant::ZERO);
        }
        if self.by_descriptor.load(Ordering::Relaxed) {
            return self.next.get();
        }
        let mut holding = self.hold(kick)?;
        let Half { device, epoch } = holding.held.as_deref_mut()?;
        // If the device fails here, it fails again when it is polled.
        call_device(*epoch, || Ok(device.next_event())).unwrap_or(Some(Instant::ZERO))
    }

    /// The statistics of the receiving half: current, or as of when the present holder took it.
    pub(crate) fn stats(&self, kick: &Kick) -> DeviceStats {
        let holding = self.hold(kick);
        let held = holding.as_ref().and_then(|holding| holding.held.as_deref());
        // If the device fails here, it fails again at the next receive call.
        let said = held.map(|half| call_device(half.epoch, || Ok(half.device.stats())));
        said.and_then(Result::ok).unwrap_or_else(|| self.figures.get())
    }

    /// Called after an idle time: frees memory that only packets need.
    pub(crate) fn on_idle(&self, kick: &Kick) {
        let Some(mut holding) = self.hold(kick) else { return };
        let Some(half) = holding.held.as_deref_mut() else { return };
        // If the device fails here, it fails again at the next receive call.
        let _ = call_device(half.epoch, || {
            half.device.on_idle();
            Ok(())
        });
    }

    /// Replaces the device, as soon as no thread uses the old one any more.
    pub(crate) fn replace(
        &self,
        device: Box<dyn DeviceRx>,
        epoch: u32,
        wait: &WaitSource,
        kick: &Kick,
    ) {
        drop_device(self.replacement.leave(Half { device, epoch }));
        self.by_descriptor.store(wait.descriptor().is_some(), Ordering::Relaxed);
        if let Some(mut holding) = self.hold(kick) {
            holding.succeed();
        }
    }

    /// Whether the path is known to be empty, without a call of the device.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.load(Ordering::Relaxed) == 0)
    }

    /// Takes the token if it is free.
    #[inline]
    pub(crate) fn hold<'a>(&'a self, kick: &'a Kick) -> Option<Holding<'a>> {
        let held = Some(self.half.take()?);
        Some(Holding { path: self, kick, held })
    }
}

/// The token of a path, taken. Dropping it releases the token, and wakes the poller if the poller
/// found it taken.
pub(crate) struct Holding<'a> {
    path: &'a RxPath,
    kick: &'a Kick,
    /// `Some` until it is released.
    held: Option<Held<'a, Half>>,
}

impl Holding<'_> {
    /// Puts the replacement in the place of the device, if there is one.
    #[inline]
    fn succeed(&mut self) {
        let path = self.path;
        let Some(half) = self.held.as_deref_mut() else { return };
        let Some(successor) = path.replacement.take() else { return };
        let before = std::mem::replace(half, successor);
        path.next.set(None);
        if let Ok(stats) = call_device(half.epoch, || Ok(half.device.stats())) {
            path.figures.set(&stats);
        }
        drop_device(before);
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && held.abandon()
        {
            self.kick.kick();
        }
    }
}
