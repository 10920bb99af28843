//! An interface: a device, its addresses, and whether it is up.
//!
//! Sending uses the [`TxPath`], receiving uses the [`RxPath`]. An interface holds both, and the
//! properties of the device. It has no reference to connections or routes; `stack/sending.rs` and
//! `stack/interface_health.rs` connect them.
//!
//! # A device that fails
//!
//! Only its interface goes down, and the interface can get another device. Each device of an
//! interface has a number, its *epoch*, so that a late error of an old device does not bring down
//! the new one.
//!
//! # Locks
//!
//! `health`, `name` and `wait` are leaf locks, held for a few instructions. A thread that replaces
//! the device holds `replacing`, also while the old device is dropped; no other code takes it. The
//! fields that are read for every packet are atomic.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::device::{Caps, Device, DeviceStats, LinkEvent, WaitSource, earlier};
use crate::error::StackError;
use crate::flow::check_host;
use crate::interfaces::rx_path::{Received, RxPath};
use crate::interfaces::tx_path::{Failure, TxPath};
use crate::interfaces::{absent, loopback};
use crate::kick::Kick;
use crate::limits::{MAX_INTERFACES, MAX_SUPER_PACKET, MIN_MTU};
use crate::packet::Packet;
use crate::sync::lock;

/// Bytes of a super-segment that are kept free for headers.
const HEADROOM: usize = 120;

/// The configuration of an interface.
pub struct InterfaceConfig {
    /// The device.
    pub device: Device,
    /// The interface's own addresses, each with the length of its directly connected prefix.
    /// Several interfaces may have the same link-local address (RFC 4007). Sockets select the
    /// interface by its scope id: its position in [`Stack::interfaces`](crate::Stack::interfaces),
    /// counted from 1.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU in bytes, if it must be less than the device's.
    pub mtu: Option<u16>,
}

impl InterfaceConfig {
    /// Refuses invalid values; `field` is the configuration's name in errors.
    pub(crate) fn check(&self, field: &str) -> Result<(), StackError> {
        let refuse = |part: &str, reason: String| {
            Err(StackError::Config { field: format!("{field}.{part}"), reason })
        };
        for &(ip, prefix) in &self.addresses {
            check_host(ip, prefix).or_else(|reason| refuse("addresses", reason))?;
        }
        let most = self.device.tx.caps().mtu;
        match self.mtu {
            Some(mtu) if !(MIN_MTU..=most).contains(&mtu) => {
                refuse("mtu", format!("{mtu} is not between {MIN_MTU} and the device's {most}"))
            }
            _ => Ok(()),
        }
    }
}

/// An interface as listed by [`Stack::interfaces`](crate::Stack::interfaces).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// The device's name.
    pub name: String,
    /// The interface's own addresses, each with the length of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU in bytes.
    pub mtu: u16,
    /// The error that brought it down, or for which it waits for another device; `None` while it
    /// works.
    pub error: Option<StackError>,
}

/// Properties of the device, cached so that they can be read without calling it.
struct Traits {
    /// The longest packet: the smaller of the device's MTU and the limit.
    mtu: AtomicU16,
    /// The device's MTU.
    device_mtu: AtomicU16,
    /// The configured limit; 65535 means no limit.
    mtu_limit: AtomicU16,
    /// Most payload bytes of one super-segment.
    max_super_segment: AtomicUsize,
    /// The device completes packets after `transmit`, so the count of bytes below is meaningful.
    completions: AtomicBool,
    /// The device records why packets leave.
    takes_notes: AtomicBool,
}

/// Whether the device works.
#[derive(Default)]
struct Health {
    epoch: u32,
    /// The error of a failed device, with its epoch.
    error: Option<(u32, StackError)>,
}

/// A device in a stack. The queues of one device are adjacent in a list and each is written by its
/// own thread. The alignment keeps them from sharing a pair of cache lines.
#[repr(align(128))]
pub(crate) struct Interface {
    index: u8,
    /// The queue of the stack that polls this interface.
    queue: u8,
    /// All interfaces of the same device, including this one, if this is the first of several.
    ways: Vec<u8>,
    addresses: Vec<(IpAddr, u8)>,
    loopback: bool,
    /// The part of the name after the device's name, if this is not the device's first queue.
    suffix: String,
    name: Mutex<String>,
    traits: Traits,
    wait: Mutex<WaitSource>,
    /// The discipline was set for this interface, so the default does not apply.
    chosen: AtomicBool,
    /// `health` has no error. Written under its lock.
    up: AtomicBool,
    health: Mutex<Health>,
    replacing: Mutex<()>,
    rx: RxPath,
    tx: TxPath,
}

