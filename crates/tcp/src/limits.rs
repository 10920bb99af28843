//! All limits of the engine, each with the behaviour when it is reached.

/// Payload bytes of one super-segment: an IP packet of 65,535 bytes less the largest headers.
/// Longer data leaves as several.
pub const MAX_SUPER_SEGMENT: usize = 65_535 - 120;

/// The same if the layer below accepts longer packets by reference: one chunk of memory less the
/// largest headers.
pub const MAX_BIG_SUPER_SEGMENT: usize = plimsoll_buf::MAX_CHUNK - 120;

/// Wire segments of one super-segment (Linux: `GSO_MAX_SEGS`).
pub const MAX_SUPER_SEGMENT_SEGS: usize = 65_535;

/// Ranges that reassembly keeps apart, if the buffer is large enough for their cost. A segment that
/// would open one more is dropped and counted (`TcpExtTCPOFODrop`); the peer retransmits it.
pub const MAX_REASSEMBLY_RANGES: usize = 16_384;

/// Ranges into which SACK may always cut the scoreboard, with any send buffer. A larger buffer
/// allows as many as it holds segments, but no more than would use as much memory as the buffer
/// itself. Beyond that only the part of a SACK block that covers whole ranges is used.
pub const MIN_SENT_RANGES: usize = 1024;

/// Largest window shift (RFC 7323, section 2.3).
pub const MAX_WINDOW_SHIFT: u8 = 14;

/// The lowest value of TCP_WINDOW_CLAMP, in bytes (as on Linux).
pub const MIN_WINDOW_CLAMP: u32 = 1152;

/// The largest buffer of either side: the largest expressible window (RFC 7323, section 2.3), so
/// that numbers on both ends of it compare.
pub(crate) const MAX_BUFFER: usize = 65_535 << MAX_WINDOW_SHIFT;

/// Slices shorter than this are copied into a compact chunk when they would keep a much larger
/// chunk alive; see `recv/store.rs`.
pub const COPY_BREAK: usize = 2048;

/// Slices of any length are copied if this many of them would not fill their chunk.
pub const COPY_SHARE: usize = 16;

/// Reports that wait in an error queue. Further ones are dropped, as on Linux, where they fill the
/// receive buffer.
pub const MAX_ERROR_QUEUE: usize = 1024;

/// Duplicate ACKs that wait to be sent one by one. Further ones are merged, which a peer survives.
pub const MAX_DUP_ACKS: u16 = 512;

/// Allows at most one answer per interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateLimit {
    last: Option<crate::time::Instant>,
}

impl RateLimit {
    /// Whether an answer may leave now; if so, the interval starts again.
    pub(crate) fn allow(
        &mut self,
        now: crate::time::Instant,
        interval: crate::time::Nanos,
    ) -> bool {
        let allowed = self.last.is_none_or(|last| now.nanos_since(last) >= interval);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}
