//! The parts of HTTP/1.1 (RFC 9110, RFC 9112) that `serve http` and `get` need.
//!
//! The server side reads GET and HEAD requests, one after the other on a connection, and sends
//! files. The client side sends one GET and reads one response, of known length, chunked, or up to
//! the end of the connection. Both sides share one reader of header sections, which bounds what
//! it keeps: a section longer than [`MAX_HEAD`] or of more than [`MAX_FIELDS`] fields is refused.
//!
//! Not supported: request bodies, compression, TLS, and multiple ranges in one response (the whole
//! file is sent instead, as RFC 9110 section 14.2 allows).

pub(crate) mod client;
pub(crate) mod files;
pub(crate) mod head;
pub(crate) mod range;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod url;

/// Most bytes of a request or response head.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

/// Most fields of a head.
pub(crate) const MAX_FIELDS: usize = 100;

/// Bytes read from a file, or from a connection, at a time.
pub(crate) const BODY_CHUNK: usize = 256 * 1024;
