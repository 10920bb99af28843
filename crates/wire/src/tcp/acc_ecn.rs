//! The Accurate ECN option (RFC 9768, section 3.2.3): three counters of bytes, modulo 2^24, by the
//! codepoint that the packets had which brought them.

use super::TcpOptions;

/// Bytes of kind and length.
const BASE_LEN: usize = 2;
/// Bytes of one counter.
const COUNTER_LEN: usize = 3;

/// Which counter comes first: the kind of the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccEcnOrder {
    /// AccECN0, kind 172: ECT(0), CE, ECT(1).
    Ect0First,
    /// AccECN1, kind 174: ECT(1), CE, ECT(0).
    Ect1First,
}

/// Counters of the Accurate ECN option, in bytes modulo 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccEcnCounters {
    /// Bytes that came with ECT(0), and 1.
    pub e0b: u32,
    /// Bytes that came with CE.
    pub ceb: u32,
    /// Bytes that came with ECT(1), and 1.
    pub e1b: u32,
}

/// The Accurate ECN option. The last counters may be missing, also all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccEcnOption {
    order: AccEcnOrder,
    present: u8,
    counters: [[u8; COUNTER_LEN]; 3],
}

impl AccEcnOption {
    /// The kind with ECT(0) first.
    pub(super) const KIND_0: u8 = 172;
    /// The kind with ECT(1) first.
    pub(super) const KIND_1: u8 = 174;
    /// The most counters that an option has.
    pub const MOST_COUNTERS: usize = 3;

    /// The first `present` of `counters` in this order, three at most. Of each counter the lower
    /// 24 bits count.
    pub fn new(order: AccEcnOrder, present: usize, counters: AccEcnCounters) -> AccEcnOption {
        let AccEcnCounters { e0b, ceb, e1b } = counters;
        let values = match order {
            AccEcnOrder::Ect0First => [e0b, ceb, e1b],
            AccEcnOrder::Ect1First => [e1b, ceb, e0b],
        };
        let present = present.min(Self::MOST_COUNTERS);
        let mut option = AccEcnOption { order, present: present as u8, counters: [[0; 3]; 3] };
        for (counter, value) in option.counters[..present].iter_mut().zip(values) {
            let [_, low @ ..] = value.to_be_bytes();
            *counter = low;
        }
        option
    }

    /// The option with this kind and body, if it is one. A body that is no number of counters from
    /// none to three is not.
    pub(super) fn read(kind: u8, body: &[u8]) -> Option<AccEcnOption> {
        let order = match kind {
            Self::KIND_0 => AccEcnOrder::Ect0First,
            Self::KIND_1 => AccEcnOrder::Ect1First,
            _ => return None,
        };
        let (whole, rest) = body.as_chunks::<COUNTER_LEN>();
        if !rest.is_empty() || whole.len() > Self::MOST_COUNTERS {
            return None;
        }
        let mut counters = [[0; COUNTER_LEN]; 3];
        counters[..whole.len()].copy_from_slice(whole);
        Some(AccEcnOption { order, present: whole.len() as u8, counters })
    }

    /// Which counter comes first.
    pub const fn order(&self) -> AccEcnOrder {
        self.order
    }

    /// How many counters there are, three at most.
    pub const fn present(&self) -> usize {
        self.present as usize
    }

    /// Bytes that came with ECT(0), and 1, modulo 2^24, if the option says so.
    pub fn e0b(&self) -> Option<u32> {
        self.counter(if self.order == AccEcnOrder::Ect0First { 0 } else { 2 })
    }

    /// Bytes that came with CE, modulo 2^24, if the option says so.
    pub fn ceb(&self) -> Option<u32> {
        self.counter(1)
    }

    /// Bytes that came with ECT(1), and 1, modulo 2^24, if the option says so.
    pub fn e1b(&self) -> Option<u32> {
        self.counter(if self.order == AccEcnOrder::Ect0First { 2 } else { 0 })
    }

    fn counter(&self, at: usize) -> Option<u32> {
        let [high, middle, low] = *self.counters[..self.present()].get(at)?;
        Some(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Bytes of an option with so many counters, padding included.
    pub(super) const fn padded_len(counters: usize) -> usize {
        (BASE_LEN + COUNTER_LEN * counters).next_multiple_of(4)
    }

    /// Kind and length.
    pub(super) fn head(&self) -> [u8; BASE_LEN] {
        let kind = match self.order {
            AccEcnOrder::Ect0First => Self::KIND_0,
            AccEcnOrder::Ect1First => Self::KIND_1,
        };
        [kind, (BASE_LEN + COUNTER_LEN * self.present()) as u8]
    }

    /// The counters, which follow kind and length.
    pub(super) fn body(&self) -> &[u8] {
        self.counters[..self.present()].as_flattened()
    }
}

impl TcpOptions {
    /// How many counters of the Accurate ECN option find a place next to the other options in
    /// `most` bytes; `None` if not even an option without any does.
    pub fn acc_ecn_space(&self, most: usize) -> Option<usize> {
        let others = self.len_without_acc_ecn();
        let space = most.min(super::MAX_OPTIONS_LEN).checked_sub(others)?;
        (0..=AccEcnOption::MOST_COUNTERS).rev().find(|&n| AccEcnOption::padded_len(n) <= space)
    }
}

#[cfg(test)]
mod tests;
