//! The one decision about the tail of a super-segment: does the part below one MSS travel along?
//!
//! The policy is the refined TSO split: the whole segments leave now, and the tail leaves inside the
//! same super-segment unless Nagle's rule holds it. The rule is the one of the one-segment path, asked
//! about the remainder only, at the MSS boundary.

/// Cuts the tail off a packet of `len` bytes, more than one segment, if `held` says that it waits.
pub(crate) fn cut_tail(len: usize, mss: usize, held: impl FnOnce(usize) -> bool) -> usize {
    debug_assert!(len > mss, "a single segment has no tail");
    let tail = len % mss;
    if tail > 0 && held(tail) { len - tail } else { len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_remainder_waits() {
        assert_eq!(cut_tail(4096, 1448, |_| false), 4096);
        assert_eq!(cut_tail(4096, 1448, |tail| tail == 1200), 2896);
        assert_eq!(cut_tail(2896, 1448, |_| true), 2896, "there is no tail to hold");
    }
}
