//! Where a way is measured: the program that answers, the network in front of it, and its peer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::{Kind, Network, Peer, Processors, Sample, Way, Work};
use crate::bench::stage::number;
use crate::harness::netns::{Namespace, run};
use crate::harness::process::Process;
use crate::harness::veth::{FAR, Veth};
use crate::harness::world::{DEVICE, KERNEL, OURS, START, World};

/// The largest packet that is not cut: 4 KB travel whole. A TAP device has a link header as well.
const MTU: u16 = 65_535;
const TAP_MTU: u16 = 65_521;

/// Where frames for the program go. No device has this address, so the kernel there leaves them
/// alone.
const LINK_ADDRESS: &str = "02:00:00:00:00:02";

/// Ports of the echo and of the sink.
const ECHO: u16 = 7;
const DISCARD: u16 = 9;

/// Bytes of a datagram of bulk data: what fits into a packet of 1500.
const BULK: &str = "1472";

/// For how many microseconds the socket of a peer that polls does so.
const BUSY_POLL: &str = "50";

/// How long a run may take beyond its time.
const GRACE: Duration = Duration::from_secs(5);

/// What a program says that cannot go its way.
const UNAVAILABLE: &str = "unavailable: ";

/// What became of a program.
pub(super) enum Start {
    Answers(Stage),
    /// Why it does not.
    Unavailable(String),
}

/// A program that answers. Fields are dropped in this order: first the process, then its network.
pub(super) struct Stage {
    server: Process,
    network: Laid,
    program: PathBuf,
    peer: Peer,
}

/// A network that is there.
enum Laid {
    Tun(World),
    Tap(Namespace),
    Pair(Veth),
}

impl Laid {
    fn new(network: Network) -> Result<Laid> {
        match network {
            Network::Tun => World::with_mtu(MTU).map(Laid::Tun),
            Network::Tap => tap().map(Laid::Tap),
            Network::Veth => pair().map(Laid::Pair),
            Network::Frames | Network::Sums => {
                let pair = pair()?;
                pair.far.ip(&format!("addr del {FAR}/24 dev v1"))?;
                pair.near.ip(&format!("neigh add {FAR} lladdr {LINK_ADDRESS} dev v0"))?;
                Ok(Laid::Pair(pair))
            }
        }
    }

    /// Where the peer runs, and its device.
    fn near(&self) -> (&Namespace, &'static str) {
        match self {
            Laid::Tun(world) => (&world.ns, DEVICE),
            Laid::Tap(ns) => (ns, DEVICE),
            Laid::Pair(pair) => (&pair.near, "v0"),
        }
    }

    /// Where the program runs, its device and its address.
    fn far(&self) -> (&Namespace, &'static str, &'static str) {
        match self {
            Laid::Tun(world) => (&world.ns, DEVICE, OURS),
            Laid::Tap(ns) => (ns, DEVICE, OURS),
            Laid::Pair(pair) => (&pair.far, "v1", FAR),
        }
    }
}

fn pair() -> Result<Veth> {
    let pair = Veth::new()?;
    pair.near.ip(&format!("link set v0 mtu {MTU}"))?;
    pair.far.ip(&format!("link set v1 mtu {MTU}"))?;
    Ok(pair)
}

fn tap() -> Result<Namespace> {
    let ns = Namespace::new()?;
    ns.ip(&format!("tuntap add dev {DEVICE} mode tap"))?;
    ns.ip(&format!("link set {DEVICE} mtu {TAP_MTU}"))?;
    ns.ip(&format!("addr add {KERNEL}/24 dev {DEVICE}"))?;
    ns.ip(&format!("link set {DEVICE} up"))?;
    ns.ip(&format!("neigh add {OURS} lladdr {LINK_ADDRESS} dev {DEVICE}"))?;
    Ok(ns)
}

impl Stage {
    /// Starts the program of a way, and waits until it answers or says why it does not.
    pub(super) fn start(way: &Way, program: &Path, seconds: Duration) -> Result<Start> {
        let network = Laid::new(way.network)?;
        let name = program.to_str().context("the path of the program is text")?;
        let (near, near_device) = network.near();
        let feature = |feature: &str, state: &str| {
            let words = ["feature", near_device, feature, state];
            run(near.command(name).args(words)).map(drop)
        };
        if way.network == Network::Sums {
            feature("tx-checksum", "off")?;
        }
        if way.peer == Peer::Polls && matches!(network, Laid::Pair(_)) {
            feature("gro", "on")?;
        }
        let (far, device, address) = network.far();
        let mut command = far.command(name);
        command.args(["answer", way.word, device, address, &seconds.as_secs_f64().to_string()]);
        let mut server = spawn_on(Processors::One, way.name, &mut command)?;
        let said =
            server.wait_line(START, |line| line == "ready" || line.starts_with(UNAVAILABLE))?;
        if let Some(why) = said.strip_prefix(UNAVAILABLE) {
            return Ok(Start::Unavailable(why.to_owned()));
        }
        let program = program.to_owned();
        Ok(Start::Answers(Stage { server, network, program, peer: way.peer }))
    }

