//! Programs on the kernel's own sockets: the peers of Plimsoll, and the yardstick beside it.
//!
//! The same programs run over a veth pair for the kernel's figures and over TUN for ours, so that
//! the kernel's part is identical in both. Each prints `ready` when it accepts connections, and
//! its figures as one line of JSON.

mod asking;
mod attack;
mod behaviour;
mod hosts;
mod malformed;
pub(crate) mod options;
mod proxied;
mod reconnect;
mod socks;
mod talk;
pub(crate) mod workload;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, bail};
pub(crate) use behaviour::raise_descriptor_limit;
use options::Options;
pub(crate) use workload::CONGESTION_CONTROL;

use crate::datagrams::{self, KernelSocket};

const V4_ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const V6_ANY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Runs the program named by the first word.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let name = words.first().context("peer NAME ADDRESS ...")?;
    let options = Options::parse(&words[1..])?;
    match name.as_str() {
        "discard" => workload::discard(&options),
        "write" => workload::write(&options),
        "chargen" => workload::chargen(&options),
        "read" => workload::read(&options),
        "rr-server" => workload::rr_server(&options),
        "rr" => workload::rr(&options),
        "ask" => asking::run(&options),
        "connect" => behaviour::connect(&options),
        "echo-check" => behaviour::echo_check(&options),
        "stall" => behaviour::stall(&options),
        "send-late" => behaviour::send_late(&options),
        "reset" => behaviour::reset(&options),
        "reset-us" => behaviour::reset_us(&options),
        "reconnect" => reconnect::run(&options),
        "silent" => behaviour::silent(&options),
        "stalled-reader" => behaviour::stalled_reader(&options),
        "many" => behaviour::many(&options),
        "slow-http" => behaviour::slow_http(&options),
        "hosts" => hosts::serve(&options),
        "names" => hosts::names_of(&options),
        "mdns" => hosts::mdns(&options),
        "mdns-ask" => hosts::mdns_ask(&options),
        "udp-send" => datagrams::send(&mut any_socket(&options)?, &options),
        "udp-ask" => datagrams::ask(&mut any_socket(&options)?, &options),
        "udp-answer" => {
            datagrams::answer(&mut KernelSocket::bind(options.address(), &options)?, &options)
        }
        "udp-receive" => udp_receive(&options),
        "talk" => talk::client(&options),
        "talk-server" => talk::server(&options),
        "malformed" => malformed::run(&options),
        "bystander" => attack::bystander(&options),
        "crowd" => attack::crowd(&options),
        "holes" => attack::holes(&options),
        "spray" => attack::spray(&options),
        "socks" => socks::server(&options),
        "file" => proxied::file(&options),
        "echo" => proxied::echo(&options),
        "full-queue" => behaviour::full_queue(&options),
        _ => bail!("no peer is called `{name}`"),
    }
}

/// A socket with a free port, for what goes to the address of `options`.
fn any_socket(options: &Options) -> Result<KernelSocket> {
    let any = if options.address().is_ipv4() { V4_ANY } else { V6_ANY };
    KernelSocket::bind(any, options)
}

/// Receives datagrams. With `--buffer deep` it stands for the network.
fn udp_receive(options: &Options) -> Result<()> {
    let mut socket = KernelSocket::bind(options.address(), options)?;
    match options.text("buffer") {
        None => {}
        Some("deep") => socket.deepen()?,
        Some(other) => bail!("--buffer {other}: it is deep, or not given"),
    }
    datagrams::receive(&mut socket, options)
}
