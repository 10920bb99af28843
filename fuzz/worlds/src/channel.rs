//! A stack on a channel device: packets as values in both directions, with everything that a caller
//! can say about them, true or not, and an end at any time.
//!
//! Packets are raw bytes, or forged as for the stack's own target. Around them the caller claims
//! what it likes: segment sizes and numbers of segments that do not fit the length, any state of
//! the checksum, headers in the head, in the payload or across both, any number of ranges, lengths
//! that no packet has. It sends one or many, or bytes, and receives one, many, or bytes.
//!
//! Oracles: what the stack hands out is right for the offloads and the MTU that were agreed on; a
//! length that no packet has is refused, any other never is; a queue holds no more than its bound;
//! who found nothing, or no room, is woken when there is some; no poll goes on for ever; after the
//! end of a half the other sees it; and when all is dropped nothing remains.

mod step;
mod world;

use arbitrary::Arbitrary;

pub use step::Step;
pub use world::World;

/// Steps of one input that are run; the rest is ignored.
const MAX_STEPS: usize = 200;

/// What an input chooses before the first step.
#[derive(Arbitrary, Clone, Debug)]
pub struct Setup {
    /// Index into a table of MTUs.
    pub mtu: u8,
    /// Which offloads: none, checksums, segmentation.
    pub offloads: u8,
    /// Packets that each queue holds, less one.
    pub queues: (u8, u8),
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
