//! `bench devices`: what each way to a device costs, beneath any stack.
//!
//! A program that does next to nothing (`bench/peers/devices`) sends datagrams back, and counts
//! those that it is not to send back. It has them by one way after the other: TUN in several
//! modes, io_uring, AF_PACKET, AF_XDP, and the kernel's own sockets beside. The peer is one program
//! on the kernel's sockets, for all of them.
//!
//! The program has a processor to itself, or shares it with the peer: left to the scheduler, two
//! runs of the same way differ by more than two ways do.
//!
//! In each repetition every way has a fresh program and fresh namespaces, and does all works in
//! them. Who goes first changes with each repetition, so the drift of a shared machine meets all.
//! A ratio is that of a run and of the run in the same repetition of the way that this stack goes.

mod stage;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::stage::{Stage, Start};
use super::Plan;

/// What takes three and a half minutes.
const FULL: Plan = Plan { seconds: Duration::from_millis(150), repetitions: 7 };
const QUICK: Plan = Plan { seconds: Duration::from_millis(100), repetitions: 1 };

/// After so many failures a way is not tried again in a work.
const FAILURES: usize = 2;

/// What lies between the peer and the program that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// A TUN device.
    Tun,
    /// A TAP device.
    Tap,
    /// A veth pair, with the kernel's stack at both ends.
    Veth,
    /// A veth pair. At the far end the kernel has no address, so it leaves frames alone.
    Frames,
    /// The same. The peer fills in checksums by itself, since whoever gets its frames is not told
    /// that a device should have.
    Sums,
}

/// What the peer does until an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Sleeps,
    /// Its socket polls the device first (SO_BUSY_POLL). For that a veth device needs a NAPI, which
    /// it has with GRO.
    Polls,
}

/// A way to a device: a line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    /// As it is chosen.
    name: &'static str,
    title: &'static str,
    /// As the program knows it.
    word: &'static str,
    network: Network,
    peer: Peer,
}

const fn way(name: &'static str, title: &'static str, network: Network) -> Way {
    Way { name, title, word: name, network, peer: Peer::Sleeps }
}

/// The way `word`, for a peer that polls.
const fn polled(
    name: &'static str,
    title: &'static str,
    word: &'static str,
    network: Network,
) -> Way {
    Way { name, title, word, network, peer: Peer::Polls }
}

/// The way that this stack goes, with which the others are compared.
const YARDSTICK: &str = "tun-poll";

const WAYS: [Way; 20] = [
    way("kernel", "the kernel's own sockets, veth", Network::Veth),
    polled("kernel-polled", "the same, the peer polls", "kernel", Network::Veth),
    way(YARDSTICK, "TUN as here: read until empty, then poll", Network::Tun),
    way("tun-read", "TUN, a read that sleeps", Network::Tun),
    way("tun-spin", "TUN, reads that never sleep", Network::Tun),
    way("tun-napi", "TUN, IFF_NAPI", Network::Tun),
    way("tun-napi-thread", "TUN, IFF_NAPI, threaded", Network::Tun),
    polled("tun-napi-polled", "TUN, IFF_NAPI, the peer polls", "tun-napi", Network::Tun),
    way("tap", "TAP", Network::Tap),
    way("tap-napi-frags", "TAP, IFF_NAPI_FRAGS", Network::Tap),
    way("uring-pair", "TUN, io_uring: write and read in a call", Network::Tun),
    way("uring-multishot", "TUN, io_uring: multishot read", Network::Tun),
    way("uring-sqpoll", "TUN, io_uring: SQPOLL", Network::Tun),
    way("packet", "AF_PACKET, recv and send", Network::Frames),
    polled("packet-polled", "the same, the peer polls", "packet", Network::Frames),
    way("packet-rings-v2", "AF_PACKET, TPACKET_V2 rings both ways", Network::Frames),
    way("packet-rings-v3", "AF_PACKET, TPACKET_V3 ring and send", Network::Frames),
    way("xdp-generic", "AF_XDP, generic", Network::Sums),
    way("xdp-native", "AF_XDP, native, copies", Network::Sums),
    polled("xdp-native-polled", "the same, the peer polls", "xdp-native", Network::Sums),
];

/// What is measured of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests of so many bytes and their answers, each flow with one in flight.
    Echo { size: usize, flows: usize, processors: Processors },
    /// Datagrams in trains of 64 KiB into the program, as fast as they go, from the other
    /// processor.
    Bulk,
}

/// Where the peer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Processors {
    /// Where the program does: what a transaction takes is what both sides cost.
    One,
    /// Beside it.
    Two,
}

const fn echo(name: &'static str, size: usize, flows: usize, processors: Processors) -> Work {
    Work { name, kind: Kind::Echo { size, flows, processors } }
}

const WORKS: [Work; 9] = [
    echo("64 B, 1 in flight, one processor", 64, 1, Processors::One),
    echo("64 B, 20 in flight, one processor", 64, 20, Processors::One),
    echo("4 KB, 1 in flight, one processor", 4096, 1, Processors::One),
    echo("4 KB, 20 in flight, one processor", 4096, 20, Processors::One),
    echo("64 B, 1 in flight, two processors", 64, 1, Processors::Two),
    echo("64 B, 20 in flight, two processors", 64, 20, Processors::Two),
    echo("4 KB, 1 in flight, two processors", 4096, 1, Processors::Two),
    echo("4 KB, 20 in flight, two processors", 4096, 20, Processors::Two),
    Work { name: "bulk", kind: Kind::Bulk },
];

/// What one run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// Transactions, or bytes, in a second.
    rate: f64,
    /// Seconds that processors of the machine were busy for each of them.
    busy: f64,
    /// Transactions, or bytes, in a packet.
    each: f64,
}

