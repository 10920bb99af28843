//! [`lookup_host`], which asks the resolver of the stack.

use std::io;
use std::net::SocketAddr;

use super::ambient;
use crate::resolve::{self, ToSocketAddrs};
use crate::stack::Stack;

/// Resolves `host` to addresses, as `tokio::net::lookup_host` does, with the resolver of the
/// [current](super::current) stack.
///
/// # Errors
/// As [`Stack::lookup_host`], and as [`current`](super::current).
pub async fn lookup_host<T: ToSocketAddrs>(
    host: T,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(lookup_host_on(&ambient::current()?, host).await?.into_iter())
}

/// As [`lookup_host`], by the resolver of `stack`.
///
/// # Errors
/// As [`Stack::lookup_host`].
pub async fn lookup_host_on<T: ToSocketAddrs>(
    stack: &Stack,
    host: T,
) -> io::Result<Vec<SocketAddr>> {
    resolve::lookup_host(stack, host).await
}
