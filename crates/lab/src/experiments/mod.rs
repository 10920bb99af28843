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
    /// What the mechanism does, in one line.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Plan, &mut Watch) -> anyhow::Result<Report>,
}

/// All of them, in the order in which they run.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: tso_split::NAME,
        about: "the end of a message leaves in the same packet as the rest of it",
        run: tso_split::run,
    },
    Experiment {
        name: autocork::NAME,
        about: "small writes are collected while earlier packets are still in the device",
        run: autocork::run,
    },
    Experiment {
        name: tso_trim::NAME,
        about: "bulk data leaves in full segments; a part of one waits for more data",
        run: tso_trim::run,
    },
    Experiment {
        name: pure_ack::NAME,
        about: "an ACK without data does not wake the thread that waits for an answer",
        run: pure_ack::run,
    },
    Experiment {
        name: ack_defer::NAME,
        about: "packets that arrive while a thread reads are acknowledged together",
        run: ack_defer::run,
    },
];

/// The experiment with the name `name`.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
