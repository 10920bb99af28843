//! Where tun2proxy runs: the client's side, a host with tun2proxy, and the far side.
//!
//! The far side has a SOCKS5 server and, behind it, what clients ask for. tun2proxy's host and the
//! far side are joined by a veth pair. On a clean path the clients run on tun2proxy's own host, as
//! a user's programs do. Else they are in a third namespace, behind `plimsoll link`, which delays
//! and loses; the host then forwards their packets to tun2proxy's TUN device.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::world::{START, plimsoll_program};

/// The far side of the veth pair, where the SOCKS5 server listens, and the near one.
const PROXY: &str = "198.51.100.2";
const NEAR: &str = "198.51.100.1";
/// What clients connect to, and the network that is routed into tun2proxy.
pub(super) const TARGET: &str = "192.0.2.129";
const TARGETS: &str = "192.0.2.128/25";
/// The clients' address on a clean path.
const HOST: &str = "192.0.2.3";
/// The two ends of the path with delay or loss.
const CLIENT: &str = "192.0.2.1";
const ROUTER: &str = "192.0.2.2";

const SOCKS_PORT: u16 = 1080;
pub(super) const FILE_PORT: u16 = 8080;
pub(super) const ECHO_PORT: u16 = 7;

const DEVICE: &str = "tun0";
/// How often it is looked whether something has begun that does not say so.
const LOOK: Duration = Duration::from_millis(5);

/// What lies between the clients and tun2proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Milliseconds there and back together.
    pub(super) round_trip: u32,
    /// Of a hundred packets, so many are lost, each way.
    pub(super) loss: u32,
}

impl Line {
    /// Whether there is nothing in between.
    pub(super) fn is_clean(self) -> bool {
        self.round_trip == 0 && self.loss == 0
    }

    pub(super) fn name(self) -> String {
        format!("{} ms, {} % loss", self.round_trip, self.loss)
    }
}

/// What the far side offers beside the SOCKS5 server.
#[derive(Clone, Copy)]
pub(super) enum Service {
    /// A server of iperf3.
    Iperf,
    /// A file of so many bytes over HTTP.
    File(u64),
    /// An echo and a server of iperf3.
    Echo,
}

/// Three namespaces, or two, with all that runs in them. Fields are dropped in this order: first
/// processes, then namespaces.
pub(super) struct Stage {
    tun2proxy: Process,
    _servers: Vec<Process>,
    _link: Option<Process>,
    client: Option<Namespace>,
    host: Namespace,
    _far: Namespace,
}

impl Stage {
    /// Starts it all, and tun2proxy last. `seed` chooses what the path loses.
    pub(super) fn new(program: &Path, line: Line, service: Service, seed: u64) -> Result<Stage> {
        let (host, far) = (Namespace::new()?, Namespace::new()?);
        join(&host, &far)?;
        let mut servers = vec![peer(&far, "socks", &format!("{PROXY}:{SOCKS_PORT}"), &[])?];
        servers.extend(serve(&far, service)?);
        let (client, link) = if line.is_clean() {
            (None, None)
        } else {
            let (client, link) = distant(&host, line, seed)?;
            (Some(client), Some(link))
        };
        let tun2proxy = tun2proxy(&host, program)?;
        Ok(Stage { tun2proxy, _servers: servers, _link: link, client, host, _far: far })
    }

    /// A program of the clients' side.
    pub(super) fn client(&self, program: &str) -> Command {
        self.client.as_ref().unwrap_or(&self.host).command(program)
    }

    /// tun2proxy's process number.
    pub(super) fn id(&self) -> String {
        self.tun2proxy.id().to_string()
    }

    /// Whether tun2proxy still runs; if not, what it said.
    pub(super) fn check(&mut self) -> Result<()> {
        if self.tun2proxy.alive() {
            return Ok(());
        }
        bail!("tun2proxy has ended:\n{}", self.tun2proxy.said())
    }
}

/// Puts a veth pair between the host and the far side, and the clients' target behind it.
fn join(host: &Namespace, far: &Namespace) -> Result<()> {
    host.ip(&format!("link add v0 type veth peer name v1 netns {}", far.name()))?;
    host.ip(&format!("addr add {NEAR}/24 dev v0"))?;
    far.ip(&format!("addr add {PROXY}/24 dev v1"))?;
    far.ip(&format!("addr add {TARGET}/32 dev lo"))?;
    host.ip("link set v0 up")?;
    far.ip("link set v1 up").map(drop)
}

