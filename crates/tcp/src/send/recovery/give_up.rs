//! Whether the peer is given up (RFC 9293 section 3.8.3, RFC 5482; section 11 of
//! docs/recovery.md).
//!
//! `tcp_retries2` is a number of timeouts, but what counts is the time that so many timeouts would
//! take if they began at `tcp_rto_min`. RFC 9293's R1 tells nobody: there is no next hop to look
//! for.

use super::view::ConnView;
use crate::config::Config;
use crate::time::{Duration, Instant};

/// Timeouts of an orphan if `tcp_orphan_retries` is 0.
const ORPHAN_RETRIES: u8 = 8;

/// How long timeouts that double from `first` to `tcp_rto_max` take until the `last`, counted from
/// 0, is over.
pub(crate) fn time_of_timeouts(first: Duration, last: u8, config: &Config) -> Duration {
    let mut timeout = first.min(config.tcp_rto_max);
    let mut sum = Duration::ZERO;
    for _ in 0..=last {
        sum += timeout;
        timeout = (timeout * 2).min(config.tcp_rto_max);
    }
    sum
}

/// Whether the connection is over: the timer has fired again at `now`, `trying` after the first
/// retransmission or timeout, and the timeout is `rto`.
pub(super) fn is_over(
    conn: &ConnView,
    now: Instant,
    trying: Duration,
    rto: Duration,
    config: &Config,
) -> bool {
    let peer = &conn.peer;
    let heard = now.since(peer.last_heard) <= config.tcp_rto_max;
    if conn.wnd == 0 && !peer.orphan && heard {
        return false;
    }
    let limit = match peer.user_timeout {
        Some(timeout) => timeout,
        None if peer.orphan => {
            let retries = orphan_retries(peer.soft_error, rto, config);
            time_of_timeouts(config.tcp_rto_min, retries, config)
        }
        None => time_of_timeouts(config.tcp_rto_min, config.tcp_retries2, config),
    };
    trying >= limit
}

/// Timeouts that an orphan is allowed.
fn orphan_retries(soft_error: bool, rto: Duration, config: &Config) -> u8 {
    let slowest = rto >= config.tcp_rto_max;
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
            let time = time_of_timeouts(config.tcp_rto_min, last, &config);
            assert_eq!(time.as_millis(), millis, "{last}");
        }
    }

    #[test]
    fn who_is_given_up() {
        let config = Config::default();
        let now = Instant::from_millis(10_000_000);
        let rto = config.tcp_rto_max;
        let old = PeerView { last_heard: Instant::ZERO, ..PeerView::default() };
        let fresh = PeerView { last_heard: now, ..old };
        let timed = PeerView { user_timeout: Some(Duration::from_secs(7)), ..old };
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
            let rto = rto.min(Duration::from_secs(secs));
            let over = |millis| is_over(&conn, now, Duration::from_millis(millis), rto, &config);
            match limit {
                Some(limit) => assert!(over(limit) && !over(limit - 1), "{name}"),
                None => assert!(!over(5_000_000), "{name}"),
            }
        }
        let config = Config { tcp_orphan_retries: 2, ..config };
        assert_eq!(orphan_retries(false, config.tcp_rto_max, &config), 2);
        assert_eq!(orphan_retries(true, config.tcp_rto_max, &config), 0);
    }
}
