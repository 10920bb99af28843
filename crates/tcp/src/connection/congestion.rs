//! What the congestion controller is told, and with which figures.

use super::{Connection, Context};
use crate::congestion::{AckSample, Event, Lost, Sent};
use crate::counters::Counter;
use crate::recovery::Phase;
use crate::send::scoreboard::AckTotals;
use crate::time::{Duration, Instant};

/// What an ACK brought, as far as the controller is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// Wire segments that it delivered.
    pub(crate) delivered: u32,
    /// Wire segments that were marked lost by it.
    pub(crate) lost: u32,
    /// Its sample of the round trip of what was sent last, if it gave one.
    pub(crate) rtt: Option<Duration>,
    /// It may open the window: nothing is being reduced.
    pub(crate) grows: bool,
}

impl Connection {
    /// `segs` segments have left that depart at `departs`; `prior` is what was in flight before,
    /// and when data had left last.
    pub(crate) fn tell_sent(
        &mut self,
        cx: &Context,
        departs: Instant,
        segs: u32,
        prior: (u32, Instant),
        again: bool,
    ) {
        self.cc.on_sent(&Sent {
            now: cx.now,
            departs,
            last_sent: prior.1,
            segs,
            prior_in_flight: prior.0,
            in_flight: self.pipe(),
            app_limited: self.snd.scoreboard.is_app_limited(),
            again,
        });
    }

    /// The phase of recovery was `before` and is `phase` now.
    pub(crate) fn tell_phase(&mut self, cx: &Context, before: Phase, phase: Phase) {
        let event = match (before, phase) {
            (_, Phase::Loss) => Event::Rto { now: cx.now, nxt: self.snd.nxt },
            (Phase::Recovery, Phase::Recovery) => return,
            (_, Phase::Recovery) => Event::Recovery,
            (Phase::Recovery | Phase::Loss, _) => Event::Recovered,
            _ => return,
        };
        self.cc.on_event(event);
    }

    /// Tells which ranges were marked lost, if the controller asks.
    pub(crate) fn tell_losses(&mut self, cx: &Context) {
        if self.cc.wants_losses() {
            for range in self.snd.scoreboard.take_losses() {
                self.cc.on_lost(&Lost { now: cx.now, range });
            }
        }
    }

    /// An ACK has moved SND.UNA or the marks, and loss detection has seen it.
    pub(crate) fn tell_acked(&mut self, cx: &Context, acked: &Acked) {
        self.tell_losses(cx);
        let rate = self.snd.scoreboard.sample_rate(&AckTotals {
            now: cx.now,
            delivered: self.stats.delivered,
            newly_delivered: acked.delivered,
            min_rtt: self.recovery.rtt.min(),
        });
        let signs = self.cc.on_ack(&AckSample {
            now: cx.now,
            rtt: acked.rtt.filter(|rtt| *rtt > Duration::ZERO),
            srtt: self.srtt(),
            una: self.snd.una,
            nxt: self.snd.nxt,
            mss: self.snd.mss,
            paced: self.is_paced(cx),
            delivered: acked.delivered,
            lost: acked.lost,
            in_flight: self.pipe(),
            grows: acked.grows,
            rate,
        });
        // What ends slow start sets ssthresh to the window of that moment.
        let cwnd = u64::from(self.cc.ssthresh());
        if signs.train {
            cx.counters.bump(Counter::TcpHystartTrainDetect);
            cx.counters.add(Counter::TcpHystartTrainCwnd, cwnd);
        }
        if signs.delay {
            cx.counters.bump(Counter::TcpHystartDelayDetect);
            cx.counters.add(Counter::TcpHystartDelayCwnd, cwnd);
        }
    }

    /// Notes whether the application limits what is in flight (draft-ietf-ccwg-bbr, section
    /// 4.1.2.4). Asked before a write, an ACK or a timer changes anything: less than a segment
    /// waits, nothing is on its way through this machine, and cwnd would let more leave.
    pub(crate) fn note_app_limited(&mut self, cx: &Context) {
        let short = self.unsent_len() < usize::from(self.snd.mss);
        if short && cx.below.bytes == 0 && self.pipe() < self.cc.cwnd() {
            self.snd.scoreboard.mark_app_limited(self.stats.delivered);
        }
    }
}

#[cfg(test)]
mod tests;
