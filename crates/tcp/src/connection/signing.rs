//! Signed segments (RFC 2385), as far as one connection is concerned.

use plimsoll_wire::tcp::MD5_DIGEST_LEN;

use crate::connection::Connection;
use crate::signature::{Md5Key, room_for_digest};

impl Connection {
    /// The key with which segments of this connection are signed, if they are.
    pub fn md5_key(&self) -> Option<&Md5Key> {
        self.options.md5_key.as_ref()
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.options.md5_key.is_some()
    }

    /// Room for the digest, if segments are signed.
    pub(crate) fn md5_option(&self) -> Option<[u8; MD5_DIGEST_LEN]> {
        room_for_digest(self.md5_key())
    }
}
