//! Signed segments (RFC 2385), as far as one connection is concerned.

use crate::connection::Connection;
use crate::signature::Md5Key;

impl Connection {
    /// The key that signs segments of this connection, if there is one.
    pub fn md5_key(&self) -> Option<&Md5Key> {
        self.options.md5_key.as_ref()
    }
}
