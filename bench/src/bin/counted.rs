//! `counted WORK ROUNDS`: work of one stack, done inside one function that a profiler can find.
//!
//! Two stacks stand in one thread, joined by a link in memory. Everything that the measured stack
//! does for one kind of work is called through [`counted`]; what the other stack does, and what
//! prepares a round, is not. `cargo xtask bench atomics` runs this under callgrind, which collects
//! only inside that function. It prints how many units of work were counted.
//!
//! It uses the public interface only, and little of it, so that it can be built with older versions
//! of the stack. It does not measure time.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Stack, TcpListener, TcpStream};

/// Bytes that fill a segment on the link exactly: MTU 1500 less headers and timestamps.
const SEGMENT: usize = 1448;

/// Segments that a bulk sender leaves on the link for one poll of the receiver.
const BATCH: usize = 16;

/// Polls with nothing to do that must follow one another before the stacks count as quiet.
const QUIET: usize = 100;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [work, rounds] = words.as_slice() else { bail!("usage: counted WORK ROUNDS") };
    let rounds: usize = rounds.parse().context("ROUNDS is a number")?;
    let units = match work.as_str() {
        "idle" => idle(rounds)?,
        "packet" => packet(rounds, 1, false)?,
        "acked" => packet(rounds, 1, true)?,
        "bulk" => packet(rounds, BATCH, false)?,
        "read" => read(rounds)?,
        "response" => response(rounds)?,
        other => bail!("unknown work `{other}`: idle, packet, acked, bulk, read or response"),
    };
    println!("{units}");
    Ok(())
}

/// What the profiler collects.
#[inline(never)]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    // Something after the call keeps it from becoming a jump, which the profiler would not see end.
    let result = work();
    std::hint::black_box(&result);
    result
}

/// A stack that is measured, one that is not, and a connection between them.
struct Pair {
    measured: Stack,
    other: Stack,
    ours: TcpStream,
    theirs: TcpStream,
}

impl Pair {
    /// A pair whose measured stack acknowledges everything at once if `quickack` says so.
    fn new(quickack: bool) -> Result<Pair> {
        // Without offloads a packet is a wire segment, so that packets can be counted.
        let link = LinkConfig::default().offloads(false);
        let (here, there) = memory_link::pair(link);
        let build = |device, address: &str, seed| {
            Stack::builder().device(device).address(address).seed(seed)
        };
        let measured = build(here, "192.0.2.1/24", 1).quickack(quickack).build_without_thread()?;
        let other = build(there, "192.0.2.2/24", 2).build_without_thread()?;
        let listener = TcpListener::bind(&measured, "192.0.2.1:7")?;
        listener.set_nonblocking(true)?;
        let remote = "192.0.2.1:7".parse().context("an address")?;
        let theirs = plimsoll::Connector::new(&other).start(remote)?;
        theirs.set_nonblocking(true)?;
        theirs.set_nodelay(true)?;
        for _ in 0..1000 {
            other.poll();
            measured.poll();
            match listener.accept() {
                Ok((ours, _)) => {
                    ours.set_nonblocking(true)?;
                    ours.set_nodelay(true)?;
                    let pair = Pair { measured, other, ours, theirs };
                    pair.settle();
                    return Ok(pair);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("the connection was not established")
    }

    /// Polls both until neither has had anything to do for a while.
    fn settle(&self) {
        let mut quiet = 0;
        while quiet < QUIET {
            let worked = self.other.poll().worked | self.measured.poll().worked;
            quiet = if worked { 0 } else { quiet + 1 };
        }
    }

    fn packets(&self) -> Result<usize> {
        let counters = self.measured.counters();
        let found = counters.iter().find(|(name, _)| *name == "TcpInSegs");
        Ok(usize::try_from(found.context("a counter of segments")?.1)?)
    }
}

/// Polls with nothing to do, with one established connection. The unit is a poll.
fn idle(rounds: usize) -> Result<usize> {
    let pair = Pair::new(false)?;
    for _ in 0..rounds {
        let polled = counted(|| pair.measured.poll());
        ensure!(!polled.worked, "a poll that was to be idle had something to do");
    }
    Ok(rounds)
}

/// Polls that find full data segments, `batch` at a time, and acknowledge what must be. The unit is
/// a segment received. Reading what came is not counted.
fn packet(rounds: usize, batch: usize, quickack: bool) -> Result<usize> {
    let mut pair = Pair::new(quickack)?;
    let data = vec![0x5a; SEGMENT * batch];
    let mut room = vec![0; SEGMENT * batch];
    // The congestion window opens first.
    for _ in 0..100 {
        exchange(&mut pair, &data, &mut room, |stack| {
            stack.poll();
        })?;
    }
    let before = pair.packets()?;
    for _ in 0..rounds {
        exchange(&mut pair, &data, &mut room, |stack| {
            counted(|| stack.poll());
        })?;
    }
    Ok(pair.packets()? - before)
}

/// Sends `data` to the measured stack, which takes it with one `poll`, and reads it there.
fn exchange(pair: &mut Pair, data: &[u8], room: &mut [u8], poll: impl Fn(&Stack)) -> Result<()> {
    let sent = pair.theirs.write(data)?;
    pair.other.poll();
    poll(&pair.measured);
    let mut taken = 0;
    while taken < sent {
        match pair.ours.read(room) {
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                pair.other.poll();
                poll(&pair.measured);
            }
            Err(error) => return Err(error.into()),
        }
    }
    pair.settle();
    Ok(())
}

/// Reads of one segment that has arrived. The unit is a read.
fn read(rounds: usize) -> Result<usize> {
    let mut pair = Pair::new(false)?;
    let mut room = vec![0; SEGMENT];
    for _ in 0..rounds {
        pair.theirs.write_all(&[0x5a; SEGMENT])?;
        pair.settle();
        let ours = &mut pair.ours;
        let taken = counted(|| ours.read(&mut room))?;
        ensure!(taken == SEGMENT, "{taken} bytes were read of {SEGMENT}");
        pair.settle();
    }
    Ok(rounds)
}

/// Requests of one byte that are answered with one byte in the turn of the same poll. The unit is a
/// transaction: the poll, the read and the write.
fn response(rounds: usize) -> Result<usize> {
    let mut pair = Pair::new(false)?;
    let mut byte = [0];
    for _ in 0..rounds {
        pair.theirs.write_all(&byte)?;
        pair.other.poll();
        let (measured, ours) = (&pair.measured, &mut pair.ours);
        let mut answered = Ok(());
        counted(|| {
            measured.poll_with(|| {
                answered = ours.read_exact(&mut byte).and_then(|()| ours.write_all(&byte));
            });
        });
        answered.context("answering in the turn of a poll")?;
        pair.other.poll();
        pair.theirs.read_exact(&mut byte).context("the answer came")?;
        pair.settle();
    }
    Ok(rounds)
}
