//! A kernel client that resets its connection and opens the next from the same port at once.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::{self, AddressFamily, SocketType, sockopt};

use super::options::Options;
use super::workload::say;
use super::{V4_ANY, V6_ANY};

/// Connects `--count` times from `--port`, and resets each connection when it is open. Prints how
/// many were opened, and how many SYNs the kernel has repeated meanwhile.
pub(super) fn run(options: &Options) -> Result<()> {
    let (to, count) = (options.address(), options.get("count", 100)?);
    let mut from = if to.is_ipv4() { V4_ANY } else { V6_ANY };
    from.set_port(options.get("port", 4000)?);
    let before = repeated_syns()?;
    for round in 0..count {
        let stream = connect(from, to).with_context(|| format!("connecting, round {round}"))?;
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).context("SO_LINGER")?;
    }
    say(&format!("connected {count}, SYNs repeated {}", repeated_syns()? - before))
}

fn connect(from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true).context("SO_REUSEADDR")?;
    net::bind(&socket, &from).context("binding")?;
    net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// `TCPSynRetrans` of the network namespace.
fn repeated_syns() -> Result<u64> {
    let text = fs::read_to_string("/proc/net/netstat").context("/proc/net/netstat")?;
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = rows.next().zip(rows.next()).context("a TcpExt table")?;
    let mut fields = names.split(' ').zip(values.split(' '));
    let (_, value) = fields.find(|(name, _)| *name == "TCPSynRetrans").context("TCPSynRetrans")?;
    value.parse().context("TCPSynRetrans")
}
