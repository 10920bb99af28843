//! Loss recovery: which data is lost, when it is retransmitted, and the effect on the window.
//!
//! The specification is docs/recovery.md, whose terms and numbers of sections and rows are used
//! here. This module was written from it, from the RFCs that it names and from the scripts below
//! tests/drill.
//!
//! # Theory of operation
//!
//! [`Flight`] owns the scoreboard, the congestion controller and the variables of RFC 5681, 5682,
//! 6298, 6582, 6675, 8985 and 9937, and nothing else changes them. It reads the connection through
//! a [`ConnView`]. Its results are the work that
//! other parts must do. It sends nothing: output calls [`Flight::next_retransmission`] and
//! reports the packets that left.
//!
//! An ACK takes the steps of section 3 ([`ack`]). One of them walks the tables of section 4
//! ([`table`]), which are in the code as on the page: rows, each with a guard and an effect. The
//! effects are in [`actions`], loss detection in [`detect`].
//!
//! | section of docs/recovery.md | file |
//! |---|---|
//! | 1. Variables | `mod.rs`, and the file of each subject |
//! | 2. Scoreboard | `scoreboard/` |
//! | 2. DSACK; delivered and original | `ack.rs` |
//! | 2. Reordering that is learnt | `reordering.rs`, `ack.rs` |
//! | 3. One ACK: what comes before, and step 1 | `checks.rs`, for input to ask |
//! | 3. One ACK: steps 2 to 11 | `ack.rs` |
//! | 4. States: the tables | `table.rs` |
//! | 4. Entering a state | `actions.rs` |
//! | 4. Without SACK | `detect.rs` |
//! | 4. Events that are not ACKs | `timer.rs`; path MTU and Fast Open: `actions.rs` |
//! | 4. Probes of the path MTU | `mtu_probe.rs` |
//! | 5. The window | `prr.rs`, `window.rs`, `../../congestion/` |
//! | 6. Undo | `undo.rs`, `actions.rs` |
//! | 7. RACK | `rack.rs`, `detect.rs` |
//! | 8. Tail loss probe | `loss_probe.rs`, `timer.rs`, `resend.rs` |
//! | 9. Round-trip time | `rtt.rs`, `rto_bounds.rs`, `min_rtt.rs`; which samples: `ack.rs` |
//! | 10. The timer | `timer.rs` |
//! | 10. What leaves | `resend.rs`, `departure.rs` |
//! | 11. Giving up | `give_up.rs`, `timer.rs` |
//! | 13. Counters | where the event is |
//! | 14. `TCP_INFO` | the getters below |
//!
//! # Who calls what
//!
//! - A segment came: input calls [`AckNumber::of`] and [`WindowView::brings_window`], takes the
//!   window, and calls [`Flight::on_ack`] while SND.UNA has not moved yet.
//! - The timer fired: [`Flight::on_timer`].
//! - Output sends lost data: [`Flight::next_retransmission`], then
//!   [`Flight::on_retransmitted`], until there is no more.
//! - Output sends new data: [`Flight::restart_after_idle`] and [`Flight::new_data_quota`], then
//!   [`Flight::on_new_data`] with SND.NXT after it.
//! - The queue below was full: [`Flight::on_refused`].
//! - No more new data leaves: [`Flight::end_new_first`] returns whether lost data leaves in its
//!   place.
//! - Output has ended: [`Flight::on_output_end`].
//! - The MSS went down: [`Flight::on_mss_lowered`].
//! - The handshake ended: [`Flight::on_established`], or with early data
//!   [`Flight::on_early_handshake_done`] before the ACK is taken.
//! - A SYN-ACK did not acknowledge data of our SYN: [`Flight::on_syn_data_refused`].
//! - A SYN-ACK before early data was lost twice: [`Flight::on_third_syn_ack`].
//!
//! After each of them the retransmission timer is set to [`Flight::deadline`].
//!
//! All windows count wire segments. There is no queue here and no heap allocation.

