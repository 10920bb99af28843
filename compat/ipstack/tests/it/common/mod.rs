//! A client on a stack of its own, whose packets are the device of the facade.
#![allow(dead_code, reason = "not every file uses all of it")]

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ipstack::{IpStack, IpStackConfig, IpStackStream, IpStackTcpStream, IpStackUdpStream};
use plimsoll::device::channel::{Channel, ChannelConfig};
use plimsoll::device::{self, fault::FaultConfig};
use plimsoll::net::{Driver, TcpStream};
use plimsoll::{Stack, StackBuilder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// Where clients go.
pub(crate) const WEB: &str = "198.51.100.7:80";

/// A hanging test fails after this time, which has no other effect.
const HANGS: Duration = Duration::from_secs(120);

/// The outcome of `future`, which is to have one.
pub(crate) async fn ends<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANGS, future).await.expect("it hangs")
}

/// A configuration for links of 1500 bytes.
pub(crate) fn config() -> IpStackConfig {
    let mut config = IpStackConfig::default();
    config.mtu(1500).expect("it is at least 1280");
    config
}

/// A client, and its packets.
pub(crate) fn client() -> (Stack, Channel) {
    build(|builder| builder)
}

/// A client whose packets are hurt on their way.
pub(crate) fn client_with(fault: FaultConfig) -> (Stack, Channel) {
    build(|builder| builder.fault(fault))
}

fn build(change: impl FnOnce(StackBuilder) -> StackBuilder) -> (Stack, Channel) {
    let (interface, packets) = device::channel(ChannelConfig::with_mtu(1500)).unwrap();
    let builder = Stack::builder().device(interface).address("192.0.2.1/24");
    let stack = change(builder.address("2001:db8::1/64")).build_without_thread().unwrap();
    tokio::spawn(Driver::new(&stack).unwrap());
    (stack, packets)
}

/// A client and a stack of the facade, joined.
pub(crate) fn joined() -> (Stack, IpStack) {
    let (client, packets) = client();
    (client, IpStack::new(config(), packets))
}

/// The next stream, which is one of TCP.
pub(crate) async fn accept_tcp(stack: &mut IpStack) -> IpStackTcpStream {
    match ends(stack.accept()).await.unwrap() {
        IpStackStream::Tcp(stream) => stream,
        other => panic!("it is no TCP stream but is for {}", other.peer_addr()),
    }
}

/// The next stream, which is one of UDP.
pub(crate) async fn accept_udp(stack: &mut IpStack) -> IpStackUdpStream {
    match ends(stack.accept()).await.unwrap() {
        IpStackStream::Udp(stream) => stream,
        other => panic!("it is no UDP stream but is for {}", other.peer_addr()),
    }
}

/// A connection: the client's end, and that of the facade.
pub(crate) async fn pair(client: &Stack, stack: &mut IpStack) -> (TcpStream, IpStackTcpStream) {
    let (near, far) =
        ends(async { tokio::join!(TcpStream::connect_on(client, WEB), accept_tcp(stack)) }).await;
    (near.unwrap(), far)
}

/// Bytes that show when one is missing, or there twice.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Packets by hand: what the test sends is read by the facade, and what the facade writes the test
/// receives.
pub(crate) struct Wire {
    pub(crate) to_facade: mpsc::UnboundedSender<io::Result<Vec<u8>>>,
    pub(crate) from_facade: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// The device of a [`Wire`]. It ends when the wire is dropped.
pub(crate) struct WireDevice {
    packets: mpsc::UnboundedReceiver<io::Result<Vec<u8>>>,
    written: mpsc::UnboundedSender<Vec<u8>>,
}

/// A device whose packets the test makes and sees.
pub(crate) fn wire() -> (Wire, WireDevice) {
    let (to_facade, packets) = mpsc::unbounded_channel();
    let (written, from_facade) = mpsc::unbounded_channel();
    (Wire { to_facade, from_facade }, WireDevice { packets, written })
}

impl AsyncRead for WireDevice {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.packets.poll_recv(cx).map(|packet| match packet {
            Some(packet) => packet.map(|packet| buf.put_slice(&packet)),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for WireDevice {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = self.written.send(buf.to_vec());
        Poll::Ready(sent.map(|()| buf.len()).map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    /// It says so, and has only what every writer has: the first part is a packet of its own. So do
    /// TUN devices of others.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A device that does something to each packet that it passes on.
pub(crate) struct Changed<D, F> {
    pub(crate) inner: D,
    /// Of a packet from the facade, what goes on to the client and what comes back to the facade.
    pub(crate) change: F,
    pub(crate) back: VecDeque<Vec<u8>>,
}

/// The fate of a packet that the facade has written.
pub(crate) enum Passage {
    On,
    /// Not now.
    Wait,
    /// It goes no further, and this comes back.
    Back(Vec<u8>),
}

impl<D: AsyncRead + Unpin, F: Unpin> AsyncRead for Changed<D, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(packet) = self.back.pop_front() {
            buf.put_slice(&packet);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<D, F> AsyncWrite for Changed<D, F>
where
    D: AsyncWrite + Unpin,
    F: FnMut(&[u8]) -> Passage + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match (self.change)(buf) {
            Passage::On => Pin::new(&mut self.inner).poll_write(cx, buf),
            Passage::Wait => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Passage::Back(packet) => {
                self.back.push_back(packet);
                // The facade reads in the same task.
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(buf.len()))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An address.
pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
