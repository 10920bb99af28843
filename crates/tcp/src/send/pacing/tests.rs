//! Rates and departure times.

use super::*;

#[test]
fn rates() {
    let pace = Pace {
        cwnd: 10_000,
        ssthresh: u32::MAX,
        in_flight: 0,
        srtt: Nanos::from_millis(10),
        ratios: (200, 120),
    };
    let cases = [
        (pace, 2_000_000, "two windows per round trip"),
        (Pace { ssthresh: 20_000, ..pace }, 1_200_000, "less near the end of slow start"),
        (Pace { ssthresh: 20_002, ..pace }, 2_000_000, "not yet"),
        (Pace { in_flight: 20_000, ..pace }, 4_000_000, "what is in flight counts"),
        (Pace { ratios: (100, 100), ..pace }, 1_000_000, "the settings"),
        (Pace { srtt: Nanos::ZERO, ..pace }, u64::MAX, "nothing is known"),
        (Pace { cwnd: u32::MAX, ..pace }, 515_396_075_400, "no overflow"),
    ];
    for (pace, rate, name) in cases {
        assert_eq!(pace.rate(), rate, "{name}");
    }
}

#[test]
fn departures() {
    let at = Instant::from_millis(100);
    let ms = Nanos::from_millis;
    // How late, bytes, rate, when the next one may leave.
    let cases = [
        (ms(0), 1000, 100_000, 110, "as long as the bytes take"),
        (ms(3), 1000, 100_000, 107, "what came late has credit"),
        (ms(30), 1000, 100_000, 105, "of half its time at most"),
        (ms(0), 1000, u64::MAX, 100, "no limit"),
        (ms(0), 1000, 0, 100, "no rate"),
    ];
    for (late, len, rate, next, name) in cases {
        assert_eq!(next_departure(at, late, len, rate), Instant::from_millis(next), "{name}");
    }
}
