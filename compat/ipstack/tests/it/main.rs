//! Tests of the facade.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod complaints;
mod input;
