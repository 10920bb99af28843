//! The sizes of a connection's types.

use crate::congestion::Controller;
use crate::connection::Connection;
use crate::recv::RecvSide;
use crate::segment::{Segment, Transmit};
use crate::send::SendSide;
use crate::send::flight::Flight;
use crate::send::flight::scoreboard::{Scoreboard, SentRange};
use crate::timer::TimerTable;

macro_rules! sizes {
    ($($name:ident),+ $(,)?) => { [$((stringify!($name), size_of::<$name>())),+] };
}

/// Types with their sizes, whole before parts.
static SIZES: [(&str, usize); 10] = sizes![
    Connection, SendSide, RecvSide, Flight, Controller, Scoreboard, TimerTable, SentRange, Segment,
    Transmit,
];

/// Names of the types in a connection, and their sizes in bytes. They differ between versions and
/// between targets.
pub fn type_sizes() -> &'static [(&'static str, usize)] {
    &SIZES
}
