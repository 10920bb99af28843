//! A device of your own. This one returns every packet to the stack that sent it, so that each
//! address seems to be its own peer.
//!
//! `cargo run -p plimsoll --example custom_device`
//!
//! A program that has packets as values uses [`device::channel`](plimsoll::device::channel())
//! instead. A driver implements [`DeviceTx`] and [`DeviceRx`]; its [`WaitSource`] says how a stack
//! learns that there is work: by a file descriptor, or by a [`KickSlot`]. Neither half ever blocks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress, WaitSource,
};
use plimsoll::{Instant, Packet, Pool, Stack, TcpStream};

/// The most packets on their way.
const ROOM: usize = 64;

type Way = Arc<Mutex<VecDeque<Packet>>>;

struct Tx {
    caps: Caps,
    way: Way,
    kick: KickSlot,
    stats: DeviceStats,
}

struct Rx {
    way: Way,
    kick: KickSlot,
    stats: DeviceStats,
}

impl DeviceTx for Tx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        _now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut way = self.way.lock().map_err(|_| DeviceError::Gone("broken".into()))?;
        let count = queue.len().min(ROOM - way.len());
        for packet in queue.drain(..count) {
            self.stats.passed(&packet);
            way.push_back(packet);
        }
        drop(way);
        if count > 0 {
            self.kick.kick(); // the receiving half has work
        }
        // Packets that do not fit stay in the queue. A device never drops them.
        let all = queue.is_empty();
        Ok(if all { TxProgress::done(count) } else { TxProgress::busy(count) })
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl DeviceRx for Rx {
    fn receive(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let mut way = self.way.lock().map_err(|_| DeviceError::Gone("broken".into()))?;
        let count = max.min(way.len());
        for mut packet in way.drain(..count) {
            packet.complete(); // the device is done with it
            self.stats.passed(&packet);
            out.push(packet);
        }
        drop(way);
        if count > 0 {
            self.kick.kick_for_room(); // the sending half may have been busy
        }
        Ok(count)
    }

    fn next_event(&self) -> Option<Instant> {
        // The stack calls this before it sleeps: it may have missed a wake-up that came too early.
        let waits = self.way.lock().is_ok_and(|way| !way.is_empty());
        waits.then_some(Instant::ZERO)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

fn mirror() -> Device {
    let (way, kick) = (Way::default(), KickSlot::new());
    let caps = Caps::new("mirror", 1500).completions(true);
    let stats = DeviceStats::default();
    Device {
        tx: Box::new(Tx { caps, way: Arc::clone(&way), kick: kick.clone(), stats }),
        rx: Box::new(Rx { way, kick: kick.clone(), stats }),
        wait: WaitSource::from_kick(kick),
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stack = Stack::builder().device(mirror()).address("192.0.2.1/24").build()?;
    let peer = "192.0.2.9:7".parse()?;
    let refused = TcpStream::connect_timeout(&stack, &peer, Duration::from_millis(100));
    assert!(refused.is_err(), "the stack's own SYN is for another address");
    let returned = stack.counters().into_iter().find(|(name, _)| *name == "IpInAddrErrors");
    let returned = returned.ok_or("no such counter")?.1;
    assert!(returned >= 1, "but the device returned it");
    println!("{returned} packets came back");
    Ok(())
}
