use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec;
use std::vec::Vec;

use crate::{MAX_SLICES, Pool, Slice, Slices, TooManySlices};

#[test]
fn a_chunk_returns_to_its_pool_when_the_last_reference_goes() {
    let pool = Pool::new();
    let mut writer = pool.chunk(100);
    assert_eq!(writer.capacity(), 512);
    let hello = writer.append(b"hello");
    let world = writer.append(b" world");
    drop(writer);
    assert_eq!(pool.stats().in_use_bytes, 512);
    drop(hello);
    assert_eq!(&*world, b" world");
    drop(world);
    assert_eq!(pool.stats().in_use_bytes, 0);
    drop(pool.chunk(512));
    assert_eq!(pool.stats().allocations, 1, "the second chunk is the first one again");
}

#[test]
fn a_slice_grows_with_its_writer() {
    let pool = Pool::new();
    let mut writer = pool.chunk(512);
    let mut text = writer.append(b"ahoy");
    assert_eq!(writer.extend(&mut text, b", there"), 7);
    assert_eq!(&text[..], b"ahoy, there");
    let shared = text.clone();
    assert_eq!(writer.extend(&mut text, b"!"), 1);
    assert_eq!((&text[..], &shared[..]), (&b"ahoy, there!"[..], &b"ahoy, there"[..]));
    let mut short = shared;
    assert_eq!(writer.extend(&mut short, b"?"), 0, "others have the bytes behind it");
    let mut foreign = pool.copy_from(b"elsewhere");
    assert_eq!(writer.extend(&mut foreign, b"?"), 0);
    assert_eq!(writer.extend(&mut text, &[b'.'; 600]), writer.capacity() - 12, "until it is full");
    assert_eq!(text.len(), writer.capacity());
    assert_eq!(writer.extend(&mut text, b"more"), 0);
}

#[test]
fn append_stops_at_the_end_of_the_chunk() {
    let pool = Pool::new();
    let mut writer = pool.chunk(512);
    assert_eq!(writer.append(&[7; 600]).len(), 512);
    assert_eq!(writer.remaining(), 0);
    assert!(writer.append(b"more").is_empty());
}

#[test]
fn neighbours_merge_and_strangers_do_not() {
    let pool = Pool::new();
    let mut writer = pool.chunk(64);
    let mut payload = Slices::new();
    payload.push(writer.append(b"ab")).unwrap();
    payload.push(writer.append(b"cd")).unwrap();
    assert_eq!(payload.parts().len(), 1);
    payload.push(pool.copy_from(b"ef")).unwrap();
    assert_eq!(payload.parts().len(), 2);
    let mut out = [0; 6];
    assert_eq!(payload.copy_to(&mut out), 6);
    assert_eq!(&out, b"abcdef");
}

#[test]
fn a_full_list_refuses_another_range() {
    let pool = Pool::new();
    let mut payload = Slices::new();
    for _ in 0..MAX_SLICES {
        payload.push(pool.copy_from(b"x")).unwrap();
    }
    assert_eq!(payload.push(pool.copy_from(b"y")), Err(TooManySlices));
    assert_eq!(payload.len(), MAX_SLICES);
}

#[test]
fn ranges_of_a_payload_hold_the_right_bytes() {
    let pool = Pool::new();
    let mut payload = Slices::new();
    for part in [&b"abc"[..], b"defg", b"h", b"ijkl"] {
        payload.push(pool.copy_from(part)).unwrap();
    }
    let text = b"abcdefghijkl";
    for start in 0..=text.len() {
        for end in start..=text.len() {
            let part = payload.range(start, end);
            let mut out = vec![0; part.len()];
            part.copy_to(&mut out);
            assert_eq!(out, &text[start..end]);
        }
    }
}

#[test]
fn the_front_of_a_payload_is_taken_out() {
    let pool = Pool::new();
    for cut in 0..=10 {
        let mut rest = Slices::new();
        for part in [&b"0123"[..], b"45", b"6789"] {
            rest.push(pool.copy_from(part)).unwrap();
        }
        let front = rest.split_to(cut);
        assert_eq!((front.len(), rest.len()), (cut, 10 - cut));
        assert_eq!([flat(&front), flat(&rest)].concat(), b"0123456789");
    }
}

