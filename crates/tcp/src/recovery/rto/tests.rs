use super::*;
use crate::time::Instant;
use plimsoll_wire::SeqNum;

const RTT: Duration = Duration::from_millis(100);

#[test]
fn the_timeout_doubles_up_to_its_bound() {
    let config = Config::default();
    let mut recovery = Recovery::new(&config);
    let bounds = (SeqNum(0), SeqNum(1));
    recovery.rtt.on_sample(RTT, RTT, Instant::ZERO, bounds, &config);
    let expected = [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 76_800, 120_000, 120_000];
    for ms in expected {
        assert_eq!(recovery.rto(&config), Duration::from_millis(ms));
        recovery.back_off();
    }
    for _ in 0..300 {
        recovery.back_off();
    }
    assert_eq!(recovery.rto(&config), Duration::from_secs(120));
}

#[test]
fn the_time_of_retries_is_what_linux_documents() {
    let config = Config::default();
    // ip-sysctl: "the default value of 15 yields a hypothetical timeout of 924.6 seconds".
    assert_eq!(time_of_retries(15, &config), Duration::from_millis(924_600));
    assert_eq!(time_of_retries(0, &config), Duration::from_millis(200));
    assert_eq!(time_of_retries(3, &config), Duration::from_millis(3_000));
}
