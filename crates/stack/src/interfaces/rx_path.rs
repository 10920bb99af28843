//! The receiving side of an interface.
//!
//! The half belongs to the holder of its token: as a rule the poller, which receives. Who reads
//! figures takes it for a moment. No thread waits for it. Who finds it taken leaves a mark, and the
//! holder wakes the poller when it lets go.
//!
//! An interface that is known to hold nothing is not touched at all; loopback tells.

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
    /// What takes the place of `half`.
    replacement: PendingReplacement<Half>,
    /// Arrivals come by a file descriptor: between two calls of the device nothing changes that it
    /// knows. Otherwise it is asked before the poller sleeps.
    by_descriptor: AtomicBool,
    /// Packets that wait, if somebody counts them.
    waiting: Option<Arc<AtomicUsize>>,
    next: Deadline,
    figures: Figures,
    /// The MTU that the device has told and nobody has heard of; 0 is none.
    told_mtu: AtomicU16,
}

/// How much was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Packets.
    pub(crate) count: usize,
    /// No packet that had arrived is left.
    pub(crate) all: bool,
}

impl Received {
    /// There was nothing.
    pub(crate) const NOTHING: Received = Received { count: 0, all: true };

    /// Adds what was received elsewhere.
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
    /// The receiving side of a device. `waiting` counts what has arrived, if the device does so.
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

    /// Appends up to `max` packets that have arrived by `now` to `out`. `None` is that somebody
    /// else has the device, so that nothing is known about what has arrived.
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

    /// As [`receive`](Self::receive), from a device that may hold something.
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

    /// What has happened to the link, as the device told when something was received last.
    pub(crate) fn take_link_event(&self) -> Option<LinkEvent> {
        // Nothing is written while nothing happens.
        let told = match self.told_mtu.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.told_mtu.swap(0, Ordering::Relaxed),
        };
        (told != 0).then_some(LinkEvent::Mtu(told))
    }

    /// Whether something has happened to the link that nobody has heard of.
    #[inline]
    pub(crate) fn has_link_event(&self) -> bool {
        self.told_mtu.load(Ordering::Relaxed) != 0
    }

    /// When the poller has to look here. A holder of the token wakes the poller if it missed it.
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
        // A device that fails here does so again when it is polled.
        call_device(*epoch, || Ok(device.next_event())).unwrap_or(Some(Instant::ZERO))
    }

    /// What the receiving half has counted: up to now, or until its holder took it.
    pub(crate) fn stats(&self, kick: &Kick) -> DeviceStats {
        let holding = self.hold(kick);
        let held = holding.as_ref().and_then(|holding| holding.held.as_deref());
        // A device that fails here does so again when it has received.
        let said = held.map(|half| call_device(half.epoch, || Ok(half.device.stats())));
        said.and_then(Result::ok).unwrap_or_else(|| self.figures.get())
    }

    /// There was nothing to do for a while: what only packets need is given back.
    pub(crate) fn on_idle(&self, kick: &Kick) {
        let Some(mut holding) = self.hold(kick) else { return };
        let Some(half) = holding.held.as_deref_mut() else { return };
        // A device that fails here does so again when it receives.
        let _ = call_device(half.epoch, || {
            half.device.on_idle();
            Ok(())
        });
    }

    /// Another device takes the place of this one, as soon as nobody uses this one any more.
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

    /// Whether there is nothing, for all that is known without the device.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.load(Ordering::Relaxed) == 0)
    }

    /// Takes the token, if nobody has it.
    #[inline]
    pub(crate) fn hold<'a>(&'a self, kick: &'a Kick) -> Option<Holding<'a>> {
        let held = Some(self.half.take()?);
        Some(Holding { path: self, kick, held })
    }
}

/// The token of a path, taken. Dropping it lets go, and wakes the poller if that missed it.
pub(crate) struct Holding<'a> {
    path: &'a RxPath,
    kick: &'a Kick,
    /// Some until it is released.
    held: Option<Held<'a, Half>>,
}

impl Holding<'_> {
    /// Puts the successor into the place of the device, if there is one.
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
