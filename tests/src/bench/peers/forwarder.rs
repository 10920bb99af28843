//! Programs that give a namespace a network without privileges on the host: pasta, slirp4netns.
//!
//! The client's namespace has a TAP device. Such a program ends the client's TCP there, or only
//! follows it, and carries the bytes on by sockets of the host's kernel; so it stands in front of a
//! server and is none. Three namespaces: the client's, the host's, in which the program runs, and
//! the server's, a veth pair away from the host's. The machine's own network has no part in it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::stage::many_connections;
use crate::harness::netns::{Namespace, run};
use crate::harness::process::Process;
use crate::harness::veth::{FAR, Veth};
use crate::harness::world::START;
use crate::peer::{CONGESTION_CONTROL, raise_descriptor_limit};

/// The TAP device in the client's namespace.
const DEVICE: &str = "tap0";

/// pasta's own, and the one that slirp4netns is started with for containers.
const MTU: &str = "65520";

/// Connections that are open when memory is looked at. For each of them pasta has a socket and a
/// timer, and not everybody may have more descriptors than a hard limit says, which is often
/// 20,000.
pub(super) const HELD: u32 = 5000;
const DESCRIPTORS: u64 = 3 * HELD as u64;

/// A program that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Forwarder {
    /// Of passt: it follows the TCP of both sides, and keeps no data of its own.
    Pasta,
    /// On libslirp: it ends the TCP of the namespace.
    Slirp4netns,
}

impl Forwarder {
    fn program(self) -> &'static str {
        match self {
            Forwarder::Pasta => "pasta",
            Forwarder::Slirp4netns => "slirp4netns",
        }
    }

    /// Debian's package of it.
    fn package(self) -> &'static str {
        match self {
            Forwarder::Pasta => "passt",
            Forwarder::Slirp4netns => "slirp4netns",
        }
    }

    /// Its version: that of Debian's package, since not all programs know theirs, or else what it
    /// says in its first line.
    pub(in crate::bench) fn version(self) -> Result<String> {
        let shown = ["-W", "-f", "${Package} ${Version}", self.package()];
        if let Ok(said) = run(Command::new("dpkg-query").args(shown)) {
            return Ok(said);
        }
        let said = run(Command::new(self.program()).arg("--version"))?;
        Ok(said.lines().next().unwrap_or_default().trim().to_owned())
    }

    /// It in the namespace `host`, for the network of `inner`.
    fn command(self, host: &Namespace, inner: &Namespace) -> Command {
        let mut command = host.command(self.program());
        let inner = format!("/run/netns/{}", inner.name());
        match self {
            Forwarder::Pasta => {
                // It has the address of the host, and no ports are opened on either side.
                command.args(["--foreground", "--config-net", "--runas", "0", "--no-map-gw"]);
                command.args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"]);
                command.args(["--mtu", MTU, "--ns-ifname", DEVICE]);
                command.args(["--netns-only", "--netns", &inner]);
            }
            Forwarder::Slirp4netns => {
                command.args(["--configure", "--mtu", MTU, "--disable-host-loopback"]);
                command.args(["--netns-type=path", &inner, DEVICE]);
            }
        }
        command
    }
}

/// One that runs. Fields are dropped in this order: first the process, then the namespaces.
pub(super) struct Forwarded {
    pub(super) process: Process,
    /// Where the client runs.
    pub(super) inner: Namespace,
    /// Its near end is the host, its far end the server's namespace.
    pub(super) host: Veth,
}

impl Forwarded {
    /// Starts it, and waits until the client's namespace has a network.
    pub(super) fn new(forwarder: Forwarder) -> Result<Forwarded> {
        raise_descriptor_limit(DESCRIPTORS)?;
        let (host, inner) = (Veth::new()?, Namespace::new()?);
        // What is forwarded leaves by the interface with the default route.
        host.near.ip(&format!("route add default via {FAR} dev v0"))?;
        many_connections(&host.near)?;
        let control = |name| host.near.sysctl("net/ipv4/tcp_congestion_control", name);
        // Its sockets are not ours to choose for. A namespace may take what the machine's
        // administrator allows, and Reno always; neither it nor CUBIC paces, as BBR does.
        if let Err(error) = control(CONGESTION_CONTROL) {
            eprintln!("note: what is forwarded has reno: {error:#}");
            control("reno")?;
        }
        let mut command = forwarder.command(&host.near, &inner);
        let process = Process::spawn(forwarder.program(), &mut command)?;
        let mut forwarded = Forwarded { process, inner, host };
        forwarded.await_network().context("waiting for the network of the client's namespace")?;
        Ok(forwarded)
    }

    /// Neither says when it is ready. The last thing that it sets up is the route.
    fn await_network(&mut self) -> Result<()> {
        let end = std::time::Instant::now() + START;
        while !self.inner.ip("route show default")?.contains(DEVICE) {
            let runs = self.process.alive();
            ensure!(runs, "it has ended: {}", self.process.said().trim());
            let late = std::time::Instant::now() >= end;
            ensure!(!late, "there is none after {START:?}: {}", self.process.said().trim());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
