//! The request to run a command.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::policy::Policy;
use crate::ports::Port;
use crate::rules::Rules;
use crate::weather::LinkRequest;

/// The request.
#[derive(Clone, Debug)]
pub struct Config {
    /// The MTU of the command's interface, 1280 to 65520.
    pub mtu: u16,
    /// Queues of the command's interface, each with its own loop, 1 to 16.
    pub queues: usize,
    /// Links that the command's packets cross; for one queue.
    pub link: Option<LinkRequest>,
    /// Waits for children that outlive the command; they keep the network meanwhile.
    pub wait_for_all: bool,
    /// The command has the host's process namespace, where /proc cannot be mounted.
    pub share_pid: bool,
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
    /// Folders that are empty for the command.
    pub covered: Vec<PathBuf>,
    /// Sockets and folders of the host's services that the command does not see.
    pub hidden: Vec<PathBuf>,
    /// How this program is started again as [the inside](crate::inside): its first arguments.
    pub start_inside: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}
