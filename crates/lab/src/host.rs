//! The host's own TCP on the same workload: two network namespaces joined by a veth pair.
//!
//! # Theory of operation
//!
//! Both [namespaces](namespace) are made for one run, and so is the pair. They have no name, only
//! descriptors that this process holds, so they go when the run is over, however the process ends.
//! The [threads](crate::workload) are those of our own stacks, on the host's [`sockets`], which use
//! CUBIC whatever the host prefers. A thread that waits for a socket is bounded in time, and after
//! a failure every socket is shut down and every thread has ended before the failure is told.
//!
//! What is measured comes from the [`counters`] of each namespace, which is the only thing in it,
//! and from the same clocks as for our own stacks.
//!
//! Settings are made in the new namespaces only. One that the kernel has only once does not exist
//! there, so setting it fails; nothing of the host is ever changed.
//!
//! # What differs from a link in memory
//!
//! The pair is as the kernel makes it: an MTU of 1500, and super-segments go over it whole. What a
//! thread sends is received by the other side's kernel in the same thread, before its write
//! returns; so a packet is complete at once, and processor time of receiving is counted where the
//! sending was.
//!
//! The pair has no rate. A token bucket that lets through no more at once than a packet or two,
//! so that packets wait as for a serialising link, wakes up for each of them and falls far short
//! of rates of gigabits; one with room for more holds up nothing at all below its rate, which the
//! kernel does not reach in small writes.
//!
//! It needs root and the program `ip`.

mod counters;
pub(crate) mod namespace;
mod sockets;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::event_loop::SCRATCH_BYTES;
use crate::experiment::Plan;
use crate::experiment::pin::Setting;
use crate::workload::threads::{self, Terms};
use crate::workload::{Kind, Measured};
use namespace::Namespace;
use sockets::Network;

pub use sockets::Buffers;

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SUBNET: &str = "192.0.2.0/24";
const PORT: u16 = 5001;

/// The client's end of the pair, and the server's.
const DEVICES: [&str; 2] = ["veth0", "veth1"];

/// A word about columns of the kernel in an experiment whose knob it does not have.
pub const NO_KNOB: &str = "the kernel's column: its own TCP, which has no such knob, over veth, \
                           where all of receiving but the reader's copy happens in the thread that \
                           sends, and counts as its CPU";

/// Why the host's own TCP cannot run beside ours, and what to do about it; `None` if it can.
pub fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, to make network namespaces: run it with sudo".into());
    }
    if let Err(error) = Command::new("ip").arg("-V").output() {
        return Some(format!("the program ip cannot be run (install iproute2): {error}"));
    }
    let pair = Pair::new(&Stage::default()).err()?;
    Some(format!("two network namespaces and a veth pair cannot be made: {pair:#}"))
}

/// Whether this kernel has a setting that each namespace has for itself.
///
/// # Errors
/// If a namespace cannot be made, or its settings cannot be seen.
pub fn has(name: &str) -> anyhow::Result<bool> {
    Namespace::new()?.inside(|| {
        let path = namespace::path(name);
        path.try_exists().with_context(|| format!("cannot see {}", path.display()))
    })
}

/// Everything that one run needs.
#[derive(Clone, Debug)]
pub struct Stage<'a> {
    /// Settings of both namespaces, by name: `net.ipv4.tcp_autocorking`.
    pub settings: &'a [Setting],
    /// The client's route has the attribute quickack.
    pub quickack: bool,
    /// The processors of the client's threads and of the server's.
    pub cpus: [usize; 2],
    /// A thread that answers gives its processor away once before it does.
    pub gives_way: bool,
    /// Buffers of the client's sockets.
    pub client: Buffers,
    /// Buffers of the server's sockets.
    pub server: Buffers,
    /// What a thread reads of bulk data at once, in bytes.
    pub read_bytes: usize,
    /// How many buffers such a thread fills in turn.
    pub read_buffers: usize,
    /// A thread of the server that sends bulk data copies nothing (sendfile).
    pub shared: bool,
}

/// As the kernel has it, all on one processor.
impl Default for Stage<'_> {
    fn default() -> Self {
        Stage {
            settings: &[],
            quickack: false,
            cpus: [0; 2],
            gives_way: false,
            client: Buffers::default(),
            server: Buffers::default(),
            read_bytes: SCRATCH_BYTES,
            read_buffers: 1,
            shared: false,
        }
    }
}

impl Stage<'_> {
    /// Runs a workload: for the time of the plan after its warm-up, or from beginning to end if it
    /// has an end.
    ///
    /// # Errors
    /// If the namespaces cannot be set up as asked for, or a connection fails. Nothing is left
    /// behind.
    pub fn measure(&self, plan: &Plan, kind: Kind, flows: u32) -> anyhow::Result<Measured> {
        descriptors(u64::from(flows) * 2 + 64)?;
        let pair = Pair::new(self)?;
        let listener = pair.server.inside(|| self.server.listen(SERVER, PORT))?;
        let terms = terms(self, plan, kind, flows);
        let Pair { client, server } = pair;
        let counters = [client.counters()?, server.counters()?];
        let remote = SocketAddrV4::new(SERVER, PORT);
        let network = Network::new(remote, self.client, listener, counters);
        // The threads are started from within the client's namespace, so they are in it as well.
        client.inside(|| threads::run(terms, network))
    }
}

/// What the threads of a run are told.
fn terms(stage: &Stage, plan: &Plan, kind: Kind, flows: u32) -> Terms {
    Terms {
        kind,
        flows,
        read_bytes: stage.read_bytes,
        read_buffers: stage.read_buffers,
        shared: stage.shared,
        write_buffer: None,
        length: plan.length,
        warm_up: kind.is_endless().then_some(plan.warm_up),
        bounded: true,
        cpus: Some(stage.cpus),
        gives_way: stage.gives_way,
    }
}

/// Two namespaces and what joins them. It ends when this is dropped and all sockets are closed.
struct Pair {
    client: Namespace,
    server: Namespace,
}

impl Pair {
    fn new(stage: &Stage) -> anyhow::Result<Pair> {
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let [here, there] = DEVICES;
        let to = server.path();
        let to = to.to_str().context("a path in /proc is text")?;
        client.inside(|| {
            let pair = ["type", "veth", "peer", "name", there, "netns", to];
            run("ip", &[&["link", "add", here], &pair[..]].concat())
        })?;
        for (namespace, device, address) in [(&client, here, CLIENT), (&server, there, SERVER)] {
            let address = format!("{address}/24");
            namespace.inside(|| {
                stage.settings.iter().try_for_each(|&(name, value)| namespace::set(name, value))?;
                run("ip", &["addr", "add", &address, "dev", device])?;
                run("ip", &["link", "set", device, "up"])
            })?;
        }
        client.inside(|| {
            if stage.quickack {
                let address = CLIENT.to_string();
                let quick = ["dev", here, "src", &address, "quickack", "1"];
                run("ip", &[&["route", "change", SUBNET], &quick[..]].concat())?;
            }
            Ok(())
        })?;
        Ok(Pair { client, server })
    }
}

/// Runs a short program in the namespace of the calling thread.
fn run(program: &str, words: &[&str]) -> anyhow::Result<()> {
    let out = Command::new(program).args(words).output();
    let out = out.with_context(|| format!("cannot run {program}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{program} {}: {}", words.join(" "), said.trim());
    }
    Ok(())
}

/// Sees to it that this process may have so many open files, if the system lets it.
fn descriptors(wanted: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = Rlimit { current: Some(most), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the number of open files")
}

#[cfg(test)]
mod tests;
