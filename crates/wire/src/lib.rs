//! Wire formats: sequence numbers, headers, options and checksums. Writing an IPv4 header, and
//! parsing it again:
//!
//! ```
//! use plimsoll_wire::ipv4::Ipv4Repr;
//! use plimsoll_wire::protocol;
//!
//! let header = Ipv4Repr {
//!     src: "192.0.2.1".parse()?,
//!     dst: "192.0.2.2".parse()?,
//!     protocol: protocol::TCP,
//!     ttl: 64,
//!     tos: 0,
//!     ident: 0,
//!     dont_frag: true,
//!     more_frags: false,
//!     frag_offset: 0,
//!     payload_len: 4,
//! };
//! let mut packet = *b"....................load";
//! assert_eq!(header.emit(&mut packet), 20);
//! let (parsed, len) = Ipv4Repr::parse(&packet)?;
//! assert_eq!((parsed, &packet[len..]), (header, &b"load"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no features and needs neither std nor an allocator.
//!
//! # Theory of operation
//!
//! Each protocol has a module with a *representation* (`Ipv4Repr`, `TcpRepr`, ...), a parser and an
//! emitter. A parser takes bytes from the network and returns a validated representation with the
//! length of the header, or a [`WireError`]. It never panics, whatever the bytes are, and it
//! ignores bytes behind the length in the header. An emitter writes a representation into the
//! caller's buffer and returns how many bytes it wrote. It panics only if the buffer is too short.
//!
//! Checksums: the parsers of IPv4, ICMP and ICMPv6 verify theirs, because the header (and a small
//! message) is all they need. TCP and UDP parsers do not, because a device may have verified it,
//! and because the payload may be elsewhere; see [`checksum`].
//!
//! There is no allocation, no state and no clock. A representation that was emitted and parsed is
//! equal to the first one.
//!
//! Limits: fragments are described but not reassembled, options of IPv4 are skipped, and jumbograms
//! (RFC 2675) are refused.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod protocol;
pub mod tcp;
pub mod udp;

mod bytes;
mod error;
mod seq;

pub use error::WireError;
pub use seq::SeqNum;

#[cfg(test)]
mod tests;
