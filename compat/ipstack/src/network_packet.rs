//! IP packets of the program's own.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};

use etherparse::IpNumber;
use plimsoll_wire::ipv4::{self, Ipv4Repr};
use plimsoll_wire::ipv6::{self, FragmentHeader, Ipv6Repr};
use plimsoll_wire::protocol;

use crate::error::IpStackError;

/// The longest IP packet.
const MAX_PACKET: usize = 65_535;

/// The TTL of what is sent.
const TTL: u8 = 64;

/// From where to where, and of which protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: IpNumber,
}

/// An IP packet that is not of TCP or UDP.
#[derive(Clone, Debug)]
pub struct NetworkPacket {
    src: IpAddr,
    dst: IpAddr,
    bytes: Vec<u8>,
}

impl NetworkPacket {
    /// Where it comes from. There is no port.
    pub fn src_addr(&self) -> SocketAddr {
        SocketAddr::new(self.src, 0)
    }

    /// Where it goes to. There is no port.
    pub fn dst_addr(&self) -> SocketAddr {
        SocketAddr::new(self.dst, 0)
    }

    /// The TTL or hop limit.
    pub fn ttl(&self) -> u8 {
        TTL
    }

    /// All bytes of it, from the IP header on.
    ///
    /// # Errors
    /// None; the result is there because the method had one.
    pub fn to_bytes(&self) -> std::result::Result<Vec<u8>, IpStackError> {
        Ok(self.bytes.clone())
    }
}

impl Way {
    /// Bytes of the IP header.
    pub(crate) fn header_len(&self) -> usize {
        match self.src {
            IpAddr::V4(_) => ipv4::HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        }
    }

    /// One packet with `payload`.
    pub(crate) fn packet(&self, payload: &[u8]) -> Result<NetworkPacket> {
        self.check(payload)?;
        let bytes = self.part(payload, Part { ident: 0, offset: 0, whole: true, more: false })?;
        Ok(NetworkPacket { src: self.src, dst: self.dst, bytes })
    }

    /// A packet with `payload`, or its fragments if it is longer than `mtu`. `ident` is no other's.
    pub(crate) fn packets(&self, payload: &[u8], mtu: usize, ident: u32) -> Result<Vec<Vec<u8>>> {
        self.check(payload)?;
        let whole = Part { ident, offset: 0, whole: true, more: false };
        if self.header_len() + payload.len() <= mtu {
            return Ok(vec![self.part(payload, whole)?]);
        }
        let headers = match self.src {
            IpAddr::V4(_) => ipv4::HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN,
        };
        // All fragments but the last have a multiple of 8 bytes.
        let room = mtu.saturating_sub(headers) / 8 * 8;
        if room == 0 {
            let why = format!("an MTU of {mtu} bytes leaves no room behind the header");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        let parts = payload.chunks(room).enumerate().map(|(at, bytes)| {
            let offset = at * room;
            let more = offset + bytes.len() < payload.len();
            self.part(bytes, Part { offset, more, whole: false, ..whole })
        });
        parts.collect()
    }

    fn check(&self, payload: &[u8]) -> Result<()> {
        let most = match self.src {
            IpAddr::V4(_) => MAX_PACKET - ipv4::HEADER_LEN,
            IpAddr::V6(_) => MAX_PACKET,
        };
        if payload.len() > most {
            let why = format!("a payload of {} bytes; IP carries {most}", payload.len());
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    fn part(&self, payload: &[u8], part: Part) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.header_len()];
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = Ipv4Repr {
                    src,
                    dst,
                    protocol: self.protocol.0,
                    ttl: TTL,
                    tos: 0,
                    ident: part.ident as u16,
                    dont_frag: part.whole,
                    more_frags: part.more,
                    frag_offset: part.offset as u16,
                    payload_len: payload.len(),
                };
                header.emit(&mut bytes);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let fragment = if part.whole { 0 } else { ipv6::FRAGMENT_HEADER_LEN };
                let next = if part.whole { self.protocol.0 } else { protocol::IPV6_FRAGMENT };
                let header = Ipv6Repr {
                    src,
                    dst,
                    next_header: next,
                    hop_limit: TTL,
                    traffic_class: 0,
                    flow_label: 0,
                    payload_len: fragment + payload.len(),
                };
                header.emit(&mut bytes);
                if !part.whole {
                    let header = FragmentHeader {
                        next_header: self.protocol.0,
                        offset: part.offset as u16,
                        more: part.more,
                        ident: part.ident,
                    };
                    bytes.resize(ipv6::HEADER_LEN + fragment, 0);
                    header.emit(&mut bytes[ipv6::HEADER_LEN..]);
                }
            }
            _ => {
                let why = format!("{} and {} are of different IP versions", self.src, self.dst);
                return Err(Error::new(ErrorKind::InvalidInput, why));
            }
        }
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }
}

