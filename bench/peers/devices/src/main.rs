//! Answers datagrams beneath any stack: what a way to a device costs by itself.
//!
//! `answer WAY DEVICE ADDRESS SECONDS` sends back what comes to the port of the echo, and counts
//! for some time what comes to that of the sink; `ask` is the client of the echo; `feature` sets
//! what `ethtool -K` sets. What a machine does not have is told in a line that begins with
//! `unavailable: `.

mod ask;
mod echo;
mod failure;
mod sockets;
mod sys;
mod tun;
mod words;

use std::process::ExitCode;

use self::echo::{Echo, Link};
use self::failure::{Endless, Failure, Named};
use self::tun::{Napi, Wait};
use self::words::{Answer, Command, Way};

/// Tells whoever has started this program that it answers.
fn ready() -> Result<(), Failure> {
    peer_common::ready().named("telling that it answers")
}

fn answer(command: &Answer) -> Endless {
    let Answer { way, device, address, limit } = command;
    let tun = |napi| tun::open(device, Link::None, napi);
    let echo = |link| Echo::new(link, *limit);
    match way {
        Way::Kernel => sockets::answer(*address, *limit),
        Way::Tun(wait, napi) => tun::answer(tun(*napi)?, *wait, *napi, echo(Link::None)),
        Way::Tap(napi) => {
            let device = tun::open(device, Link::Ethernet, *napi)?;
            tun::answer(device, Wait::Poll, *napi, echo(Link::Ethernet))
        }
        Way::Uring(mode) => sys::uring::answer(&tun(Napi::Off)?, *mode, echo(Link::None)),
        Way::Packet => sys::packet::answer(device, echo(Link::Ethernet)),
        Way::PacketRings(version) => sys::rings::answer(device, *version, echo(Link::Ethernet)),
        Way::Xdp(hook) => sys::xdp::answer(device, *hook, echo(Link::Ethernet)),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match Command::parse(&words) {
        Ok(Command::Answer(command)) => {
            // Whoever has started it waits for a line.
            answer(&command).map(|never| match never {}).inspect_err(|failure| {
                println!("unavailable: {failure}");
            })
        }
        Ok(Command::Ask(question)) => question.ask(),
        Ok(Command::Feature { device, feature, on }) => sys::ethtool::set(&device, feature, on),
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
