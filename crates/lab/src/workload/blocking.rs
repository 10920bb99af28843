//! What blocking threads do with a stream, be it ours or the kernel's.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::{Slice, TcpStream, WriteFlags};

use super::RequestResponse;

/// Something that many threads count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Writes `bytes` bytes, or until `stop`. Returns how many.
pub(crate) fn send(
    mut stream: impl Write,
    scratch: &mut Vec<u8>,
    message: usize,
    bytes: u64,
    mut stop: impl FnMut() -> bool,
) -> io::Result<u64> {
    scratch.resize(message.max(scratch.len()), 0);
    let mut sent = 0;
    while sent < bytes && !stop() {
        let want = (bytes - sent).min(message as u64) as usize;
        stream.write_all(&scratch[..want])?;
        sent += want as u64;
    }
    Ok(sent)
}

/// Bytes that a shared buffer holds at most: there is one, which all writes refer to.
const SHARED_BYTES: usize = 1 << 20;

/// As [`send`], but without a copy: every write refers to the same bytes.
pub(crate) fn send_shared(
    stream: &TcpStream,
    message: usize,
    bytes: u64,
    mut stop: impl FnMut() -> bool,
) -> io::Result<u64> {
    let all = Slice::from_owner(vec![0; message.clamp(1, SHARED_BYTES)]);
    let mut sent = 0;
    while sent < bytes && !stop() {
        let want = (bytes - sent).min(all.len() as u64) as usize;
        sent += stream.write_shared(&[all.range(0, want)], WriteFlags::default())? as u64;
    }
    Ok(sent)
}

/// Reads to the end of the stream, and tells of every read.
pub(crate) fn receive(
    mut stream: impl Read,
    scratch: &mut [u8],
    mut on_read: impl FnMut(u64),
) -> io::Result<()> {
    loop {
        match stream.read(scratch)? {
            0 => return Ok(()),
            count => on_read(count as u64),
        }
    }
}

/// As [`receive`], into one buffer after the other.
pub(crate) fn receive_into(
    mut stream: impl Read,
    buffers: &mut [Vec<u8>],
    mut on_read: impl FnMut(u64),
) -> io::Result<()> {
    loop {
        for buffer in &mut *buffers {
            match stream.read(buffer)? {
                0 => return Ok(()),
                count => on_read(count as u64),
            }
        }
    }
}

/// Asks once, and reads the answer.
pub(crate) fn exchange(
    mut stream: impl Read + Write,
    scratch: &mut Vec<u8>,
    sizes: RequestResponse,
) -> io::Result<()> {
    scratch.resize(sizes.request.max(sizes.response).max(scratch.len()), 0);
    stream.write_all(&scratch[..sizes.request])?;
    stream.read_exact(&mut scratch[..sizes.response])
}

/// Answers up to `times` requests, or until the stream ends. Before each answer it calls `first`.
pub(crate) fn answer(
    mut stream: impl Read + Write,
    scratch: &mut Vec<u8>,
    sizes: RequestResponse,
    times: u64,
    mut first: impl FnMut(),
) -> io::Result<()> {
    scratch.resize(sizes.request.max(sizes.response).max(scratch.len()), 0);
    for _ in 0..times {
        match stream.read_exact(&mut scratch[..sizes.request]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        first();
        stream.write_all(&scratch[..sizes.response])?;
    }
    Ok(())
}
