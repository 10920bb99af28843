//! Tests of the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod behind;
mod cli;
mod schema;
mod sim;
