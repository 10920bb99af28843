//! Where the gateways run: a host with another one beyond it, and a network namespace behind each
//! gateway.
//!
//! The servers are in the far namespace, the gateways in the near one, as an ordinary user. A
//! client enters the namespace that a gateway has made for its command. So the same client, with
//! the same rights, measures all of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::bench::peers::forwarder::Forwarder;
use crate::bench::peers::stage::many_connections;
use crate::harness::files::Scratch;
use crate::harness::netns::{Namespace, run};
use crate::harness::process::{Process, descendants, memory};
use crate::harness::unprivileged;
use crate::harness::veth::{FAR, Veth};
use crate::harness::world::{START, plimsoll_program};
use crate::peer::workload::cpu_seconds_of;
use crate::peer::{CONGESTION_CONTROL, raise_descriptor_limit};

/// The port of the server for streams.
pub(super) const PORT: u16 = 5000;

/// More than any gateway needs for a measurement; some have two for each connection.
const DESCRIPTORS: u64 = 20_000;

/// The command behind each gateway: it keeps the namespace, for longer than a round takes.
const COMMAND: [&str; 3] = ["sh", "-c", "echo ready; exec sleep 7200"];

/// How long nothing has happened when memory is looked at.
const REST: Duration = Duration::from_secs(1);

/// A gateway, or none: the column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The client is in the near namespace itself.
    Without,
    Plimsoll,
    /// Another build of it.
    Before,
    /// Plimsoll with rules.
    Rules,
    Pasta,
    Slirp4netns,
    GvisorTapVsock,
}

pub(super) const KINDS: [Kind; 7] = [
    Kind::Without,
    Kind::Plimsoll,
    Kind::Before,
    Kind::Rules,
    Kind::Pasta,
    Kind::Slirp4netns,
    Kind::GvisorTapVsock,
];

/// Rules, of which only the last two open the server.
const RULES: usize = 100;
/// The file with them.
const RULES_FILE: &str = "rules";

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Without => "without",
            Kind::Plimsoll => "Plimsoll",
            Kind::Before => "before",
            Kind::Rules => "with 100 rules",
            Kind::Pasta => "pasta",
            Kind::Slirp4netns => "slirp4netns",
            Kind::GvisorTapVsock => "gvisor-tap-vsock",
        }
    }

    pub(super) fn is_other(self) -> bool {
        !matches!(self, Kind::Without | Kind::Plimsoll)
    }

    /// The words that start it, with the command behind it if it runs one.
    fn words(self, mtu: u16, (namespace, rules): (u32, &str)) -> Vec<String> {
        let mtu = mtu.to_string();
        let before = match self {
            Kind::Without => Vec::new(),
            Kind::Plimsoll | Kind::Before => vec!["run", "-m", &mtu, "--"],
            Kind::Rules => vec!["run", "-m", &mtu, "--net-allow", rules, "--"],
            Kind::Pasta => {
                // The namespace has the host's address; no ports are opened on either side.
                let closed = ["-t", "none", "-u", "none", "-T", "none", "-U", "none"];
                let words = ["--foreground", "--config-net", "--no-map-gw", "-4", "-m", &mtu];
                [&words[..], &closed, &["--"]].concat()
            }
            Kind::Slirp4netns => {
                let namespace = namespace.to_string();
                let words = ["--configure", "--disable-host-loopback", "--ready-fd=3"];
                let of_run = [format!("--mtu={mtu}"), namespace, "tap0".to_owned()];
                return words.map(str::to_owned).into_iter().chain(of_run).collect();
            }
            Kind::GvisorTapVsock => vec![&*mtu],
        };
        before.into_iter().chain(COMMAND).map(str::to_owned).collect()
    }
}

/// Programs that are compared, apart from those of packages and ours.
pub(super) struct Programs {
    /// The server for streams, on the kernel's sockets.
    pub(super) server: PathBuf,
    pub(super) gvisor_tap_vsock: Option<PathBuf>,
    /// Another build of Plimsoll.
    pub(super) before: Option<PathBuf>,
}

