//! One thread over TUN that does next to nothing: what the device and the kernels on either side of
//! it leave to any stack that has one thread.
//!
//! It answers requests ([`Job::Answer`]) and ends connections, by a read and a write of the device
//! for each. Requests and answers of several segments are one packet, which the kernel cuts. It
//! verifies nothing, sends nothing twice, keeps to no window and has no timers: a packet that is
//! lost ends the measurement. IPv4 only. It is of no use for anything else.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};

use peer_common::tun::{self, VNET_HEADER};
use peer_common::{Args, HEADER, Job, SCRATCH};

/// Bytes of the IPv4 header, and of a TCP header without options.
const IP: usize = 20;
const TCP: usize = 20;

/// Payload bytes of a segment: what the device carries, less both headers.
const MSS: usize = tun::MTU as usize - IP - TCP;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` and `VIRTIO_NET_HDR_GSO_TCPV4`.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// The client's address and port.
type Peer = ([u8; 4], [u8; 2]);

/// A connection.
#[derive(Default)]
struct Flow {
    snd_nxt: u32,
    rcv_nxt: u32,
    header: Vec<u8>,
    /// Bytes of a request, and of an answer; none before the header is whole.
    size: usize,
    /// Bytes of requests that are not answered.
    waiting: usize,
}

/// What is looked at of a packet with TCP.
struct Segment<'a> {
    /// Both addresses, the client's first, and both ports.
    addresses: [u8; 8],
    ports: [u8; 4],
    seq: u32,
    flags: u8,
    payload: &'a [u8],
}

impl Segment<'_> {
    fn parse(packet: &[u8]) -> Option<Segment<'_>> {
        let header = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || packet.get(9) != Some(&6) {
            return None;
        }
        let tcp = packet.get(header..)?;
        let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
        Some(Segment {
            addresses: packet.get(12..20)?.try_into().ok()?,
            ports: tcp.get(..4)?.try_into().ok()?,
            seq: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            flags: *tcp.get(13)?,
            payload,
        })
    }

    fn peer(&self) -> Peer {
        let [a, b, c, d, ..] = self.addresses;
        ([a, b, c, d], [self.ports[0], self.ports[1]])
    }
}

/// Writes one packet: what `flow` answers `to` with.
fn send(
    device: &mut File,
    to: &Segment<'_>,
    flow: &mut Flow,
    flags: u8,
    payload: &[u8],
) -> io::Result<()> {
    let mss = (MSS as u16).to_be_bytes();
    let options: &[u8] = if flags & SYN != 0 { &[2, 4, mss[0], mss[1]] } else { &[] };
    let tcp = TCP + options.len();
    let mut out = [0; VNET_HEADER + IP + TCP + 4];
    let (vnet, packet) = out.split_at_mut(VNET_HEADER);
    vnet[0] = NEEDS_CHECKSUM;
    if payload.len() > MSS {
        vnet[1] = GSO_TCPV4;
        vnet[2..4].copy_from_slice(&((IP + tcp) as u16).to_ne_bytes());
        vnet[4..6].copy_from_slice(&(MSS as u16).to_ne_bytes());
    }
    vnet[6..8].copy_from_slice(&(IP as u16).to_ne_bytes());
    vnet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
    let length = tcp + payload.len();
    packet[..4].copy_from_slice(&[0x45, 0, 0, 0]);
    packet[2..4].copy_from_slice(&((IP + length) as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    let [a, b, c, d, e, f, g, h] = to.addresses;
    packet[12..20].copy_from_slice(&[e, f, g, h, a, b, c, d]);
    let sum = !folded(&packet[..IP], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // The device adds the segment to the sum of the pseudo-header.
    let pseudo = folded(&packet[12..20], 6 + length as u32);
    let segment = &mut packet[IP..];
    let [ours, theirs] = [&to.ports[2..], &to.ports[..2]];
    segment[..2].copy_from_slice(ours);
    segment[2..4].copy_from_slice(theirs);
    segment[4..8].copy_from_slice(&flow.snd_nxt.to_be_bytes());
    segment[8..12].copy_from_slice(&flow.rcv_nxt.to_be_bytes());
    segment[12..14].copy_from_slice(&[(tcp as u8 / 4) << 4, flags | ACK]);
    segment[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    segment[16..18].copy_from_slice(&pseudo.to_be_bytes());
    segment[TCP..tcp].copy_from_slice(options);
    let head = &out[..VNET_HEADER + IP + tcp];
    let parts = [IoSlice::new(head), IoSlice::new(payload)];
    let parts = if payload.is_empty() { &parts[..1] } else { &parts };
    let written = device.write_vectored(parts)?;
    debug_assert_eq!(written, head.len() + payload.len(), "a device takes a packet whole");
    let numbers = payload.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    flow.snd_nxt = flow.snd_nxt.wrapping_add(numbers);
    Ok(())
}

/// The sum of RFC 1071 over `bytes`, an even number of them, with `more`.
fn folded(bytes: &[u8], more: u32) -> u16 {
    let words = bytes.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum = words.sum::<u32>() + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Flow {
    /// Takes what has come in order, and returns how many answers are due.
    fn take(&mut self, mut payload: &[u8]) -> Result<usize, Box<dyn Error>> {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(payload.len() as u32);
        if self.size == 0 {
            let rest = HEADER - self.header.len();
            let (header, behind) = payload.split_at(rest.min(payload.len()));
            self.header.extend_from_slice(header);
            payload = behind;
            if let Ok(header) = <&[u8; HEADER]>::try_from(self.header.as_slice()) {
                let Job::Answer { size } = Job::parse(header)? else {
                    return Err("this server answers requests, and does nothing else".into());
                };
                self.size = size;
            }
        }
        self.waiting += payload.len();
        let answers = self.waiting.checked_div(self.size).unwrap_or(0);
        self.waiting -= answers * self.size;
        Ok(answers)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::of_program()?;
    let mut device = tun::with_offloads(&args.device)?;
    let mut flows = HashMap::<Peer, Flow>::new();
    let (mut packet, answer) = (vec![0; VNET_HEADER + 65536], vec![0; SCRATCH]);
    peer_common::ready()?;
    loop {
        let length = device.read(&mut packet)?;
        let Some(segment) = packet.get(VNET_HEADER..length).and_then(Segment::parse) else {
            continue;
        };
        if segment.flags & (RST | SYN) != 0 {
            flows.remove(&segment.peer());
        }
        if segment.flags & SYN != 0 {
            let flow = flows.entry(segment.peer()).or_default();
            flow.rcv_nxt = segment.seq.wrapping_add(1);
            send(&mut device, &segment, flow, SYN, &[])?;
            continue;
        }
        let Some(flow) = flows.get_mut(&segment.peer()) else { continue };
        let carries = !segment.payload.is_empty() || segment.flags & FIN != 0;
        if !carries {
            continue;
        }
        let mut answers = 0;
        if segment.seq == flow.rcv_nxt {
            answers = flow.take(segment.payload)?;
            flow.rcv_nxt = flow.rcv_nxt.wrapping_add(u32::from(segment.flags & FIN != 0));
        }
        for _ in 0..answers {
            let size = flow.size.min(65536 - IP - TCP - 1);
            send(&mut device, &segment, flow, PSH, &answer[..size])?;
        }
        if answers == 0 || segment.flags & FIN != 0 {
            send(&mut device, &segment, flow, segment.flags & FIN, &[])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_across_segments() {
        let mut flow = Flow::default();
        assert_eq!(flow.take(b"a\0\0\0\x04").unwrap(), 0);
        assert_eq!(flow.take(b"\0\0\0\0xxxxyyyyz").unwrap(), 2);
        assert_eq!((flow.waiting, flow.rcv_nxt), (1, 18));
        assert_eq!(flow.take(b"zzz").unwrap(), 1);
        assert!(Flow::default().take(b"d\0\0\0\0\0\0\0\0").is_err());
    }

    #[test]
    fn what_is_no_tcp_over_ipv4_is_left_alone() {
        for packet in [&[][..], &[0x60; 60], &[0x45; 12], &[0x45; 60]] {
            assert!(Segment::parse(packet).is_none());
        }
    }

    #[test]
    fn sums() {
        // RFC 1071, section 3.
        assert_eq!(folded(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(folded(&[], 0x1_fffe), 0xffff);
    }
}
