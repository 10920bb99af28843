//! Errors of the sockets.
//!
//! The stack's errors carry Linux's error numbers, so [`std::io::Error`] gives them the kinds and
//! the words that std's sockets give.

use std::io::Error;

use plimsoll_stack::SocketError;

/// A call that would block on a non-blocking socket, or whose timeout came.
pub(crate) fn would_block() -> Error {
    SocketError::WouldBlock.into()
}
