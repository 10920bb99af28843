//! One or two connections in a small world.
//!
//! A world has two sides. In most inputs each side has a connection and the network between them
//! loses, repeats, delays and reorders what they send, whole or cut into wire segments. In some
//! only the first side has one. If the input is hostile, a forger that sees everything adds
//! segments whose numbers lie near those that the connections use.
//!
//! Oracles: the engine's own invariants after each call; what every packet that leaves must obey
//! (`oracle.rs`); the bytes that are read are those that were written; and, unless somebody forged
//! or aborted, once the network behaves again everything written arrives and every FIN is seen.

mod device;
mod forge;
mod oracle;
mod settings;
mod step;
mod world;

use arbitrary::Arbitrary;

pub use forge::Forgery;
pub use oracle::Seen;
pub use settings::Setting;
pub use step::{Host, OptionChoice, Step, Writing};
pub use world::World;

/// Steps of one input that are run; the rest is ignored.
const MAX_STEPS: usize = 256;

/// How the connections come into being.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The first side connects, the second accepts.
    Normal,
    /// Both connect to each other.
    Simultaneous,
    /// The first side connects and there is only the forger.
    Alone,
    /// The first side accepts a forged SYN, and there is only the forger.
    AlonePassive,
}

/// What an input chooses before the first step.
#[derive(Arbitrary, Clone, Debug)]
pub struct Setup {
    /// How the connections come into being.
    pub opening: Opening,
    /// Whether forged segments are let in.
    pub hostile: bool,
    /// Switches of the sides, one bit each.
    pub switches: u16,
    /// The stack's settings.
    pub settings: settings::Fixed,
    /// The device of each side.
    pub devices: [device::Kind; 2],
    /// Index into a table of MTUs for each side.
    pub mtu: [u8; 2],
    /// Initial sequence numbers, as distances from 2^32.
    pub iss: [u16; 2],
    /// Timestamp offsets, as distances from 2^32.
    pub ts_offset: [u16; 2],
}

/// One input.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    /// The beginning.
    pub setup: Setup,
    /// What happens then.
    pub steps: Vec<Step>,
}

/// Runs an input to its end.
pub fn run(input: &Input) {
    crate::trace!("{:?}", input.setup);
    let mut world = World::new(&input.setup);
    for step in input.steps.iter().take(MAX_STEPS) {
        crate::trace!("{:?} {step:?}", world.now);
        world.step(step);
    }
    crate::trace!("{:?} the network behaves from now on", world.now);
    world.settle();
}
