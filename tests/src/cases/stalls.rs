//! No conversation waits for a delayed acknowledgement of ours, whoever writes in small pieces.
//!
//! The kernel's Nagle is on, so a small piece behind a small piece waits for our ACK. What is
//! counted are ACKs that were sent by a delayed-ACK timer, on both sides: a conversation that
//! stalls has one in every round. The kernel delays its ACK of a first small piece, and only the
//! sender can help that: our own side sets TCP_NODELAY, as servers and TLS libraries do, or bounds
//! the time for which Nagle's rule holds (`plimsoll.tcp_nagle_bound`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{KERNEL, OURS, World};

const LATER: Duration = Duration::from_secs(50);

pub(crate) const CASES: &[Case] = &[
    Case::light("stalls::one_mss_push", || check(&TALKS[0])),
    Case::light("stalls::header_then_body", || check(&TALKS[1])),
    Case::light("stalls::header_then_long_body", || check(&TALKS[2])),
    Case::light("stalls::request_in_two_writes", || check(&TALKS[3])),
    Case::light("stalls::tls_handshake_sizes", || check(&TALKS[4])),
];

/// A conversation.
pub(crate) struct Talk {
    pub(crate) name: &'static str,
    /// As [`crate::talk::Script`] has it.
    pub(crate) script: &'static str,
}

/// The conversations in which stacks have stalled.
pub(crate) const TALKS: [Talk; 5] = [
    Talk { name: "one-MSS push", script: "c1448,s1448" },
    Talk { name: "header, then body", script: "c100,s200,s1000" },
    Talk { name: "header, then long body", script: "c100,s200,s20000" },
    Talk { name: "request in two writes", script: "c100,c200,s1000" },
    Talk { name: "TLS handshake sizes", script: "c517,s1400,s1400,s700,c80,c300,s255,s255,s2000" },
];

/// Our Nagle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nagle {
    /// TCP_NODELAY.
    Off,
    /// As RFC 896 and Minshall have it.
    On,
    /// On, but not for longer than an ACK takes that is not delayed.
    Bounded,
}

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// We connect to the kernel.
    Ours,
    /// The kernel connects to us.
    Kernel,
}

/// What a conversation gave.
pub(crate) struct Talked {
    /// What the connecting side said about its rounds.
    pub(crate) rounds: Value,
    /// ACKs that our delayed-ACK timer sent.
    pub(crate) ours: u64,
    /// The same of the kernel.
    pub(crate) kernel: u64,
}

const ROUNDS: usize = 200;

/// ACKs that a delayed-ACK timer sent.
const DELAYED: &str = "TcpExtDelayedACKs";

/// Has one conversation. `nagle` is ours; the kernel's is on.
pub(crate) fn talk(talk: &Talk, begins: Begins, rounds: usize, nagle: Nagle) -> Result<Talked> {
    let world = World::new()?;
    let rounds = rounds.to_string();
    let ip = if begins == Begins::Ours { KERNEL } else { OURS };
    let switch = |on| if on { "true" } else { "false" };
    let (nodelay, bound) = (switch(nagle == Nagle::Off), switch(nagle == Nagle::Bounded));
    let address = format!("{ip}:7");
    let common = [&address, "--script", talk.script];
    let ours = [&common[..], &["--nodelay", nodelay, "--bound", bound]].concat();
    let started = world.ns.counter(DELAYED)?;
    let (rounds_said, ours_said) = match begins {
        Begins::Ours => {
            let server = world.start_peer(&[&["talk-server"], &common[..]].concat())?;
            let words = [&["talk"], &ours[..], &["--rounds", &rounds]].concat();
            let said = line(Process::spawn("talk", &mut world.client(&words)?)?)?;
            drop(server);
            (said.clone(), said)
        }
        Begins::Kernel => {
            let words = [&["talk-server"], &ours[..]].concat();
            let mut server = Process::spawn("talk-server", &mut world.client(&words)?)?;
            server.wait_line(crate::harness::world::START, |line| line == "ready")?;
            let words = [&["talk"], &common[..], &["--rounds", &rounds]].concat();
            let said = line(Process::spawn("talk", &mut world.peer(&words)?)?)?;
            (said, line(server)?)
        }
    };
    let kernel = world.ns.counter(DELAYED)? - started;
    let ours = ours_said["delayed"].as_u64().context("no count of delayed ACKs")?;
    Ok(Talked { rounds: rounds_said, ours, kernel })
}

/// The last line that a program says, which is JSON, once it has ended.
fn line(process: Process) -> Result<Value> {
    let said = process.success(LATER)?.stdout;
    let last = said.trim().lines().last().context("it says nothing")?;
    serde_json::from_str(last).context("it says JSON")
}

/// Has the conversation both ways round, and wants no round to wait for a delayed ACK.
fn check(what: &Talk) -> Result<()> {
    let both = [Begins::Ours, Begins::Kernel];
    let ways = both.iter().flat_map(|&begins| [(begins, Nagle::Off), (begins, Nagle::Bounded)]);
    for (begins, nagle) in ways {
        let talked = talk(what, begins, ROUNDS, nagle)?;
        // The last ACK may be a late one, and on a busy machine some more: a program that does not
        // run does not answer. A stall has one in every round.
        let most = ROUNDS as u64 / 10;
        let said = &talked.rounds;
        ensure!(
            talked.ours <= most,
            "{begins:?} begins, Nagle {nagle:?}: {} late ACKs of ours, {said}",
            talked.ours
        );
        let kernel = talked.kernel;
        ensure!(
            kernel <= most,
            "{begins:?} begins, Nagle {nagle:?}: {kernel} late ACKs of the kernel, {said}"
        );
    }
    Ok(())
}
