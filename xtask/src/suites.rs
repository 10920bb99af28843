//! The suites of `cargo xtask test` and `cargo xtask nightly`, in the order in which they run, each
//! with its budget.
//!
//! A suite that is over its budget fails by name. A budget is at least twice what the tests take on
//! two processors, so that it ends what hangs and not what is slow. It does not count builds and
//! fetches. The budgets of `test` add up to less than the ninety minutes that continuous
//! integration has. `docs/testing.md` holds this table, too, and a test compares the two.

use anyhow::Result;

use crate::steps::Session;
use crate::{drills, instructions};

/// One part of the whole.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// The minutes that it may take in `cargo xtask test`.
    pub(crate) minutes: u64,
    /// The minutes that its long form may take in `cargo xtask nightly`.
    pub(crate) long_minutes: u64,
    pub(crate) run: fn(&mut Session) -> Result<()>,
}

const fn suite(
    name: &'static str,
    minutes: u64,
    long_minutes: u64,
    run: fn(&mut Session) -> Result<()>,
) -> Suite {
    Suite { name, minutes, long_minutes, run }
}

/// Quick ones first. Those that build the same things stand together: `rustdoc` finds what `clippy`
/// has checked, `drill` and `interop` share the release build.
pub(crate) const SUITES: [Suite; 17] = [
    suite("prepare", 6, 20, Session::prepare),
    suite("tidy", 1, 1, Session::tidy),
    suite("format", 1, 1, Session::format),
    suite("licences", 3, 20, Session::licences),
    suite("clippy", 1, 3, Session::clippy),
    suite("rustdoc", 1, 2, Session::rustdoc),
    suite("unit", 8, 40, Session::unit),
    suite("outside", 8, 36, Session::outside),
    suite("targets", 1, 6, Session::targets),
    suite("publish", 1, 3, Session::publish),
    suite("loom", 5, 60, Session::loom),
    suite("miri", 5, 90, Session::miri),
    suite("drill", 5, 5, |s| drills::step(&s.root, &mut s.tally)),
    suite("sim", 4, 160, Session::sim),
    suite("interop", 11, 35, Session::interop),
    suite("instructions", 3, 3, instructions::step),
    suite("fuzz", 9, 125, Session::fuzz),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_has_an_end() {
        let all: u64 = SUITES.iter().map(|suite| suite.minutes).sum();
        assert!(all < 90, "{all} minutes");
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let text = include_str!("../../docs/testing.md");
        let rows: Vec<[&str; 3]> = text
            .lines()
            .skip_while(|line| !line.starts_with("| `"))
            .take_while(|line| line.starts_with("| `"))
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let number = |cell: usize| cells.get(cell).copied().unwrap_or_default();
                [number(1).trim_matches('`'), number(4), number(5)]
            })
            .collect();
        let table: Vec<[String; 3]> = SUITES
            .iter()
            .map(|suite| {
                [suite.name.into(), suite.minutes.to_string(), suite.long_minutes.to_string()]
            })
            .collect();
        assert_eq!(rows, table);
    }
}
