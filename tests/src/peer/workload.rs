//! netperf's workloads on the kernel's sockets: stream and request / response.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use serde_json::{Value, json};

use super::options::Options;

/// The congestion control of the kernel's sockets in a comparison; Plimsoll's default as well.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";

/// Prints a line and makes sure that it leaves.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("printing")
}

/// A listening socket with the same congestion control as everything that is compared.
pub(super) fn listen(options: &Options) -> Result<TcpListener> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    congestion_control(&listener, options)?;
    say("ready")?;
    Ok(listener)
}

/// A connected socket with the same congestion control as everything that is compared.
///
/// It is chosen before the handshake: a socket that has once been BBR's stays paced under what
/// comes after it, by a timer for each packet.
pub(super) fn connect(options: &Options) -> Result<TcpStream> {
    let address = options.address();
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("making a socket")?;
    congestion_control(&socket, options)?;
    net::connect(&socket, &address).context("connecting")?;
    Ok(TcpStream::from(socket))
}

/// Chooses CUBIC or what `--congestion` says, whatever the host prefers.
fn congestion_control(socket: impl std::os::fd::AsFd, options: &Options) -> Result<()> {
    let name = options.text("congestion").unwrap_or(CONGESTION_CONTROL);
    net::sockopt::set_tcp_congestion(socket, name).with_context(|| format!("TCP_CONGESTION {name}"))
}

/// Reads and drops; reports bytes and time of each connection from its first byte to its end.
pub(crate) fn discard(options: &Options) -> Result<()> {
    let listener = listen(options)?;
    loop {
        let (stream, _) = listener.accept().context("accepting")?;
        thread::spawn(move || drain(stream));
    }
}

fn drain(mut stream: TcpStream) -> Result<()> {
    let mut block = vec![0; 256 * 1024];
    let mut bytes = stream.read(&mut block).context("reading")? as u64;
    let start = Instant::now();
    let cpu = cpu_seconds();
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => bytes += n as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error).context("reading"),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    say(&json!({ "bytes": bytes, "seconds": seconds, "cpu_seconds": cpu }).to_string())
}

/// Bytes of a write that takes long enough to look at the clock after it.
const LARGE: usize = 16 * 1024;

/// Writes blocks of one size for some time, then waits until the other side has read them all.
pub(crate) fn write(options: &Options) -> Result<()> {
    let block = vec![0x5a; options.get("size", 65536)?];
    let limit = options.seconds("seconds", 2.0)?;
    let mut stream = connect(options)?;
    let start = Instant::now();
    let cpu = cpu_seconds();
    let mut bytes = 0;
    // Looking at the clock after every write would weigh upon small ones. Large ones may wait for
    // seconds each.
    let writes = if block.len() < LARGE { 32 } else { 1 };
    while start.elapsed() < limit {
        for _ in 0..writes {
            stream.write_all(&block).context("writing")?;
            bytes += block.len() as u64;
        }
    }
    stream.shutdown(Shutdown::Write).context("shutting down")?;
    // The other side closes once it has read the end.
    let _ = stream.read(&mut [0]);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    say(&json!({ "bytes": bytes, "seconds": seconds, "cpu_seconds": cpu }).to_string())
}

/// Writes to whoever connects, until they go.
pub(crate) fn chargen(options: &Options) -> Result<()> {
    let listener = listen(options)?;
    loop {
        let (mut stream, _) = listener.accept().context("accepting")?;
        thread::spawn(move || {
            let block = [0x5a; 16384];
            while stream.write_all(&block).is_ok() {}
        });
    }
}

/// Reads for some time what the other side sends without being asked.
pub(crate) fn read(options: &Options) -> Result<()> {
    let limit = options.seconds("seconds", 2.0)?;
    let mut stream = connect(options)?;
    let mut block = vec![0; 256 * 1024];
    let start = Instant::now();
    let cpu = cpu_seconds();
    let mut bytes = 0;
    while start.elapsed() < limit {
        match stream.read(&mut block).context("reading")? {
            0 => bail!("the other side has ended"),
            count => bytes += count as u64,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    say(&json!({ "bytes": bytes, "seconds": seconds, "cpu_seconds": cpu }).to_string())
}

/// Answers each request of one size with a response of another.
pub(crate) fn rr_server(options: &Options) -> Result<()> {
    let request: usize = options.get("request", 1)?;
    let response: usize = options.get("response", 1)?;
    let listener = listen(options)?;
    loop {
        let (mut stream, _) = listener.accept().context("accepting")?;
        thread::spawn(move || -> std::io::Result<()> {
            stream.set_nodelay(true)?;
            let mut ask = vec![0; request];
            let answer = vec![0x5a; response];
            loop {
                stream.read_exact(&mut ask)?;
                stream.write_all(&answer)?;
            }
        });
    }
}

/// Asks and waits for the answer, over and over, on some flows at once.
pub(crate) fn rr(options: &Options) -> Result<()> {
    let flows: usize = options.get("flows", 1)?;
    let limit = options.seconds("seconds", 2.0)?;
    let cpu = cpu_seconds();
    let barrier = Barrier::new(flows);
    let times: Vec<Result<Vec<u32>>> = thread::scope(|scope| {
        let run = || rr_flow(options, limit, &barrier);
        let threads: Vec<_> = (0..flows).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|t| t.join().expect("a flow does not panic")).collect()
    });
    let mut all = Vec::new();
    for flow in times {
        all.extend(flow?);
    }
    all.sort_unstable();
    let at = |part: f64| -> f64 {
        let index = (all.len() as f64 * part) as usize;
        f64::from(all.get(index.min(all.len().saturating_sub(1))).copied().unwrap_or(0)) / 1000.0
    };
    let mut figures = json!({
        "transactions": all.len(),
        "transactions_per_s": all.len() as f64 / limit.as_secs_f64(),
        "cpu_seconds": cpu_seconds() - cpu,
        "latency_us": { "p50": at(0.5), "p99": at(0.99) },
    });
    if options.get("histogram", false)? {
        figures["histogram"] = histogram(&all)?;
    }
    say(&figures.to_string())
}

/// Times in nanoseconds, to three digits, each with how often it was.
fn histogram(times: &[u32]) -> Result<Value> {
    let mut counts = Histogram::<u64>::new_with_bounds(1, u64::from(u32::MAX), 3)?;
    for &time in times {
        counts.record(u64::from(time.max(1)))?;
    }
    let pair =
        |value: &IterationValue<u64>| json!([value.value_iterated_to(), value.count_at_value()]);
    Ok(counts.iter_recorded().map(|value| pair(&value)).collect())
}

/// The nanoseconds that each transaction of one flow took.
fn rr_flow(options: &Options, limit: Duration, barrier: &Barrier) -> Result<Vec<u32>> {
    let ask = vec![0x5a; options.get("request", 1)?];
    let mut answer = vec![0; options.get("response", 1)?];
    let stream = connect(options);
    barrier.wait();
    let mut stream = stream?;
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    let mut times = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last - start < limit {
        stream.write_all(&ask).context("asking")?;
        stream.read_exact(&mut answer).context("reading the answer")?;
        let now = Instant::now();
        times.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    Ok(times)
}

/// Processor time of this process so far, user and system.
pub(crate) fn cpu_seconds() -> f64 {
    cpu_seconds_of("self")
}

/// Processor time of a process so far, user and system.
pub(crate) fn cpu_seconds_of(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    // Fields 14 and 15 of the file, in ticks of a hundredth of a second, which Linux fixes.
    (ticks(11) + ticks(12)) / 100.0
}
