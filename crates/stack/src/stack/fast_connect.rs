//! Connecting with data in the SYN: `sendto(MSG_FASTOPEN)` and `TCP_FASTOPEN_CONNECT`.
//!
//! # Theory of operation
//!
//! Both open the connection without a SYN first; the SYN leaves when its contents are known. The
//! metrics of earlier connections decide what the SYN may carry
//! ([`tcp_metrics`](crate::policies::metrics)).
//!
//! A caller implements Linux's calls as follows. A non-blocking `sendto` returns the number of
//! bytes taken, or `EINPROGRESS` if it is 0. A blocking one waits for
//! [`TcpSocket::poll_connected`], and if there is more to write calls
//! [`TcpSocket::set_write_pending`] meanwhile. `connect` returns 0 at once if the connection is
//! [deferred](TcpSocket::is_connect_deferred), and otherwise behaves as usual.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_tcp::{Connection, Context, Instant, Options};

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::stack::Stack;
use crate::stack::socket::TcpSocket;
use crate::stack::work::Work;

impl Stack {
    /// As [`connect`](Self::connect), with data for the SYN (`sendto` with `MSG_FASTOPEN`). Returns
    /// the number of bytes of `parts` that the SYN took: none if the peer's cookie is not known
    /// yet, in which case the SYN requests it.
    ///
    /// # Errors
    /// [`SocketError::NotSupported`] unless `net.ipv4.tcp_fastopen` has bit 1 set; otherwise as
    /// [`connect`](Self::connect).
    pub fn connect_with_data(
        self: &Arc<Stack>,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        options: Options,
        parts: &[&[u8]],
    ) -> Result<(Arc<TcpSocket>, usize), SocketError> {
        if !Work::begin(self, now).fast_open_enabled() {
            return Err(SocketError::NotSupported);
        }
        let key = self.flow_to(remote, local)?;
        let mut taken = 0;
        let opener = Connection::connect_deferred;
        let socket = self.connect_by(now, key, options, opener, |work, endpoint| {
            taken = work.begin_fast_open(endpoint, parts);
        })?;
        Ok((socket, taken))
    }

    /// As [`connect`](Self::connect), for a socket with `TCP_FASTOPEN_CONNECT`. If the SYN may
    /// carry data, it waits for the first write, and the socket is
    /// [deferred](TcpSocket::is_connect_deferred); otherwise it leaves at once and requests a
    /// cookie.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_deferred(
        self: &Arc<Stack>,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        options: Options,
    ) -> Result<Arc<TcpSocket>, SocketError> {
        let key = self.flow_to(remote, local)?;
        let waits = Work::begin(self, now).fast_open(&key, &options).data;
        let opener = Connection::connect_deferred;
        self.connect_by(now, key, options, opener, |work, endpoint| {
            if !waits {
                work.begin_fast_open(endpoint, &[]);
            }
        })
    }

    /// Whether a SYN to `remote` may carry data now: the peer's cookie is known, or none is needed.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), as far as addresses go.
    pub fn may_fast_open(
        &self,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        options: &Options,
    ) -> Result<bool, SocketError> {
        let key = self.flow_to(remote, local)?;
        Ok(Work::begin(self, now).fast_open(&key, options).data)
    }
}

impl Work<'_> {
    /// Lets the SYN of `endpoint` go. Returns how many bytes of `parts` it carries.
    fn begin_fast_open(&mut self, endpoint: &Arc<Endpoint>, parts: &[&[u8]]) -> usize {
        let mut inner = endpoint.own();
        let known = self.fast_open(&endpoint.key, inner.conn.options());
        let cx = self.context(endpoint, &mut inner);
        inner.conn.begin_fast_open(&cx, known, parts)
    }
}

impl Stack {
    /// The first write on a deferred socket: the SYN leaves. As on Linux, it is in progress if the
    /// SYN could not take anything along.
    pub(crate) fn write_first(
        &self,
        key: &FlowKey,
        inner: &mut Inner,
        cx: &Context<'_>,
        parts: &[&[u8]],
    ) -> Result<usize, SocketError> {
        let work = Work::begin(self, cx.now);
        if !work.fast_open_enabled() {
            return Err(SocketError::NotSupported);
        }
        let known = work.fast_open(key, inner.conn.options());
        match inner.conn.begin_fast_open(cx, known, parts) {
            0 => Err(SocketError::InProgress),
            taken => Ok(taken),
        }
    }
}

#[cfg(test)]
mod tests;