impl Traits {
    fn new(caps: &Caps, takes_notes: bool, limit: Option<u16>) -> Traits {
        let traits = Traits {
            mtu: AtomicU16::new(0),
            device_mtu: AtomicU16::new(0),
            mtu_limit: AtomicU16::new(limit.unwrap_or(u16::MAX)),
            max_super_segment: AtomicUsize::new(0),
            completions: AtomicBool::new(false),
            takes_notes: AtomicBool::new(false),
        };
        traits.set(caps, takes_notes);
        traits
    }

    fn set(&self, caps: &Caps, takes_notes: bool) {
        let longest = caps.max_super_segment.clamp(usize::from(caps.mtu), MAX_SUPER_PACKET);
        // For a device without TSO, super-segments are cut in software.
        let longest = if caps.tso4 || caps.tso6 { longest } else { 65_535 } - HEADROOM;
        self.device_mtu.store(caps.mtu, Ordering::Relaxed);
        self.settle_mtu();
        self.max_super_segment.store(longest, Ordering::Relaxed);
        self.completions.store(caps.completions, Ordering::Relaxed);
        self.takes_notes.store(takes_notes, Ordering::Relaxed);
    }

    /// Two threads that change it at the same time both arrive at the minimum.
    fn settle_mtu(&self) {
        let (device, limit) = (&self.device_mtu, &self.mtu_limit);
        let mtu = device.load(Ordering::SeqCst).min(limit.load(Ordering::SeqCst));
        self.mtu.store(mtu, Ordering::SeqCst);
    }
}

impl Interface {
    /// The transmit path.
    pub(crate) fn tx(&self) -> &TxPath {
        &self.tx
    }

    /// The receive path.
    #[cfg(test)]
    pub(crate) fn rx(&self) -> &RxPath {
        &self.rx
    }

    /// Builds all interfaces of a stack: the configured ones, loopback, and one for each further
    /// queue of a device. `queues` is the number of the stack's queues.
    pub(crate) fn build_all(
        configs: Vec<InterfaceConfig>,
        more: Vec<(usize, Device)>,
        queues: usize,
    ) -> Result<Vec<Interface>, StackError> {
        let refuse = |field: String, reason: String| Err(StackError::Config { field, reason });
        if configs.len() + more.len() >= MAX_INTERFACES {
            let reason = format!("at most {} are possible", MAX_INTERFACES - 1);
            return refuse("interfaces".to_owned(), reason);
        }
        if queues > MAX_INTERFACES {
            let reason = format!("at most {MAX_INTERFACES} are possible");
            return refuse("pollers".to_owned(), reason);
        }
        let known = configs.len();
        let mut interfaces = Vec::new();
        for (index, config) in configs.into_iter().enumerate() {
            let field = format!("interfaces[{index}]");
            config.check(&field)?;
            interfaces.push(Interface::new(index, config, None));
        }
        let addresses = vec![
            (IpAddr::from([127, 0, 0, 1]), 8),
            (IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 128),
        ];
        let (device, waiting) = loopback::device();
        let config = InterfaceConfig { device, addresses, mtu: None };
        interfaces.push(Interface::new(interfaces.len(), config, Some(waiting)));
        for (index, (first, device)) in more.into_iter().enumerate() {
            if first >= known {
                let reason = "there is no such interface".to_owned();
                return refuse(format!("more_queues[{index}]"), reason);
            }
            Interface::add_way(&mut interfaces, first, device, queues.max(1));
        }
        Ok(interfaces)
    }

    /// Adds another queue of the device whose interface is `first`.
    fn add_way(interfaces: &mut Vec<Interface>, first: usize, device: Device, queues: usize) {
        let index = interfaces.len();
        let original = &mut interfaces[first];
        if original.ways.is_empty() {
            original.ways.push(original.index);
        }
        let mtu = Some(original.mtu());
        let config = InterfaceConfig { device, addresses: Vec::new(), mtu };
        let mut way = Interface::new(index, config, None);
        way.queue = (original.ways.len() % queues) as u8;
        way.suffix = format!("#{}", original.ways.len());
        way.name = Mutex::new(format!("{}{}", original.name(), way.suffix));
        original.ways.push(way.index);
        interfaces.push(way);
    }

