//! The protocol on sockets whose calls block.

use std::io::{self, Read, Write};
use std::time::Instant;

use super::{HEADER, Job, MARK, SCRATCH, WRITES_PER_LOOK};

/// A stream whose directions end one by one.
pub trait Stream: Read + Write {
    /// Ends the direction to the client.
    ///
    /// # Errors
    /// If the connection is gone.
    fn end(&mut self) -> io::Result<()>;

    /// Has small writes leave at once.
    ///
    /// # Errors
    /// If the connection is gone.
    fn set_nodelay(&mut self) -> io::Result<()>;
}

/// Does what one client asks for. The caller closes the connection when it returns.
///
/// # Errors
/// If the connection ends early, or asks for what is not known.
pub fn serve(stream: &mut impl Stream) -> io::Result<()> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    match Job::parse(&header)? {
        Job::Discard => drain(stream),
        Job::Send { size, time } => {
            let block = vec![0x5a; size];
            let begun = Instant::now();
            while begun.elapsed() < time {
                for _ in 0..WRITES_PER_LOOK {
                    stream.write_all(&block)?;
                }
            }
            stream.end()?;
            drain(stream)
        }
        Job::Answer { size } => {
            stream.set_nodelay()?;
            let mut block = vec![0; size];
            while fill(stream, &mut block)? {
                stream.write_all(&block)?;
            }
            Ok(())
        }
    }
}

fn drain(stream: &mut impl Stream) -> io::Result<()> {
    let mut block = vec![0; SCRATCH];
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(()),
            count if block[count - 1] == MARK => stream.write_all(&[MARK])?,
            _ => {}
        }
    }
}

/// Reads a whole block. Says whether there was one.
fn fill(stream: &mut impl Stream, block: &mut [u8]) -> io::Result<bool> {
    let mut at = 0;
    while at < block.len() {
        match stream.read(&mut block[at..])? {
            0 if at == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => at += count,
        }
    }
    Ok(true)
}
