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
fn the_minimum_is_forgotten_after_some_minutes() {
    let config = Config::default();
    let mut rtt = Rtt::new();
    let bounds = (SeqNum(0), SeqNum(1));
    rtt.on_sample(millis(10), millis(10), Instant::from_millis(0), bounds, &config);
    rtt.on_sample(millis(30), millis(30), Instant::from_millis(299_000), bounds, &config);
    assert_eq!(rtt.min(), Some(millis(10)));
    rtt.on_sample(millis(30), millis(30), Instant::from_millis(300_001), bounds, &config);
    assert_eq!(rtt.min(), Some(millis(30)));
}

#[test]
fn a_lost_syn_makes_the_first_timeout_three_seconds() {
    let mut rtt = Rtt::new();
    rtt.on_syn_lost();
    assert_eq!(rtt.rto(&Config::default()), Duration::from_secs(3));
}