    /// `waiting` counts the packets that wait at loopback.
    pub(crate) fn new(
        index: usize,
        config: InterfaceConfig,
        waiting: Option<Arc<AtomicUsize>>,
    ) -> Interface {
        let Device { tx, rx, wait } = config.device;
        let caps = tx.caps();
        let loopback = waiting.is_some();
        Interface {
            index: index as u8,
            queue: 0,
            ways: Vec::new(),
            addresses: config.addresses,
            loopback,
            suffix: String::new(),
            name: Mutex::new(caps.name.clone()),
            traits: Traits::new(caps, tx.takes_notes(), config.mtu),
            rx: RxPath::new(rx, &wait, waiting),
            wait: Mutex::new(wait),
            chosen: AtomicBool::new(loopback),
            up: AtomicBool::new(true),
            health: Mutex::default(),
            replacing: Mutex::default(),
            tx: TxPath::new(tx, index as u8),
        }
    }

    /// Its position among the interfaces.
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// The queue that polls it.
    pub(crate) fn queue(&self) -> u8 {
        self.queue
    }

    /// All interfaces of the same device, including this one, if this is the first of several.
    pub(crate) fn ways(&self) -> &[u8] {
        &self.ways
    }

    /// The addresses that it was built with, each with the length of its prefix.
    pub(crate) fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.addresses
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.loopback
    }

    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    pub(crate) fn mtu(&self) -> u16 {
        self.traits.mtu.load(Ordering::Relaxed)
    }

    /// The device's MTU.
    pub(crate) fn device_mtu(&self) -> u16 {
        self.traits.device_mtu.load(Ordering::Relaxed)
    }

    /// Limits the MTU.
    pub(crate) fn limit_mtu(&self, mtu: u16) {
        self.traits.mtu_limit.store(mtu, Ordering::SeqCst);
        self.traits.settle_mtu();
    }

    /// Sets the MTU that the device has reported.
    pub(crate) fn set_device_mtu(&self, mtu: u16) {
        self.traits.device_mtu.store(mtu, Ordering::SeqCst);
        self.traits.settle_mtu();
    }

    /// The link event since the last call, if there was one.
    pub(crate) fn take_link_event(&self) -> Option<LinkEvent> {
        self.rx.take_link_event()
    }

    /// Most payload bytes of one super-segment.
    pub(crate) fn max_super_segment(&self) -> usize {
        self.traits.max_super_segment.load(Ordering::Relaxed)
    }

    /// Whether the device completes packets after `transmit`, so that the count of bytes below is
    /// meaningful.
    pub(crate) fn completions(&self) -> bool {
        self.traits.completions.load(Ordering::Relaxed)
    }

    /// Whether the device records why packets leave.
    pub(crate) fn takes_notes(&self) -> bool {
        self.traits.takes_notes.load(Ordering::Relaxed)
    }

    /// Whether the discipline was set for this interface, so that the default does not apply.
    pub(crate) fn has_chosen_qdisc(&self) -> bool {
        self.chosen.load(Ordering::Relaxed)
    }

    pub(crate) fn choose_qdisc(&self) {
        self.chosen.store(true, Ordering::Relaxed);
    }

    /// Installs the handle by which the device wakes its poller.
    pub(crate) fn install(&self, kick: &Kick) {
        lock(&self.wait).install(kick);
    }

    /// The wait source of the device. A copy stays valid when the device is replaced.
    pub(crate) fn wait_source(&self) -> WaitSource {
        lock(&self.wait).clone()
    }

    /// Whether the device works.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Appends up to `max` packets that have arrived by `now` to `out`; `None` if another thread
    /// holds the device.
    #[inline]
    pub(crate) fn receive(
        &self,
        around: (Instant, &Kick),
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<Option<Received>, Failure> {
        match self.is_up() {
            true => self.rx.receive(around, pool, out, max),
            false => Ok(Some(Received::NOTHING)),
        }
    }

    /// Whether no packet can have arrived and there is no link event.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.rx.is_empty() && !self.rx.has_link_event()
    }

    /// Called after an idle time: frees memory that only packets need.
    pub(crate) fn on_idle(&self, kick: &Kick) {
        self.tx.on_idle(kick);
        self.rx.on_idle(kick);
    }

    /// The time at which the device must be polled, or a queued packet may leave.
    #[inline]
    pub(crate) fn next_event(&self, kick: &Kick) -> Option<Instant> {
        if !self.is_up() {
            return None;
        }
        earlier(self.tx.next_event(kick), self.rx.next_event(kick))
    }

    /// The statistics of the two halves, the sending one first.
    pub(crate) fn stats(&self, kick: &Kick) -> (DeviceStats, DeviceStats) {
        (self.tx.stats(kick), self.rx.stats(kick))
    }

    /// The public status. The caller passes the addresses, which the routes own.
    pub(crate) fn status(&self, addresses: Vec<(IpAddr, u8)>) -> InterfaceStatus {
        let error = lock(&self.health).error.clone().map(|(_, error)| error);
        let (name, mtu) = (self.name(), self.mtu());
        InterfaceStatus { name, addresses, mtu, error }
    }

    /// The epoch of its present device.
    pub(crate) fn epoch(&self) -> u32 {
        lock(&self.health).epoch
    }

    /// Records that the device with this `epoch` has failed. Returns whether that brings the
    /// interface down: it may be down already, or have another device.
    pub(crate) fn fail(&self, epoch: u32, error: StackError) -> bool {
        let mut health = lock(&self.health);
        let known = health.error.as_ref().is_some_and(|&(of, _)| of == epoch);
        if health.epoch != epoch || known {
            return false;
        }
        health.error = Some((epoch, error));
        self.up.store(false, Ordering::Relaxed);
        drop(health);
        self.tx.close();
        true
    }

    /// Records that the device with this `epoch` has failed and that the interface waits for the
    /// next one: it stays up, nothing arrives, and packets sent are lost. Returns whether this is
    /// new.
    pub(crate) fn lose_device(&self, epoch: u32, error: StackError, kick: &Kick) -> bool {
        let _replacing = lock(&self.replacing);
        let epoch = {
            let mut health = lock(&self.health);
            if health.epoch != epoch {
                return false;
            }
            health.epoch = health.epoch.wrapping_add(1);
            health.error = Some((health.epoch, error));
            health.epoch
        };
        let Device { tx, rx, wait } = absent::device(self.name(), self.device_mtu());
        wait.install(kick);
        self.rx.replace(rx, epoch, &wait, kick);
        self.tx.replace(tx, epoch, kick);
        *lock(&self.wait) = wait;
        true
    }

    /// Replaces the device. `kick` wakes its poller.
    pub(crate) fn replace(&self, device: Device, kick: &Kick) -> Result<(), StackError> {
        let Device { tx, rx, wait } = device;
        let (caps, takes_notes) = (tx.caps().clone(), tx.takes_notes());
        if caps.mtu < MIN_MTU {
            let reason = format!("the device's {} is less than {MIN_MTU}", caps.mtu);
            return Err(StackError::Config { field: "mtu".to_owned(), reason });
        }
        wait.install(kick);
        let _replacing = lock(&self.replacing);
        let epoch = {
            let mut health = lock(&self.health);
            health.epoch = health.epoch.wrapping_add(1);
            health.epoch
        };
        *lock(&self.name) = format!("{}{}", caps.name, self.suffix);
        self.traits.set(&caps, takes_notes);
        self.rx.replace(rx, epoch, &wait, kick);
        self.tx.replace(tx, epoch, kick);
        *lock(&self.wait) = wait;
        self.come_up(epoch);
        Ok(())
    }

    /// Removes the device and the packets queued for it. The interface is down until it is
    /// [revived](Self::revive). Returns whether there was a device to remove.
    pub(crate) fn remove(&self, kick: &Kick) -> bool {
        let _replacing = lock(&self.replacing);
        let error = StackError::Removed { name: self.name() };
        let epoch = {
            let mut health = lock(&self.health);
            if matches!(health.error, Some((_, StackError::Removed { .. }))) {
                return false;
            }
            health.epoch = health.epoch.wrapping_add(1);
            health.error = Some((health.epoch, error));
            self.up.store(false, Ordering::Relaxed);
            health.epoch
        };
        // No packet ever arrives at this device.
        let (Device { tx, rx, wait }, _) = loopback::device();
        self.rx.replace(rx, epoch, &wait, kick);
        self.tx.replace(tx, epoch, kick);
        *lock(&self.wait) = wait;
        self.tx.close();
        true
    }

    /// Whether it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        matches!(lock(&self.health).error, Some((_, StackError::Removed { .. })))
    }

    /// Reuses the place of this removed interface for another one.
    pub(crate) fn revive(&self, config: InterfaceConfig, kick: &Kick) -> Result<(), StackError> {
        self.chosen.store(false, Ordering::Relaxed);
        self.traits.mtu_limit.store(config.mtu.unwrap_or(u16::MAX), Ordering::SeqCst);
        self.replace(config.device, kick)
    }

    /// Brings the interface up with the device `epoch`, unless that device has failed already.
    fn come_up(&self, epoch: u32) {
        let mut health = lock(&self.health);
        let failed = health.error.as_ref().is_some_and(|&(of, _)| of == epoch);
        if !failed {
            health.error = None;
            self.up.store(true, Ordering::Relaxed);
        }
        drop(health);
        if failed {
            // The transmit path was opened for it.
            self.tx.close();
        }
    }
}
