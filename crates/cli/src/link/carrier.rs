//! Carries packets between two devices, through a link in each direction.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, anyhow};
use plimsoll::device::tun::{self, Offloads, TunConfig};
use plimsoll::device::{Device, TxStatus};
use plimsoll::{Instant, Packet, Pool, now};
use plimsoll_sim::link::{Link, LinkConfig, QueueConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::late::Lateness;
use super::place::Place;

/// Packets that are taken from a device at a time.
const BATCH: usize = 64;

/// How often a device without space is asked again.
const BUSY: Duration = Duration::from_micros(200);

/// Bytes of each packet of a check: as on a path of 1,500 bytes.
pub(super) const CHECK_PACKET: usize = 1500;

/// Packets that a check keeps waiting, so that the wire is never idle.
const CHECK_QUEUE: u64 = 64;

/// The protocol number of UDP (RFC 768).
const UDP: u8 = 17;

/// How often a check sends, if the link has no rate.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// One of the two devices, the way out of it, and what has come to it.
#[derive(Debug)]
struct Side {
    device: Device,
    /// The link from this device to the other.
    link: Link,
    /// Packets that have arrived for this device, and that it has not taken.
    waiting: VecDeque<Packet>,
    /// The device has no space at present.
    busy: bool,
    /// The lateness of packets on `link`.
    late: Lateness,
}

/// The two sides.
#[derive(Debug)]
pub(super) struct Carrier {
    sides: [Side; 2],
    pool: Pool,
    packets: Vec<Packet>,
}

/// Opens the TUN device of a place.
fn open(place: &Place) -> anyhow::Result<Device> {
    let config = || TunConfig::default().name(&*place.device).offloads(Offloads::Off);
    let Some(namespace) = &place.namespace else { return Ok(tun::open(config())?) };
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).with_context(|| {
        format!("there is no network namespace {namespace}; `ip netns add {namespace}` makes one")
    })?;
    // Only the thread that opens the device goes there.
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter the network namespace {namespace}"))?;
            Ok(tun::open(config())?)
        });
        opened.join().map_err(|_| anyhow!("the thread that opens {place} has panicked"))?
    })
}

impl Carrier {
    /// Opens both devices. The first link leads from the first to the second.
    pub(super) fn open(
        places: [&Place; 2],
        configs: [LinkConfig; 2],
        seed: u64,
    ) -> anyhow::Result<Carrier> {
        let [left, right] = places;
        let [there, back] = configs;
        let side = |place: &Place, config, seed| -> anyhow::Result<Side> {
            Ok(Side {
                device: open(place).with_context(|| format!("cannot open {place}"))?,
                link: Link::new(config, seed)?,
                waiting: VecDeque::new(),
                busy: false,
                late: Lateness::new(),
            })
        };
        Ok(Carrier {
            sides: [side(left, there, seed)?, side(right, back, seed.wrapping_add(1))?],
            pool: Pool::new(),
            packets: Vec::with_capacity(BATCH),
        })
    }

    /// Runs a link like `config`, but without faults, for `time`, with packets of its own that go
    /// nowhere, in the way in which packets are carried: what it says is how well this machine
    /// keeps time now.
    pub(super) fn check(config: &LinkConfig, time: Duration) -> anyhow::Result<Lateness> {
        let config = config.without_faults().queue(QueueConfig::drop_tail(u64::MAX));
        let mut link = Link::new(config.mtu(u16::MAX), 0)?;
        let has_rate = link.config().rate.is_some();
        let mut late = Lateness::new();
        let probe = probe();
        let end = now() + time;
        let mut next = now();
        loop {
            let at = now();
            if at >= end {
                return Ok(late);
            }
            if has_rate {
                while link.stats().queue_packets < CHECK_QUEUE {
                    let _ = link.offer(at, probe.share());
                }
            } else if next <= at {
                let _ = link.offer(at, probe.share());
                next = at + CHECK_EVERY;
            }
            while let Some(arrival) = link.take(at) {
                late.note(arrival.at, now(), arrival.packet.len());
            }
            let due = link.next_arrival().into_iter().chain((!has_rate).then_some(next));
            wait(&[], due.min().map(|due| due.min(end)))?;
        }
    }

    /// Carries packets until `until`, or until `stop` can be read.
    pub(super) fn run(
        &mut self,
        until: Option<Instant>,
        stop: BorrowedFd<'_>,
    ) -> anyhow::Result<()> {
        loop {
            if until.is_some_and(|until| now() >= until) || is_readable(stop)? {
                return Ok(());
            }
            let [left, right] = &mut self.sides;
            let arrived = left.receive(&self.pool, &mut self.packets)?
                + right.receive(&self.pool, &mut self.packets)?;
            left.deliver(right)?;
            right.deliver(left)?;
            if arrived == 0 {
                let next = self.sides.iter().filter_map(Side::next_event).chain(until).min();
                let [left, right] = &self.sides;
                wait(&[left.fd()?, right.fd()?, stop], next)?;
            }
        }
    }

    /// The links, first the one from the first device to the second, each with how late its packets
    /// were.
    pub(super) fn links(&self) -> [(&Link, &Lateness); 2] {
        self.sides.each_ref().map(|side| (&side.link, &side.late))
    }
}

impl Side {
    /// Puts what has come out of the device onto the link. Returns how many packets.
    fn receive(&mut self, pool: &Pool, packets: &mut Vec<Packet>) -> anyhow::Result<usize> {
        let at = now();
        let arrived = self.device.rx.receive(at, pool, packets, BATCH)?;
        for packet in packets.drain(..) {
            // A packet longer than the link's MTU is dropped and counted (`dropped_long`).
            let _ = self.link.offer(at, packet);
        }
        Ok(arrived)
    }

    /// Gives the other side what has arrived there.
    fn deliver(&mut self, to: &mut Side) -> anyhow::Result<()> {
        while let Some(arrival) = self.link.take(now()) {
            self.late.note(arrival.at, now(), arrival.packet.len());
            to.waiting.push_back(arrival.packet);
        }
        let at = now();
        to.device.tx.poll_completions(at)?;
        to.busy = to.device.tx.transmit(at, &mut to.waiting)?.status == TxStatus::Busy;
        Ok(())
    }

    fn fd(&self) -> anyhow::Result<BorrowedFd<'_>> {
        self.device.wait.fd().context("a TUN device has a descriptor")
    }

    fn next_event(&self) -> Option<Instant> {
        let busy = self.busy.then(|| now() + BUSY);
        self.link.next_arrival().into_iter().chain(busy).min()
    }
}

/// A packet as any: a datagram that says nothing.
fn probe() -> Packet {
    let mut bytes = vec![0; CHECK_PACKET];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&(CHECK_PACKET as u16).to_be_bytes());
    bytes[8] = 64;
    bytes[9] = UDP;
    Packet::from(bytes)
}

/// Sleeps until `next`, or until one of `fds` can be read.
fn wait(fds: &[BorrowedFd<'_>], next: Option<Instant>) -> anyhow::Result<()> {
    let timeout = next.map(|next| next.since(now()));
    let timeout = timeout.map(Timespec::try_from).transpose().context("a delay is not so long")?;
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(io::Error::from(error)).context("cannot wait for packets"),
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> anyhow::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(io::Error::from(error)).context("cannot ask for signals"),
    }
}
