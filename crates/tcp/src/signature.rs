//! Signed segments (RFC 2385): the engine's part.
//!
//! A connection with a key leaves room for the digest in every header, and passes down one wire
//! segment at a time. It does not use timestamps, for which the header has hardly any room left.
//! The digest covers addresses, so the stack computes and checks it.

use alloc::boxed::Box;
use core::fmt;

use arrayvec::ArrayVec;
use plimsoll_wire::tcp::MD5_DIGEST_LEN;

/// Bytes of the longest key (Linux: `TCP_MD5SIG_MAXKEYLEN`).
pub const MAX_MD5_KEY_LEN: usize = 80;

/// A key that both ends of a connection share (TCP_MD5SIG).
#[derive(Clone, PartialEq, Eq)]
pub struct Md5Key(Box<ArrayVec<u8, MAX_MD5_KEY_LEN>>);

impl Md5Key {
    /// A key of these bytes; `None` if there are none, or more than [`MAX_MD5_KEY_LEN`].
    pub fn new(bytes: &[u8]) -> Option<Md5Key> {
        let key = ArrayVec::try_from(bytes).ok().filter(|key| !key.is_empty())?;
        Some(Md5Key(Box::new(key)))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key is a secret.
impl fmt::Debug for Md5Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Md5Key({} bytes)", self.0.len())
    }
}

/// Room for the digest in a segment that `key`, if there is one, signs.
pub(crate) fn room_for_digest(key: Option<&Md5Key>) -> Option<[u8; MD5_DIGEST_LEN]> {
    key.map(|_| [0; MD5_DIGEST_LEN])
}
