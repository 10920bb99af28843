//! One TCP connection: the type that owns all parts and connects them.
//!
//! # Theory of operation
//!
//! A segment comes in through [`Connection::handle`]; the modules under `input/` check it in the
//! order of RFC 9293, section 3.10.7, and change the sender ([`crate::send`]), the receiver
//! ([`crate::recv`]) and the loss recovery (`send/flight/`). Nothing leaves at that point: every
//! module only records pending packets. [`Connection::poll_transmit`] then checks, in one fixed
//! order, what may leave.
//!
//! Queues: the write queue and the retransmit queue (bounded by the send buffer), the receive queue
//! and reassembly (bounded by the receive buffer). An idle connection holds none of their memory.
//!
//! Timers: all in one table, see [`Timer`].
//!
//! [`reading`] has the calls of readers, and the other glue code of the receive half; [`sending`]
//! has those of writers, and of the send half.
//!
//! The stack does listening, demultiplexing, ports, IP and checksums.

pub(crate) mod input;
mod reading;
mod recovering;
mod sending;
mod signing;
mod transitions;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use crate::config::{Options, SetOption};
use crate::context::Context;
use crate::counters::Counter;
use crate::ecn::EcnState;
use crate::event::{ConnectionError, Ending, Events};
use crate::handshake::fast_open_client::FastOpenClient;
use crate::handshake::{Handshake, TimestampState};
use crate::keepalive::Keepalive;
use crate::limits::RateLimit;
use crate::mtu::{Path, PathEvent};
use crate::open_params::OpenParams;
use crate::output::explain::Explanation;
use crate::recv::RecvSide;
use crate::recv::window::choose_shift;
use crate::segment::Segment;
use crate::send::flight::Waits;
use crate::send::{Fin, SendSide};
use crate::state::State;
use crate::time::{Instant, Nanos};
use crate::timer::{Timer, TimerTable};
use crate::why::{Causes, Record};

/// A connection that was not in use for this long frees memory.
const RESTING_TIME: Nanos = Nanos::from_secs(1);

/// One TCP connection, without I/O, clock or randomness. The same inputs give the same outputs,
/// byte for byte.
///
/// | | calls |
/// |---|---|
/// | opens | [`connect`], [`accept`] |
/// | with Fast Open | [`connect_deferred`], [`begin_fast_open`], [`accept_with`] |
/// | with a SYN cookie | [`accept_cookie`] |
/// | **what happens below** | [`handle`] |
/// | writes | [`write`], [`write_with`], [`write_shared`], [`write_urgent`], [`write_corked`] |
/// | reads | [`read`], [`read_shared`], [`read_urgent`], [`peek`] |
/// | errors and reports | [`take_error`], [`take_report`] |
/// | ends | [`shutdown`], [`shutdown_read`], [`close`], [`abort`] |
/// | options | [`set_option`] |
/// | Fast Open state | [`set_write_pending`], [`report_syn_data`], [`adopt`] |
/// | **packets out** | [`poll_transmit`], [`poll_transmit_with`] |
/// | **events out** | [`poll_event`], [`poll_writable`], [`poll_fast_open`] |
/// | **next deadline** | [`poll_timeout`], [`releases_at`] |
///
/// After each of these, or a batch of them: packets, then events, then the deadline. Everything
/// else is a getter and changes nothing. [`handle`] takes an [`Input`](crate::Input); call it with
/// [`Input::Timeout`](crate::Input::Timeout) when the connection's one timer fires.
///
/// [`connect`]: Self::connect
/// [`accept`]: Self::accept
/// [`connect_deferred`]: Self::connect_deferred
/// [`begin_fast_open`]: Self::begin_fast_open
/// [`accept_with`]: Self::accept_with
/// [`accept_cookie`]: Self::accept_cookie
/// [`handle`]: Self::handle
/// [`write`]: Self::write
/// [`write_with`]: Self::write_with
/// [`write_shared`]: Self::write_shared
/// [`write_urgent`]: Self::write_urgent
/// [`write_corked`]: Self::write_corked
/// [`read`]: Self::read
/// [`read_shared`]: Self::read_shared
/// [`read_urgent`]: Self::read_urgent
/// [`peek`]: Self::peek
/// [`take_error`]: Self::take_error
/// [`take_report`]: Self::take_report
/// [`shutdown`]: Self::shutdown
/// [`shutdown_read`]: Self::shutdown_read
/// [`close`]: Self::close
/// [`abort`]: Self::abort
/// [`set_option`]: Self::set_option
/// [`set_write_pending`]: Self::set_write_pending
/// [`report_syn_data`]: Self::report_syn_data
/// [`adopt`]: Self::adopt
/// [`poll_transmit`]: Self::poll_transmit
/// [`poll_transmit_with`]: Self::poll_transmit_with
/// [`poll_event`]: Self::poll_event
/// [`poll_writable`]: Self::poll_writable
/// [`poll_fast_open`]: Self::poll_fast_open
/// [`poll_timeout`]: Self::poll_timeout
/// [`releases_at`]: Self::releases_at
pub struct Connection {
    // Read and written by every segment.
    pub(crate) state: State,
    pub(crate) orphan: bool,
    pub(crate) events: Events,
    pub(crate) pending: Pending,
    pub(crate) rcv: RecvSide,
    pub(crate) snd: SendSide,
    pub(crate) ts: TimestampState,
    pub(crate) ecn: EcnState,
    pub(crate) timers: TimerTable,
    pub(crate) stats: Stats,
    pub(crate) explain: Explanation,
    // Read when a header is built.
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) path: Path,
    // Rarely touched.
    pub(crate) handshake: Handshake,
    /// An open with Fast Open, on the side that connects; on the other, the cookie that the SYN-ACK
    /// gives out, until it leaves.
    pub(crate) fast_open: Option<Box<FastOpenClient>>,
    pub(crate) keepalive: Keepalive,
    pub(crate) challenge: RateLimit,
    pub(crate) error: Option<ConnectionError>,
    pub(crate) error_taken: bool,
    pub(crate) soft_error: Option<ConnectionError>,
    /// It ended because the application release it, and not in order.
    discarded: bool,
    /// Shared with others until it is changed.
    pub(crate) options: Arc<Options>,
    pub(crate) pool: Pool,
}

