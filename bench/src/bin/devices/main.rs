//! `devices [--seconds S] [--repetitions N] [--only WORD]...`: what it costs to hand the host's
//! kernel a packet, and to take one from it, in each of several ways.
//!
//! It makes network namespaces, so it needs root. In each run the kernel's side is a UDP socket, or
//! it drops what we hand over; on ours there is no stack, only packets that were made before. Giving
//! and taking go in rounds: the kernel's side has its part of a round before or after ours, so that
//! the time of our thread is that of its calls alone, and nobody waits for the other. In a turn a
//! datagram goes to a socket and comes back, and both sides sleep meanwhile.
//!
//! Each run prints a line of JSON: seconds of our thread and of all processors for each packet, and
//! packets in a second of our calls. The runs of one work stand together, whoever is first changes.

mod packet;
mod place;
mod sys;
mod ways;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use self::packet::{Fate, Shape, packet};
use self::place::{HOST_PROCESSOR, OUR_PROCESSOR, PAYLOAD, Task};
use self::ways::{Can, KINDS, Kind, Way};

/// Packets of a round.
const ROUND: usize = 256;
const ROUND_OF_LONG: usize = 64;

/// Rounds that are not counted.
const WARM_UP: usize = 3;

/// How often nothing is found, a millisecond each time, before packets count as lost.
const PATIENCE: usize = 100;

/// A work by its name.
struct Work {
    name: &'static str,
    kind: Kinds,
}

#[derive(Clone, Copy)]
enum Kinds {
    Give(Shape, Fate),
    Take { trains: bool },
    Turn { busy_poll: bool },
}

const DATAGRAM: Shape = Shape::Datagram(PAYLOAD);

const WORKS: [Work; 7] = [
    Work { name: "give 1,500 B, dropped", kind: Kinds::Give(DATAGRAM, Fate::Dropped) },
    Work { name: "give 1,500 B, to a socket", kind: Kinds::Give(DATAGRAM, Fate::Delivered) },
    Work { name: "give 64 KiB, dropped", kind: Kinds::Give(Shape::Train, Fate::Dropped) },
    Work { name: "take 1,500 B", kind: Kinds::Take { trains: false } },
    Work { name: "take 64 KiB", kind: Kinds::Take { trains: true } },
    Work { name: "1 B and back", kind: Kinds::Turn { busy_poll: false } },
    Work { name: "1 B and back, peer polls", kind: Kinds::Turn { busy_poll: true } },
];

struct Request {
    seconds: Duration,
    repetitions: usize,
    only: Vec<String>,
}

fn main() -> Result<()> {
    let request = parse(std::env::args().skip(1).collect())?;
    place::stay_on(OUR_PROCESSOR)?;
    let wanted = |way: &Kind, work: &Work| {
        request.only.is_empty()
            || request.only.iter().any(|word| way.name.contains(word) || work.name.contains(word))
    };
    for repetition in 0..request.repetitions {
        for work in &WORKS {
            for turn in 0..KINDS.len() {
                let way = &KINDS[(turn + repetition) % KINDS.len()];
                if work.is_for(way.can) && wanted(way, work) {
                    println!("{}", line(way, work, request.seconds));
                }
            }
        }
    }
    Ok(())
}

fn parse(words: Vec<String>) -> Result<Request> {
    let seconds = Duration::from_millis(400);
    let mut request = Request { seconds, repetitions: 1, only: Vec::new() };
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        let value = rest.next().with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--seconds" => {
                let seconds = value.parse().context("--seconds: a number")?;
                request.seconds = Duration::try_from_secs_f64(seconds).context("--seconds")?;
            }
            "--repetitions" => {
                request.repetitions = value.parse().context("--repetitions: a number")?;
            }
            "--only" => request.only.push(value),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

/// The figures of one run, or why there are none.
fn line(way: &Kind, work: &Work, seconds: Duration) -> Value {
    let mut line = json!({ "way": way.name, "work": work.name });
    match work.run(way, seconds) {
        Ok(figures) => {
            line["ours_ns"] = json!(figures.ours * 1e9);
            line["machine_ns"] = json!(figures.machine * 1e9);
            line["per_s"] = json!(figures.per_second);
        }
        Err(error) => line["error"] = json!(format!("{error:#}")),
    }
    line
}

/// Of one packet: processor seconds of our thread and of the machine; and packets in a second.
struct Figures {
    ours: f64,
    machine: f64,
    per_second: f64,
}