mod ack;
mod actions;
mod checks;
mod departure;
mod detect;
mod give_up;
mod loss_probe;
mod min_rtt;
mod mtu_probe;
mod prr;
mod rack;
mod reordering;
mod resend;
mod rto_bounds;
mod rtt;
mod run;
pub(crate) mod scoreboard;
mod syn;
mod table;
mod timer;
mod undo;
mod view;
mod window;

pub(crate) use checks::{AckNumber, WindowView, is_overtaken};
pub(crate) use give_up::time_of_timeouts;
pub(crate) use loss_probe::Probe;
pub(crate) use rto_bounds::OwnRtoBounds;
pub(crate) use rtt::RttEstimator;
pub(crate) use timer::Waits;
pub(crate) use view::{
    AckEffects, AckView, ConnView, Cwr, Departure, Marks, NextRetransmission, PeerView,
};

use plimsoll_wire::SeqNum;

use crate::algorithm::CongestionAlgorithm;
use crate::config::{Config, Options};
use crate::congestion::bbr::state::BbrModel;
use crate::congestion::{Controller, Event};
use crate::serial::Serial;
use crate::time::{Instant, Nanos};
use loss_probe::LossProbe;
use prr::Prr;
use rack::Rack;
use reordering::Reordering;
use scoreboard::Scoreboard;
use timer::RetransmitTimer;
use undo::Undo;

/// The state of section 4. Its number is `tcpi_ca_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryState {
    /// Slow start or congestion avoidance.
    Open = 0,
    /// Duplicates or SACK, and no loss is known (RFC 3042).
    Disorder = 1,
    /// The window is reduced without a loss (RFC 3168).
    Cwr = 2,
    /// Fast recovery (RFC 6582, RFC 6675).
    Recovery = 3,
    /// After a timeout (RFC 5681, section 3.1).
    Loss = 4,
}

/// The data that may be sent until the next ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// Lost data.
    Lost,
    /// New data, and lost data only if there is none (RFC 5682).
    NewFirst,
    /// Nothing.
    None,
}

/// The sent data of one connection: its state, the recovery of losses, and the window.
#[derive(Debug)]
pub(crate) struct Flight {
    /// All sent data, and its state.
    board: Scoreboard,
    /// cwnd, ssthresh and the algorithm.
    cc: Controller,
    state: RecoveryState,
    permission: Permission,
    /// F-RTO runs (RFC 5682).
    frto: bool,
    /// Timeouts since SND.UNA last moved.
    retries: u8,
    /// New data has left since output last ended.
    burst: bool,
    /// Data to retransmit is still below.
    waits_below: bool,
    /// The RTO has fired, and nothing was retransmitted since.
    timed_out: bool,
    /// The packet below because of which a retransmission was last omitted.
    left_out: Serial,
    /// RecoveryPoint: SND.NXT when the state began.
    recovery_point: SeqNum,
    /// The start of the present series of retransmissions: the clock of giving up.
    trying_since: Option<Instant>,
    /// When data last left.
    last_departure: Instant,
    /// When the window last started again after idle time.
    restarted_at: Instant,
    timer: RetransmitTimer,
    rtt: RttEstimator,
    rack: Rack,
    probe: LossProbe,
    prr: Prr,
    undo: Undo,
    reordering: Reordering,
    figures: Figures,
    /// Rows of the tables that applied since this was last cleared.
    #[cfg(test)]
    rows: std::vec::Vec<&'static str>,
}

/// The totals of `TCP_INFO` over the life of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Segments delivered, modulo 2^32.
    delivered: u32,
    /// Of those, marked.
    delivered_ce: u32,
    /// Segments that sane DSACKs stood for.
    dsack_dups: u32,
    /// Segments ever retransmitted.
    total_retrans: u32,
    /// Bytes ever retransmitted.
    bytes_retrans: u64,
}

