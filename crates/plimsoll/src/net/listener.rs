//! [`TcpListener`], which behaves as tokio's.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::stream::{TcpStream, no_address};
use super::{ambient, poll_budgeted};
use crate::resolve::{ToSocketAddrs, lookup_host};
use crate::stack::Stack;

/// A listener. It has the methods of `tokio::net::TcpListener`; see [the module](crate::net). With
/// the feature `axum` it is an `axum::serve::Listener`.
pub struct TcpListener {
    inner: crate::TcpListener,
    /// SO_LINGER of the streams that come from it.
    linger: Option<Duration>,
}

impl TcpListener {
    pub(super) fn new(inner: crate::TcpListener, linger: Option<Duration>) -> TcpListener {
        TcpListener { inner, linger }
    }

    /// The listener below, for calls that are not of tokio's API.
    pub fn get_ref(&self) -> &crate::TcpListener {
        &self.inner
    }

    /// Listens on `addr`; port 0 takes a free one. If it resolves to several addresses, the first
    /// that can be bound is used.
    ///
    /// # Errors
    /// As [`std::net::TcpListener::bind`], and as [`current`](crate::net::current).
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let stack = ambient::current()?;
        TcpListener::bind_on(&stack, addr).await
    }

    /// As [`bind`](Self::bind), on `stack`.
    ///
    /// # Errors
    /// As [`std::net::TcpListener::bind`].
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpListener> {
        let mut last = None;
        for addr in lookup_host(stack, addr).await? {
            match crate::TcpListener::bind(stack, addr) {
                Ok(listener) => return Ok(TcpListener::from(listener)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// Takes the next connection. Any number may wait.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut accept = self.inner.accept_async();
        let polled = poll_fn(|cx| poll_budgeted(cx, |cx| Pin::new(&mut accept).poll(cx)));
        polled.await.map(|accepted| self.accepted(accepted))
    }

    /// As [`accept`](Self::accept), for one task: only the last waker is kept.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let polled = poll_budgeted(cx, |cx| self.inner.poll_accept(cx));
        polled.map_ok(|accepted| self.accepted(accepted))
    }

    fn accepted(&self, (stream, peer): (crate::TcpStream, SocketAddr)) -> (TcpStream, SocketAddr) {
        if self.linger.is_some() {
            stream.keep_linger(self.linger);
        }
        (TcpStream::accepted(stream), peer)
    }

    /// Makes a listener of a blocking one, which takes the part of std's here.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn from_std(listener: crate::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener::from(listener))
    }

    /// The blocking listener. It is in non-blocking mode, as tokio's is.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn into_std(self) -> io::Result<crate::TcpListener> {
        self.inner.set_nonblocking(true)?;
        Ok(self.inner)
    }

    /// The address listened on.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The hop limit of packets of the streams to come.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }

    /// Sets the hop limit of packets of the streams to come, 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }
}

impl From<crate::TcpListener> for TcpListener {
    fn from(listener: crate::TcpListener) -> TcpListener {
        TcpListener::new(listener, None)
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
