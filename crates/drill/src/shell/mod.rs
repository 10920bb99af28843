//! Shell lines of a script, as far as they are understood.
//!
//! No shell is started. The text is cut into commands ([`words`]), and each command is translated
//! into a [`Command`] of which every host knows the meaning. What is not known is an error that
//! names it: a script that asks for something and does not get it would test something else.
//!
//! Understood are `sysctl`, the suites' helper scripts (files of settings are read and translated
//! themselves), `tc qdisc`, `ip route`, `ip link`, `ip tcp_metrics`, `ethtool -K`, `nstat`, `echo`
//! into a setting, `dd` and `rm` of a scratch file, and `grep` for listeners. Redirections, `;`,
//! `&&`, `||`, quotes, comments and `$((...))` are those of the shell.

mod translate;
mod words;

use std::net::IpAddr;
use std::path::Path;

use plimsoll_stack::qdisc::fq::FqConfig;

use crate::host::{Host, HostError};

/// How fast a token bucket is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that leave at once after a pause.
    pub burst: u64,
}

/// A queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qdisc {
    /// What the device has by itself.
    Default,
    /// First in, first out, with at most so many packets.
    Fifo {
        /// None says "as many as usual"; 0 drops everything.
        limit: Option<u32>,
    },
    /// Fair queueing, which paces.
    Fq(FqConfig),
    /// A token bucket: what has no token waits, below the connection that it is from.
    TokenBucket(TokenBucket),
}

/// A route and its attributes; what is `None` is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    /// The route is one of IPv6.
    pub v6: bool,
    /// Where it leads, with the length of the prefix; `None` is the default route.
    pub to: Option<(IpAddr, u8)>,
    /// `mtu`
    pub mtu: Option<u16>,
    /// `mtu lock`: not to be learnt.
    pub mtu_lock: bool,
    /// `advmss`
    pub advmss: Option<u16>,
    /// `initcwnd`
    pub initcwnd: Option<u32>,
    /// `initrwnd`
    pub initrwnd: Option<u32>,
    /// `quickack`
    pub quickack: Option<bool>,
    /// `rto_min`, in milliseconds
    pub rto_min_ms: Option<u32>,
    /// `congctl`
    pub congctl: Option<String>,
    /// `features ecn`
    pub ecn: bool,
    /// `fastopen_no_cookie`
    pub fastopen_no_cookie: Option<bool>,
}

/// Something that a shell line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `sysctl -q name=value`, and what stands for it.
    Sysctl {
        /// With dots, such as `net.ipv4.tcp_sack`.
        name: String,
        /// As written, quotes removed.
        value: String,
    },
    /// `ip tcp_metrics flush`: forget what was learnt of peers.
    FlushMetrics,
    /// `ip route change ... dev tun0 ...`: attributes of the route to the peer.
    Route(RouteMetrics),
    /// `ip link set dev tun0 mtu N`
    LinkMtu(u16),
    /// `ethtool -K tun0 tso off gso off`; what is `None` is not said.
    Offload {
        /// Super-segments in the device.
        tso: Option<bool>,
        /// Super-segments in software.
        gso: Option<bool>,
    },
    /// `tc qdisc ... dev tun0 root ...`
    Qdisc(Qdisc),
    /// `nstat`, which shows what has changed since the last one. With a name, it must have.
    Counters {
        /// What the line is searched for.
        wanted: Option<String>,
    },
    /// `grep " 0A " /proc/net/tcp | grep ":1F90"`: somebody must listen on this port.
    Listening(u16),
    /// `echo N > /sys/module/tcp_cubic/parameters/NAME`
    CubicParameter {
        /// Such as `hystart_detect`.
        name: String,
        /// As written.
        value: String,
    },
    /// `dd if=/dev/zero of=FILE`: a file of zeroes that `open` finds.
    ZeroFile {
        /// Where.
        path: String,
        /// Bytes.
        len: u64,
    },
    /// `rm -f FILE`
    RemoveFile(String),
}

/// Settings of Linux that have no meaning for this stack, so that setting them does nothing.
///
/// Everything else that the stack does not have is an error.
pub const MEANINGLESS: &[&str] = &[
    // Forward acknowledgement was taken out of Linux; the setting remains without effect.
    "net.ipv4.tcp_fack",
    // Low latency mode was taken out of Linux; the setting remains without effect.
    "net.ipv4.tcp_low_latency",
    // Threads and queues of the kernel's own devices.
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    // The default queueing discipline of devices that come later.
    "net.core.default_qdisc",
    // The memory of the whole machine.
    "net.ipv4.tcp_mem",
];

/// Runs shell lines on a host. `folder` is where the script lies, for helper files.
///
/// # Errors
/// If a command is not understood or fails; the message names it.
pub fn run(host: &mut dyn Host, text: &str, folder: Option<&Path>) -> Result<(), HostError> {
    if let Some(done) = host.shell(text, folder) {
        return done;
    }
    let mut runner = translate::Runner { host, folder, depth: 0 };
    runner.text(text)
}

#[cfg(test)]
mod tests;
