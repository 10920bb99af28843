//! `axum::serve` on our listeners.

use std::future::pending;
use std::io;
use std::net::SocketAddr;

use super::{TcpListener, TcpStream};

impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    /// Accepting fails only when the stack has come to its end; then this is never ready, because
    /// the trait has no error. [`Stack::error`](crate::Stack::error) returns it.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match TcpListener::accept(self).await {
            Ok(accepted) => accepted,
            Err(_) => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
