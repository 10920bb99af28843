//! A TUN device that tokio waits for, one packet for each call.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wrong;

/// Bytes of the largest packet on the device.
pub const MTU: u16 = 1500;

/// Opens a device that exists already, without a header in front of its packets.
fn attach(name: &str) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open("/dev/net/tun")?;
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left zero: the kernel reads up to it.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(wrong(format!("`{name}` is no name of a device")));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the descriptor is open, and the request is a whole `ifreq`, which TUNSETIFF reads
    // and writes.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// A TUN device that exists already, without a header in front of its packets.
pub struct Tun {
    file: AsyncFd<File>,
}

impl Tun {
    /// Opens the device.
    ///
    /// # Errors
    /// If it cannot be opened; also outside of a runtime of tokio.
    pub fn open(name: &str) -> io::Result<Tun> {
        let file = attach(name)?;
        // SAFETY: a file keeps its descriptor open, and the same one, until it is dropped.
        let file = unsafe { AsyncFd::register(file) }?;
        Ok(Tun { file })
    }

    /// Reads one packet and returns its length.
    ///
    /// # Errors
    /// If the device is gone.
    pub async fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut guard = self.file.readable().await?;
            if let Ok(result) = guard.try_io(|file| file.get_ref().read(packet)) {
                return result;
            }
        }
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// If the device is gone, or down.
    pub async fn send(&self, packet: &[u8]) -> io::Result<usize> {
        loop {
            let mut guard = self.file.writable().await?;
            if let Ok(result) = guard.try_io(|file| file.get_ref().write(packet)) {
                return result;
            }
        }
    }
}

impl AsyncRead for Tun {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        packet: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.file.poll_read_ready(context))?;
            let space = packet.initialize_unfilled();
            if let Ok(result) = guard.try_io(|file| file.get_ref().read(space)) {
                return Poll::Ready(result.map(|count| packet.advance(count)));
            }
        }
    }
}

impl AsyncWrite for Tun {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        packet: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.file.poll_write_ready(context))?;
            if let Ok(result) = guard.try_io(|file| file.get_ref().write(packet)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
