//! The client of `bench peers`, the same for every stack that is compared.
//!
//! It speaks the protocol of the servers in `bench/peers` (`common/src/job.rs` there): the first
//! nine bytes of a connection say what the server is to do. Each work prints one line of JSON with
//! what was moved, how long that took, and how long processors of the machine were busy meanwhile,
//! both sides and the kernel's own work included.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::behaviour::raise_descriptor_limit;
use super::options::Options;
use super::workload::{connect, say};

/// How long nothing may move before a run has failed.
const STALL: Duration = Duration::from_secs(5);

/// What may lie between two reads of a download.
const SILENCE: Duration = Duration::from_secs(1);

/// How often a download looks at how far it has come: /proc/stat counts in such ticks.
const TICK: Duration = Duration::from_millis(10);

/// The last byte to a server that discards, which it answers.
const MARK: u8 = 1;

/// Bytes that are read or, for bulk, written at a time.
const BLOCK: usize = 64 * 1024;

/// Runs the work that `--work` names.
pub(super) fn run(options: &Options) -> Result<()> {
    match options.text("work") {
        Some("upload") => bulk(options, upload),
        Some("download") => bulk(options, download),
        Some("rr") => transactions(options, transact),
        Some("crr") => transactions(options, connect_and_transact),
        Some("hold") => hold(options),
        other => anyhow::bail!("--work {other:?}: upload, download, rr, crr or hold"),
    }
}

/// A connection that has told the server what to do.
fn ask(options: &Options, job: u8, size: usize, time: Duration) -> Result<TcpStream> {
    let mut stream = open(options)?;
    stream.write_all(&header(job, size, time)?).context("asking")?;
    Ok(stream)
}

/// A connection over which the first request has been answered. It goes with the header in one
/// segment: else Nagle's rule would hold it until a delayed ACK comes.
fn ask_with_request(options: &Options, request: &[u8]) -> Result<TcpStream> {
    let mut stream = open(options)?;
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    let mut first = header(b'a', request.len(), Duration::ZERO)?;
    first.extend(request);
    stream.write_all(&first).context("asking")?;
    stream.read_exact(&mut vec![0; request.len()]).context("reading the first answer")?;
    Ok(stream)
}

fn open(options: &Options) -> Result<TcpStream> {
    let stream = connect(options)?;
    stream.set_read_timeout(Some(STALL)).context("SO_RCVTIMEO")?;
    stream.set_write_timeout(Some(STALL)).context("SO_SNDTIMEO")?;
    Ok(stream)
}

/// The first bytes of a connection.
fn header(job: u8, size: usize, time: Duration) -> Result<Vec<u8>> {
    let mut header = vec![job];
    header.extend(u32::try_from(size).context("--size: too large")?.to_be_bytes());
    let millis = u32::try_from(time.as_millis()).context("--seconds: too many")?;
    header.extend(millis.to_be_bytes());
    Ok(header)
}

/// What was moved in some time, and how long processors were busy in that time.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    amount: u64,
    taken: Duration,
    busy: f64,
}

impl Moved {
    fn report(self) -> Result<()> {
        let Moved { amount, taken, busy } = self;
        let seconds = taken.as_secs_f64();
        say(&json!({ "amount": amount, "seconds": seconds, "busy_seconds": busy }).to_string())
    }
}

/// Runs `flow` on `--flows` threads at once. The bytes are those of all of them, the time that of
/// the longest.
fn bulk(options: &Options, flow: fn(&Options) -> Result<Moved>) -> Result<()> {
    let flows: usize = options.get("flows", 1)?;
    let all: Result<Vec<Moved>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..flows).map(|_| scope.spawn(|| flow(options))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a flow does not panic")).collect()
    });
    let mut sum = Moved::default();
    for Moved { amount, taken, busy } in all? {
        sum.amount += amount;
        (sum.taken, sum.busy) = (sum.taken.max(taken), sum.busy.max(busy));
    }
    sum.report()
}

