//! An interface: a device, its addresses, its queueing discipline, and the draining of one into the
//! other.
//!
//! Packets are queued while a socket is owned and drained after it was released. One thread at a
//! time drains; see [`TxToken`]. What the device cannot do is done in software on the way: cutting
//! super-segments, completing checksums.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_tcp::Instant;

use crate::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxStatus, WaitSource,
};
use crate::error::StackError;
use crate::ip::output::discards;
use crate::limits::{DRAIN_ROUNDS, MAX_INTERFACES};
use crate::loopback;
use crate::offload::{checksum, gso};
use crate::packet::{ChecksumState, Packet};
use crate::qdisc::fq::FqStats;
use crate::qdisc::{Kind, KindError, Qdisc, QdiscStats};
use crate::snmp::IpCounter;
use crate::socket_lock::lock;
use crate::stack::Stack;
use crate::tx_token::TxToken;

/// Packets moved from the queueing discipline to the device at a time.
const DRAIN_BATCH: usize = 64;
/// Room for headers that a super-segment's payload leaves.
const HEADROOM: usize = 120;
/// Bytes of headers of the least packet that TCP can use.
const MIN_MTU: u16 = 576;

/// What an interface is built from.
pub struct InterfaceConfig {
    /// The device.
    pub device: Device,
    /// Our addresses on it, each with the length of the prefix that is reached directly.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU in bytes, if it is to be less than the device's.
    pub mtu: Option<u16>,
}

/// The queueing discipline of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscSummary {
    /// The interface.
    pub interface: String,
    /// Which discipline, with its parameters.
    pub kind: Kind,
    /// What it has counted, and what it holds.
    pub stats: QdiscStats,
    /// What only fair queueing counts.
    pub fq: Option<FqStats>,
}

/// A device in a stack.
pub(crate) struct Interface {
    pub(crate) index: u8,
    /// The queue that polls it.
    pub(crate) queue: u8,
    /// All interfaces of the same device, this first one included, if there are several.
    pub(crate) ways: Vec<u8>,
    pub(crate) name: String,
    pub(crate) mtu: u16,
    /// Most payload bytes of one super-segment.
    pub(crate) max_super_segment: usize,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) loopback: bool,
    /// The device really completes packets: bytes below us mean something.
    pub(crate) completions: bool,
    /// The device writes down why packets leave.
    pub(crate) takes_notes: bool,
    pub(crate) wait: WaitSource,
    pub(crate) rx: Mutex<Box<dyn DeviceRx>>,
    qdisc: Mutex<Box<dyn Qdisc>>,
    /// The discipline keeps departure times, to be read without the lock.
    departures: AtomicBool,
    /// The discipline was chosen for this interface: the default does not concern it.
    chosen: AtomicBool,
    token: TxToken,
    tx: Mutex<TxSide>,
    /// The device had no room for the rest of `TxSide::staged`.
    busy: AtomicBool,
}

/// What belongs to the holder of the token.
struct TxSide {
    device: Box<dyn DeviceTx>,
    /// Taken from the queueing discipline, ready for the device.
    staged: VecDeque<Packet>,
    /// Packets to be made ready.
    raw: VecDeque<Packet>,
}