impl Programs {
    /// The versions of the programs.
    pub(super) fn version(&self, kind: Kind) -> Result<String> {
        let first = |program: &Path| {
            let said = run(Command::new(program).arg("--version"))?;
            Ok(said.lines().next().unwrap_or_default().trim().to_owned())
        };
        match kind {
            Kind::Without => bail!("there is no program"),
            Kind::Plimsoll | Kind::Rules => first(&plimsoll_program()?),
            Kind::Before => first(self.before.as_ref().context("no program")?),
            Kind::Pasta => Forwarder::Pasta.version(),
            Kind::Slirp4netns => Forwarder::Slirp4netns.version(),
            Kind::GvisorTapVsock => first(self.gvisor_tap_vsock.as_ref().context("no program")?),
        }
    }
}

/// The two hosts. Fields are dropped in this order: first the processes, then the namespaces.
pub(super) struct World {
    _server: Process,
    pub(super) hosts: Veth,
    /// The programs, where an ordinary user may read them.
    scratch: Scratch,
    /// Of the gateways' sockets.
    pub(super) congestion_control: &'static str,
}

impl World {
    pub(super) fn new(programs: &Programs) -> Result<World> {
        raise_descriptor_limit(DESCRIPTORS)?;
        let (hosts, scratch) = (Veth::new()?, Scratch::new()?);
        // pasta copies the address of the interface with the default route.
        hosts.near.ip(&format!("route add default via {FAR} dev v0"))?;
        many_connections(&hosts.near)?;
        // A gateway's sockets have what its namespace prefers. It may take what the machine's
        // administrator allows, and Reno always; neither it nor CUBIC paces, as BBR does.
        let control = |name| hosts.near.sysctl("net/ipv4/tcp_congestion_control", name);
        let congestion_control = match control(CONGESTION_CONTROL) {
            Ok(()) => CONGESTION_CONTROL,
            Err(_) => control("reno").map(|()| "reno")?,
        };
        let ours = plimsoll_program()?;
        let copied = [
            (Kind::Plimsoll, Some(&ours)),
            (Kind::Rules, Some(&ours)),
            (Kind::Before, programs.before.as_ref()),
            (Kind::GvisorTapVsock, programs.gvisor_tap_vsock.as_ref()),
        ];
        std::fs::write(scratch.file(RULES_FILE), rules()).context(RULES_FILE)?;
        for (kind, program) in copied {
            let Some(program) = program else { continue };
            std::fs::copy(program, scratch.file(kind.name()))
                .with_context(|| format!("copying {}", program.display()))?;
        }
        let mut command = hosts.far.command(&programs.server.to_string_lossy());
        command.args(["v1", &format!("{FAR}:{PORT}")]);
        let mut server = Process::spawn("the server", &mut command)?;
        server.wait_line(START, |line| line == "ready")?;
        Ok(World { _server: server, hosts, scratch, congestion_control })
    }

    /// A program in the near namespace, as an ordinary user.
    fn user(&self, program: impl AsRef<Path>) -> Command {
        unprivileged::command(&self.hosts.near, self.scratch.path(), program)
    }

    /// The gateway with its words.
    fn command(&self, kind: Kind, mtu: u16, namespace: u32) -> Command {
        let mut command = match kind {
            Kind::Without | Kind::Plimsoll | Kind::Before | Kind::Rules | Kind::GvisorTapVsock => {
                self.user(self.scratch.file(kind.name()))
            }
            Kind::Pasta => self.user("pasta"),
            Kind::Slirp4netns => {
                // It writes "1" to a descriptor, without the end of a line.
                let mut shell = self.user("bash");
                let script = "exec slirp4netns \"$@\" 3> >(head -c 1 > /dev/null; echo ready)";
                shell.args(["-c", script, "bash"]);
                shell
            }
        };
        let rules = format!("@{}", self.scratch.file(RULES_FILE).display());
        command.args(kind.words(mtu, (namespace, &rules)));
        command
    }
}

