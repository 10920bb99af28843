//! The web server of `tests/web`, on the kernel's sockets over veth or on ours over TUN.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::netns::Namespace;
use super::process::Process;
use super::veth::{FAR, Veth};
use super::world::{DEVICE, OURS, START, World};

/// Whose sockets the server has, and who runs the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// tokio's, on the kernel.
    Kernel,
    /// Plimsoll's, on a stack with a thread of its own.
    Thread,
    /// Plimsoll's, on a stack that is a task of the server's runtime.
    Driver,
}

impl Sockets {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sockets::Kernel => "kernel",
            Sockets::Thread => "thread",
            Sockets::Driver => "driver",
        }
    }
}

/// Where the server and its clients are.
enum Place {
    Veth(Veth),
    Tun(World),
}

/// A running server. Clients are the kernel's, always.
pub(crate) struct WebServer {
    process: Process,
    place: Place,
}

impl WebServer {
    /// Starts one whose runtime has so many threads, and waits until it listens.
    pub(crate) fn start(sockets: Sockets, threads: u16) -> Result<WebServer> {
        let (place, address) = match sockets {
            Sockets::Kernel => (Place::Veth(Veth::new()?), FAR),
            Sockets::Thread | Sockets::Driver => (Place::Tun(World::new()?), OURS),
        };
        let mut command = match &place {
            Place::Veth(veth) => command(&veth.far)?,
            Place::Tun(world) => command(&world.ns)?,
        };
        command.args(["server", &format!("{address}:80"), "--device", DEVICE]);
        command.args(["--sockets", sockets.name(), "--threads", &threads.to_string()]);
        let mut process = Process::spawn("plimsoll-web server", &mut command)?;
        process.wait_line(START, |line| line == "ready")?;
        Ok(WebServer { process, place })
    }

    /// The process number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it still runs; if not, what it said.
    pub(crate) fn check(&mut self) -> Result<()> {
        ensure!(self.process.alive(), "the server has ended:\n{}", self.process.said());
        Ok(())
    }

    pub(crate) fn host(&self) -> &'static str {
        match self.place {
            Place::Veth(_) => FAR,
            Place::Tun(_) => OURS,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.host())
    }

    /// A program of the clients' side.
    pub(crate) fn client(&self, program: &str) -> Command {
        match &self.place {
            Place::Veth(veth) => veth.near.command(program),
            Place::Tun(world) => world.ns.command(program),
        }
    }
}

/// `plimsoll-web` in a namespace.
fn command(ns: &Namespace) -> Result<Command> {
    Ok(ns.command(&program()?.to_string_lossy()))
}

/// `plimsoll-web`, which lies beside this program.
pub(crate) fn program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("finding this program")?;
    let path = path.with_file_name("plimsoll-web");
    ensure!(path.exists(), "{} is missing: build plimsoll-web first", path.display());
    Ok(path)
}
