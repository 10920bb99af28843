//! UDP to any address: [`UdpListener`].

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use plimsoll_stack::{UdpFlowConfig, Unreachable};

use crate::error::{refused, would_block};
use crate::park;
use crate::stack::Stack;
use crate::udp::UdpSocket;

/// Accepts datagrams to any address, and returns each new pair of sender and destination as a
/// [`UdpSocket`], a *flow*. The flow's local address is the datagrams' destination. A VPN or a
/// proxy uses it like a listener.
///
/// A flow ends when nothing has gone either way for its idle timeout. The timeout is shorter until
/// something was sent back, and after the answer of a DNS lookup. Calls of an ended flow fail with
/// `TimedOut`. [`UdpFlowConfig`] sets how many flows there may be, and what happens beyond that.
/// Dropping a flow's socket ends it at once. Dropping the listener ends the flows that were not
/// accepted; the others remain.
///
/// ```
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let proxy = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// let listener = plimsoll::UdpListener::bind_any(&proxy)?;
/// let client = plimsoll::UdpSocket::bind(&client, "192.0.2.1:0")?;
/// client.send_to(b"who?", "198.51.100.7:53")?;
/// let flow = listener.accept()?;
/// assert_eq!(flow.local_addr()?, "198.51.100.7:53".parse()?);
/// let mut question = [0; 16];
/// assert_eq!(flow.recv(&mut question)?, 4);
/// flow.send(b"me")?;
/// let (len, from) = client.recv_from(&mut question)?;
/// assert_eq!((len, from), (2, "198.51.100.7:53".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UdpListener {
    listener: Arc<plimsoll_stack::UdpListener>,
    stack: Stack,
    nonblocking: AtomicBool,
}

impl UdpListener {
    /// Accepts datagrams for any address, local or not, and for any port that no other socket has.
    /// Multicast and broadcast datagrams create flows as well; their answers come from an address
    /// of the stack, or fail with `NetworkUnreachable` if it has none. From then on, packets to any
    /// address are for the stack, as long as it lives.
    ///
    /// # Errors
    /// `AddrInUse` if there is such a listener.
    pub fn bind_any(stack: &Stack) -> io::Result<UdpListener> {
        UdpListener::bind_any_with(stack, 0, UdpFlowConfig::default())
    }

    /// As [`bind_any`](Self::bind_any), for one port (0 is all), and with other limits.
    ///
    /// # Errors
    /// As there; `InvalidInput` names the field of the configuration that makes no sense.
    pub fn bind_any_with(
        stack: &Stack,
        port: u16,
        config: UdpFlowConfig,
    ) -> io::Result<UdpListener> {
        let listener = stack.core().listen_udp_any(port, config);
        let listener = listener.map_err(|error| refused(stack.core(), error))?;
        Ok(UdpListener { listener, stack: stack.clone(), nonblocking: AtomicBool::new(false) })
    }

    pub(crate) fn listener(&self) -> &plimsoll_stack::UdpListener {
        &self.listener
    }

    /// Takes the next flow; waits for one unless the listener is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` if it is non-blocking and there is none; if the stack has come to its end.
    pub fn accept(&self) -> io::Result<UdpSocket> {
        loop {
            match self.try_accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.nonblocking.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                }
                done => return done,
            }
            park::wait(
                None,
                |key, waker| self.listener.wait_acceptable(key, waker),
                |key| self.listener.cancel_wait(key),
            );
        }
    }

    /// As [`accept`](Self::accept), but never waits.
    ///
    /// # Errors
    /// As there.
    pub fn try_accept(&self) -> io::Result<UdpSocket> {
        let accepted = self.listener.accept(self.stack.now());
        let accepted = accepted.map_err(|error| refused(self.stack.core(), error))?;
        let socket = accepted.ok_or_else(would_block)?;
        Ok(UdpSocket::from_socket(socket, &self.stack))
    }

    /// As [`accept`](Self::accept), in a future. Any number may wait.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub async fn accept_async(&self) -> io::Result<UdpSocket> {
        let mut registration = self.acceptable();
        poll_fn(|cx| {
            loop {
                match self.try_accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        ready!(registration.poll_ready(cx.waker()));
                    }
                    done => return Poll::Ready(done),
                }
            }
        })
        .await
    }

    /// As [`accept_async`](Self::accept_async), for one task: only the last waker is kept.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UdpSocket>> {
        loop {
            match self.try_accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.listener.poll_acceptable(cx.waker()));
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// `accept` returns `WouldBlock` rather than wait. Flows block all the same.
    ///
    /// # Errors
    /// None; the result is there because the listener of TCP has it.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The limits of its flows.
    pub fn config(&self) -> &UdpFlowConfig {
        self.listener.config()
    }

    /// The stack that listens.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl UdpSocket {
    /// Answers the sender of a flow with an ICMP error, as the destination or a router would that
    /// does not take the datagram, and ends the flow. A proxy passes on by it what its own send
    /// met.
    ///
    /// ```
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let proxy = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::UdpListener::bind_any(&proxy)?;
    /// # let client = plimsoll::UdpSocket::bind(&client, "192.0.2.1:0")?;
    /// # client.connect("198.51.100.7:53")?;
    /// # client.send(b"who?")?;
    /// use plimsoll::gate::Unreachable;
    /// let flow = listener.accept()?;
    /// flow.refuse(Unreachable::Port)?;
    /// let refused = client.recv(&mut [0; 16]).unwrap_err();
    /// assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is no flow; `TimedOut` if the flow has ended.
    pub fn refuse(self, how: Unreachable) -> io::Result<()> {
        self.told(self.socket().refuse(self.stack().now(), how))
    }

    /// After how long without a datagram either way the flow ends; `None` if it is no flow.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.socket().idle_timeout()
    }

    /// Sets after how long without a datagram the flow ends, 1 ms at least.
    ///
    /// # Errors
    /// `InvalidInput` if it is no flow or the time is shorter.
    pub fn set_idle_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.told(self.socket().set_idle_timeout(timeout))
    }
}

impl fmt::Debug for UdpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpListener").field("port", &self.listener.port()).finish_non_exhaustive()
    }
}
