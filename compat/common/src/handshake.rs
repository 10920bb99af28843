//! The handshake of a stream that is handed out before it is over.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use plimsoll::gate::{Accepting, Incoming};
use plimsoll::net::TcpStream;

/// A SYN that is being answered. Two tasks may wait for its end, one for each half of the stream.
#[derive(Debug)]
pub struct Handshake {
    accepting: Accepting,
    waiting: Arc<Waiting>,
}

impl Handshake {
    /// Answers the SYN of `incoming`.
    pub fn new(incoming: Incoming) -> Handshake {
        Handshake { accepting: incoming.accept(), waiting: Arc::default() }
    }

    /// The stream, once the handshake is over. The end wakes the task of the other half, too, also
    /// if it is a failure.
    ///
    /// # Errors
    /// Those of the handshake. Then, as after the stream, this must not be called again.
    pub fn poll(&mut self, half: Half, cx: &Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.waiting.keep(half, cx.waker());
        let both = Waker::from(self.waiting.clone());
        let accepting = Pin::new(&mut self.accepting);
        let accepted = ready!(accepting.poll(&mut Context::from_waker(&both)));
        both.wake();
        Poll::Ready(accepted.map(TcpStream::from))
    }
}

/// Which of the two halves of a stream asks.
#[derive(Clone, Copy, Debug)]
pub enum Half {
    /// The one that reads.
    Read,
    /// The one that writes.
    Write,
}

/// The tasks that wait for the end of the handshake, by half: they may be two, and either may give
/// up.
#[derive(Debug, Default)]
struct Waiting(Mutex<[Option<Waker>; 2]>);

impl Waiting {
    fn keep(&self, half: Half, waker: &Waker) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = tasks[half as usize].replace(waker.clone());
        drop(tasks);
        // It is code of the application.
        drop(before);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.into_iter().flatten().for_each(Waker::wake);
    }
}
