//! One script for two connections, of which one does otherwise what must not matter, compared after
//! every step.
//!
//! [`script`] makes scripts from a seed or from a fuzzer's bytes and knows no engine; [`peer`] is
//! the other end; [`duel`] drives both connections through one script.

pub mod duel;
pub mod engine;
pub mod peer;
mod program;
pub mod reach;
pub mod script;
mod shrink;
mod tally;

pub use program::{judge, program};
pub use shrink::{Looking, listing, report, run, said, shrink};
