//! What a connection tells about itself: the fields of Linux's `TCP_INFO`, under their names.

use crate::config::{Config, CongestionAlgorithm};
use crate::connection::Connection;
use crate::mtu::TIMESTAMP_OPTION_LEN;
use crate::state::State;
use crate::time::{Duration, Instant};
use crate::timer::Timer;

/// A snapshot of a connection. Names and units follow Linux's `struct tcp_info` unless said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of struct tcp_info")]
#[non_exhaustive]
pub struct Info {
    pub state: State,
    pub congestion: CongestionAlgorithm,
    pub timestamps: bool,
    pub sack: bool,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub window_scaling: bool,
    /// The retransmission timeout of now, backoff included; in the handshake, that of the SYN.
    pub rto: Duration,
    pub ato: Duration,
    /// Bytes of payload per full segment that we send.
    pub snd_mss: u32,
    pub rcv_mss: u32,
    /// The MSS that we announced, less the timestamp option if it is in use, as on Linux.
    pub advmss: u32,
    pub pmtu: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub total_retrans: u32,
    /// Exponent of the timer's backoff, which window probes share.
    pub backoff: u32,
    /// Timeouts since the peer last acknowledged something new; in the handshake, those of the SYN.
    pub retransmits: u32,
    /// Unanswered probes, of keepalive or of a closed window.
    pub probes: u32,
    /// Smoothed RTT; zero before the first sample.
    pub rtt: Duration,
    pub rttvar: Duration,
    pub min_rtt: Option<Duration>,
    /// In segments.
    pub snd_cwnd: u32,
    /// In segments.
    pub snd_ssthresh: u32,
    /// Duplicate ACKs, or segments SACKed behind a hole, that mean loss: the setting
    /// `tcp_reordering`, and more once reordering was seen.
    pub reordering: u32,
    /// How often a segment was seen to arrive late.
    pub reord_seen: u32,
    /// The peer's window, in bytes.
    pub snd_wnd: u32,
    /// Our window as last advertised, in bytes.
    pub rcv_wnd: u32,
    pub rcv_ssthresh: u32,
    pub rcv_space: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub segs_out: u64,
    pub segs_in: u64,
    pub data_segs_out: u64,
    pub data_segs_in: u64,
    pub notsent_bytes: u32,
    /// Wire segments that the peer is known to have, by ACK or SACK.
    pub delivered: u32,
    /// Of those, what the peer said to have met a congestion mark.
    pub delivered_ce: u32,
    pub dsack_dups: u32,
    pub rcv_ooopack: u32,
    /// The round trip as the receiver measures it; zero before the first sample.
    pub rcv_rtt: Duration,
    /// Time in which anything written was not acknowledged.
    pub busy_time: Duration,
    /// Of that, the time in which the peer's window held data back.
    pub rwnd_limited: Duration,
    /// Of that, the time in which a larger send buffer would have had data to send.
    pub sndbuf_limited: Duration,
    /// Time since data last left; since the open if none did.
    pub last_data_sent: Duration,
    /// Time since data last arrived; since the open if none did.
    pub last_data_recv: Duration,
    /// Time since an ACK last arrived.
    pub last_ack_recv: Duration,
    /// How far the recovery of losses is, as Linux numbers it: 0 open, 1 disorder, 2 CWR,
    /// 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Bits TCPI_OPT_*.
    pub options: u8,
    /// Why Fast Open did not work out for who connects, as Linux numbers it: 0 unknown, 1 no
    /// cookie, 2 data not acknowledged, 3 SYN sent again.
    pub fastopen_client_fail: u8,
    /// Bytes per second at which packets leave, if something paces them; `u64::MAX` is no limit.
    pub pacing_rate: u64,
    /// The rate at which data was lately delivered, in bytes per second; zero before it was
    /// measured. While the application limits it, the highest rate so far.
    pub delivery_rate: u64,
    /// `delivery_rate` was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// SO_MAX_PACING_RATE in bytes per second; `u64::MAX` is no limit.
    pub max_pacing_rate: u64,
    /// SO_SNDBUF, as Linux counts.
    pub sndbuf: usize,
    /// Bytes of data that the receive buffer holds.
    pub rcvbuf: usize,
    /// What holds the next send at the moment, if anything.
    pub hold: Option<crate::output::hold::Hold>,
    /// How long it has held.
    pub held_for: Duration,
    /// How often each [`Hold`](crate::Hold) was met, in the order of
    /// [`Hold::ALL`](crate::Hold::ALL).
    pub holds: [u64; crate::output::hold::Hold::ALL.len()],
    /// How long each has held in all, in the same order.
    pub hold_times: [Duration; crate::output::hold::Hold::ALL.len()],
    /// Data bytes that were handed down and have not completed. The stack fills it in.
    pub below: u32,
    /// The device tells when it is done with a packet. Without that, automatic corking and small
    /// queues are off. The stack fills it in.
    pub completions: bool,
}

