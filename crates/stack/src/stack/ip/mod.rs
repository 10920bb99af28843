//! IPv4 and IPv6: what arrives is checked and handed on, what leaves gets its header and its
//! interface.
//!
//! What TCP sends leaves whole, and says so (DF). A datagram of UDP that is longer than its path
//! carries leaves in fragments, unless its socket forbids that. Neighbours (ARP, NDP) are not
//! needed for devices that carry IP packets.

pub(crate) mod fragment;
pub(crate) mod hop;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod output;
mod reassembly_time;
pub(crate) mod sender;
pub(crate) mod v4;
pub(crate) mod v6;
