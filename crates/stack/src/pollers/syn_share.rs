//! The share of a poller's work that SYNs may have which are answered with cookies.
//!
//! # Theory of operation
//!
//! A listener whose SYN queue is full remembers nothing of a SYN, so nothing bounds how many it
//! answers but the poller's time, which the connections need as well. As long as the poller keeps
//! up, so that it finds the device empty now and then, every SYN is answered. While it does not,
//! only a few of each batch are, and the others are dropped before anything is read of them but
//! their flags: that costs a fraction of an answer, so the poller gets to the end of what waits,
//! and to the segments of connections in it. Which SYNs are answered follows from their place in
//! the queue alone; an honest client that was dropped asks again.
//!
//! Every interface has a share of its own: that one of them is empty, loopback as a rule, says
//! nothing about another.
//!
//! SYNs that are remembered are bounded by the backlog and do not count.

use crate::limits::{COOKIE_BURST, COOKIES_PER_BATCH, MAX_INTERFACES};

/// What is left of the share of one interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynShare(u32);

impl Default for SynShare {
    fn default() -> SynShare {
        SynShare(COOKIE_BURST)
    }
}

impl SynShare {
    /// A SYN is answered with a cookie.
    pub(crate) fn take(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// Whether nothing is left.
    pub(crate) fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// A batch has ended; `drained` says whether the device was empty behind it.
    pub(crate) fn end_batch(&mut self, drained: bool) {
        let left = self.0.saturating_add(COOKIES_PER_BATCH).min(COOKIE_BURST);
        self.0 = if drained { COOKIE_BURST } else { left };
    }
}

/// The shares of all interfaces, for the one poller that receives from them in turn.
#[derive(Debug)]
pub(crate) struct SynShares {
    shares: [SynShare; MAX_INTERFACES],
    /// Whose batch it is.
    at: u8,
}

impl Default for SynShares {
    fn default() -> SynShares {
        SynShares { shares: [SynShare::default(); MAX_INTERFACES], at: 0 }
    }
}

impl SynShares {
    /// What comes next is of this interface.
    pub(crate) fn begin(&mut self, interface: u8) {
        self.at = interface;
    }

    /// The share of the interface whose batch it is.
    pub(crate) fn current(&mut self) -> &mut SynShare {
        &mut self.shares[usize::from(self.at)]
    }
}
