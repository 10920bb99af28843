//! Who may drain an interface: one thread at a time, and no packet is left behind.
//!
//! A thread that finds the token taken leaves a mark and goes its way. The holder sees the mark
//! when it lets go and goes round once more. Both happen on one atomic, so that what was queued
//! before the mark is seen behind it.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;
const MISSED: u8 = 2;

/// The token.
#[derive(Debug)]
pub(crate) struct TxToken(AtomicU8);

impl TxToken {
    pub(crate) fn new() -> TxToken {
        TxToken(AtomicU8::new(FREE))
    }

    /// Takes the token. If `false`, the thread that has it will go round once more.
    pub(crate) fn acquire(&self) -> bool {
        loop {
            if self.0.compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
            if self.leave_to_holder() {
                return false;
            }
        }
    }

    /// Has the thread that holds the token, if one does, go round once more. Who finds packets
    /// queued can then sleep: a poller that looked at the queue again and again might well keep the
    /// holder from its processor.
    pub(crate) fn leave_to_holder(&self) -> bool {
        // Also written if the mark is there already: the write is what publishes our packet.
        let mark = |state| (state != FREE).then_some(MISSED);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, mark).is_ok()
    }

    /// Lets go, unless somebody missed the token: then the caller still has it, gets `false`, and
    /// must go round once more.
    pub(crate) fn release(&self) -> bool {
        if self.0.compare_exchange(HELD, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
        // Takes the mark and sees everything that was queued before it.
        self.0.swap(HELD, Ordering::AcqRel);
        false
    }

    /// Lets go although somebody missed it. The caller sees to it that a thread goes round.
    pub(crate) fn abandon(&self) {
        self.0.swap(FREE, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_holder_hears_of_those_who_missed() {
        let token = TxToken::new();
        assert!(token.acquire());
        assert!(!token.acquire());
        assert!(!token.acquire());
        assert!(!token.release(), "one more round");
        assert!(token.release());
        assert!(token.acquire());
        assert!(!token.acquire());
        token.abandon();
        assert!(!token.leave_to_holder(), "nobody holds it");
        assert!(token.acquire());
        assert!(token.leave_to_holder());
        assert!(!token.release(), "one more round");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// Two threads queue one packet each (relaxed, so that only the token orders them) and drain.
    #[test]
    fn no_packet_is_left_behind() {
        loom::model(|| {
            let token = Arc::new(TxToken::new());
            let queued = Arc::new(AtomicUsize::new(0));
            let sent = Arc::new(AtomicUsize::new(0));
            let work = |token: &TxToken, queued: &AtomicUsize, sent: &AtomicUsize| {
                queued.fetch_add(1, Ordering::Relaxed);
                if !token.acquire() {
                    return;
                }
                loop {
                    sent.store(queued.load(Ordering::Relaxed), Ordering::Relaxed);
                    if token.release() {
                        return;
                    }
                }
            };
            let other = {
                let (token, queued, sent) = (token.clone(), queued.clone(), sent.clone());
                loom::thread::spawn(move || work(&token, &queued, &sent))
            };
            work(&token, &queued, &sent);
            other.join().unwrap();
            assert_eq!(sent.load(Ordering::Relaxed), 2);
            assert!(token.acquire(), "the token is free again");
        });
    }

    /// A thread queues a packet and goes; a poller that finds the token taken sleeps.
    #[test]
    fn a_poller_may_leave_what_is_queued_to_the_holder() {
        loom::model(|| {
            let token = Arc::new(TxToken::new());
            let queued = Arc::new(AtomicUsize::new(0));
            let sent = Arc::new(AtomicUsize::new(0));
            let drain = |token: &TxToken, queued: &AtomicUsize, sent: &AtomicUsize| {
                if !token.acquire() {
                    return;
                }
                loop {
                    sent.store(queued.load(Ordering::Relaxed), Ordering::Relaxed);
                    if token.release() {
                        return;
                    }
                }
            };
            let holder = {
                let (token, queued, sent) = (token.clone(), queued.clone(), sent.clone());
                loom::thread::spawn(move || drain(&token, &queued, &sent))
            };
            queued.fetch_add(1, Ordering::Relaxed);
            // What the poller does before it sleeps; it would look again otherwise.
            if !token.leave_to_holder() {
                drain(&token, &queued, &sent);
            }
            holder.join().unwrap();
            assert_eq!(sent.load(Ordering::Relaxed), 1);
        });
    }
}
