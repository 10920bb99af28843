//! One script for two versions of the TCP engine, compared after every step.
//!
//! [`script`] makes scripts from a seed or from a fuzzer's bytes and knows no engine; [`peer`] is
//! the other end; [`duel`] drives two engines through one script; [`known`] lists what is meant to
//! differ.

pub mod duel;
pub mod engine;
pub mod known;
pub mod peer;
mod program;
pub mod reach;
pub mod script;
mod shrink;
mod tally;

pub use program::{judge, program};
pub use shrink::{Looking, listing, report, run, said, shrink};
