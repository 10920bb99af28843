//! The works that are measured, each a line of the table.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::world::{Gateway, Memory, PORT, World};
use crate::bench::stage::{next_figures, number};
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::veth::FAR;
use crate::harness::world::START;

/// How long a run may take beyond its time.
const GRACE: Duration = Duration::from_secs(10);

/// Bytes of a datagram.
pub(super) const DATAGRAM: &str = "1200";
const DATAGRAM_PORT: u16 = 5003;

/// Connections that are open when memory is looked at, and how long opening them may take.
pub(super) const HELD: u32 = 1000;
const OPENING: Duration = Duration::from_secs(20);

/// The work of a client for the time of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Bytes, with the words of the client.
    Bulk(&'static [&'static str]),
    /// Transactions or connections, with the words of the client.
    Rate(&'static [&'static str]),
    /// Datagrams that arrive: from the client, or to it.
    DatagramsOut,
    DatagramsIn,
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// Whether it is measured at MTUs above 1500 as well.
    pub(super) at_all_mtus: bool,
}

const fn bulk(name: &'static str, words: &'static [&'static str]) -> Row {
    Row { name, work: Work::Bulk(words), at_all_mtus: true }
}

const fn rate(name: &'static str, words: &'static [&'static str]) -> Row {
    Row { name, work: Work::Rate(words), at_all_mtus: false }
}

pub(super) const ROWS: [Row; 12] = [
    bulk("out, 1 flow", &["upload"]),
    bulk("out, 8 flows", &["upload", "--flows", "8"]),
    bulk("in, 1 flow", &["download"]),
    bulk("in, 8 flows", &["download", "--flows", "8"]),
    Row { at_all_mtus: true, ..rate("1 byte, 1 client", &["rr"]) },
    rate("1 byte, 20 clients", &["rr", "--flows", "20"]),
    Row { at_all_mtus: true, ..rate("4 KB, 1 client", &["rr", "--size", "4096"]) },
    rate("4 KB, 20 clients", &["rr", "--size", "4096", "--flows", "20"]),
    rate("connections, 1 client", &["crr"]),
    // gvisor-tap-vsock drops a SYN if ten attempts wait.
    rate("connections, 8 clients", &["crr", "--flows", "8"]),
    Row { name: "datagrams out", work: Work::DatagramsOut, at_all_mtus: false },
    Row { name: "datagrams in", work: Work::DatagramsIn, at_all_mtus: false },
];

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Bits, or what else the row counts, per second.
    pub(super) rate: f64,
    /// Seconds of the gateway for each byte, or what else the row counts.
    pub(super) cpu: f64,
}

impl Row {
    pub(super) fn is_bulk(&self) -> bool {
        matches!(self.work, Work::Bulk(_))
    }

    /// Runs it behind a gateway.
    pub(super) fn run(
        &self,
        world: &World,
        gateway: &Gateway,
        seconds: Duration,
    ) -> Result<Sample> {
        let clients = gateway.clients(world);
        let before = gateway.cpu();
        let (said, what) = match self.work {
            Work::Bulk(words) | Work::Rate(words) => (asked(clients, words, seconds)?, "amount"),
            Work::DatagramsOut => (datagrams(world, clients, seconds, true)?, "datagrams"),
            Work::DatagramsIn => (datagrams(world, clients, seconds, false)?, "datagrams"),
        };
        let cpu = gateway.cpu() - before;
        let (amount, seconds) = (number(&said, what)?, number(&said, "seconds")?);
        ensure!(amount > 0.0 && seconds > 0.0, "nothing was moved: {said}");
        let scale = if self.is_bulk() { 8.0 } else { 1.0 };
        Ok(Sample { rate: amount * scale / seconds, cpu: cpu / amount })
    }
}

/// The client of the server for streams.
fn client(clients: &Namespace, words: &[&str]) -> Result<Command> {
    let mut command = clients.program(&["peer", "ask", &format!("{FAR}:{PORT}"), "--work"])?;
    command.args(words);
    Ok(command)
}

fn asked(clients: &Namespace, words: &[&str], seconds: Duration) -> Result<Value> {
    let time = seconds.as_secs_f64().to_string();
    let mut command = client(clients, words)?;
    let client = Process::spawn("client", command.args(["--seconds", &time]))?;
    let said = client.success(seconds + GRACE)?.stdout;
    serde_json::from_str(said.trim()).context("the client prints JSON")
}

/// The receiver's figures of a flow of datagrams. Its sender sends for longer than that counts. The
/// end beyond the gateway has many datagrams in each call, so that it is not the limit.
fn datagrams(world: &World, clients: &Namespace, seconds: Duration, out: bool) -> Result<Value> {
    let address = format!("{FAR}:{DATAGRAM_PORT}");
    let time = seconds.as_secs_f64().to_string();
    let longer = (seconds.as_secs_f64() + 0.5).to_string();
    let (server, client) =
        if out { ("udp-receive", "udp-send") } else { ("udp-answer", "udp-ask") };
    let (of_server, of_client) = if out { (&time, &longer) } else { (&longer, &time) };
    let start = |ns: &Namespace, name: &str, time: &str, words: &[&str]| {
        let mut command = ns.program(&["peer", name, &address, "--size", DATAGRAM])?;
        command.args(["--seconds", time]).args(words);
        Process::spawn(name, &mut command)
    };
    let deep: &[&str] = if out { &["--buffer", "deep"] } else { &[] };
    let words = [&["--calls", "trains"], deep].concat();
    let mut server = start(&world.hosts.far, server, of_server, &words)?;
    server.wait_line(START, |line| line == "ready")?;
    let mut client = start(clients, client, of_client, &[])?;
    let limit = seconds + GRACE;
    let received = if out { &mut server } else { &mut client };
    let figures = next_figures(received, limit)?;
    // The next measurement begins when nothing is sent any more.
    let sender = if out { client } else { server };
    sender.wait(limit).map(|_| figures)
}

/// Memory of a gateway at the beginning, with [`HELD`] connections, and after them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) rest: Memory,
    pub(super) open: Memory,
    pub(super) after: Memory,
}

/// Opens connections behind a fresh gateway. Each has carried one transaction.
pub(super) fn hold(world: &World, gateway: &Gateway) -> Result<Held> {
    let rest = gateway.memory()?;
    let count = HELD.to_string();
    let mut command = client(gateway.clients(world), &["hold", "--count", &count])?;
    let mut clients = Process::spawn("connections", &mut command)?;
    clients.wait_line(OPENING, |line| line == "open")?;
    let open = gateway.memory()?;
    drop(clients);
    Ok(Held { rest, open, after: gateway.memory()? })
}
