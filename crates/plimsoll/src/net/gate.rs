//! [`GatedListener`] and [`Incoming`], whose streams have tokio's API.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use super::{TcpStream, ambient, poll_budgeted};
use crate::gate::{self, Cancelled, GateConfig, Reject, SynOptions};
use crate::stack::Stack;

/// A listener that asks before it answers: [`gate::GatedListener`] for programs on tokio. Those
/// listen on one port or address [there](gate::GatedListener::bind) and convert the result.
///
/// A transparent proxy dials each connection's destination, and accepts or refuses accordingly:
///
/// ```
/// use plimsoll::gate::{GateConfig, Reject};
/// use plimsoll::net::{GatedListener, Incoming, TcpStream};
/// use plimsoll::{Stack, device};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
///
/// /// Where the upstreams are: here on this machine, whatever address is wanted.
/// async fn dial(wanted: std::net::SocketAddr) -> std::io::Result<tokio::net::TcpStream> {
///     tokio::net::TcpStream::connect(("127.0.0.1", wanted.port())).await
/// }
///
/// async fn proxy(incoming: Incoming) -> std::io::Result<()> {
///     match dial(incoming.destination()).await {
///         Ok(mut upstream) => {
///             let mut stream = incoming.accept().await?;
///             copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
///         }
///         Err(error) => {
///             incoming.reject(Reject::for_dial_error(&error));
///             Ok(())
///         }
///     }
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// # runtime.block_on(async {
/// let (here, there) = device::memory_link::pair(Default::default());
/// let client = Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// let stack = Stack::builder().device(there).any_address().build()?;
/// let listener = GatedListener::bind_any_on(&stack, GateConfig::default())?;
/// tokio::spawn(async move {
///     while let Ok(incoming) = listener.incoming().await {
///         tokio::spawn(proxy(incoming));
///     }
/// });
///
/// # let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let port = echo.local_addr()?.port();
/// # tokio::spawn(async move {
/// #     let (mut stream, _peer) = echo.accept().await?;
/// #     let (mut from, mut to) = stream.split();
/// #     tokio::io::copy(&mut from, &mut to).await
/// # });
/// let mut stream = TcpStream::connect_on(&client, ("198.51.100.7", port)).await?;
/// stream.write_all(b"ahoy").await?;
/// stream.shutdown().await?;
/// let mut text = String::new();
/// stream.read_to_string(&mut text).await?;
/// assert_eq!(text, "ahoy");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct GatedListener {
    inner: gate::GatedListener,
}

impl GatedListener {
    /// Listens for connections to any address and port, as [`gate::GatedListener::bind_any`].
    ///
    /// # Errors
    /// As there, and as [`current`](crate::net::current).
    pub fn bind_any(gate: GateConfig) -> io::Result<GatedListener> {
        GatedListener::bind_any_on(&ambient::current()?, gate)
    }

    /// As [`bind_any`](Self::bind_any), on `stack`.
    ///
    /// # Errors
    /// As [`gate::GatedListener::bind_any`].
    pub fn bind_any_on(stack: &Stack, gate: GateConfig) -> io::Result<GatedListener> {
        gate::GatedListener::bind_any(stack, gate).map(GatedListener::from)
    }

    /// The listener below.
    pub fn get_ref(&self) -> &gate::GatedListener {
        &self.inner
    }

    /// Waits for the next attempt to connect. Any number may wait, and dropping the future leaves
    /// nothing behind.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub async fn incoming(&self) -> io::Result<Incoming> {
        let mut next = self.inner.incoming();
        let polled = poll_fn(|cx| poll_budgeted(cx, |cx| Pin::new(&mut next).poll(cx)));
        polled.await.map(Incoming::from)
    }
}

impl From<gate::GatedListener> for GatedListener {
    fn from(inner: gate::GatedListener) -> GatedListener {
        GatedListener { inner }
    }
}

impl fmt::Debug for GatedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

/// An attempt to connect that waits for a decision: [`gate::Incoming`] for programs on tokio.
/// Dropping it rejects it with a reset.
pub struct Incoming {
    inner: gate::Incoming,
}

impl Incoming {
    /// The address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer()
    }

    /// To where. It is the local address of the stream, if it is accepted.
    pub fn destination(&self) -> SocketAddr {
        self.inner.destination()
    }

    /// The options of the SYN, as [`gate::Incoming::options`].
    pub fn options(&self) -> SynOptions {
        self.inner.options()
    }

    /// Waits until the attempt ends by itself. It may never do so: race the future with dialling.
    pub async fn cancelled(&self) -> Cancelled {
        self.inner.cancelled().await
    }

    /// Answers the SYN and waits until the handshake is over. Dropping the future resets the
    /// connection.
    ///
    /// # Errors
    /// If the peer has given up or does not answer, or there is no place for another connection.
    pub async fn accept(self) -> io::Result<TcpStream> {
        self.inner.accept().await.map(TcpStream::from)
    }

    /// Refuses the attempt, and answers the peer according to `how`.
    pub fn reject(self, how: Reject) {
        self.inner.reject(how);
    }

    /// Forgets the attempt, as [`gate::Incoming::ignore`]. The peer gets no answer.
    pub fn ignore(self) {
        self.inner.ignore();
    }
}

impl From<gate::Incoming> for Incoming {
    fn from(inner: gate::Incoming) -> Incoming {
        Incoming { inner }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
