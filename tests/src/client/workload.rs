//! netperf's stream on our sockets, as the peers have it on the kernel's.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use plimsoll::{Stack, TcpListener, TcpStream};
use plimsoll_tcp::Counter;
use serde_json::json;

use crate::peer::CONGESTION_CONTROL;
use crate::peer::options::Options;
use crate::peer::workload::say;

/// Writes blocks of one size for some time, then waits until the other side has read them all. With
/// `--beside` a second connection, to the next port and with that congestion control, does the same
/// from the moment on at which the first is connected. `--tcp-wmem` is the stack's setting.
pub(super) fn write(stack: &Stack, options: &Options) -> Result<()> {
    if let Some(buffer) = options.text("tcp-wmem") {
        stack.set_sysctl("net.ipv4.tcp_wmem", buffer).context("--tcp-wmem")?;
    }
    let name = options.text("congestion").unwrap_or(CONGESTION_CONTROL);
    let address = options.address();
    let start = Instant::now();
    let bytes = std::thread::scope(|scope| {
        let stream = connect(stack, address, name)?;
        let beside = options.text("beside").map(|name| {
            let next = SocketAddr::new(address.ip(), address.port() + 1);
            scope.spawn(move || write_all(connect(stack, next, name)?, options))
        });
        let bytes = write_all(stream, options);
        let ended = beside.map(|beside| beside.join().map_err(|_| anyhow!("the writer panicked")));
        ended.transpose()?.transpose()?;
        bytes
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let counters = stack.counters();
    let counter = |name: &str| counters.iter().find(|(other, _)| *other == name).map(|(_, v)| *v);
    let sum = |of: &[Counter]| of.iter().filter_map(|one| counter(one.name())).sum::<u64>();
    say(&json!({
        "bytes": bytes,
        "seconds": seconds,
        "segments": counter("TcpOutSegs").unwrap_or(0) + counter("TcpRetransSegs").unwrap_or(0),
        "retransmits": counter("TcpRetransSegs"),
        "reductions": sum(&Counter::REDUCTIONS),
        "undone": sum(&Counter::UNDOS),
    })
    .to_string())
}

fn connect(stack: &Stack, to: SocketAddr, congestion: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(stack, to).context("connecting")?;
    stream.set_congestion(congestion).context("choosing the congestion control")?;
    Ok(stream)
}

/// One connection. Returns how many bytes it wrote.
fn write_all(mut stream: TcpStream, options: &Options) -> Result<u64> {
    let block = vec![0x5a; options.get("size", 65536)?];
    let limit = options.seconds("seconds", 2.0)?;
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < limit {
        stream.write_all(&block).context("writing")?;
        bytes += block.len() as u64;
    }
    stream.shutdown(Shutdown::Write).context("shutting down")?;
    // The other side closes once it has read the end.
    let _ = stream.read(&mut [0]);
    Ok(bytes)
}

/// Reads and drops one connection; reports bytes and time from its first byte to its end.
pub(super) fn discard(stack: &Stack, options: &Options) -> Result<()> {
    let listener = TcpListener::bind(stack, options.address()).context("listening")?;
    say("ready")?;
    let (mut stream, _) = listener.accept().context("accepting")?;
    let mut block = vec![0; 256 * 1024];
    let mut bytes = stream.read(&mut block).context("reading")? as u64;
    let start = Instant::now();
    loop {
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(n) => bytes += n as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error).context("reading"),
        }
    }
    say(&json!({ "bytes": bytes, "seconds": start.elapsed().as_secs_f64() }).to_string())?;
    // The sender reads the end.
    stream.shutdown(Shutdown::Write).context("shutting down")?;
    let _ = stream.read(&mut [0]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    Ok(())
}
