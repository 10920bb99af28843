//! Wire formats: sequence numbers, headers, options and checksums.
//!
//! # Theory of operation
//!
//! Every protocol has a module with a *representation* (`Ipv4Repr`, `TcpRepr`, ...), a parser and
//! an emitter. A parser takes bytes from the network and returns a validated representation
//! together with the length of the header, or a [`WireError`] that says what was wrong. It is
//! total: it never panics, whatever the bytes hold, and it ignores bytes behind the length that the
//! header gives. An emitter writes a representation into a buffer of the caller and returns how
//! many bytes it wrote. It panics only if the buffer is too short, which is a mistake of the
//! caller.
//!
//! Checksums: the parsers of IPv4, ICMP and ICMPv6 check theirs, because the header is all they
//! need (and a small message). TCP and UDP parsers do not, because a device may have done it
//! already and because the payload may lie elsewhere; see [`checksum`].
//!
//! No allocation, no state, no clock. What emits and parses gives an equal representation.
//!
//! What it does not do: fragments are described but not reassembled, options of IPv4 are skipped,
//! jumbograms (RFC 2675) are refused.
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
