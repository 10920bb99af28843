//! The peer's window.

use plimsoll_wire::SeqNum;

use super::SendSide;
use super::flight::WindowView;
use crate::segment::Segment;
use crate::send::Fin;

/// Windows up to this size are used whole; of larger ones at most half goes into one segment.
const SMALL_WINDOW: u32 = 536;

/// The least that a small window cuts a segment down to.
const LEAST_SEGMENT: u32 = 48;

impl SendSide {
    /// The right edge of the peer's window.
    pub(crate) fn window_end(&self) -> SeqNum {
        self.una + self.wnd
    }

    /// SND.WND in bytes.
    pub(crate) fn wnd(&self) -> u32 {
        self.wnd
    }

    /// The largest window that the peer ever offered, in bytes (RFC 5961: MAX.SND.WND).
    #[cfg(test)]
    pub(crate) fn max_wnd(&self) -> u32 {
        self.max_wnd
    }

    /// The shift of the peer's windows.
    pub(crate) fn wscale(&self) -> u8 {
        self.wscale
    }

    /// The shift of the peer's windows, from its SYN.
    pub(crate) fn set_wscale(&mut self, wscale: u8) {
        self.wscale = wscale;
    }

    /// The window of a SYN, which is not scaled, from the segment `seq`.
    pub(crate) fn take_syn_window(&mut self, wnd: u16, seq: SeqNum) {
        self.wnd = u32::from(wnd);
        self.wl1 = seq;
    }

    /// The peer's window, in bytes, from the segment `seq` that acknowledges `ack`.
    pub(crate) fn take_window(&mut self, wnd: u32, seq: SeqNum, ack: SeqNum) {
        self.wnd = wnd;
        if self.max_wnd < wnd {
            self.max_wnd = wnd;
            self.fit_segments();
        }
        self.confirm_window(seq, ack);
    }

    /// The segment `seq` repeats the window.
    pub(crate) fn confirm_window(&mut self, seq: SeqNum, ack: SeqNum) {
        self.wl1 = seq;
        self.wl2 = ack;
    }

    /// The window of the segment `seq`, which acknowledges `ack` and offers `wnd` bytes.
    pub(crate) fn window_view(&self, wnd: u32, seq: SeqNum, ack: SeqNum) -> WindowView {
        let (snd_una, snd_wl1, snd_wnd) = (self.una, self.wl1, self.wnd);
        WindowView { seq, ack, wnd, snd_una, snd_wl1, snd_wnd }
    }

    /// The peer's window in a segment.
    pub(crate) fn window_of(&self, seg: &Segment) -> WindowView {
        let wnd = u32::from(seg.repr.window) << self.wscale;
        self.window_view(wnd, seg.repr.seq, seg.repr.ack)
    }

    /// Takes the peer's window (section 3 of docs/recovery.md, step 1). Returns whether the segment
    /// brought one. A window that shrank is accepted: data beyond it stays in flight and is not
    /// retransmitted until the window covers it.
    pub(crate) fn take_window_of(&mut self, seg: &Segment) -> bool {
        let window = self.window_of(seg);
        let brings = window.brings_window();
        if brings {
            self.take_window(window.wnd, window.seq, window.ack);
        }
        brings
    }

    /// The largest distance of an ACK before SND.UNA: the largest window that the peer has offered
    /// (RFC 5961, section 5.2: MAX.SND.WND), and not before the first byte: earlier numbers were
    /// never sent.
    pub(crate) fn largest_ack_distance(&self) -> u32 {
        let fin = u64::from(self.fin() == Fin::Acked);
        let acked = self.stats().bytes_acked + fin;
        u32::try_from(acked).unwrap_or(u32::MAX).min(self.max_wnd)
    }

    /// Whether the answer to our SYN may have this number: of the SYN's data it may acknowledge any
    /// part.
    pub(crate) fn acks_syn(&self, ack: SeqNum) -> bool {
        self.iss() < ack && ack <= self.nxt
    }

