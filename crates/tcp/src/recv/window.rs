//! The window that we advertise.
//!
//! A whole number of segments of the buffer is offered, each as long as the MSS that we announced,
//! so that the last one that fits is not a fraction ([`whole_segments`]).
//!
//! The right edge never moves left, unless data had to be dropped (`memory.rs`), or the settings
//! allow it (`tcp_shrink_window`) and windows are scaled. Then the peer may have sent up to the
//! edge that was advertised before. Segments from there are acceptable, so that their ACKs count
//! (RFC 7323, section 2.4); data that begins after the new edge is dropped. The edge moves right
//! only by at least a segment or half the buffer (receiver silly-window avoidance, RFC 9293,
//! section 3.8.6.2.2). A SYN's window is chosen when it first leaves and is the same in all
//! retransmissions, whatever the buffer is then: the peer may have seen any of the copies. A
//! SYN-ACK with a cookie is the exception, as on Linux: it is not stored, so each copy offers the
//! initial buffer of that time, and so does the connection.

use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::context::Context;
use crate::counters::Counter;
use crate::limits::{MAX_BUFFER, MAX_WINDOW_SHIFT, MIN_WINDOW_CLAMP};
use crate::mtu::TIMESTAMP_OPTION_LEN;
use crate::recv::{AckReason, RecvSide, data_share, low_water};

/// The initial buffer of a connection: room for the low-water mark of its reader at least.
pub(crate) fn initial_buffer(config: &Config, options: &Options) -> usize {
    default_buffer(config, options).max(low_water::least_buffer(config, options))
}

/// The configured buffer, or the default. SO_RCVBUF may be less than the first number of `tcp_rmem`
/// (as on Linux).
pub(crate) fn default_buffer(config: &Config, options: &Options) -> usize {
    let [least, default, _] = config.tcp_rmem.map(data_share);
    options.rcvbuf.unwrap_or(default.max(least)).clamp(256, MAX_BUFFER)
}

/// The window limit of the socket (TCP_WINDOW_CLAMP), in bytes.
pub(crate) fn most_offered(options: &Options) -> u32 {
    options.window_clamp.map_or(u32::MAX, |bytes| bytes.max(MIN_WINDOW_CLAMP))
}

/// The window limit of the route (`initrwnd`) before data arrives, in bytes: so many segments of
/// `mss` bytes.
pub(crate) fn initial_cap(options: &Options, mss: u16) -> u32 {
    options.route.initrwnd.map_or(u32::MAX, |count| count.saturating_mul(u32::from(mss)))
}

/// The window limit of a SYN: as [`most_offered`] and [`initial_cap`].
pub(crate) fn first_cap(options: &Options, mss: u16) -> u32 {
    most_offered(options).min(initial_cap(options, mss))
}

/// The part of a buffer of `bytes` that is offered: as many segments of `mss` bytes as it holds, or
/// all of it if it holds none (as on Linux).
pub(crate) fn whole_segments(bytes: usize, mss: u16) -> usize {
    let mss = usize::from(mss.max(1));
    if bytes < mss { bytes } else { bytes - bytes % mss }
}

/// The length of segments with timestamps, where those without have `mss` bytes.
pub(crate) fn mss_with_timestamps(mss: u16) -> u16 {
    mss.saturating_sub(TIMESTAMP_OPTION_LEN)
}

/// The window field of a SYN that offers `bytes`: it is never scaled.
pub(crate) fn initial_window(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// The shift that lets the largest buffer be advertised: as large as `tcp_rmem` lets it grow, or as
/// SO_RCVBUF has fixed it (as on Linux).
pub(crate) fn choose_shift(config: &Config, options: &Options) -> u8 {
    let space = match options.rcvbuf {
        Some(_) => initial_buffer(config, options),
        None => config.tcp_rmem[2],
    }
    .min(most_offered(options) as usize)
    .max(1);
    let bits = usize::BITS - 1 - space.leading_zeros();
    (bits.saturating_sub(15) as u8).min(MAX_WINDOW_SHIFT)
}

/// The window of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowOffer {
    /// The window field.
    pub(crate) field: u16,
    /// The right edge that it promises.
    edge: SeqNum,
}

impl RecvSide {
    /// The most bytes that are offered: by TCP_WINDOW_CLAMP, and by the route as long as little has
    /// arrived.
    pub(super) fn offer_cap(&self) -> u32 {
        self.window_clamp.min(self.initial_cap)
    }

    /// Bytes that may still arrive beyond RCV.NXT by the state of the buffer.
    fn free_space(&self) -> u32 {
        let used = self.queue.charge().max(self.queue.len());
        let most = whole_segments(self.buf_limit, self.window_mss);
        let free = most.min(self.memory_cap as usize).saturating_sub(used);
        let free = u32::try_from(free).unwrap_or(u32::MAX).min(65_535 << self.wscale);
        match self.offer_cap() {
            u32::MAX => free,
            cap => free.min(whole_segments(cap as usize, self.window_mss) as u32),
        }
    }

    /// Whether less than a segment may still arrive, by the advertised window and by the buffer.
    pub(crate) fn is_full(&self) -> bool {
        self.wnd() < self.rcv_mss && self.free_space() < self.rcv_mss
    }

    /// Bytes of the buffer that can be offered, as the window field can express them.
    fn offer(&self) -> u32 {
        let free = self.free_space();
        // Rounding down keeps the field exact; the edge must be one that the field can express.
        let whole = free >> self.wscale << self.wscale;
        // A buffer that is smaller than the field can express is offered nevertheless.
        let tiny = whole == 0 && free > 0 && self.queue.is_empty();
        if tiny { 1 << self.wscale } else { whole }
    }