/// Names, networks and datagrams, then the server.
fn rules() -> String {
    let rule = |number: usize| match number % 4 {
        0 => format!("10.{number}.0.0/16:8000-8999\n"),
        1 => format!("udp://192.0.2.{number}:53\n"),
        _ => format!("host{number}.example.com:443\n"),
    };
    let others: String = (0..RULES - 2).map(rule).collect();
    format!("{others}{FAR}\nudp://{FAR}\n")
}

/// A gateway that runs. Fields are dropped in this order: first the processes behind it.
pub(super) struct Gateway {
    /// Behind it. There is none without a gateway.
    inner: Option<Namespace>,
    processes: Vec<Process>,
    /// The numbers of its processes, without the command behind it.
    ids: Vec<u32>,
}

impl Gateway {
    /// Starts it, and waits until the namespace behind it has a network.
    pub(super) fn new(world: &World, kind: Kind, mtu: u16) -> Result<Gateway> {
        if kind == Kind::Without {
            return Ok(Gateway { inner: None, processes: Vec::new(), ids: Vec::new() });
        }
        let mut holder = None;
        if kind == Kind::Slirp4netns {
            let mut command = world.user("unshare");
            command.args(["--user", "--map-root-user", "--net"]).args(COMMAND);
            holder = Some(started("a namespace", &mut command)?);
        }
        let namespace = holder.as_ref().map_or(0, Process::id);
        let gateway = started(kind.name(), &mut world.command(kind, mtu, namespace))?;
        let mut ids = vec![gateway.id()];
        let command = match &holder {
            Some(holder) => holder.id(),
            None => {
                // The command is what all others have been started for.
                ids.extend(descendants(gateway.id())?);
                ids.pop_if(|id| *id != gateway.id()).context("no command behind the gateway")?
            }
        };
        let inner = Namespace::of_process(command)?;
        let processes = std::iter::once(gateway).chain(holder).collect();
        let links = inner.ip("-o link show up")?;
        let wanted = format!(" mtu {mtu} ");
        ensure!(links.contains(&wanted), "no interface has the MTU {mtu}: {links}");
        many_connections(&inner)?;
        Ok(Gateway { inner: Some(inner), processes, ids })
    }

    /// Where clients run.
    pub(super) fn clients<'a>(&'a self, world: &'a World) -> &'a Namespace {
        self.inner.as_ref().unwrap_or(&world.hosts.near)
    }

    /// User and system time of its processes so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        self.ids.iter().map(|id| cpu_seconds_of(&id.to_string())).sum()
    }

    /// The memory of its processes when nothing has happened for some time.
    pub(super) fn memory(&self) -> Result<Memory> {
        thread::sleep(REST);
        let sum = |file, field| {
            let each = self.ids.iter().map(|id| memory(&id.to_string(), file, field));
            each.sum::<Result<f64>>()
        };
        Ok(Memory { resident: sum("status", "VmRSS:")?, share: sum("smaps_rollup", "Pss:")? })
    }

    /// The last line that it has written, for the report of a failure.
    pub(super) fn last_words(&mut self) -> String {
        let Some(gateway) = self.processes.first_mut() else { return String::new() };
        let state = if gateway.alive() { "runs" } else { "has ended" };
        let said = gateway.said();
        let last = said.lines().rfind(|line| !line.is_empty() && *line != "ready");
        format!("; the gateway {state}, its last line: {}", last.unwrap_or("none"))
    }
}

/// Memory of all processes of a gateway, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory {
    /// The sum of what is resident. Memory that two processes share counts twice.
    pub(super) resident: f64,
    /// The sum of their proportional shares.
    pub(super) share: f64,
}

fn started(name: &str, command: &mut Command) -> Result<Process> {
    let mut process = Process::spawn(name, command)?;
    process.wait_line(START, |line| line == "ready")?;
    Ok(process)
}