    /// SEG.UP of a segment at `seq`, or zero. An urgent byte too far ahead for the field is
    /// announced at the field's limit.
    pub(crate) fn urgent_pointer(&self, seq: SeqNum) -> u16 {
        let Some(up) = self.urgent().filter(|&up| seq < up) else { return 0 };
        u16::try_from(up.since(seq)).unwrap_or(u16::MAX)
    }

    /// Bytes that the peer's window still takes after SND.NXT; zero if it shrank below.
    pub(crate) fn usable_window(&self) -> u32 {
        let end = self.window_end();
        if self.nxt < end { end.since(self.nxt) } else { 0 }
    }

    /// Payload bytes of a full segment towards this peer: the MSS, or half of the largest window it
    /// ever offered, so that two segments fit (RFC 9293, section
    /// 3.8.6.2.1 calls the fraction Fs).
    pub(crate) fn effective_mss(&self) -> u32 {
        self.smss.into()
    }

    /// The MSS, or the largest window of the peer, is another one.
    pub(super) fn fit_segments(&mut self) {
        let most = match self.max_wnd {
            0 => u32::MAX,
            small @ 1..=SMALL_WINDOW => small.max(LEAST_SEGMENT),
            window => window / 2,
        };
        self.smss = self.mss.max(1).min(u16::try_from(most).unwrap_or(u16::MAX));
    }

    /// [`effective_mss`](Self::effective_mss) as the ranges of the retransmit queue keep it.
    pub(crate) fn segment_size(&self) -> u16 {
        self.smss
    }

    /// SEG.SEQ of a segment without data: SND.NXT, or the edge if the peer moved it left of that,
    /// because the peer would drop the segment as unacceptable and miss its ACK. An edge that is
    /// off only by the rounding of a scaled window does not count.
    pub(crate) fn acceptable_seq(&self) -> SeqNum {
        let end = self.window_end();
        if self.nxt <= end || self.nxt.since(end) < 1 << self.wscale { self.nxt } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Options};

    fn sender(wnd: u32, in_flight: u32) -> SendSide {
        let mut snd = SendSide::new(SeqNum(0), (1000, 0), &Config::default(), &Options::default());
        snd.una = SeqNum(u32::MAX - 99);
        snd.nxt = snd.una + in_flight;
        snd.wnd = wnd;
        snd.set_max_wnd(wnd);
        snd
    }

    #[test]
    fn usable_windows_and_sequence_numbers() {
        // Window, in flight, usable, how far the number of a pure ACK is ahead of SND.UNA.
        let cases = [
            (5000, 0, 5000, 0, "open"),
            (5000, 2000, 3000, 2000, "partly used"),
            (5000, 5000, 0, 5000, "used up"),
            (3000, 5000, 0, 3000, "shrunk"),
            (0, 5000, 0, 0, "closed over data in flight"),
        ];
        for (wnd, in_flight, usable, seq, name) in cases {
            let snd = sender(wnd, in_flight);
            assert_eq!(snd.usable_window(), usable, "{name}");
            assert_eq!(snd.acceptable_seq(), snd.una + seq, "{name}");
        }
    }

    #[test]
    fn a_scaled_edge_is_not_taken_to_the_byte() {
        let mut snd = sender(4096, 4100);
        snd.wscale = 3;
        assert_eq!(snd.acceptable_seq(), snd.nxt);
        snd.wscale = 2;
        assert_eq!(snd.acceptable_seq(), snd.una + 4096);
    }

    #[test]
    fn segments_fit_small_windows() {
        let cases = [(0, 1000), (10, 48), (400, 400), (536, 536), (600, 300), (9000, 1000)];
        for (wnd, mss) in cases {
            assert_eq!(sender(wnd, 0).effective_mss(), mss, "window {wnd}");
        }
    }
}
