//! The processor of a queue's thread, on Linux.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on a processor of queue `queue` of `count`. See
/// [`QueueWaiter::stay_on_processor`](crate::QueueWaiter::stay_on_processor).
pub(crate) fn stay(queue: usize, count: usize) -> io::Result<()> {
    let usable = sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)).collect();
    let Some(&cpu) = places(&usable, count).get(queue) else { return Ok(()) };
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).map_err(|error| {
        let error = io::Error::from(error);
        let what = format!("cannot keep the thread of queue {queue} on processor {cpu}: {error}");
        io::Error::new(error.kind(), what)
    })
}

/// The CPU of each of `count` queues: one whose number is that of the queue, as steering by CPU
/// counts. A queue without such a CPU gets one of the rest, and if all are used, one in turn.
fn places(usable: &[usize], count: usize) -> Vec<usize> {
    let mut left = usable.to_vec();
    let mut take = |fits: &dyn Fn(usize) -> bool| {
        let at = left.iter().position(|&cpu| fits(cpu));
        at.map(|at| left.remove(at))
    };
    let own: Vec<Option<usize>> =
        (0..count).map(|queue| take(&|cpu| cpu % count == queue)).collect();
    let mut turns = usable.iter().copied().cycle();
    let mut other = || take(&|_| true).or_else(|| turns.next());
    own.into_iter().filter_map(|own| own.or_else(&mut other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_one_if_there_are_enough() {
        assert_eq!(places(&[0, 1], 2), [0, 1]);
        assert_eq!(places(&[1, 2, 3], 2), [2, 1], "packets of processor 2 come by queue 0");
        assert_eq!(places(&[5], 2), [5, 5]);
        assert_eq!(places(&[0, 1], 3), [0, 1, 0]);
        assert_eq!(places(&[0, 2, 4, 6], 4), [0, 4, 2, 6], "2 and 6 are for queue 2");
        assert_eq!(places(&[2, 4], 4), [4, 2, 2, 4]);
        assert_eq!(places(&[], 2), [] as [usize; 0]);
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
