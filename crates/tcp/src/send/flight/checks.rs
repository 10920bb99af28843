//! The checks of a segment by input before [`Flight::on_ack`](super::Flight::on_ack): section 3
//! of docs/recovery.md up to step 1. They change nothing.

use plimsoll_wire::SeqNum;

use crate::time::Nanos;

/// The position of an ACK's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckNumber {
    /// It acknowledges data that was never sent, or is older than any ACK in transit can be. It
    /// gets a challenge ACK and is dropped (RFC 5961, section 5.2).
    Unbelievable,
    /// It is below SND.UNA: an ACK that another one has overtaken.
    Old,
    /// It is SND.UNA or above.
    Current,
}

impl AckNumber {
    /// The position of SEG.ACK `ack`. `max_wnd` is the largest window that the peer ever offered.
    pub(crate) fn of(ack: SeqNum, (una, nxt): (SeqNum, SeqNum), max_wnd: u32) -> AckNumber {
        if nxt < ack || (ack < una && una.since(ack) > max_wnd) {
            AckNumber::Unbelievable
        } else if ack < una {
            AckNumber::Old
        } else {
            AckNumber::Current
        }
    }
}

/// The window of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowView {
    /// SEG.SEQ.
    pub(crate) seq: SeqNum,
    /// SEG.ACK.
    pub(crate) ack: SeqNum,
    /// SEG.WND in bytes, scaled.
    pub(crate) wnd: u32,
    /// SND.UNA before it.
    pub(crate) snd_una: SeqNum,
    /// SND.WL1 before it.
    pub(crate) snd_wl1: SeqNum,
    /// SND.WND before it.
    pub(crate) snd_wnd: u32,
}

impl WindowView {
    /// Step 1: whether the segment brings a window, so that SND.WND, SND.WL1 and SND.WL2 are set.
    pub(crate) fn brings_window(&self) -> bool {
        let other = self.snd_wnd < self.wnd || self.wnd == 0;
        self.snd_una < self.ack || self.snd_wl1 < self.seq || (self.snd_wl1 == self.seq && other)
    }
}

/// Whether a pure ACK that PAWS rejects was merely overtaken by another one, so that its blocks
/// still count. It has no data, SYN, FIN or RST, its numbers are RCV.NXT and SND.UNA, and its
/// TSval is `age` behind TS.Recent. `rto` is the timeout with backoff.
pub(crate) fn is_overtaken(window: &WindowView, rcv_nxt: SeqNum, age: Nanos, rto: Nanos) -> bool {
    window.seq == rcv_nxt
        && window.ack == window.snd_una
        && !window.brings_window()
        && age <= rto * 6 / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: SeqNum = SeqNum(u32::MAX - 99);

    #[test]
    fn numbers() {
        let cases = [
            (UNA + 1001, AckNumber::Unbelievable, "never sent"),
            (UNA + 1000, AckNumber::Current, "SND.NXT"),
            (UNA, AckNumber::Current, "SND.UNA"),
            (UNA - 1, AckNumber::Old, "one below"),
            (UNA - 500, AckNumber::Old, "a window below"),
            (UNA - 501, AckNumber::Unbelievable, "more than that"),
        ];
        for (ack, expected, name) in cases {
            assert_eq!(AckNumber::of(ack, (UNA, UNA + 1000), 500), expected, "{name}");
        }
    }

    fn view() -> WindowView {
        WindowView {
            seq: SeqNum(7),
            ack: UNA,
            wnd: 500,
            snd_una: UNA,
            snd_wl1: SeqNum(7),
            snd_wnd: 500,
        }
    }

    #[test]
    fn windows() {
        let cases = [
            (view(), false, "the same"),
            (WindowView { ack: UNA + 1, wnd: 1, ..view() }, true, "an advance, even if it shrinks"),
            (WindowView { seq: SeqNum(8), wnd: 1, ..view() }, true, "newer, even if it shrinks"),
            (WindowView { seq: SeqNum(6), wnd: 900, ..view() }, false, "older"),
            (WindowView { wnd: 501, ..view() }, true, "larger"),
            (WindowView { wnd: 499, ..view() }, false, "smaller"),
            (WindowView { wnd: 0, ..view() }, true, "closed"),
        ];
        for (view, brings, name) in cases {
            assert_eq!(view.brings_window(), brings, "{name}");
        }
    }

    #[test]
    fn overtaken_acks() {
        let rto = Nanos::from_millis(250);
        let cases = [
            (view(), 300, true, "1.2 RTO"),
            (view(), 301, false, "older"),
            (WindowView { wnd: 600, ..view() }, 1, false, "it brings a window"),
            (WindowView { seq: SeqNum(6), ..view() }, 1, false, "another number"),
            (WindowView { ack: UNA - 1, ..view() }, 1, false, "another acknowledgement"),
        ];
        for (view, millis, expected, name) in cases {
            let age = Nanos::from_millis(millis);
            assert_eq!(is_overtaken(&view, SeqNum(7), age, rto), expected, "{name}");
        }
    }
}
