//! What is held still during an experiment: settings of the stacks, and the processors of threads.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Map, Value};

/// A setting of a stack, by Linux's name.
pub type Setting = (&'static str, &'static str);

/// The settings of a list, for a document.
pub fn to_map(settings: &[Setting]) -> Map<String, Value> {
    settings.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect()
}

/// The calling thread, and every thread that it starts meanwhile, runs on one processor until this
/// is dropped.
#[must_use]
pub struct OnCpu {
    before: Option<CpuSet>,
}

impl OnCpu {
    /// Moves the calling thread to the `index`-th of the processors that it may use. A machine with
    /// fewer has the threads share the last.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(index: usize) -> anyhow::Result<OnCpu> {
        let before = sched_getaffinity(None).context("cannot read the processors of a thread")?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).collect();
        let Some(&cpu) = usable.get(index).or(usable.last()) else {
            return Ok(OnCpu { before: None });
        };
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).context("cannot pin a thread to a processor")?;
        Ok(OnCpu { before: Some(before) })
    }
}

impl Drop for OnCpu {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// The processors of a run, as [`OnCpu`] counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of the threads that are judged: the client's.
    pub client: usize,
    /// Of the client's softirq thread.
    pub softirq: usize,
    /// Of the other side: its threads and its softirq thread.
    pub server: usize,
}

impl Places {
    /// On `cpus` processors: each of the three has its own if there are so many. On two, the
    /// client's threads have one to themselves.
    pub const fn of(cpus: usize) -> Places {
        match cpus {
            0 | 1 => Places { client: 0, softirq: 0, server: 0 },
            2 => Places { client: 0, softirq: 1, server: 1 },
            _ => Places { client: 0, softirq: 1, server: 2 },
        }
    }

    /// In the order of [`crate::stage::Stage`].
    pub const fn list(self) -> [usize; 3] {
        [self.client, self.softirq, self.server]
    }

    /// For a document.
    pub fn words(self) -> &'static str {
        match self {
            Places { client: 0, softirq: 0, .. } => "everything on the only processor",
            Places { softirq: 1, server: 1, .. } => {
                "the client's threads alone on the first processor; its softirq thread and the \
                 server's side on the second"
            }
            _ => {
                "the client's threads, its softirq thread and the server's side on a processor each"
            }
        }
    }
}

/// How nice the threads of an experiment are, if the system allows it: other work on the machine
/// would fall on one thread more heavily than on two hundred.
const NICENESS: i32 = -10;

/// Puts the calling thread, and what it starts from now on, before other work on the machine.
/// Returns a word about it.
pub fn first_in_line() -> &'static str {
    match rustix::process::setpriority_process(None, NICENESS) {
        Ok(()) => "nice -10",
        Err(_) => "as other processes",
    }
}

/// Processors that this process may use.
pub fn cpus() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count().max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judged_threads_share_their_processor_with_nobody_else() {
        assert_eq!(Places::of(1).list(), [0, 0, 0]);
        assert_eq!(Places::of(2).list(), [0, 1, 1]);
        for cpus in [3, 4, 64] {
            assert_eq!(Places::of(cpus).list(), [0, 1, 2], "{cpus} processors");
        }
        let words: Vec<&str> = (1..=3).map(|cpus| Places::of(cpus).words()).collect();
        assert!(
            words[0].contains("only") && words[1].contains("alone") && words[2].contains("each")
        );
    }

    #[test]
    fn a_pinned_thread_starts_pinned_threads() {
        std::thread::spawn(|| {
            let before = cpus();
            let pinned = OnCpu::enter(0).unwrap();
            assert_eq!(cpus(), 1);
            assert_eq!(std::thread::spawn(cpus).join().unwrap(), 1);
            drop(pinned);
            assert_eq!(cpus(), before);
        })
        .join()
        .unwrap();
    }
}
