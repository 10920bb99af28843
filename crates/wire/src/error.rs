//! Errors in bytes from the network.

use core::fmt;

/// Why a parser refused its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the header, or than the length that the header gives.
    Truncated,
    /// The version field does not fit the protocol.
    BadVersion,
    /// A length field contradicts itself.
    BadLength,
    /// The checksum is wrong.
    BadChecksum,
    /// An option or extension header is malformed.
    BadOption,
    /// A message type, operation or hardware type that Plimsoll does not know.
    Unknown,
    /// A malformed or unknown part of an IPv6 header chain that must be reported to the sender (RFC
    /// 8200, sections 4.2 and 4.4). The fields are those of the ICMPv6 parameter problem.
    ParameterProblem {
        /// The ICMPv6 code.
        code: u8,
        /// Offset of the offending byte from the start of the IPv6 header.
        pointer: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Truncated => f.write_str("the packet is shorter than its header says"),
            WireError::BadVersion => f.write_str("the version field does not fit the protocol"),
            WireError::BadLength => f.write_str("a length field contradicts itself"),
            WireError::BadChecksum => f.write_str("the checksum is wrong"),
            WireError::BadOption => f.write_str("an option or extension header is malformed"),
            WireError::Unknown => f.write_str("the message type is unknown"),
            WireError::ParameterProblem { code, pointer } => {
                write!(f, "IPv6 parameter problem, code {code}, at byte {pointer}")
            }
        }
    }
}

impl core::error::Error for WireError {}
