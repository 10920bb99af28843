//! Numbers of packets that are passed down.

/// The number of a data packet that a connection passes down, from 1. Zero is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub u64);