/// Which part of a message a packet carries.
#[derive(Clone, Copy)]
struct Part {
    ident: u32,
    /// In bytes, below 65,536.
    offset: usize,
    /// It is no fragment.
    whole: bool,
    more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    use plimsoll_wire::ipv6::walk_extensions;

    const V4: Way = Way {
        src: IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 7)),
        dst: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        protocol: IpNumber::ICMP,
    };

    fn v6() -> Way {
        let (src, dst) = ("2001:db8::7".parse().unwrap(), "2001:db8::1".parse().unwrap());
        Way { src, dst, protocol: IpNumber::IPV6_ICMP }
    }

    #[test]
    fn what_fits_is_one_packet() {
        let packets = V4.packets(&[7; 1480], 1500, 9).unwrap();
        let (header, at) = Ipv4Repr::parse(&packets[0]).unwrap();
        assert_eq!((packets.len(), header.payload_len, at), (1, 1480, 20));
        assert!(header.dont_frag && !header.is_fragment());
        let packets = v6().packets(&[7; 1460], 1500, 9).unwrap();
        assert_eq!((packets.len(), packets[0].len()), (1, 1500));
    }

    #[test]
    fn what_does_not_fit_is_cut_into_fragments() {
        let message: Vec<u8> = (0..3000).map(|at| at as u8).collect();
        let mut whole = Vec::new();
        for packet in V4.packets(&message, 1500, 9).unwrap() {
            let (header, at) = Ipv4Repr::parse(&packet).unwrap();
            assert_eq!(usize::from(header.frag_offset), whole.len());
            assert!(packet.len() <= 1500 && header.ident == 9 && !header.dont_frag);
            whole.extend_from_slice(&packet[at..]);
            assert_eq!(header.more_frags, whole.len() < 3000);
        }
        assert_eq!(whole, message);
        let mut whole = Vec::new();
        for packet in v6().packets(&message, 1280, 9).unwrap() {
            let (header, at) = Ipv6Repr::parse(&packet).unwrap();
            let upper = walk_extensions(header.next_header, &packet[at..]).unwrap();
            let fragment = upper.fragment.expect("it is a fragment");
            assert_eq!(usize::from(fragment.offset), whole.len());
            assert_eq!((upper.protocol, fragment.ident), (58, 9));
            assert!(packet.len() <= 1280);
            whole.extend_from_slice(&packet[at + upper.offset..]);
            assert_eq!(fragment.more, whole.len() < 3000);
        }
        assert_eq!(whole, message);
    }

    #[test]
    fn what_cannot_be_a_packet_is_refused() {
        let too_long = V4.packets(&[0; 65_516], 1500, 1).unwrap_err();
        assert_eq!(too_long.to_string(), "a payload of 65516 bytes; IP carries 65515");
        assert!(V4.packets(&[0; 100], 27, 1).is_err(), "no room for 8 bytes");
        let mixed = Way { dst: v6().dst, ..V4 };
        assert!(mixed.packet(&[]).unwrap_err().to_string().contains("different IP versions"));
    }
}
