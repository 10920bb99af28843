//! An open with Fast Open, from the SYN to its outcome.

use alloc::boxed::Box;

use plimsoll_buf::{Pool, Slices};

use super::{BAD_SYN_ACK_RTO, FastOpen, FastOpenClient, FastOpenOutcome, OPTION_SPACE};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::open_params::OpenParams;
use crate::segment::Segment;
use crate::send::flight::scoreboard::{SentRange, SentState};
use crate::serial::Serial;
use crate::state::State;
use crate::timer::Timer;

impl Connection {
    /// Opens actively, but the SYN waits for [`begin_fast_open`](Self::begin_fast_open). Until then
    /// the connection is in SYN-SENT and nothing leaves.
    pub fn connect_deferred(cx: &Context, params: OpenParams) -> Connection {
        let mut conn = Connection::new(cx, params, State::SynSent);
        conn.fast_open = Some(Box::new(FastOpenClient { deferred: true, ..Default::default() }));
        conn
    }

    /// Whether the SYN waits for [`begin_fast_open`](Self::begin_fast_open).
    pub fn is_deferred(&self) -> bool {
        let deferred = self.fast_open.as_ref().is_some_and(|open| open.deferred);
        deferred && self.state == State::SynSent
    }

    /// Lets the SYN of a [deferred](Self::connect_deferred) open go, with as much of `parts` as it
    /// may carry. Returns how much that is.
    pub fn begin_fast_open(&mut self, cx: &Context, known: FastOpen, parts: &[&[u8]]) -> usize {
        self.debug_invariants();
        if !self.is_deferred() {
            return 0;
        }
        self.handshake.started = cx.now;
        let advmss = self.path.advmss();
        self.path.peer_mss = known.mss.filter(|_| known.data).unwrap_or(advmss);
        self.sync_mss(cx);
        let room = usize::from(self.snd.mss()).saturating_sub(OPTION_SPACE);
        let payload =
            if known.data { copy_syn_data(&self.pool, parts, room) } else { Slices::new() };
        let taken = payload.len();
        let no_cookie = !known.data;
        self.fast_open = Some(Box::new(FastOpenClient {
            params: known,
            payload,
            failure: u8::from(no_cookie),
            ..FastOpenClient::default()
        }));
        self.start_active_open(cx);
        self.debug_invariants();
        taken
    }

    /// A writer sleeps and has more data: the ACK that ends the handshake waits for that data
    /// (as on Linux).
    pub fn set_write_pending(&mut self, pending: bool) {
        self.handshake.write_pending = pending;
    }

    /// The data that the SYN carries was a write with MSG_ZEROCOPY: its report goes to the error
    /// queue. To be called as soon as the SYN has left.
    pub fn report_syn_data(&mut self) {
        let sent = self.fast_open.as_ref().map_or(0, |open| open.sent);
        if sent > 0 && self.options.zerocopy {
            self.snd.note_written(self.snd.iss() + 1 + u32::from(sent), Some(true));
        }
    }

    /// The outcome of this open, once. Call it after [`poll_event`](Self::poll_event).
    pub fn poll_fast_open(&mut self) -> Option<FastOpenOutcome> {
        self.fast_open.as_mut()?.outcome.take()
    }

    /// The data of the SYN that has just been made (called by `output/`).
    pub(crate) fn take_syn_payload(&mut self, cx: &Context) -> (Slices, Option<Serial>) {
        let Some(open) = &mut self.fast_open else { return (Slices::new(), None) };
        if self.state != State::SynSent || self.handshake.sent != 1 {
            return (Slices::new(), None);
        }
        open.offered = open.params.option.is_some();
        let payload = core::mem::take(&mut open.payload);
        let len = payload.len() as u16;
        if len == 0 {
            return (payload, None);
        }
        open.sent = len;
        let serial = self.snd.take_serial();
        let start = self.snd.iss() + 1;
        let end = start + u32::from(len);
        let range = SentRange {
            start,
            end,
            sent_at: cx.now,
            serial,
            // One segment, for any MSS.
            mss: len,
            retransmissions: 0,
            sacked: false,
            lost: false,
            resent: false,
            push: true,
            fin: false,
            eor: false,
            mtu_probe: false,
            delivered: self.snd.flight.delivered(),
            state: SentState::default(),
        };
        self.snd.on_syn_data_sent(cx.now, range, &payload);
        cx.counters.bump(Counter::TcpOrigDataSent);
        (payload, Some(serial))
    }

