//! Receive flow steering of the peer's kernel (`Documentation/networking/scaling.rst` of Linux).
//!
//! What a program writes to a TUN device the kernel receives inside that call, and it wakes the
//! thread that reads, often on another processor. With steering the packet is handed to the
//! processor where the thread last ran, which receives it and wakes the thread at home.

use std::fs;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::harness::netns::{Namespace, run};
use crate::harness::world::DEVICE;

/// The kernel's table of flows: one for the whole machine, and not there by default.
const TABLE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

/// Entries of it, and of the queue's own table.
const ENTRIES: &str = "32768";

/// Steering, until it is dropped: the machine's table is as large as before then.
pub(super) struct Steering {
    before: String,
}

impl Steering {
    /// Has the first queue of the TUN device in `ns` steer to all processors.
    pub(super) fn of_device(ns: &Namespace) -> Result<Steering> {
        let before = fs::read_to_string(TABLE).with_context(|| format!("reading {TABLE}"))?;
        fs::write(TABLE, ENTRIES).with_context(|| format!("writing {TABLE}"))?;
        let steering = Steering { before };
        let allowed = sched_getaffinity(None).context("asking for the processors")?;
        let processors = mask(|processor| allowed.is_set(processor));
        let queue = format!("/sys/class/net/{DEVICE}/queues/rx-0");
        let script = format!(
            "echo {processors} > {queue}/rps_cpus && echo {ENTRIES} > {queue}/rps_flow_cnt"
        );
        run(ns.command("sh").args(["-c", &script]))?;
        Ok(steering)
    }
}

/// What makes the machine's table as large again as it is now, for a process that outlives the one
/// which steers.
pub(super) fn undo() -> impl Fn() + Clone + Send + 'static {
    let before = fs::read_to_string(TABLE).ok();
    move || before.iter().for_each(|before| put_back(before))
}

fn put_back(before: &str) {
    // Nothing can be done if the system refuses what it took before.
    let _ = fs::write(TABLE, before.trim());
}

/// Processors as the kernel reads them: words of 32 in hexadecimal, the highest first.
fn mask(has: impl Fn(usize) -> bool) -> String {
    let highest = (0..CpuSet::MAX_CPU).rev().find(|&processor| has(processor)).unwrap_or(0);
    let word = |word: usize| {
        (0..32).filter(|bit| has(32 * word + bit)).fold(0_u32, |bits, bit| bits | 1 << bit)
    };
    let words = (0..=highest / 32).rev().map(|at| format!("{:08x}", word(at)));
    words.collect::<Vec<_>>().join(",")
}

impl Drop for Steering {
    fn drop(&mut self) {
        put_back(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_of_32_processors() {
        assert_eq!(mask(|processor| processor < 2), "00000003");
        assert_eq!(
            mask(|processor| [0, 31, 32, 69].contains(&processor)),
            "00000020,00000001,80000001"
        );
        assert_eq!(mask(|_| false), "00000000");
    }
}
