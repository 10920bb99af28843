//! Waiting for a socket together with others.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use plimsoll_stack::{Interest, WaitKey};

use crate::listener::TcpListener;
use crate::stream::TcpStream;
use crate::udp::UdpSocket;
use crate::udp_flows::UdpListener;
use crate::unhandled::UnhandledPackets;

/// A task's place among the tasks that wait for a socket. Any number may wait, each with its own
/// `Registration`; dropping it removes its waker. It is also a future, which ends when the socket
/// is ready. A call on the socket may still find it not ready, because another task was faster.
/// Then poll the same registration again.
///
/// ```
/// use std::task::{Poll, Waker};
/// # use std::io::Write;
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
/// let stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
/// assert_eq!(stream.writable().poll_ready(Waker::noop()), Poll::Ready(()));
/// assert_eq!(stream.readable().poll_ready(Waker::noop()), Poll::Pending);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a future does nothing until it is polled"]
pub struct Registration<'a> {
    source: Source<'a>,
    key: WaitKey,
    /// Its waker was handed over, and may be there still.
    waits: bool,
}

enum Source<'a> {
    Stream(&'a TcpStream, Interest),
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "tokio's `ready` waits so"))]
    Exceptional(&'a TcpStream),
    Listener(&'a TcpListener),
    Datagrams(&'a UdpSocket, Interest),
    Flows(&'a UdpListener),
    Unhandled(&'a UnhandledPackets),
}

impl<'a> Registration<'a> {
    fn new(source: Source<'a>) -> Registration<'a> {
        let key = match source {
            Source::Exceptional(_) => WaitKey::for_notification(),
            Source::Stream(..)
            | Source::Listener(_)
            | Source::Datagrams(..)
            | Source::Flows(_)
            | Source::Unhandled(_) => WaitKey::new(),
        };
        Registration { source, key, waits: false }
    }

    /// Whether the socket is ready. If it is not, `waker` is woken when to ask again, in place of
    /// the one that was given before.
    pub fn poll_ready(&mut self, waker: &Waker) -> Poll<()> {
        let key = self.key;
        // Also if a panic comes out of the call, the waker may have been handed over.
        self.waits = true;
        let polled = match self.source {
            Source::Stream(stream, Interest::Read) => stream.socket().wait_readable(key, waker),
            Source::Stream(stream, Interest::Write) => stream.socket().wait_writable(key, waker),
            Source::Exceptional(stream) => stream.socket().wait_exceptional(key, waker),
            Source::Listener(listener) => listener.listener().wait_acceptable(key, waker),
            Source::Datagrams(socket, Interest::Read) => socket.socket().wait_readable(key, waker),
            Source::Datagrams(socket, Interest::Write) => socket.socket().wait_writable(key, waker),
            Source::Flows(listener) => listener.listener().wait_acceptable(key, waker),
            Source::Unhandled(packets) => packets.receiver().wait_readable(key, waker),
        };
        self.waits = polled.is_pending();
        polled
    }
}

impl Future for Registration<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_ready(context.waker())
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        match self.source {
            Source::Stream(stream, interest) => stream.socket().cancel_wait(interest, self.key),
            Source::Exceptional(stream) => {
                stream.socket().cancel_wait(Interest::Read, self.key);
            }
            Source::Listener(listener) => listener.listener().cancel_wait(self.key),
            Source::Datagrams(socket, interest) => socket.socket().cancel_wait(interest, self.key),
            Source::Flows(listener) => listener.listener().cancel_wait(self.key),
            Source::Unhandled(packets) => packets.receiver().cancel_wait(self.key),
        }
    }
}

impl fmt::Debug for Registration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl TcpStream {
    /// Waits, next to any number of other tasks, until a read would not block.
    pub fn readable(&self) -> Registration<'_> {
        Registration::new(Source::Stream(self, Interest::Read))
    }

    /// Waits, next to any number of other tasks, until a write would not block.
    pub fn writable(&self) -> Registration<'_> {
        Registration::new(Source::Stream(self, Interest::Write))
    }

    /// Waits, next to any number of other tasks, for an error, urgent data or the end.
    #[cfg(feature = "tokio")]
    pub(crate) fn exceptional(&self) -> Registration<'_> {
        Registration::new(Source::Exceptional(self))
    }
}

impl TcpListener {
    /// Waits, next to any number of other tasks, until a connection waits to be accepted.
    pub fn acceptable(&self) -> Registration<'_> {
        Registration::new(Source::Listener(self))
    }
}

impl UdpSocket {
    /// Waits, next to any number of other tasks, until a read would not block.
    pub fn readable(&self) -> Registration<'_> {
        Registration::new(Source::Datagrams(self, Interest::Read))
    }

    /// Waits, next to any number of other tasks, until a send would not block.
    pub fn writable(&self) -> Registration<'_> {
        Registration::new(Source::Datagrams(self, Interest::Write))
    }
}

impl UdpListener {
    /// Waits, next to any number of other tasks, until a flow waits to be accepted.
    pub fn acceptable(&self) -> Registration<'_> {
        Registration::new(Source::Flows(self))
    }
}

impl UnhandledPackets {
    /// Waits, next to any number of other tasks, until a packet waits to be received.
    pub fn readable(&self) -> Registration<'_> {
        Registration::new(Source::Unhandled(self))
    }
}
