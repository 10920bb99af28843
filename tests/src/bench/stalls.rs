//! `bench stalls`: how long conversations in small pieces take with the kernel on the other side.

use anyhow::Result;

use crate::cases::stalls::{Begins, Nagle, TALKS, talk};

const ROUNDS: usize = 1000;

/// Has all conversations, each begun by us and by the kernel, and prints a table.
pub(super) fn run() -> Result<()> {
    println!(
        "| conversation | begins | our Nagle | p50 | p99 | max | stalls | late ACKs, ours : kernel |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for what in &TALKS {
        for (begins, name) in [(Begins::Ours, "ours"), (Begins::Kernel, "kernel")] {
            for (nagle, rounds, word) in [
                (Nagle::Off, ROUNDS, "off"),
                (Nagle::On, ROUNDS / 10, "on"),
                (Nagle::Bounded, ROUNDS, "bounded"),
            ] {
                let talked = talk(what, begins, rounds, nagle)?;
                let at = |name: &str| talked.rounds[name].as_f64().unwrap_or(f64::NAN) / 1000.0;
                println!(
                    "| {} | {name} | {} | {:.3} ms | {:.3} ms | {:.1} ms | {} of {} | {} : {} |",
                    what.name,
                    word,
                    at("p50"),
                    at("p99"),
                    at("max"),
                    talked.rounds["stalls"],
                    talked.rounds["rounds"],
                    talked.ours,
                    talked.kernel,
                );
            }
        }
    }
    Ok(())
}
