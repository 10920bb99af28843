//! The share of a poller's work for SYNs that are answered with cookies.
//!
//! # Theory of operation
//!
//! A listener whose SYN queue is full stores nothing of a SYN. So only the poller's time limits how
//! many it answers, and the connections need that time as well. As long as the poller keeps up, and
//! so finds the device empty now and then, every SYN is answered. While it does not, only a few of
//! each batch are answered, and the others are dropped after only their flags were read. That costs
//! a fraction of an answer, so the poller gets to the end of the waiting packets, and to the
//! connections' segments among them. The position of SYNs in the queue alone decides which are
//! answered; an honest client that was dropped tries again.
//!
//! *Proven peers.* A peer whose address has completed a handshake must not wait behind forged
//! sources (`policies/proven_peers.rs`): once the share is spent, there is another share for SYNs
//! of such peers. Their addresses may be forged too, so it is limited likewise. No peer gets more
//! of it in one batch than it leaves for the others: a flood from one address uses up the share of
//! that address only.
//!
//! Every interface has its own shares, since an empty interface, usually loopback, implies nothing
//! about another. Nor does a poll that could not receive from a device because another thread held
//! it.
//!
//! SYNs that are stored are limited by the backlog and do not count.

use arrayvec::ArrayVec;

use crate::limits::{
    COOKIE_BURST, COOKIES_PER_BATCH, MAX_INTERFACES, PROVEN_SYN_BURST, PROVEN_SYNS_PER_BATCH,
};
use crate::policies::proven_peers::ProvenPeer;

/// The rest of one interface's shares.
#[derive(Clone, Copy, Debug)]
struct SynShare {
    /// SYNs that may be answered with cookies.
    cookies: u32,
    /// SYNs of proven peers that may be processed beyond that.
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
    /// The packets that follow are of this interface.
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

    /// A batch has ended; `drained` is whether the device was empty after it.
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
