//! Runs packetdrill scripts.
//!
//! # Theory of operation
//!
//! [`lang`] turns a script into a list of events, each with a time and a place in the text. The
//! runner lets the events happen in order on a [`Host`](host::Host): the embedded stack with a
//! virtual clock, where a second passes in microseconds and every run is the same, or the kernel
//! of this machine, which is the oracle. Calls are made, packets are injected, and what comes out
//! is compared with what the script says.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | what a script says, and how it is read | `lang/` |
//! | what happens at which time | `run/mod.rs`, `run/time.rs` |
//! | what a call becomes, and what of its result is looked at | `run/prepare.rs`, `run/calls.rs` |
//! | how numbers of a script become numbers on the wire | `run/flow.rs`, `run/packets.rs` |
//! | when a packet matches | `run/compare.rs` |
//! | what is understood of Python and of the shell | `expr/`, `shell/` |
//! | what a script runs on | `embedded/`, `kernel/` |
//! | what a socket call does on the embedded stack | `posix/` |
//! | messages, JSON, JUnit | `report/` |
//!
//! A script may be hostile: time, memory and steps are bounded, and nothing of it reaches this
//! machine except scratch files under names of our own.

#![deny(unsafe_code)]

pub mod config;
pub mod embedded;
pub mod expr;
pub mod failure;
pub mod host;
pub mod kernel;
pub mod lang;
pub mod packet;
pub mod posix;
pub mod raw;
pub mod report;
pub mod run;
pub mod shell;
pub mod suite;
pub mod symbols;
pub mod transcript;
