//! What a sender did: what it sent, and what it showed after each ACK.

use serde::Serialize;

/// What `TCP_INFO` shows of the sender's decisions. Windows and counts are in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Info {
    pub(crate) cwnd: i64,
    pub(crate) ssthresh: i64,
    pub(crate) ca_state: i64,
    pub(crate) unacked: i64,
    pub(crate) sacked: i64,
    pub(crate) lost: i64,
    pub(crate) retrans: i64,
    pub(crate) reordering: i64,
    pub(crate) total_retrans: i64,
    /// Smoothed round trip and timeout, in microseconds. They depend on the clock, so nobody
    /// compares them.
    pub(crate) rtt: i64,
    pub(crate) rto: i64,
}

impl Info {
    /// From the fields of `struct tcp_info` by their names.
    pub(crate) fn from_fields(fields: &[(&str, i64)]) -> Info {
        let get =
            |name: &str| fields.iter().find(|(known, _)| *known == name).map_or(0, |&(_, v)| v);
        Info {
            cwnd: get("tcpi_snd_cwnd"),
            ssthresh: get("tcpi_snd_ssthresh"),
            ca_state: get("tcpi_ca_state"),
            unacked: get("tcpi_unacked"),
            sacked: get("tcpi_sacked"),
            lost: get("tcpi_lost"),
            retrans: get("tcpi_retrans"),
            reordering: get("tcpi_reordering"),
            total_retrans: get("tcpi_total_retrans"),
            rtt: get("tcpi_rtt"),
            rto: get("tcpi_rto"),
        }
    }

    /// What two senders that decide alike show alike, beside cwnd.
    pub(crate) fn marks(&self) -> [i64; 7] {
        let Info { ssthresh, ca_state, unacked, sacked, lost, retrans, reordering, .. } = *self;
        [ssthresh, ca_state, unacked, sacked, lost, retrans, reordering]
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The application wrote so many bytes.
    Wrote(u32),
    /// A segment left: its first byte, its length, and which transmission of that byte it is.
    Sent { seq: u32, len: u32, transmission: u32 },
    /// An ACK arrived, which this transmission of a segment has caused; what the sender shows after
    /// it.
    Acked { ack: u32, blocks: Vec<(u32, u32)>, transmission: u32, info: Info },
}

/// An event with its time, in microseconds since the run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) event: Event,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) entries: Vec<Entry>,
    /// All data was acknowledged before the time was over.
    pub(crate) complete: bool,
    /// How late the run's own clockwork was at most, in microseconds. Zero on a virtual clock.
    pub(crate) late: u64,
}

impl Trace {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.entries.push(Entry { at, event });
    }

    /// Segments that were sent again, in order.
    pub(crate) fn retransmissions(&self) -> usize {
        let again = |entry: &&Entry| match entry.event {
            Event::Sent { transmission, .. } => transmission > 1,
            _ => false,
        };
        self.entries.iter().filter(again).count()
    }

    /// ACKs that arrived.
    pub(crate) fn acks(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.event, Event::Acked { .. })).count()
    }
}

/// One line of a trace, for people.
pub(crate) fn line(entry: &Entry) -> String {
    let at = entry.at as f64 / 1e3;
    match &entry.event {
        Event::Wrote(bytes) => format!("{at:9.1} ms  write {bytes}"),
        Event::Sent { seq, len, transmission: 1 } => format!("{at:9.1} ms  send {seq}+{len}"),
        Event::Sent { seq, len, transmission } => {
            format!("{at:9.1} ms  send {seq}+{len} again, transmission {transmission}")
        }
        Event::Acked { ack, blocks, info, .. } => format!(
            "{at:9.1} ms  ack {ack} {blocks:?} cwnd {} ssthresh {} state {} out {} sacked {} \
             lost {} retrans {} reordering {} rtt {} rto {}",
            info.cwnd,
            info.ssthresh,
            info.ca_state,
            info.unacked,
            info.sacked,
            info.lost,
            info.retrans,
            info.reordering,
            info.rtt,
            info.rto,
        ),
    }
}
