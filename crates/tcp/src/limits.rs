//! Every limit of the engine, with what happens at it.

/// Payload bytes of one super-segment: what fits into an IP packet of 65,535 bytes in addition to
/// the largest headers. Longer data leaves as several.
pub const MAX_SUPER_SEGMENT: usize = 65_535 - 120;

/// The same where what lies below says that it takes longer packets by reference: what fits into
/// one chunk of memory in addition to the largest headers.
pub const MAX_BIG_SUPER_SEGMENT: usize = plimsoll_buf::MAX_CHUNK - 120;

/// Wire segments of one super-segment (Linux: `GSO_MAX_SEGS`).
pub const MAX_SUPER_SEGMENT_SEGS: usize = 65_535;

/// Ranges that reassembly keeps apart, if the buffer is large enough for what they cost. A segment
/// that would open one more is dropped and counted (`TcpExtTCPOFODrop`); the peer sends it again.
pub const MAX_REASSEMBLY_RANGES: usize = 16_384;

/// Ranges that SACK may cut the scoreboard to, whatever the send buffer. A larger buffer allows as
/// many as it holds segments, but no more than would take as much memory as the buffer itself.
/// Beyond that a SACK block is taken only as far as it covers whole ranges.
pub const MIN_SENT_RANGES: usize = 1024;

/// Largest window shift (RFC 7323, section 2.3).
pub const MAX_WINDOW_SHIFT: u8 = 14;

/// The least that TCP_WINDOW_CLAMP bounds a window to, in bytes (as on Linux).
pub const MIN_WINDOW_CLAMP: u32 = 1152;

/// The largest buffer of either side: what a window can say at most (RFC 7323, section 2.3), so
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

/// Duplicate ACKs that wait to be sent one by one. More arrive as one, which a peer survives.
pub const MAX_DUP_ACKS: u16 = 512;

/// Lets an answer through at most once per interval.
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
