//! The error queue: reports of a socket about data that it has sent.
//!
//! Two kinds of reports wait here until the application takes them. One says that the buffers of a
//! write with [`WriteFlags::zerocopy`](crate::WriteFlags) are free again; the other is the time at
//! which a write's last byte was scheduled, left, or was acknowledged. Few sockets request either,
//! so the queue is one box that only those have. It holds [`MAX_ERROR_QUEUE`] reports; further ones
//! are dropped.
//!
//! Bytes of a zero-copy write are copied all the same unless they were shared
//! ([`Connection::write_shared`](crate::Connection::write_shared)), and its report says so. The
//! report still waits for the acknowledgement, since programs rely on it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use plimsoll_wire::SeqNum;

use super::SendSide;
use crate::limits::MAX_ERROR_QUEUE;
use crate::time::Instant;

/// The transmit timestamps that a socket reports (SO_TIMESTAMPING).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxTimestamps {
    /// The time at which the last byte of a write was passed down (SOF_TIMESTAMPING_TX_SCHED).
    pub sched: bool,
    /// The time at which it left (SOF_TIMESTAMPING_TX_SOFTWARE).
    pub software: bool,
    /// The time at which it was acknowledged (SOF_TIMESTAMPING_TX_ACK).
    pub ack: bool,
    /// Reports carry the offset of the byte since this was set (SOF_TIMESTAMPING_OPT_ID).
    pub opt_id: bool,
}

impl TxTimestamps {
    fn any(self) -> bool {
        self.sched || self.software || self.ack
    }
}

/// The event of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxStage {
    /// SCM_TSTAMP_SCHED.
    Sched,
    /// SCM_TSTAMP_SND.
    Sent,
    /// SCM_TSTAMP_ACK.
    Acked,
}

/// One report of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorReport {
    /// Writes with `zerocopy` are done with their buffers (SO_EE_ORIGIN_ZEROCOPY): those numbered
    /// `first` to `last` (`ee_info`, `ee_data`).
    ZeroCopy {
        /// Number of the first.
        first: u32,
        /// Number of the last.
        last: u32,
        /// The bytes were copied (SO_EE_CODE_ZEROCOPY_COPIED).
        copied: bool,
    },
    /// A transmit timestamp (SO_EE_ORIGIN_TIMESTAMPING, ENOMSG).
    Timestamp {
        /// The event (`ee_info`).
        stage: TxStage,
        /// Which byte (`ee_data`); 0 without `opt_id`.
        key: u32,
        /// When.
        at: Instant,
    },
}

/// Zero-copy writes that are reported together.
#[derive(Clone, Copy, Debug)]
struct ZeroCopy {
    /// One after the last byte.
    end: SeqNum,
    /// The numbers of the first and the last.
    numbers: (u32, u32),
    /// Some of their bytes were copied.
    copied: bool,
}

/// The last byte of a write whose events are reported.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// One after the byte.
    end: SeqNum,
    sent: bool,
}

/// The reports of one socket, and the pending ones.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    ready: VecDeque<ErrorReport>,
    /// Zero-copy writes that are not acknowledged.
    zerocopy: VecDeque<ZeroCopy>,
    next_zerocopy: u32,
    stamps: TxTimestamps,
    /// Keys count from here.
    base: SeqNum,
    marks: VecDeque<Mark>,
}

impl ErrorQueue {
    fn push(&mut self, report: ErrorReport) {
        if let (
            Some(ErrorReport::ZeroCopy { last, copied, .. }),
            ErrorReport::ZeroCopy { first, last: new_last, copied: new_copied },
        ) = (self.ready.back_mut(), report)
            && *copied == new_copied
            && last.wrapping_add(1) == first
        {
            *last = new_last;
            return;
        }
        if self.ready.len() < MAX_ERROR_QUEUE {
            self.ready.push_back(report);
        }
    }

