//! Raw packets at a rate, with sources as an attacker chooses them.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketType, connect, ipproto, sendmmsg,
    socket, sockopt,
};
use serde_json::json;

use super::super::options::Options;
use super::super::workload::say;
use crate::harness::files::Noise;

/// Packets of one system call.
const BATCH: usize = 64;

/// Packets that are made in advance and sent over and over.
const MADE: usize = 16_384;

/// `spray ADDRESS --kind KIND --rate N --seconds S`, where the kind is
/// - `syn`: SYNs from random sources,
/// - `bad-source`: SYNs from addresses that nobody can have,
/// - `udp`: datagrams to ports where nobody listens,
/// - `fragments`: first fragments from one source, which are never completed.
pub(crate) fn spray(options: &Options) -> Result<()> {
    let to = options.address();
    let IpAddr::V4(host) = to.ip() else { bail!("the sprays are IPv4") };
    let rate: f64 = options.get("rate", 100_000.0)?;
    let time = options.seconds("seconds", 5.0)?;
    let kind = options.text("kind").unwrap_or("syn");
    let mut noise = Noise::new(options.get("seed", 1)?);
    let made: Vec<Vec<u8>> = (0..MADE)
        .map(|_| packet(kind, host.octets(), to.port(), &mut noise))
        .collect::<Result<_>>()?;
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
        .context("opening a raw socket")?;
    sockopt::set_socket_send_buffer_size(&socket, 4 << 20)?;
    connect(&socket, &SocketAddr::new(to.ip(), 0)).context("choosing the target")?;
    let (mut sent, mut refused, mut next) = (0_u64, 0_u64, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        while sent + refused < due && start.elapsed() < time {
            let parts: Vec<[IoSlice<'_>; 1]> =
                (0..BATCH).map(|n| [IoSlice::new(&made[(next + n) % MADE])]).collect();
            next += BATCH;
            let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
                (0..BATCH).map(|_| SendAncillaryBuffer::default()).collect();
            let mut messages: Vec<MMsgHdr<'_>> =
                parts.iter().zip(&mut controls).map(|(part, c)| MMsgHdr::new(part, c)).collect();
            // A refusal is a full queue; the clock goes on.
            let taken = sendmmsg(&socket, &mut messages, SendFlags::empty()).unwrap_or(0);
            sent += taken as u64;
            refused += (BATCH - taken) as u64;
        }
        // The clock, not this sleep, decides how many follow.
        thread::sleep(Duration::from_micros(200));
    }
    let seconds = start.elapsed().as_secs_f64();
    let per_second = sent as f64 / seconds;
    say(&json!({ "sent": sent, "refused": refused, "sent_per_s": per_second }).to_string())
}

fn packet(kind: &str, host: [u8; 4], port: u16, noise: &mut Noise) -> Result<Vec<u8>> {
    let random = noise.next().to_be_bytes();
    let anybody = [198, 51, 100, random[0]];
    let from = u16::from_be_bytes([random[1] | 4, random[2]]);
    Ok(match kind {
        "syn" => {
            ipv4(anybody, host, 6, 0, &segment(anybody, host, (from, port), Part::syn(&random)))
        }
        "bad-source" => {
            let nobody = [[192, 0, 2, 255], [192, 0, 2, 0]][usize::from(random[3] & 1)];
            ipv4(nobody, host, 6, 0, &segment(nobody, host, (from, port), Part::syn(&random)))
        }
        "udp" => {
            let mut datagram = vec![0x5a; 1208];
            datagram[..2].copy_from_slice(&from.to_be_bytes());
            datagram[2..4].copy_from_slice(&[0xc0 | random[4], random[5]]);
            datagram[4..8].copy_from_slice(&[0x04, 0xb8, 0, 0]);
            ipv4(anybody, host, 17, 0, &datagram)
        }
        "fragments" => {
            let mut whole = ipv4([192, 0, 2, 66], host, 17, 0x2000, &[0x5a; 1400]);
            whole[4..6].copy_from_slice(&random[6..8]);
            whole
        }
        other => bail!("no spray is called `{other}`"),
    })
}

/// What a TCP segment says.
pub(super) struct Part<'a> {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) options: &'a [u8],
    pub(super) data: &'a [u8],
}

impl Part<'_> {
    fn syn(random: &[u8; 8]) -> Part<'static> {
        let seq = u32::from_be_bytes([random[4], random[5], random[6], random[7]]);
        Part { seq, ack: 0, flags: 2, options: &[2, 4, 5, 0xb4], data: &[] }
    }
}

/// A TCP segment with its checksum. Options come as whole words.
pub(super) fn segment(
    from: [u8; 4],
    to: [u8; 4],
    (from_port, to_port): (u16, u16),
    part: Part<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + part.options.len() + part.data.len());
    out.extend(from_port.to_be_bytes());
    out.extend(to_port.to_be_bytes());
    out.extend(part.seq.to_be_bytes());
    out.extend(part.ack.to_be_bytes());
    let words = 5 + part.options.len() / 4;
    out.extend([(words as u8) << 4, part.flags, 0xff, 0xff, 0, 0, 0, 0]);
    out.extend(part.options);
    out.extend(part.data);
    let length = (out.len() as u16).to_be_bytes();
    let pseudo = [from.as_slice(), &to, &[0, 6], &length].concat();
    let sum = checksum(&[pseudo.as_slice(), &out].concat());
    out[16..18].copy_from_slice(&sum.to_be_bytes());
    out
}

/// An IPv4 packet; the kernel fills in length and checksum of the header.
pub(super) fn ipv4(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    fragment: u16,
    body: &[u8],
) -> Vec<u8> {
    let mut out = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    out[6..8].copy_from_slice(&fragment.to_be_bytes());
    out.extend(from);
    out.extend(to);
    out.extend(body);
    out
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_with_its_checksum_sums_to_nothing() {
        let part = Part { seq: 1, ack: 2, flags: 0x10, options: &[], data: b"abc" };
        let segment = segment([192, 0, 2, 1], [192, 0, 2, 2], (7, 80), part);
        let length = (segment.len() as u16).to_be_bytes();
        let pseudo = [&[192, 0, 2, 1, 192, 0, 2, 2, 0, 6], length.as_slice()].concat();
        assert_eq!(checksum(&[pseudo, segment].concat()), 0);
    }
}
