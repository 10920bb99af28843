//! The sources of the figures, and the invariants of all parts of a connection together.

use super::Info;
use crate::config::Config;
use crate::connection::Connection;
use crate::mtu::TIMESTAMP_OPTION_LEN;
use crate::state::State;
use crate::time::{Instant, Nanos};
use crate::timer::Timer;

impl Connection {
    /// The figures of `TCP_INFO` that do not depend on the time. `config` is the stack's, as in
    /// every [`Context`](crate::Context).
    pub fn info(&self, config: &Config) -> Info {
        self.info_at(config, Instant::ZERO)
    }

    /// The figures of `TCP_INFO` at `now`.
    pub fn info_at(&self, config: &Config, now: Instant) -> Info {
        info(self, config, now)
    }

    /// Checks all invariants between two calls.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        check_invariants(self);
    }
}

/// The figures of `conn`, whose settings are `config`.
fn info(conn: &Connection, config: &Config, now: Instant) -> Info {
    let mss = u32::from(conn.snd.mss()).max(1);
    let delivery = conn.snd.flight.board().delivery_rate(mss);
    let (held, acc_ecn) = (conn.explain.held(now, conn.snd.hold()), conn.ecn.info());
    Info {
        received_ce: acc_ecn.received_ce,
        delivered_e1_bytes: acc_ecn.delivered.e1b,
        delivered_e0_bytes: acc_ecn.delivered.e0b,
        delivered_ce_bytes: acc_ecn.delivered.ceb,
        received_e1_bytes: acc_ecn.received.e1b,
        received_e0_bytes: acc_ecn.received.e0b,
        received_ce_bytes: acc_ecn.received.ceb,
        accecn_fail_mode: acc_ecn.fail_mode,
        accecn_opt_seen: acc_ecn.opt_seen,
        pacing_rate: conn.snd.pacing_rate(config, &conn.options),
        delivery_rate: delivery.0,
        delivery_rate_app_limited: delivery.1,
        bbr: conn.snd.flight.cc().model(),
        max_pacing_rate: conn.options.max_pacing_rate.unwrap_or(u64::MAX),
        sndbuf: conn.snd.buffer(),
        rcvbuf: conn.rcv.buffer(),
        hold: conn.snd.hold(),
        held_for: held.0.into(),
        holds: held.1,
        hold_times: held.2.map(Nanos::to_duration),
        below: 0,
        completions: false,
        ..counts(conn, config, now)
    }
}

/// Those of them that count and measure, without rates, holds, and Accurate ECN.
fn counts(conn: &Connection, config: &Config, now: Instant) -> Info {
    let (times, rtt) = (conn.snd.limited_times(now), conn.snd.flight.rtt());
    Info {
        state: conn.state,
        congestion: conn.snd.flight.cc().algorithm(),
        timestamps: conn.ts.enabled,
        sack: conn.handshake.sack,
        snd_wscale: conn.snd.wscale(),
        rcv_wscale: conn.rcv.wscale(),
        window_scaling: conn.handshake.window_scaling,
        rto: conn.current_rto(config).into(),
        ato: conn.rcv.ato().into(),
        snd_mss: u32::from(conn.snd.mss()).max(1),
        rcv_mss: conn.rcv.rcv_mss(),
        advmss: advmss(conn),
        pmtu: u32::from(conn.path.mtu),
        unacked: unacked(conn),
        sacked: conn.snd.flight.board().sacked_out(),
        lost: conn.snd.flight.board().lost_out(),
        retrans: conn.snd.flight.board().retrans_out(),
        total_retrans: conn.snd.flight.total_retrans(),
        backoff: u32::from(rtt.backoff()),
        retransmits: u32::from(conn.current_retries()),
        probes: probes(conn),
        rtt: rtt.srtt().unwrap_or_default().into(),
        rttvar: rtt.mdev().into(),
        min_rtt: rtt.min_rtt().map(Nanos::to_duration),
        snd_cwnd: conn.snd.flight.cc().cwnd(),
        snd_ssthresh: conn.snd.flight.cc().ssthresh(),
        reordering: conn.snd.flight.dup_thresh(),
        reord_seen: conn.snd.flight.reordering_seen(),
        snd_wnd: conn.snd.wnd(),
        rcv_wnd: conn.rcv.wnd(),
        rcv_ssthresh: u32::try_from(conn.rcv.buffer()).unwrap_or(u32::MAX),
        rcv_space: u32::try_from(conn.rcv.space()).unwrap_or(u32::MAX),
        bytes_acked: conn.snd.stats().bytes_acked,
        bytes_received: conn.rcv.stats().bytes,
        bytes_sent: conn.snd.stats().bytes_sent + conn.snd.flight.bytes_retrans(),
        bytes_retrans: conn.snd.flight.bytes_retrans(),
        segs_out: conn.stats.segs_out,
        segs_in: conn.stats.segs_in,
        data_segs_out: conn.snd.stats().data_segs_out,
        data_segs_in: conn.rcv.stats().segs,
        notsent_bytes: conn.unsent_len() as u32,
        delivered: conn.snd.flight.delivered(),
        delivered_ce: conn.snd.flight.delivered_ce(),
        dsack_dups: conn.snd.flight.dsack_dups(),
        rcv_ooopack: conn.rcv.stats().out_of_order,
        rcv_rtt: conn.rcv.rtt().into(),
        busy_time: times.busy.into(),
        rwnd_limited: times.rwnd.into(),
        sndbuf_limited: times.sndbuf.into(),
        last_data_sent: now.since(conn.snd.flight.last_departure()),
        last_data_recv: now.since(conn.rcv.stats().last_data),
        last_ack_recv: now.since(conn.keepalive.last_rx),
        ca_state: conn.snd.flight.state() as u8,
        options: option_bits(conn),
        fastopen_client_fail: conn.fast_open.as_ref().map_or(0, |open| open.failure()),
        ..Info::default()
    }
}

