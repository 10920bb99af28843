//! The protocol on streams of tokio's traits.

use std::io;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{HEADER, Job, MARK, SCRATCH, WRITES_PER_LOOK};

/// Does what one client asks for, and closes the connection.
///
/// # Errors
/// If the connection ends early, or asks for what is not known.
pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    match Job::parse(&header)? {
        Job::Discard => drain(&mut stream).await?,
        Job::Send { size, time } => {
            let block = vec![0x5a; size];
            let begun = Instant::now();
            while begun.elapsed() < time {
                for _ in 0..WRITES_PER_LOOK {
                    stream.write_all(&block).await?;
                }
            }
            stream.flush().await?;
            stream.shutdown().await?;
            return drain(&mut stream).await;
        }
        Job::Answer { size } => {
            let mut block = vec![0; size];
            while fill(&mut stream, &mut block).await? {
                stream.write_all(&block).await?;
                stream.flush().await?;
            }
        }
    }
    stream.shutdown().await
}

async fn drain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let mut block = vec![0; SCRATCH];
    loop {
        match stream.read(&mut block).await? {
            0 => return Ok(()),
            count if block[count - 1] == MARK => {
                stream.write_all(&[MARK]).await?;
                stream.flush().await?;
            }
            _ => {}
        }
    }
}

/// Reads a whole block. Says whether there was one.
async fn fill(stream: &mut (impl AsyncRead + Unpin), block: &mut [u8]) -> io::Result<bool> {
    let mut at = 0;
    while at < block.len() {
        match stream.read(&mut block[at..]).await? {
            0 if at == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => at += count,
        }
    }
    Ok(true)
}
