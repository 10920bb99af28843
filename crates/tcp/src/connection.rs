//! One TCP connection: the type that owns everything below and wires it together.
//!
//! # Theory of operation
//!
//! A segment comes in through [`Connection::handle_segment`]; the rooms under `input/` check it in
//! the order of RFC 9293, section 3.10.7, and change the sender ([`crate::send`]), the receiver
//! ([`crate::recv`]) and the loss recovery ([`crate::recovery`]). Nothing leaves at that point:
//! every room only records what is due. [`Connection::poll_transmit`] then asks, in one fixed
//! order, what may leave.
//!
//! Queues: the write queue and the retransmit queue (bounded by the send buffer), the receive queue
//! and reassembly (bounded by the receive buffer). An idle connection holds none of their memory.
//!
//! Timers: all in one table, see [`Timer`].
//!
//! [`reading`] has the calls of readers, and what else is wired to the receive half.
//!
//! What it does not do: listening, demultiplexing, ports, IP, checksums. The stack does.

mod reading;

use alloc::boxed::Box;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use crate::config::{Config, Options, SetOption};
use crate::congestion::Controller;
use crate::counters::{Counter, Counters};
use crate::ecn::EcnState;
use crate::event::{ConnectionError, Events};
use crate::handshake::fast_open_client::FastOpenClient;
use crate::handshake::{Handshake, TimestampState};
use crate::info::Info;
use crate::keepalive::Keepalive;
use crate::limits::RateLimit;
use crate::mtu::{Path, PathEvent};
use crate::output::Hold;
use crate::recovery::Recovery;
use crate::recv::RecvSide;
use crate::recv::window::choose_shift;
use crate::segment::{Below, Segment};
use crate::send::{Fin, Sender, memory};
use crate::serial::Serial;
use crate::state::State;
use crate::time::{Duration, Instant};
use crate::timer::{Timer, TimerTable};
use crate::why::{Causes, Decisions, HoldTimes};

/// What comes with every call: the time, what lies below, the settings, and where to count.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time now. It must not run backwards.
    pub now: Instant,
    /// What lies below this connection.
    pub below: Below,
    /// The stack's settings.
    pub config: &'a Config,
    /// Where to count.
    pub counters: &'a Counters,
}

/// What a connection is opened with.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// The initial sequence number (RFC 6528: the caller derives it from a secret).
    pub iss: SeqNum,
    /// Offset of our timestamp clock (RFC 7323, section 5.4), from the same secret.
    pub ts_offset: u32,
    /// Seed of the connection's own randomness.
    pub seed: u64,
    /// MTU of the path in bytes, IP header included.
    pub mtu: u16,
    /// Bytes of the IP header: 20 or 40.
    pub ip_header_len: u16,
    /// Most payload bytes that one packet handed down may hold (0 or less than one MSS: no
    /// super-segments).
    pub max_super_segment: usize,
    /// The socket's options.
    pub options: Options,
    /// Where buffers come from.
    pub pool: Pool,
}

/// One TCP connection, without I/O, clock or randomness of its own.
///
/// There are four families of methods.
///
/// - Getters ([`state`](Self::state), [`info`](Self::info), ...) change nothing.
/// - `handle_*`: something happened below: a segment arrived, a timer fired, the path changed.
/// - The application's calls: [`write`](Self::write), [`write_with`](Self::write_with),
///   [`read`](Self::read), [`take_report`](Self::take_report),
///   [`shutdown`](Self::shutdown), [`close`](Self::close), [`abort`](Self::abort),
///   [`set_option`](Self::set_option).
/// - `poll_*`: effects out.
///
/// After any `handle_*` or application call (or a batch of them), call
/// [`poll_transmit`](Self::poll_transmit) until it returns `None`, then
/// [`poll_event`](Self::poll_event), then [`poll_timeout`](Self::poll_timeout); arm one timer for
/// the connection and call [`handle_timeout`](Self::handle_timeout) when it fires (too early is
/// harmless). The same inputs give the same outputs, byte for byte.
pub struct Connection {
    // Read and written by every segment.
    pub(crate) state: State,
    pub(crate) orphan: bool,
    pub(crate) events: Events,
    pub(crate) pending: Pending,
    pub(crate) rcv: RecvSide,
    pub(crate) snd: Sender,
    pub(crate) ts: TimestampState,
    pub(crate) ecn: EcnState,
    pub(crate) timers: TimerTable,
    pub(crate) recovery: Recovery,
    pub(crate) cc: Controller,
    pub(crate) stats: Stats,
    /// What held the last attempt to send, if anything did.
    pub(crate) last_hold: Option<Hold>,
    /// What has happened since output last came to its end.
    pub(crate) causes: Causes,
    /// Writes since new data last left.
    pub(crate) writes: u32,
    // Read when a header is built.
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) path: Path,
    pub(crate) next_serial: Serial,
    // Rarely touched.
    pub(crate) handshake: Handshake,
    /// An open with Fast Open, on the side that connects; on the other, the cookie that the SYN-ACK
    /// gives out, until it leaves.
    pub(crate) fast_open: Option<Box<FastOpenClient>>,
    /// What holds have cost, once there was one.
    pub(crate) hold_times: Option<Box<HoldTimes>>,
    /// The log, if it is on.
    pub(crate) decisions: Option<Box<Decisions>>,
    pub(crate) keepalive: Keepalive,
    pub(crate) challenge: RateLimit,
    pub(crate) error: Option<ConnectionError>,
    pub(crate) error_taken: bool,
    pub(crate) soft_error: Option<ConnectionError>,
    pub(crate) options: Options,
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

