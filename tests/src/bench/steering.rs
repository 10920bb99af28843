//! Receive flow steering of the peer's kernel (`Documentation/networking/scaling.rst` of Linux).
//!
//! What a program writes to a TUN device the kernel receives inside that call, and it wakes the
//! thread that reads, often on another processor. With steering the packet is handed to the
//! processor where the thread last ran, which receives it and wakes the thread at home.

use std::fs;

use anyhow::{Context, Result};

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
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(63);
        let processors = (1_u64 << count) - 1;
        let queue = format!("/sys/class/net/{DEVICE}/queues/rx-0");
        let script = format!(
            "echo {processors:x} > {queue}/rps_cpus && echo {ENTRIES} > {queue}/rps_flow_cnt"
        );
        run(ns.command("sh").args(["-c", &script]))?;
        Ok(steering)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // Nothing can be done if the system refuses what it took before.
        let _ = fs::write(TABLE, self.before.trim());
    }
}
