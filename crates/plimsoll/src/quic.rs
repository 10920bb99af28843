//! QUIC by the crate [quinn] on our UDP sockets.
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll::{Stack, UdpSocket, quic};
//!
//! # fn example(runtime: Arc<dyn quinn::Runtime>) -> std::io::Result<quinn::Endpoint> {
//! let stack = Stack::builder().loopback_only().build().map_err(std::io::Error::other)?;
//! let socket = quic::socket(UdpSocket::bind(&stack, "127.0.0.1:0")?)?;
//! let config = quinn::EndpointConfig::default();
//! # #[allow(clippy::needless_question_mark)]
//! Ok(quinn::Endpoint::new_with_abstract_socket(config, None, socket, runtime)?)
//! # }
//! ```
//!
//! quinn gets what it wants of a socket: ECN both ways, up to 64 datagrams in one send, trains of
//! datagrams in one read, the address that a datagram was sent to, and packets that nobody
//! fragments.

use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use plimsoll_stack::{Interest, PathMtuDiscovery, Received, UdpTransmit, WaitKey};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use crate::udp::UdpSocket;

/// Datagrams in one send, at most.
const SEGMENTS: usize = plimsoll_stack::limits::MAX_UDP_SEGMENTS;

/// A socket as `quinn::Endpoint::new_with_abstract_socket` takes it. Its packets carry "don't
/// fragment" from now on and may probe the path ([`PathMtuDiscovery::Probe`]).
///
/// # Errors
/// None at present.
pub fn socket(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    socket.set_path_mtu_discovery(PathMtuDiscovery::Probe)?;
    let maps = socket.local_addr()?.is_ipv6();
    Ok(Arc::new(QuicSocket { socket, maps }))
}

#[derive(Debug)]
struct QuicSocket {
    socket: UdpSocket,
    /// quinn maps an IPv4 peer of a socket of IPv6 into IPv6 (RFC 4291, 2.5.5.2) before it sends,
    /// and knows it again only if what arrives from it says the same.
    maps: bool,
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, key: WaitKey::new(), waits: false })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let how = UdpTransmit::default()
            .to(Some(transmit.destination))
            .from(transmit.src_ip)
            .tos(Some(transmit.ecn.map_or(0, |ecn| ecn as u8)))
            .segment_size(transmit.segment_size);
        match self.socket.try_send_msg(&how, &[transmit.contents]) {
            // A datagram that cannot leave is a datagram that is lost, as with quinn's own sockets:
            // a probe that is too long, or a route that is gone for a moment.
            Err(error)
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NetworkDown) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut count = 0;
            for (buf, meta) in bufs.iter_mut().zip(meta.iter_mut()) {
                match self.socket.try_recv_train(buf) {
                    Ok(received) => *meta = self.described(&received),
                    Err(_) if count > 0 => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Poll::Ready(Err(error)),
                }
                count += 1;
            }
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            ready!(self.socket.poll_recv_ready(cx))?;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl QuicSocket {
    fn described(&self, received: &Received) -> RecvMeta {
        RecvMeta {
            addr: self.peer(received.info.from),
            len: received.len,
            // One datagram that did not fit is cut off.
            stride: received.stride.min(received.len),
            ecn: EcnCodepoint::from_bits(received.info.tos),
            dst_ip: Some(received.info.to),
        }
    }

    /// A peer by the address that quinn has for it.
    fn peer(&self, from: SocketAddr) -> SocketAddr {
        match from.ip() {
            IpAddr::V4(ip) if self.maps => {
                SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), from.port())
            }
            _ => from,
        }
    }
}

/// Waits for a socket beside others.
struct Poller {
    socket: Arc<QuicSocket>,
    key: WaitKey,
    waits: bool,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waits = true;
        let polled = self.socket.socket.socket().wait_writable(self.key, cx.waker());
        self.waits = polled.is_pending();
        polled.map(Ok)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if self.waits {
            self.socket.socket.socket().cancel_wait(Interest::Write, self.key);
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("waits", &self.waits).finish_non_exhaustive()
    }
}
