//! `counted WORK ROUNDS`: work of one stack, done inside one function that a profiler can find.
//!
//! Two stacks stand in one thread, joined by a link in memory. Everything that the measured stack
//! does for one kind of work is called through [`counted`]; what the other stack does, and what
//! prepares a round, is not. `cargo xtask instructions` runs this under callgrind, which collects
//! only inside that function. It prints how many units of work were counted.
//!
//! The clock is virtual, and what is random has a seed, so that a run does the same as the one
//! before. It does not measure time.

mod connections;
mod pair;

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr, Timestamps};
use plimsoll_wire::{SeqNum, checksum};

use self::pair::{Joined, Pair, SEGMENT, Shape};

/// Segments that a bulk sender leaves on the link for one poll of the receiver.
const BATCH: usize = 16;

/// Segments of a super-segment: the most that fit into 64 KiB.
const SUPER: usize = 45;

/// Small writes that follow one that is below already: they fit into one segment.
const SMALL_WRITES: usize = 10;
const SMALL: usize = 128;

/// Rounds that are not counted: the congestion window opens, and what is kept is allocated.
const OPENING: usize = 100;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [work, rounds] = words.as_slice() else { bail!("usage: counted WORK ROUNDS") };
    let rounds: usize = rounds.parse().context("ROUNDS is a number")?;
    let units = match work.as_str() {
        "idle" => idle(rounds)?,
        "header" => header(rounds)?,
        "packet" => packet(rounds, 1, false)?,
        "acked" => packet(rounds, 1, true)?,
        "bulk" => packet(rounds, BATCH, false)?,
        "demux" => connections::demux(rounds)?,
        "read" => read(rounds)?,
        "ack" => ack(rounds)?,
        "send" => send(rounds, BATCH, false)?,
        "super" => send(rounds, SUPER, true)?,
        "write" => write(rounds)?,
        "response" => response(rounds, 1)?,
        "response-4096" => response(rounds, 4096)?,
        "connect" => connections::connect(rounds)?,
        "accept" => connections::accept(rounds)?,
        "datagram" => datagram(rounds)?,
        other => bail!("unknown work `{other}`"),
    };
    println!("{units}");
    Ok(())
}

/// What the profiler collects.
#[inline(never)]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    // Something after the call keeps it from becoming a jump, which the profiler would not see end.
    let result = work();
    black_box(&result);
    result
}

/// Does work, which the profiler collects if `collects` says so.
fn when<R>(collects: bool, work: impl FnOnce() -> R) -> R {
    if collects { counted(work) } else { work() }
}

/// Polls with nothing to do, with one established connection. The unit is a poll.
fn idle(rounds: usize) -> Result<usize> {
    let joined = Joined::new(Shape::default())?;
    for _ in 0..rounds {
        let polled = counted(|| joined.pair.measured.poll());
        ensure!(!polled.worked, "a poll that was to be idle had something to do");
    }
    Ok(rounds)
}

/// Parses the headers of a full segment, and verifies both checksums. The unit is a segment.
fn header(rounds: usize) -> Result<usize> {
    let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let mut tcp = TcpRepr {
        src_port: 7,
        dst_port: 40_000,
        seq: SeqNum(1),
        ack: SeqNum(2),
        flags: TcpFlags::ACK,
        window: 500,
        ..TcpRepr::default()
    };
    tcp.options.timestamps = Some(Timestamps { val: 3, ecr: 4 });
    let mut bytes = vec![0x5a; 20 + tcp.header_len() + SEGMENT];
    let ip = Ipv4Repr {
        src: there,
        dst: here,
        protocol: 6,
        ttl: 64,
        tos: 0,
        ident: 1,
        dont_frag: true,
        more_frags: false,
        frag_offset: 0,
        payload_len: bytes.len() - 20,
    };
    let at = ip.emit(&mut bytes);
    tcp.emit(&mut bytes[at..]);
    let len = bytes.len() - at;
    checksum::fill(checksum::pseudo_header_v4(there, here, 6, len as u32), &mut bytes[at..], 16);
    for _ in 0..rounds {
        let bytes = black_box(bytes.as_slice());
        let parsed = counted(|| {
            let (ip, at) = Ipv4Repr::parse(bytes)?;
            let tcp = TcpRepr::parse(&bytes[at..])?;
            let pseudo = checksum::pseudo_header_v4(ip.src, ip.dst, 6, (bytes.len() - at) as u32);
            Ok::<_, plimsoll_wire::WireError>((checksum::verify(pseudo, &bytes[at..]), tcp))
        });
        let (valid, (parsed, _)) = parsed.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(valid && parsed.options.timestamps.is_some(), "the header is as it was written");
    }
    Ok(rounds)
}

/// Polls that find full data segments, `batch` at a time, and acknowledge what must be. The unit is
/// a segment received. Reading what came is not counted.
fn packet(rounds: usize, batch: usize, quickack: bool) -> Result<usize> {
    let mut joined = Joined::new(Shape { quickack, ..Shape::default() })?;
    let data = vec![0x5a; SEGMENT * batch];
    let mut room = vec![0; SEGMENT * batch];
    let mut before = 0;
    for round in 0..OPENING + rounds {
        if round == OPENING {
            before = joined.pair.counter("TcpInSegs")?;
        }
        joined.receive(&data, &mut room, |stack| {
            when(round >= OPENING, || stack.poll());
        })?;
    }
    Ok(joined.pair.counter("TcpInSegs")? - before)
}

