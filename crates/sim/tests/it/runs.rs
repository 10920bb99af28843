//! Runs of whole scenarios.

use plimsoll_sim::swarm::SwarmConfig;
use plimsoll_sim::{RunConfig, Scenario, draw, run, shrink, swarm};

const ONE_FLOW: &str = r#"
limit = "120s"
faults_until = "5s"

[[host]]
name = "a"

[[host]]
name = "b"

[[link]]
between = ["a", "b"]
forward = { rate = "10mbit", delay = "20ms" }

[[flow]]
from = "a"
to = "b"
up = 1000000
down = 1000
"#;

#[test]
fn a_clean_path_carries_a_flow_at_its_rate() {
    let scenario = Scenario::parse(ONE_FLOW).unwrap();
    let outcome = run(&scenario, 1, &RunConfig::default()).unwrap();
    assert_eq!(outcome.violation, None);
    assert_eq!(outcome.bytes, 1_001_000);
    assert!(outcome.packets > 1_000 && outcome.faults.is_empty());
}

#[test]
fn a_seed_gives_the_same_run_and_another_gives_another() {
    let traces: Vec<u64> =
        [3, 3, 4].map(|seed| run(&draw(seed), seed, &RunConfig::default()).unwrap().trace).to_vec();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
}

#[test]
fn a_list_of_faults_gives_the_run_of_the_dice_again() {
    let mut compared = 0;
    for seed in 0..12 {
        let drawn = draw(seed);
        let first = run(&drawn, seed, &RunConfig::default()).unwrap();
        let listed = drawn.recorded(seed, &first);
        // It survives a file.
        let read = Scenario::parse(&listed.to_toml()).unwrap();
        assert_eq!(read, listed);
        let again = run(&read, seed, &RunConfig::default()).unwrap();
        assert_eq!((again.trace, again.faults.len()), (first.trace, first.faults.len()), "{seed}");
        compared += first.faults.len();
    }
    assert!(compared > 100, "{compared} faults");
}

#[test]
fn a_swarm_holds_and_does_not_depend_on_its_jobs() {
    let one = swarm(&SwarmConfig::new(0..20).twice(true)).unwrap();
    assert!(one.failures.is_empty(), "{:#?}", one.failures);
    let two = swarm(&SwarmConfig::new(0..20).jobs(2)).unwrap();
    assert_eq!((one.trace, one.packets, one.events), (two.trace, two.packets, two.events));
    assert!(swarm(&SwarmConfig::new(7..7)).unwrap_err().contains("7..7"));
}

/// Scenarios that broke a rule which was too strict: what the stack does in them is what a kernel
/// does.
#[test]
fn rules_hold_where_they_were_too_strict() {
    for (seed, scenario) in [
        // Two reductions of which one ACK ends the first and begins the second.
        (27_040, draw::plain(27_040)),
        // Packets that outlive their connection, whose chunks are large.
        (29_194, draw::plain(29_194)),
        (4104, draw(4104)),
        // A tail loss probe of new data.
        (5175, draw(5175)),
        (6565, draw(6565)),
        (7741, draw(7741)),
        // A Recovery without SACK that is undone and stays, and one that follows an undo.
        (73_550, draw(73_550)),
        (90_662, draw(90_662)),
        (41_047, draw(41_047)),
        // An answer from TIME-WAIT passes ACKs that wait for their departure.
        (71_312, draw(71_312)),
        // Without SACK and timestamps, a timeout of two minutes for every few segments.
        (6104, draw(6104)),
        (12_323, draw(12_323)),
        (47_572, draw(47_572)),
        // A queue that another flow keeps full has no place for what an orphan sends again.
        (80_487, draw(80_487)),
    ] {
        let outcome = run(&scenario, seed, &RunConfig::default()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
    }
}

/// The ACK of what came before a mark said a later edge than was promised.
#[test]
fn no_edge_of_a_window_goes_back() {
    for seed in [28_253, 40_633, 47_196, 53_336, 54_981, 60_367, 73_056] {
        let outcome = run(&draw(seed), seed, &RunConfig::default()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
    }
}

/// RFC 7661 is no setting that scenarios draw: the same ones, with it.
#[test]
fn invariants_hold_with_rfc_7661() {
    for seed in 0..24 {
        let mut scenario = draw(seed);
        for host in &mut scenario.host {
            host.sysctl.insert("plimsoll.tcp_rfc7661".to_owned(), "1".to_owned());
        }
        let outcome = run(&scenario, seed, &RunConfig::default()).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.packets > 0);
    }
}

/// A flow that cannot finish in time fails, and shrinks to one that has nothing else.
#[test]
fn what_fails_is_shrunk() {
    let mut scenario = draw(1);
    scenario.limit = core::time::Duration::from_secs(2);
    scenario.faults_until = scenario.limit;
    scenario.event.retain(|event| event.at < scenario.limit);
    scenario.flow.truncate(1);
    (scenario.flow[0].start, scenario.flow[0].up) = (core::time::Duration::ZERO, 1 << 30);
    let shrunk = shrink(&scenario, 1, 60).unwrap().expect("it fails");
    assert!(shrunk.runs <= 60);
    assert!(shrunk.scenario.fault.len() <= 1, "{} faults", shrunk.scenario.fault.len());
    let again = run(&shrunk.scenario, 1, &RunConfig::default()).unwrap();
    assert_eq!(again.violation, Some(shrunk.violation));
}

#[test]
fn a_capture_is_written_for_each_host() {
    let folder = std::env::temp_dir().join(format!("plimsoll-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let scenario = Scenario::parse(ONE_FLOW).unwrap();
    let outcome = run(&scenario, 1, &RunConfig::capture_into(&folder)).unwrap();
    assert_eq!(outcome.violation, None);
    let sizes = ["a", "b"].map(|name| folder.join(format!("{name}.pcapng")).metadata());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(sizes.into_iter().all(|size| size.unwrap().len() > 1_000_000));
}
