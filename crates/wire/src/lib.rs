//! Wire formats: sequence numbers, headers, options and checksums.
//!
//! Parsing never panics, whatever the bytes hold: a parser returns a validated representation or an
//! error that says what was wrong. Emitting writes a representation into a caller's buffer.
#![no_std]
#![forbid(unsafe_code)]

pub mod tcp;

mod seq;

pub use seq::SeqNum;
