//! A script: how a connection begins, and what happens to it. It knows nothing of an engine.

mod generate;
mod moves;
mod source;
mod step;

use crate::engine::{Opt, Setting};
pub use source::Source;
pub use step::{Ack, App, Arrive, BelowStep, Data, Odd, Place, Shape, Step, Time};

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opening {
    /// We connect.
    Active,
    /// We connect, and the peer does as well.
    Simultaneous,
    /// The peer connects.
    Passive,
    /// The peer's ACK brings a SYN cookie back.
    Cookie,
    /// We connect with Fast Open.
    FastOpen,
    /// The peer connects with Fast Open.
    FastOpenPassive,
}

impl Opening {
    /// All of them.
    pub const ALL: [Opening; 6] = [
        Opening::Active,
        Opening::Simultaneous,
        Opening::Passive,
        Opening::Cookie,
        Opening::FastOpen,
        Opening::FastOpenPassive,
    ];
}

/// What the peer is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerSetup {
    /// Its initial sequence number.
    pub iss: u32,
    /// The MSS that it announces.
    pub mss: Option<u16>,
    /// The window shift that it announces.
    pub wscale: Option<u8>,
    /// It offers SACK.
    pub sack: bool,
    /// It offers timestamps.
    pub timestamps: bool,
    /// Its clock for them, at the start.
    pub clock: u32,
    /// It offers ECN.
    pub ecn: bool,
    /// Its first window, in bytes.
    pub window: u32,
    /// Bytes of data in its SYN or SYN-ACK (Fast Open).
    pub syn_data: u16,
    /// Fast Open: 0 without a cookie, 1 with one, 2 with one in the experimental form.
    pub cookie: u8,
    /// It does not take the data of a SYN.
    pub refuses_syn_data: bool,
}

/// What is chosen before the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How the connection begins.
    pub opening: Opening,
    /// Settings that are not the defaults.
    pub settings: Vec<(Setting, u64)>,
    /// Options that are set before the open.
    pub options: Vec<(Opt, u64)>,
    /// Our initial sequence number.
    pub iss: u32,
    /// The offset of our timestamps.
    pub ts_offset: u32,
    /// The MTU of the path.
    pub mtu: u16,
    /// Over IPv6.
    pub v6: bool,
    /// Most payload bytes of a packet.
    pub max_super_segment: u32,
    /// Something below tells of completions.
    pub completions: bool,
    /// Something below keeps departure times.
    pub keeps_departures: bool,
    /// Somebody below takes notes.
    pub takes_notes: bool,
    /// The peer.
    pub peer: PeerSetup,
    /// The time at the start, in microseconds.
    pub start: u32,
    /// The round trip, in microseconds.
    pub rtt: u32,
}

/// A connection and what happens to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The beginning.
    pub setup: Setup,
    /// What happens then.
    pub steps: Vec<Step>,
}

impl Script {
    /// The script with this number.
    pub fn from_seed(seed: u64) -> Script {
        generate::script(&mut Source::Seed(seed.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// The script that these bytes say.
    pub fn from_bytes(bytes: &[u8]) -> Script {
        generate::script(&mut Source::Bytes(bytes))
    }
}
