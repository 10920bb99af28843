use std::vec;
use std::vec::Vec;

use super::*;

/// A header with these raw option bytes, which are padded with zeros to words.
fn header(flags: TcpFlags, options: &[u8]) -> Vec<u8> {
    let repr = TcpRepr { src_port: 1, dst_port: 2, flags, ..TcpRepr::default() };
    let mut bytes = vec![0; HEADER_LEN];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(options);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes[12] = (bytes.len() / 4) as u8 * 16;
    bytes
}

fn options(flags: TcpFlags, bytes: &[u8]) -> TcpOptions {
    let bytes = header(flags, bytes);
    let (repr, len) = TcpRepr::parse(&bytes).unwrap();
    assert_eq!(len, bytes.len());
    repr.options
}

fn with_blocks(count: u32) -> TcpOptions {
    let block = |i| SackBlock { left: SeqNum(i), right: SeqNum(i + 1) };
    let blocks = (0..count).map(block).collect();
    TcpOptions { syn_or_sack: SynOrSack::Sack(blocks), ..TcpOptions::default() }
}

fn with_mss(mss: u16) -> TcpOptions {
    TcpOptions::of_syn(SynOptions { mss: Some(mss), ..SynOptions::default() })
}

#[test]
fn what_a_syn_carries_and_blocks_exclude_each_other() {
    let mut options = with_mss(1460);
    assert_eq!((options.syn().mss, options.sack()), (Some(1460), &[][..]));
    options.sack_mut().push(SackBlock { left: SeqNum(0), right: SeqNum(1) });
    assert_eq!((options.syn().mss, options.sack().len()), (None, 1));
    options.syn_mut().window_scale = Some(3);
    assert_eq!((options.syn().window_scale, options.sack()), (Some(3), &[][..]));
    assert!(size_of::<TcpOptions>() <= 84, "{}", size_of::<TcpOptions>());
    assert!(size_of::<TcpRepr>() <= 104, "{}", size_of::<TcpRepr>());
}

const TIMES: Option<Timestamps> = Some(Timestamps { val: 0x0102_0304, ecr: 0x0506_0708 });

#[test]
fn options_leave_in_linux_layout() {
    let syn = TcpOptions {
        timestamps: TIMES,
        syn_or_sack: SynOrSack::Syn(SynOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            ..SynOptions::default()
        }),
        ..TcpOptions::default()
    };
    let table: [(TcpOptions, &[u8], &str); 10] = [
        (TcpOptions::default(), &[], "nothing"),
        (syn.clone(), &[2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7], "SYN"),
        (
            TcpOptions { timestamps: None, ..syn },
            &[2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7],
            "SYN without timestamps",
        ),
        (
            TcpOptions { md5: Some([7; 16]), ..with_mss(1460) },
            &[1, 1, 19, 18, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 2, 4, 5, 180],
            "a signed SYN",
        ),
        (fast_open(&[], false), &[34, 2, 1, 1], "a request for a cookie"),
        (fast_open(&[1, 2, 3, 4, 5, 6], false), &[34, 8, 1, 2, 3, 4, 5, 6], "a cookie"),
        (
            fast_open(&[1, 2, 3, 4, 5, 6], true),
            &[254, 10, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 1, 1],
            "a cookie in the experimental form",
        ),
        (
            TcpOptions { timestamps: TIMES, ..TcpOptions::default() },
            &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            "data",
        ),
        (with_blocks(1), &[1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 1], "SACK"),
        (
            TcpOptions { timestamps: TIMES, ..with_blocks(1) },
            &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 1],
            "timestamps and SACK",
        ),
    ];
    for (options, expected, name) in table {
        let repr = TcpRepr { options, ..TcpRepr::default() };
        let mut out = [0xee; MAX_HEADER_LEN];
        let len = repr.emit(&mut out);
        assert_eq!(len, repr.header_len(), "{name}");
        assert_eq!(&out[HEADER_LEN..len], expected, "{name}");
        assert_eq!(usize::from(out[12] >> 4) * 4, len, "{name}");
    }
}

#[test]
fn sack_blocks_without_room_are_left_out() {
    let table = [(None, 4, 36), (TIMES, 4, 40), (TIMES, 3, 40), (TIMES, 2, 32)];
    for (timestamps, given, len) in table {
        let options = TcpOptions { timestamps, ..with_blocks(given) };
        assert_eq!(options.len(), len);
        let repr = TcpRepr { options, ..TcpRepr::default() };
        let mut out = [0; MAX_HEADER_LEN];
        let len = repr.emit(&mut out);
        let (parsed, _) = TcpRepr::parse(&out[..len]).unwrap();
        let kept = parsed.options.sack().len();
        assert_eq!(parsed.options.sack(), &repr.options.sack()[..kept]);
        assert_eq!(kept, if timestamps.is_some() { given.min(3) } else { given } as usize);
    }
}

