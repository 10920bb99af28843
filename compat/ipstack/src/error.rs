//! [`IpStackError`], with the variants that programs may match.

use std::io;

use etherparse::err::ValueTooBigError;
use tokio::sync::mpsc::error::SendError;

use crate::stream::IpStackStream;

/// The errors of this crate. Only [`IoError`](Self::IoError), [`AcceptError`](Self::AcceptError)
/// and [`InvalidMtuSize`](Self::InvalidMtuSize) occur; the others are there for programs that name
/// them.
#[derive(Debug, thiserror::Error)]
pub enum IpStackError {
    /// A protocol above IP that is neither TCP nor UDP.
    #[error("the transport protocol is neither TCP nor UDP")]
    UnsupportedTransportProtocol,
    /// Bytes that are no IP packet.
    #[error("it is no IP packet")]
    InvalidPacket,
    /// A length that 16 bits do not hold.
    #[error("a length does not fit 16 bits: {0}")]
    ValueTooBigErrorU16(#[from] ValueTooBigError<u16>),
    /// A length that the machine's words do not hold.
    #[error("a length does not fit a word: {0}")]
    ValueTooBigErrorUsize(#[from] ValueTooBigError<usize>),
    /// Bytes that are no TCP segment.
    #[error("it is no TCP segment")]
    InvalidTcpPacket,
    /// The device has failed, or the configuration cannot be honoured; the text says which and why.
    #[error("{0}")]
    IoError(#[from] io::Error),
    /// There is nothing to accept any more: the device has come to its end.
    #[error("the stack has ended: its device gives no packets any more")]
    AcceptError,
    /// A stream without a receiver.
    #[error("nobody receives the stream: {0}")]
    SendError(#[from] Box<SendError<IpStackStream>>),
    /// An MTU below the least that IPv6 allows (RFC 8200, section 5).
    #[error("an MTU of {0} bytes is less than the 1280 that IPv6 needs")]
    InvalidMtuSize(u16),
}

impl From<SendError<IpStackStream>> for IpStackError {
    fn from(error: SendError<IpStackStream>) -> IpStackError {
        IpStackError::SendError(Box::new(error))
    }
}

impl From<IpStackError> for io::Error {
    fn from(error: IpStackError) -> io::Error {
        match error {
            IpStackError::IoError(error) => error,
            error => io::Error::other(error),
        }
    }
}

/// The result of what may fail with an [`IpStackError`].
pub type Result<T, E = IpStackError> = std::result::Result<T, E>;
