//! Worlds by number: two worlds that may not differ, and the inputs that once found something.

mod script;

use std::fs;
use std::path::Path;

use plimsoll_worlds::engine::{Input, Setting, Step, World};

use script::script;

/// Scripts that two worlds run, unless `PLIMSOLL_SCRIPTS` names another number.
const SCRIPTS: u64 = 250;

/// Scripts within which the effect of a setting is seen.
const ENOUGH: u64 = 300;

/// Runs a script in two worlds. Returns where they differ, and how. `skew` changes the second one.
fn difference(input: &Input, skew: impl Fn(&mut World)) -> Option<String> {
    let [mut plain, mut varied] = World::pair(&input.setup);
    skew(&mut varied);
    for (number, step) in input.steps.iter().enumerate() {
        plain.step(step);
        varied.step(step);
        let (plain, varied) = (plain.observed(), varied.observed());
        if plain != varied {
            let (plain, varied) = (format!("{plain:#?}"), format!("{varied:#?}"));
            let lines = plain.lines().zip(varied.lines()).filter(|(plain, varied)| plain != varied);
            return Some(format!("step {number}, {step:?}: {:#?}", lines.collect::<Vec<_>>()));
        }
    }
    None
}

/// Explaining packets and releasing memory run through all of a connection's state. They may change
/// nothing that can be observed: no packet, deadline, event, report, figure or counter.
#[test]
fn explanations_and_early_release_change_nothing() {
    let scripts = std::env::var("PLIMSOLL_SCRIPTS").map(|number| number.parse().expect("a number"));
    for seed in 0..scripts.unwrap_or(SCRIPTS) {
        let found = difference(&script(seed), |_| {});
        assert!(found.is_none(), "script {seed}, {}", found.unwrap_or_default());
    }
}

/// The comparison is not blind: a mechanism that is off in one world is seen.
#[test]
fn the_effect_of_each_mechanism_is_seen() {
    let mechanisms = [
        Setting::Autocorking(false),
        Setting::TsoDefer(false),
        Setting::TsoTail(0),
        Setting::LimitOutput(12),
        Setting::CompressedSack(0, false),
        Setting::Pingpong(0),
        Setting::Recovery(5, 0, 0),
        Setting::Dsack(false),
        Setting::SlowStartAfterIdle(false),
    ];
    for setting in mechanisms {
        let seen = (0..ENOUGH).any(|seed| {
            difference(&script(seed), |world| world.step(&Step::Set(setting))).is_some()
        });
        assert!(seen, "{setting:?} makes no difference");
    }
}

/// The inputs in `fuzz/seeds`: some found a fault once, the others reach as much code as possible.
#[test]
fn inputs_of_the_fuzz_targets_pass() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    for (target, run) in plimsoll_worlds::TARGETS {
        let entries = fs::read_dir(seeds.join(target)).expect("the target has seeds");
        for entry in entries {
            let path = entry.expect("an entry").path();
            // A failure shows which input it was.
            println!("{}", path.display());
            run(&fs::read(path).expect("a file"));
        }
    }
}
