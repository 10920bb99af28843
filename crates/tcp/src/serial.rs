//! Numbers of packets that are handed down.

/// Numbers the data packets that a connection hands down, from 1. Zero is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub u64);