    /// Why the program has ended, if it has found out later that it cannot go its way.
    pub(super) fn unavailable(&self) -> Option<String> {
        let said = self.server.said();
        said.lines().find_map(|line| line.strip_prefix(UNAVAILABLE)).map(str::to_owned)
    }

    /// One run.
    pub(super) fn sample(&mut self, work: &Work, seconds: Duration) -> Result<Sample> {
        match work.kind {
            Kind::Echo { size, flows, processors } => {
                sample(&self.ask(size, flows, processors, seconds)?)
            }
            Kind::Bulk => sample(&self.count(seconds)?),
        }
    }

    /// What the client of the echo prints.
    fn ask(
        &self,
        size: usize,
        flows: usize,
        processors: Processors,
        seconds: Duration,
    ) -> Result<Value> {
        let (near, _) = self.network.near();
        let (_, _, address) = self.network.far();
        let mut command: Command = near.command(&self.program.to_string_lossy());
        let busy_poll = if self.peer == Peer::Polls { BUSY_POLL } else { "0" };
        command.arg("ask").arg(format!("{address}:{ECHO}"));
        command.args([&size.to_string(), &flows.to_string()]);
        command.args([&seconds.as_secs_f64().to_string(), busy_poll]);
        let ended = spawn_on(processors, "the client", &mut command)?.success(seconds + GRACE)?;
        serde_json::from_str(ended.stdout.trim()).context("the client prints JSON")
    }

    /// What the program prints of the datagrams that it has counted. They are sent until then.
    fn count(&mut self, seconds: Duration) -> Result<Value> {
        let (near, _) = self.network.near();
        let (_, _, address) = self.network.far();
        let longer = (seconds + GRACE).as_secs_f64().to_string();
        let mut command = near.program(&["peer", "udp-send"])?;
        command.arg(format!("{address}:{DISCARD}"));
        command.args(["--size", BULK, "--calls", "trains", "--seconds", &longer]);
        let _sender = spawn_on(Processors::Two, "the sender", &mut command)?;
        let line = self.server.wait_line(seconds + GRACE, |line| line.starts_with('{'))?;
        serde_json::from_str(&line).context("the program prints JSON")
    }
}

/// Starts a program where the one that answers runs, or beside it. A process stays where the thread
/// was that has started it.
fn spawn_on(processors: Processors, name: &str, command: &mut Command) -> Result<Process> {
    let before = sched_getaffinity(None).context("reading the processors of a thread")?;
    sched_setaffinity(None, &place(&before, processors)?).context("pinning a thread")?;
    let process = Process::spawn(name, command);
    sched_setaffinity(None, &before).context("letting a thread go where it likes")?;
    process
}

/// One of two processors that may be used: the last one is that of the program.
fn place(usable: &CpuSet, processors: Processors) -> Result<CpuSet> {
    let mut last = (0..CpuSet::MAX_CPU).rev().filter(|processor| usable.is_set(*processor));
    let processor = match processors {
        Processors::One => last.next(),
        Processors::Two => last.nth(1),
    };
    let mut one = CpuSet::new();
    one.set(processor.context("two processors are needed")?);
    Ok(one)
}

/// Of what a program has printed.
fn sample(said: &Value) -> Result<Sample> {
    let amount = number(said, "amount")?;
    let (seconds, packets) = (number(said, "seconds")?, number(said, "packets")?);
    ensure!(amount > 0.0 && seconds > 0.0 && packets > 0.0, "nothing was moved: {said}");
    let busy = number(said, "busy_seconds")? / amount;
    Ok(Sample { rate: amount / seconds, busy, each: amount / packets })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_program_has_the_last_processor() {
        let mut usable = CpuSet::new();
        [1, 3, 6].into_iter().for_each(|processor| usable.set(processor));
        let chosen = |processors| {
            let set = place(&usable, processors).unwrap();
            (0..8).filter(|processor| set.is_set(*processor)).collect::<Vec<_>>()
        };
        assert_eq!((chosen(Processors::One), chosen(Processors::Two)), (vec![6], vec![3]));
        assert!(place(&CpuSet::new(), Processors::Two).is_err());
    }

    #[test]
    fn samples_are_rates() {
        let said = json!({
            "amount": 1000, "seconds": 0.5, "busy_seconds": 0.25, "packets": 10,
        });
        let wanted = Sample { rate: 2000.0, busy: 0.000_25, each: 100.0 };
        assert_eq!(sample(&said).unwrap(), wanted);
        let nothing = json!({ "amount": 0, "seconds": 1, "busy_seconds": 0, "packets": 0 });
        assert!(sample(&nothing).is_err());
        assert!(sample(&json!({})).is_err());
    }
}
