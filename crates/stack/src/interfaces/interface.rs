//! An interface: a device, its addresses, and whether it is up.
//!
//! What sending needs is the [`TxPath`]'s, what receiving needs the [`RxPath`]'s; an interface
//! holds the two together with what is known about the device. It knows nothing of connections and
//! routes: `stack/sending.rs` and `stack/interface_health.rs` do.
//!
//! # A device that fails
//!
//! Only its interface goes down, and it can be given another device. Each device that an interface
//! has had has a number, its *epoch*, so that a late error of one device does not bring down the
//! next.
//!
//! # Locks
//!
//! `health`, `name` and `wait` are leaves, held for a few instructions. `replacing` is held by who
//! gives the interface another device, also while the old one is dropped; nobody else takes it.
//! What is read for every packet is atomic.

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

/// Room for headers that a super-segment's payload leaves.
const HEADROOM: usize = 120;

/// What an interface is built from.
pub struct InterfaceConfig {
    /// The device.
    pub device: Device,
    /// Our addresses on it, each with the length of the prefix that is reached directly. Several
    /// interfaces may have the same link-local address (RFC 4007). Sockets name the interface by
    /// its scope id: its place in [`Stack::interfaces`](crate::Stack::interfaces), counted from 1.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU in bytes, if it is to be less than the device's.
    pub mtu: Option<u16>,
}

impl InterfaceConfig {
    /// Refuses what cannot be; `field` is its name in errors.
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

/// An interface as [`Stack::interfaces`](crate::Stack::interfaces) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// The device's name.
    pub name: String,
    /// Our addresses on it, each with the length of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU in bytes.
    pub mtu: u16,
    /// Why it is down, or waits for another device; `None` while it works.
    pub error: Option<StackError>,
}

/// What a device says about itself, to be read without asking it.
struct Traits {
    /// The longest packet: what the device carries, and what it was limited to.
    mtu: AtomicU16,
    /// What the device carries.
    device_mtu: AtomicU16,
    /// What it was limited to; 65535 is not at all.
    mtu_limit: AtomicU16,
    /// Most payload bytes of one super-segment.
    max_super_segment: AtomicUsize,
    /// The device really completes packets: bytes below us mean something.
    completions: AtomicBool,
    /// The device writes down why packets leave.
    takes_notes: AtomicBool,
}

/// Whether the device works.
#[derive(Default)]
struct Health {
    epoch: u32,
    /// Why a device failed, and the number of that one.
    error: Option<(u32, StackError)>,
}

/// A device in a stack. Queues of one device stand side by side in a list, and each is written by
/// its own thread, so none shares a pair of cache lines with another.
#[repr(align(128))]
pub(crate) struct Interface {
    index: u8,
    /// The queue that polls it.
    queue: u8,
    /// All interfaces of the same device, this first one included, if there are several.
    ways: Vec<u8>,
    addresses: Vec<(IpAddr, u8)>,
    loopback: bool,
    /// What is behind the device's name if it is not the device's first queue.
    suffix: String,
    name: Mutex<String>,
    traits: Traits,
    wait: Mutex<WaitSource>,
    /// The discipline was chosen for this interface: the default does not concern it.
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
        // A device that takes none gets them cut in software.
        let longest = if caps.tso4 || caps.tso6 { longest } else { 65_535 } - HEADROOM;
        self.device_mtu.store(caps.mtu, Ordering::Relaxed);
        self.settle_mtu();
        self.max_super_segment.store(longest, Ordering::Relaxed);
        self.completions.store(caps.completions, Ordering::Relaxed);
        self.takes_notes.store(takes_notes, Ordering::Relaxed);
    }

    /// Two that change it at the same time both come to the least.
    fn settle_mtu(&self) {
        let (device, limit) = (&self.device_mtu, &self.mtu_limit);
        let mtu = device.load(Ordering::SeqCst).min(limit.load(Ordering::SeqCst));
        self.mtu.store(mtu, Ordering::SeqCst);
    }
}

impl Interface {
    /// The way out.
    pub(crate) fn tx(&self) -> &TxPath {
        &self.tx
    }

    /// The way in.
    #[cfg(test)]
    pub(crate) fn rx(&self) -> &RxPath {
        &self.rx
    }

    /// Builds all interfaces of a stack: those of the configuration, loopback, and one for each
    /// further queue of a device. `queues` is how many there are to poll them.
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

    /// Adds another queue of the device of the interface with the number `first`.
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

    /// `waiting` counts what has arrived at loopback.
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

    /// Its place among the interfaces.
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// The queue that polls it.
    pub(crate) fn queue(&self) -> u8 {
        self.queue
    }

    /// All interfaces of the same device, this first one included, if there are several and this is
    /// the first one.
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

