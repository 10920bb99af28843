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
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

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
