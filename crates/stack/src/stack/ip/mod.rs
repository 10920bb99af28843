//! IPv4 and IPv6: checks arrived packets and passes them on, and gives departing packets a header
//! and an interface.
//!
//! TCP packets leave whole, with DF set. A UDP datagram that is longer than its path's MTU leaves
//! in fragments, unless its socket forbids that. Devices that carry IP packets need no neighbour
//! discovery (ARP, NDP).

pub(crate) mod fragment;
pub(crate) mod hop;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod output;
mod reassembly_time;
pub(crate) mod sender;
pub(crate) mod v4;
pub(crate) mod v6;
