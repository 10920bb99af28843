//! The published experiments.

pub mod ack_defer;
pub mod autocork;
pub mod pure_ack;
pub mod tso_split;
pub mod tso_trim;

use crate::experiment::{Plan, Report, Watch};

/// One experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Plan, &mut Watch) -> anyhow::Result<Report>,
}

/// All of them, in the order in which they run.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: tso_split::NAME,
        about: "a request of three segments in one packet, not in two",
        run: tso_split::run,
    },
    Experiment {
        name: autocork::NAME,
        about: "small writes wait for the completion of what is below them",
        run: autocork::run,
    },
    Experiment {
        name: tso_trim::NAME,
        about: "fractional tails of super-segments in bulk and in transactions, four policies",
        run: tso_trim::run,
    },
    Experiment {
        name: pure_ack::NAME,
        about: "a pure ACK does not wake the thread that waits for an answer",
        run: pure_ack::run,
    },
    Experiment {
        name: ack_defer::NAME,
        about: "the ACKs of what arrived while a reader owned the socket become one",
        run: ack_defer::run,
    },
];

/// The experiment with the name `name`.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
