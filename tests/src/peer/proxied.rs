//! What is behind a proxy: a long file over HTTP, and an echo.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, bail};

use super::options::Options;
use super::workload::say;
use crate::harness::files::Blocks;

/// The longest request that is read.
const REQUEST: usize = 16 * 1024;

/// Answers every request with the same file of `--bytes` bytes.
pub(crate) fn file(options: &Options) -> Result<()> {
    let bytes: u64 = options.get("bytes", 1 << 20)?;
    serve(options, move |stream| answer(stream, bytes))
}

/// Sends back what arrives.
pub(crate) fn echo(options: &Options) -> Result<()> {
    serve(options, |mut stream| {
        let mut block = [0; 4096];
        loop {
            let len = stream.read(&mut block).context("reading")?;
            if len == 0 {
                return Ok(());
            }
            stream.write_all(&block[..len]).context("writing")?;
        }
    })
}

fn serve(
    options: &Options,
    run: impl Fn(TcpStream) -> Result<()> + Clone + Send + 'static,
) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    say("ready")?;
    loop {
        let (stream, _) = listener.accept().context("accepting")?;
        let run = run.clone();
        // A client that goes away early is its own affair.
        thread::spawn(move || run(stream));
    }
}

fn answer(mut stream: TcpStream, bytes: u64) -> Result<()> {
    let mut request = Vec::new();
    let mut block = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let len = stream.read(&mut block).context("reading the request")?;
        if len == 0 || request.len() > REQUEST {
            bail!("this is no request");
        }
        request.extend_from_slice(&block[..len]);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n")
        .context("writing the head")?;
    let mut blocks = Blocks::new(bytes);
    while let Some(block) = blocks.next() {
        stream.write_all(block).context("writing the file")?;
    }
    Ok(())
}
