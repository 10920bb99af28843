//! Arithmetic of the rules. Volumes count segments, rates bytes per second, gains and thresholds
//! percent; nothing overflows, and nothing is a fraction.

/// `a * b / divisor`, rounded up; `u64::MAX` if it is more.
pub(super) fn ratio(a: u64, b: u64, divisor: u64) -> u64 {
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(divisor);
    }
    let wide = (u128::from(a) * u128::from(b)).div_ceil(u128::from(divisor));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// `percent` of `value`, rounded down.
pub(super) fn percent(value: u32, percent: u32) -> u32 {
    let part = u64::from(value) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(u32::MAX)
}

/// Whether the sum `a`, which wraps, was reached at `b` or after.
pub(super) fn is_at_or_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) >= 0
}

/// The next number of a sequence that `seed` names (a linear congruential generator, of which the
/// upper half is used).
pub(super) fn next_random(seed: &mut u64) -> u32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        assert_eq!(ratio(7, 3, 10), 3, "rounded up");
        assert_eq!(ratio(1 << 40, 1 << 40, 1 << 40), 1 << 40, "the product has 80 bits");
        assert_eq!(ratio(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(percent(u32::MAX, 225), u32::MAX);
        assert_eq!(percent(10, 70), 7);
    }

    #[test]
    fn sums_wrap() {
        assert!(is_at_or_after(5, 5) && is_at_or_after(0, u32::MAX));
        assert!(!is_at_or_after(u32::MAX, 0));
    }
}
