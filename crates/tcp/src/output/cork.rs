//! `Hold::Cork`: the application has announced more data.

use super::nagle::SmallTail;

/// Whether the tail waits for the application's next write. Takes precedence over TCP_NODELAY.
#[inline]
pub(crate) fn cork_holds(tail: &SmallTail) -> bool {
    tail.corked && !tail.bypass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cork_holds_until_pushed() {
        // Corked, NODELAY, pushed, held.
        let cases = [
            (false, false, false, false, "no cork"),
            (true, false, false, true, "a cork"),
            (true, true, false, true, "a cork and NODELAY"),
            (true, false, true, false, "urgent, FIN or pushed"),
        ];
        for (corked, nodelay, bypass, held, name) in cases {
            let tail = SmallTail { corked, nodelay, bypass, ..SmallTail::default() };
            assert_eq!(cork_holds(&tail), held, "{name}");
        }
    }
}
