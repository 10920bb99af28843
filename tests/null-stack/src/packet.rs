//! IPv4 packets with TCP segments, as far as they are needed.

use std::net::{Ipv4Addr, SocketAddrV4};

use plimsoll_wire::checksum;

/// Both headers, without options.
pub(crate) const HEADERS: usize = 40;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

const TCP: u8 = 6;

/// A segment that has arrived.
pub(crate) struct Segment<'a> {
    pub(crate) client: SocketAddrV4,
    pub(crate) server: SocketAddrV4,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn double_word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Segment<'_> {
    /// Reads a packet; nothing if it is something else than TCP over IPv4.
    pub(crate) fn parse(packet: &[u8]) -> Option<Segment<'_>> {
        let first = *packet.first()?;
        if first >> 4 != 4 || *packet.get(9)? != TCP {
            return None;
        }
        let total = usize::from(word(packet, 2)?);
        let segment = packet.get(usize::from(first & 15) * 4..total)?;
        let data = usize::from(*segment.get(12)? >> 4) * 4;
        let address = |at| double_word(packet, at).map(Ipv4Addr::from_bits);
        Some(Segment {
            client: SocketAddrV4::new(address(12)?, word(segment, 0)?),
            server: SocketAddrV4::new(address(16)?, word(segment, 2)?),
            seq: double_word(segment, 4)?,
            ack: double_word(segment, 8)?,
            flags: *segment.get(13)?,
            window: word(segment, 14)?,
            options: segment.get(20..data)?,
            payload: segment.get(data..)?,
        })
    }

    /// The value of an option of a SYN: its maximum segment size or window scale.
    pub(crate) fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut rest = self.options;
        loop {
            match *rest {
                [] | [0, ..] => return None,
                [1, ..] => rest = &rest[1..],
                [found, len, ..] => {
                    let len = usize::from(len);
                    let value = rest.get(2..len)?;
                    if found == kind {
                        return Some(value);
                    }
                    rest = &rest[len..];
                }
                _ => return None,
            }
        }
    }
}

/// What a segment to the client says.
pub(crate) struct Outgoing<'a> {
    pub(crate) client: SocketAddrV4,
    pub(crate) server: SocketAddrV4,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: &'a [u8],
    /// The payload, in two parts.
    pub(crate) payload: [&'a [u8]; 2],
}

impl Outgoing<'_> {
    /// Writes the packet into `out`, in place of what that holds.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let data = self.options.len() + self.payload.iter().map(|part| part.len()).sum::<usize>();
        let total = HEADERS + data;
        out.clear();
        out.extend([0x45, 0]);
        out.extend((total as u16).to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
        out.extend(self.server.ip().octets());
        out.extend(self.client.ip().octets());
        out.extend(self.server.port().to_be_bytes());
        out.extend(self.client.port().to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([((20 + self.options.len()) as u8 / 4) << 4, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 4]);
        out.extend_from_slice(self.options);
        out.extend_from_slice(self.payload[0]);
        out.extend_from_slice(self.payload[1]);
        checksum::fill(checksum::Sum::new(), &mut out[..20], 10);
        let (server, client) = (*self.server.ip(), *self.client.ip());
        let pseudo = checksum::pseudo_header_v4(server, client, TCP, total as u32 - 20);
        checksum::fill(pseudo, &mut out[20..], 16);
    }
}
