use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The definition of RFC 1071, word by word.
fn naive(data: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in data.chunks(2) {
        let low = if pair.len() == 2 { pair[1] } else { 0 };
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn the_example_of_rfc_1071() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(sum(&data).folded(), 0xddf2);
    assert_eq!(sum(&data).finish(), !0xddf2);
}

#[test]
fn every_length_around_the_change_of_loops() {
    let data: Vec<u8> = (0..700_u32).map(|i| (i * 31 + 7) as u8).collect();
    for len in 0..data.len() {
        assert_eq!(sum(&data[..len]).folded(), naive(&data[..len]), "length {len}");
    }
}

#[test]
fn lanes_do_not_overflow_on_the_largest_words() {
    let data = vec![0xff; 2 * LANES_HOLD + 77];
    assert_eq!(sum(&data).folded(), naive(&data));
}

#[test]
fn the_example_of_rfc_1624() {
    // Section 4: the case that equation 2 gets wrong.
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn a_filled_checksum_verifies_and_a_flipped_bit_does_not() {
    let pseudo = pseudo_header_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 23);
    let mut data = [0x5a; 23];
    fill(pseudo, &mut data, 16);
    assert!(verify(pseudo, &data));
    for bit in 0..data.len() * 8 {
        let mut broken = data;
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(!verify(pseudo, &broken), "bit {bit}");
    }
}

#[test]
fn pseudo_headers_are_what_the_rfcs_draw() {
    let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 7));
    let drawn = [192, 0, 2, 1, 198, 51, 100, 7, 0, 6, 0x12, 0x34];
    assert_eq!(pseudo_header_v4(src, dst, 6, 0x1234).folded(), naive(&drawn));
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8:0:ffff::2".parse().unwrap());
    let mut drawn = Vec::new();
    drawn.extend(Ipv6Addr::octets(&src));
    drawn.extend(Ipv6Addr::octets(&dst));
    drawn.extend([0, 1, 0x23, 0x45, 0, 0, 0, 58]);
    assert_eq!(pseudo_header_v6(src, dst, 58, 0x12345).folded(), naive(&drawn));
}

proptest! {
    #[test]
    fn pieces_sum_like_the_whole(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
    ) {
        let whole: Vec<u8> = pieces.concat();
        let mut by_bytes = Sum::new();
        let mut by_sums = Sum::new();
        for piece in &pieces {
            by_bytes.add_bytes(piece);
            by_sums.add(sum(piece));
        }
        prop_assert_eq!(by_bytes.folded(), naive(&whole));
        prop_assert_eq!(by_sums.folded(), naive(&whole));
    }

    #[test]
    fn the_start_address_does_not_matter(
        data in prop::collection::vec(any::<u8>(), 64..2000),
        start in 0_usize..64,
    ) {
        prop_assert_eq!(sum(&data[start..]).folded(), naive(&data[start..]));
    }

    #[test]
    fn an_update_equals_a_new_sum(
        mut data in prop::collection::vec(any::<u8>(), 8..64),
        at in 0_usize..30,
        new: u32,
    ) {
        // A field of all zeros among zeros has two representations of its sum; keep clear of it.
        data[0] = 1;
        let at = (2 + at * 2).min((data.len() - 4) & !1);
        let before = sum(&data).finish();
        let old = u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        data[at..at + 4].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(update_u32(before, old, new), sum(&data).finish());
    }
}
