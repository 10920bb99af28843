//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::WireError;
use crate::bytes::{array, be16, put16};

/// Bytes of a message.
pub const LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;
const PROTOCOL_IPV4: u16 = 0x0800;

/// The operation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's protocol address?
    Request,
    /// The sender has.
    Reply,
}

/// An ARP message in parsed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpRepr {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_hardware: [u8; 6],
    /// The sender's IPv4 address.
    pub sender: Ipv4Addr,
    /// The target's Ethernet address; not significant in a request.
    pub target_hardware: [u8; 6],
    /// The target's IPv4 address.
    pub target: Ipv4Addr,
}

impl ArpRepr {
    /// Parses the message at the front of `data`.
    ///
    /// # Errors
    /// If `data` is too short, or the message is not a request or reply for IPv4 over Ethernet.
    pub fn parse(data: &[u8]) -> Result<ArpRepr, WireError> {
        let data = data.first_chunk::<LEN>().ok_or(WireError::Truncated)?;
        if be16(data, 0) != HARDWARE_ETHERNET || be16(data, 2) != PROTOCOL_IPV4 {
            return Err(WireError::Unknown);
        }
        if (data[4], data[5]) != (6, 4) {
            return Err(WireError::BadLength);
        }
        let operation = match be16(data, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(WireError::Unknown),
        };
        Ok(ArpRepr {
            operation,
            sender_hardware: array(data, 8),
            sender: Ipv4Addr::from(array::<4>(data, 14)),
            target_hardware: array(data, 18),
            target: Ipv4Addr::from(array::<4>(data, 24)),
        })
    }

    /// Writes the message to the front of `out` and returns its length, 28.
    ///
    /// # Panics
    /// If `out` is shorter than 28 bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..LEN];
        put16(out, 0, HARDWARE_ETHERNET);
        put16(out, 2, PROTOCOL_IPV4);
        (out[4], out[5]) = (6, 4);
        let operation = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        put16(out, 6, operation);
        out[8..14].copy_from_slice(&self.sender_hardware);
        out[14..18].copy_from_slice(&self.sender.octets());
        out[18..24].copy_from_slice(&self.target_hardware);
        out[24..28].copy_from_slice(&self.target.octets());
        LEN
    }
}
