use super::*;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Feeds samples, one per round trip, and returns the estimator.
fn after(samples: &[u64]) -> Rtt {
    let config = Config::default();
    let mut rtt = Rtt::new();
    for (round, &ms) in samples.iter().enumerate() {
        let una = SeqNum(round as u32 * 10);
        let now = Instant::from_millis(1_000 * (round as u64 + 1));
        rtt.on_sample(millis(ms), millis(ms), now, (una, una + 5), &config);
    }
    rtt
}

#[test]
fn timeout_table() {
    let config = Config::default();
    // (samples, smoothed RTT, timeout; name)
    let table: [(&[u64], Option<u64>, u64, &str); 7] = [
        (&[], None, 1000, "before the first sample"),
        (&[100], Some(100), 300, "SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR"),
        (&[1], Some(1), 201, "the variance is never below the least RTO"),
        (&[1000], Some(1000), 3000, "a long path"),
        (&[100_000], Some(100_000), 120_000, "the upper bound"),
        (&[100, 100], Some(100), 300, "the variance stands for the first round trip"),
        (&[80, 400], Some(120), 560, "a rise counts at once"),
    ];
    for (samples, srtt, rto, name) in table {
        let rtt = after(samples);
        assert_eq!(rtt.srtt(), srtt.map(millis), "{name}");
        assert_eq!(rtt.rto(&config), millis(rto), "{name}");
    }
}

#[test]
fn a_steady_path_converges_to_the_least_timeout() {
    let rtt = after(&[100; 60]);
    assert_eq!(rtt.srtt(), Some(millis(100)));
    let rto = rtt.rto(&Config::default());
    assert!(rto >= millis(300) && rto < millis(301), "{rto:?}");
}

#[test]
fn a_falling_rtt_does_not_inflate_the_variance() {
    let mut samples = [100; 40];
    samples[39] = 10;
    let before = after(&samples[..39]);
    let fell = after(&samples);
    assert!(fell.rttvar() < before.rttvar() + millis(12), "{:?}", fell.rttvar());
    samples[39] = 190;
    let rose = after(&samples);
    assert!(rose.rttvar() > fell.rttvar());
}

#[test]
fn a_minimum_that_is_forgotten_gives_way_to_the_next_least() {
    let mut config = Config::default();
    for minutes in [5, 1] {
        config.tcp_min_rtt_wlen = Duration::from_secs(minutes * 60);
        let mut rtt = Rtt::new();
        let mut sample = |ms, second: u64| {
            let now = Instant::from_millis(second * 1000 * minutes / 5);
            rtt.on_sample(millis(ms), millis(ms), now, (SeqNum(0), SeqNum(1)), &config);
            rtt.min()
        };
        assert_eq!(sample(10, 0), Some(millis(10)));
        assert_eq!(sample(30, 100), Some(millis(10)));
        assert_eq!(sample(90, 300), Some(millis(10)));
        assert_eq!(sample(90, 301), Some(millis(30)), "not what came last");
    }
}

#[test]
fn a_lost_syn_makes_the_first_timeout_three_seconds() {
    let mut rtt = Rtt::new();
    rtt.on_syn_lost();
    assert_eq!(rtt.rto(&Config::default()), Duration::from_secs(3));
}
