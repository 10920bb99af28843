//! Readiness for event loops: which of many sockets can make progress.
//!
//! A loop that runs a stack itself gives each of its sockets a waker that carries a number, a
//! *token*. When the socket becomes ready, the token enters the queue, at most once until it is
//! taken. If that happens on another thread while the loop sleeps in [`Stack::wait`], the loop is
//! woken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::stack::{Kicker, Stack};

/// A queue of tokens whose sockets are ready.
///
/// ```
/// let (device, _peer) = plimsoll::device::memory_link::pair(Default::default());
/// let stack = plimsoll::Stack::builder()
///     .device(device)
///     .address("192.0.2.1/24")
///     .build_without_thread()?;
/// let ready = plimsoll::ReadyQueue::new(&stack);
/// let waker = ready.waker(7);
/// waker.wake_by_ref();
/// waker.wake_by_ref();
/// let mut tokens = Vec::new();
/// ready.take(&mut tokens);
/// assert_eq!(tokens, [7]);
/// # Ok::<(), plimsoll::BuildError>(())
/// ```
pub struct ReadyQueue {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<VecDeque<Arc<Token>>>,
    /// Whether the queue has anything, to be read without the lock.
    filled: AtomicBool,
    // Wakers lie in the sockets of the stack, so they must not keep it alive.
    kicker: Kicker,
}

struct Token {
    number: usize,
    queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        Token::push(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Token::push(self);
    }
}

impl Token {
    fn push(this: &Arc<Token>) {
        if this.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = &this.shared;
        shared.lock().push_back(this.clone());
        if !shared.filled.swap(true, Ordering::SeqCst) {
            shared.kicker.kick();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Token>>> {
        // The queue is whole at every point where a thread could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadyQueue {
    /// An empty queue for the loop that runs `stack`.
    pub fn new(stack: &Stack) -> ReadyQueue {
        ReadyQueue::with_kicker(stack.kicker())
    }

    /// An empty queue for a loop that `kicker` wakes, as that of a
    /// [`QueueLoop`](crate::QueueLoop).
    pub fn with_kicker(kicker: Kicker) -> ReadyQueue {
        let queue = Mutex::new(VecDeque::new());
        ReadyQueue { shared: Arc::new(Shared { queue, filled: AtomicBool::new(false), kicker }) }
    }

    /// A waker that puts `token` into the queue.
    pub fn waker(&self, token: usize) -> Waker {
        let shared = self.shared.clone();
        Waker::from(Arc::new(Token { number: token, queued: AtomicBool::new(false), shared }))
    }

    /// Whether no token is in the queue. To be asked last before sleeping.
    pub fn is_empty(&self) -> bool {
        !self.shared.filled.load(Ordering::SeqCst)
    }

    /// Moves the tokens to the end of `tokens`. A socket that becomes ready from now on enters the
    /// queue again.
    pub fn take(&self, tokens: &mut Vec<usize>) {
        if self.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        self.shared.filled.store(false, Ordering::SeqCst);
        for token in queue.drain(..) {
            token.queued.store(false, Ordering::Release);
            tokens.push(token.number);
        }
    }
}

impl std::fmt::Debug for ReadyQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadyQueue").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
