use std::vec;
use std::vec::Vec;

use super::*;
use crate::SeqNum;
use crate::tcp::{
    FastOpenCookie, FastOpenOption, MAX_HEADER_LEN, SackBlock, SynOptions, SynOrSack, TcpFlags,
    TcpRepr, Timestamps,
};

const COUNTERS: AccEcnCounters = AccEcnCounters { e0b: 0x01_0203, ceb: 0x04_0506, e1b: 0x07_0809 };

fn written(options: &TcpOptions, flags: TcpFlags) -> Vec<u8> {
    let repr = TcpRepr { flags, options: options.clone(), ..TcpRepr::default() };
    let mut out = [0xee; MAX_HEADER_LEN];
    let len = repr.emit(&mut out);
    assert_eq!(len, repr.header_len());
    out[20..len].to_vec()
}

fn parsed(bytes: &[u8]) -> TcpOptions {
    let mut packet = vec![0; 20];
    TcpRepr::default().emit(&mut packet);
    packet.extend_from_slice(bytes);
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet[12] = (packet.len() / 4) as u8 * 16;
    TcpRepr::parse(&packet).unwrap().0.options
}

#[test]
fn both_orders_say_the_same_in_every_length() {
    let table: [(AccEcnOrder, usize, &[u8]); 7] = [
        (AccEcnOrder::Ect0First, 3, &[172, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1]),
        (AccEcnOrder::Ect0First, 2, &[172, 8, 1, 2, 3, 4, 5, 6]),
        (AccEcnOrder::Ect0First, 1, &[172, 5, 1, 2, 3, 1, 1, 1]),
        (AccEcnOrder::Ect0First, 0, &[172, 2, 1, 1]),
        (AccEcnOrder::Ect1First, 3, &[174, 11, 7, 8, 9, 4, 5, 6, 1, 2, 3, 1]),
        (AccEcnOrder::Ect1First, 1, &[174, 5, 7, 8, 9, 1, 1, 1]),
        (AccEcnOrder::Ect1First, 9, &[174, 11, 7, 8, 9, 4, 5, 6, 1, 2, 3, 1]),
    ];
    for (order, present, bytes) in table {
        let option = AccEcnOption::new(order, present, COUNTERS);
        let options = TcpOptions { acc_ecn: Some(option), ..TcpOptions::default() };
        assert_eq!(written(&options, TcpFlags::ACK), bytes);
        assert_eq!(parsed(bytes), options);
        assert_eq!((option.order(), option.present()), (order, present.min(3)));
        let (first, last) = match order {
            AccEcnOrder::Ect0First => (option.e0b(), option.e1b()),
            AccEcnOrder::Ect1First => (option.e1b(), option.e0b()),
        };
        let value = match order {
            AccEcnOrder::Ect0First => (COUNTERS.e0b, COUNTERS.e1b),
            AccEcnOrder::Ect1First => (COUNTERS.e1b, COUNTERS.e0b),
        };
        assert_eq!(first, (present > 0).then_some(value.0));
        assert_eq!(option.ceb(), (present > 1).then_some(COUNTERS.ceb));
        assert_eq!(last, (present > 2).then_some(value.1));
    }
}

#[test]
fn counters_wrap_at_24_bits() {
    let large = AccEcnCounters { e0b: 0xff00_0001, ceb: u32::MAX, e1b: 1 << 24 };
    let option = AccEcnOption::new(AccEcnOrder::Ect0First, 3, large);
    assert_eq!((option.e0b(), option.ceb(), option.e1b()), (Some(1), Some(0xff_ffff), Some(0)));
}

#[test]
fn other_lengths_are_no_option() {
    for kind in [172, 174] {
        for len in 2..=38_u8 {
            let mut bytes = vec![kind, len];
            bytes.resize(usize::from(len), 5);
            let good = matches!(len, 2 | 5 | 8 | 11);
            assert_eq!(parsed(&bytes).acc_ecn.is_some(), good, "kind {kind}, length {len}");
        }
        for bad in [&[kind][..], &[kind, 0], &[kind, 1], &[kind, 40], &[1, 1, 1, kind]] {
            assert_eq!(parsed(bad).acc_ecn, None, "{bad:?}");
        }
    }
    let two = [172, 5, 0, 0, 1, 174, 5, 0, 0, 2, 1, 1];
    assert_eq!(parsed(&two).acc_ecn.unwrap().e0b(), Some(1), "the first one counts");
}

#[test]
fn it_stands_behind_timestamps_and_gives_way_to_all_others() {
    let option = Some(AccEcnOption::new(AccEcnOrder::Ect1First, 3, COUNTERS));
    let bytes: &[u8] = &[174, 11, 7, 8, 9, 4, 5, 6, 1, 2, 3, 1];
    let syn = SynOptions {
        mss: Some(1460),
        window_scale: Some(8),
        sack_permitted: true,
        ..SynOptions::default()
    };
    let plain = TcpOptions { acc_ecn: option, ..TcpOptions::of_syn(syn) };
    let expected = [&[2, 4, 5, 180][..], bytes, &[1, 1, 4, 2, 1, 3, 3, 8]].concat();
    assert_eq!(written(&plain, TcpFlags::SYN), expected);
    let timestamps = Some(Timestamps { val: 1, ecr: 2 });
    let stamped = TcpOptions { timestamps, ..plain };
    let times = [4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let expected = [&[2, 4, 5, 180][..], &times, bytes, &[1, 3, 3, 8]].concat();
    assert_eq!(written(&stamped, TcpFlags::SYN), expected);
    let mut cookie = stamped;
    cookie.syn_mut().fast_open =
        FastOpenCookie::new(&[7; 8]).map(|cookie| FastOpenOption { cookie, experimental: false });
    let bytes = written(&cookie, TcpFlags::SYN);
    assert!(!bytes.contains(&174) && bytes.contains(&34), "{bytes:?}");
}

#[test]
fn space_is_what_the_others_leave() {
    let timestamps = Some(Timestamps { val: 1, ecr: 2 });
    let md5 = Some([9; 16]);
    let table = [
        (None, None, 0, 40, Some(3)),
        (None, None, 3, 40, Some(3)),
        (None, None, 4, 40, Some(0)),
        (timestamps, None, 1, 40, Some(3)),
        (timestamps, None, 2, 40, Some(2)),
        (timestamps, None, 3, 40, None),
        (None, md5, 1, 40, Some(2)),
        (None, md5, 2, 40, None),
        (timestamps, md5, 0, 40, Some(2)),
        (timestamps, None, 0, 12, None),
        (timestamps, None, 0, 16, Some(0)),
        (timestamps, None, 0, 23, Some(2)),
        (timestamps, None, 0, 99, Some(3)),
    ];
    for (timestamps, md5, blocks, most, expected) in table {
        let block = |i| SackBlock { left: SeqNum(i), right: SeqNum(i + 1) };
        let sack = SynOrSack::Sack((0..blocks).map(block).collect());
        let mut options = TcpOptions { timestamps, md5, acc_ecn: None, syn_or_sack: sack };
        let name = std::format!("{blocks} blocks, {options:?}");
        assert_eq!(options.acc_ecn_space(most), expected, "{name}");
        let before = options.len();
        if let Some(present) = expected {
            let option = AccEcnOption::new(AccEcnOrder::Ect0First, present, COUNTERS);
            options.acc_ecn = Some(option);
            assert_eq!(options.len(), before + AccEcnOption::padded_len(present), "{name}");
            assert!(options.len() <= most, "{name}");
        }
    }
}