/// Time, and processor time, of what our thread does.
#[derive(Clone, Copy, Default)]
struct Own {
    wall: Duration,
    busy: Duration,
}

impl Own {
    /// Adds what `work` takes.
    fn of<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (begun, busy) = (Instant::now(), thread_time());
        let result = work();
        self.busy += thread_time().saturating_sub(busy);
        self.wall += begun.elapsed();
        result
    }
}

/// How long this thread has been on a processor.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// How long processors of the machine have been busy, by the first line of /proc/stat.
fn machine_time() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let line = line.context("/proc/stat has no line `cpu`")?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    ensure!(ticks.len() > 6, "/proc/stat has too few columns");
    // user, nice, system, irq, softirq, in hundredths of a second.
    Ok([0, 1, 2, 5, 6].iter().map(|&column: &usize| ticks[column]).sum::<f64>() / 100.0)
}

impl Work {
    fn is_for(&self, can: Can) -> bool {
        match self.kind {
            Kinds::Give(shape, _) => can.give && (can.long || shape != Shape::Train),
            Kinds::Take { trains } => can.take && (can.long || !trains),
            Kinds::Turn { .. } => can.turn,
        }
    }

    /// Runs it in a place of its own.
    fn run(&self, way: &Kind, seconds: Duration) -> Result<Figures> {
        let (place, mut way) = way.open()?;
        let way = way.as_mut();
        match self.kind {
            Kinds::Give(shape, Fate::Dropped) => {
                let bytes = packet(shape, Fate::Dropped, way.front());
                let count = if shape == Shape::Train { ROUND_OF_LONG } else { ROUND };
                rounds(seconds, |own| {
                    own.of(|| way.give(&bytes, count))?;
                    Ok(count)
                })
            }
            Kinds::Give(shape, Fate::Delivered) => {
                let bytes = packet(shape, Fate::Delivered, way.front());
                let sink = place.start(Task::Drain)?;
                rounds(seconds, |own| {
                    sink.order(ROUND)?;
                    own.of(|| way.give(&bytes, ROUND))?;
                    let got = sink.result()?;
                    ensure!(got == ROUND, "the socket has got {got} of {ROUND} packets");
                    Ok(ROUND)
                })
            }
            Kinds::Take { trains } => {
                let source = place.start(Task::Send { trains })?;
                let count = if trains { ROUND_OF_LONG } else { ROUND };
                rounds(seconds, |own| {
                    source.order(count)?;
                    source.result()?;
                    take(own, way, count)?;
                    Ok(count)
                })
            }
            Kinds::Turn { busy_poll } => {
                let bytes = packet(Shape::Datagram(1), Fate::Delivered, way.front());
                let peer = place.start(Task::Return { busy_poll })?;
                rounds(seconds, |own| {
                    peer.order(ROUND)?;
                    own.of(|| (0..ROUND).try_for_each(|_| way.turn(&bytes)))?;
                    peer.result()
                })
            }
        }
    }
}

/// Takes so many packets.
fn take(own: &mut Own, way: &mut dyn Way, count: usize) -> Result<()> {
    let (mut got, mut patience) = (0, PATIENCE);
    while got < count {
        let before = got;
        own.of(|| {
            while got < count {
                match way.take()? {
                    0 => break,
                    more => got += more,
                }
            }
            Ok(())
        })?;
        if got < count {
            patience = if got > before { PATIENCE } else { patience - 1 };
            ensure!(patience > 0, "{got} of {count} packets have come");
            thread::sleep(Duration::from_millis(1));
        }
    }
    ensure!(got == count, "{got} packets have come where {count} were sent");
    Ok(())
}

/// Rounds for some time; each says how many packets it had.
fn rounds(seconds: Duration, mut round: impl FnMut(&mut Own) -> Result<usize>) -> Result<Figures> {
    for _ in 0..WARM_UP {
        round(&mut Own::default())?;
    }
    let (mut own, mut packets) = (Own::default(), 0);
    let (begun, busy) = (Instant::now(), machine_time()?);
    while begun.elapsed() < seconds {
        packets += round(&mut own)?;
    }
    let machine = machine_time()? - busy;
    let packets = packets as f64;
    Ok(Figures {
        ours: own.busy.as_secs_f64() / packets,
        machine: machine / packets,
        per_second: packets / own.wall.as_secs_f64(),
    })
}

const _: () = assert!(OUR_PROCESSOR != HOST_PROCESSOR);