impl Flight {
    /// That of a connection that opens.
    pub(crate) fn new(config: &Config, options: &Options) -> Flight {
        let algorithm = options.congestion.unwrap_or(config.tcp_congestion_control);
        let cc = Controller::new(algorithm, options.initial_cwnd(config), config);
        let mut flight = Flight {
            board: Scoreboard::new(),
            cc,
            state: RecoveryState::Open,
            permission: Permission::Lost,
            frto: false,
            retries: 0,
            burst: false,
            waits_below: false,
            timed_out: false,
            left_out: Serial(0),
            recovery_point: SeqNum(0),
            trying_since: None,
            last_departure: Instant::ZERO,
            restarted_at: Instant::ZERO,
            timer: RetransmitTimer::default(),
            rtt: RttEstimator::new(),
            rack: Rack::new(),
            probe: LossProbe::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            reordering: Reordering::new(config),
            figures: Figures::default(),
            #[cfg(test)]
            rows: std::vec::Vec::new(),
        };
        flight.board.note_losses(flight.cc.wants_losses());
        flight.set_rto_bounds(options);
        flight
    }

    /// The state of all sent data.
    pub(crate) fn board(&self) -> &Scoreboard {
        &self.board
    }

    /// Congestion control.
    pub(crate) fn cc(&self) -> &Controller {
        &self.cc
    }

