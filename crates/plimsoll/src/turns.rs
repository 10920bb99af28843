//! The write buffers that a thread's loops hand over at the end of their turns.
//!
//! A buffer with data is lent to the thread that fills it ([`LoanCell`]). When that thread polls a
//! stack, or is about to sleep, it hands over the contents of all such buffers. A thread that never
//! polls keeps the list in vain; the list is at most twice as long as the number of active loans.

use std::cell::RefCell;

use plimsoll_stack::{Loan, LoanCell};

use crate::buffered::Buffer;
use crate::stream::{TcpStream, WeakStream};

thread_local! {
    static LOANS: RefCell<Loans> = const { RefCell::new(Loans::new()) };
}

/// Loans that are looked at before the list grows beyond so many.
const FEW: usize = 16;

/// Buffers that are handed over when the turn ends, in the order in which they began.
struct Loans {
    list: Vec<(WeakStream, Loan<Option<Buffer>>)>,
    /// When the list is as long, those that have ended are taken out.
    most: usize,
}

impl Loans {
    const fn new() -> Loans {
        Loans { list: Vec::new(), most: FEW }
    }

    fn add(&mut self, stream: WeakStream, lent: Loan<Option<Buffer>>) {
        if self.list.len() >= self.most {
            self.list.retain(|(stream, lent)| lent.is_active() && stream.is_open());
            self.most = FEW.max(2 * self.list.len());
        }
        self.list.push((stream, lent));
    }
}

/// Lends a buffer that holds something to this thread.
pub(crate) fn lend(stream: &TcpStream, buffer: &mut LoanCell<Option<Buffer>>) {
    // A thread that ends polls no more.
    let _ = LOANS.try_with(|loans| {
        if let Some(lent) = buffer.lend() {
            loans.borrow_mut().add(stream.downgrade(), lent);
        }
    });
}

/// Hands over the buffers lent to this thread, which polls or is about to sleep until the next
/// poll.
pub(crate) fn end() {
    let _ = LOANS.try_with(|loans| {
        if loans.borrow().list.is_empty() {
            return;
        }
        // Wakers may fill buffers meanwhile, which begins a new list. Most do not, and the room of
        // the old one is kept.
        let mut list = std::mem::take(&mut loans.borrow_mut().list);
        for (stream, lent) in list.drain(..) {
            let Some((Some(buffer), taken)) = lent.take() else { continue };
            // The stream of one that is gone has been given all by its drop.
            let Some(stream) = stream.upgrade() else { continue };
            // Wakers come after that: one may wait for a thread that waits for the buffer.
            if let Err(error) = stream.hand_over(buffer, || drop(taken)) {
                stream.defer(&error);
            }
        }
        let mut now = loans.borrow_mut();
        if now.list.is_empty() {
            now.list = list;
        }
    });
}
