//! Signed segments (RFC 2385), as far as one connection is concerned.

use crate::connection::Connection;
use crate::signature::Md5Key;

impl Connection {
    /// The key with which segments of this connection are signed, if they are.
    pub fn md5_key(&self) -> Option<&Md5Key> {
        self.options.md5_key.as_ref()
    }
}
