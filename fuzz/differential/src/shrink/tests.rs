//! The comparison finds what is different, and nothing else.

use super::*;
use crate::engine::Setting;
use crate::script::Source;

/// Settings that no connection looks at: the stack does, the owner of a batch, or nobody.
const WITHOUT_EFFECT: [Setting; 3] =
    [Setting::AbortOnOverflow, Setting::BacklogAckDefer, Setting::CompSackSlack];

/// Scripts within which the effect of a setting is seen.
const ENOUGH: u64 = 6000;

fn skewed(script: &Script, setting: Setting, value: u64) -> Option<Difference> {
    let mut reach = Reach::default();
    let duel = Duel::new(&script.setup, &mut reach, None).skewed(setting, value);
    match duel.run(script) {
        Err(Stop::Differ(difference)) => Some(*difference),
        _ => None,
    }
}

#[test]
fn the_effect_of_each_setting_is_seen() {
    let mut unexpected = Vec::new();
    for &setting in Setting::ALL {
        let (_, others) = setting.values().split_first().expect("there are values");
        let seen = (0..ENOUGH).find(|&seed| {
            let script = Script::from_seed(seed);
            let value = others[seed as usize % others.len()];
            skewed(&script, setting, value).is_some()
        });
        if seen.is_none() != WITHOUT_EFFECT.contains(&setting) {
            unexpected.push((setting, seen));
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[test]
fn what_must_not_matter_does_not() {
    for seed in 0..500 {
        let found =
            run(&Script::from_seed(seed), Looking::Differences, &mut Reach::default(), None);
        assert!(found.is_none(), "{seed}: {found:?}");
    }
}

#[test]
fn an_engine_without_a_mechanism_differs_from_itself() {
    let mechanisms = [
        (Setting::Autocorking, 0),
        (Setting::TsoDefer, 0),
        (Setting::TsoTail, 0),
        (Setting::LimitOutputBytes, 6000),
        (Setting::CompSackNr, 0),
        (Setting::Frto, 0),
        (Setting::EarlyRetrans, 0),
        (Setting::Recovery, 4),
        (Setting::Dsack, 0),
    ];
    for (setting, value) in mechanisms {
        let differs = (0..ENOUGH).map(Script::from_seed).any(|script| {
            let told = script.setup.settings.iter().any(|(other, _)| *other == setting);
            !told && skewed(&script, setting, value).is_some()
        });
        assert!(differs, "{setting:?} = {value} is not seen");
    }
}

#[test]
fn a_script_that_differs_becomes_short() {
    let differs = |script: &Script| skewed(script, Setting::Autocorking, 0);
    let script = (0..ENOUGH)
        .map(Script::from_seed)
        .find(|script| differs(script).is_some() && script.steps.len() > 20)
        .expect("a long script in which automatic corking matters");
    let (short, difference) = shrink_by(&script, &mut { differs });
    assert!(short.steps.len() <= 8, "{:?}", short.steps);
    assert_eq!(differs(&short).map(|found| found.what), Some(difference.what));
}

#[test]
fn a_number_is_a_script_and_bytes_are_one_too() {
    assert_eq!(Script::from_seed(7), Script::from_seed(7));
    assert_ne!(Script::from_seed(7), Script::from_seed(8));
    let bytes: Vec<u8> = (0..400_u32).map(|n| ((n * 37) >> 2) as u8).collect();
    let script = Script::from_bytes(&bytes);
    assert!(script.steps.len() > 3);
    assert!(run(&script, Looking::Failures, &mut Reach::default(), None).is_none());
    assert!(!Source::Bytes(&[]).once_in(2), "what has ended chooses what is usual");
}

#[test]
fn of_many_packets_in_a_row_a_listing_has_the_first() {
    let lines: Vec<String> = (0..20).map(|n| format!("0.1   > {n}")).collect();
    let short = shortened(&lines);
    assert_eq!((short.len(), short[6].trim()), (7, "..."));
}
