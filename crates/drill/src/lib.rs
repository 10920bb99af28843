//! Runs packetdrill scripts.
//!
//! # Theory of operation
//!
//! [`lang`] turns a script into a list of events, each with a time and a place in the text. The
//! runner lets the events happen in order on a [`Host`](host::Host): the embedded stack with a
//! virtual clock, where a second passes in microseconds and every run is the same, or the kernel
//! of this machine, which is the oracle. Calls are made, packets are injected, and what comes out
//! is compared with what the script says.

#![deny(unsafe_code)]

pub mod config;
pub mod embedded;
pub mod expr;
pub mod failure;
pub mod host;
pub mod kernel;
pub mod lang;
pub mod packet;
pub mod raw;
pub mod report;
pub mod run;
pub mod shell;
pub mod suite;
pub mod symbols;
