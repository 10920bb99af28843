//! The tests by name.

mod bad_input;
mod behaviour;
mod browser;
mod captures;
mod explain;
mod http;
mod lab;
mod link;
mod many;
mod program;
mod routed;
mod run;
mod serve;
pub(crate) mod stalls;

pub(crate) use many::idle_bytes;

use crate::harness::runner::Case;

/// Every test, in the order in which they are listed.
pub(crate) fn all() -> Vec<Case> {
    let groups: [&[Case]; 23] = [
        http::CASES,
        serve::CASES,
        captures::CASES,
        explain::CASES,
        behaviour::CASES,
        many::CASES,
        bad_input::CASES,
        routed::CASES,
        program::CASES,
        run::CASES,
        run::calls::CASES,
        run::programs::CASES,
        run::reasons::CASES,
        run::ways::CASES,
        run::rules::CASES,
        run::top::CASES,
        run::weather::CASES,
        run::attacks::CASES,
        run::attach::CASES,
        link::CASES,
        stalls::CASES,
        lab::CASES,
        browser::CASES,
    ];
    groups.into_iter().flatten().copied().collect()
}
