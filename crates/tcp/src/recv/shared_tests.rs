//! Tests of reads without a copy.

use std::vec::Vec;

use plimsoll_buf::{MAX_SLICES, Slices};
use plimsoll_wire::tcp::TcpFlags;

use crate::config::SetOption;
use crate::event::ReadError;
use crate::segment::{Ecn, Segment};
use crate::testing::{Setup, Trace, pattern};

/// A segment of `len` bytes, next in order, in its own chunk. Returns the address of its bytes.
fn arrive(t: &mut Trace, len: usize) -> *const u8 {
    let at = t.conn.rcv.nxt.since(t.conn.rcv.irs) as usize;
    let data: Vec<u8> = (at..at + len).map(pattern).collect();
    let slice = t.pool.copy_from(&data);
    let start = slice.as_ptr();
    let (seq, ack) = (t.conn.rcv.nxt, t.conn.snd.nxt());
    let repr = plimsoll_wire::tcp::TcpRepr {
        src_port: t.conn.remote_port,
        dst_port: t.conn.local_port,
        seq,
        ack,
        flags: TcpFlags::ACK,
        window: 60_000,
        ..plimsoll_wire::tcp::TcpRepr::default()
    };
    let mut segment = Segment { repr, payload: slice.into(), segs: 1, ecn: Ecn::NotEct };
    t.call(|conn, cx| conn.handle_segment(cx, &mut segment));
    start
}

#[test]
fn hands_the_very_chunks_out() {
    let mut t = Trace::established(Setup::default());
    let chunks: Vec<_> = (0..3).map(|_| arrive(&mut t, 4096)).collect();
    let slices = t.call(|conn, cx| conn.read_shared(cx, usize::MAX)).unwrap();
    assert_eq!(slices.len(), 3 * 4096);
    let parts: Vec<_> = slices.parts().iter().map(|part| part.as_ptr()).collect();
    assert_eq!(parts, chunks);
    let nothing = t.call(|conn, cx| conn.read_shared(cx, 10));
    assert!(matches!(nothing, Err(ReadError::WouldBlock)));
}

#[test]
fn mixed_reads_give_the_stream() {
    let mut t = Trace::established(Setup::default());
    let mut got = Vec::new();
    let mut buf = [0; 700];
    for round in 0..60 {
        for len in [3000, 40, 4096] {
            arrive(&mut t, len);
        }
        for step in 0..6 {
            if (round + step) % 2 == 0 {
                let slices = t.call(|conn, cx| conn.read_shared(cx, 1500)).unwrap_or_default();
                slices.parts().iter().for_each(|part| got.extend_from_slice(part));
            } else if let Ok(count) = t.call(|conn, cx| conn.read(cx, &mut buf)) {
                got.extend_from_slice(&buf[..count]);
            }
        }
        while let Ok(slices) = t.call(|conn, cx| conn.read_shared(cx, 5000)) {
            slices.parts().iter().for_each(|part| got.extend_from_slice(part));
        }
        t.drain();
    }
    assert_eq!(got.len(), 60 * 7136);
    assert!(got.iter().enumerate().all(|(at, &byte)| byte == pattern(at + 1)));
}

#[test]
fn a_list_has_few_ranges_and_loses_nothing() {
    let mut t = Trace::established(Setup::default());
    for _ in 0..MAX_SLICES + 3 {
        arrive(&mut t, 2500);
    }
    let first = t.call(|conn, cx| conn.read_shared(cx, usize::MAX)).unwrap();
    assert_eq!((first.parts().len(), first.len()), (MAX_SLICES, MAX_SLICES * 2500));
    let rest = t.call(|conn, cx| conn.read_shared(cx, usize::MAX)).unwrap();
    assert_eq!(rest.len(), 3 * 2500);
    assert_eq!(rest.parts()[0][0], pattern(1 + MAX_SLICES * 2500));
}

/// A read takes what a peek has shown, and the window stays closed until then.
#[test]
fn a_peek_leaves_the_bytes_and_the_window() {
    let mut t = Trace::established(Setup::default());
    for _ in 0..MAX_SLICES + 3 {
        arrive(&mut t, 2500);
    }
    let bytes = |slices: &Slices| -> Vec<u8> {
        slices.parts().iter().flat_map(|part| part.iter().copied()).collect()
    };
    let mut got = Vec::new();
    while let Ok(seen) = t.conn.peek_shared(3000) {
        let (edge, readable) = (t.conn.rcv.adv, t.conn.readable());
        assert_eq!(bytes(&t.conn.peek_shared(3000).unwrap()), bytes(&seen));
        t.drain();
        assert_eq!((t.conn.rcv.adv, t.conn.readable()), (edge, readable));
        let part = seen.len().min(1700);
        let taken = t.call(|conn, cx| conn.read_shared(cx, part)).unwrap();
        assert_eq!(bytes(&taken), bytes(&seen)[..part]);
        got.extend(bytes(&taken));
    }
    assert_eq!(got.len(), (MAX_SLICES + 3) * 2500);
    assert!(got.iter().enumerate().all(|(at, &byte)| byte == pattern(at + 1)));
    // At most as many ranges as a list has.
    for _ in 0..MAX_SLICES + 3 {
        arrive(&mut t, 2500);
    }
    assert_eq!(t.conn.peek_shared(usize::MAX).unwrap().parts().len(), MAX_SLICES);
    assert_eq!(t.conn.peek_shared(0).unwrap().len(), 0);
}

#[test]
fn it_opens_the_window_as_a_read_does() {
    let edges = [false, true].map(|shared| {
        let mut t = Trace::established(Setup::default());
        while t.conn.rcv.wnd() > 5000 {
            arrive(&mut t, 4096);
            t.drain();
        }
        let count = t.conn.readable();
        let mut left = count;
        while left > 0 {
            left -= if shared {
                t.call(|conn, cx| conn.read_shared(cx, 8192)).unwrap().len()
            } else {
                t.call(|conn, cx| conn.read(cx, &mut [0; 8192])).unwrap()
            };
        }
        let sent = t.drain();
        assert!(!sent.is_empty(), "the window update");
        t.conn.rcv.adv.since(t.conn.rcv.irs)
    });
    assert_eq!(edges[0], edges[1]);
}

#[test]
fn it_stops_before_the_urgent_byte_and_steps_over_it() {
    for inline in [false, true] {
        let mut t = Trace::established(Setup::default());
        t.call(|conn, cx| conn.set_option(cx, SetOption::OobInline(inline)));
        t.recv("PU. 1:11 ack 1 urg 5");
        let first = t.call(|conn, cx| conn.read_shared(cx, 100)).unwrap();
        assert_eq!(first.len(), 4, "up to the mark");
        assert!(t.conn.at_urgent_mark());
        let second = t.call(|conn, cx| conn.read_shared(cx, 100)).unwrap();
        assert_eq!(second.len(), if inline { 6 } else { 5 });
        let begins = if inline { 4 } else { 5 };
        assert_eq!(second.parts()[0][0], pattern(begins + 1));
    }
}

#[test]
fn the_end_is_an_empty_list() {
    let mut t = Trace::established(Setup::default());
    t.recv("F. 1:5 ack 1");
    assert_eq!(t.call(|conn, cx| conn.read_shared(cx, 0)).unwrap().len(), 0, "asked for nothing");
    assert_eq!(t.call(|conn, cx| conn.read_shared(cx, 100)).unwrap().len(), 4);
    assert!(t.call(|conn, cx| conn.read_shared(cx, 100)).unwrap().is_empty());
}
