//! The figures of a connection: the fields of Linux's `TCP_INFO`, with their names.

mod figures;

use crate::algorithm::CongestionAlgorithm;
use crate::congestion::bbr::state::BbrModel;
use crate::state::State;
use crate::time::Duration;

/// A snapshot of a connection. Names and units follow Linux's `struct tcp_info` unless noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The present retransmission timeout, including backoff; in the handshake, that of the SYN.
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
    /// Timeouts since the peer last acknowledged new data; in the handshake, those of the SYN.
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
    /// Duplicate ACKs, or segments SACKed after a hole, that mean loss: the setting
    /// `tcp_reordering`, and more once reordering was seen.
    pub reordering: u32,
    /// How often a segment was found to arrive late.
    pub reord_seen: u32,
    /// The peer's window, in bytes.
    pub snd_wnd: u32,
    /// Our window as last advertised, in bytes.
    pub rcv_wnd: u32,
    pub rcv_ssthresh: u32,
    pub rcv_space: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    /// Payload bytes sent, including retransmissions.
    pub bytes_sent: u64,
    /// Payload bytes that were retransmitted.
    pub bytes_retrans: u64,
    pub segs_out: u64,
    pub segs_in: u64,
    pub data_segs_out: u64,
    pub data_segs_in: u64,
    pub notsent_bytes: u32,
    /// Wire segments that the peer has received, as far as ACKs and SACKs show.
    pub delivered: u32,
    /// Of those, segments that the peer reported with a congestion mark.
    pub delivered_ce: u32,
    pub dsack_dups: u32,
    pub rcv_ooopack: u32,
    /// The round trip as the receiver measures it; zero before the first sample.
    pub rcv_rtt: Duration,
    /// Time during which written data was unacknowledged.
    pub busy_time: Duration,
    /// Of that, the time during which the peer's window held data back.
    pub rwnd_limited: Duration,
    /// Of that, the time during which a larger send buffer would have had data to send.
    pub sndbuf_limited: Duration,
    /// Time since data was last sent; since the open if none was.
    pub last_data_sent: Duration,
    /// Time since data last arrived; since the open if none did.
    pub last_data_recv: Duration,
    /// Time since an ACK last arrived.
    pub last_ack_recv: Duration,
    /// The state of loss recovery, by Linux's numbers: 0 open, 1 disorder, 2 CWR, 3 recovery, 4
    /// loss.
    pub ca_state: u8,
    /// Bits TCPI_OPT_*.
    pub options: u8,
    /// The reason why Fast Open failed for an active open, by Linux's numbers: 0 unknown, 1 no
    /// cookie, 2 data not acknowledged, 3 SYN retransmitted.
    pub fastopen_client_fail: u8,
    /// With Accurate ECN: packets that came with a CE mark.
    pub received_ce: u32,
    /// With Accurate ECN and its option: our bytes that arrived as ECT(1), modulo 2^32.
    pub delivered_e1_bytes: u32,
    /// As ECT(0).
    pub delivered_e0_bytes: u32,
    /// With a CE mark.
    pub delivered_ce_bytes: u32,
    /// With Accurate ECN: bytes that came as ECT(1), modulo 2^32.
    pub received_e1_bytes: u32,
    /// As ECT(0).
    pub received_e0_bytes: u32,
    /// With a CE mark.
    pub received_ce_bytes: u32,
    /// The parts of Accurate ECN that the path does not carry, a sum of: 1 our flags, 2 the peer's
    /// flags or our codepoints, 4 our option, 8 the peer's option.
    pub accecn_fail_mode: u8,
    /// The option of Accurate ECN that was seen: 0 none, 1 an empty one, 2 one with counters, 3
    /// none or an invalid one where one was expected.
    pub accecn_opt_seen: u8,
    /// The pacing rate in bytes per second; `u64::MAX` means no limit.
    pub pacing_rate: u64,
    /// The recent delivery rate in bytes per second; zero before it was measured. While the
    /// application limits it, the highest rate so far.
    pub delivery_rate: u64,
    /// `delivery_rate` was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// BBR's model of the path, if BBR is in use and has begun.
    pub bbr: Option<BbrModel>,
    /// SO_MAX_PACING_RATE in bytes per second; `u64::MAX` is no limit.
    pub max_pacing_rate: u64,
    /// SO_SNDBUF, as Linux counts.
    pub sndbuf: usize,
    /// Bytes of data that the receive buffer holds.
    pub rcvbuf: usize,
    /// The hold on the next send at the moment, if there is one.
    pub hold: Option<crate::output::hold::Hold>,
    /// The duration of that hold so far.
    pub held_for: Duration,
    /// How often each [`Hold`](crate::Hold) occurred, in the order of
    /// [`Hold::ALL`](crate::Hold::ALL).
    pub holds: [u64; crate::output::hold::Hold::ALL.len()],
    /// The total time of each hold, in the same order.
    pub hold_times: [Duration; crate::output::hold::Hold::ALL.len()],
    /// Data bytes that were passed down and have not completed. The stack sets it.
    pub below: u32,
    /// Whether the device reports when it has finished with a packet. If not, automatic corking and
    /// small queues are off. The stack sets it.
    pub completions: bool,
}

#[cfg(test)]
mod tests;
