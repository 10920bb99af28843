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
//! The socket supports everything that quinn uses: ECN both ways, up to 64 datagrams of any length
//! in one send, trains of datagrams in one read, the destination address of each datagram, and
//! packets that no host fragments. Datagrams that cannot leave are lost; `plimsoll.UdpSendsLost`
//! counts them.

use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use plimsoll_stack::{Interest, PathMtuDiscovery, Received, StackError, UdpTransmit, WaitKey};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::runtime::Handle;

use crate::platform::{DeviceWatcher, Watch};
use crate::udp::UdpSocket;

/// Datagrams in one send, at most.
const SEGMENTS: usize = plimsoll_stack::limits::MAX_UDP_SEGMENTS;

/// A socket as `quinn::Endpoint::new_with_abstract_socket` takes it. Its packets carry "don't
/// fragment" from now on and may probe the path ([`PathMtuDiscovery::Probe`]).
///
/// # Errors
/// None at present.
pub fn socket(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    adapted(socket, None)
}

/// As [`socket`], for an endpoint that runs on tokio. While much arrives or is sent, the runtime of
/// the caller also watches the devices of a stack that has a thread, and the endpoint reads them by
/// itself. So the thread need not wake it for each burst (counter `plimsoll.WatcherPolls`).
///
/// Only one endpoint per runtime can do this at a time. One that carries a stream while the runtime
/// watches the devices for another is woken by the stack's thread from then on, for as long as it
/// lives.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll::{Stack, UdpSocket, quic};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::builder().loopback_only().build()?;
/// let socket = quic::socket_on_tokio(UdpSocket::bind(&stack, "127.0.0.1:0")?)?;
/// let (config, runtime) = (quinn::EndpointConfig::default(), Arc::new(quinn::TokioRuntime));
/// let endpoint = quinn::Endpoint::new_with_abstract_socket(config, None, socket, runtime)?;
/// # drop(endpoint);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Outside of a tokio runtime, or if the system does not let the runtime watch one descriptor more.
///
/// # Panics
/// On a tokio runtime without its I/O driver (`tokio::runtime::Builder::enable_io`), where there
/// are descriptors to watch: on Unix.
pub fn socket_on_tokio(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let runtime = Handle::try_current().map_err(|error| {
        io::Error::other(format!("quic::socket_on_tokio has to be called on tokio: {error}"))
    })?;
    // Report a wrong kind of runtime now, and not when a peer begins to send fast.
    DeviceWatcher::probe()?;
    socket.socket().watch_devices(true);
    adapted(socket, Some(Watching { runtime, watcher: Mutex::default() }))
}

fn adapted(socket: UdpSocket, watching: Option<Watching>) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    socket.set_path_mtu_discovery(PathMtuDiscovery::Probe)?;
    let maps = socket.local_addr()?.is_ipv6();
    Ok(Arc::new(QuicSocket { socket, maps, watching }))
}

/// Wakes an endpoint when the devices are readable.
struct Watching {
    /// The runtime that watches them, whichever task polls the endpoint.
    runtime: Handle,
    watcher: Mutex<DeviceWatcher>,
}

struct QuicSocket {
    socket: UdpSocket,
    /// For an endpoint that runs on tokio.
    watching: Option<Watching>,
    /// quinn maps an IPv4 peer of a socket of IPv6 into IPv6 (RFC 4291, 2.5.5.2) before it sends,
    /// and recognizes it only if arriving packets carry the same.
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
        // A datagram that cannot leave is a datagram that is lost, as with quinn's own sockets: a
        // probe that is too long, or a route that is gone for a moment.
        let now = self.socket.stack().now();
        self.socket.told(self.socket.socket().send_or_lose(now, &how, transmit.contents))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            // Clear the readiness that the runtime reported before, then look at the devices.
            self.watched(|watcher| watcher.forget(cx));
            let mut count = 0;
            for (buf, meta) in bufs.iter_mut().zip(meta.iter_mut()) {
                let received = match count {
                    0 => self.socket.try_recv_train(buf),
                    _ => self.socket.try_recv_queued_train(buf),
                };
                match received {
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
            if self.watch(cx) == Watch::Changed {
                // Readiness from before the devices were watched is not reported: read again.
                continue;
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
    /// Has the runtime watch the devices as long as the endpoint polls them by itself, and no
    /// longer.
    fn watch(&self, cx: &mut Context<'_>) -> Watch {
        let Some(watching) = &self.watching else { return Watch::Same };
        let socket = self.socket.socket();
        let polls = socket.polls_devices(self.socket.stack().now());
        let _entered = polls.then(|| watching.runtime.enter());
        let devices = polls.then(|| socket.devices());
        self.watched(|watcher| watcher.watch(devices.into_iter().flatten(), cx))
    }

    /// If the runtime cannot watch them, as it watches them for another endpoint already or is at
    /// its end, the stack's thread wakes this one as it does others.
    fn watched<T: Default>(
        &self,
        call: impl FnOnce(&mut DeviceWatcher) -> Result<T, StackError>,
    ) -> T {
        let Some(watching) = &self.watching else { return T::default() };
        let mut watcher = watching.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut watcher).unwrap_or_else(|_cannot| {
            *watcher = DeviceWatcher::default();
            self.socket.socket().watch_devices(false);
            T::default()
        })
    }

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

impl fmt::Debug for QuicSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Waits for a socket next to other tasks.
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
