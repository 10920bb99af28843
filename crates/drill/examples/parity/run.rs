//! One run: a pattern, live, against a sender on a [`Host`].
//!
//! The path and the receiver live on a grid of time, whose points are a tick of the kernel apart
//! and lie between ticks. What a segment causes comes at the point at which the segment left and so
//! much, whatever the run's clockwork took meanwhile: being late does not add up.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};
use plimsoll_drill::host::{Host, Started};
use plimsoll_drill::posix::{Call, Reply, SendVia, Source};
use plimsoll_drill::run::tcp_info;
use plimsoll_drill::shell::Command;
use plimsoll_tcp::{Duration, Instant};

use crate::pattern::{GRID, Pattern, SEGMENT};
use crate::receiver::{Ack, Answer, Arrived, Receiver};
use crate::ticks;
use crate::trace::{Event, Info, Trace};
use crate::wire::{self, Seen};

/// A run that has not ended by then is over.
const LIMIT: Duration = Duration::from_secs(20);
/// Packets arrive so far apart at least.
const APART: Duration = Duration::from_micros(10);
/// What is sent again takes so much longer. If its round trip is less than the least so far, RACK
/// takes the ACK for one of the first copy; without this a microsecond would decide.
const AGAIN: Duration = Duration::from_millis(4);
/// The first ACK comes so much early: the least round trip is a little less than that of the path,
/// also where a machine takes some time for everything. CUBIC counts it in ticks.
const EARLY: Duration = Duration::from_micros(400);
/// When the peer opens the connection.
const OPEN: Instant = Instant::from_millis(20);

/// Numbers of Linux for calls.
const AF_INET: i32 = 2;
const SOCK_STREAM: i32 = 1;
const SOCK_NONBLOCK: i32 = 0o4000;
/// It does not sleep, so the kernel host makes it at once and not on another thread.
const MSG_DONTWAIT: i32 = 0x40;
/// Level and name of options.
const SO_SNDBUF: (i32, i32) = (1, 7);
const TCP_NODELAY: (i32, i32) = (6, 1);
const TCP_CONGESTION: (i32, i32) = (6, 13);
/// More than any pattern writes, so that the buffer decides nothing.
const BUFFER: i32 = 1 << 20;

/// Something that will happen.
enum Due {
    /// The application's next write.
    Write,
    /// A segment reaches the receiver.
    Arrive(Arrived),
    /// An ACK that waits leaves, unless one has left since.
    LateAck,
    /// An ACK reaches the sender; with the receiver's clock when it left.
    Deliver(Ack, u32),
}

/// A run as it goes.
struct Run<'a> {
    host: &'a mut dyn Host,
    pattern: &'a Pattern,
    fd: i32,
    /// The sequence number of the first byte of data.
    first: u32,
    receiver: Receiver,
    /// What is due, in order of its time and of its making.
    due: BTreeMap<(Instant, u64), Due>,
    made: u64,
    /// Transmissions of each first byte.
    sent: HashMap<u32, u32>,
    /// ACKs that the receiver has made.
    acks: u32,
    /// The place in `due` of the ACK that waits.
    late_ack: Option<(Instant, u64)>,
    /// Writes that were made, and their bytes.
    writes: usize,
    written: u32,
    /// The next write is due.
    writing: bool,
    /// The highest acknowledgement that was delivered.
    acked: u32,
    trace: Trace,
}

/// Runs a pattern.
///
/// `begin` makes it begin, at a time of its choice.
///
/// # Errors
/// If the host is broken, or refuses a call or the connection.
pub(crate) fn run<H: Host>(
    host: &mut H,
    pattern: &Pattern,
    begin: impl FnOnce(&mut H) -> Result<()>,
) -> Result<Trace> {
    let settings = [
        ("net.ipv4.tcp_sack", u8::from(pattern.sack).to_string()),
        ("net.ipv4.tcp_timestamps", u8::from(pattern.timestamps).to_string()),
        ("net.ipv4.tcp_ecn", "0".into()),
        ("net.ipv4.tcp_tso_win_divisor", if pattern.deferral { "3" } else { "255" }.into()),
    ];
    for (name, value) in settings {
        host.command(&Command::Sysctl { name: name.into(), value })?;
    }
    begin(host)?;
    let mut run = open(host, pattern)?;
    run.go()?;
    Ok(run.trace)
}

/// Makes a call that must succeed, and soon: none of these waits for the peer.
fn call(host: &mut dyn Host, call: Call) -> Result<i32> {
    let what: String = format!("{call:?}").chars().take(60).collect();
    let reply = match host.call(call, false)? {
        Started::Returned(reply) => reply,
        Started::Sleeps => returned(host).with_context(|| what.clone())?,
    };
    match reply.result {
        Ok(value) => Ok(i32::try_from(value)?),
        Err(errno) => bail!("{what}: {errno}"),
    }
}