/// Packets that do not come from a queue and wait for `poll_transmit`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    /// A reset. The connection is CLOSED (or failed) already.
    pub(crate) rst: Option<PendingRst>,
    /// A SYN (in SYN-SENT) or a SYN-ACK (in SYN-RECEIVED).
    pub(crate) syn: bool,
    /// A challenge ACK, or the ACK that answers an unacceptable segment: SEG.SEQ = SND.NXT,
    /// SEG.ACK = RCV.NXT. Already rate-limited.
    pub(crate) challenge_ack: bool,
    /// A keepalive probe: no data, SEG.SEQ = SND.UNA - 1.
    pub(crate) keepalive: bool,
    /// A zero-window probe (see `send/zero_window_probe.rs`).
    pub(crate) window_probe: bool,
}

/// The header fields of a reset to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingRst {
    pub(crate) seq: SeqNum,
    /// SEG.ACK; the ACK bit is set if there is one.
    pub(crate) ack: Option<SeqNum>,
}

/// The counts of all segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) segs_out: u64,
    pub(crate) segs_in: u64,
}

impl Connection {
    /// Opens actively. The SYN leaves with the next `poll_transmit`.
    pub fn connect(cx: &Context, params: OpenParams) -> Connection {
        let mut conn = Connection::new(cx, params, State::SynSent);
        conn.start_active_open(cx);
        conn
    }

    /// Opens passively because `syn` arrived for a listener. The SYN-ACK leaves with the next
    /// `poll_transmit`.
    pub fn accept(cx: &Context, params: OpenParams, syn: &Segment) -> Connection {
        let mut conn = Connection::new(cx, params, State::SynReceived);
        conn.start_passive_open(cx, syn);
        conn
    }

    pub(crate) fn new(cx: &Context, params: OpenParams, state: State) -> Connection {
        let path = Path::new(&params);
        let mss = path.advmss();
        let shift = choose_shift(cx.config, &params.options);
        Connection {
            state,
            orphan: false,
            events: Events::NONE,
            pending: Pending::default(),
            rcv: RecvSide::new(cx.config, &params.options, mss),
            snd: SendSide::new(
                params.iss,
                (mss, path.max_super_segment()),
                cx.config,
                &params.options,
            ),
            ts: TimestampState::new(params.ts_offset),
            ecn: EcnState::default(),
            timers: TimerTable::new(),
            stats: Stats::default(),
            explain: Explanation::new(
                params.options.decision_log.unwrap_or(cx.config.decision_log),
            ),
            local_port: params.local_port,
            remote_port: params.remote_port,
            path,
            handshake: Handshake::new(cx.now, shift),
            fast_open: None,
            keepalive: Keepalive::default(),
            challenge: RateLimit::default(),
            error: None,
            error_taken: false,
            soft_error: None,
            discarded: false,
            options: params.options,
            pool: params.pool,
        }
    }