impl Interface {
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
            for &(ip, prefix) in &config.addresses {
                if prefix > if ip.is_ipv4() { 32 } else { 128 } {
                    let reason = format!("the prefix length of {ip}/{prefix} is too large");
                    return refuse(format!("{field}.addresses"), reason);
                }
                if !crate::stack::is_unicast(ip) {
                    return refuse(format!("{field}.addresses"), format!("{ip} is not a host's"));
                }
            }
            let most = config.device.tx.caps().mtu;
            if let Some(mtu) = config.mtu
                && !(MIN_MTU..=most).contains(&mtu)
            {
                let reason = format!("{mtu} is not between {MIN_MTU} and the device's {most}");
                return refuse(format!("{field}.mtu"), reason);
            }
            interfaces.push(Interface::new(index, config, false));
        }
        let addresses = vec![
            (IpAddr::from([127, 0, 0, 1]), 8),
            (IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 128),
        ];
        let config = InterfaceConfig { device: loopback::device(), addresses, mtu: None };
        interfaces.push(Interface::new(interfaces.len(), config, true));
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
        let config = InterfaceConfig { device, addresses: Vec::new(), mtu: None };
        let mut way = Interface::new(interfaces.len(), config, false);
        let (index, original) = (way.index, &mut interfaces[first]);
        if original.ways.is_empty() {
            original.ways.push(original.index);
        }
        way.queue = (original.ways.len() % queues) as u8;
        way.name = format!("{}#{}", original.name, original.ways.len());
        way.mtu = original.mtu;
        original.ways.push(index);
        interfaces.push(way);
    }

    fn new(index: usize, config: InterfaceConfig, loopback: bool) -> Interface {
        let Device { tx, rx, wait } = config.device;
        let caps = tx.caps();
        let longest = caps.max_super_segment.clamp(usize::from(caps.mtu), 65_535);
        Interface {
            index: index as u8,
            queue: 0,
            ways: Vec::new(),
            name: caps.name.clone(),
            mtu: config.mtu.map_or(caps.mtu, |mtu| mtu.min(caps.mtu)),
            // A device that takes none gets them cut in software.
            max_super_segment: if caps.tso4 || caps.tso6 { longest } else { 65_535 } - HEADROOM,
            addresses: config.addresses,
            loopback,
            completions: caps.completions,
            takes_notes: tx.takes_notes(),
            wait,
            rx: Mutex::new(rx),
            qdisc: Mutex::new(Kind::PFIFO.build()),
            departures: AtomicBool::new(false),
            chosen: AtomicBool::new(loopback),
            token: TxToken::new(),
            tx: Mutex::new(TxSide { device: tx, staged: VecDeque::new(), raw: VecDeque::new() }),
            busy: AtomicBool::new(false),
        }
    }

    /// Queues a packet; `false` if there was no room and it is gone.
    pub(crate) fn enqueue(&self, now: Instant, packet: Packet) -> bool {
        // A refused packet is dropped after the lock was released.
        let refused = lock(&self.qdisc).enqueue(now, packet).err();
        refused.is_none()
    }

    /// Whether the queueing discipline holds packets until their departure times.
    pub(crate) fn keeps_departures(&self) -> bool {
        self.departures.load(Ordering::Relaxed)
    }

    /// Replaces the discipline. What is queued moves over; returns how many packets the new one has
    /// no room for.
    fn set_qdisc(&self, now: Instant, kind: Kind) -> usize {
        let mut refused = Vec::new();
        let mut qdisc = lock(&self.qdisc);
        let mut other = kind.build();
        while let Some(packet) = qdisc.take_any() {
            refused.extend(other.enqueue(now, packet).err());
        }
        *qdisc = other;
        self.departures.store(kind.keeps_departures(), Ordering::Relaxed);
        // Packets complete when they are dropped, which may take other locks.
        drop(qdisc);
        refused.len()
    }

    /// When the first packet that is queued may leave, if the device has room and nobody is at
    /// draining: who is goes round once more, and sees to what has to wait.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        let at = lock(&self.qdisc).next_event()?;
        if self.token.leave_to_holder() { None } else { Some(at) }
    }

    /// Whether the device waits for room.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// What the sending half has counted.
    pub(crate) fn tx_stats(&self) -> DeviceStats {
        lock(&self.tx).device.stats()
    }

    /// What the receiving half has counted.
    pub(crate) fn rx_stats(&self) -> DeviceStats {
        lock(&self.rx).stats()
    }

    /// When the device wants to be polled.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let sending = lock(&self.tx).device.next_event();
        let receiving = lock(&self.rx).next_event();
        sending.into_iter().chain(receiving).chain(self.next_departure()).min()
    }

    /// Moves what is queued into the device, unless another thread is at it (which then goes on).
    /// Returns how many packets went.
    fn drain(&self, stack: &Stack, now: Instant) -> Result<usize, DeviceError> {
        let mut sent = 0;
        if !self.token.acquire() {
            return Ok(sent);
        }
        for _ in 0..DRAIN_ROUNDS {
            let outcome = self.drain_once(stack, now);
            match outcome {
                Ok(count) => sent += count,
                Err(error) => {
                    self.token.abandon();
                    return Err(error);
                }
            }
            if self.token.release() {
                return Ok(sent);
            }
        }
        // The others go on queueing: the poller takes over.
        self.token.abandon();
        stack.pollers.queue(self.queue).waiter.kick();
        Ok(sent)
    }

    fn drain_once(&self, stack: &Stack, now: Instant) -> Result<usize, DeviceError> {
        let mut side = lock(&self.tx);
        let side = &mut *side;
        let mut sent = 0;
        loop {
            if side.staged.is_empty() {
                lock(&self.qdisc).dequeue_batch(now, DRAIN_BATCH, &mut side.raw);
                make_ready(stack, side.device.caps(), &mut side.raw, &mut side.staged);
            }
            if side.staged.is_empty() {
                self.busy.store(false, Ordering::Relaxed);
                return Ok(sent);
            }
            let progress = side.device.transmit(now, &mut side.staged)?;
            sent += progress.packets;
            if progress.caps_changed {
                // What the device refuses from now on is made ready again, without it.
                std::mem::swap(&mut side.raw, &mut side.staged);
                make_ready(stack, side.device.caps(), &mut side.raw, &mut side.staged);
            }
            if progress.status == TxStatus::Busy {
                if !self.busy.swap(true, Ordering::Relaxed) {
                    // The poller may sleep without watching for room.
                    stack.pollers.queue(self.queue).waiter.kick();
                }
                stack.count(IpCounter::TxRingFull);
                return Ok(sent);
            }
        }
    }

    /// Lets the device complete what is done. Returns whether anything happened.
    fn poll_completions(&self, now: Instant) -> Result<bool, DeviceError> {
        Ok(lock(&self.tx).device.poll_completions(now)? > 0)
    }
}

