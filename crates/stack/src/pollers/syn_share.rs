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
//! *Proven peers.* A peer whose address has completed a handshake must not wait behind forged
//! sources (`policies/proven_peers.rs`): once the share is spent, there is another for
//! SYNs of such peers. Their addresses may be forged too, so it is bounded likewise. No peer gets
//! more of it in one batch than it leaves for the others: a flood from one address
//! takes the place of that address only.
//!
//! Every interface has its own shares: that one of them is empty, loopback as a rule, says nothing
//! about another. A poll that could not ask a device, which another thread had, says nothing about
//! it either.
//!
//! SYNs that are remembered are bounded by the backlog and do not count.

use arrayvec::ArrayVec;

use crate::limits::{
    COOKIE_BURST, COOKIES_PER_BATCH, MAX_INTERFACES, PROVEN_SYN_BURST, PROVEN_SYNS_PER_BATCH,
};
use crate::policies::proven_peers::ProvenPeer;

/// What is left of the shares of one interface.
#[derive(Clone, Copy, Debug)]
struct SynShare {
    /// SYNs that may be answered with cookies.
    cookies: u32,
    /// SYNs of proven peers that may be worked on beyond that.
    proven: u32,
}

impl Default for SynShare {
    fn default() -> SynShare {
        SynShare { cookies: COOKIE_BURST, proven: PROVEN_SYN_BURST }
    }
}

/// The shares of all interfaces, for the one poller that receives from them in turn.
#[derive(Debug, Default)]
pub(crate) struct SynShares {
    shares: [SynShare; MAX_INTERFACES],
    /// Whose batch it is.
    at: u8,
    /// Whose SYNs were spared in this batch.
    spared: ArrayVec<ProvenPeer, { PROVEN_SYN_BURST as usize }>,
}

impl SynShares {
    /// What comes next is of this interface.
    pub(crate) fn begin(&mut self, interface: u8) {
        self.at = interface;
        self.spared.clear();
    }

    /// There was nothing at this interface.
    #[inline]
    pub(crate) fn drained(&mut self, interface: u8) {
        self.shares[usize::from(interface)] = SynShare::default();
    }

    /// A SYN is answered with a cookie.
    pub(crate) fn take(&mut self) {
        let share = self.current();
        share.cookies = share.cookies.saturating_sub(1);
    }

    /// Whether SYNs have had their share.
    pub(crate) fn is_spent(&self) -> bool {
        self.shares[usize::from(self.at)].cookies == 0
    }

    /// Whether SYNs are shed in this batch, or would be if there were more of them.
    pub(crate) fn is_scarce(&self) -> bool {
        self.shares[usize::from(self.at)].cookies <= COOKIES_PER_BATCH
    }

    /// Whether a proven peer might be spared if a SYN is of one.
    pub(crate) fn may_spare(&self) -> bool {
        self.shares[usize::from(self.at)].proven > 0
    }

    /// Takes a SYN of a proven peer out of the share of those. `false` if it has had its part of
    /// it, so that the SYN is shed.
    pub(crate) fn spare(&mut self, peer: ProvenPeer) -> bool {
        let had = self.spared.iter().filter(|&&other| other == peer).count();
        let share = &mut self.shares[usize::from(self.at)];
        let spares = (had as u32) < share.proven && self.spared.try_push(peer).is_ok();
        share.proven -= u32::from(spares);
        spares
    }

    /// A batch has ended; `drained` says whether the device was empty behind it.
    pub(crate) fn end_batch(&mut self, drained: bool) {
        self.spared.clear();
        let SynShare { cookies, proven } = *self.current();
        *self.current() = match drained {
            true => SynShare::default(),
            false => SynShare {
                cookies: (cookies + COOKIES_PER_BATCH).min(COOKIE_BURST),
                proven: (proven + PROVEN_SYNS_PER_BATCH).min(PROVEN_SYN_BURST),
            },
        };
    }

    fn current(&mut self) -> &mut SynShare {
        &mut self.shares[usize::from(self.at)]
    }
}
