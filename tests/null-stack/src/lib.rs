//! A TCP stack that costs next to nothing: the yardstick of `cargo xtask bench tun2proxy`.
//!
//! It has those names of the crate ipstack that tun2proxy uses, and takes its place through
//! `[patch.crates-io]`. So what tun2proxy carries on it is what everything around a stack can
//! carry: the TUN device with a system call for each packet, the runtime, tun2proxy's own copying,
//! and the SOCKS5 server.
//!
//! It does what it cannot leave out: handshakes, data in order, one ACK for a batch of packets, the
//! peer's window, full segments, and checksums of what it sends. It verifies nothing, has no
//! congestion control, no SACK, no timestamps and no estimate of the round-trip time; what was lost
//! is sent again after a fixed time or three duplicate ACKs. IPv4 only, and no UDP. It is of no use
//! for anything but this measurement.

mod driver;
mod flow;
mod packet;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, unconstrained};

use driver::Driver;
use flow::{Flow, SharedDevice};

/// What goes wrong: nothing but the end of the device.
#[derive(Debug)]
pub struct IpStackError(&'static str);

impl fmt::Display for IpStackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for IpStackError {}

impl From<IpStackError> for io::Error {
    fn from(error: IpStackError) -> io::Error {
        io::Error::other(error)
    }
}

/// The result of a call.
pub type Result<T, E = IpStackError> = std::result::Result<T, E>;

/// Options of a SYN-ACK.
#[derive(Clone, Debug)]
pub enum TcpOptions {
    /// The longest segment to be received, in bytes.
    MaximumSegmentSize(u16),
}

/// Settings of TCP. None of them has an effect.
#[derive(Clone, Debug, Default)]
pub struct TcpConfig {
    /// How long a connection may be idle.
    pub timeout: Duration,
    /// Options of SYN-ACKs.
    pub options: Option<Vec<TcpOptions>>,
}

/// Settings of the stack.
#[derive(Clone, Debug)]
pub struct IpStackConfig {
    mtu: u16,
}

impl Default for IpStackConfig {
    fn default() -> IpStackConfig {
        IpStackConfig { mtu: 1280 }
    }
}

impl IpStackConfig {
    /// Sets the longest IP packet, in bytes.
    ///
    /// # Errors
    /// None.
    pub fn mtu(&mut self, mtu: u16) -> Result<&mut Self> {
        self.mtu = mtu;
        Ok(self)
    }

    /// Has no effect.
    pub fn with_tcp_config(&mut self, _: TcpConfig) -> &mut Self {
        self
    }

    /// Has no effect.
    pub fn udp_timeout(&mut self, _: Duration) -> &mut Self {
        self
    }
}

/// A running stack.
pub struct IpStack {
    accepted: UnboundedReceiver<IpStackStream>,
    driver: JoinHandle<()>,
}

impl IpStack {
    /// Starts a stack on a device that carries one IP packet in each read and write.
    pub fn new<D>(config: IpStackConfig, device: D) -> IpStack
    where
        D: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (accepting, accepted) = unbounded_channel();
        let driver = Driver::new(Box::pin(device), usize::from(config.mtu), accepting);
        IpStack { accepted, driver: tokio::spawn(unconstrained(driver.run())) }
    }

    /// The next connection.
    ///
    /// # Errors
    /// The device has ended.
    pub async fn accept(&mut self) -> Result<IpStackStream> {
        self.accepted.recv().await.ok_or(IpStackError("the device has ended"))
    }
}

impl Drop for IpStack {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What [`IpStack::accept`] returns: always [`Tcp`](Self::Tcp).
pub enum IpStackStream {
    /// A connection.
    Tcp(IpStackTcpStream),
    /// Never.
    Udp(IpStackUdpStream),
    /// Never.
    UnknownTransport(IpStackUnknownTransport),
    /// Never.
    UnknownNetwork(Vec<u8>),
}

/// A connection.
pub struct IpStackTcpStream {
    flow: Arc<Flow>,
    device: SharedDevice,
}

impl IpStackTcpStream {
    pub(crate) fn new(flow: Arc<Flow>, device: SharedDevice) -> IpStackTcpStream {
        IpStackTcpStream { flow, device }
    }

    /// The client's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.flow.client().into()
    }

    /// The address that the client has connected to.
    pub fn peer_addr(&self) -> SocketAddr {
        self.flow.server().into()
    }
}

impl AsyncRead for IpStackTcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.flow.poll_read(cx, buf, &self.device)
    }
}

impl AsyncWrite for IpStackTcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flow.poll_write(cx, data, &self.device)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flow.shutdown(cx, &self.device);
        Poll::Ready(Ok(()))
    }
}

impl Drop for IpStackTcpStream {
    fn drop(&mut self) {
        self.flow.abandon();
    }
}

/// There is none.
pub struct IpStackUdpStream(Infallible);

impl IpStackUdpStream {
    /// The client's address.
    pub fn local_addr(&self) -> SocketAddr {
        match self.0 {}
    }

    /// The address that the client has sent to.
    pub fn peer_addr(&self) -> SocketAddr {
        match self.0 {}
    }
}

impl AsyncRead for IpStackUdpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for IpStackUdpStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

/// There is none.
pub struct IpStackUnknownTransport(Infallible);

impl IpStackUnknownTransport {
    /// What follows the IP header.
    pub fn payload(&self) -> &[u8] {
        match self.0 {}
    }

    /// The protocol's number.
    pub fn ip_protocol(&self) -> u8 {
        match self.0 {}
    }
}