    fn stamp(&mut self, stage: TxStage, end: SeqNum, at: Instant) {
        let wanted = match stage {
            TxStage::Sched => self.stamps.sched,
            TxStage::Sent => self.stamps.software,
            TxStage::Acked => self.stamps.ack,
        };
        if wanted {
            let key = if self.stamps.opt_id { (end - 1).since(self.base) } else { 0 };
            self.push(ErrorReport::Timestamp { stage, key, at });
        }
    }

    /// Numbers a zero-copy write. Beyond the bound it is reported together with the one before.
    fn note_zerocopy(&mut self, end: SeqNum, copied: bool) {
        let number = self.next_zerocopy;
        self.next_zerocopy = number.wrapping_add(1);
        let full = self.zerocopy.len() >= MAX_ERROR_QUEUE;
        match self.zerocopy.back_mut().filter(|_| full) {
            Some(last) => {
                last.end = end;
                last.numbers.1 = number;
                last.copied |= copied;
            }
            None => {
                self.zerocopy.push_back(ZeroCopy { end, numbers: (number, number), copied });
            }
        }
    }

    /// New data up to `nxt` has left. Returns whether there is something to report.
    fn on_sent(&mut self, nxt: SeqNum, now: Instant) -> bool {
        // Data leaves in order: sent marks precede the others.
        let first = self.marks.partition_point(|mark| mark.sent);
        let mut index = first;
        while let Some(mark) = self.marks.get_mut(index)
            && mark.end <= nxt
        {
            mark.sent = true;
            let end = mark.end;
            self.stamp(TxStage::Sched, end, now);
            self.stamp(TxStage::Sent, end, now);
            index += 1;
        }
        index > first
    }

    /// Everything below `una` is acknowledged. Returns whether there is something to report.
    fn on_acked(&mut self, una: SeqNum, now: Instant) -> bool {
        let mut any = false;
        while let Some(&ZeroCopy { end, numbers: (first, last), copied }) = self.zerocopy.front()
            && end <= una
        {
            self.zerocopy.pop_front();
            self.push(ErrorReport::ZeroCopy { first, last, copied });
            any = true;
        }
        while let Some(&Mark { end, .. }) = self.marks.front()
            && end <= una
        {
            self.marks.pop_front();
            self.stamp(TxStage::Acked, end, now);
            any = true;
        }
        any
    }
}

impl SendSide {
    /// SO_TIMESTAMPING was set. Keys count from the data acknowledged at this point.
    pub(crate) fn set_tx_timestamps(&mut self, stamps: TxTimestamps) {
        if self.errors.is_none() && !stamps.any() {
            return;
        }
        let una = self.una;
        let errors = self.errors.get_or_insert_with(Box::default);
        if stamps.opt_id && !errors.stamps.opt_id {
            errors.base = una;
        }
        errors.stamps = stamps;
    }

    /// A write that ends at `end` was taken; if it was a zero-copy write, it was copied or not.
    pub(crate) fn note_written(&mut self, end: SeqNum, zerocopy: Option<bool>) {
        if let Some(copied) = zerocopy {
            self.errors.get_or_insert_with(Box::default).note_zerocopy(end, copied);
        }
        if let Some(errors) = &mut self.errors
            && errors.stamps.any()
            && errors.marks.len() < MAX_ERROR_QUEUE
        {
            errors.marks.push_back(Mark { end, sent: false });
        }
    }

    /// New data left. Returns whether there is something to report.
    pub(crate) fn report_sent(&mut self, now: Instant) -> bool {
        let nxt = self.nxt;
        self.errors.as_mut().is_some_and(|errors| errors.on_sent(nxt, now))
    }

    /// SND.UNA moved. Returns whether there is something to report.
    pub(crate) fn report_acked(&mut self, now: Instant) -> bool {
        let una = self.una;
        self.errors.as_mut().is_some_and(|errors| errors.on_acked(una, now))
    }

    /// The oldest report.
    pub(crate) fn take_report(&mut self) -> Option<ErrorReport> {
        self.errors.as_mut()?.ready.pop_front()
    }

    /// Whether a report waits.
    pub(crate) fn has_report(&self) -> bool {
        self.errors.as_ref().is_some_and(|errors| !errors.ready.is_empty())
    }
}