/// Bytes to a server that discards them. The clock stops when it has told that it has read the
/// last one.
fn upload(options: &Options) -> Result<Moved> {
    let limit = options.seconds("seconds", 1.0)?;
    let mut stream = ask(options, b'd', 0, Duration::ZERO)?;
    let block = vec![0x5a; BLOCK];
    let (begun, busy, mut bytes) = (Instant::now(), busy_seconds()?, 0);
    while begun.elapsed() < limit {
        stream.write_all(&block).context("writing")?;
        bytes += block.len() as u64;
    }
    // Nagle's rule would hold it until a delayed ACK comes.
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    stream.write_all(&[MARK]).context("writing the last byte")?;
    stream.read_exact(&mut [0]).context("waiting until all has been read")?;
    Ok(Moved { amount: bytes, taken: begun.elapsed(), busy: busy_seconds()? - busy })
}

/// Bytes from a server that writes `--size` bytes at a time.
fn download(options: &Options) -> Result<Moved> {
    let limit = options.seconds("seconds", 1.0)?;
    let mut stream = ask(options, b's', options.get("size", BLOCK)?, limit)?;
    stream.set_read_timeout(Some(SILENCE)).context("SO_RCVTIMEO")?;
    received(&mut stream, limit)
}

/// Reads from the first byte to the end. Not all stacks end their direction before the client has,
/// so a silence at the end of the time is an end too.
///
/// Bytes, time and processor time are those of one span, from the first byte to the last look at
/// the clock: what lies between the last byte and the end, a silence for one, is in none of them.
fn received(stream: &mut impl Read, limit: Duration) -> Result<Moved> {
    let first = stream.read(&mut [0; BLOCK]).context("reading the first bytes")? as u64;
    ensure!(first > 0, "the server has closed without a byte");
    let (begun, busy, mut bytes) = (Instant::now(), busy_seconds()?, first);
    let mut last = Moved::default();
    let mut block = vec![0; 4 * BLOCK];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return whole(last, limit, "the server has ended it"),
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return whole(last, limit, "the server has reset it");
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return whole(last, limit, &format!("nothing has come for {SILENCE:?}"));
            }
            Err(error) => return Err(error).context("reading"),
        }
        let taken = begun.elapsed();
        if taken >= last.taken + TICK {
            last = Moved { amount: bytes, taken, busy: busy_seconds()? - busy };
        }
    }
}

/// A download that has lasted as long as it should have, but for a tenth: the clocks of both sides
/// begin at different moments.
fn whole(moved: Moved, limit: Duration, how: &str) -> Result<Moved> {
    let taken = moved.taken;
    ensure!(taken >= limit * 9 / 10, "the download went on for {taken:.2?} of {limit:?}: {how}");
    Ok(moved)
}

/// Reads to the end; what resets the connection ends it as well.
fn read_all(stream: &mut TcpStream) -> Result<u64> {
    let mut block = vec![0; 4 * BLOCK];
    let mut bytes = 0;
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(bytes),
            Err(error) => return Err(error).context("reading"),
        }
    }
}

/// What each flow of a measurement of transactions does.
struct Talk {
    /// Bytes of a request, and of its response.
    size: usize,
    limit: Duration,
}

/// A flow: the connection's options, what to do, and what all of them begin behind.
type Flow = fn(&Options, &Talk, &Barrier) -> Result<u64>;

/// Runs `flow` on `--flows` threads that begin together, and adds up their transactions.
fn transactions(options: &Options, flow: Flow) -> Result<()> {
    // A thread that returned before the barrier would leave the others waiting there.
    let flows: usize = options.get("flows", 1)?;
    let talk = Talk { size: options.get("size", 1)?, limit: options.seconds("seconds", 1.0)? };
    let barrier = Barrier::new(flows + 1);
    let (counts, taken, busy) = thread::scope(|scope| {
        let run = || flow(options, &talk, &barrier);
        let threads: Vec<_> = (0..flows).map(|_| scope.spawn(run)).collect();
        barrier.wait();
        let (begun, busy) = (Instant::now(), busy_seconds());
        let join = |thread: thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().expect("a flow does not panic")
        };
        let counts: Result<Vec<u64>> = threads.into_iter().map(join).collect();
        (counts, begun.elapsed(), busy)
    });
    Moved { amount: counts?.iter().sum(), taken, busy: busy_seconds()? - busy? }.report()
}

