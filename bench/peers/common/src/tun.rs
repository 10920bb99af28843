//! A TUN device, one packet for each call: with the kernel's offloads, or one that tokio waits for.

use std::fs::File;
use std::io;
#[cfg(feature = "tokio")]
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
#[cfg(feature = "tokio")]
use std::os::unix::fs::OpenOptionsExt;
#[cfg(feature = "tokio")]
use std::pin::Pin;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};

#[cfg(feature = "tokio")]
use tokio::io::unix::AsyncFd;
#[cfg(feature = "tokio")]
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wrong;

/// Bytes of the largest packet on the device.
pub const MTU: u16 = 1500;

/// Bytes of the header in front of each packet of a device with offloads (`struct virtio_net_hdr`).
pub const VNET_HEADER: usize = 10;

/// Opens a device that exists already, with these `IFF_*` flags.
///
/// # Errors
/// If there is no such device, or it is not to be had with these flags.
pub fn open(
    name: &str,
    flags: libc::c_int,
    options: &mut std::fs::OpenOptions,
) -> io::Result<File> {
    let file = options.read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left zero: the kernel reads up to it.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(wrong(format!("`{name}` is no name of a device")));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the descriptor is open, and the request is a whole `ifreq`, which TUNSETIFF reads
    // and writes.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Opens a device that exists already, on which TCP over IPv4 travels in packets of up to 64 KiB,
/// each with a [`VNET_HEADER`], and without checksums. Reads wait for a packet.
///
/// # Errors
/// If it cannot be opened, or has no such offloads.
pub fn with_offloads(name: &str) -> io::Result<File> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let file = open(name, flags, &mut File::options())?;
    offload(&file, libc::TUN_F_CSUM | libc::TUN_F_TSO4)?;
    Ok(file)
}

/// Tells the device which `TUN_F_*` whoever reads from it can do without.
///
/// # Errors
/// If the kernel does not know one of them.
pub fn offload(device: &File, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes a number.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A TUN device that exists already, without a header in front of its packets.
#[cfg(feature = "tokio")]
pub struct Tun {
    file: AsyncFd<File>,
}

#[cfg(feature = "tokio")]
impl Tun {
    /// Opens the device.
    ///
    /// # Errors
    /// If it cannot be opened; also outside of a runtime of tokio.
    pub fn open(name: &str) -> io::Result<Tun> {
        let flags = libc::IFF_TUN | libc::IFF_NO_PI;
        let file = open(name, flags, File::options().custom_flags(libc::O_NONBLOCK))?;
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

#[cfg(feature = "tokio")]
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

#[cfg(feature = "tokio")]
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