/// Moves packets from `raw` to `staged`, and does in software what the device cannot.
fn make_ready(
    stack: &Stack,
    caps: &Caps,
    raw: &mut VecDeque<Packet>,
    staged: &mut VecDeque<Packet>,
) {
    if caps.tso4 && caps.tso6 && caps.tx_checksum {
        staged.append(raw);
        return;
    }
    for packet in raw.drain(..) {
        let is_v4 = packet.headers().first().is_some_and(|first| first >> 4 == 4);
        let whole = packet.gso.is_none() || if is_v4 { caps.tso4 } else { caps.tso6 };
        if whole && (caps.tx_checksum || packet.csum != ChecksumState::Partial) {
            staged.push_back(packet);
        } else if whole {
            stage_filled(stack, packet, staged);
        } else {
            stack.count(IpCounter::GsoSoftware);
            for segment in gso::split(packet) {
                if caps.tx_checksum {
                    staged.push_back(segment);
                } else {
                    stage_filled(stack, segment, staged);
                }
            }
        }
    }
}

fn stage_filled(stack: &Stack, mut packet: Packet, staged: &mut VecDeque<Packet>) {
    if checksum::fill(&mut packet) {
        staged.push_back(packet);
    } else {
        stack.count(discards(packet.headers().first().is_some_and(|first| first >> 4 == 4)));
    }
}

impl Stack {
    /// Drains the interfaces in the bit set `set`.
    pub(crate) fn drain_set(&self, mut set: u16, now: Instant) -> usize {
        let mut sent = 0;
        while set != 0 {
            let index = set.trailing_zeros() as u8;
            set &= set - 1;
            sent += self.drain(self.interfaces.get(index), now);
        }
        sent
    }

    /// When the poller has to look at the interfaces in the bit set `set`, to which packets were
    /// queued: at once, or when the first of them may leave. A device without room tells by itself.
    pub(crate) fn first_departure(&self, set: u16) -> Option<Instant> {
        let queued = |interface: &&Interface| set & (1 << interface.index) != 0;
        let departure = |interface: &Interface| match interface.keeps_departures() {
            true => interface.next_departure(),
            false => Some(Instant::ZERO),
        };
        self.interfaces.iter().filter(queued).filter_map(departure).min()
    }