    /// A SYN-ACK has established the connection. Returns whether data of the SYN must be
    /// retransmitted, in which case data of the SYN-ACK itself is not accepted.
    pub(crate) fn on_fast_open_syn_ack(&mut self, cx: &Context, seg: &Segment) -> bool {
        let again = self.snd.flight.total_retrans() > 0;
        let unacked = self.snd.has_outstanding();
        let mss = self.path.peer_mss;
        let Some(open) = &mut self.fast_open else { return false };
        if !open.offered && open.sent == 0 {
            return false;
        }
        // A cookie that was not requested is not kept.
        let given = seg.repr.options.syn().fast_open.filter(|_| open.offered);
        let given = given.filter(|option| !option.cookie.is_empty());
        let refused = match open.params.option {
            Some(option) if given.is_none() && open.sent == 0 && !again => {
                1 + u8::from(option.experimental)
            }
            _ => 0,
        };
        let syn_lost = open.offered && again && given.is_none() && unacked;
        open.outcome = Some(FastOpenOutcome::SynAck { mss, cookie: given, syn_lost, refused });
        if unacked {
            open.failure = if again { 3 } else { 2 };
            cx.counters.bump(Counter::TcpFastOpenActiveFail);
            self.resend_syn_data(cx);
        } else if open.sent > 0 {
            self.handshake.syn_data_acked = true;
            cx.counters.bump(Counter::TcpFastOpenActive);
        }
        unacked
    }

    /// The ACK that ends a simultaneous open may leave the data of our SYN out, as a SYN-ACK may:
    /// the peer has not taken it.
    pub(crate) fn resend_syn_data_if_unacked(&mut self, cx: &Context) {
        if self.snd.has_outstanding() {
            self.resend_syn_data(cx);
        }
    }

    /// The data of the SYN is lost, which is no sign of congestion.
    fn resend_syn_data(&mut self, cx: &Context) {
        let parts = self.conn_parts(cx);
        self.snd.flight.on_syn_data_refused(cx, &self.snd.view(cx, &parts));
        self.sync_retransmission_timer();
    }

    /// The path carries less than the SYN with its data: a plain one leaves at once.
    pub(crate) fn on_syn_too_big(&mut self, cx: &Context) {
        let with_data = self.fast_open.as_ref().is_some_and(|open| open.sent > 0);
        if with_data && self.handshake.sent == 1 {
            self.pending.syn = true;
            self.timers.arm(Timer::Retransmit, cx.now + self.syn_rto(cx.config));
        }
    }

    /// A SYN-ACK acknowledges data that was not sent: a reset answers it, and the SYN follows soon.
    pub(crate) fn hurry_syn(&mut self, cx: &Context) {
        if self.handshake.retries == 0 && self.timers.is_armed(Timer::Retransmit) {
            self.timers.arm(Timer::Retransmit, cx.now + BAD_SYN_ACK_RTO);
        }
    }
}

/// Copies the part that fits into `room` bytes.
fn copy_syn_data(pool: &Pool, parts: &[&[u8]], room: usize) -> Slices {
    let asked = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut payload = Slices::new();
    let mut left = asked.min(room);
    if left == 0 {
        return payload;
    }
    let mut writer = pool.chunk(left);
    for part in parts {
        let count = part.len().min(left).min(writer.remaining());
        if count == 0 {
            continue;
        }
        // Slices of one chunk merge, so there is room for all of them.
        if payload.push(writer.append(&part[..count])).is_err() {
            break;
        }
        left -= count;
    }
    payload
}
