//! One function for each thing that a client of ours can meet.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll::{Keepalive, Stack, TcpListener, TcpStream};

use crate::harness::files::{Noise, digest_of};
use crate::peer::options::Options;
use crate::peer::workload::say;

/// What reading or writing gives after an error that the peer caused: its kind, or `end`.
fn kind_of<T>(result: &std::io::Result<T>) -> String {
    match result {
        Ok(_) => "end".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn try_connect(stack: &Stack, options: &Options) -> Result<std::io::Result<TcpStream>> {
    let limit = options.seconds("seconds", 10.0)?;
    Ok(TcpStream::connect_timeout(stack, &options.address(), limit))
}

fn connected(stack: &Stack, options: &Options) -> Result<TcpStream> {
    try_connect(stack, options)?.context("connecting")
}

/// Connects and says how that went: `connected`, or the kind of the error.
pub(super) fn connect(stack: &Stack, options: &Options) -> Result<()> {
    match try_connect(stack, options)? {
        Ok(_) => say("connected"),
        Err(error) => say(&format!("{:?}", error.kind())),
    }
}

/// Connects several times, one after the other, and says for each how that went.
pub(super) fn queue(stack: &Stack, options: &Options) -> Result<()> {
    // The streams stay open until all have been tried.
    let mut streams = Vec::new();
    for _ in 0..options.get("count", 4)? {
        match try_connect(stack, options)? {
            Ok(stream) => {
                say("connected")?;
                streams.push(stream);
            }
            Err(error) => say(&format!("{:?}", error.kind()))?,
        }
    }
    Ok(())
}

/// Sends a byte, which the peer answers with a reset; says what reading and writing then give.
pub(super) fn reset(stack: &Stack, options: &Options) -> Result<()> {
    let mut stream = connected(stack, options)?;
    stream.write_all(b"x").context("writing")?;
    let read = stream.read(&mut [0; 16]);
    say(&format!("read {}", kind_of(&read)))?;
    let write = stream.write(b"x");
    say(&format!("write {}", kind_of(&write)))
}

/// Sends, closes its half, and only then reads all that the peer has to say. Prints the digest.
pub(super) fn close_early(stack: &Stack, options: &Options) -> Result<()> {
    let mut stream = connected(stack, options)?;
    stream.write_all(&vec![7; options.get("bytes", 1000)?]).context("writing")?;
    stream.shutdown(Shutdown::Write).context("shutting down")?;
    let after = stream.write(b"x");
    ensure!(kind_of(&after) == "BrokenPipe", "writing after our end gives {}", kind_of(&after));
    say(&digest_of(stream)?)
}

/// Reads from a peer that says nothing, with a time limit; says the kind of the error.
pub(super) fn read_timeout(stack: &Stack, options: &Options) -> Result<()> {
    let mut stream = connected(stack, options)?;
    let limit = options.seconds("limit", 0.3)?;
    stream.set_read_timeout(Some(limit)).context("setting the limit")?;
    say(&kind_of(&stream.read(&mut [0])))
}

/// Sends bytes that follow from a seed to a peer that reads them late.
pub(super) fn send(stack: &Stack, options: &Options) -> Result<()> {
    let mut bytes = vec![0; options.get("bytes", 1 << 20)?];
    Noise::new(options.get("seed", 1)?).fill(&mut bytes);
    let mut stream = connected(stack, options)?;
    stream.write_all(&bytes).context("writing")?;
    stream.shutdown(Shutdown::Write).context("shutting down")?;
    ensure!(stream.read(&mut [0]).context("waiting for the end")? == 0, "the peer says something");
    say("sent")
}

/// Asks an HTTP server for a file, reads nothing for a while, then all. Prints the digest.
pub(super) fn stall(stack: &Stack, options: &Options) -> Result<()> {
    let path = options.text("path").context("--path")?;
    let mut stream = connected(stack, options)?;
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

/// Reads from a peer that will vanish, with keepalive; says the kind of the error.
pub(super) fn keepalive(stack: &Stack, options: &Options) -> Result<()> {
    let mut stream = connected(stack, options)?;
    let keepalive = Keepalive::default()
        .idle(options.seconds("idle", 1.0)?)
        .interval(options.seconds("interval", 1.0)?)
        .count(options.get("count", 2)?);
    stream.set_keepalive(Some(keepalive)).context("SO_KEEPALIVE")?;
    say("connected")?;
    say(&kind_of(&stream.read(&mut [0])))
}

/// Writes to a peer that will vanish, with a user timeout; says the kind of the error.
pub(super) fn user_timeout(stack: &Stack, options: &Options) -> Result<()> {
    let mut stream = connected(stack, options)?;
    let limit = options.seconds("limit", 2.0)?;
    stream.set_user_timeout(Some(limit)).context("TCP_USER_TIMEOUT")?;
    say("connected")?;
    loop {
        // The peer accepts without reading, so its window would end this too: write little.
        if let Err(error) = stream.write(b"x") {
            return say(&format!("{:?}", error.kind()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Reads on several connections until each gives an error; says each.
pub(super) fn until_error(stack: &Stack, options: &Options) -> Result<()> {
    let count: usize = options.get("count", 4)?;
    let streams: Vec<TcpStream> =
        (0..count).map(|_| connected(stack, options)).collect::<Result<_>>()?;
    say("connected")?;
    thread::scope(|scope| {
        let readers: Vec<_> = streams
            .into_iter()
            .map(|mut stream| scope.spawn(move || stream.read(&mut [0])))
            .collect();
        for reader in readers {
            let result = reader.join().expect("a reader does not panic");
            say(&format!("error {}", kind_of(&result)))?;
        }
        Ok(())
    })
}

/// Listens with a short queue, accepts late, then echoes on each connection.
pub(super) fn lazy_listener(stack: &Stack, options: &Options) -> Result<()> {
    let backlog = options.get("backlog", 2)?;
    let address = options.address();
    let listener = TcpListener::bind_with(stack, address, backlog, plimsoll::Options::default())
        .context("listening")?;
    say("ready")?;
    thread::sleep(options.seconds("pause", 3.0)?);
    let count: usize = options.get("count", 8)?;
    let echoes: Vec<_> = (0..count)
        .map(|_| -> Result<_> {
            let (stream, _) = listener.accept().context("accepting")?;
            Ok(thread::spawn(move || echo(stream)))
        })
        .collect::<Result<_>>()?;
    for echo in echoes {
        echo.join().expect("an echo does not panic")?;
    }
    let counters = stack.counters();
    let Some((_, overflows)) = counters.iter().find(|(n, _)| *n == "TcpExtListenOverflows") else {
        bail!("there is no counter TcpExtListenOverflows");
    };
    say(&format!("overflows {overflows}"))?;
    stack.drain(Duration::from_secs(5));
    Ok(())
}

fn echo(mut stream: TcpStream) -> Result<()> {
    let mut block = vec![0; 65536];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return stream.shutdown(Shutdown::Write).context("shutting down"),
            Ok(n) => stream.write_all(&block[..n]).context("echoing")?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading"),
        }
    }
}