/// Reads of one segment that has arrived. The unit is a read.
fn read(rounds: usize) -> Result<usize> {
    let mut joined = Joined::new(Shape::default())?;
    let mut room = vec![0; SEGMENT];
    for round in 0..OPENING + rounds {
        joined.theirs.write_all(&[0x5a; SEGMENT])?;
        joined.pair.settle();
        let ours = &mut joined.ours;
        let taken = when(round >= OPENING, || ours.read(&mut room))?;
        ensure!(taken == SEGMENT, "{taken} bytes were read of {SEGMENT}");
        joined.pair.settle();
    }
    Ok(rounds)
}

/// Polls that find a pure ACK of one segment. The unit is a poll.
fn ack(rounds: usize) -> Result<usize> {
    let mut joined = Joined::new(Shape { peer_quickack: true, ..Shape::default() })?;
    let data = [0x5a; SEGMENT];
    let mut room = [0; SEGMENT];
    for round in 0..OPENING + rounds {
        joined.send(&data, &mut room, |_, ours| ours.write(&data))?;
        let measured = &joined.pair.measured;
        let acked = when(round >= OPENING, || measured.poll());
        ensure!(acked.worked, "there was no ACK");
        joined.pair.settle();
        let left = joined.ours.unacknowledged_bytes();
        ensure!(left == 0, "{left} bytes are not acknowledged");
    }
    Ok(rounds)
}

/// Writes of `batch` segments, and the poll that sends what they left. With `offloads` the unit is
/// a write, which leaves as super-segments; without, a segment. The ACKs are not counted.
fn send(rounds: usize, batch: usize, offloads: bool) -> Result<usize> {
    let mut joined = Joined::new(Shape { offloads, ..Shape::default() })?;
    let data = vec![0x5a; SEGMENT * batch];
    let mut room = vec![0; SEGMENT * batch];
    let mut before = 0;
    for round in 0..OPENING + rounds {
        if round == OPENING {
            before = joined.pair.counter("TcpOutSegs")?;
        }
        joined.send(&data, &mut room, |stack, ours| {
            when(round >= OPENING, || {
                let taken = ours.write(&data);
                stack.poll();
                taken
            })
        })?;
        joined.pair.settle();
    }
    let segments = joined.pair.counter("TcpOutSegs")? - before;
    ensure!(segments == rounds * batch, "{segments} segments were sent");
    Ok(if offloads { rounds } else { segments })
}

/// Small writes behind one that is below us. The unit is a write. What sends them is not counted.
fn write(rounds: usize) -> Result<usize> {
    let mut joined = Joined::new(Shape::default())?;
    let data = [0x5a; SMALL];
    let mut room = [0; SMALL * (SMALL_WRITES + 1)];
    for round in 0..OPENING + rounds {
        joined.ours.write_all(&data)?;
        let ours = &mut joined.ours;
        for _ in 0..SMALL_WRITES {
            when(round >= OPENING, || ours.write_all(&data))?;
        }
        joined.pair.settle();
        joined.theirs.read_exact(&mut room).context("what was written arrives")?;
        joined.pair.settle();
    }
    Ok(rounds * SMALL_WRITES)
}

/// Requests of `len` bytes that are answered with as many in the turn of the same poll. The unit is
/// a transaction: the poll, the read and the write.
fn response(rounds: usize, len: usize) -> Result<usize> {
    // More than a byte leaves as one packet, as on a device that takes super-segments.
    let mut joined = Joined::new(Shape { offloads: len > SEGMENT, ..Shape::default() })?;
    let mut bytes = vec![0x5a; len];
    for round in 0..OPENING + rounds {
        joined.theirs.write_all(&bytes)?;
        joined.pair.other_turn();
        let (measured, ours) = (&joined.pair.measured, &mut joined.ours);
        let mut answered = Ok(());
        when(round >= OPENING, || {
            measured.poll_with(|| {
                answered = ours.read_exact(&mut bytes).and_then(|()| ours.write_all(&bytes));
            });
        });
        answered.context("answering in the turn of a poll")?;
        joined.pair.other_turn();
        joined.theirs.read_exact(&mut bytes).context("the answer came")?;
        joined.pair.settle();
    }
    Ok(rounds)
}

/// Datagrams that are received and answered. The unit is both together, with the poll.
fn datagram(rounds: usize) -> Result<usize> {
    let pair = Pair::new(Shape::default())?;
    let bind = |stack, address: &str| -> Result<plimsoll::UdpSocket> {
        let socket = plimsoll::UdpSocket::bind(stack, address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let (ours, theirs) = (bind(&pair.measured, "192.0.2.1:9")?, bind(&pair.other, "192.0.2.2:9")?);
    let mut bytes = [0x5a; SMALL];
    for round in 0..OPENING + rounds {
        theirs.send_to(&bytes, "192.0.2.1:9")?;
        pair.other_turn();
        when(round >= OPENING, || -> std::io::Result<()> {
            pair.measured.poll();
            let (len, from) = ours.recv_from(&mut bytes)?;
            ours.send_to(&bytes[..len], from)?;
            pair.measured.poll();
            Ok(())
        })?;
        pair.other_turn();
        let (len, _) = theirs.recv_from(&mut bytes).context("the answer came")?;
        ensure!(len == SMALL, "{len} bytes came back");
        pair.settle();
    }
    Ok(rounds)
}
