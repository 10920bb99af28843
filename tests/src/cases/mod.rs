//! The tests by name.

mod bad_input;
mod behaviour;
mod captures;
mod http;
mod many;
mod program;

pub(crate) use many::idle_bytes;

use crate::harness::runner::Case;

/// Every test, in the order in which they are listed.
pub(crate) fn all() -> Vec<Case> {
    let groups: [&[Case]; 6] = [
        http::CASES,
        captures::CASES,
        behaviour::CASES,
        many::CASES,
        bad_input::CASES,
        program::CASES,
    ];
    groups.into_iter().flatten().copied().collect()
}