/// The MSS that we announced, less the timestamp option if it is in use.
fn advmss(conn: &Connection) -> u32 {
    let timestamps = if conn.ts.enabled { TIMESTAMP_OPTION_LEN } else { 0 };
    u32::from(conn.path.advmss().saturating_sub(timestamps))
}

/// Unanswered probes.
fn probes(conn: &Connection) -> u32 {
    let of_window = conn.snd.unanswered_window_probes(conn.keepalive.last_rx);
    u32::from(conn.keepalive.probes.max(of_window))
}

/// Segments that are not acknowledged, a SYN counted.
fn unacked(conn: &Connection) -> u32 {
    let packets = conn.snd.flight.board().packets_out();
    packets + u32::from(conn.snd.una() == conn.snd.iss() && conn.snd.iss() < conn.snd.nxt())
}

/// TCPI_OPT_*: timestamps 1, SACK 2, window scaling 4, ECN 8, a marked packet 16, data of the SYN
/// acknowledged 32.
fn option_bits(conn: &Connection) -> u8 {
    u8::from(conn.ts.enabled)
        | u8::from(conn.handshake.sack) << 1
        | u8::from(conn.handshake.window_scaling) << 2
        | u8::from(conn.ecn.is_on()) << 3
        | u8::from(conn.ecn.seen) << 4
        | u8::from(conn.handshake.syn_data_acked) << 5
}

/// Panics if something does not hold that must hold between two calls.
fn check_invariants(conn: &Connection) {
    conn.rcv.check_invariants(!matches!(conn.state, State::Closed | State::SynSent));
    if conn.state == State::Closed {
        assert_eq!(conn.timers.next(), None, "a closed connection waits for a timer");
        return;
    }
    assert_eq!(conn.rcv.fin_taken(), conn.state.received_fin(), "the FIN was taken");
    check_timers(conn);
    conn.snd.check_invariants();
}

fn check_timers(conn: &Connection) {
    let retransmit = conn.timers.deadline(Timer::Retransmit);
    assert!(retransmit.is_some() || !conn.snd.has_outstanding(), "data in flight has a timer");
    let ours = conn.state.is_synchronized() && conn.state != State::TimeWait;
    assert!(!ours || retransmit == conn.snd.flight.deadline(), "it is recovery's");
    let delayed = conn.rcv.ack_waits_until().is_some();
    assert_eq!(delayed, conn.timers.is_armed(Timer::DelayedAck), "delayed ACK and its timer");
    let waits = conn.state == State::TimeWait;
    assert_eq!(waits, conn.timers.is_armed(Timer::TimeWait), "TIME-WAIT and its timer");
    if conn.state == State::FinWait2 && conn.orphan {
        assert!(conn.timers.is_armed(Timer::FinWait2), "an orphan would wait for ever");
    }
    if conn.bounds_half_close() {
        assert!(conn.timers.is_armed(Timer::HalfClose), "nobody bounds the half-closed");
    }
}
