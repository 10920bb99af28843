//! The peer's reports of marks on our packets (RFC 9768, sections 3.2.2 and 3.2.3): from the three
//! bits of the ACE field, and the counters of the option if there is one, to numbers that do not
//! wrap.

use plimsoll_wire::tcp::{AccEcnCounters, AccEcnOption};

use super::received::{FIRST_CEP, FIRST_COUNTERS};

/// Values of the ACE field.
const CYCLE: u32 = 8;
/// Values of a counter of the option.
const COUNTER_CYCLE: u32 = 1 << 24;

/// Packets that one option can mean: more bytes than half of a counter's range are none.
const MOST_AT_ONCE: u64 = 1 << 23;

/// The marks reported by one ACK, as far as it reports them by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// CE packets that are new, modulo 8.
    pub(crate) ace: u32,
    /// CE bytes that are new, if there was an option.
    pub(crate) bytes: Option<u32>,
    /// CE bytes that were reported before and exceed what the packets counted for them can have
    /// had. Below zero, the bytes of packets that were counted and not yet reported in bytes.
    pub(crate) balance: i64,
    /// Bytes that one of our packets has at most.
    pub(crate) mss: u32,
    /// By its timestamp it left after all that was taken before.
    pub(crate) newer: bool,
    /// An ACK for many packets means that others were lost, whose counts are missing.
    pub(crate) many_is_loss: bool,
}

impl Counted {
    /// The number of our packets that the peer reports as newly marked, with an ACK that delivers
    /// `acked`.
    ///
    /// More than seven may have been marked when more than seven are delivered at once. If the
    /// option has the number of marked bytes, the result is the least number of packets that can
    /// have carried them, which also corrects earlier counts that were too low. Otherwise, if ACKs
    /// seem to be lost, it is the most that can have been marked, which is the safe side (section
    /// 3.2.2.5.2). A peer that sends few ACKs and loses none cannot hide a cycle: it sends one for
    /// six marks at the latest.
    pub(crate) fn packets(self, acked: u32) -> u32 {
        if let Some(bytes) = self.bytes {
            let bytes = u64::try_from(self.balance.saturating_add(bytes.into())).unwrap_or(0);
            let needed = bytes.div_ceil(self.mss.max(1).into()).min(MOST_AT_ONCE) as u32;
            return self.ace + needed.saturating_sub(self.ace).next_multiple_of(CYCLE);
        }
        if acked < CYCLE || !self.many_is_loss {
            return self.ace;
        }
        acked - (acked - self.ace) % CYCLE
    }
}

/// The peer's reports so far.
#[derive(Debug)]
pub(crate) struct Feedback {
    /// s.cep, modulo 2^32.
    cep: u32,
    /// s.ceb, s.e0b, s.e1b, as the last option had them.
    counters: AccEcnCounters,
    /// The same, modulo 2^32, from zero.
    bytes: AccEcnCounters,
    /// TSval of the last packet that was taken.
    tsval: Option<u32>,
    /// Packets that an ACK has delivered recently, on average, in eighths; zero before the first.
    usual_x8: u32,
    /// See [`Counted::balance`].
    balance: i64,
}

/// More packets per ACK than this, on average, mean that the peer or the path sends few ACKs.
const FEW_ACKS: u32 = 4;

/// How far `new` is ahead of `old`, both modulo 2^24; `None` if it is behind.
fn ahead(new: u32, old: u32) -> Option<u32> {
    let ahead = new.wrapping_sub(old) % COUNTER_CYCLE;
    (ahead < COUNTER_CYCLE / 2).then_some(ahead)
}

impl Feedback {
    pub(super) fn new() -> Feedback {
        Feedback {
            cep: FIRST_CEP,
            counters: FIRST_COUNTERS,
            bytes: AccEcnCounters::default(),
            tsval: None,
            usual_x8: 0,
            balance: 0,
        }
    }

    /// Our SYN or SYN-ACK was marked, which the peer has counted.
    pub(super) fn on_syn_marked(&mut self) {
        self.cep += 1;
        // The bytes of its data are counted as well.
        self.balance -= i64::from(u16::MAX);
    }

    /// Whether this ACE field reports something new.
    pub(super) fn is_new(&self, ace: u8) -> bool {
        self.new_marks(ace) > 0
    }

    /// New CE packets reported by this ACE field, modulo 8.
    fn new_marks(&self, ace: u8) -> u32 {
        u32::from(ace).wrapping_sub(self.cep) % CYCLE
    }

    /// The marks reported by a packet with this ACE field, option and TSval, for packets with at
    /// most `mss` bytes each.
    pub(super) fn read(
        &self,
        ace: u8,
        option: Option<&AccEcnOption>,
        tsval: Option<u32>,
        mss: u32,
    ) -> Counted {
        let after = |val: u32| self.tsval.is_some_and(|last| val.wrapping_sub(last) as i32 > 0);
        Counted {
            ace: self.new_marks(ace),
            bytes: option.and_then(AccEcnOption::ceb).and_then(|ceb| ahead(ceb, self.counters.ceb)),
            balance: self.balance,
            mss,
            newer: tsval.is_some_and(after),
            many_is_loss: (1..=FEW_ACKS * 8).contains(&self.usual_x8),
        }
    }

    /// The packet of [`read`](Self::read) was taken: it has delivered `acked` our packets, and
    /// `marked` were newly found marked.
    pub(super) fn take(
        &mut self,
        (acked, marked): (u32, u32),
        option: Option<&AccEcnOption>,
        tsval: Option<u32>,
        mss: u32,
    ) {
        self.cep = self.cep.wrapping_add(marked);
        if acked > 0 {
            let acked = acked.min(1 << 16);
            self.usual_x8 = match self.usual_x8 {
                0 => acked * 8,
                usual => usual - usual / 8 + acked,
            };
        }
        self.tsval = tsval.or(self.tsval);
        self.balance = self.balance.saturating_sub(i64::from(marked) * i64::from(mss));
        let Some(option) = option else { return };
        if let Some(new) = option.ceb().and_then(|ceb| ahead(ceb, self.counters.ceb)) {
            // Counted packets with fewer bytes were short packets.
            self.balance = self.balance.saturating_add(new.into()).max(0);
        }
        let pairs = [
            (option.e0b(), &mut self.counters.e0b, &mut self.bytes.e0b),
            (option.ceb(), &mut self.counters.ceb, &mut self.bytes.ceb),
            (option.e1b(), &mut self.counters.e1b, &mut self.bytes.e1b),
        ];
        for (said, counter, bytes) in pairs {
            if let Some((said, new)) = said.and_then(|said| Some((said, ahead(said, *counter)?))) {
                *counter = said;
                *bytes = bytes.wrapping_add(new);
            }
        }
    }

    /// Our bytes that arrived, by codepoint, modulo 2^32 (`tcpi_delivered_e0_bytes` and so on).
    pub(super) fn bytes(&self) -> AccEcnCounters {
        self.bytes
    }
}
