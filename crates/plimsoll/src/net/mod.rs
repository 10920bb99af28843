//! TCP and UDP sockets with the API of `tokio::net`, on a stack that is found instead of passed.
//!
//! A program on tokio runs on Plimsoll when its `use tokio::net::..` becomes `use
//! plimsoll::net::..`: the types have the methods of their namesakes, with the same meaning. Calls
//! about file descriptors and about the host's devices are missing.
//!
//! # Which stack
//!
//! [`TcpStream::connect`], [`TcpListener::bind`], [`TcpSocket::new_v4`] and similar calls use the
//! first of
//!
//! 1. the stack of the task, if it runs in a [`scope`] (or was [spawned](spawn) by one that does),
//! 2. the stack of the thread, while the guard of [`enter`] lives,
//! 3. the default of the process, as [`set_default`] has set it.
//!
//! Without a stack they fail. Methods whose names end in `_on` take a stack as an argument.
//!
//! ```
//! use plimsoll::net::{self, TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let stack = plimsoll::Stack::builder().loopback_only().build()?;
//! runtime.block_on(net::scope(&stack, async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let client = net::spawn(async move {
//!         TcpStream::connect(address).await?.write_all(b"ahoy").await
//!     })?;
//!     let (mut stream, _peer) = listener.accept().await?;
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text).await?;
//!     assert_eq!(text, "ahoy");
//!     client.await?
//! }))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Loopback addresses are inside the stack: only its own sockets can be reached there. Names are
//! resolved by the stack's resolver ([`Resolve`](crate::Resolve)), or by the host if it has none.
//!
//! # Who runs the stack
//!
//! The stack's own threads run it. A stack that was built
//! [without](crate::StackBuilder::build_without_thread) them needs a [`Driver`], which is a task of
//! the runtime.
//!
//! # Cancellation
//!
//! Dropping a future cancels it completely: its waker is removed, a connection that was not
//! accepted stays in the queue, and an attempt to connect ends. Only a read that is ready takes
//! data out of the stream. tokio's traits (`poll_read` and similar) do not report cancellation: a
//! socket keeps the last waker for each direction.
//!
//! # Readiness
//!
//! As with tokio, a socket counts as readable from its acceptance, and after a read that found
//! something, until a read finds nothing; the same holds for writing. So [`TcpStream::readable`]
//! may end although a read finds nothing. It never waits while there is data.

mod ambient;
#[cfg(feature = "axum")]
mod axum;
mod buffered;
mod driver;
mod gate;
mod halves;
mod listener;
mod lookup;
mod shutdown;
mod socket;
mod stream;
mod udp;

pub use ambient::{Entered, Scope, current, enter, scope, set_default, spawn};
pub use driver::{Driver, DriverTimer, TokioClock};
pub use gate::{GatedListener, Incoming};
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use listener::TcpListener;
pub use lookup::{lookup_host, lookup_host_on};
pub use shutdown::shutdown;
pub use socket::TcpSocket;
pub use stream::TcpStream;
pub use udp::UdpSocket;

pub use crate::resolve::ToSocketAddrs;

/// Under the names that tokio has them by.
pub mod tcp {
    pub use super::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
}

use std::task::{Context, Poll, ready};

/// Polls within the budget of the task, which a poll that is ready has spent a part of.
fn poll_budgeted<T>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let budget = ready!(tokio::task::coop::poll_proceed(cx));
    let polled = poll(cx);
    if polled.is_ready() {
        budget.made_progress();
    }
    polled
}

/// Sockets are used from everywhere, and their futures are spawned.
const _: () = {
    const fn everywhere<T: Send + Sync + Unpin>() {}
    everywhere::<TcpStream>();
    everywhere::<TcpListener>();
    everywhere::<GatedListener>();
    everywhere::<Incoming>();
    everywhere::<TcpSocket>();
    everywhere::<OwnedReadHalf>();
    everywhere::<OwnedWriteHalf>();
    everywhere::<ReadHalf<'_>>();
    everywhere::<WriteHalf<'_>>();
    everywhere::<Driver>();
    everywhere::<UdpSocket>();
    everywhere::<crate::UdpSocket>();
    everywhere::<crate::UdpListener>();
    everywhere::<crate::TcpStream>();
    everywhere::<crate::TcpListener>();
    everywhere::<crate::Connecting>();
    everywhere::<crate::Accept<'_>>();
    everywhere::<crate::BufferedStream>();
    everywhere::<crate::BufferedStream<TcpStream>>();
    everywhere::<crate::BufferedStream<OwnedWriteHalf>>();

    fn is_send<T: Send>(_: T) {}
    #[allow(dead_code, reason = "it is checked, not called")]
    fn futures(stream: &TcpStream, listener: &TcpListener, socket: TcpSocket) {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 7));
        is_send(TcpStream::connect(address));
        is_send(TcpListener::bind(address));
        is_send(socket.connect(address));
        is_send(listener.accept());
        is_send(stream.readable());
        is_send(stream.writable());
        is_send(stream.ready(tokio::io::Interest::READABLE));
        is_send(stream.peek(&mut []));
        is_send(stream.async_io(tokio::io::Interest::READABLE, || Ok(())));
    }
    #[allow(dead_code, reason = "it is checked, not called")]
    fn futures_of_udp(socket: &UdpSocket, listener: &crate::UdpListener) {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 7));
        is_send(UdpSocket::bind(address));
        is_send(socket.send_to(&[], address));
        is_send(socket.recv_from(&mut []));
        is_send(listener.accept_async());
    }
    #[allow(dead_code, reason = "it is checked, not called")]
    fn futures_of_the_gate(listener: &GatedListener, waiting: &Incoming, decided: Incoming) {
        is_send(listener.incoming());
        is_send(waiting.cancelled());
        is_send(decided.accept());
    }
};
