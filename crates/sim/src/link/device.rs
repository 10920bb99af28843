//! A device behind links in real time: whatever passes it crosses a link, in each direction.
//!
//! # Theory of operation
//!
//! The *up* link leads from the device to the stack, the *down* link from the stack to the device.
//! A packet is put on its link as soon as it is seen, and passed on when it has arrived. Its
//! completion comes when it is put on the link: as for a sender whose bottleneck is elsewhere, a
//! packet that waits there is no longer below the stack.
//!
//! Links carry wire segments, so the device has no offloads for the stack. The device inside should
//! receive none, either: a super-segment is cut before it crosses the link.
//!
//! Another thread may read and change the links. After a change it must wake the poller, whose
//! sleep was planned for the links before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_buf::Pool;
use plimsoll_stack::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, LinkEvent, TxProgress, TxStatus,
};
use plimsoll_stack::packet::Packet;
use plimsoll_tcp::{Duration, Instant};

use super::{Link, LinkConfig, LinkError, LinkStats};

/// How often a device inside that is busy is tried again.
const BUSY: Duration = Duration::from_micros(200);

/// A link that two threads use.
type SharedLink = Arc<Mutex<Link>>;

/// The links of a device, up first.
#[derive(Clone, Debug)]
pub struct Weather([SharedLink; 2]);

impl Weather {
    /// Changes both links from `now` on.
    ///
    /// # Errors
    /// If a value makes no sense; then nothing has changed.
    pub fn reconfigure(&self, now: Instant, configs: [LinkConfig; 2]) -> Result<(), LinkError> {
        configs.iter().try_for_each(LinkConfig::check)?;
        for (link, config) in self.0.iter().zip(configs) {
            lock(link).reconfigure(now, config)?;
        }
        Ok(())
    }

    /// The counts of the links.
    pub fn stats(&self) -> [LinkStats; 2] {
        self.0.each_ref().map(|link| lock(link).stats().clone())
    }
}

/// Puts links, up first, between a device and its stack.
pub fn wrap(device: Device, links: [Link; 2]) -> (Device, Weather) {
    let [up, down] = links.map(|link| Arc::new(Mutex::new(link)));
    let caps = caps(device.tx.caps());
    let tx = WeatherTx {
        inner: device.tx,
        caps,
        link: down.clone(),
        ready: VecDeque::new(),
        retry: None,
    };
    let rx =
        WeatherRx { inner: device.rx, link: up.clone(), scratch: Vec::new(), may_hold_more: false };
    let device = Device { tx: Box::new(tx), rx: Box::new(rx), wait: device.wait };
    (device, Weather([up, down]))
}

/// The capabilities without offloads.
fn caps(inner: &Caps) -> Caps {
    Caps::new(inner.name.clone(), inner.mtu)
}

fn lock(link: &SharedLink) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

struct WeatherTx {
    inner: Box<dyn DeviceTx>,
    caps: Caps,
    link: SharedLink,
    /// Packets that have arrived, and that the device inside has not taken.
    ready: VecDeque<Packet>,
    /// When it is tried again.
    retry: Option<Instant>,
}

impl WeatherTx {
    /// Passes on what has arrived. Returns the number of packets.
    fn pass_on(&mut self, now: Instant) -> Result<usize, DeviceError> {
        let before = self.ready.len();
        let mut link = lock(&self.link);
        while let Some(arrival) = link.take(now) {
            self.ready.push_back(arrival.packet);
        }
        drop(link);
        let arrived = self.ready.len() - before;
        self.retry = None;
        if !self.ready.is_empty() {
            let progress = self.inner.transmit(now, &mut self.ready)?;
            self.retry = (progress.status == TxStatus::Busy).then(|| now + BUSY);
            self.caps.mtu = self.inner.caps().mtu;
        }
        Ok(arrived)
    }
}

impl DeviceTx for WeatherTx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut link = lock(&self.link);
        let packets = queue.len();
        for mut packet in queue.drain(..) {
            packet.complete();
            // A packet that is longer than the link's MTU is dropped and counted.
            let _ = link.offer(now, packet);
        }
        drop(link);
        self.pass_on(now)?;
        Ok(TxProgress::done(packets))
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        Ok(self.inner.poll_completions(now)? + self.pass_on(now)?)
    }

    fn next_event(&self) -> Option<Instant> {
        let arrival = lock(&self.link).next_arrival();
        self.inner.next_event().into_iter().chain(arrival).chain(self.retry).min()
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn stats(&self) -> DeviceStats {
        with_faults(self.inner.stats(), &self.link)
    }
}

struct WeatherRx {
    inner: Box<dyn DeviceRx>,
    link: SharedLink,
    scratch: Vec<Packet>,
    may_hold_more: bool,
}

impl DeviceRx for WeatherRx {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let received = self.inner.receive(now, pool, &mut self.scratch, max)?;
        let mut link = lock(&self.link);
        for packet in self.scratch.drain(..) {
            let _ = link.offer(now, packet);
        }
        let before = out.len();
        while out.len() - before < max
            && let Some(arrival) = link.take(now)
        {
            out.push(arrival.packet);
        }
        let count = out.len() - before;
        let is_late = count == max && link.next_arrival().is_some_and(|next| next <= now);
        self.may_hold_more = received == max || self.inner.may_hold_more() || is_late;
        Ok(count)
    }

    fn may_hold_more(&self) -> bool {
        self.may_hold_more
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn take_event(&mut self) -> Option<LinkEvent> {
        self.inner.take_event()
    }

    fn next_event(&self) -> Option<Instant> {
        let arrival = lock(&self.link).next_arrival();
        self.inner.next_event().into_iter().chain(arrival).min()
    }

    fn stats(&self) -> DeviceStats {
        with_faults(self.inner.stats(), &self.link)
    }
}

/// The statistics of the device inside with what its link has done.
fn with_faults(mut stats: DeviceStats, link: &SharedLink) -> DeviceStats {
    let link = lock(link);
    let faults = link.stats();
    stats.dropped += faults.dropped();
    stats.duplicated += faults.duplicated;
    stats.reordered += faults.reordered;
    stats.corrupted += faults.corrupted;
    stats
}

#[cfg(test)]
mod tests;