    /// A segment for this connection arrived.
    pub(crate) fn handle_segment(&mut self, cx: &Context, seg: &mut Segment) {
        self.debug_invariants();
        self.snd.on_segment();
        self.explain.add_cause(Causes::ACK);
        self.snd.note_app_limited(cx);
        self.on_segment(cx, seg);
        self.explain.note_model(cx, &mut self.snd);
        self.debug_invariants();
    }

    /// A deadline of [`poll_timeout`](Self::poll_timeout) has passed.
    pub(crate) fn handle_timeout(&mut self, cx: &Context) {
        self.debug_invariants();
        self.snd.note_app_limited(cx);
        self.snd.end_autocork();
        while let Some(timer) = self.timers.pop_due(cx.now) {
            self.explain.add_cause(Causes::TIMER);
            match timer {
                Timer::Retransmit => self.on_retransmission_timeout(cx),
                // The next poll checks the data that it held again.
                Timer::Pacing | Timer::TsoDefer => {}
                Timer::Persist => self.on_persist_timeout(cx),
                Timer::DelayedAck => self.rcv.on_ack_timeout(cx),
                Timer::Keepalive => self.on_keepalive_timeout(cx),
                Timer::UserTimeout => self.on_user_timeout(cx),
                Timer::HalfClose => self.on_half_close_timeout(cx),
                Timer::FinWait2 => self.on_fin_wait_2_timeout(cx),
                Timer::TimeWait => self.on_time_wait_timeout(cx),
            }
        }
        self.snd.flight.tell_losses(cx.now);
        self.explain.note_model(cx, &mut self.snd);
        if self.releases_at().is_some_and(|at| at <= cx.now) {
            self.snd.release_all();
            self.rcv.release_all();
        }
        self.debug_invariants();
    }

    /// The stack learnt something about the path.
    pub(crate) fn handle_path_event(&mut self, cx: &Context, event: PathEvent) {
        self.debug_invariants();
        self.snd.end_autocork();
        self.on_path_event(cx, event);
        self.snd.flight.tell_losses(cx.now);
        self.explain.note_model(cx, &mut self.snd);
        self.debug_invariants();
    }

    /// The earliest time at which [`Input::Timeout`](crate::Input::Timeout) has work.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether [`Input::Timeout`](crate::Input::Timeout) at `now` acts on the peer's silence: it
    /// retransmits, probes, or ends the connection. The caller first processes all packets that
    /// have arrived.
    pub fn is_silence_timeout_due(&self, now: Instant) -> bool {
        let acts_on_silence = |timer| match timer {
            Timer::Retransmit => {
                self.state.is_opening() || self.snd.flight.waits_for() == Some(Waits::Rto)
            }
            Timer::Persist
            | Timer::Keepalive
            | Timer::UserTimeout
            | Timer::HalfClose
            | Timer::FinWait2
            | Timer::TimeWait => true,
            Timer::Pacing | Timer::TsoDefer | Timer::DelayedAck => false,
        };
        Timer::ALL.into_iter().any(|timer| self.timers.is_due(timer, now) && acts_on_silence(timer))
    }

    /// Takes the events since the last call.
    pub fn poll_event(&mut self) -> Events {
        self.events.take()
    }

    /// The connection's state (RFC 9293).
    pub fn state(&self) -> State {
        self.state
    }

    /// The reason why the connection ended early, if it did.
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// The connection's ending: set in TIME-WAIT or CLOSED, `None` before.
    pub fn ending(&self) -> Option<Ending> {
        match (self.state, self.error) {
            (State::TimeWait, _) => Some(Ending::InOrder),
            (State::Closed, Some(error)) => Some(Ending::Failed(error)),
            (State::Closed, None) if self.discarded => Some(Ending::Discarded),
            (State::Closed, None) => Some(Ending::InOrder),
            _ => None,
        }
    }

    /// SO_ERROR: the pending error, reported once.
    pub fn take_error(&mut self) -> Option<ConnectionError> {
        let error = if self.error_taken { None } else { self.error };
        self.error_taken = self.error.is_some();
        error.or_else(|| self.soft_error.take())
    }

    /// The socket's present options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether the connection ignores routers' MTU reports and lets routers fragment its packets:
    /// because the route has `mtu lock`, or because of a learnt MTU
    /// ([`LearntMtu::locked`](crate::LearntMtu)).
    #[inline]
    pub fn has_locked_mtu(&self) -> bool {
        self.options.route.mtu_lock || self.path.is_locked()
    }

