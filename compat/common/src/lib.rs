//! The common part of the facades `netstack-smoltcp` and `watfaq-netstack`.
//!
//! Both take IP packets in one call and give them out in another, hand TCP streams out with their
//! SYN, and carry UDP as datagrams with their two addresses. This crate implements that, over a
//! channel device and sockets for any address; the facades add the original names and types. The
//! facade `ipstack` shares the handshake of a stream with them.
#![forbid(unsafe_code)]

mod datagrams;
mod handshake;
mod opening;
mod packets;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::datagrams::{Datagram, DatagramReader, check_datagram, transmit};
pub use self::handshake::{Half, Handshake};
pub use self::opening::OpeningStream;
pub use self::packets::{Header, Inlet, flattened, header};
