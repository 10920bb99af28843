//! The published experiments, and those of what came after.

pub mod ack_defer;
pub mod autocork;
pub mod busy_loop;
pub mod pure_ack;
pub mod ring_window;
pub mod sack_compress;
pub mod tso_defer;
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
    /// It is of what came after the five publications: only the full form has it.
    pub later: bool,
    /// Runs it.
    pub run: fn(&Plan, &mut Watch) -> anyhow::Result<Report>,
}

/// All of them, in the order in which they run.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: tso_split::NAME,
        about: "the end of a message leaves in the same packet as the rest of it",
        later: false,
        run: tso_split::run,
    },
    Experiment {
        name: autocork::NAME,
        about: "small writes are collected while earlier packets are still in the device",
        later: false,
        run: autocork::run,
    },
    Experiment {
        name: tso_trim::NAME,
        about: "bulk data leaves in full segments; a part of one waits for more data",
        later: false,
        run: tso_trim::run,
    },
    Experiment {
        name: pure_ack::NAME,
        about: "an ACK without data does not wake the thread that waits for an answer",
        later: false,
        run: pure_ack::run,
    },
    Experiment {
        name: ack_defer::NAME,
        about: "packets that arrive while a thread reads are acknowledged together",
        later: false,
        run: ack_defer::run,
    },
    Experiment {
        name: sack_compress::NAME,
        about: "after a loss one ACK reports what many would",
        later: true,
        run: sack_compress::run,
    },
    Experiment {
        name: tso_defer::NAME,
        about: "a packet that the window cuts short waits for an ACK that is due",
        later: true,
        run: tso_defer::run,
    },
    Experiment {
        name: ring_window::NAME,
        about: "the receive window is no larger than the queue of its device",
        later: true,
        run: ring_window::run,
    },
    Experiment {
        name: busy_loop::NAME,
        about: "a loop looks again before it sleeps, while that pays",
        later: true,
        run: busy_loop::run,
    },
];

/// The experiment with the name `name`.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