/// One work of one way.
#[derive(Default)]
struct Cell {
    /// One for each repetition; nothing where it failed.
    samples: Vec<Option<Sample>>,
    errors: Vec<String>,
}

/// All works of a way.
struct Row {
    way: &'static Way,
    /// In the order of [`WORKS`].
    cells: Vec<Cell>,
    /// Why this machine does not have it.
    unavailable: Option<String>,
}

struct Request {
    plan: Plan,
    program: PathBuf,
    only: Vec<String>,
    json: Option<PathBuf>,
}

/// Runs the measurement.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let mut rows: Vec<Row> = request.ways()?.into_iter().map(Row::new).collect();
    for repetition in 0..request.plan.repetitions {
        let count = rows.len();
        for turn in 0..count {
            let row = &mut rows[(turn + repetition) % count];
            eprintln!("{}/{}: {}", repetition + 1, request.plan.repetitions, row.way.name);
            row.take(&request);
        }
    }
    print!("{}", table::text(request.plan, &rows));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&table::json(request.plan, &rows));
        let text = text.context("writing JSON")? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

impl Row {
    fn new(way: &'static Way) -> Row {
        Row { way, cells: WORKS.iter().map(|_| Cell::default()).collect(), unavailable: None }
    }

    /// One repetition of all works.
    fn take(&mut self, request: &Request) {
        let mut stage = None;
        for (work, cell) in WORKS.iter().zip(&mut self.cells) {
            if self.unavailable.is_some() || cell.errors.len() >= FAILURES {
                cell.samples.push(None);
                continue;
            }
            let sample = sample(&mut stage, self.way, work, request);
            match sample {
                Ok(Ok(sample)) => cell.samples.push(Some(sample)),
                Ok(Err(why)) => {
                    eprintln!("{} is not available: {why}", self.way.name);
                    self.unavailable = Some(why);
                    cell.samples.push(None);
                }
                Err(error) => {
                    eprintln!("{}: {}: {error:#}", self.way.name, work.name);
                    cell.samples.push(None);
                    cell.errors.push(format!("{error:#}"));
                    // The next work gets a program of its own.
                    stage = None;
                }
            }
        }
    }
}

/// One run, on the program that runs already or on a fresh one; or why there is no such way.
fn sample(
    stage: &mut Option<Stage>,
    way: &Way,
    work: &Work,
    request: &Request,
) -> Result<Result<Sample, String>> {
    let stage = match stage {
        Some(stage) => stage,
        None => match Stage::start(way, &request.program, request.plan.seconds)? {
            Start::Answers(fresh) => stage.insert(fresh),
            Start::Unavailable(why) => return Ok(Err(why)),
        },
    };
    let sample = stage.sample(work, request.plan.seconds);
    match sample {
        Err(_) if stage.unavailable().is_some() => Ok(Err(stage.unavailable().unwrap_or_default())),
        other => other.map(Ok),
    }
}

impl Request {
    /// Those whose names hold one of the words, and the one that they are compared with.
    fn ways(&self) -> Result<Vec<&'static Way>> {
        let holds = |way: &Way| self.only.iter().any(|word| way.name.contains(word.as_str()));
        if let Some(word) =
            self.only.iter().find(|word| WAYS.iter().all(|way| !way.name.contains(word.as_str())))
        {
            let known: Vec<&str> = WAYS.iter().map(|way| way.name).collect();
            bail!("no way has `{word}` in its name; the ways: {}", known.join(" "));
        }
        let chosen = |way: &&Way| self.only.is_empty() || way.name == YARDSTICK || holds(way);
        Ok(WAYS.iter().filter(chosen).collect())
    }
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { plan: FULL, program: PathBuf::new(), only: Vec::new(), json: None };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--program" => request.program = value()?.into(),
            "--only" => request.only.push(value()?),
            "--json" => request.json = Some(value()?.into()),
            "--rounds" => {
                request.plan.repetitions = value()?.parse().context("--rounds: a number")?;
            }
            "--seconds" => {
                let seconds: f64 = value()?.parse().context("--seconds: a number")?;
                request.plan.seconds = Duration::try_from_secs_f64(seconds).context("--seconds")?;
            }
            other => bail!("unknown option {other}"),
        }
    }
    ensure!(request.program.is_file(), "--program PATH: the program that answers");
    ensure!(request.plan.repetitions > 0, "--rounds 0: there is nothing to measure");
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_yardstick_is_always_there() {
        let names = |only: &str| {
            let request = parsed(&format!("--program /proc/self/exe {only}")).unwrap();
            request.ways().map(|ways| ways.iter().map(|way| way.name).collect::<Vec<_>>())
        };
        assert_eq!(names("").unwrap().len(), WAYS.len());
        let uring = ["tun-poll", "uring-pair", "uring-multishot", "uring-sqpoll"];
        assert_eq!(names("--only uring").unwrap(), uring);
        assert!(names("--only dpdk").unwrap_err().to_string().contains("xdp-native"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let program = "--program /proc/self/exe";
        for rest in ["--rounds 0", "--rounds", "--seconds -1", "--repetitions 2"] {
            assert!(parsed(&format!("{program} {rest}")).is_err(), "{rest}");
        }
        assert!(parsed("").is_err());
        assert!(parsed("--program /nowhere").is_err());
    }

    #[test]
    fn ways_have_names_and_titles_of_their_own() {
        for (place, way) in WAYS.iter().enumerate() {
            assert!(WAYS[..place].iter().all(|other| other.name != way.name), "{}", way.name);
        }
    }
}
