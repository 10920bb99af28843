//! The processor of a queue's thread, on Linux.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on a processor of queue `queue` of `count`. See
/// [`QueueWaiter::stay_on_processor`](crate::QueueWaiter::stay_on_processor).
pub(crate) fn stay(queue: usize, count: usize) -> io::Result<()> {
    let usable = sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)).collect();
    let Some(cpu) = choose(&usable, queue, count) else { return Ok(()) };
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}

/// One whose number is that of the queue, as steering by processor counts. If a thread may use none
/// of these, one in turn.
fn choose(usable: &[usize], queue: usize, count: usize) -> Option<usize> {
    let own = usable.iter().copied().find(|cpu| cpu % count.max(1) == queue);
    own.or_else(|| usable.get(queue % usable.len().max(1)).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_one_if_there_are_enough() {
        let places = |usable: &[usize], count| {
            (0..count).map(|queue| choose(usable, queue, count).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(places(&[0, 1], 2), [0, 1]);
        assert_eq!(places(&[1, 2, 3], 2), [2, 1], "packets of processor 2 come by queue 0");
        assert_eq!(places(&[5], 2), [5, 5]);
        assert_eq!(places(&[0, 1], 3), [0, 1, 0]);
        assert_eq!(choose(&[], 0, 0), None);
    }

    #[test]
    fn a_thread_stays() {
        std::thread::spawn(|| {
            stay(0, 1).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }
}