    fn drain(&self, interface: &Interface, now: Instant) -> usize {
        match interface.drain(self, now) {
            Ok(sent) => {
                if interface.keeps_departures()
                    && let Some(at) = interface.next_departure()
                {
                    self.pollers.queue(interface.queue).waiter.kick_before(at);
                }
                sent
            }
            Err(error) => {
                self.device_failed(interface, now, &error);
                0
            }
        }
    }

    /// Gives the interface with the place `index` in [`qdiscs`](Self::qdiscs) another queueing
    /// discipline, as [`Kind::parse`] reads it, and all queues of its device if that is the first
    /// of several. Packets that are queued move over; those for which
    /// the new one has no room are dropped and counted (IpOutDiscards).
    ///
    /// # Errors
    /// If there is no such interface, or the text names no discipline.
    pub fn set_qdisc(&self, now: Instant, index: usize, text: &str) -> Result<(), KindError> {
        let interface = self.interfaces.find(index).ok_or(KindError::Interface(index))?;
        let kind = Kind::parse(text, interface.mtu)?;
        let others = interface.ways.iter().map(|&way| self.interfaces.get(way));
        for interface in others.skip(1).chain([interface]) {
            interface.chosen.store(true, Ordering::Relaxed);
            self.change_qdisc(interface, now, kind);
        }
        Ok(())
    }

    /// Whether a device is at sending: it will complete something by itself, at a time that it
    /// knows. For a poller that would rather spin than sleep until then.
    pub fn is_sending(&self) -> bool {
        self.interfaces.iter().any(|interface| lock(&interface.tx).device.next_event().is_some())
    }

    fn change_qdisc(&self, interface: &Interface, now: Instant, kind: Kind) {
        for _ in 0..interface.set_qdisc(now, kind) {
            self.count(discards(true));
        }
        self.pollers.queue(interface.queue).waiter.kick();
    }

    /// Gives interfaces the default discipline if it has changed and they were given no other.
    fn follow_default_qdisc(&self, now: Instant) {
        let default = self.settings().default_qdisc;
        for interface in self.interfaces.iter() {
            let differs = interface.keeps_departures() != default.keeps_departures();
            if differs && !interface.chosen.load(Ordering::Relaxed) {
                let name = default.name();
                let kind = Kind::parse(name, interface.mtu).unwrap_or(Kind::PFIFO);
                self.change_qdisc(interface, now, kind);
            }
        }
    }

    /// The queueing discipline of every interface, and what it has counted.
    pub fn qdiscs(&self) -> Vec<QdiscSummary> {
        let summary = |interface: &Interface| {
            let qdisc = lock(&interface.qdisc);
            let (kind, stats, fq) = (qdisc.kind(), qdisc.stats(), qdisc.fq_stats());
            QdiscSummary { interface: interface.name.clone(), kind, stats, fq }
        };
        self.interfaces.iter().map(summary).collect()
    }

    /// Completes and drains every interface of a queue. Returns whether anything happened.
    pub(crate) fn pump_devices(&self, queue: u8, now: Instant) -> bool {
        self.follow_default_qdisc(now);
        let mut worked = false;
        for interface in self.interfaces.of(queue) {
            match interface.poll_completions(now) {
                Ok(any) => worked |= any,
                Err(error) => self.device_failed(interface, now, &error),
            }
            worked |= self.drain(interface, now) > 0;
        }
        worked
    }

    /// Ends the stack because a device failed.
    pub(crate) fn device_failed(&self, interface: &Interface, now: Instant, error: &DeviceError) {
        let name = interface.name.clone();
        self.bring_down(now, StackError::DeviceGone { name, reason: error.to_string() });
    }

    /// Name of every interface, and whether its device tells when it is done with a packet. Over
    /// one that does not, automatic corking and small queues are off.
    pub fn completions(&self) -> Vec<(String, bool)> {
        self.interfaces.iter().map(|i| (i.name.clone(), i.completions)).collect()
    }

    /// Name, and what the sending and the receiving half have counted, of every interface.
    pub fn device_stats(&self) -> Vec<(String, DeviceStats, DeviceStats)> {
        let stats = |i: &Interface| (i.name.clone(), i.tx_stats(), i.rx_stats());
        self.interfaces.iter().map(stats).collect()
    }
}
