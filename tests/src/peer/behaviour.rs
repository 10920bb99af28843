//! Kernel peers that behave in one special way, and check what they see.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::options::Options;
use super::workload::say;
use crate::harness::files::{Noise, digest_of};

/// Connects and says how that went: `connected`, or the kind of the error.
pub(crate) fn connect(options: &Options) -> Result<()> {
    let limit = options.seconds("seconds", 10.0)?;
    match TcpStream::connect_timeout(&options.address(), limit) {
        Ok(_) => say("connected"),
        Err(error) => say(&format!("{:?}", error.kind())),
    }
}

/// Sends bytes to an echo service, closes its half, and wants the same bytes and then the end.
pub(crate) fn echo_check(options: &Options) -> Result<()> {
    let len: usize = options.get("bytes", 1 << 20)?;
    let mut sent = vec![0; len];
    Noise::new(options.get("seed", 1)?).fill(&mut sent);
    let count: usize = options.get("parallel", 1)?;
    ensure!(count > 0, "--parallel must be 1 at least");
    let together = Barrier::new(count);
    thread::scope(|scope| {
        let checks: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    one_echo(options, sent.clone())
                })
            })
            .collect();
        checks.into_iter().try_for_each(|check| check.join().expect("a check does not panic"))
    })?;
    say("same")
}

/// Connects, sends `sent`, ends its half, and compares what comes back.
fn one_echo(options: &Options, sent: Vec<u8>) -> Result<()> {
    let mut stream = TcpStream::connect(options.address()).context("connecting")?;
    let mut writer = stream.try_clone()?;
    let expected = sent.clone();
    let writing = thread::spawn(move || -> Result<()> {
        writer.write_all(&sent).context("writing")?;
        writer.shutdown(Shutdown::Write).context("shutting down")
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).context("reading the echo")?;
    writing.join().expect("the writer does not panic")?;
    ensure!(got == expected, "{} bytes came back, {} had been sent", got.len(), expected.len());
    Ok(())
}

/// Asks an HTTP server for a file, reads nothing for a while, then all. Prints the digest.
pub(crate) fn stall(options: &Options) -> Result<()> {
    let path = options.text("path").context("--path")?;
    let mut stream = TcpStream::connect(options.address()).context("connecting")?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 65536).context("SO_RCVBUF")?;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).context("asking")?;
    thread::sleep(options.seconds("pause", 10.0)?);
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).context("reading the head")?;
        head.push(byte[0]);
    }
    say(&digest_of(stream)?)
}

/// Accepts one connection, reads it to its end, and only then sends; then closes.
pub(crate) fn send_late(options: &Options) -> Result<()> {
    let len: usize = options.get("bytes", 1 << 20)?;
    let listener = TcpListener::bind(options.address()).context("listening")?;
    say("ready")?;
    let (mut stream, _) = listener.accept().context("accepting")?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got).context("reading to the end")?;
    let mut bytes = vec![0; len];
    Noise::new(options.get("seed", 1)?).fill(&mut bytes);
    stream.write_all(&bytes).context("writing after the other side's end")?;
    say(&format!("read {}", got.len()))
}

/// Accepts connections, reads one byte from each and then resets it.
pub(crate) fn reset(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    say("ready")?;
    loop {
        let (mut stream, _) = listener.accept().context("accepting")?;
        stream.read_exact(&mut [0]).context("reading")?;
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&stream, now).context("SO_LINGER")?;
    }
}

/// Connects to a service of ours, resets, and connects again to see that it still answers.
pub(crate) fn reset_us(options: &Options) -> Result<()> {
    for _ in 0..50 {
        let mut stream = TcpStream::connect(options.address()).context("connecting")?;
        stream.write_all(b"x").context("writing")?;
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&stream, now).context("SO_LINGER")?;
    }
    echo_check(options)
}

/// Accepts and keeps connections without ever sending or reading.
pub(crate) fn silent(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    say("ready")?;
    let mut kept = Vec::new();
    loop {
        kept.push(listener.accept().context("accepting")?);
        say("accepted")?;
    }
}

/// Accepts one connection, reads nothing for a while, then all. Prints the digest.
pub(crate) fn stalled_reader(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 65536).context("SO_RCVBUF")?;
    say("ready")?;
    let (stream, _) = listener.accept().context("accepting")?;
    thread::sleep(options.seconds("pause", 10.0)?);
    say(&digest_of(stream)?)
}

/// Opens many connections, sends one byte over each, and wants each byte back.
pub(crate) fn many(options: &Options) -> Result<()> {
    let count: usize = options.get("count", 10_000)?;
    raise_descriptor_limit(count as u64 + 100)?;
    let mut streams = Vec::with_capacity(count);
    for n in 0..count {
        let stream = TcpStream::connect(options.address());
        streams.push(stream.with_context(|| format!("opening connection {n}"))?);
    }
    say("open")?;
    for pass in 0..2_u8 {
        // The queue of a TUN device holds 500 packets: more at once would only test its overflow.
        for some in streams.chunks_mut(200) {
            for stream in &mut *some {
                stream.write_all(&[pass]).context("writing")?;
            }
            for stream in some {
                let mut byte = [0xff];
                stream.read_exact(&mut byte).context("reading")?;
                ensure!(byte == [pass], "another byte came back");
            }
        }
    }
    say("echoed")?;
    // The test says when to let go, by a signal.
    while options.get("hold", 0)? == 1 {
        thread::park();
    }
    Ok(())
}

/// Opens many connections to an HTTP server and holds them. A third says nothing, a third sends a
/// part of a request, a third asks for a large file and does not read it.
pub(crate) fn slow_http(options: &Options) -> Result<()> {
    let count: usize = options.get("count", 3000)?;
    raise_descriptor_limit(count as u64 + 100)?;
    let request = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut streams = Vec::with_capacity(count);
    for n in 0..count {
        let stream = TcpStream::connect(options.address());
        let mut stream = stream.with_context(|| format!("opening connection {n}"))?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).context("SO_RCVBUF")?;
        let part = [0, 10, request.len()][n % 3];
        stream.write_all(&request[..part]).context("writing")?;
        streams.push(stream);
    }
    say("open")?;
    loop {
        thread::park();
    }
}

/// Sets the soft limit of open files high enough.
pub(crate) fn raise_descriptor_limit(wanted: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX).max(wanted);
    let new =
        Rlimit { current: Some(wanted.max(limit.current.unwrap_or(0))), maximum: Some(maximum) };
    setrlimit(Resource::Nofile, new).context("raising the limit of open files")
}

/// Listens with a short queue and accepts nothing until told; then everything in the queue.
pub(crate) fn full_queue(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    // A second call only changes the length of the queue.
    rustix::net::listen(&listener, options.get("backlog", 1)?).context("listen")?;
    say("ready")?;
    thread::sleep(options.seconds("pause", 3.0)?);
    listener.set_nonblocking(true).context("O_NONBLOCK")?;
    let mut accepted = 0;
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.write_all(b"x").context("greeting")?;
                accepted += 1;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => bail!("accepting: {error}"),
        }
    }
    say(&format!("accepted {accepted}"))
}