    /// The largest window there can be for now, in bytes.
    fn most_window(&self) -> u32 {
        (self.buf_limit as u32).min(self.offer_cap())
    }

    /// By how much the edge moves at least.
    fn step(&self) -> u32 {
        (self.most_window() / 2).min(self.rcv_mss).max(1)
    }

    /// Whether a window that is closed would open.
    pub(super) fn has_room(&self) -> bool {
        self.offer() >= self.step()
    }

    /// The right edge that we would advertise now.
    fn next_edge(&self) -> SeqNum {
        let offer = self.offer();
        let opens = offer >= self.wnd().saturating_add(self.step());
        if opens { self.nxt + offer } else { self.adv }
    }

    /// The window field for the promised edge, rounded down.
    pub(crate) fn promised(&self) -> u16 {
        self.promised_from(self.nxt)
    }

    /// The same in a segment that acknowledges up to `ack`.
    pub(crate) fn promised_from(&self, ack: SeqNum) -> u16 {
        (self.adv.since(ack) >> self.wscale).min(65_535) as u16
    }

    /// The window of the next segment. That of a SYN is not scaled, see
    /// [`first_window`](RecvSide::first_window). Nothing is promised before it has left.
    pub(crate) fn next_window(&mut self, cx: &Context) -> WindowOffer {
        // Without SACK the peer counts ACKs that repeat the previous one, including the window (RFC
        // 5681, section 2): the next ACK advertises a window that has opened meanwhile.
        let repeats = !self.sack_ok && self.dup_ack_due() && self.wnd() > 0;
        if repeats && !self.starved && self.nxt == self.ack_sent {
            // A field that was rounded down to zero before may be rounded up now.
            return self.offer_up_to(self.adv);
        }
        self.note_memory(cx);
        self.withdraw_offer();
        let follows = cx.config.tcp_shrink_window && self.wscale > 0;
        let edge = if follows { self.edge_of_buffer() } else { self.next_edge() };
        debug_assert!(edge >= self.adv, "the window shrank");
        self.offer_up_to(edge)
    }

    /// The right edge if the window follows the free buffer (`tcp_shrink_window`): to the right
    /// without steps, and also to the left of the promised edge. Data that arrived after a hole was
    /// within the window and stays so. If more than half of the buffer is used, less than a segment
    /// is not offered (as on Linux).
    fn edge_of_buffer(&mut self) -> SeqNum {
        let scarce = self.free_space() < self.most_window() / 2;
        let offer = self.offer();
        let offer = if scarce && offer < self.rcv_mss { 0 } else { offer };
        let behind = self.reassembly.end().unwrap_or(self.nxt);
        let edge = (self.nxt + offer).max(behind);
        if edge < self.adv {
            self.adv = edge;
        }
        edge
    }

    /// TCP_WINDOW_CLAMP, now in `options`, limits later offers. Earlier offers stay, and so does
    /// the route's limit of the first windows.
    pub(crate) fn set_window_clamp(&mut self, options: &Options) {
        self.window_clamp = most_offered(options);
    }

    /// A full segment of `len` bytes has arrived: a window that the route limits at first
    /// (`initrwnd`) opens by two segments, or by twice the bytes that came at once (as on Linux).
    pub(super) fn open_window(&mut self, len: usize) {
        if self.initial_cap != u32::MAX && len as u32 >= self.rcv_mss {
            let more = 2 * u32::from(self.advmss).max(len as u32);
            self.initial_cap = self.initial_cap.saturating_add(more);
        }
    }

    /// A segment with this offer has left.
    pub(crate) fn promise(&mut self, cx: &Context, offer: WindowOffer) {
        self.adv = offer.edge;
        self.furthest = self.furthest.max(offer.edge);
        self.count_zero_window(cx, offer.field == 0);
    }

    /// The offer for `edge`.
    fn offer_up_to(&self, edge: SeqNum) -> WindowOffer {
        let window = edge.since(self.nxt);
        let unit = 1_u32 << self.wscale;
        // An edge that the field cannot express is rounded up, since it must not shrink. A peer
        // that sends small segments to a reader that does not read could extend that for ever, so
        // beyond some slack it is rounded down (RFC 7323, section 2.4, allows it); `adv` stays.
        let slack = self.buf_limit / 8 + unit as usize;
        let rounded = window.div_ceil(unit);
        let fits = self.queue.len() + ((rounded as usize) << self.wscale) <= self.buf_limit + slack;
        let field = if fits { rounded } else { window >> self.wscale }.min(65_535);
        WindowOffer { field: field as u16, edge: edge.max(self.nxt + (field << self.wscale)) }
    }

    fn count_zero_window(&mut self, cx: &Context, zero: bool) {
        if zero != self.sent_zero_window {
            let counter =
                if zero { Counter::TcpToZeroWindowAdv } else { Counter::TcpFromZeroWindowAdv };
            cx.counters.bump(counter);
            self.sent_zero_window = zero;
        }
    }

    /// The application has read: perhaps an ACK or a window update is due.
    pub(crate) fn after_read(&mut self) {
        let unacked = self.unacked();
        let drained = self.queue.is_empty();
        self.acks.on_read(unacked, self.rcv_mss, drained);
        if self.wants_update() {
            self.acks.now(AckReason::WindowUpdate);
        }
    }

    /// Whether reading has opened the window enough for an unsolicited update: from zero, or to
    /// twice the advertised window.
    #[inline]
    pub(crate) fn wants_update(&self) -> bool {
        let now = self.wnd();
        let next = self.next_edge().since(self.nxt);
        next > now
            && (now < self.rcv_mss.min(self.most_window() / 2) || next >= now.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests;
