use plimsoll_tcp::Duration;

use super::*;
use crate::link::LinkConfig;
use crate::scenario::{Event, Flow, Happening, Host, LinkPair};

/// One flow of `bytes` bytes over 20 Mbit/s and 20 ms.
fn one_flow(bytes: u64) -> Scenario {
    let second = Duration::from_secs(1);
    let mut scenario = Scenario::new(60 * second, 5 * second);
    scenario.host = vec![Host::new("a"), Host::new("b")];
    let link = LinkConfig::default().rate(Some(20_000_000)).delay(second / 50);
    scenario.link = vec![LinkPair::new(["a", "b"], link)];
    scenario.flow = vec![Flow::new("a", "b", bytes, 0)];
    scenario
}

#[test]
fn a_planted_leak_exceeds_the_bound_of_memory() {
    let (scenario, config) = (one_flow(20_000_000), RunConfig::default());
    for (leaks, rule) in [(false, None), (true, Some("memory is bounded"))] {
        let programs = Programs::new();
        let mut world = World::new(&scenario, 1, &config, &programs).unwrap();
        world.leaked = leaks.then(Vec::new);
        world.run();
        let violation = world.violation.take();
        assert_eq!(violation.as_ref().map(|found| found.rule.as_str()), rule, "{violation:?}");
        // It is seen while it grows, and not when all is over.
        let seen = violation.map_or(Duration::ZERO, |found| found.at);
        assert!(seen < Duration::from_secs(6), "{seen:?}");
    }
}

/// Nobody has told the sender what the rule takes for told.
#[test]
fn a_packet_that_is_longer_than_a_router_takes_is_seen() {
    let (scenario, config) = (one_flow(100_000), RunConfig::default());
    let programs = Programs::new();
    for (mtu, rule) in [(1500, None), (1499, Some("a packet is no longer than a router takes"))] {
        let mut world = World::new(&scenario, 1, &config, &programs).unwrap();
        world.watch.tell(0, mtu, START);
        world.run();
        let violation = world.violation.take();
        assert_eq!(violation.as_ref().map(|found| found.rule.as_str()), rule, "{violation:?}");
    }
}

/// The time for which an application pauses ends while its host is stopped, and nothing else is due
/// when that goes on.
#[test]
fn an_application_goes_on_with_its_host() {
    let second = Duration::from_secs(1);
    let mut scenario = one_flow(1_000_000);
    scenario.faults_until = 5 * second;
    scenario.flow[0].client.stall = 4 * second;
    // What is written is smaller than the buffer, so that the pause begins in the middle.
    scenario.flow[0].client.write = 1000;
    let what = Happening::Stall { host: "a".to_owned(), time: 2 * second };
    scenario.event = vec![Event { at: 3 * second, what }];
    let programs = Programs::new();
    let config = RunConfig::default();
    let mut world = World::new(&scenario, 1, &config, &programs).unwrap();
    world.run();
    assert!(world.violation.is_none(), "{:?}", world.violation);
    assert!(world.now >= START + scenario.faults_until);
}

#[test]
fn a_measured_run_is_the_same_run() {
    let mut scenario = one_flow(5_000_000);
    scenario.faults_until = Duration::from_secs(1);
    let plain = run(&scenario, 3, &RunConfig::default()).unwrap();
    let measured = run(&scenario, 3, &RunConfig::measuring(100)).unwrap();
    assert_eq!((plain.trace, plain.violation), (measured.trace, measured.violation));
    let series = measured.series.unwrap();
    let count = series.flows[0].cwnd.len();
    assert!((50..=100).contains(&count), "{count}");
    assert!(series.queues.iter().all(|queue| queue.bytes.len() == count));
    assert_eq!(series.queues.len(), 2);
    let most = |column: &[u64]| column.iter().copied().max().unwrap();
    let flow = &series.flows[0];
    assert!(most(&flow.cwnd) > 50 && most(&flow.in_flight) <= most(&flow.cwnd) + 3);
    assert!((40_000..1_000_000).contains(&most(&flow.rtt_us)), "{}", most(&flow.rtt_us));
    assert!(most(&flow.pacing_rate) > 20_000_000);
    let up = &measured.flows[0].up;
    assert_eq!((up.bytes, measured.flows[0].finished), (5_000_000, true));
    assert!(up.segments >= 5_000_000 / 1460 && up.last_read.unwrap() > Duration::from_secs(2));
    assert_eq!(measured.links.len(), 2);
}

#[test]
fn a_measurement_may_end_before_its_flows() {
    let mut scenario = one_flow(1 << 40);
    scenario.limit = Duration::from_secs(3);
    scenario.faults_until = scenario.limit;
    let outcome = run(&scenario, 3, &RunConfig::measuring(10)).unwrap();
    assert_eq!(outcome.violation, None);
    let up = &outcome.flows[0].up;
    assert!(!outcome.flows[0].finished && up.bytes > 5_000_000, "{up:?}");
    let unfinished = run(&scenario, 3, &RunConfig::default()).unwrap().violation.unwrap();
    assert_eq!(unfinished.rule, "every flow finishes");
}