    /// When the timer of retransmission fires, if it runs. It is to be armed so after each call.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timer.deadline()
    }

    /// The event that the timer waits for, if it runs.
    pub(crate) fn waits_for(&self) -> Option<Waits> {
        self.timer.waits_for()
    }

    /// The state of section 4 (`tcpi_ca_state`).
    pub(crate) fn state(&self) -> RecoveryState {
        self.state
    }

    /// SRTT, the deviation and the least round trip.
    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The smoothed round trip; zero before the first sample.
    pub(crate) fn srtt(&self) -> Nanos {
        self.rtt.srtt().unwrap_or_default()
    }

    /// The timeout, with backoff (`tcpi_rto`).
    pub(crate) fn rto(&self, config: &Config) -> Nanos {
        self.rtt.rto(config)
    }

    /// The options that bound the timeout were set. A timer that runs keeps its time.
    pub(crate) fn set_rto_bounds(&mut self, options: &Options) {
        self.rtt.set_own_bounds(OwnRtoBounds::of(options));
    }

    /// Full segments have `smss` bytes from now on.
    pub(crate) fn set_smss(&mut self, smss: u16) {
        self.cc.on_event(Event::Mss(smss));
    }

    /// Another algorithm decides from now on.
    pub(crate) fn set_algorithm(&mut self, algorithm: CongestionAlgorithm, smss: u16) {
        self.cc.switch(algorithm, smss, self.srtt());
        self.board.note_losses(self.cc.wants_losses());
    }

    /// The states that the congestion controller went to since the last call.
    pub(crate) fn take_model_changes(&mut self) -> impl Iterator<Item = BbrModel> + use<> {
        self.cc.take_changes()
    }

    /// Whether [`release`](Self::release) would free any memory at rest.
    pub(crate) fn is_releasable(&self) -> bool {
        self.board.is_leased() || self.cc.is_releasable()
    }

    /// Gives back all that only data needs that is outstanding.
    pub(crate) fn release(&mut self) {
        self.board.release_all();
        self.cc.release();
    }

    /// The connection is CLOSED: nothing is outstanding any more.
    pub(crate) fn clear(&mut self) {
        self.board = Scoreboard::new();
    }

    /// The peer's window holds data back.
    pub(crate) fn on_rwnd_limited(&mut self) {
        self.cc.on_rwnd_limited(self.figures.delivered, self.board.pipe());
    }

    /// The latest range carries PSH.
    pub(crate) fn mark_pushed(&mut self) {
        self.board.mark_pushed();
    }

    /// The latest range ends a record.
    pub(crate) fn mark_record(&mut self) {
        self.board.mark_record();
    }

    /// The application limits the data in flight (draft-ietf-ccwg-bbr, section 4.1.2.4).
    pub(crate) fn mark_app_limited(&mut self) {
        self.board.mark_app_limited(self.figures.delivered);
    }

    /// A probe of a closed window left: the backoff is shared.
    pub(crate) fn back_off(&mut self) {
        self.rtt.back_off();
    }

    /// Probes of a closed window are over: the backoff was theirs.
    pub(crate) fn end_backoff(&mut self) {
        self.rtt.end_backoff();
    }

    /// Timeouts since SND.UNA last moved (`tcpi_retransmits`).
    pub(crate) fn retries(&self) -> u8 {
        self.retries
    }

    /// DupThresh (`tcpi_reordering`).
    pub(crate) fn dup_thresh(&self) -> u32 {
        self.reordering.dup_thresh()
    }

    /// How often something arrived late (`tcpi_reord_seen`).
    pub(crate) fn reordering_seen(&self) -> u32 {
        self.reordering.seen()
    }

    /// Segments delivered, modulo 2^32 (`tcpi_delivered`).
    pub(crate) fn delivered(&self) -> u32 {
        self.figures.delivered
    }

    /// Marked segments, as far as ACKs reported them (`tcpi_delivered_ce`).
    pub(crate) fn delivered_ce(&self) -> u32 {
        self.figures.delivered_ce
    }

    /// Segments that DSACKs named (`tcpi_dsack_dups`).
    pub(crate) fn dsack_dups(&self) -> u32 {
        self.figures.dsack_dups
    }

    /// Segments ever retransmitted, probes and SYNs included (`tcpi_total_retrans`).
    pub(crate) fn total_retrans(&self) -> u32 {
        self.figures.total_retrans
    }

    /// Bytes ever retransmitted, probes included (`tcpi_bytes_retrans`).
    pub(crate) fn bytes_retrans(&self) -> u64 {
        self.figures.bytes_retrans
    }

    /// When data last left before anything was retransmitted, since SND.UNA last moved.
    pub(crate) fn last_new_departure(&self) -> Instant {
        self.trying_since.unwrap_or(self.last_departure)
    }

    /// When data last left, for the first time or again.
    pub(crate) fn last_departure(&self) -> Instant {
        self.last_departure
    }

    /// The loss probe that leaves next, if one does. New data that is a probe leaves past Nagle's
    /// rule and corks.
    pub(crate) fn due_probe(&self) -> Option<Probe> {
        self.probe.due()
    }

    /// Whether new data leaves past Nagle's rule and corks, to see whether a timeout was needed
    /// (RFC 5682).
    pub(crate) fn sends_new_first(&self) -> bool {
        self.permission == Permission::NewFirst
    }

    /// Whether a completion may let something leave again.
    pub(crate) fn waits_below(&self) -> bool {
        self.waits_below
    }

    /// Makes the controller record its inputs.
    #[cfg(test)]
    pub(crate) fn record_congestion(&mut self) {
        self.cc.record();
        self.board.note_losses(true);
    }

    /// The inputs recorded since the last call.
    #[cfg(test)]
    pub(crate) fn recorded_congestion(
        &mut self,
    ) -> std::vec::Vec<crate::congestion::recorder::Input> {
        self.cc.recorded()
    }

    /// The ranges that were marked lost and not reported.
    #[cfg(test)]
    pub(crate) fn take_recorded_losses(&mut self) -> std::vec::Vec<scoreboard::LostRange> {
        self.board.take_losses()
    }

    /// As if there had never been a sample.
    #[cfg(test)]
    pub(crate) fn forget_round_trips(&mut self) {
        self.rtt = RttEstimator::new();
    }

    /// Checks the invariants between two calls.
    pub(crate) fn check_invariants(&self) {
        self.board.check_invariants();
        self.cc.check_invariants();
        assert!(
            !self.board.is_empty() || self.deadline().is_none(),
            "a timer runs, and nothing is outstanding"
        );
        assert!(self.dup_thresh() >= 1, "DupThresh is one segment at least");
        self.rack.check_invariants();
        self.rtt.check_invariants();
    }

    /// Whether the window is being reduced.
    fn is_reducing(&self) -> bool {
        matches!(self.state, RecoveryState::Cwr | RecoveryState::Recovery)
    }

    /// Notes a row that applies.
    #[inline]
    fn note_row(&mut self, _name: &'static str) {
        #[cfg(test)]
        self.rows.push(_name);
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_loss;