#[test]
fn the_biggest_syn_keeps_within_a_header() {
    let options = TcpOptions {
        timestamps: TIMES,
        syn_or_sack: SynOrSack::Syn(SynOptions {
            mss: Some(1),
            window_scale: Some(14),
            sack_permitted: true,
            ..SynOptions::default()
        }),
        ..TcpOptions::default()
    };
    assert_eq!(options.len(), 20);
    let with_cookie = |experimental| {
        let mut syn = options.clone();
        syn.syn_mut().fast_open = fast_open(&[7; 16], experimental).syn().fast_open;
        syn
    };
    assert_eq!(with_cookie(false).len(), 40, "the longest cookie fits just so");
    assert_eq!(with_cookie(true).len(), 40);
    let signed = TcpOptions { md5: Some([7; 16]), timestamps: None, ..with_cookie(false) };
    let repr = TcpRepr { flags: TcpFlags::SYN, options: signed, ..TcpRepr::default() };
    let mut out = [0; MAX_HEADER_LEN];
    let len = repr.emit(&mut out);
    let parsed = TcpRepr::parse(&out[..len]).unwrap().0.options;
    assert_eq!((parsed.syn().fast_open, parsed.md5), (None, Some([7; 16])), "left out");
}

fn fast_open(cookie: &[u8], experimental: bool) -> TcpOptions {
    let cookie = FastOpenCookie::new(cookie).unwrap();
    let fast_open = Some(FastOpenOption { cookie, experimental });
    TcpOptions::of_syn(SynOptions { fast_open, ..SynOptions::default() })
}

