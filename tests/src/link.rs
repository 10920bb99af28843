//! `plimsoll-interop link`: carries packets between two TUN devices, late, and not all of them.
//!
//! It stands where a long path would be between two hosts of the kernel's. Each device lies in a
//! namespace of its own. Offloads are off, so that what is lost is a wire segment, as on a wire.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll::device::fault::{self, FaultConfig, FaultDirection};
use plimsoll::device::tun::{self, Offloads, TunConfig};
use plimsoll::device::{Device, TxStatus};
use plimsoll::{Instant, Packet, Pool, now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::peer::workload::say;

/// Packets that are taken from a device at a time.
const BATCH: usize = 64;

/// How often a device without room is asked again.
const BUSY: Duration = Duration::from_micros(200);

/// The device of this namespace, the namespace of the other, its name, milliseconds of delay each
/// way, the share of packets that is lost each way, and where the chances come from.
const USAGE: &str = "link DEVICE NAMESPACE DEVICE DELAY LOSS SEED";

/// Carries packets until it is ended.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let [here, namespace, there, delay, loss, seed] = words else { bail!("usage: {USAGE}") };
    let config = FaultConfig::default()
        .delay(Duration::from_secs_f64(number(delay)? / 1000.0))
        .loss(number(loss)?)
        .seed(seed.parse().with_context(|| format!("SEED {seed} is no number"))?)
        .direction(FaultDirection::Transmit);
    config.check()?;
    let mut left = Side::open(here, &config)?;
    let file = File::open(format!("/run/netns/{namespace}"))
        .with_context(|| format!("there is no namespace {namespace}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering the namespace {namespace}"))?;
    let other = config.clone().seed(config.seed.wrapping_add(1));
    let mut right = Side::open(there, &other)?;
    say("ready")?;
    let pool = Pool::new();
    let mut packets = Vec::with_capacity(BATCH);
    loop {
        let moved = left.carry(&mut right, &pool, &mut packets)?
            + right.carry(&mut left, &pool, &mut packets)?;
        if moved == 0 {
            wait(&left, &right)?;
        }
    }
}

fn number(word: &str) -> Result<f64> {
    word.parse().with_context(|| format!("{word} is no number; usage: {USAGE}"))
}

/// One of the two devices, and what waits to be sent on it.
struct Side {
    device: Device,
    waiting: VecDeque<Packet>,
    busy: bool,
}

impl Side {
    fn open(name: &str, config: &FaultConfig) -> Result<Side> {
        let device = tun::open(TunConfig::default().name(name).offloads(Offloads::Off))?;
        let device = fault::wrap(device, config.clone());
        Ok(Side { device, waiting: VecDeque::new(), busy: false })
    }

    /// Sends on `to` what has arrived here and what is due there. Returns how many packets have
    /// arrived.
    fn carry(&mut self, to: &mut Side, pool: &Pool, packets: &mut Vec<Packet>) -> Result<usize> {
        let now = now();
        let arrived = self.device.rx.receive(now, pool, packets, BATCH)?;
        to.waiting.extend(packets.drain(..));
        to.device.tx.poll_completions(now)?;
        to.busy = to.device.tx.transmit(now, &mut to.waiting)?.status == TxStatus::Busy;
        Ok(arrived)
    }

    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.device.wait.fd().context("a TUN device has a descriptor")
    }

    fn next_event(&self) -> Option<Instant> {
        if self.busy { Some(now() + BUSY) } else { self.device.tx.next_event() }
    }
}

/// Sleeps until a packet arrives or is due.
fn wait(left: &Side, right: &Side) -> Result<()> {
    let next = [left.next_event(), right.next_event()].into_iter().flatten().min();
    let timeout = next.map(|next| next - now());
    let timeout = timeout.map(Timespec::try_from).transpose().context("a delay is not so long")?;
    let mut fds = [left.fd()?, right.fd()?].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting for packets"),
    }
}
