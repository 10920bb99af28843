//! Fast Open, the connecting side (RFC 7413, section 4.2), as on Linux.
//!
//! The SYN requests a cookie, or presents one and carries the first data. It does so once: a
//! retransmitted SYN is a plain one, since a middlebox may have dropped the first because of the
//! option. Data that the SYN-ACK does not acknowledge is retransmitted at once, without a
//! congestion response.
//!
//! The peer's metrics come in as [`FastOpen`], from a cache that the caller keeps; the results go
//! out as [`FastOpenOutcome`].

mod opening;

use plimsoll_buf::Slices;
use plimsoll_wire::tcp::FastOpenOption;

use crate::time::Nanos;

/// Left free in a SYN with data for options that something on the way may add (as on
/// Linux).
const OPTION_SPACE: usize = 40;

/// Timeouts in a row that make a black hole likely (as on Linux).
const BLACKHOLE_TIMEOUTS: u8 = 2;

/// The delay of the SYN's retransmission after a SYN-ACK that acknowledges another number (as on
/// Linux).
const BAD_SYN_ACK_RTO: Nanos = Nanos::from_millis(2);

/// The parameters of an open with Fast Open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// The option of the SYN: an empty cookie requests one. `None` omits the option.
    pub option: Option<FastOpenOption>,
    /// The SYN may carry data: there is a cookie, or none is needed.
    pub data: bool,
    /// The MSS that the peer announced last.
    pub mss: Option<u16>,
    /// Fast Open was disabled for a while, because a middlebox seemed to drop it, and this is the
    /// first attempt since.
    pub probing: bool,
}

/// The outcome of an open with Fast Open, for the caller's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenOutcome {
    /// A SYN-ACK came.
    SynAck {
        /// The MSS that the peer announced.
        mss: u16,
        /// The cookie that it sent, if any, with the form of the option.
        cookie: Option<FastOpenOption>,
        /// Only plain SYNs seem to have arrived.
        syn_lost: bool,
        /// A requested cookie did not come: 1 for the form of RFC 7413, 2 for the older
        /// experimental one. 0 otherwise.
        refused: u8,
    },
    /// A middlebox drops connections that begin with Fast Open.
    Blackhole,
    /// Data flows on the connection that probed whether that is over.
    Works,
}

/// The state of an open with Fast Open.
#[derive(Debug, Default)]
pub(crate) struct FastOpenClient {
    /// The SYN waits for the first write.
    deferred: bool,
    params: FastOpen,
    /// The data of the SYN, until it leaves.
    payload: Slices,
    /// Bytes of data that left with the SYN.
    sent: u16,
    /// The option left with the SYN.
    offered: bool,
    outcome: Option<FastOpenOutcome>,
    /// TCPI's `tcpi_fastopen_client_fail`.
    failure: u8,
}

impl FastOpenClient {
    /// The listening side: the cookie that its SYN-ACK carries.
    pub(crate) fn answering(option: FastOpenOption) -> FastOpenClient {
        let params = FastOpen { option: Some(option), ..FastOpen::default() };
        FastOpenClient { params, ..FastOpenClient::default() }
    }

    /// The `timeouts`-th retransmission timeout in a row, counted from zero; `expired` if it is the
    /// last one. Middleboxes may drop a connection that began with Fast Open.
    pub(crate) fn on_timeout(&mut self, timeouts: u8, expired: bool) {
        let likely = timeouts == BLACKHOLE_TIMEOUTS || (timeouts < BLACKHOLE_TIMEOUTS && expired);
        if likely && (self.offered || self.sent > 0) {
            self.outcome = Some(FastOpenOutcome::Blackhole);
        }
    }

    /// The connection has ended. `arrived` if data has arrived, `lone_fin` if a FIN has whose data
    /// is missing: without any data, a middlebox seems to have dropped it. Arrived data outweighs a
    /// final timeout (script `fast_open/timeout_after_data`).
    pub(crate) fn on_end(&mut self, arrived: bool, lone_fin: bool) {
        if !self.offered {
            return;
        }
        if lone_fin && !arrived {
            self.outcome = Some(FastOpenOutcome::Blackhole);
        } else if arrived && self.params.probing {
            self.outcome = Some(FastOpenOutcome::Works);
        }
    }

    /// `tcpi_fastopen_client_fail`.
    pub(crate) fn failure(&self) -> u8 {
        self.failure
    }

    /// The option of the SYN or SYN-ACK.
    pub(crate) fn offer(&self) -> Option<FastOpenOption> {
        self.params.option
    }
}

impl FastOpen {
    /// Requests a cookie, in the older experimental form if `experimental`.
    pub fn request(experimental: bool) -> FastOpen {
        let option = FastOpenOption { experimental, ..FastOpenOption::default() };
        FastOpen { option: Some(option), ..FastOpen::default() }
    }
}

#[cfg(test)]
mod tests;
