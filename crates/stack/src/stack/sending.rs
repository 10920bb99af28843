//! The stack's operations on its interfaces: draining them, waking their pollers, changing their
//! queueing disciplines, and listing them.

use plimsoll_tcp::Instant;

use crate::device::DeviceStats;
use crate::interfaces::interface::{Interface, InterfaceStatus};
use crate::interfaces::tx_path::discards;
use crate::interfaces::tx_path::{Around, Turn};
use crate::kick::Kick;
use crate::policies::sysctl::Settings;
use crate::qdisc::fq::FqStats;
use crate::qdisc::{Kind, KindError, QdiscStats};
use crate::stack::Stack;
use crate::stack::work::Work;

/// The queueing discipline of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QdiscSummary {
    /// The interface.
    pub interface: String,
    /// The discipline and its parameters.
    pub kind: Kind,
    /// Its statistics and contents.
    pub stats: QdiscStats,
    /// Statistics that only fair queueing has.
    pub fq: Option<FqStats>,
}

impl Stack {
    /// Drains the interfaces in the bit set `set`.
    #[inline]
    pub(crate) fn drain_set(&self, work: &Work<'_>, mut set: u16) {
        while set != 0 {
            let index = set.trailing_zeros() as u8;
            set &= set - 1;
            self.work_at(work, self.interfaces.get(index), Turn::Drain);
        }
    }

    /// The time at which the poller must look at the interfaces in the bit set `set`, to which
    /// packets were queued: at once, or when the first of them may leave. A device without room
    /// notifies the poller itself.
    #[inline]
    pub(crate) fn first_departure(&self, set: u16) -> Option<Instant> {
        let queued = |interface: &&Interface| set & (1 << interface.index()) != 0;
        let departure = |interface: &Interface| match interface.tx().keeps_departures() {
            true => interface.tx().next_departure(),
            false => Some(Instant::ZERO),
        };
        self.interfaces.iter().filter(queued).filter_map(departure).min()
    }

    /// Takes a turn at sending on an interface. Returns how many packets something was done with.
    #[inline]
    fn work_at(&self, work: &Work<'_>, interface: &Interface, turn: Turn) -> usize {
        if !interface.is_up() {
            return 0;
        }
        let around = Around::new(work.now, &work.counters, self.kick_of(interface));
        interface.tx().work(&around, turn).unwrap_or_else(|failure| {
            self.device_failed(interface, work.now, &failure);
            0
        })
    }

    /// The kick that wakes an interface's poller.
    pub(crate) fn kick_of(&self, interface: &Interface) -> &Kick {
        self.pollers.queue(interface.queue()).waiter().kick_ref()
    }

    /// Sets the queueing discipline of the interface at `index` in [`qdiscs`](Self::qdiscs), as
    /// [`Kind::parse`] reads it. If that is the first of several queues of a device, sets it for
    /// all of them.
    ///
    /// # Errors
    /// If there is no such interface, or the text names no discipline.
    pub fn set_qdisc(&self, now: Instant, index: usize, text: &str) -> Result<(), KindError> {
        let interface = self.interfaces.find(index).ok_or(KindError::Interface(index))?;
        let kind = Kind::parse(text, interface.mtu())?;
        let others = interface.ways().iter().map(|&way| self.interfaces.get(way));
        for interface in others.skip(1).chain([interface]) {
            interface.choose_qdisc();
            self.change_qdisc(interface, now, kind);
        }
        Ok(())
    }

    /// Whether a device is sending: it will complete a packet by itself, at a known time. For a
    /// poller that spins rather than sleeps until then.
    pub fn is_sending(&self) -> bool {
        self.interfaces.iter().any(|interface| interface.is_up() && interface.tx().is_sending())
    }

    fn change_qdisc(&self, interface: &Interface, now: Instant, kind: Kind) {
        for _ in 0..interface.tx().set_qdisc(now, kind) {
            self.count(discards(true));
        }
        self.kick_of(interface).kick();
    }

    /// Gives interfaces the default discipline if it has changed and they were given no other.
    #[cold]
    fn follow_default_qdisc(&self, work: &Work<'_>) {
        for interface in self.interfaces.iter().filter(|each| is_behind(each, &work.settings)) {
            let name = work.settings.default_qdisc.name();
            let kind = Kind::parse(name, interface.mtu()).unwrap_or(Kind::PFIFO);
            self.change_qdisc(interface, work.now, kind);
        }
    }

    /// The queueing discipline of every interface, and its statistics.
    pub fn qdiscs(&self) -> Vec<QdiscSummary> {
        let summary = |interface: &Interface| {
            let (kind, stats, fq) = interface.tx().qdisc();
            QdiscSummary { interface: interface.name(), kind, stats, fq }
        };
        self.interfaces.iter().map(summary).collect()
    }

    /// Completes and drains every interface of the queue. If one of them still has another default
    /// discipline than the setting, all interfaces follow it. Returns whether there was any work.
    #[inline]
    pub(crate) fn pump_devices(&self, work: &Work<'_>) -> bool {
        let mut worked = false;
        for interface in self.interfaces.of(work.home()) {
            if is_behind(interface, &work.settings) {
                self.follow_default_qdisc(work);
            }
            if interface.tx().has_work(work.now) {
                worked |= self.work_at(work, interface, Turn::Poll) > 0;
            }
        }
        worked
    }

    /// The name of every interface, and whether its device reports when it has finished with a
    /// packet. If it does not, automatic corking and small queues are off.
    pub fn completions(&self) -> Vec<(String, bool)> {
        self.interfaces.iter().map(|i| (i.name(), i.completions())).collect()
    }

    /// The name of every interface, and the statistics of its sending and receiving half. While
    /// another thread uses a half, its figures are slightly old.
    pub fn device_stats(&self) -> Vec<(String, DeviceStats, DeviceStats)> {
        let stats = |interface: &Interface| {
            let (tx, rx) = interface.stats(self.kick_of(interface));
            (interface.name(), tx, rx)
        };
        self.interfaces.iter().map(stats).collect()
    }

    /// All interfaces, in the order of [`qdiscs`](Self::qdiscs): those of the configuration, then
    /// loopback, then the further queues of devices, then those that were added.
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let routes = self.interfaces.routes();
        let status = |each: &Interface| each.status(routes.addresses_of(each.index()));
        self.interfaces.iter().map(status).collect()
    }
}

/// Whether the default discipline has changed, and the interface was given no other.
#[inline]
fn is_behind(interface: &Interface, settings: &Settings) -> bool {
    interface.tx().keeps_departures() != settings.default_qdisc.keeps_departures()
        && !interface.has_chosen_qdisc()
}
