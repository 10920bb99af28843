//! Where a run in real time happens: fresh stacks on a link in memory, or one that faces the
//! kernel over TUN.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Options, Stack, StackBuilder};
use serde_json::{Map, Value, json};

use crate::event_loop::{SCRATCH_BYTES, WhenIdle};
use crate::experiment::pin::{OnCpu, Setting};
use crate::experiment::{OTHER_WORK_PATH, Plan, Run};
use crate::kernel::{self, Peer};
use crate::workload::{Kind, Measured, Workload};

const CLIENT: &str = "192.0.2.1/24";
const SERVER: &str = "192.0.2.2/24";
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT: u16 = 5001;

/// How long the other side of a run that is over may take.
const GRACE: Duration = Duration::from_secs(2);

/// What lies between the two sides.
#[derive(Clone, Debug)]
pub enum Link {
    /// A link in memory to a second stack.
    Memory(LinkConfig),
    /// A TUN device to the kernel.
    Tun,
}

/// Everything that one run needs.
#[derive(Clone, Debug)]
pub struct Stage<'a> {
    /// What lies between the sides.
    pub link: Link,
    /// Settings of our stacks. Those that this build does not have are left out.
    pub settings: &'a [Setting],
    /// Further ones, of the client's stack only.
    pub client_settings: &'a [Setting],
    /// Further ones, of the server's stack only.
    pub server_settings: &'a [Setting],
    /// Settings of the kernel, where it is the peer.
    pub peer_settings: &'a [Setting],
    /// The queueing discipline of the client's device, as `tc` takes it, if not the default.
    pub qdisc: Option<&'a str>,
    /// The softirq thread of the client spins while packets are in its device.
    pub spin: bool,
    /// A thread that answers gives its processor away once before it does.
    pub gives_way: bool,
    /// Blocking threads and softirq threads, or event loops.
    pub threads: bool,
    /// Processors of the client's applications, of its softirq thread, and of the server's side.
    pub cpus: [usize; 3],
    /// The client's routes have the attribute quickack.
    pub quickack: bool,
    /// Options of the client's sockets.
    pub options: Options,
    /// Options of the server's sockets, if they differ.
    pub server_options: Option<Options>,
    /// What a thread reads of bulk data at once, in bytes.
    pub read_bytes: usize,
    /// How many buffers such a thread fills in turn.
    pub read_buffers: usize,
    /// A thread that sends bulk data copies nothing.
    pub shared: bool,
    /// The behaviour of an event loop that has nothing to do.
    pub idle: WhenIdle,
    /// Where a capture of the client's device goes.
    pub pcap: Option<PathBuf>,
}

/// Whether this build has a setting.
pub fn is_known(name: &str) -> bool {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    let names = || {
        let (device, _) = memory_link::pair(LinkConfig::default());
        let stack = Stack::builder().device(device).address(CLIENT).build_without_thread();
        let sysctls = stack.map(|stack| stack.sysctls()).unwrap_or_default();
        sysctls.into_iter().map(|(name, _)| name).collect()
    };
    NAMES.get_or_init(names).contains(&name)
}

/// Settings for a document, each with its value, or with a word about its absence.
pub fn pinned(settings: &[Setting]) -> Map<String, Value> {
    let value = |&(name, value): &Setting| {
        let value = if is_known(name) { json!(value) } else { json!("not in this build: off") };
        (name.to_owned(), value)
    };
    settings.iter().map(value).collect()
}

/// A plain link in memory between event loops, with the default settings, all on one processor.
impl Default for Stage<'_> {
    fn default() -> Self {
        Stage {
            link: Link::Memory(LinkConfig::default()),
            settings: &[],
            client_settings: &[],
            server_settings: &[],
            peer_settings: &[],
            qdisc: None,
            spin: false,
            gives_way: false,
            threads: false,
            cpus: [0; 3],
            quickack: false,
            options: Options::default(),
            server_options: None,
            read_bytes: SCRATCH_BYTES,
            read_buffers: 1,
            shared: false,
            idle: WhenIdle::Sleep,
            pcap: None,
        }
    }
}

impl Stage<'_> {
    /// Runs a workload for a time.
    ///
    /// # Errors
    /// If the sides cannot be set up or a connection fails.
    pub fn measure(&self, plan: &Plan, kind: Kind, flows: u32) -> anyhow::Result<Measured> {
        let workload = self.workload(plan, kind, flows)?;
        let measured = workload.measure();
        // The last packets of closing connections leave before the devices go.
        workload.client.shutdown(GRACE);
        // No thread of this run is still running in the next.
        workload.server.map(|server| server.shutdown(Duration::ZERO));
        measured
    }

    fn workload(&self, plan: &Plan, kind: Kind, flows: u32) -> anyhow::Result<Workload> {
        let (client, server, peer, remote) = match &self.link {
            Link::Memory(config) => {
                let (here, there) = memory_link::pair(config.clone());
                let client = Stack::builder().device(here).address(CLIENT);
                let server = Stack::builder().device(there).address(SERVER);
                let client = self.finish(client, "client-softirq", self.cpus[1], true)?;
                let server = self.finish(server, "server-softirq", self.cpus[2], false)?;
                let remote = SocketAddr::from(SocketAddrV4::new(SERVER_ADDRESS, PORT));
                (client, Some(server), None, remote)
            }
            Link::Tun => {
                let (peer, device) = Peer::start(kind, self.cpus[2], self.peer_settings)?;
                let client = Stack::builder().device(device).address(kernel::OURS);
                let client = self.finish(client, "client-softirq", self.cpus[1], true)?;
                let remote = peer.address();
                (client, None, Some(Arc::new(peer)), remote)
            }
        };
        Ok(Workload {
            kind,
            flows,
            options: self.options.clone(),
            server_options: self.server_options.as_ref().unwrap_or(&self.options).clone(),
            read_bytes: self.read_bytes,
            read_buffers: self.read_buffers,
            shared: self.shared,
            write_buffer: None,
            length: plan.length,
            warm_up: Some(plan.warm_up),
            cpus: Some([self.cpus[0], self.cpus[2]]),
            gives_way: self.gives_way,
            threads: self.threads,
            idle: self.idle,
            client,
            server,
            peer,
            remote,
        })
    }

    /// Builds a stack; its softirq thread, if there is one, runs on `cpu`.
    fn finish(
        &self,
        mut builder: StackBuilder,
        name: &str,
        cpu: usize,
        client: bool,
    ) -> anyhow::Result<Stack> {
        let _on = OnCpu::enter(cpu)?;
        let own = if client { self.client_settings } else { self.server_settings };
        let settings = self.settings.iter().chain(own);
        for &(name, value) in settings.filter(|(name, _)| is_known(name)) {
            builder = builder.sysctl(name, value);
        }
        if let Some(path) = self.pcap.as_ref().filter(|_| client) {
            builder = builder.pcap(path);
        }
        if let Some(qdisc) = self.qdisc.filter(|_| client) {
            builder = builder.qdisc(qdisc);
        }
        let builder = builder.quickack(self.quickack && client);
        let builder = builder.name(name).spin_while_sending(self.spin && client);
        let built = if self.threads { builder.build() } else { builder.build_without_thread() };
        built.context("cannot build a stack")
    }
}

/// The figures of a run, with the processor time of each role beside them.
pub fn figures(measured: &Measured, kind: &Kind) -> Run {
    let mut more = Map::new();
    more.insert("cpu_seconds_by_role".into(), json!(measured.roles()));
    more.insert(OTHER_WORK_PATH.into(), json!(measured.other_work()));
    Run { figures: measured.figures(kind), more }
}