#[test]
fn fast_open_options_are_read_as_linux_reads_them() {
    type Found = Option<(&'static [u8], bool)>;
    let table: [(&[u8], Found, &str); 10] = [
        (&[34, 2, 1, 1], Some((&[], false)), "a request"),
        (&[254, 4, 0xf9, 0x89], Some((&[], true)), "an experimental request"),
        (&[34, 6, 1, 2, 3, 4], Some((&[1, 2, 3, 4], false)), "the shortest cookie"),
        (&[254, 8, 0xf9, 0x89, 1, 2, 3, 4], Some((&[1, 2, 3, 4], true)), "experimental"),
        (&[254, 8, 0xf9, 0x8a, 1, 2, 3, 4], None, "another experiment"),
        (&[34, 4, 1, 2], None, "too short"),
        (&[34, 5, 1, 2, 3], None, "of odd length"),
        (&[34, 6, 1, 2, 3, 4, 34, 7, 1, 2, 3, 4, 5], Some((&[1, 2, 3, 4], false)), "then odd"),
        (&[34, 6, 1, 2, 3, 4, 34, 6, 5, 6, 7, 8], Some((&[5, 6, 7, 8], false)), "two: the last"),
        (&[34, 6, 1, 2, 3, 4, 34, 4, 5, 6], None, "two: the last, though it is wrong"),
    ];
    for (bytes, expected, name) in table {
        let found = options(TcpFlags::SYN, bytes).syn().fast_open;
        let found = found.as_ref().map(|option| (option.cookie.as_bytes(), option.experimental));
        assert_eq!(found, expected, "{name}");
    }
    let mut longest = [7; 20];
    longest[..2].copy_from_slice(&[34, 20]);
    assert_eq!(options(TcpFlags::SYN, &longest).syn().fast_open, None, "too long");
    assert_eq!(options(TcpFlags::ACK, &[34, 6, 1, 2, 3, 4]).syn().fast_open, None, "not on a SYN");
}

#[test]
fn options_of_a_syn_mean_nothing_elsewhere() {
    let bytes = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7];
    let expected = TcpOptions { timestamps: TIMES, ..TcpOptions::default() };
    assert_eq!(options(TcpFlags::ACK, &bytes), expected);
    let sack = [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(options(TcpFlags::SYN, &sack), TcpOptions::of_syn(SynOptions::default()));
    assert_eq!(options(TcpFlags::ACK, &sack), with_blocks(1));
}

#[test]
fn malformed_options_end_or_are_skipped() {
    let mss = with_mss(536);
    let none = TcpOptions::of_syn(SynOptions::default());
    let table: [(&[u8], &TcpOptions, &str); 12] = [
        (&[2, 4, 2, 24, 99, 0, 3, 3, 7], &mss, "length 0 ends the list"),
        (&[2, 4, 2, 24, 99, 1, 3, 3, 7], &mss, "length 1 ends the list"),
        (&[2, 4, 2, 24, 99, 200, 1, 1], &mss, "a length beyond the header ends the list"),
        (&[2, 4, 2, 24, 1, 1, 1, 99], &mss, "a kind without a length ends the list"),
        (&[3, 2, 2, 4, 2, 24], &mss, "window scale without shift"),
        (&[2, 3, 9, 2, 4, 2, 24], &mss, "MSS of one byte"),
        (&[8, 9, 0, 0, 0, 0, 0, 0, 0, 2, 4, 2, 24], &mss, "timestamps one byte short"),
        (&[4, 3, 0, 2, 4, 2, 24], &mss, "SACK permitted with a body"),
        (&[254, 6, 1, 2, 3, 4, 2, 4, 2, 24], &mss, "an unknown option"),
        (&[0, 2, 4, 2, 24], &none, "nothing counts behind the end of the list"),
        (&[2, 4, 0, 0], &none, "an MSS of zero"),
        (&[1, 1, 1], &none, "padding"),
    ];
    for (bytes, expected, name) in table {
        assert_eq!(options(TcpFlags::SYN, bytes), *expected, "{name}");
    }
    let sack_table: [&[u8]; 3] =
        [&[5, 2], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[5, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    for bytes in sack_table {
        assert_eq!(options(TcpFlags::ACK, bytes), TcpOptions::default(), "{bytes:?}");
    }
}

#[test]
fn the_short_way_for_timestamps_agrees_with_the_long_one() {
    let times = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    for padding in [&[1, 1][..], &[1, 1, 1, 1, 1, 1], &[]] {
        let expected = TcpOptions { timestamps: TIMES, ..TcpOptions::default() };
        assert_eq!(options(TcpFlags::ACK, &[padding, &times].concat()), expected);
        assert_eq!(options(TcpFlags::ACK, &[&times, padding].concat()), expected);
    }
    // The same pattern followed by more options takes the long way.
    let more = [&[1, 1][..], &times, &[1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 1]].concat();
    let expected = TcpOptions { timestamps: TIMES, ..with_blocks(1) };
    assert_eq!(options(TcpFlags::ACK, &more), expected);
}

#[test]
fn short_and_contradictory_headers_are_refused() {
    let bytes = header(TcpFlags::ACK, &[1, 1, 1, 1]);
    for len in 0..bytes.len() {
        assert_eq!(TcpRepr::parse(&bytes[..len]), Err(WireError::Truncated), "{len} bytes");
    }
    let mut bytes = header(TcpFlags::ACK, &[]);
    bytes[12] = 4 << 4;
    assert_eq!(TcpRepr::parse(&bytes), Err(WireError::BadLength));
}

#[test]
fn flags_print_by_name() {
    assert_eq!(std::format!("{:?}", TcpFlags::SYN | TcpFlags::ACK), "SYN|ACK");
    assert_eq!(std::format!("{:?}", TcpFlags::default()), "none");
    assert_eq!(std::format!("{:?}", TcpFlags::AE), "AE");
}

#[test]
fn as_many_sack_blocks_as_there_is_place_for() {
    let times = Some(Timestamps { val: 1, ecr: 2 });
    let md5 = Some([7; 16]);
    for (timestamps, md5, fit) in
        [(None, None, 4), (times, None, 3), (None, md5, 2), (times, md5, 0)]
    {
        let mut options = TcpOptions { timestamps, md5, ..TcpOptions::default() };
        for left in 0..4 {
            options
                .sack_mut()
                .push(SackBlock { left: SeqNum(left * 10), right: SeqNum(left * 10 + 5) });
        }
        let written = options.len();
        options.fit_sack();
        assert_eq!((options.sack().len(), options.len()), (fit, written));
    }
}

/// Without padding all of it fits into 40 bytes, with padding it does not.
#[test]
fn what_has_no_place_is_left_out_as_writing_does() {
    let mut options = with_blocks(3);
    options.timestamps = Some(Timestamps { val: 1, ecr: 2 });
    options.acc_ecn = Some(AccEcnOption::new(AccEcnOrder::Ect1First, 0, AccEcnCounters::default()));
    let written = options.len();
    options.fit();
    assert_eq!((options.acc_ecn, options.sack().len(), options.len()), (None, 3, written));
    options = with_blocks(2);
    options.acc_ecn = Some(AccEcnOption::new(AccEcnOrder::Ect1First, 0, AccEcnCounters::default()));
    let before = options.clone();
    options.fit();
    assert_eq!(options, before, "all has a place");
}
