//! TUN and TAP devices by `read` and `write`.

use std::fs::{self, File};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;

use peer_common::tun::{self, VNET_HEADER};

use crate::echo::{ETHERNET, Echo, Fate, Link};
use crate::failure::{Endless, Failure, Named};
use crate::sys;

/// Bytes of the largest packet, and of what is in front of it.
pub(crate) const LARGEST: usize = VNET_HEADER + ETHERNET + 65536;

/// Bytes of the headers of a datagram without options, and of what is in front of it: what is
/// linear of a frame that is handed over in pieces.
const HEADERS: usize = VNET_HEADER + ETHERNET + 20 + 8;

/// What is done when the device has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The read sleeps.
    Read,
    /// The read says so, and `poll` sleeps.
    Poll,
    /// The read says so, and is tried again.
    Spin,
}

/// Who delivers to the kernel's stack what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Napi {
    /// The write itself.
    Off,
    /// A poll of the device after it, on the same processor.
    Softirq,
    /// A thread of the kernel.
    Thread,
    /// As for `Softirq`; a frame is handed over in pieces.
    Fragments,
}

/// Opens the device with all offloads of datagrams that the kernel knows.
pub(crate) fn open(device: &str, link: Link, napi: Napi) -> Result<File, Failure> {
    let kind = if link == Link::None { libc::IFF_TUN } else { libc::IFF_TAP };
    let napi_flags = match napi {
        Napi::Off => 0,
        Napi::Softirq | Napi::Thread => libc::IFF_NAPI,
        Napi::Fragments => libc::IFF_NAPI | libc::IFF_NAPI_FRAGS,
    };
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | napi_flags;
    let file = tun::open(device, flags, &mut File::options()).named("TUNSETIFF")?;
    // Before 6.2 Linux cuts datagrams itself: bulk arrives in small packets, as the report says.
    let sums = libc::TUN_F_CSUM;
    tun::offload(&file, sums | libc::TUN_F_USO4 | libc::TUN_F_USO6)
        .or_else(|_| tun::offload(&file, sums))
        .named("TUNSETOFFLOAD")?;
    if napi == Napi::Thread {
        let path = format!("/sys/class/net/{device}/threaded");
        fs::write(&path, "1").named(&path)?;
    }
    Ok(file)
}

/// Reads and writes one packet at a time.
pub(crate) fn answer(mut device: File, wait: Wait, napi: Napi, mut echo: Echo) -> Endless {
    if wait != Wait::Read {
        sys::set_nonblocking(&device).named("O_NONBLOCK")?;
    }
    let mut buffer = vec![0; LARGEST];
    crate::ready()?;
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                match wait {
                    Wait::Spin => std::hint::spin_loop(),
                    Wait::Read | Wait::Poll => sys::wait_readable(device.as_fd()).named("poll")?,
                }
                continue;
            }
            Err(error) => return Err(error).named("read"),
        };
        let packet = buffer.get_mut(VNET_HEADER..length).unwrap_or_default();
        let size = packet.len();
        if echo.take(packet, size) == Fate::Dropped {
            continue;
        }
        let written = if napi == Napi::Fragments {
            let (headers, payload) = buffer[..length].split_at(HEADERS.min(length));
            device.write_vectored(&[IoSlice::new(headers), IoSlice::new(payload)])
        } else {
            device.write(&buffer[..length])
        };
        written.named("write")?;
    }
}
