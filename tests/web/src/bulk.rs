//! Bytes over a link in memory, from one stack to another, through blocking or async streams.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll::device::memory_link;
use plimsoll::{Stack, net};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Streams, say};

/// What one call writes, or has room to read.
const BLOCK: usize = 64 * 1024;

/// The port of the receiver.
const ADDRESS: &str = "192.0.2.2:9";

/// Sends for `seconds` and prints the rate.
pub(super) fn run(streams: Streams, seconds: f64) -> Result<()> {
    let (here, there) = memory_link::pair(Default::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build()?;
    let server = Stack::builder().device(there).address("192.0.2.2/24").build()?;
    let limit = Duration::try_from_secs_f64(seconds).context("--seconds")?;
    let (bytes, took) = match streams {
        Streams::Blocking => blocking(&client, &server, limit),
        Streams::Async => asynchronous(&client, &server, limit),
    }?;
    let rate = bytes as f64 * 8.0 / took.as_secs_f64();
    say(&json!({ "throughput_bits_per_s": rate, "bytes": bytes }).to_string())
}

/// One thread writes, one reads: the bytes that have arrived, and in which time.
fn blocking(client: &Stack, server: &Stack, limit: Duration) -> Result<(u64, Duration)> {
    let listener = plimsoll::TcpListener::bind(server, ADDRESS)?;
    let reader = thread::spawn(move || -> Result<u64> {
        let (mut stream, _) = listener.accept()?;
        let (mut block, mut all) = (vec![0; BLOCK], 0);
        loop {
            match stream.read(&mut block)? {
                0 => return Ok(all),
                n => all += n as u64,
            }
        }
    });
    let mut stream = plimsoll::TcpStream::connect(client, ADDRESS)?;
    let block = vec![0x5a; BLOCK];
    let start = Instant::now();
    while start.elapsed() < limit {
        stream.write_all(&block)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let all = reader.join().ok().context("the reader panicked")??;
    Ok((all, start.elapsed()))
}

/// The same in two tasks, on two threads of a runtime.
fn asynchronous(client: &Stack, server: &Stack, limit: Duration) -> Result<(u64, Duration)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let (client, server) = (client.clone(), server.clone());
    runtime.block_on(async move {
        let listener = net::TcpListener::bind_on(&server, ADDRESS).await?;
        let reader = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let (mut block, mut all) = (vec![0; BLOCK], 0);
            loop {
                match stream.read(&mut block).await? {
                    0 => return Ok::<u64, std::io::Error>(all),
                    n => all += n as u64,
                }
            }
        });
        let writer = tokio::spawn(async move {
            let mut stream = net::TcpStream::connect_on(&client, ADDRESS).await?;
            let block = vec![0x5a; BLOCK];
            let start = Instant::now();
            while start.elapsed() < limit {
                stream.write_all(&block).await?;
            }
            stream.shutdown().await?;
            Ok::<(net::TcpStream, Instant), std::io::Error>((stream, start))
        });
        let (_stream, start) = writer.await.context("the writer panicked")??;
        let all = reader.await.context("the reader panicked")??;
        Ok((all, start.elapsed()))
    })
}