    /// What the device carries.
    pub(crate) fn device_mtu(&self) -> u16 {
        self.traits.device_mtu.load(Ordering::Relaxed)
    }

    /// Limits the MTU.
    pub(crate) fn limit_mtu(&self, mtu: u16) {
        self.traits.mtu_limit.store(mtu, Ordering::SeqCst);
        self.traits.settle_mtu();
    }

    /// The device says what it carries from now on.
    pub(crate) fn set_device_mtu(&self, mtu: u16) {
        self.traits.device_mtu.store(mtu, Ordering::SeqCst);
        self.traits.settle_mtu();
    }

    /// What has happened to the link since the last call.
    pub(crate) fn take_link_event(&self) -> Option<LinkEvent> {
        self.rx.take_link_event()
    }

    /// Most payload bytes of one super-segment.
    pub(crate) fn max_super_segment(&self) -> usize {
        self.traits.max_super_segment.load(Ordering::Relaxed)
    }

    /// Whether the device really completes packets: bytes below us mean something.
    pub(crate) fn completions(&self) -> bool {
        self.traits.completions.load(Ordering::Relaxed)
    }

    /// Whether the device writes down why packets leave.
    pub(crate) fn takes_notes(&self) -> bool {
        self.traits.takes_notes.load(Ordering::Relaxed)
    }

    /// Whether the discipline was chosen for this interface, so that the default does not matter.
    pub(crate) fn has_chosen_qdisc(&self) -> bool {
        self.chosen.load(Ordering::Relaxed)
    }

    pub(crate) fn choose_qdisc(&self) {
        self.chosen.store(true, Ordering::Relaxed);
    }

    /// Tells the device whom to kick.
    pub(crate) fn install(&self, kick: &Kick) {
        lock(&self.wait).install(kick);
    }

    /// What the poller waits for. It lasts as long as the copy, also if the device is replaced.
    pub(crate) fn wait_source(&self) -> WaitSource {
        lock(&self.wait).clone()
    }

    /// Whether the device works.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Appends up to `max` packets that have arrived by `now` to `out`; `None` if somebody else has
    /// the device.
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

    /// Whether nothing can have arrived, and nothing is to be reported of the link.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.rx.is_empty() && !self.rx.has_link_event()
    }

    /// There was nothing to do for a while: what only packets need is given back.
    pub(crate) fn on_idle(&self, kick: &Kick) {
        self.tx.on_idle(kick);
        self.rx.on_idle(kick);
    }

    /// When the device wants to be polled, or something that is queued may leave.
    #[inline]
    pub(crate) fn next_event(&self, kick: &Kick) -> Option<Instant> {
        if !self.is_up() {
            return None;
        }
        earlier(self.tx.next_event(kick), self.rx.next_event(kick))
    }

    /// What the two halves have counted, the sending one first.
    pub(crate) fn stats(&self, kick: &Kick) -> (DeviceStats, DeviceStats) {
        (self.tx.stats(kick), self.rx.stats(kick))
    }

    /// What is shown of it; its addresses are known to the routes.
    pub(crate) fn status(&self, addresses: Vec<(IpAddr, u8)>) -> InterfaceStatus {
        let error = lock(&self.health).error.clone().map(|(_, error)| error);
        let (name, mtu) = (self.name(), self.mtu());
        InterfaceStatus { name, addresses, mtu, error }
    }

    /// The number of the device that it has now.
    pub(crate) fn epoch(&self) -> u32 {
        lock(&self.health).epoch
    }

    /// The device with the number `epoch` has failed. Returns whether that brings the interface
    /// down: it may be down already, or have another device.
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

    /// The device with the number `epoch` has failed, and the interface waits for the next: it
    /// stays up, nothing arrives, and what leaves is lost. Returns whether that is news.
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

    /// Takes another device in place of the one that it has. `kick` wakes its poller.
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

    /// Takes the device away, and what is queued for it; the interface is down until it is
    /// [revived](Self::revive). Returns whether there was one to remove.
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
        // Nothing ever arrives there.
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

    /// Becomes another interface in the place of this one, which was removed.
    pub(crate) fn revive(&self, config: InterfaceConfig, kick: &Kick) -> Result<(), StackError> {
        self.chosen.store(false, Ordering::Relaxed);
        self.traits.mtu_limit.store(config.mtu.unwrap_or(u16::MAX), Ordering::SeqCst);
        self.replace(config.device, kick)
    }

    /// The device with the number `epoch` is in its place. It may have failed already.
    fn come_up(&self, epoch: u32) {
        let mut health = lock(&self.health);
        let failed = health.error.as_ref().is_some_and(|&(of, _)| of == epoch);
        if !failed {
            health.error = None;
            self.up.store(true, Ordering::Relaxed);
        }
        drop(health);
        if failed {
            // The path was opened for it.
            self.tx.close();
        }
    }
}
