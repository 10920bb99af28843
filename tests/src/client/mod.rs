//! Programs on the sockets of the `plimsoll` crate, on the TUN device of a test.
//!
//! Each prints what it saw in words that the test compares: the kind of an error, or a digest.

mod behaviour;
mod hosts;
mod talk;
mod workload;

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use plimsoll::{Stack, StackBuilder, device};

use crate::datagrams::{self, OurSocket};
use crate::harness::world::{DEVICE, OURS};
use crate::peer::options::Options;

/// Runs the program named by the first word.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let name = words.first().context("client NAME ADDRESS ...")?;
    let options = Options::parse(&words[1..])?;
    if name == "udp-receive-in-a-loop" {
        let stack = on_tun()?.build_without_thread().context("building the stack")?;
        let socket = OurSocket::bind(&stack, options.address(), &options)?;
        return datagrams::receive(&mut socket.runs()?, &options);
    }
    let stack = on_tun()?.build().context("building the stack")?;
    match name.as_str() {
        "write" => workload::write(&stack, &options),
        "discard" => workload::discard(&stack, &options),
        "connect" => behaviour::connect(&stack, &options),
        "queue" => behaviour::queue(&stack, &options),
        "reset" => behaviour::reset(&stack, &options),
        "close-early" => behaviour::close_early(&stack, &options),
        "read-timeout" => behaviour::read_timeout(&stack, &options),
        "send" => behaviour::send(&stack, &options),
        "stall" => behaviour::stall(&stack, &options),
        "keepalive" => behaviour::keepalive(&stack, &options),
        "user-timeout" => behaviour::user_timeout(&stack, &options),
        "until-error" => behaviour::until_error(&stack, &options),
        "lazy-listener" => behaviour::lazy_listener(&stack, &options),
        "hosts" => hosts::serve(&stack, &options),
        "mdns" => hosts::mdns(&stack, &options),
        "udp-send" => {
            let any = SocketAddr::new(OURS.parse().context("an address")?, 0);
            datagrams::send(&mut OurSocket::bind(&stack, any, &options)?, &options)
        }
        "udp-receive" => {
            datagrams::receive(&mut OurSocket::bind(&stack, options.address(), &options)?, &options)
        }
        "talk" => talk::client(&stack, &options),
        "talk-server" => talk::server(&stack, &options),
        _ => bail!("no client is called `{name}`"),
    }
}

/// A stack on the TUN device of the test.
fn on_tun() -> Result<StackBuilder> {
    let config = device::tun::TunConfig::default().name(DEVICE);
    let tun = device::tun::open(config).context("opening the TUN device")?;
    Ok(Stack::builder().device(tun).address("192.0.2.2/24").address("2001:db8::2/64"))
}
