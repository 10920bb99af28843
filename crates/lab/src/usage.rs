//! What a run cost: CPU time and context switches of this process.
//!
//! CPU time comes from the process clock. Context switches are the sum over the threads that live
//! when they are read, so a run reads them while its threads are still there. So is the CPU time of
//! each *role*: the threads whose names differ only in the number at their end.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

/// What the process, or a thread, has used up to now.
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
        Usage { cpu_seconds: cpu_seconds(), switches: switches_of_all_threads() }
    }

    /// As [`now`](Self::now), at the beginning of a run: what the reading costs lies before it.
    pub fn begin() -> Usage {
        Usage { switches: switches_of_all_threads(), cpu_seconds: cpu_seconds() }
    }

    /// What the calling thread has used up to now: what RUSAGE_THREAD says.
    pub fn of_thread() -> Usage {
        let cpu_seconds = seconds(ClockId::ThreadCPUTime);
        Usage { cpu_seconds, switches: switches_of_this_thread() }
    }

    /// As [`of_thread`](Self::of_thread), at the beginning: what the reading costs lies before it.
    pub fn begin_thread() -> Usage {
        let switches = switches_of_this_thread();
        Usage { cpu_seconds: seconds(ClockId::ThreadCPUTime), switches }
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

/// Since when the processors that this process may use have been idle, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors {
    at: Instant,
    count: usize,
    /// All of them together.
    idle_seconds: f64,
    own_seconds: f64,
}

impl Processors {
    /// Reads it; `None` if the system does not tell.
    pub(crate) fn now() -> Option<Processors> {
        let usable = sched_getaffinity(None).ok()?;
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let idle = idle_ticks(&text, |cpu| cpu < CpuSet::MAX_CPU && usable.is_set(cpu))?;
        Some(Processors {
            at: Instant::now(),
            count: usable.count() as usize,
            idle_seconds: idle as f64 / clock_ticks_per_second() as f64,
            own_seconds: cpu_seconds(),
        })
    }

    /// The share of their time since `earlier` that went to somebody else: other programs, or
    /// other machines on the same host.
    pub(crate) fn others_since(self, earlier: Processors) -> Option<f64> {
        let all = self.at.duration_since(earlier.at).as_secs_f64() * self.count as f64;
        let idle = self.idle_seconds - earlier.idle_seconds;
        let own = self.own_seconds - earlier.own_seconds;
        (all > 0.0).then(|| ((all - idle - own) / all).clamp(0.0, 1.0))
    }
}

/// Ticks in which some processors were idle, of `/proc/stat`.
fn idle_ticks(text: &str, usable: impl Fn(usize) -> bool) -> Option<u64> {
    let of = |line: &str| -> Option<(usize, u64)> {
        let mut fields = line.split_whitespace();
        let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        let mut ticks = fields.map(|field| field.parse::<u64>().ok());
        // User, nice, system, idle, waiting for a disk.
        let (idle, waiting) = (ticks.nth(3)??, ticks.next()??);
        Some((cpu, idle + waiting))
    };
    let mut found = text.lines().filter_map(of).filter(|&(cpu, _)| usable(cpu)).peekable();
    found.peek()?;
    Some(found.map(|(_, ticks)| ticks).sum())
}

fn cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn switches_of_this_thread() -> Option<(u64, u64)> {
    parse_switches(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
}

/// CPU seconds of the threads that live, by role; `None` if the kernel does not tell.
pub fn by_role() -> Option<BTreeMap<String, f64>> {
    let mut roles = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        // A thread may end between the listing and the reading.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        let Ok(stat) = std::fs::read_to_string(path.join("schedstat")) else { continue };
        let nanos: f64 = stat.split_whitespace().next()?.parse().ok()?;
        *roles.entry(role(name.trim()).to_owned()).or_default() += nanos / 1e9;
    }
    Some(roles).filter(|roles: &BTreeMap<_, _>| !roles.is_empty())
}

/// What was used since `earlier`, by role.
pub fn roles_since(
    now: &BTreeMap<String, f64>,
    earlier: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let before = |role| earlier.get(role).copied().unwrap_or(0.0);
    now.iter().map(|(role, time)| (role.clone(), (time - before(role)).max(0.0))).collect()
}

/// The name of a thread without its number: `client` for `client-17`.
fn role(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((role, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => role,
        _ => name,
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
    fn threads_have_roles() {
        assert_eq!(role("client-17"), "client");
        assert_eq!(role("client-softirq"), "client-softirq");
        assert_eq!(role("main"), "main");
        let spin = |_| std::hint::black_box((0..100_000).sum::<u64>());
        let thread = std::thread::Builder::new().name("spinner-1".into()).spawn(move || {
            let before = by_role();
            (0..100).map(spin).sum::<u64>();
            (before, by_role())
        });
        let (before, after) = thread.unwrap().join().unwrap();
        // Not every kernel tells.
        if let Some((before, after)) = before.zip(after) {
            assert!(roles_since(&after, &before)["spinner"] >= 0.0);
        }
    }

    #[test]
    fn a_thread_that_sleeps_has_switched() {
        let sleep = || {
            let before = Usage::begin_thread();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Usage::of_thread().since(before)
        };
        let used = std::thread::spawn(sleep).join().unwrap();
        assert!(used.switches.unwrap().0 >= 1, "{used:?}");
    }

    #[test]
    fn usage_grows() {
        let before = Usage::now();
        let after = Usage::now();
        assert!(after.cpu_seconds >= before.cpu_seconds);
        assert!(after.switches.is_some());
    }
}
