//! The signatures of RFC 2385: the keys per peer, and the digest.
//!
//! A segment without a required signature, with an unexpected one, or with a wrong digest is
//! dropped and counted, as on Linux; it gets no answer. A reset that belongs to no connection is
//! signed if a listener has a key for the peer.

use std::net::IpAddr;

use md5::{Digest, Md5};
use plimsoll_buf::Slices;
use plimsoll_tcp::{Counter, Md5Key};
use plimsoll_wire::protocol;
use plimsoll_wire::tcp::{CHECKSUM_OFFSET, HEADER_LEN, MD5_DIGEST_AT, MD5_DIGEST_LEN};

use crate::flow::FlowKey;
use crate::zone;

/// The start of a TCP header, up to the options.
pub(crate) type FixedHeader = [u8; HEADER_LEN];

/// Keys of a socket that is not connected, by the peer's address (TCP_MD5SIG_EXT).
#[derive(Clone, Debug, Default)]
pub struct Md5Keys(Vec<(IpAddr, u8, Md5Key)>);

impl Md5Keys {
    /// Sets the key for the peers in `net/prefix`, or takes it away. Returns whether there was one.
    pub fn set(&mut self, net: IpAddr, prefix: u8, key: Option<Md5Key>) -> bool {
        let before = self.0.len();
        self.0.retain(|(at, len, _)| (*at, *len) != (net, prefix));
        let had = self.0.len() < before;
        if let Some(key) = key {
            self.0.push((net, prefix, key));
        }
        had
    }

    /// The key for `peer`: that of the longest prefix.
    pub fn find(&self, peer: IpAddr) -> Option<&Md5Key> {
        let peer = zone::bare(peer);
        let matching = self.0.iter().filter(|(net, prefix, _)| is_within(peer, *net, *prefix));
        matching.max_by_key(|(_, prefix, _)| *prefix).map(|(_, _, key)| key)
    }
}

