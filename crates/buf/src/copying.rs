//! Copies of payload.

use core::hint::black_box;

/// Ranges of fewer bytes are copied by the C library with vectors, whatever their addresses.
const PIECE: usize = 2048;

/// Addresses repeat, for a processor that compares them early, after so many bytes.
const PAGE: usize = 4096;

/// How far ahead of the source, within a page, a target is slow.
const NEAR: usize = 32;

/// Copies `from` into `to`, which is as long.
///
/// The C library copies more than about 2 KiB with a single instruction, `rep movsb`. On AMD
/// processors of the Zen 3 family it takes some twenty times as long if the target's address is 1
/// to 31 bytes ahead of the source's, the pages apart: there each part that is stored looks like
/// what is loaded next. Such a copy is done in pieces, which are loaded and stored as vectors.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() > PIECE && is_near(to.as_ptr().addr(), from.as_ptr().addr()) {
        copy_in_pieces(to, from);
    } else {
        to.copy_from_slice(from);
    }
}

/// Whether a target at `to` is a little ahead of a source at `from`, the pages apart.
#[inline]
const fn is_near(to: usize, from: usize) -> bool {
    let ahead = to.wrapping_sub(from) % PAGE;
    ahead != 0 && ahead < NEAR
}

#[cold]
fn copy_in_pieces(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "source and target differ in length");
    for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
        // Seen through, the loop would become one copy again.
        to.copy_from_slice(black_box(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near() {
        let cases = [
            (0, false, "at the same place"),
            (1, true, "ahead"),
            (31, true, "as far as it is slow"),
            (32, false, "farther"),
            (PAGE, false, "at the same place of another page"),
            (PAGE + 8, true, "ahead in another page"),
            (PAGE - 8, false, "behind"),
        ];
        for (ahead, near, name) in cases {
            assert_eq!(is_near(3 * PAGE + 5 + ahead, 3 * PAGE + 5), near, "{name}");
        }
        assert!(is_near(8, PAGE), "behind by whole pages");
    }

    #[test]
    fn all_bytes_are_copied() {
        let from: std::vec::Vec<u8> = (0..3 * PAGE).map(|n| (n * 7 + n / 251) as u8).collect();
        let zeros = std::vec![0; 3 * PAGE];
        let mut room = zeros.clone();
        // How far ahead of the source the target lies, within a page. Miri takes its time.
        let all = (0..PAGE).step_by(NEAR / 4);
        for ahead in all.take(if cfg!(miri) { 6 } else { PAGE }) {
            let shift = from.as_ptr().addr().wrapping_sub(room.as_ptr().addr());
            let shift = shift.wrapping_add(ahead) % PAGE;
            for len in [1, PIECE, PIECE + 1, 2 * PIECE, 5000] {
                room.fill(0);
                copy(&mut room[shift..shift + len], &from[..len]);
                assert!(room[shift..shift + len] == from[..len], "{len} bytes, {ahead} ahead");
                let around = (&room[..shift], &room[shift + len..]);
                let untouched = (&zeros[..shift], &zeros[shift + len..]);
                assert!(around == untouched, "{len} bytes, {ahead} ahead");
            }
        }
    }

    #[test]
    #[should_panic = "length"]
    fn lengths_must_be_equal() {
        copy(&mut [0; 4], &[0; 5]);
    }
}
