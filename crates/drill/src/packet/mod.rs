//! Packets as bytes: building what arrives, reading what leaves, and showing both.
//!
//! The headers are built byte by byte rather than by the stack's own emitters, since a script may
//! want a header that no sane stack would send, and since the reader should not share a mistake
//! with what it checks.

pub mod build;
pub mod icmp;
pub mod live;
pub mod options;
pub mod show;

/// TCP flag bits in a 16-bit word, as in the header.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of RFC 9293, RFC 3168 and RFC 9768")]
    pub const FIN: u16 = 1;
    pub const SYN: u16 = 2;
    pub const RST: u16 = 4;
    pub const PSH: u16 = 8;
    pub const ACK: u16 = 16;
    pub const URG: u16 = 32;
    pub const ECE: u16 = 64;
    pub const CWR: u16 = 128;
    pub const AE: u16 = 256;
}

#[cfg(test)]
mod tests;
