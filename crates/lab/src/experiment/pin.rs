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

/// Who runs first among threads that run in the order in which they are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Whoever looks at the clock: the run ends in time.
    Timekeeper = 3,
    /// A softirq thread, which goes before applications, as interrupts do.
    Softirq = 2,
    /// A thread of an application.
    Application = 1,
}

/// The calling thread, and every thread that it starts meanwhile, runs when it is its turn and
/// until it sleeps (SCHED_FIFO), until this is dropped. The system's own choice among hundreds of
/// threads that wait is about as good as chance, and other work on the machine comes between.
#[must_use]
pub struct InOrder {
    thread: String,
    /// The priority in real time that it had; none is 0.
    before: String,
}

impl InOrder {
    /// Changes the calling thread; `None` if the system does not allow it, which asks for root and
    /// the program `chrt`.
    pub fn enter(rank: Rank) -> Option<InOrder> {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let rank = (rank as u8).to_string();
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        // Field 40 of the file; the second is the name, in brackets.
        let before = stat.rsplit(')').next()?.split_whitespace().nth(37)?.to_owned();
        change(&["-f", "-p", &rank, &thread]).then_some(InOrder { thread, before })
    }

    /// Whether the system allows it.
    pub fn is_allowed() -> bool {
        InOrder::enter(Rank::Application).is_some()
    }
}

impl Drop for InOrder {
    fn drop(&mut self) {
        // Less is always allowed; how nice the thread is stays.
        let policy = if self.before == "0" { "-o" } else { "-f" };
        change(&[policy, "-p", &self.before, &self.thread]);
    }
}

/// Changes how a thread is scheduled, by the program that does: a call of our own is none that the
/// libraries here offer.
fn change(words: &[&str]) -> bool {
    let done = std::process::Command::new("chrt").args(words).output();
    done.is_ok_and(|done| done.status.success())
}

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
    fn an_ordered_thread_starts_ordered_threads() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields = stat.rsplit(')').next().unwrap().split_whitespace();
            fields.map(str::to_owned).nth(38).unwrap()
        };
        std::thread::spawn(move || {
            let Some(ordered) = InOrder::enter(Rank::Softirq) else {
                return println!("skipped: it is not allowed");
            };
            assert_eq!(std::thread::spawn(policy).join().unwrap(), "1", "SCHED_FIFO");
            drop(ordered);
            assert_eq!(policy(), "0", "SCHED_OTHER");
        })
        .join()
        .unwrap();
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