/// What [`Info`] sums up over the life of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) segs_out: u64,
    pub(crate) segs_in: u64,
    pub(crate) data_segs_out: u64,
    pub(crate) total_retrans: u32,
    /// Wire segments delivered, by ACK or SACK.
    pub(crate) delivered: u32,
    /// Of those, what the peer said to have met congestion.
    pub(crate) delivered_ce: u32,
    /// Wire segments that DSACKs named.
    pub(crate) dsacks: u32,
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
        let algorithm = params.options.congestion.unwrap_or(cx.config.tcp_congestion_control);
        let mss = path.advmss();
        let shift = choose_shift(cx.config, &params.options);
        Connection {
            state,
            orphan: false,
            events: Events::NONE,
            pending: Pending::default(),
            rcv: RecvSide::new(cx.config, &params.options, mss),
            snd: Sender::new(params.iss, mss, cx.config, &params.options),
            ts: TimestampState::new(params.ts_offset),
            ecn: EcnState::default(),
            timers: TimerTable::new(),
            recovery: Recovery::new(cx.config),
            cc: Controller::new(algorithm, cx.config),
            stats: Stats::default(),
            last_hold: None,
            causes: Causes::NONE,
            writes: 0,
            local_port: params.local_port,
            remote_port: params.remote_port,
            path,
            next_serial: Serial(1),
            handshake: Handshake::new(cx.now, shift),
            fast_open: None,
            hold_times: None,
            decisions: Decisions::new(
                params.options.decision_log.unwrap_or(cx.config.decision_log),
            ),
            keepalive: Keepalive::default(),
            challenge: RateLimit::default(),
            error: None,
            error_taken: false,
            soft_error: None,
            options: params.options,
            pool: params.pool,
        }
    }

    /// A segment for this connection arrived.
    pub fn handle_segment(&mut self, cx: &Context, seg: Segment) {
        self.debug_invariants();
        self.snd.written = false;
        self.snd.was_idle = None;
        self.causes.add(Causes::ACK);
        self.on_segment(cx, seg);
        self.debug_invariants();
    }

    /// A deadline of [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, cx: &Context) {
        self.debug_invariants();
        self.snd.written = false;
        while let Some(timer) = self.timers.pop_due(cx.now) {
            self.causes.add(Causes::TIMER);
            match timer {
                Timer::Retransmit => self.on_xmit_timeout(cx),
                // What it held is asked about by the next poll.
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
        self.debug_invariants();
    }

    /// The stack learnt something about the path.
    pub fn handle_path_event(&mut self, cx: &Context, event: PathEvent) {
        self.debug_invariants();
        self.snd.written = false;
        self.on_path_event(cx, event);
        self.debug_invariants();
    }

    /// The earliest point at which [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes what happened since the last call.
    pub fn poll_event(&mut self) -> Events {
        self.events.take()
    }

    /// The state of RFC 9293.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection ended early, if it did.
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// SO_ERROR: the pending error, reported once.
    pub fn take_error(&mut self) -> Option<ConnectionError> {
        let error = if self.error_taken { None } else { self.error };
        self.error_taken = self.error.is_some();
        error.or_else(|| self.soft_error.take())
    }

    /// The socket's options as they are now.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether `seq` belongs to a segment that was sent and is not yet acknowledged: what an ICMP
    /// error must quote to be believed (RFC 5927, section 4.1).
    pub fn is_in_flight(&self, seq: SeqNum) -> bool {
        let first = if self.is_early() { self.snd.iss } else { self.snd.una };
        seq.since(first) <= self.snd.max.since(first)
    }

    /// Whether no application holds the connection any more.
    pub fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// The application writes no more: our FIN follows what is queued. Reading goes on.
    pub fn shutdown(&mut self, cx: &Context) {
        self.debug_invariants();
        self.causes.add(Causes::OPTION);
        match self.state {
            State::SynSent | State::SynReceived => self.queue_fin(),
            State::Established | State::CloseWait => {
                self.queue_fin();
                self.set_state(cx, self.state.after_shutdown());
            }
            _ => {}
        }
        self.debug_invariants();
    }

    /// A shutdown that came before ESTABLISHED takes effect now.
    pub(crate) fn resume_shutdown(&mut self, cx: &Context) {
        if self.snd.fin == Fin::Queued && self.state == State::Established {
            self.set_state(cx, State::FinWait1);
        }
    }

    fn queue_fin(&mut self) {
        if self.snd.fin == Fin::None {
            self.snd.fin = Fin::Queued;
        }
    }

    /// The application lets go. Unread data means a reset (RFC 1122, section 4.2.2.13), since the
    /// peer would take it for delivered; otherwise our FIN follows what is queued.
    pub fn close(&mut self, cx: &Context) {
        self.debug_invariants();
        self.orphan = true;
        let unread = self.rcv.close();
        match self.state {
            State::Closed | State::TimeWait => {}
            State::SynSent => self.set_state(cx, State::Closed),
            _ if unread => {
                cx.counters.bump(Counter::TcpAbortOnClose);
                self.queue_rst();
                self.set_state(cx, State::Closed);
            }
            State::FinWait2 => self.arm_fin_wait_2(cx),
            _ => self.shutdown(cx),
        }
        self.debug_invariants();
    }

    /// Ends the connection at once, with a reset if the peer knows of it.
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
        self.snd.written = false;
        self.causes.add(Causes::OPTION);
        let options = &mut self.options;
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
            SetOption::HalfCloseTimeout(time) => options.half_close_timeout = Some(time),
            SetOption::SndBuf(bytes) => options.sndbuf = Some(bytes),
            SetOption::RcvBuf(bytes) => options.rcvbuf = Some(bytes),
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

    /// What follows from a changed option.
    fn apply_option(&mut self, cx: &Context, option: &SetOption) {
        match option {
            SetOption::KeepAlive(_) | SetOption::KeepIdle(_) => self.sync_keepalive(cx),
            SetOption::UserTimeout(_) => self.timers.stop(Timer::UserTimeout),
            SetOption::HalfCloseTimeout(_) => self.sync_half_close(cx),
            SetOption::SndBuf(bytes) if cx.config.tcp_sndbuf_raw > 0 => {
                self.snd.buf_limit = memory::raw_sndbuf(*bytes);
            }
            SetOption::SndBuf(bytes) => self.snd.buf_limit = memory::sndbuf(*bytes),
            SetOption::NoDelay(true) => self.push_tail(),
            SetOption::Cork(false) if self.options.nodelay => self.push_tail(),
            SetOption::TxTimestamps(stamps) => self.snd.set_tx_timestamps(*stamps),
            SetOption::RcvBuf(bytes) => {
                self.rcv.set_buffer(*bytes);
                self.after_read();
            }
            SetOption::Congestion(algorithm) => self.cc.switch(*algorithm),
            SetOption::DecisionLog(entries) => self.decisions = Decisions::new(*entries),
            SetOption::RcvLowat(_) => self.apply_low_water(cx),
            SetOption::QuickAck(on) => {
                self.rcv.set_quick(*on, cx.config);
                self.sync_ack_timer();
            }
            _ => {}
        }
    }

    /// What waits leaves, whatever Nagle's rule or a cork says.
    fn push_tail(&mut self) {
        self.snd.more = false;
        self.snd.push_now = !self.snd.queue.is_empty();
    }

    /// The figures of `TCP_INFO` that do not depend on the time. `config` is the stack's, as in
    /// every [`Context`].
    pub fn info(&self, config: &Config) -> Info {
        self.info_at(config, Instant::ZERO)
    }

    /// The figures of `TCP_INFO` at `now`.
    pub fn info_at(&self, config: &Config, now: Instant) -> Info {
        crate::info::info(self, config, now)
    }

    /// Whether SO_ERROR has something to tell.
    pub fn has_error(&self) -> bool {
        (self.error.is_some() && !self.error_taken) || self.soft_error.is_some()
    }

    /// Bytes that the peer has not acknowledged, sent or not (SIOCOUTQ).
    pub fn send_queue_len(&self) -> usize {
        self.snd.queue.len() + self.snd.rtx.bytes()
    }

    /// Bytes that were never sent (SIOCOUTQNSD).
    pub fn unsent_len(&self) -> usize {
        self.snd.queue.len()
    }

    /// Bytes of memory of this connection, without the chunks that its queues refer to.
    pub fn memory_bytes(&self) -> usize {
        let heap = self.rcv.heap_bytes() + self.snd.heap_bytes() + self.recovery.heap_bytes();
        let told = self.hold_times.as_ref().map_or(0, |_| size_of::<HoldTimes>())
            + self.decisions.as_ref().map_or(0, |log| log.heap_bytes());
        size_of::<Connection>() + heap + told + self.fast_open_bytes()
    }

    /// Data (or our FIN) is unacknowledged.
    pub(crate) fn has_unacked(&self) -> bool {
        self.snd.una != self.snd.max
    }

    /// The smoothed round trip; zero before the first sample.
    pub(crate) fn srtt(&self) -> Duration {
        self.recovery.rtt.srtt().unwrap_or_default()
    }

    /// Checks everything that must hold between two calls.
    ///
    /// # Panics
    /// If something does not.
    pub fn check_invariants(&self) {
        crate::info::check_invariants(self);
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
