//! Two hosts of the kernel's with a path between them that `plimsoll link` makes.
//!
//! The left host is 198.51.100.1, the right one 198.51.100.2.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::Value;

use super::netns::Namespace;
use super::process::Process;
use super::world::{START, plimsoll_program};

pub(crate) const LEFT: &str = "198.51.100.1";
pub(crate) const RIGHT: &str = "198.51.100.2";
/// The device of each host.
pub(crate) const DEVICE: &str = "path0";

/// The hosts, and what carries packets between them.
pub(crate) struct Path {
    link: Process,
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl Path {
    /// A path with these options of `plimsoll link`.
    pub(crate) fn new(options: &[&str]) -> Result<Path> {
        Path::with_check(&["--check", "0"], options)
    }

    /// The same, if the link shows first that it keeps rate and delay within 2 %.
    pub(crate) fn checked(options: &[&str]) -> Result<Path> {
        Path::with_check(&["--check", "1s", "--max-error", "2%"], options)
    }

    fn with_check(check: &[&str], options: &[&str]) -> Result<Path> {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        for (ns, address) in [(&left, LEFT), (&right, RIGHT)] {
            ns.ip(&format!("tuntap add dev {DEVICE} mode tun"))?;
            ns.ip(&format!("addr add {address}/24 dev {DEVICE}"))?;
            ns.ip(&format!("link set {DEVICE} up"))?;
        }
        let place = |ns: &Namespace| format!("tun:{DEVICE}@{}", ns.name());
        let mut command = Command::new(plimsoll_program()?);
        command.args(["link", "--left", &place(&left), "--right", &place(&right)]);
        command.args(["--json", "-"]).args(check).args(options);
        let link = Process::spawn("plimsoll link", &mut command)?;
        let path = Path { link, left, right };
        // It says nothing, because its figures go where it would speak. The devices tell.
        path.await_carrier()?;
        Ok(path)
    }

    fn await_carrier(&self) -> Result<()> {
        let end = std::time::Instant::now() + START;
        for ns in [&self.left, &self.right] {
            while !ns.ip(&format!("link show {DEVICE}"))?.contains("LOWER_UP") {
                anyhow::ensure!(
                    std::time::Instant::now() < end,
                    "nobody has opened {DEVICE}: {}",
                    self.link.said()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Starts a program of kernel sockets on the right host and waits until it is ready.
    pub(crate) fn start_right(&self, words: &[&str]) -> Result<Process> {
        let mut command = self.right.program(&[&["peer"], words].concat())?;
        let mut process = Process::spawn(words[0], &mut command)?;
        process.wait_line(START, |line| line == "ready")?;
        Ok(process)
    }

    /// A program of kernel sockets, to be run on the left host.
    pub(crate) fn on_left(&self, words: &[&str]) -> Result<Command> {
        self.left.program(&[&["peer"], words].concat())
    }

    /// The link, which lasts as long as its process, and both hosts.
    pub(crate) fn into_parts(self) -> (Process, Namespace, Namespace) {
        (self.link, self.left, self.right)
    }

    /// Ends the link, and returns what it says of itself.
    pub(crate) fn end(self) -> Result<Value> {
        self.link.signal(Signal::TERM)?;
        self.ended()
    }

    /// What the link says of itself once it has ended.
    pub(crate) fn ended(self) -> Result<Value> {
        let ended = self.link.success(START)?;
        serde_json::from_str(&ended.stdout).context("the figures of plimsoll link")
    }
}
