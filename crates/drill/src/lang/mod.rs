//! The packetdrill language: what a script says, and how it is read.

pub mod ast;
