//! The request to run a command, or to serve a namespace.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::policy::Policy;
use crate::ports::Port;
use crate::rules::Rules;
use crate::weather::LinkRequest;

/// The part of the request that is about the gateway. "The command" means all processes of a
/// namespace that is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the command's interface.
    pub interface: String,
    /// The MTU of the command's interface, 1280 to 65520.
    pub mtu: u16,
    /// Queues of the command's interface, each with its own loop, 1 to 16.
    pub queues: usize,
    /// Links that the command's packets cross; for one queue.
    pub link: Option<LinkRequest>,
    /// The destinations that the command may reach.
    pub policy: Policy,
    /// The user's rules for them.
    pub rules: Rules,
    /// Ports of the host that lead to ports of the command.
    pub ports: Vec<Port>,
    /// Where a capture of the command's packets goes, with the reasons as comments.
    pub pcap: Option<PathBuf>,
    /// At the end, reports on standard error why the command waited.
    pub explain: bool,
    /// Folders that may have the control socket.
    pub control: Vec<PathBuf>,
    /// How this program is started again as the inside: its first arguments.
    pub start_inside: Vec<String>,
}

/// A command to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Waits for children that outlive the command; they keep the network meanwhile.
    pub wait_for_all: bool,
    /// The command has the host's process namespace, where /proc cannot be mounted.
    pub share_pid: bool,
    /// Sockets and folders of the host's services that the command does not see.
    pub hidden: Vec<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// A namespace to be served.
#[derive(Debug)]
pub struct Target {
    /// The file of the user namespace that owns it, to be entered first. One that this process is
    /// in already is not entered.
    pub user: Option<PathBuf>,
    /// The file of the network namespace.
    pub network: PathBuf,
    /// Gives the interface its addresses and routes, and brings it up with the loopback interface.
    pub configure: bool,
    /// IPv6 addresses and routes as well.
    pub ipv6: bool,
    /// "1" is written there once the gateway serves.
    pub ready: Option<OwnedFd>,
    /// The gateway ends when this has an event, as when the other side of a pipe was closed.
    pub exit: Option<OwnedFd>,
}
