//! Errors of the sockets.
//!
//! The stack's errors carry Linux's error numbers, so [`std::io::Error`] gives them the kinds and
//! the words that std's sockets give. When the stack has come to its end, the error says why.

use std::io::{Error, ErrorKind};

use plimsoll_stack::{SocketError, Stack, StackError};
use plimsoll_tcp::ConnectionError;

/// A call that would block on a non-blocking socket, or whose timeout came.
pub(crate) fn would_block() -> Error {
    SocketError::WouldBlock.into()
}

/// The error that a call on a socket of `stack` returns.
pub(crate) fn io_error(stack: &Stack, error: SocketError) -> Error {
    let down = SocketError::Connection(ConnectionError::DeviceGone);
    let aborted = SocketError::Connection(ConnectionError::Aborted);
    match stack.error() {
        Some(why) if error == SocketError::NetworkDown || error == down => {
            Error::new(ErrorKind::NetworkDown, why.clone())
        }
        // Shutting the stack down resets its open connections.
        Some(why @ StackError::ShutDown) if error == aborted => {
            Error::new(ErrorKind::NetworkDown, why.clone())
        }
        _ if matches!(error, SocketError::TooManyConnections | SocketError::ListenerOverBudget) => {
            Error::new(ErrorKind::QuotaExceeded, error)
        }
        _ => error.into(),
    }
}

/// As [`io_error`], for a call whose arguments may contradict themselves: then the text says which.
pub(crate) fn refused(stack: &Stack, error: SocketError) -> Error {
    match error {
        SocketError::Invalid(text) => Error::new(ErrorKind::InvalidInput, text),
        error => io_error(stack, error),
    }
}
