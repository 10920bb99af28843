//! `struct tcp_info`, as Linux 6.18 lays it out.

use plimsoll_tcp::{BbrModel, Duration, Info, State};

/// Bytes of the structure.
pub(crate) const LEN: usize = 280;
/// A slow-start threshold that was never set.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The structure as it is filled, front to back.
struct Fill(Vec<u8>);

impl Fill {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u32s(&mut self, values: &[u32]) {
        for value in values {
            self.bytes(&value.to_ne_bytes());
        }
    }

    fn u16s(&mut self, values: &[u16]) {
        for value in values {
            self.bytes(&value.to_ne_bytes());
        }
    }

    fn u64s(&mut self, values: &[u64]) {
        for value in values {
            self.bytes(&value.to_ne_bytes());
        }
    }

    fn times(&mut self, values: &[Duration]) {
        for value in values {
            self.u64s(&[u64::try_from(value.as_micros()).unwrap_or(u64::MAX)]);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(LEN, 0);
        self.0
    }
}

/// The number that Linux has for a state.
fn number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

const LISTEN: u8 = 10;

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn byte(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// The structure of a connection, which its socket sees in `state`.
pub(crate) fn bytes(info: &Info, state: State) -> Vec<u8> {
    let mut fill = Fill(Vec::with_capacity(LEN));
    fill.bytes(&[
        number(state),
        info.ca_state,
        byte(info.retransmits),
        byte(info.probes),
        byte(info.backoff),
        info.options,
        (info.snd_wscale & 15) | (info.rcv_wscale << 4),
        u8::from(info.delivery_rate_app_limited) | (info.fastopen_client_fail & 3) << 1,
    ]);
    fill.u32s(&[micros(info.rto), micros(info.ato), info.snd_mss, info.rcv_mss]);
    fill.u32s(&[info.unacked, info.sacked, info.lost, info.retrans, 0]);
    fill.u32s(&[millis(info.last_data_sent), 0]);
    fill.u32s(&[millis(info.last_data_recv), millis(info.last_ack_recv)]);
    fill.u32s(&[info.pmtu, info.rcv_ssthresh, micros(info.rtt), micros(info.rttvar)]);
    fill.u32s(&[info.snd_ssthresh, info.snd_cwnd, info.advmss, info.reordering]);
    fill.u32s(&[micros(info.rcv_rtt), info.rcv_space, info.total_retrans]);
    fill.u64s(&[info.pacing_rate, info.max_pacing_rate, info.bytes_acked, info.bytes_received]);
    fill.u32s(&[low(info.segs_out), low(info.segs_in), info.notsent_bytes]);
    fill.u32s(&[info.min_rtt.map_or(u32::MAX, micros)]);
    fill.u32s(&[low(info.data_segs_in), low(info.data_segs_out)]);
    fill.u64s(&[info.delivery_rate]);
    fill.times(&[info.busy_time, info.rwnd_limited, info.sndbuf_limited]);
    fill.u32s(&[info.delivered, info.delivered_ce]);
    fill.u64s(&[info.bytes_sent, info.bytes_retrans]);
    fill.u32s(&[info.dsack_dups, info.reord_seen, info.rcv_ooopack]);
    // From tcpi_rehash to tcpi_total_rto_time nothing is counted.
    fill.u32s(&[info.snd_wnd, info.rcv_wnd, 0, 0, 0]);
    fill.u32s(&[info.received_ce, info.delivered_e1_bytes, info.delivered_e0_bytes]);
    fill.u32s(&[info.delivered_ce_bytes, info.received_e1_bytes, info.received_e0_bytes]);
    fill.u32s(&[info.received_ce_bytes]);
    fill.u16s(&[info.accecn_fail_mode.into(), info.accecn_opt_seen.into()]);
    fill.finish()
}

/// A counter of which the structure has 32 bits.
fn low(count: u64) -> u32 {
    (count & u64::from(u32::MAX)) as u32
}

/// The structure of a listener.
pub(crate) fn listener(queued: u32, backlog: u32) -> Vec<u8> {
    let mut fill = Fill(vec![LISTEN]);
    fill.bytes(&[0; 23]);
    fill.u32s(&[queued, backlog]);
    fill.finish()
}

/// The structure of a socket that was never connected.
pub(crate) fn closed() -> Vec<u8> {
    let mut fill = Fill(vec![number(State::Closed)]);
    fill.bytes(&[0; 7]);
    fill.u32s(&[1_000_000, 0, 536, 0]);
    fill.u32s(&[0; 12]);
    // From tcpi_rttvar to tcpi_total_retrans.
    fill.u32s(&[250_000, INFINITE_SSTHRESH, 10, 0, 3, 0, 0, 0]);
    fill.u64s(&[u64::MAX, u64::MAX, 0, 0]);
    // From tcpi_segs_out to tcpi_min_rtt.
    fill.u32s(&[0, 0, 0, u32::MAX]);
    fill.finish()
}

/// `struct tcp_bbr_info` of TCP_CC_INFO: the bandwidth in two words, the least round trip in
/// microseconds, and both gains in units of 1/256.
pub(crate) fn bbr(model: &BbrModel) -> Vec<u8> {
    let gain = |percent: u64| (percent * 256 / 100) as u32;
    let min_rtt = model.min_rtt_us.map_or(u32::MAX, |micros| micros.get());
    let mut fill = Fill(Vec::new());
    fill.u32s(&[low(model.bw), low(model.bw >> 32), min_rtt]);
    fill.u32s(&[gain(model.state.pacing_gain()), gain(model.state.cwnd_gain())]);
    fill.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_closed_socket_is_linux_s() {
        let bytes = closed();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), LEN);
        // tcpi_rto, tcpi_rttvar, tcpi_snd_ssthresh, tcpi_reordering, tcpi_min_rtt.
        let found = [8, 72, 76, 88, 148].map(word);
        assert_eq!(found, [1_000_000, 250_000, INFINITE_SSTHRESH, 3, u32::MAX]);
        assert_eq!(listener(2, 5)[..32], {
            let mut head = [0; 32];
            (head[0], head[24], head[28]) = (LISTEN, 2, 5);
            head
        });
    }
}
