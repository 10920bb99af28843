use std::vec;

use crate::{MAX_SLICES, Pool, Slices, TooManySlices};

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
fn slices_cross_threads_while_the_writer_goes_on() {
    let pool = Pool::new();
    let mut writer = pool.chunk(4096);
    let rounds: u8 = if cfg!(miri) { 20 } else { 200 };
    std::thread::scope(|scope| {
        let (tx, rx) = std::sync::mpsc::channel::<(u8, crate::Slice)>();
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
