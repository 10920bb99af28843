//! A command behind a gateway, from a Rust program or test.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use plimsoll_sim::link::spec::LinkSpec;

use crate::ports::Port;
use crate::rules;

/// The options of `plimsoll run` that tests need, as a builder. The gateway is a process of its
/// own, since it gives up rights that the caller needs. Files that rules and links name are read
/// twice, by the builder and by the gateway: a command with another folder needs absolute paths.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// use plimsoll_gateway::Gateway;
///
/// let status = Gateway::new()
///     .allow("api.example.com:443")?
///     .link("lte,loss=2%")?
///     .command("./client")
///     .arg("--retries=3")
///     .status()?;
/// assert!(status.success());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gateway {
    program: PathBuf,
    options: Vec<OsString>,
}

impl Default for Gateway {
    fn default() -> Gateway {
        Gateway::new()
    }
}

impl Gateway {
    /// A gateway without rules or links, of the `plimsoll` that is found in `PATH`.
    pub fn new() -> Gateway {
        Gateway { program: "plimsoll".into(), options: vec!["run".into()] }
    }

    /// Uses another `plimsoll`.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Gateway {
        self.program = program.into();
        self
    }

    /// Lets the command reach this, and what other such rules allow, and nothing else
    /// (`--net-allow`), as in `api.example.com:443`, `10.0.0.0/8`, `public` or `@FILE`.
    ///
    /// # Errors
    /// If the rule is wrong, or its file cannot be read.
    pub fn allow(self, rule: &str) -> Result<Gateway> {
        rules::read(rule).with_context(|| format!("allow '{rule}'"))?;
        Ok(self.with("--net-allow", rule))
    }

    /// Refuses this, whatever else is allowed (`--net-deny`).
    ///
    /// # Errors
    /// If the rule is wrong, or its file cannot be read.
    pub fn deny(self, rule: &str) -> Result<Gateway> {
        rules::read(rule).with_context(|| format!("deny '{rule}'"))?;
        Ok(self.with("--net-deny", rule))
    }

    /// Lets the command's packets cross a link in both directions (`--link`), as in `3g,loss=2%`
    /// or `rate=20mbit,delay=40ms`.
    ///
    /// # Errors
    /// If a name or value of the link is wrong. One that only contradicts another is an error of
    /// the command, which then ends with status 2.
    pub fn link(self, spec: &str) -> Result<Gateway> {
        self.with_link("--link", spec)
    }

    /// Differences of the link from the command to the network (`--link-up`).
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_up(self, spec: &str) -> Result<Gateway> {
        self.with_link("--link-up", spec)
    }

    /// Differences of the link from the network to the command (`--link-down`).
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_down(self, spec: &str) -> Result<Gateway> {
        self.with_link("--link-down", spec)
    }

    /// Leads a port of the host to one of the command (`-p`), as in `8080:80` or `5353:53/udp`.
    ///
    /// # Errors
    /// If the text is not `[IP:]HOST:GUEST[/udp]`.
    pub fn publish(self, port: &str) -> Result<Gateway> {
        port.parse::<Port>().map_err(|error| anyhow!("publish '{port}': {error}"))?;
        Ok(self.with("--publish", port))
    }

    /// Lets the command reach the host's loopback as `host.plimsoll` (`--host-loopback`).
    #[must_use]
    pub fn host_loopback(mut self) -> Gateway {
        self.options.push("--host-loopback".into());
        self
    }

    /// Writes the command's packets to a file, with the stack's reasons as comments (`--pcap`).
    #[must_use]
    pub fn pcap(self, file: impl AsRef<Path>) -> Gateway {
        self.with("--pcap", file.as_ref())
    }

    /// Reports at the end, on standard error, why the command waited (`--explain`).
    #[must_use]
    pub fn explain(mut self) -> Gateway {
        self.options.push("--explain".into());
        self
    }

    /// The command. It gets the arguments, environment, folder and streams of what is returned, and
    /// its status is the command's own, or 125 if the gateway has failed.
    pub fn command(&self, command: impl AsRef<OsStr>) -> Command {
        let mut run = Command::new(&self.program);
        run.args(&self.options).arg("--").arg(command);
        run
    }

    fn with_link(self, option: &str, spec: &str) -> Result<Gateway> {
        spec.parse::<LinkSpec>().map_err(|error| anyhow!("link '{spec}': {error}"))?;
        Ok(self.with(option, spec))
    }

    fn with(mut self, option: &str, value: impl AsRef<OsStr>) -> Gateway {
        self.options.extend([option.as_ref(), value.as_ref()].map(OsString::from));
        self
    }
}
