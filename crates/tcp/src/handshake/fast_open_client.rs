//! Fast Open, the side that connects (RFC 7413, section 4.2), as Linux does it.
//!
//! The SYN asks for a cookie, or shows one and carries the first data. It does so once: a SYN that
//! is retransmitted is a plain one, since whatever dropped the first may have disliked it. Data
//! that the SYN-ACK does not acknowledge is retransmitted at once, without a word on congestion.
//!
//! What is known of the peer comes in as [`FastOpen`], from a cache that the caller keeps; what is
//! learnt goes out as [`FastOpenOutcome`].

mod opening;

use plimsoll_buf::Slices;
use plimsoll_wire::tcp::FastOpenOption;

use crate::time::Nanos;

/// Left free in a SYN with data for options that something on the way may add (as on
/// Linux).
const OPTION_SPACE: usize = 40;

/// Timeouts in a row that make a black hole likely (as on Linux).
const BLACKHOLE_TIMEOUTS: u8 = 2;

/// How soon the SYN is retransmitted after a SYN-ACK that acknowledges something else (as on
/// Linux).
const BAD_SYN_ACK_RTO: Nanos = Nanos::from_millis(2);

/// What an open with Fast Open starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// The option of the SYN: an empty cookie asks for one. `None` leaves the option out.
    pub option: Option<FastOpenOption>,
    /// The SYN may carry data: there is a cookie, or none is needed.
    pub data: bool,
    /// The MSS that the peer announced last.
    pub mss: Option<u16>,
    /// Fast Open was off for a while, because something seemed to swallow it, and this is the first
    /// attempt since.
    pub probing: bool,
}

/// What an open with Fast Open taught, for the caller's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenOutcome {
    /// A SYN-ACK came.
    SynAck {
        /// The MSS that the peer announced.
        mss: u16,
        /// The cookie that it gave, if any, with the form of the option.
        cookie: Option<FastOpenOption>,
        /// Only plain SYNs seem to have arrived.
        syn_lost: bool,
        /// A cookie was asked for and not given: 1 in the form of RFC 7413, 2 in the older
        /// experimental one. 0 otherwise.
        refused: u8,
    },
    /// Something on the way swallows connections that begin with Fast Open.
    Blackhole,
    /// Data flows on the connection that was to probe whether that is over.
    Works,
}

/// The state of an open with Fast Open.
#[derive(Debug, Default)]
pub(crate) struct FastOpenClient {
    /// The SYN waits for the first write.
    deferred: bool,
    params: FastOpen,
    /// What the SYN carries, until it leaves.
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
    /// What the other side needs: the cookie that its SYN-ACK gives out.
    pub(crate) fn answering(option: FastOpenOption) -> FastOpenClient {
        let params = FastOpen { option: Some(option), ..FastOpen::default() };
        FastOpenClient { params, ..FastOpenClient::default() }
    }

    /// The `timeouts`-th retransmission timeout in a row, counted from zero; `expired` if it is the
    /// last one. Middleboxes may swallow a connection that began with Fast Open.
    pub(crate) fn on_timeout(&mut self, timeouts: u8, expired: bool) {
        let likely = timeouts == BLACKHOLE_TIMEOUTS || (timeouts < BLACKHOLE_TIMEOUTS && expired);
        if likely && (self.offered || self.sent > 0) {
            self.outcome = Some(FastOpenOutcome::Blackhole);
        }
    }

    /// The connection has come to its end. `arrived` if data has, `lone_fin` if a FIN has whose
    /// data is missing: without any data that looks like a middlebox that swallowed it. Data that
    /// came says more than a last timeout (script `fast_open/timeout_after_data`).
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
    /// Asks for a cookie, in the older experimental form if `experimental`.
    pub fn request(experimental: bool) -> FastOpen {
        let option = FastOpenOption { experimental, ..FastOpenOption::default() };
        FastOpen { option: Some(option), ..FastOpen::default() }
    }
}

#[cfg(test)]
mod tests;