#[test]
fn slices_cross_threads_while_the_writer_goes_on() {
    let pool = Pool::new();
    let mut writer = pool.chunk(4096);
    let rounds: u8 = if cfg!(miri) { 20 } else { 200 };
    std::thread::scope(|scope| {
        let (tx, rx) = std::sync::mpsc::channel::<(u8, Slice)>();
        scope.spawn(move || {
            for (value, slice) in rx {
                assert!(slice.iter().all(|&byte| byte == value));
            }
        });
        for value in 0..rounds {
            tx.send((value, writer.append(&[value; 16]))).unwrap();
        }
    });
    drop(writer);
    assert_eq!(pool.stats().in_use_bytes, 0);
}

/// A small generator, so that the tests need no crate for it (Knuth's MMIX constants).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn flat(payload: &Slices) -> Vec<u8> {
    let mut out = vec![0; payload.len()];
    assert_eq!(payload.copy_to(&mut out), payload.len());
    out
}

#[test]
fn a_payload_behaves_like_a_vector_of_bytes() {
    let pool = Pool::new();
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    for seed in 0..rounds {
        let mut random = Random(seed);
        let mut writer = pool.chunk(512);
        let (mut payload, mut model) = (Slices::new(), Vec::new());
        for step in 0..30_u8 {
            let len = payload.len();
            match random.below(6) {
                0 | 1 => {
                    let bytes = vec![step; random.below(40)];
                    let slice =
                        if step % 2 == 0 { pool.copy_from(&bytes) } else { writer.append(&bytes) };
                    let copy = slice.to_vec();
                    if payload.push(slice).is_ok() {
                        model.extend(copy);
                    }
                }
                2 => {
                    let count = random.below(len + 1);
                    payload.advance(count);
                    model.drain(..count);
                }
                3 => {
                    let keep = random.below(len + 5);
                    payload.truncate(keep);
                    model.truncate(keep);
                }
                4 => {
                    let end = random.below(len + 1);
                    let start = random.below(end + 1);
                    assert_eq!(flat(&payload.range(start, end)), model[start..end]);
                }
                _ => {
                    let moved: Vec<_> = payload.drain().collect();
                    assert!(payload.is_empty());
                    for slice in moved {
                        payload.push(slice).unwrap();
                    }
                }
            }
            assert_eq!(flat(&payload), model);
            assert!(payload.parts().iter().all(|part| !part.is_empty()));
        }
    }
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn slices_split_and_merge_back() {
    let pool = Pool::new();
    let whole = pool.copy_from(b"0123456789");
    for cut in 0..=10 {
        let mut tail = whole.clone();
        let mut head = tail.split_to(cut);
        assert_eq!((&*head, &*tail), whole.split_at(cut));
        assert!(head.try_merge(&tail));
        assert_eq!(*head, *whole);
    }
    let mut middle = whole.range(2, 5);
    assert!(!middle.try_merge(&whole.range(6, 8)), "a gap between them");
    assert_eq!(&*middle, b"234");
}

#[test]
fn chunks_are_used_again_only_when_every_thread_has_let_go() {
    const THREADS: usize = 3;
    let rounds = if cfg!(miri) { 15 } else { 3000 };
    let pool = Pool::new();
    std::thread::scope(|scope| {
        let senders: [_; THREADS] = core::array::from_fn(|_| {
            let (tx, rx) = std::sync::mpsc::sync_channel::<(u8, Slice)>(4);
            scope.spawn(move || {
                for (value, mut slice) in rx {
                    let head = slice.split_to(100);
                    assert!(slice.iter().chain(head.iter()).all(|&byte| byte == value));
                }
            });
            tx
        });
        for round in 0..rounds {
            let value = round as u8;
            let slice = pool.copy_from(&[value; 300]);
            for sender in &senders {
                sender.send((value, slice.clone())).unwrap();
            }
        }
    });
    assert_eq!(pool.stats().in_use_bytes, 0);
    assert!(pool.stats().allocations <= THREADS * 6 + 1, "chunks must come from the free list");
}

#[test]
fn slices_outlive_their_pool() {
    let pool = Pool::new();
    let slice = pool.copy_from(b"still here");
    drop(pool);
    assert_eq!(&*slice, b"still here");
}

#[test]
fn a_writer_rewinds_only_when_nothing_is_held() {
    let pool = Pool::new();
    let mut writer = pool.chunk(512);
    let held = writer.append(&[1; 300]);
    assert!(!writer.rewind());
    assert_eq!(writer.remaining(), 212);
    drop(held);
    assert!(writer.rewind());
    assert_eq!(&*writer.append(&[2; 512]), &[2; 512]);
}

/// A buffer that counts its drops.
struct Counted {
    bytes: [u8; 5],
    drops: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_is_dropped_once_with_the_last_range_of_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut whole = Slice::from_owner(Counted { bytes: *b"plank", drops: drops.clone() });
    assert_eq!(whole.chunk_size(), 5);
    let head = whole.split_to(2);
    let mut payload = Slices::from(head.clone());
    payload.push(whole.clone()).unwrap();
    assert_eq!(payload.parts().len(), 1, "neighbours merge as those of a chunk do");
    assert_eq!(&payload.parts()[0][..], b"plank");
    drop(whole);
    let reader = std::thread::spawn(move || assert_eq!(&*head, b"pl"));
    reader.join().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(payload);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn vectors_boxes_and_shared_arrays_are_buffers() {
    let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
    let slice = Slice::from_owner(shared.clone());
    assert_eq!(slice.as_ptr(), shared.as_ptr(), "nothing is copied");
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(slice);
    assert_eq!(Arc::strong_count(&shared), 1);
    assert_eq!(&*Slice::from_owner(vec![1, 2]), &[1, 2]);
    assert_eq!(&*Slice::from_owner(Vec::new().into_boxed_slice()), &[] as &[u8]);
    assert_eq!(&*Slice::from_owner("static"), b"static");
}

struct Refuses(Arc<AtomicUsize>);

impl AsRef<[u8]> for Refuses {
    fn as_ref(&self) -> &[u8] {
        panic!("no bytes")
    }
}

impl Drop for Refuses {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_that_panics_when_asked_is_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let refuses = Refuses(drops.clone());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Slice::from_owner(refuses);
    }));
    assert!(result.is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_list_is_appended_whole_or_not_at_all() {
    let pool = Pool::new();
    let list = |count: usize| {
        let mut list = Slices::new();
        (0..count).for_each(|_| list.push(Slice::from_owner(*b"ab")).unwrap());
        list
    };
    let mut first = list(MAX_SLICES - 2);
    let mut second = list(3);
    assert_eq!(first.append(&mut second), Err(TooManySlices));
    assert_eq!((first.len(), first.parts().len()), (2 * MAX_SLICES - 4, MAX_SLICES - 2));
    assert_eq!((second.len(), second.parts().len()), (6, 3));
    second.truncate(4);
    assert_eq!(first.append(&mut second), Ok(()));
    assert_eq!((first.len(), second.len()), (2 * MAX_SLICES, 0));
    // A full list takes what is the neighbour of its last range.
    let whole = pool.copy_from(b"0123456789");
    let (mut left, mut right) = (whole.clone(), whole);
    left.truncate(4);
    right.advance(4);
    let mut first = list(MAX_SLICES - 1);
    first.push(left).unwrap();
    assert_eq!(first.append(&mut Slices::from(right)), Ok(()));
    assert_eq!((first.len(), first.parts().len()), (2 * MAX_SLICES + 8, MAX_SLICES));
}

#[test]
fn free_chunks_are_counted_and_given_back() {
    let pool = Pool::new();
    let used: Vec<_> = (0..100).map(|_| pool.chunk(4096)).collect();
    assert_eq!(pool.free_bytes(), 0);
    drop(used);
    assert_eq!((pool.free_bytes(), pool.stats().in_use_bytes), (100 * 4096, 0));
    let held = pool.chunk(4096);
    pool.trim();
    assert_eq!((pool.free_bytes(), pool.stats().in_use_bytes), (0, 4096));
    drop(held);
    assert_eq!(pool.free_bytes(), 4096);
    assert_eq!(pool.stats().allocations, 100);
}

#[test]
fn a_list_holds_as_many_ranges_as_it_says_and_takes_them_apart_in_order() {
    let separate = |at: u8| Slice::from_owner(vec![at; 2]);
    let mut list = Slices::new();
    for at in 0..MAX_SLICES as u8 {
        list.push(separate(at)).unwrap();
    }
    assert_eq!(list.push(separate(9)), Err(TooManySlices));
    assert_eq!((list.parts().len(), list.len()), (MAX_SLICES, 2 * MAX_SLICES));
    list.advance(3);
    list.truncate(4);
    assert_eq!(list.parts().iter().map(|part| part[0]).collect::<Vec<_>>(), [1, 2, 3]);
    let copy = list.clone();
    assert_eq!(list.drain().map(|part| part.len()).collect::<Vec<_>>(), [1, 2, 1]);
    assert!(list.is_empty() && list.parts().is_empty());
    list.push(separate(7)).unwrap();
    let mut both = copy;
    both.append(&mut list).unwrap();
    assert_eq!((both.len(), both.parts().len(), list.len()), (6, 4, 0));
}
