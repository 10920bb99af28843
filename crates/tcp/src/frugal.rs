//! Queues of connections that mostly hold one entry, or none.

use alloc::collections::VecDeque;

/// Appends `entry`. The first one takes room for itself only, where the standard library would take
/// room for four: a connection that asks and is answered never needs more.
#[inline]
pub(crate) fn push<T>(queue: &mut VecDeque<T>, entry: T) {
    if queue.capacity() == 0 {
        queue.reserve_exact(1);
    }
    queue.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_takes_room_for_one() {
        let mut queue = VecDeque::new();
        push(&mut queue, [0_u64; 4]);
        assert_eq!(queue.capacity(), 1);
        push(&mut queue, [1; 4]);
        assert!(queue.capacity() >= 4, "from there on it grows as usual");
        assert_eq!(queue, [[0; 4], [1; 4]]);
    }
}