/// What a call returns that a busy machine has made look as if it slept.
fn returned(host: &mut dyn Host) -> Result<Reply> {
    let deadline = host.now() + Duration::from_secs(1);
    while host.now() < deadline {
        if let Some((_, reply)) = host.returned() {
            return Ok(reply);
        }
        host.wait(deadline)?;
    }
    bail!("it sleeps")
}

fn set(host: &mut dyn Host, fd: i32, (level, name): (i32, i32), value: &[u8]) -> Result<()> {
    let (value, len) = (Some(value.to_vec()), i32::try_from(value.len())?);
    call(host, Call::Setsockopt { fd, level, name, value, len }).map(drop)
}

/// Opens the connection; it is the receiver that asks for it.
fn open<'a>(host: &'a mut dyn Host, pattern: &'a Pattern) -> Result<Run<'a>> {
    let kind = SOCK_STREAM | SOCK_NONBLOCK;
    let listener = call(host, Call::Socket { domain: AF_INET, kind, protocol: 0 })?;
    set(host, listener, SO_SNDBUF, &BUFFER.to_ne_bytes())?;
    // Connections take it over. The namespace may not have it as its default.
    set(host, listener, TCP_CONGESTION, pattern.controller.name().as_bytes())?;
    call(host, Call::Bind { fd: listener, addr: Some(wire::SENDER) })?;
    call(host, Call::Listen { fd: listener, backlog: 1 })?;
    wait(host, OPEN)?;
    host.inject(&wire::syn(pattern, millis(OPEN)))?;
    let (at, syn_ack) = syn_ack(host)?;
    let first = syn_ack.seq.wrapping_add(1);
    let mut receiver = Receiver::new(pattern, syn_ack.tsval);
    let at = grid(at) + ms(pattern.rtt_ms);
    wait(host, at)?;
    host.inject(&wire::ack(pattern, first, &receiver.ack(), millis(at)))?;
    wait(host, at + Duration::from_millis(2))?;
    let fd = call(host, Call::Accept { fd: listener, flags: SOCK_NONBLOCK })?;
    set(host, fd, SO_SNDBUF, &BUFFER.to_ne_bytes())?;
    set(host, fd, TCP_NODELAY, &1_i32.to_ne_bytes())?;
    let mut run = Run {
        host,
        pattern,
        fd,
        first,
        receiver,
        due: BTreeMap::new(),
        made: 0,
        sent: HashMap::new(),
        acks: 0,
        late_ack: None,
        writes: 0,
        written: 0,
        writing: false,
        acked: 0,
        trace: Trace::default(),
    };
    run.plan_write(at);
    Ok(run)
}

/// Waits for the SYN-ACK.
fn syn_ack(host: &mut dyn Host) -> Result<(Instant, Seen)> {
    let deadline = host.now() + Duration::from_millis(500);
    loop {
        if let Some(packet) = host.sniff() {
            match wire::read(&packet.bytes) {
                Some(seen) if seen.syn => return Ok((packet.at, seen)),
                _ => continue,
            }
        }
        ensure!(host.now() < deadline, "no SYN-ACK has come");
        host.wait(deadline)?;
    }
}

fn wait(host: &mut dyn Host, until: Instant) -> Result<()> {
    while host.now() < until {
        host.wait(until)?;
    }
    Ok(())
}

/// The receiver's clock. It does not begin at zero, which would say that there is no echo.
fn millis(at: Instant) -> u32 {
    at.as_millis() as u32 + 1000
}

fn ms(count: u32) -> Duration {
    Duration::from_millis(count.into())
}

/// From the sender to the receiver; the way back takes the rest.
fn way(pattern: &Pattern) -> Duration {
    ms(pattern.rtt_ms / 2 / GRID * GRID)
}

/// The point of the grid at which something leaves that leaves at `at`. What follows from a packet
/// or a write leaves at its point or soon after, and what a timer sends leaves after a tick, which
/// is nearer to the next.
fn grid(at: Instant) -> Instant {
    let since = at.since(Instant::ZERO).as_nanos() as u64;
    let step = ms(GRID).as_nanos() as u64;
    Instant::from_nanos((since + step - ticks::BEFORE) / step * step)
}

