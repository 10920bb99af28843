//! A stack on a device of the fuzzer's own, under arbitrary packets, calls and time.
//!
//! Packets are raw bytes, or forged: IP around TCP segments whose numbers lie near those of a
//! connection that the stack has shown, ICMP errors that quote what the stack sent, fragments,
//! super-segments, echo requests. Calls are those of sockets and listeners.
//!
//! Oracles: every packet that leaves parses, has right lengths and checksums, an address of ours as
//! source, and fits the device; no poll goes on for ever; and when all sockets are dropped and time
//! passes, nothing remains: no connection, no buffer.

pub(crate) mod device;
pub(crate) mod forge;
pub(crate) mod step;
mod world;

use arbitrary::Arbitrary;

pub use step::Step;
pub use world::World;

/// Steps of one input that are run; the rest is ignored.
const MAX_STEPS: usize = 200;

/// What an input chooses before the first step.
#[derive(Arbitrary, Clone, Debug)]
pub struct Setup {
    /// Offloads and the like, one bit each.
    pub switches: u16,
    /// Index into a table of MTUs.
    pub mtu: u8,
    /// Seed and secret of the stack.
    pub seed: u8,
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
    crate::trace!("{:?} everybody lets go", world.now);
    world.let_go();
}
