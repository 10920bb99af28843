//! [`TcpListener`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_core::Stream;
use plimsoll::gate::{GateConfig, GatedListener, Incoming};
use tokio::sync::mpsc;

use crate::tcp_stream::TcpStream;

/// Attempts to connect that wait for an answer, at most. Clients behind one tunnel often share an
/// address, so one source may have them all.
const WAITING: usize = 4096;

/// Streams that wait to be taken, at most. Beyond it, SYNs wait for an answer.
const STREAMS: usize = 1024;

/// The connections of all clients, to any address and port, as they come.
///
/// It ends with the stack. Once it is dropped, further connections are refused; those that there
/// are go on.
pub struct TcpListener {
    streams: mpsc::Receiver<TcpStream>,
}

impl TcpListener {
    /// Listens, and spawns the task that answers SYNs.
    pub(crate) fn start(stack: &plimsoll::Stack) -> io::Result<TcpListener> {
        let gate = GateConfig::default().waiting(WAITING).per_source(WAITING);
        let listener = GatedListener::bind_any(stack, gate)?;
        let (sender, streams) = mpsc::channel(STREAMS);
        tokio::spawn(answer(listener, sender));
        Ok(TcpListener { streams })
    }
}

/// Answers SYNs as long as the receiver of the streams exists.
async fn answer(listener: GatedListener, streams: mpsc::Sender<TcpStream>) {
    // It fails when the receiver has gone.
    while let Ok(place) = streams.reserve().await {
        let Some(incoming) = next(&listener, &streams).await else { return };
        if incoming.is_cancelled().is_none() {
            place.send(TcpStream::new(incoming));
        }
    }
}

/// The next attempt to connect; `None` at the end of the stack or after the receiver is dropped.
async fn next(listener: &GatedListener, streams: &mpsc::Sender<TcpStream>) -> Option<Incoming> {
    let mut dropped = pin!(streams.closed());
    poll_fn(|cx| match dropped.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => listener.poll_incoming(cx.waker()).map(Result::ok),
    })
    .await
}

impl Stream for TcpListener {
    type Item = TcpStream;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TcpStream>> {
        self.streams.poll_recv(cx)
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").finish_non_exhaustive()
    }
}