impl Run<'_> {
    /// Lets everything happen, until all is acknowledged or the time is over.
    fn go(&mut self) -> Result<()> {
        let end = self.host.now() + LIMIT;
        loop {
            while let Some(packet) = self.host.sniff() {
                if let Some(seen) = wire::read(&packet.bytes) {
                    self.left(packet.at, &seen)?;
                }
                self.host.complete();
            }
            let all = self.writes == self.pattern.writes.len() && self.acked == self.written;
            if all && self.due.is_empty() {
                self.trace.complete = true;
                return Ok(());
            }
            let now = self.host.now();
            if now >= end {
                return Ok(());
            }
            match self.due.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let (place, due) = first.remove_entry();
                    self.perform(place, due)?;
                    let late = self.host.now().since(place.0);
                    self.trace.late = self.trace.late.max(micros(late));
                }
                Some(first) => {
                    let at = first.key().0.min(end);
                    self.host.wait(at)?;
                }
                None => self.host.wait(end)?,
            }
        }
    }

    fn plan(&mut self, at: Instant, due: Due) -> (Instant, u64) {
        self.made += 1;
        self.due.insert((at, self.made), due);
        (at, self.made)
    }

    fn perform(&mut self, place: (Instant, u64), due: Due) -> Result<()> {
        match due {
            Due::Write => self.write(),
            Due::Arrive(segment) => {
                self.arrive(place.0, segment);
                Ok(())
            }
            Due::LateAck => {
                if self.late_ack == Some(place) {
                    self.acknowledge(place.0);
                }
                Ok(())
            }
            Due::Deliver(ack, clock) => self.deliver(&ack, clock),
        }
    }

    fn record(&mut self, at: Instant, event: Event) {
        self.trace.push(micros(at.since(Instant::ZERO)), event);
    }

    /// A packet has left the sender; a super-segment is so many segments.
    fn left(&mut self, at: Instant, seen: &Seen) -> Result<()> {
        ensure!(!seen.reset, "the sender resets the connection");
        if seen.syn {
            return Ok(());
        }
        let start = seen.seq.wrapping_sub(self.first);
        for seq in (start..start.wrapping_add(seen.len)).step_by(SEGMENT as usize) {
            let len = SEGMENT.min(start + seen.len - seq);
            let transmission = self.sent.entry(seq).or_default();
            *transmission += 1;
            let transmission = *transmission;
            self.record(at, Event::Sent { seq, len, transmission });
            let fate = self.pattern.segment_fate(seq, transmission);
            let arrived = Arrived { seq, len, tsval: seen.tsval, transmission };
            let longer = if transmission > 1 { AGAIN } else { Duration::ZERO };
            let comes = grid(at) + way(self.pattern) + ms(fate.delay_ms) + longer;
            if !fate.lost {
                self.plan(comes, Due::Arrive(arrived));
            }
            if let Some(later) = fate.copy_ms.filter(|_| !fate.lost) {
                self.plan(comes + ms(later), Due::Arrive(arrived));
            }
        }
        Ok(())
    }

    /// A segment reaches the receiver.
    fn arrive(&mut self, at: Instant, segment: Arrived) {
        match self.receiver.take(segment) {
            Answer::Now => self.acknowledge(at),
            Answer::Within(_) if self.late_ack.is_some() => {}
            Answer::Within(later) => {
                self.late_ack = Some(self.plan(at + ms(later), Due::LateAck));
            }
        }
    }

    /// The receiver acknowledges.
    fn acknowledge(&mut self, at: Instant) {
        self.late_ack = None;
        let fate = self.pattern.ack_fate(self.acks);
        self.acks += 1;
        let ack = self.receiver.ack();
        if fate.lost {
            return;
        }
        let back = ms(self.pattern.rtt_ms) - way(self.pattern);
        let early = if self.acks == 1 { EARLY } else { Duration::ZERO };
        let comes = at + (back + ms(fate.delay_ms)).saturating_sub(early);
        if let Some(later) = fate.copy_ms {
            self.plan(comes + ms(later), Due::Deliver(ack.clone(), millis(at)));
        }
        self.plan(comes, Due::Deliver(ack, millis(at)));
    }

    /// An ACK reaches the sender.
    fn deliver(&mut self, ack: &Ack, clock: u32) -> Result<()> {
        self.host.inject(&wire::ack(self.pattern, self.first, ack, clock))?;
        let bytes = self.host.tcp_info(self.fd)?;
        let info = Info::from_fields(&tcp_info::fields(&bytes));
        let at = self.host.now();
        let Ack { ack: number, ref blocks, transmission, .. } = *ack;
        let blocks = blocks.clone();
        self.record(at, Event::Acked { ack: number, blocks, transmission, info });
        self.acked = self.acked.max(number);
        self.plan_write(at);
        // Two packets never arrive at the same time; on a virtual clock they would.
        wait(self.host, at + APART)
    }

    /// Plans the next write, if enough was acknowledged for it.
    fn plan_write(&mut self, at: Instant) {
        if let Some(next) = self.pattern.writes.get(self.writes)
            && !self.writing
            && self.written - self.acked <= next.unacked
        {
            self.writing = true;
            self.plan(grid(at) + ms(next.think_ms + GRID), Due::Write);
        }
    }

    fn write(&mut self) -> Result<()> {
        let bytes = self.pattern.writes[self.writes].bytes;
        self.writing = false;
        self.writes += 1;
        self.written += bytes;
        let now = self.host.now();
        self.record(now, Event::Wrote(bytes));
        let data = Source::Bytes(vec![0; bytes as usize]);
        let taken = call(
            self.host,
            Call::Send {
                via: SendVia::Send,
                fd: self.fd,
                buffers: vec![data],
                flags: MSG_DONTWAIT,
                to: None,
                control: Vec::new(),
            },
        )?;
        ensure!(taken == bytes as i32, "a write of {bytes} bytes took {taken}");
        self.plan_write(now);
        Ok(())
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
