//! What the loops of a thread hand over at the end of their turns: what was put aside in buffers.
//!
//! A buffer that begins to fill on a thread that polls stacks is lent to that thread
//! ([`TurnCell`]). Whoever polls there, or is about to sleep, hands over
//! what all such buffers hold. On threads that do not poll, nothing is lent.

use std::cell::{Cell, RefCell};

use plimsoll_stack::{Lent, TurnCell};

use crate::buffered::Buffer;
use crate::stream::{TcpStream, WeakStream};

thread_local! {
    static THREAD: Turns = const {
        Turns { polls: Cell::new(false), lent: RefCell::new(Vec::new()) }
    };
}

/// What a thread knows of its loops.
struct Turns {
    /// It has polled a stack.
    polls: Cell<bool>,
    /// Buffers that are handed over when the turn ends, in the order in which they began.
    lent: RefCell<Vec<(WeakStream, Lent<Option<Buffer>>)>>,
}

/// Lends a buffer that holds something to this thread, if it polls.
pub(crate) fn lend(stream: &TcpStream, buffer: &mut TurnCell<Option<Buffer>>) {
    // While the thread ends, it polls no more.
    let _ = THREAD.try_with(|turns| {
        if turns.polls.get()
            && let Some(lent) = buffer.lend()
        {
            turns.lent.borrow_mut().push((stream.downgrade(), lent));
        }
    });
}

/// This thread polls, or is about to sleep until it does again: hands over what was lent to it.
pub(crate) fn end() {
    let _ = THREAD.try_with(|turns| {
        turns.polls.set(true);
        if turns.lent.borrow().is_empty() {
            return;
        }
        // Wakers may fill buffers meanwhile, which begins a list anew. Most do not, and its room is
        // kept.
        let mut list = turns.lent.take();
        for (stream, lent) in list.drain(..) {
            let Some((Some(buffer), taken)) = lent.take() else { continue };
            // The stream of one that is gone has been given all by its drop.
            if let Some(stream) = stream.upgrade()
                && let Err(error) = stream.hand_over(buffer)
            {
                stream.defer(&error);
            }
            drop(taken);
        }
        let mut now = turns.lent.borrow_mut();
        if now.is_empty() {
            *now = list;
        }
    });
}
