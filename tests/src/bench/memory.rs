//! What the memory of this machine can do: the yardstick of the memory link.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::stage::Sample;

/// Bytes of one write, as `plimsoll stream` writes by default.
const WRITE: usize = 16384;

/// Bytes between writer and reader, about what a socket's buffers hold in a bulk transfer.
const BETWEEN: usize = 4 << 20;

/// Copies blocks into a ring and, a ring's length later, out of it again: what a socket must do.
/// The figure counts each byte once, although it was copied twice.
pub(super) fn two_passes(limit: Duration) -> Sample {
    let source = vec![0x5a_u8; WRITE];
    let mut ring = vec![0_u8; BETWEEN];
    let mut target = vec![0_u8; WRITE];
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < limit {
        for at in (0..BETWEEN).step_by(WRITE) {
            target.copy_from_slice(&ring[at..at + WRITE]);
            black_box(&mut target);
            ring[at..at + WRITE].copy_from_slice(black_box(&source));
            bytes += WRITE;
        }
        black_box(&mut ring);
    }
    let value = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
    Sample { value, cpu: Some(1.0) }
}