/// Requests and responses over one connection.
fn transact(options: &Options, talk: &Talk, barrier: &Barrier) -> Result<u64> {
    let (block, mut answer) = (vec![0x5a; talk.size], vec![0; talk.size]);
    let stream = ask_with_request(options, &block);
    barrier.wait();
    let mut stream = stream?;
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < talk.limit {
        stream.write_all(&block).context("asking")?;
        stream.read_exact(&mut answer).context("reading the answer")?;
        count += 1;
    }
    Ok(count)
}

/// A connection for each request. The client ends it first, and the server must end it too.
fn connect_and_transact(options: &Options, talk: &Talk, barrier: &Barrier) -> Result<u64> {
    barrier.wait();
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < talk.limit {
        let mut stream = ask_with_request(options, &[0x5a])?;
        stream.shutdown(Shutdown::Write).context("shutting down")?;
        ensure!(read_all(&mut stream)? == 0, "more than the answer has come");
        count += 1;
    }
    Ok(count)
}

/// Opens `--count` connections with one transaction each, says `open`, and holds them until it is
/// killed.
fn hold(options: &Options) -> Result<()> {
    let count: usize = options.get("count", 10_000)?;
    raise_descriptor_limit(count as u64 + 100)?;
    let mut streams = Vec::with_capacity(count);
    for n in 0..count {
        let opened = ask_with_request(options, &[0x5a]);
        streams.push(opened.with_context(|| format!("connection {n}"))?);
    }
    say("open")?;
    loop {
        thread::park();
    }
}

/// How long processors of the machine have been busy since it was started, added up.
fn busy_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    busy_ticks(&stat).map(|ticks| ticks / 100.0).context("/proc/stat has no line `cpu`")
}

/// Of the first line's columns, user, nice, system, irq and softirq, in ticks of a hundredth of a
/// second, which Linux fixes.
fn busy_ticks(stat: &str) -> Option<f64> {
    let columns = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = columns.split_whitespace().map_while(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].into_iter().map(|column| ticks.get(column)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_what_others_take() {
        let stat = "cpu  1 2 4 1000 1000 8 16 1000 0 0\ncpu0 9 9 9 9\n";
        assert_eq!(busy_ticks(stat), Some(31.0));
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
        assert_eq!(busy_ticks(""), None);
    }

    /// A server that says something, and then only how its reads end.
    struct Server {
        says: usize,
        then: Option<ErrorKind>,
    }

    impl Read for Server {
        fn read(&mut self, block: &mut [u8]) -> std::io::Result<usize> {
            let count = self.says.min(block.len());
            self.says -= count;
            match self.then {
                Some(kind) if count == 0 => Err(kind.into()),
                _ => Ok(count),
            }
        }
    }

    #[test]
    fn a_download_that_ends_early_does_not_count() {
        let asked = Duration::from_secs(3600);
        for (then, why) in [
            (None, "the server has ended it"),
            (Some(ErrorKind::ConnectionReset), "the server has reset it"),
            (Some(ErrorKind::WouldBlock), "nothing has come for 1s"),
        ] {
            let error = received(&mut Server { says: 5000, then }, asked).unwrap_err().to_string();
            assert!(error.contains(" of 3600s: ") && error.ends_with(why), "{error}");
            assert!(received(&mut Server { says: 5000, then }, Duration::ZERO).is_ok(), "{why}");
        }
        let error = received(&mut Server { says: 0, then: None }, asked).unwrap_err().to_string();
        assert!(error.contains("without a byte"), "{error}");
    }

    #[test]
    fn a_tenth_of_the_time_may_be_missing() {
        let moved = |millis| Moved { taken: Duration::from_millis(millis), ..Moved::default() };
        let limit = Duration::from_secs(1);
        assert!(whole(moved(900), limit, "").is_ok());
        let error = whole(moved(899), limit, "it slept").unwrap_err().to_string();
        assert_eq!(error, "the download went on for 899.00ms of 1s: it slept");
    }
}
