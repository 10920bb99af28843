//! What a run cost: CPU time and context switches of this process.
//!
//! CPU time comes from the process clock. Context switches are the sum over the threads that live
//! when they are read, so a run reads them while its threads are still there.

use rustix::time::{ClockId, clock_gettime};

/// What the process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time of all threads, also of those that have ended.
    pub cpu_seconds: f64,
    /// Voluntary and involuntary switches of the threads that live, if they could be read.
    pub switches: Option<(u64, u64)>,
}

impl Usage {
    /// Reads it.
    pub fn now() -> Usage {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Usage {
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            switches: switches_of_all_threads(),
        }
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        let switches = self
            .switches
            .zip(earlier.switches)
            .map(|(now, then)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)));
        Usage { cpu_seconds: self.cpu_seconds - earlier.cpu_seconds, switches }
    }
}

fn switches_of_all_threads() -> Option<(u64, u64)> {
    let mut sum = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may end between the listing and the reading.
        let Ok(status) = std::fs::read_to_string(task.ok()?.path().join("status")) else {
            continue;
        };
        let (voluntary, involuntary) = parse_switches(&status)?;
        sum.0 += voluntary;
        sum.1 += involuntary;
    }
    Some(sum)
}

fn parse_switches(status: &str) -> Option<(u64, u64)> {
    Some((field(status, "voluntary_ctxt_switches")?, field(status, "nonvoluntary_ctxt_switches")?))
}

/// Resident memory of the process in bytes, if it could be read.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmRSS").map(|kib| kib * 1024)
}

/// The number behind `name:` in a status file of /proc.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        let status = "Name:\tx\nVmRSS:\t  12 kB\nvoluntary_ctxt_switches:\t7\n\
                      nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(parse_switches(status), Some((7, 3)));
        assert_eq!(field(status, "VmRSS"), Some(12));
        assert_eq!(field(status, "Vm"), None);
    }

    #[test]
    fn usage_grows() {
        let before = Usage::now();
        let after = Usage::now();
        assert!(after.cpu_seconds >= before.cpu_seconds);
        assert!(after.switches.is_some());
    }
}
