//! The next data to retransmit, and its amount (section 10 of docs/recovery.md, "What leaves").

use plimsoll_wire::SeqNum;

use super::loss_probe::Probe;
use super::run::Run;
use super::scoreboard::SentRange;
use super::view::{ConnView, NextRetransmission};
use super::{Flight, Permission};
use crate::context::Context;
use crate::counters::Counter;
use crate::serial::Serial;

impl Flight {
    /// Whether there may be data to retransmit, so that
    /// [`next_retransmission`](Self::next_retransmission) is worthwhile.
    pub(crate) fn may_send_again(&mut self) -> bool {
        self.waits_below = false;
        self.probe.due() == Some(Probe::Old) || self.board.lost_out() > 0
    }

    /// The next data to retransmit. `largest` is the number of bytes of data that a packet may hold
    /// now.
    pub(crate) fn next_retransmission(
        &mut self,
        cx: &Context,
        conn: &ConnView,
        largest: u32,
    ) -> NextRetransmission {
        self.waits_below = false;
        if self.probe.due() == Some(Probe::Old) {
            match self.board.back() {
                Some(last) => return probe_of(last),
                None => self.probe.cancel(),
            }
        }
        Run::new(cx, conn, self).next_lost(largest)
    }
}

/// The last wire segment of the last range, to its end.
fn probe_of(last: &SentRange) -> NextRetransmission {
    let mss = u32::from(last.mss).max(1);
    let before = last.data_len().saturating_sub(1) / mss * mss;
    NextRetransmission::Probe { start: last.start + before, end: last.end }
}

impl Run<'_> {
    fn next_lost(&mut self, largest: u32) -> NextRetransmission {
        if self.flight.permission != Permission::Lost {
            return NextRetransmission::None;
        }
        let Some(range) = self.flight.board.first_lost() else { return NextRetransmission::None };
        if self.is_left_out(range.serial) {
            self.flight.waits_below = true;
            return NextRetransmission::Below;
        }
        let (quota, window) = (self.free_cwnd(), self.window_for(range.start));
        if quota == 0 || window == 0 {
            return NextRetransmission::None;
        }
        let smss = self.conn.smss();
        let closed = self.conn.wnd == 0;
        let range = if closed { range } else { self.join_small(range, smss.min(window)) };
        let limit = quota.saturating_mul(smss).min(largest.max(smss)).min(window);
        NextRetransmission::Lost { start: range.start, end: cut(&range, limit, smss) }
    }

    /// Whether something does not leave again since `serial`, its last copy, has not left this
    /// machine. Counts it, once per packet.
    pub(super) fn is_left_out(&mut self, serial: Serial) -> bool {
        let below = self.cx.below.completed < serial;
        if below && self.flight.left_out != serial {
            self.flight.left_out = serial;
            self.cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
        }
        below
    }

    /// Bytes that the peer's window takes from `start` on. A closed window takes one segment of the
    /// front.
    fn window_for(&self, start: SeqNum) -> u32 {
        let end = self.conn.window_end(self.facts.una);
        if start < end {
            end.since(start)
        } else if self.conn.wnd == 0 && start == self.facts.una {
            self.conn.smss()
        } else {
            0
        }
    }

    /// Joins a range of less than a segment with the data after it.
    fn join_small(&mut self, range: SentRange, limit: u32) -> SentRange {
        if self.conn.urgent || range.data_len() >= self.conn.smss() {
            return range;
        }
        let completed = self.cx.below.completed;
        self.flight.board.collapse(range.start, limit, completed).unwrap_or(range)
    }
}

/// Where a packet of at most `limit` bytes from the start of `range` ends.
fn cut(range: &SentRange, limit: u32, smss: u32) -> SeqNum {
    if range.data_len() <= limit {
        return range.end;
    }
    let whole = if limit > smss { limit - limit % smss } else { limit };
    range.start + whole
}

#[cfg(test)]
mod tests {
    use super::super::scoreboard::SentState;
    use super::*;
    use crate::serial::Serial;
    use crate::time::Instant;

    fn range(data: u32, fin: bool) -> SentRange {
        SentRange {
            start: SeqNum(100),
            end: SeqNum(100) + data + u32::from(fin),
            sent_at: Instant::ZERO,
            serial: Serial(1),
            mss: 10,
            retransmissions: 0,
            sacked: false,
            lost: true,
            resent: false,
            push: false,
            fin,
            eor: false,
            mtu_probe: false,
            delivered: 0,
            state: SentState::default(),
        }
    }

    #[test]
    fn lengths() {
        // Data, FIN, the limit, numbers that leave.
        let cases = [
            (30, false, 30, 30, "all of it"),
            (30, false, 29, 20, "whole segments"),
            (30, false, 9, 9, "less than one"),
            (30, true, 30, 31, "with the FIN"),
            (30, true, 20, 20, "without the FIN"),
            (0, true, 10, 1, "a FIN alone"),
        ];
        for (data, fin, limit, numbers, name) in cases {
            assert_eq!(cut(&range(data, fin), limit, 10), SeqNum(100) + numbers, "{name}");
        }
    }

    #[test]
    fn probes_are_the_last_wire_segment() {
        let cases = [(30, false, 20), (31, false, 30), (9, false, 0), (30, true, 20), (0, true, 0)];
        for (data, fin, before) in cases {
            let range = range(data, fin);
            let (start, end) = (range.start + before, range.end);
            assert_eq!(probe_of(&range), NextRetransmission::Probe { start, end }, "{data}");
        }
    }
}
