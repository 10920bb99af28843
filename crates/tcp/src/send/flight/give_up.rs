//! Whether the peer is given up (RFC 9293 section 3.8.3, RFC 5482; section 11 of
//! docs/recovery.md).
//!
//! `tcp_retries2` is a number of timeouts. The limit is the time that this many timeouts would take
//! if they began at 200 ms, as on Linux: a connection with a lower bound of its own
//! (TCP_RTO_MIN_US) must not be given up within milliseconds. RFC 9293's R1 is `tcp_retries1` in
//! the same way. It leads to a check for black holes of long packets, since there is no other next
//! hop to try.

use super::rto_bounds::RtoBounds;
use super::view::ConnView;
use crate::config::Config;
use crate::time::{Instant, Nanos};

/// The first of the timeouts from which the time follows.
const FIRST_TIMEOUT: Nanos = Nanos::from_millis(200);

/// Timeouts of an orphan if `tcp_orphan_retries` is 0.
const ORPHAN_RETRIES: u8 = 8;

/// How long timeouts that double from `first` to `most` take until the `last`, counted from 0, is
/// over.
pub(crate) fn time_of_timeouts(first: Nanos, last: u8, most: Nanos) -> Nanos {
    let mut timeout = first.min(most);
    let mut sum = Nanos::ZERO;
    for _ in 0..=last {
        sum += timeout;
        timeout = (timeout * 2).min(most);
    }
    sum
}

/// Whether the connection is over: the timer has fired again at `now`, `trying` after the first
/// retransmission or timeout, and the timeout is `rto`, within `bounds`.
pub(super) fn is_over(
    conn: &ConnView,
    (now, trying): (Instant, Nanos),
    (rto, bounds): (Nanos, RtoBounds),
    config: &Config,
) -> bool {
    let peer = &conn.peer;
    let heard = now.nanos_since(peer.last_heard) <= bounds.max;
    if conn.wnd == 0 && !peer.orphan && heard {
        return false;
    }
    let limit = match peer.user_timeout {
        Some(timeout) => timeout,
        None if peer.orphan => {
            let slowest = rto >= bounds.max;
            let retries = orphan_retries(peer.soft_error, slowest, config);
            time_of_timeouts(FIRST_TIMEOUT, retries, bounds.max)
        }
        None => time_of_timeouts(FIRST_TIMEOUT, config.tcp_retries2, bounds.max),
    };
    trying >= limit
}

/// Whether retransmission has lasted for R1 (RFC 9293, section 3.8.3), which is `tcp_retries1` as
/// R2 is `tcp_retries2`.
pub(super) fn passed_r1(trying: Nanos, bounds: RtoBounds, config: &Config) -> bool {
    trying >= time_of_timeouts(FIRST_TIMEOUT, config.tcp_retries1, bounds.max)
}

/// Timeouts that an orphan is allowed. `slowest` if the timeout is as long as it may be.
fn orphan_retries(soft_error: bool, slowest: bool, config: &Config) -> u8 {
    match config.tcp_orphan_retries {
        _ if soft_error && slowest => 0,
        0 if slowest => 0,
        0 => ORPHAN_RETRIES,
        retries => retries,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::conn_view;
    use super::super::view::PeerView;
    use super::*;

    #[test]
    fn the_time_of_timeouts() {
        let config = Config::default();
        let cases = [(0, 200), (3, 3_000), (8, 102_200), (15, 924_600)];
        for (last, millis) in cases {
            let time = time_of_timeouts(
                Nanos::from(config.tcp_rto_min),
                last,
                Nanos::from(config.tcp_rto_max),
            );
            assert_eq!(time.as_millis(), millis, "{last}");
        }
    }

    #[test]
    fn who_is_given_up() {
        let config = Config::default();
        let now = Instant::from_millis(10_000_000);
        let rto = Nanos::from(config.tcp_rto_max);
        let old = PeerView { last_heard: Instant::ZERO, ..PeerView::default() };
        let fresh = PeerView { last_heard: now, ..old };
        let timed = PeerView { user_timeout: Some(Nanos::from_secs(7)), ..old };
        let orphan = PeerView { orphan: true, ..old };
        let soft = PeerView { soft_error: true, ..orphan };
        // The peer, its window, the RTO in seconds, milliseconds of trying that are too long.
        let cases = [
            (old, 1000, 1, Some(924_600), "tcp_retries2"),
            (fresh, 0, 1, None, "a closed window"),
            (old, 0, 1, Some(924_600), "a closed window of a peer that is silent"),
            (timed, 1000, 1, Some(7000), "the user timeout"),
            (orphan, 1000, 1, Some(102_200), "an orphan"),
            (PeerView { last_heard: now, ..orphan }, 0, 1, Some(102_200), "with a closed window"),
            (orphan, 1000, 120, Some(200), "an orphan whose timeout is at its bound"),
            (soft, 1000, 1, Some(102_200), "a soft error"),
            (soft, 1000, 120, Some(200), "a soft error and the bound"),
        ];
        for (peer, wnd, secs, limit, name) in cases {
            let conn = ConnView { peer, wnd, ..conn_view() };
            let rto = rto.min(Nanos::from_secs(secs));
            let bounds = RtoBounds::of_settings(&config);
            let over = |millis| {
                let trying = Nanos::from_millis(millis);
                is_over(&conn, (now, trying), (rto, bounds), &config)
            };
            match limit {
                Some(limit) => assert!(over(limit) && !over(limit - 1), "{name}"),
                None => assert!(!over(5_000_000), "{name}"),
            }
        }
        let config = Config { tcp_orphan_retries: 2, ..config };
        assert_eq!(orphan_retries(false, true, &config), 2);
        assert_eq!(orphan_retries(true, true, &config), 0);
    }
}
