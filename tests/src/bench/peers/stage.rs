//! Where a stack runs: its server, the network in front of it, and the namespace of the client.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::forwarder::{Forwarded, Forwarder};
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::veth::{FAR, Veth};
use crate::harness::world::{DEVICE, OURS, START, World};

/// The port of every server.
const PORT: u16 = 5000;

/// A stack that is compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stack {
    /// As it is named on the command line; `peer-NAME` is its server.
    pub(super) name: &'static str,
    /// As it is shown, with what it sits on.
    pub(super) title: &'static str,
    network: Network,
}

/// What lies between the client's kernel and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// A veth pair to a kernel.
    Veth,
    /// A TUN device.
    Tun,
    /// A TUN device that may have several queues.
    TunQueues,
    /// A veth pair, from whose far end the stack takes Ethernet frames by AF_PACKET. The kernel
    /// there has no address, so it leaves them alone.
    Frames,
    /// A TAP device, whose other end a program has that carries what it reads there on by sockets
    /// of the host. Behind these is a veth pair to a kernel, as in the kernel's own run.
    Forwarder(Forwarder),
}

/// The first is what the others are compared with.
pub(super) const STACKS: [Stack; 9] = [
    Stack { name: "kernel", title: "kernel, veth", network: Network::Veth },
    Stack { name: "ours", title: "Plimsoll, TUN", network: Network::TunQueues },
    Stack { name: "gvisor", title: "gVisor, AF_PACKET", network: Network::Frames },
    Stack { name: "smoltcp", title: "smoltcp, TUN", network: Network::Tun },
    Stack { name: "netstack-smoltcp", title: "netstack-smoltcp, TUN", network: Network::Tun },
    Stack { name: "ipstack", title: "ipstack, TUN", network: Network::Tun },
    Stack { name: "lwip", title: "lwIP, TUN", network: Network::Tun },
    Stack { name: "pasta", title: "pasta", network: Network::Forwarder(Forwarder::Pasta) },
    Stack {
        name: "slirp4netns",
        title: "slirp4netns",
        network: Network::Forwarder(Forwarder::Slirp4netns),
    },
];

impl Stack {
    /// What stands between the client and the kernel's own server, if this is no server.
    pub(super) fn forwarder(&self) -> Option<Forwarder> {
        match self.network {
            Network::Forwarder(forwarder) => Some(forwarder),
            _ => None,
        }
    }
}

/// A server that runs. Fields are dropped in this order: first the process, then its network.
pub(super) struct Stage {
    server: Process,
    network: Laid,
}

/// A network that is there.
enum Laid {
    Pair(Veth),
    Tun(World),
    Forwarded(Forwarded),
}

impl Laid {
    fn new(network: Network) -> Result<Laid> {
        Ok(match network {
            Network::Veth => Laid::Pair(Veth::new()?),
            Network::Tun => Laid::Tun(World::new()?),
            Network::TunQueues => Laid::Tun(World::with_queues()?),
            Network::Frames => {
                let pair = Veth::new()?;
                pair.far.ip(&format!("addr del {FAR}/24 dev v1"))?;
                Laid::Pair(pair)
            }
            Network::Forwarder(forwarder) => Laid::Forwarded(Forwarded::new(forwarder)?),
        })
    }

    /// Where the client runs.
    fn client(&self) -> &Namespace {
        match self {
            Laid::Pair(pair) => &pair.near,
            Laid::Tun(world) => &world.ns,
            Laid::Forwarded(forwarded) => &forwarded.inner,
        }
    }

    /// Where the server runs, and its device and address.
    fn server(&self) -> (&Namespace, &'static str, &'static str) {
        match self {
            Laid::Pair(pair) => (&pair.far, "v1", FAR),
            Laid::Tun(world) => (&world.ns, DEVICE, OURS),
            Laid::Forwarded(forwarded) => (&forwarded.host.far, "v1", FAR),
        }
    }
}

impl Stage {
    /// Starts the server of `stack`, and waits until it accepts connections.
    pub(super) fn new(stack: &Stack, program: &Path) -> Result<Stage> {
        let network = Laid::new(stack.network)?;
        many_connections(network.client())?;
        let (ns, device, address) = network.server();
        let mut command = ns.command(&program.to_string_lossy());
        command.args([device, &format!("{address}:{PORT}")]);
        let mut server = Process::spawn(stack.name, &mut command)?;
        server.wait_line(START, |line| line == "ready")?;
        Ok(Stage { server, network })
    }

    /// The client with these words.
    fn ask(&self, words: &[&str]) -> Result<Command> {
        let (_, _, address) = self.network.server();
        let mut command = self.network.client().program(&["peer", "ask"])?;
        command.arg(format!("{address}:{PORT}")).args(words);
        Ok(command)
    }

    /// Runs the client and returns the JSON that it prints. It is killed after `limit`.
    pub(super) fn measured(&mut self, words: &[&str], limit: Duration) -> Result<Value> {
        let client = Process::spawn("client", &mut self.ask(words)?)?.success(limit);
        let said = client.map_err(|error| self.with_words_of_server(error))?.stdout;
        serde_json::from_str(said.trim()).context("the client prints JSON")
    }

    /// Starts a client that goes on until it is dropped, and waits until it says `word`.
    pub(super) fn held(&mut self, words: &[&str], word: &str, limit: Duration) -> Result<Process> {
        let mut client = Process::spawn("client", &mut self.ask(words)?)?;
        let said = client.wait_line(limit, |line| line == word);
        said.map_err(|error| self.with_words_of_server(error))?;
        Ok(client)
    }

    /// The number of the process that is measured: the server's or, if there is one, that of the
    /// program in front of it.
    pub(super) fn id(&self) -> String {
        let measured = match &self.network {
            Laid::Forwarded(forwarded) => &forwarded.process,
            Laid::Pair(_) | Laid::Tun(_) => &self.server,
        };
        measured.id().to_string()
    }

    fn with_words_of_server(&mut self, error: anyhow::Error) -> anyhow::Error {
        let error = error.context(last_words("the server", &mut self.server));
        match &mut self.network {
            Laid::Forwarded(forwarded) => {
                error.context(last_words("what forwards", &mut forwarded.process))
            }
            Laid::Pair(_) | Laid::Tun(_) => error,
        }
    }
}

fn last_words(what: &str, process: &mut Process) -> String {
    let state = if process.alive() { "runs" } else { "has ended" };
    let said = process.said();
    let last = said.lines().rfind(|line| !line.is_empty() && *line != "ready");
    format!("{what} {state}; its last words: {}", last.unwrap_or("none"))
}

/// Lets a namespace open as many connections in a row as it likes: those that it has ended keep
/// their ports for a while.
pub(in crate::bench) fn many_connections(ns: &Namespace) -> Result<()> {
    ns.sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
    ns.sysctl("net/ipv4/tcp_tw_reuse", "1")
}

/// The stack of a name.
pub(super) fn stack(name: &str) -> Result<&'static Stack> {
    let Some(stack) = STACKS.iter().find(|stack| stack.name == name) else {
        let known: Vec<&str> = STACKS.iter().map(|stack| stack.name).collect();
        bail!("there is no stack `{name}`; there are: {}", known.join(" "));
    };
    Ok(stack)
}
