//! A queue that usually holds one entry, or none.
//!
//! A connection in a request-response exchange never has more than one range in flight and one
//! waiting. That entry is in the queue itself, and so in the same block of memory as the fields
//! around it ([`crate::lease`]). With the second entry all of them move to a list, where they stay
//! until the list is freed.

use alloc::collections::VecDeque;

/// Room that the list begins with, in entries.
const FIRST_ROOM: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct ShortQueue<T> {
    /// The one entry, while the list has no room.
    one: Option<T>,
    many: VecDeque<T>,
}

impl<T> ShortQueue<T> {
    pub(crate) const fn new() -> ShortQueue<T> {
        ShortQueue { one: None, many: VecDeque::new() }
    }

    #[inline]
    fn is_list(&self) -> bool {
        self.many.capacity() > 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none() && self.many.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.many.len()
    }

    /// Entries that the list has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.many.capacity()
    }

    /// Bytes of heap held.
    pub(crate) fn room_bytes(&self) -> usize {
        self.many.capacity() * size_of::<T>()
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        if self.is_list() { self.many.front() } else { self.one.as_ref() }
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        if self.is_list() { self.many.front_mut() } else { self.one.as_mut() }
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<&T> {
        if self.is_list() { self.many.back() } else { self.one.as_ref() }
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        if self.is_list() { self.many.back_mut() } else { self.one.as_mut() }
    }

    /// The entry at `index` from the front.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if self.is_list() { self.many.get(index) } else { self.one.as_ref().filter(|_| index == 0) }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, entry: T) {
        if self.is_list() {
            self.many.push_back(entry);
        } else if self.one.is_none() {
            self.one = Some(entry);
        } else {
            self.push_second(entry);
        }
    }

    #[cold]
    fn push_second(&mut self, entry: T) {
        self.many.reserve_exact(FIRST_ROOM);
        self.many.extend(self.one.take());
        self.many.push_back(entry);
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        if self.is_list() { self.many.pop_front() } else { self.one.take() }
    }

    /// Takes the first entry if `condition` is true of it.
    #[inline]
    pub(crate) fn pop_front_if(&mut self, condition: impl FnOnce(&T) -> bool) -> Option<T> {
        self.front().is_some_and(condition).then(|| self.pop_front())?
    }

    /// The index of the first entry that `holds` is false of. It is true of all before that one.
    #[inline]
    pub(crate) fn partition_point(&self, mut holds: impl FnMut(&T) -> bool) -> usize {
        if self.is_list() {
            self.many.partition_point(holds)
        } else {
            usize::from(self.one.as_ref().is_some_and(&mut holds))
        }
    }

    /// All entries from the front.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.iter_from(0)
    }

    /// The entries from the one at `index` on.
    #[inline]
    pub(crate) fn iter_from(&self, index: usize) -> impl Iterator<Item = &T> {
        self.one.iter().chain(self.many.iter()).skip(index)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.one.iter_mut().chain(self.many.iter_mut())
    }

    /// Frees the list's capacity beyond `entries` and beyond the present entries.
    pub(crate) fn shrink_to(&mut self, entries: usize) {
        self.many.shrink_to(entries);
    }
}

impl<T> IntoIterator for ShortQueue<T> {
    type Item = T;
    type IntoIter =
        core::iter::Chain<core::option::IntoIter<T>, alloc::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.one.into_iter().chain(self.many)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_entry_takes_no_room() {
        let mut queue = ShortQueue::new();
        for round in 0..3_u64 {
            queue.push_back(round);
            assert_eq!((queue.len(), queue.room_bytes()), (1, 0));
            assert_eq!(queue.pop_front(), Some(round));
        }
        queue.push_back(1);
        queue.push_back(2);
        assert_eq!((queue.len(), queue.capacity()), (2, FIRST_ROOM));
        assert_eq!(
            (queue.pop_front(), queue.pop_front(), queue.pop_front()),
            (Some(1), Some(2), None)
        );
        queue.push_back(3);
        assert_eq!(queue.into_iter().collect::<Vec<_>>(), [3]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Pop,
        Change(u8),
        Shrink(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => any::<u8>().prop_map(Step::Push),
            3 => Just(Step::Pop),
            1 => any::<u8>().prop_map(Step::Change),
            1 => (0..3_usize).prop_map(Step::Shrink),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_is_a_queue(steps in steps()) {
            let mut queue = ShortQueue::new();
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Step::Push(entry) => {
                        queue.push_back(entry);
                        model.push_back(entry);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop_front(), model.pop_front()),
                    Step::Change(entry) => {
                        queue.back_mut().into_iter().for_each(|last| *last = entry);
                        model.back_mut().into_iter().for_each(|last| *last = entry);
                        queue.front_mut().into_iter().for_each(|first| *first ^= entry);
                        model.front_mut().into_iter().for_each(|first| *first ^= entry);
                        queue.iter_mut().for_each(|each| *each = each.wrapping_add(1));
                        model.iter_mut().for_each(|each| *each = each.wrapping_add(1));
                    }
                    Step::Shrink(entries) => queue.shrink_to(entries),
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!((queue.front(), queue.back()), (model.front(), model.back()));
                prop_assert!(queue.iter().eq(model.iter()));
                for index in 0..=model.len() {
                    prop_assert_eq!(queue.get(index), model.get(index));
                    prop_assert!(queue.iter_from(index).eq(model.range(index..)));
                }
                let mut seen = 0;
                let all = queue.partition_point(|_| { seen += 1; true });
                prop_assert_eq!(all, model.len());
                prop_assert_eq!(queue.partition_point(|_| false), 0);
                let mut sorted = ShortQueue::new();
                (0..model.len()).for_each(|number| sorted.push_back(number));
                for limit in 0..=model.len() {
                    prop_assert_eq!(sorted.partition_point(|each| *each < limit), limit);
                }
                prop_assert!(seen <= 7);
            }
        }
    }
}
