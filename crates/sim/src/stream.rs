//! What flows carry: bytes that follow from their position, so that every byte that arrives can be
//! checked without keeping what was sent.

use crate::rng::mix;

/// One direction of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(flow: usize, to_server: bool) -> Stream {
        Stream(mix(flow as u64 * 2 + u64::from(to_server)))
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self.0 ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()
    }

    /// Fills `out` with the bytes from `at` on.
    pub(crate) fn fill(self, at: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let here = at + done as u64;
            let word = self.word(here / 8);
            let part = &word[(here % 8) as usize..];
            let count = part.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&part[..count]);
            done += count;
        }
    }

    /// The first position from `at` on where `data` differs from the stream.
    pub(crate) fn differs(self, at: u64, data: &[u8]) -> Option<u64> {
        let mut done = 0;
        while done < data.len() {
            let here = at + done as u64;
            let word = self.word(here / 8);
            let part = &word[(here % 8) as usize..];
            let count = part.len().min(data.len() - done);
            if part[..count] != data[done..done + count] {
                let within = (0..count).position(|i| part[i] != data[done + i]).unwrap_or(0);
                return Some(here + within as u64);
            }
            done += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_is_the_same_as_in_the_whole() {
        let stream = Stream::new(3, true);
        let mut whole = [0; 100];
        stream.fill(0, &mut whole);
        for start in 0..20 {
            let mut part = [0; 33];
            stream.fill(start, &mut part);
            assert_eq!(part, whole[start as usize..][..33]);
            assert_eq!(stream.differs(start, &part), None);
            part[30] ^= 1;
            assert_eq!(stream.differs(start, &part), Some(start + 30));
        }
        assert_eq!(Stream::new(3, false).differs(0, &whole), Some(0));
    }
}
