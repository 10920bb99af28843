//! Initial sequence numbers (RFC 6528).

use plimsoll_wire::SeqNum;

use crate::time::Instant;

/// ISN = M + F(addresses, ports, secret): a clock that ticks every 4 microseconds plus `hash`,
/// which the caller derives with a keyed hash, because the engine has no secrets.
pub const fn initial_sequence_number(now: Instant, hash: u32) -> SeqNum {
    let ticks = (now.as_nanos() / 4_000) as u32;
    SeqNum(ticks.wrapping_add(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_every_four_microseconds() {
        assert_eq!(initial_sequence_number(Instant::from_micros(3), 9), SeqNum(9));
        assert_eq!(initial_sequence_number(Instant::from_micros(4), u32::MAX), SeqNum(0));
    }
}
