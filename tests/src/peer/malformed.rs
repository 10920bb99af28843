//! Sends TCP segments that are wrong, from a raw socket.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};

use super::options::Options;
use super::workload::say;
use crate::harness::files::Noise;

/// Sends segments with random headers, wrong lengths and wrong checksums to one port.
pub(crate) fn run(options: &Options) -> Result<()> {
    let count: u64 = options.get("count", 200)?;
    let to = options.address();
    let kind = SocketType::RAW;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, kind, flags, Some(ipproto::TCP))
        .context("opening a raw socket")?;
    let mut noise = Noise::new(options.get("seed", 1)?);
    let target = SocketAddr::new(to.ip(), 0);
    for n in 0..count {
        let segment = segment(&mut noise, n, to.port());
        sendto(&socket, &segment, SendFlags::empty(), &target).context("sending")?;
    }
    say("sent")
}

/// One segment of random bytes towards `port`; its checksum is right only by chance.
fn segment(noise: &mut Noise, n: u64, port: u16) -> Vec<u8> {
    let len = match n % 4 {
        // Shorter than a header.
        0 => (noise.next() % 20) as usize,
        // A header alone.
        1 => 20,
        _ => 20 + (noise.next() % 1000) as usize,
    };
    let mut bytes = vec![0; len];
    noise.fill(&mut bytes);
    if let Some(destination) = bytes.get_mut(2..4) {
        destination.copy_from_slice(&port.to_be_bytes());
    }
    if let Some(offset) = bytes.get_mut(12) {
        // Every length of the header, also impossible ones.
        *offset = ((n % 16) as u8) << 4;
    }
    bytes
}
