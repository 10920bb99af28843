//! Tests of the simulator from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod errors;
mod plans;
mod programs;
mod reordering;
mod runs;