    /// Whether `seq` belongs to a segment that was sent and is not yet acknowledged, as the quote
    /// of a valid ICMP error must (RFC 5927, section 4.1).
    pub fn is_in_flight(&self, seq: SeqNum) -> bool {
        let first = if self.is_early() { self.snd.iss() } else { self.snd.una() };
        seq.since(first) <= self.snd.nxt().since(first)
    }

    /// Whether no application holds the connection any more.
    pub fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// Shuts the write side: our FIN follows the queued data. Reading continues.
    pub fn shutdown(&mut self, cx: &Context) {
        self.debug_invariants();
        self.explain.add_cause(Causes::OPTION);
        match self.state {
            State::SynSent | State::SynReceived => self.snd.queue_fin(),
            State::Established | State::CloseWait => {
                self.snd.queue_fin();
                self.set_state(cx, self.state.after_shutdown());
            }
            _ => {}
        }
        self.debug_invariants();
    }

    /// Shuts the read side. By itself that changes nothing, as on Linux; but once our FIN is queued
    /// as well, new data of the peer is answered by a reset, as after a close.
    pub fn shutdown_read(&mut self) {
        self.debug_invariants();
        self.rcv.shut();
    }

    /// A shutdown that came before ESTABLISHED takes effect now.
    pub(crate) fn resume_shutdown(&mut self, cx: &Context) {
        if self.snd.fin() == Fin::Queued && self.state == State::Established {
            self.set_state(cx, State::FinWait1);
        }
    }

    /// The application closes the connection. With unread data it is reset (RFC 1122, section
    /// 4.2.2.13), since the peer would otherwise regard that data as delivered. Without, our FIN
    /// follows the queued data.
    pub fn close(&mut self, cx: &Context) {
        self.debug_invariants();
        self.orphan = true;
        let unread = self.rcv.close();
        match self.state {
            State::Closed | State::TimeWait => {}
            State::SynSent => self.discard(cx),
            _ if unread => {
                cx.counters.bump(Counter::TcpAbortOnClose);
                self.queue_rst();
                self.discard(cx);
            }
            State::FinWait2 => self.arm_fin_wait_2(cx),
            _ => self.shutdown(cx),
        }
        self.debug_invariants();
    }

    /// Ends the connection at once, with a reset if the peer may have state for it.
    pub fn abort(&mut self, cx: &Context) {
        self.debug_invariants();
        match self.state {
            State::Closed => return,
            State::SynSent | State::TimeWait => {}
            _ => self.queue_rst(),
        }
        self.rcv.discard();
        self.fail(cx, ConnectionError::Aborted);
        self.debug_invariants();
    }

    /// Changes an option.
    pub fn set_option(&mut self, cx: &Context, option: SetOption) {
        self.debug_invariants();
        self.snd.end_autocork();
        self.explain.add_cause(Causes::OPTION);
        let options = Arc::make_mut(&mut self.options);
        match option {
            SetOption::NoDelay(on) => options.nodelay = on,
            SetOption::Cork(on) => options.cork = on,
            SetOption::ZeroCopy(on) => options.zerocopy = on,
            SetOption::Autocork(on) => options.autocork = on,
            SetOption::TsoTail(policy) => options.tso_tail = policy,
            SetOption::MaxPacingRate(rate) => {
                options.max_pacing_rate = Some(rate).filter(|&rate| rate < u64::MAX);
            }
            SetOption::DecisionLog(entries) => options.decision_log = Some(entries),
            SetOption::TxTimestamps(_) => {}
            SetOption::Tos(tos) => options.tos = tos & !3,
            SetOption::Ttl(ttl) => options.ttl = ttl,
            SetOption::SynRetries(count) => options.syn_retries = Some(count),
            SetOption::DeferAccept(timeouts) => options.defer_accept = timeouts,
            SetOption::MaxSeg(bytes) => options.maxseg = Some(bytes).filter(|&bytes| bytes > 0),
            SetOption::KeepAlive(on) => options.keepalive = on,
            SetOption::KeepIdle(time) => options.keep_idle = Some(time),
            SetOption::KeepIntvl(time) => options.keep_intvl = Some(time),
            SetOption::KeepCnt(count) => options.keep_cnt = Some(count),
            SetOption::UserTimeout(time) => options.user_timeout = Some(time),
            SetOption::RtoMin(time) => options.rto_min = time,
            SetOption::RtoMax(time) => options.rto_max = time,
            SetOption::HalfCloseTimeout(time) => options.half_close_timeout = Some(time),
            SetOption::MemoryBudget(bytes) => options.memory_budget = bytes,
            SetOption::SndBuf(bytes) => options.sndbuf = Some(bytes),
            SetOption::RcvBuf(bytes) => options.rcvbuf = Some(bytes),
            SetOption::WindowClamp(bytes) => options.window_clamp = bytes,
            SetOption::PathMtuDiscovery(discovery) => options.path_mtu_discovery = discovery,
            SetOption::Congestion(algorithm) => options.congestion = Some(algorithm),
            SetOption::NotsentLowat(bytes) => options.notsent_lowat = Some(bytes),
            SetOption::RcvLowat(bytes) => options.rcvlowat = bytes,
            SetOption::OobInline(on) => options.oobinline = on,
            SetOption::QuickAck(on) => options.quickack = Some(on),
            SetOption::Linger2(time) => options.linger2 = Some(time),
        }
        self.apply_option(cx, &option);
        self.debug_invariants();
    }