/// The figures of `conn`, whose settings are `config`.
pub(crate) fn info(conn: &Connection, config: &Config, now: Instant) -> Info {
    let mss = u32::from(conn.snd.mss()).max(1);
    let delivery = conn.snd.scoreboard().delivery_rate(mss);
    let (times, rtt, held) =
        (conn.snd.limited_times(now), conn.snd.recovery().rtt(), conn.held(now));
    Info {
        state: conn.state,
        congestion: conn.snd.controller().algorithm(),
        timestamps: conn.ts.enabled,
        sack: conn.handshake.sack,
        snd_wscale: conn.snd.wscale(),
        rcv_wscale: conn.rcv.wscale(),
        window_scaling: conn.handshake.window_scaling,
        rto: conn.current_rto(config),
        ato: conn.rcv.ato(),
        snd_mss: mss,
        rcv_mss: conn.rcv.rcv_mss(),
        advmss: advmss(conn),
        pmtu: u32::from(conn.path.mtu),
        unacked: unacked(conn),
        sacked: conn.snd.scoreboard().sacked_out(),
        lost: conn.snd.scoreboard().lost_out(),
        retrans: conn.snd.scoreboard().retrans_out(),
        total_retrans: conn.snd.recovery().total_retrans(),
        backoff: u32::from(rtt.backoff()),
        retransmits: u32::from(conn.current_retries()),
        probes: probes(conn),
        rtt: rtt.srtt().unwrap_or_default(),
        rttvar: rtt.mdev(),
        min_rtt: rtt.min_rtt(),
        snd_cwnd: conn.snd.controller().cwnd(),
        snd_ssthresh: conn.snd.controller().ssthresh(),
        reordering: conn.snd.recovery().dup_thresh(),
        reord_seen: conn.snd.recovery().reordering_seen(),
        snd_wnd: conn.snd.wnd(),
        rcv_wnd: conn.rcv.wnd(),
        rcv_ssthresh: u32::try_from(conn.rcv.buffer()).unwrap_or(u32::MAX),
        rcv_space: u32::try_from(conn.rcv.space()).unwrap_or(u32::MAX),
        bytes_acked: conn.snd.stats().bytes_acked,
        bytes_received: conn.rcv.stats().bytes,
        bytes_sent: conn.snd.stats().bytes_sent,
        bytes_retrans: conn.snd.recovery().bytes_retrans(),
        segs_out: conn.stats.segs_out,
        segs_in: conn.stats.segs_in,
        data_segs_out: conn.snd.stats().data_segs_out,
        data_segs_in: conn.rcv.stats().segs,
        notsent_bytes: conn.unsent_len() as u32,
        delivered: conn.snd.recovery().delivered(),
        delivered_ce: conn.snd.recovery().delivered_ce(),
        dsack_dups: conn.snd.recovery().dsack_dups(),
        rcv_ooopack: conn.rcv.stats().out_of_order,
        rcv_rtt: conn.rcv.rtt(),
        busy_time: times.busy,
        rwnd_limited: times.rwnd,
        sndbuf_limited: times.sndbuf,
        last_data_sent: now.since(conn.snd.recovery().last_departure()),
        last_data_recv: now.since(conn.rcv.stats().last_data),
        last_ack_recv: now.since(conn.keepalive.last_rx),
        ca_state: conn.snd.recovery().state() as u8,
        options: option_bits(conn),
        fastopen_client_fail: conn.fast_open_failure(),
        pacing_rate: conn.snd.pacing_rate(config, &conn.options),
        delivery_rate: delivery.0,
        delivery_rate_app_limited: delivery.1,
        max_pacing_rate: conn.options.max_pacing_rate.unwrap_or(u64::MAX),
        sndbuf: conn.snd.buffer(),
        rcvbuf: conn.rcv.buffer(),
        hold: conn.snd.hold(),
        held_for: held.0,
        holds: held.1,
        hold_times: held.2,
        below: 0,
        completions: false,
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
    let packets = conn.snd.scoreboard().packets_out();
    packets + u32::from(conn.snd.una() == conn.snd.iss() && conn.snd.iss() < conn.snd.nxt())
}

/// TCPI_OPT_*: timestamps 1, SACK 2, window scaling 4, ECN 8, a marked packet 16, data of the SYN
/// acknowledged 32.
fn option_bits(conn: &Connection) -> u8 {
    u8::from(conn.ts.enabled)
        | u8::from(conn.handshake.sack) << 1
        | u8::from(conn.handshake.window_scaling) << 2
        | u8::from(conn.ecn.on) << 3
        | u8::from(conn.ecn.seen) << 4
        | u8::from(conn.handshake.syn_data_acked) << 5
}

/// Panics if something does not hold that must hold between two calls.
pub(crate) fn check_invariants(conn: &Connection) {
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
    assert!(!ours || retransmit == conn.snd.retransmission_deadline(), "it is recovery's");
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

#[cfg(test)]
mod tests;