fn is_within(ip: IpAddr, net: IpAddr, prefix: u8) -> bool {
    let (ip, net, width) = match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (u128::from(ip.to_bits()), net.to_bits().into(), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (ip.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    let shift = width - u32::from(prefix).min(width);
    ip.checked_shr(shift).unwrap_or(0) == net.checked_shr(shift).unwrap_or(0)
}

/// The fault of the signature of a segment from `flow.remote`, if there is one. `key` is the key
/// that should have signed it, `header_len` the length of its header with options.
pub(crate) fn fault(
    key: Option<&Md5Key>,
    flow: &FlowKey,
    header: &FixedHeader,
    found: Option<[u8; MD5_DIGEST_LEN]>,
    payload: &Slices,
) -> Option<Counter> {
    let (key, found) = match (key, found) {
        (None, None) => return None,
        (None, Some(_)) => return Some(Counter::TcpMd5Unexpected),
        (Some(_), None) => return Some(Counter::TcpMd5NotFound),
        (Some(key), Some(found)) => (key, found),
    };
    let right = digest(key, (flow.remote, flow.local), header, payload);
    // The time of this comparison reveals nothing about the key: the digest is one-way.
    (right != found).then_some(Counter::TcpMd5Failure)
}

/// Writes the digest into `header`, a TCP header that has room for it, from the first to the second
/// of `ends`.
pub(crate) fn sign(key: &Md5Key, ends: (IpAddr, IpAddr), header: &mut [u8], payload: &Slices) {
    let Some(fixed) = header.first_chunk() else { return };
    let digest = digest(key, ends, fixed, payload);
    let room = header.get_mut(HEADER_LEN + MD5_DIGEST_AT..).and_then(|rest| rest.first_chunk_mut());
    debug_assert!(room.is_some(), "whoever has a key leaves room for the digest");
    if let Some(room) = room {
        *room = digest;
    }
}

/// The digest of a segment from the first to the second of `ends` (RFC 2385, section 2.0).
pub(crate) fn digest(
    key: &Md5Key,
    ends: (IpAddr, IpAddr),
    header: &FixedHeader,
    payload: &Slices,
) -> [u8; MD5_DIGEST_LEN] {
    let header_len = usize::from(header[12] >> 4) * 4;
    let tcp_len = (header_len + payload.len()) as u32;
    let mut md5 = Md5::new();
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            md5.update(src.octets());
            md5.update(dst.octets());
            md5.update([0, protocol::TCP]);
            md5.update((tcp_len as u16).to_be_bytes());
        }
        (src, dst) => {
            for ip in [src, dst] {
                md5.update(match zone::bare(ip) {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                });
            }
            md5.update(tcp_len.to_be_bytes());
            md5.update([0, 0, 0, protocol::TCP]);
        }
    }
    let mut header = *header;
    header[CHECKSUM_OFFSET..][..2].fill(0);
    md5.update(header);
    for part in payload.parts() {
        md5.update(&part[..]);
    }
    md5.update(key.as_bytes());
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn key(text: &str) -> Md5Key {
        Md5Key::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_longest_prefix_has_the_key() {
        let mut keys = Md5Keys::default();
        assert!(!keys.set(ip("192.0.2.0"), 24, Some(key("net"))));
        assert!(!keys.set(ip("192.0.2.7"), 32, Some(key("host"))));
        assert!(!keys.set(ip("2001:db8::"), 32, Some(key("six"))));
        for (peer, expected) in [
            ("192.0.2.7", Some("host")),
            ("192.0.2.8", Some("net")),
            ("198.51.100.1", None),
            ("2001:db8::7", Some("six")),
            ("2001:db9::7", None),
        ] {
            assert_eq!(keys.find(ip(peer)), expected.map(key).as_ref(), "{peer}");
        }
        assert!(keys.set(ip("192.0.2.7"), 32, None), "it was there");
        assert_eq!(keys.find(ip("192.0.2.7")), Some(&key("net")));
        keys.set(ip("::"), 0, Some(key("all")));
        assert_eq!(keys.find(ip("2001:db9::7")), Some(&key("all")));
    }

    #[test]
    fn a_key_has_one_to_eighty_bytes() {
        assert_eq!(Md5Key::new(&[]), None);
        assert_eq!(Md5Key::new(&[1; 81]), None);
        let key = Md5Key::new(&[1; 80]).unwrap();
        assert_eq!(key.as_bytes(), [1; 80]);
        assert_eq!(format!("{key:?}"), "Md5Key(80 bytes)");
    }

    /// SYNs that Linux 6.18 signed with the key `plimsoll`, from the IP header on.
    const FROM_LINUX: [(&str, usize); 2] = [
        (
            "4500004852b34000400663f9c0000201c00002029c4000b319da65a700000000d002faf0fc8a0000\
             010113126f01f66ea041fd40b1dee5f9a96d2eb9020405b4010104020103030a",
            20,
        ),
        (
            "600d028b0034064020010db800000000000000000000000120010db8000000000000000000000002\
             9c4000b39cf3047800000000d002fd204a2d0000010113129011b5603288ba325e6f8f615241b799\
             020405a0010104020103030a",
            40,
        ),
    ];

    #[test]
    fn the_digest_is_that_of_linux() {
        for (hex, tcp_at) in FROM_LINUX {
            let digits: Vec<u8> =
                hex.bytes().map(|digit| char::from(digit).to_digit(16).unwrap() as u8).collect();
            let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            let (ends, tcp) = match tcp_at {
                20 => (("192.0.2.1", "192.0.2.2"), &bytes[20..]),
                _ => (("2001:db8::1", "2001:db8::2"), &bytes[40..]),
            };
            let (repr, _) = plimsoll_wire::tcp::TcpRepr::parse(tcp).unwrap();
            let ends = (ip(ends.0), ip(ends.1));
            let header = tcp.first_chunk().unwrap();
            let digest = digest(&key("plimsoll"), ends, header, &Slices::new());
            assert_eq!(Some(digest), repr.options.md5);
        }
    }
}