    /// Applies the consequences of a changed option.
    fn apply_option(&mut self, cx: &Context, option: &SetOption) {
        match option {
            SetOption::KeepAlive(_) | SetOption::KeepIdle(_) => self.sync_keepalive(cx),
            SetOption::UserTimeout(_) => self.timers.stop(Timer::UserTimeout),
            SetOption::RtoMin(_) | SetOption::RtoMax(_) => {
                self.snd.flight.set_rto_bounds(&self.options);
            }
            SetOption::HalfCloseTimeout(_) => self.sync_half_close(cx),
            SetOption::SndBuf(bytes) => self.snd.set_buffer(*bytes, cx.config),
            SetOption::NoDelay(true) => self.snd.push_tail(),
            SetOption::Cork(false) if self.options.nodelay => self.snd.push_tail(),
            SetOption::TxTimestamps(stamps) => self.snd.set_tx_timestamps(*stamps),
            SetOption::RcvBuf(bytes) => {
                self.rcv.set_buffer(*bytes);
                self.after_read();
            }
            SetOption::WindowClamp(_) => {
                self.rcv.set_window_clamp(&self.options);
                self.after_read();
            }
            SetOption::Congestion(algorithm) => {
                self.snd.flight.set_algorithm(*algorithm, self.snd.segment_size());
                self.ecn.set_needed(self.ecn_policy(cx.config).needed);
            }
            SetOption::DecisionLog(entries) => self.explain.set_log(*entries),
            SetOption::RcvLowat(_) => self.apply_low_water(cx),
            SetOption::QuickAck(on) => {
                self.rcv.set_quick(*on, cx.config);
                self.sync_ack_timer();
            }
            _ => {}
        }
    }

    /// The last decisions, the oldest first: empty unless [`SetOption::DecisionLog`] is set.
    pub fn decisions(&self) -> Vec<Record> {
        self.explain.records()
    }

    /// Whether an error is pending for SO_ERROR.
    pub fn has_error(&self) -> bool {
        (self.error.is_some() && !self.error_taken) || self.soft_error.is_some()
    }

    /// Bytes of memory of this connection, without the chunks that its queues use.
    pub fn memory_bytes(&self) -> usize {
        let heap = self.rcv.heap_bytes() + self.snd.heap_bytes();
        let open = self.fast_open.as_ref().map_or(0, |_| size_of::<FastOpenClient>());
        size_of::<Connection>() + heap + self.explain.heap_bytes() + open + self.ecn.heap_bytes()
    }

    /// The time at which a timeout frees memory that is needed only while data waits or is in
    /// flight: a second after the connection was last in use. `None` if there is no such memory, or
    /// it is needed. Nothing else waits for that, so it is no deadline of
    /// [`poll_timeout`](Self::poll_timeout): a caller with many connections arms a timer for it as
    /// well.
    #[inline]
    pub fn releases_at(&self) -> Option<Instant> {
        let resting = self.snd.is_at_rest() && self.rcv.is_at_rest();
        if !resting || !(self.snd.is_releasable() || self.rcv.is_releasable()) {
            return None;
        }
        let sent = self.snd.flight.last_departure();
        Some(self.keepalive.last_rx.max(sent) + RESTING_TIME)
    }

    /// [`check_invariants`](Self::check_invariants) in builds that can afford it.
    #[inline]
    pub(crate) fn debug_invariants(&self) {
        #[cfg(any(test, fuzzing, debug_assertions))]
        self.check_invariants();
    }
}

#[cfg(test)]
mod tests;