fn serve(far: &Namespace, service: Service) -> Result<Vec<Process>> {
    Ok(match service {
        Service::Iperf => vec![iperf(far)?],
        Service::Echo => vec![iperf(far)?, peer(far, "echo", &target(ECHO_PORT), &[])?],
        Service::File(bytes) => {
            vec![peer(far, "file", &target(FILE_PORT), &["--bytes", &bytes.to_string()])?]
        }
    })
}

fn iperf(far: &Namespace) -> Result<Process> {
    let mut command = far.command("iperf3");
    command.args(["-s", "-B", TARGET, "--forceflush"]);
    let mut iperf = Process::spawn("iperf3 -s", &mut command)?;
    iperf.wait_line(START, |line| line.starts_with("Server listening"))?;
    Ok(iperf)
}

/// Where clients find a service.
pub(super) fn target(port: u16) -> String {
    format!("{TARGET}:{port}")
}

fn peer(far: &Namespace, name: &str, address: &str, words: &[&str]) -> Result<Process> {
    let mut command = this_program(far)?;
    command.args(["peer", name, address]).args(words);
    let mut peer = Process::spawn(name, &mut command)?;
    peer.wait_line(START, |line| line == "ready")?;
    Ok(peer)
}

fn this_program(ns: &Namespace) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(ns.command(&program.to_string_lossy()))
}

/// A namespace for clients whose packets reach the host late, or not at all.
fn distant(host: &Namespace, line: Line, seed: u64) -> Result<(Namespace, Process)> {
    let client = Namespace::new()?;
    for (ns, device, address) in [(&client, "near", CLIENT), (host, "path", ROUTER)] {
        ns.ip(&format!("tuntap add dev {device} mode tun"))?;
        ns.ip(&format!("addr add {address}/25 dev {device}"))?;
        ns.ip(&format!("link set {device} up"))?;
    }
    client.ip(&format!("route add {TARGETS} via {ROUTER}"))?;
    host.sysctl("net/ipv4/ip_forward", "1")?;
    let mut command = Command::new(plimsoll_program()?);
    let place = |device, ns: &Namespace| format!("tun:{device}@{}", ns.name());
    command.args(["link", "--left", &place("near", &client), "--right", &place("path", host)]);
    let (one_way, loss) = (f64::from(line.round_trip) / 2.0, line.loss);
    command.args(["--link", &format!("delay={one_way}ms,loss={loss}%"), "--check", "0"]);
    let mut link = Process::spawn("plimsoll link", command.args(["--seed", &seed.to_string()]))?;
    link.wait_line(START, |line| line.starts_with("carrying between"))?;
    Ok((client, link))
}

/// Starts tun2proxy on a TUN device into which the target is routed.
fn tun2proxy(host: &Namespace, program: &Path) -> Result<Process> {
    host.ip(&format!("tuntap add dev {DEVICE} mode tun"))?;
    host.ip(&format!("addr add {HOST}/32 dev {DEVICE}"))?;
    host.ip(&format!("link set {DEVICE} up"))?;
    host.ip(&format!("route add {TARGETS} dev {DEVICE}"))?;
    let mut command = host.command(&program.to_string_lossy());
    command.args(["--tun", DEVICE, "--proxy", &format!("socks5://{PROXY}:{SOCKS_PORT}")]);
    command.args(["--verbosity", "warn"]);
    let mut process = Process::spawn("tun2proxy", &mut command)?;
    // The device has a carrier as long as a program has it open.
    let up = until("tun2proxy has opened its device", || {
        Ok(host.ip(&format!("-o link show {DEVICE}"))?.contains("LOWER_UP"))
    });
    if let Err(error) = up {
        let ended = if process.alive() { "" } else { "it has ended: " };
        bail!("{error:#}; {ended}{}", process.said());
    }
    Ok(process)
}

/// Waits for something that nobody announces.
fn until(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + START;
    while !holds()? {
        if Instant::now() > deadline {
            bail!("not in {START:?}: {what}");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
