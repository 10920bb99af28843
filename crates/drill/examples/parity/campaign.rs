//! All patterns: on the kernel three times, on this stack once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};
use plimsoll_drill::embedded::EmbeddedHost;
use plimsoll_drill::host::Host;
use plimsoll_drill::kernel::KernelHost;

use crate::classes::{self, Class};
use crate::compare::{Difference, first_difference, marks_differ};
use crate::pattern::Pattern;
use crate::ticks::{KernelTicks, Ticks};
use crate::trace::Trace;
use crate::{run, wire};

/// A run on the kernel whose own clockwork was late by more than this, in microseconds, says
/// nothing: it is taken again.
const LATE: u64 = 1_200;
/// So often at most.
const ATTEMPTS: usize = 8;
/// Runs on the kernel that tell a difference from noise.
const ENOUGH: usize = 3;

/// What came of one pattern.
pub(crate) struct Outcome {
    pub(crate) pattern: Pattern,
    pub(crate) ours: Trace,
    pub(crate) kernel: Vec<Trace>,
    pub(crate) verdict: Verdict,
    /// Runs that were taken again.
    pub(crate) retaken: usize,
}

/// How two senders compare under one pattern.
pub(crate) enum Verdict {
    /// The kernel does not agree with itself: at this decision of its first run.
    Excluded(usize),
    /// The same segments in the same order, and the same cwnd at each ACK. The scoreboards differ
    /// after this decision, if at all.
    Same { marks: Option<usize> },
    /// They part, for a reason that is known or not.
    Different { found: Difference, class: Option<Class> },
}

/// A pattern on this stack.
///
/// # Errors
/// If the run cannot be made.
pub(crate) fn ours(pattern: &Pattern) -> Result<Trace> {
    let timers = Arc::new(Ticks::new(first_tick(pattern)));
    on_this_stack(EmbeddedHost::with_timers(&wire::network(), timers)?, pattern)
}

fn on_this_stack(mut host: EmbeddedHost, pattern: &Pattern) -> Result<Trace> {
    run::run(&mut host, pattern, |host| {
        host.begin();
        Ok(())
    })
}

/// Whether nothing but the time at which timers come makes the difference: this stack does what the
/// kernel did if they are exact, or come a tick later.
fn timers_explain(pattern: &Pattern, kernel: &Trace) -> Result<bool> {
    let late = Arc::new(Ticks::late(first_tick(pattern), 1));
    let hosts =
        [EmbeddedHost::new(&wire::network())?, EmbeddedHost::with_timers(&wire::network(), late)?];
    for host in hosts {
        if first_difference(&on_this_stack(host, pattern)?, kernel).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where among the kernel's ticks a run of the pattern begins, so that not all do at once.
fn first_tick(pattern: &Pattern) -> u64 {
    u64::from(pattern.id) * 11
}

/// A pattern on the host's kernel. The second number counts runs that were taken again.
///
/// # Errors
/// If the run cannot be made.
pub(crate) fn kernel(pattern: &Pattern, ticks: KernelTicks) -> Result<(Trace, usize)> {
    let mut attempt = 1;
    loop {
        let mut host = KernelHost::new(wire::network())?;
        let begin = |host: &mut KernelHost| ticks.begin(first_tick(pattern), || host.begin());
        match run::run(&mut host, pattern, begin) {
            Ok(trace) if trace.late <= LATE => return Ok((trace, attempt - 1)),
            outcome if attempt == ATTEMPTS => return Ok((outcome?, attempt - 1)),
            // The machine was too busy.
            _ => attempt += 1,
        }
    }
}

/// Judges the runs of one pattern.
///
/// # Errors
/// If a further run of this stack cannot be made.
fn verdict(pattern: &Pattern, ours: &Trace, kernel: &[Trace]) -> Result<Verdict> {
    let Some((first, others)) = kernel.split_first() else {
        return Ok(Verdict::Same { marks: None });
    };
    for other in others {
        if let Some(found) = first_difference(first, other) {
            return Ok(Verdict::Excluded(found.index));
        }
    }
    if kernel.iter().any(|trace| trace.late > LATE) {
        // Times of a machine that was too busy in every attempt say nothing.
        return Ok(Verdict::Excluded(0));
    }
    Ok(match first_difference(ours, first) {
        None => Verdict::Same { marks: marks_differ(ours, first) },
        Some(found) if timers_explain(pattern, first)? => {
            Verdict::Different { found, class: Some(Class::Tick) }
        }
        Some(found) => {
            let class = classes::name(pattern, ours, first, &found);
            Verdict::Different { found, class }
        }
    })
}

/// Runs all patterns, `times` on the kernel each, `jobs` at once. One that differs runs there three
/// times at least, since a single run does not tell a difference from noise.
///
/// # Errors
/// If a run cannot be made.
pub(crate) fn run_all(patterns: &[Pattern], times: usize, jobs: usize) -> Result<Vec<Outcome>> {
    // These need the processor, those on the kernel sleep most of the time.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mine = in_parallel(patterns.len(), cores, |index| ours(&patterns[index]))?;
    let mut outcomes: Vec<Outcome> = patterns
        .iter()
        .zip(mine)
        .map(|(pattern, ours)| Outcome {
            pattern: pattern.clone(),
            ours,
            kernel: Vec::new(),
            verdict: Verdict::Same { marks: None },
            retaken: 0,
        })
        .collect();
    let all: Vec<usize> = (0..patterns.len()).collect();
    run_on_kernel(&mut outcomes, &all, times, jobs)?;
    let differs = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Different { .. });
    let again: Vec<usize> = all.into_iter().filter(|&index| differs(&outcomes[index])).collect();
    run_on_kernel(&mut outcomes, &again, ENOUGH.saturating_sub(times), jobs)?;
    Ok(outcomes)
}

/// Runs some of the patterns on the kernel, and judges them anew.
fn run_on_kernel(
    outcomes: &mut [Outcome],
    which: &[usize],
    times: usize,
    jobs: usize,
) -> Result<()> {
    let ticks = KernelTicks::find()?;
    let traces = in_parallel(which.len() * times, jobs, |index| {
        kernel(&outcomes[which[index / times]].pattern, ticks)
    })?;
    let mut traces = traces.into_iter();
    for &index in which {
        let outcome = &mut outcomes[index];
        for (trace, retaken) in traces.by_ref().take(times) {
            outcome.kernel.push(trace);
            outcome.retaken += retaken;
        }
        outcome.verdict = verdict(&outcome.pattern, &outcome.ours, &outcome.kernel)?;
    }
    Ok(())
}

/// Does `count` pieces of work on `jobs` threads; the results in their order.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<T>>>> = Mutex::new((0..count).map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| work(index)))
                        .unwrap_or_else(|_| Err(anyhow!("a run panicked")));
                    done.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|result| result.unwrap_or_else(|| Err(anyhow!("not run")))).collect()
}
