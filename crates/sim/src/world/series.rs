//! Figures of a run over the time.
//!
//! Between two steps of a run nothing changes, so a sample can be taken for any time in between
//! without a step of its own: the run is the same with and without. The first samples are a
//! millisecond apart. When there are more than are wanted, every second one is left out and the
//! distance doubles.

use plimsoll_tcp::{Duration, Info, Instant};
use serde::{Deserialize, Serialize};

use super::START;
use super::net::Net;
use crate::scenario::{Flow, Scenario, Way};

/// The distance of samples at the beginning.
const FIRST_DISTANCE: Duration = Duration::from_millis(1);

/// Figures at times that are equally far apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Series {
    /// The distance, in microseconds. The first sample is of the beginning.
    pub every_us: u64,
    /// Of each flow, in the order of the scenario.
    pub flows: Vec<FlowSeries>,
    /// Of each direction of each link.
    pub queues: Vec<QueueSeries>,
}

/// Figures of the end of a flow that has more to send. While it has no connection they are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FlowSeries {
    /// Congestion window, in segments.
    pub cwnd: Vec<u64>,
    /// Pacing rate, in bits per second; 0 if nothing paces.
    pub pacing_rate: Vec<u64>,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: Vec<u64>,
    /// Segments in flight.
    pub in_flight: Vec<u64>,
}

/// What waits at a direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QueueSeries {
    /// The link, from 0.
    pub link: usize,
    /// Forward or backward.
    pub way: Way,
    /// Bytes.
    pub bytes: Vec<u64>,
}

/// Takes samples.
pub(super) struct Sampler {
    points: usize,
    every: Duration,
    taken: usize,
    /// The application of each flow that is looked at.
    senders: Vec<usize>,
    series: Series,
}

impl Sampler {
    /// One that keeps up to `points` samples.
    pub(super) fn new(points: usize, scenario: &Scenario, net: &Net) -> Sampler {
        let sender = |(number, flow): (usize, &Flow)| number * 2 + usize::from(flow.down > flow.up);
        let queue = |(link, way)| QueueSeries { link, way, bytes: Vec::new() };
        Sampler {
            points: points.max(2),
            every: FIRST_DISTANCE,
            taken: 0,
            senders: scenario.flow.iter().enumerate().map(sender).collect(),
            series: Series {
                every_us: 0,
                flows: vec![FlowSeries::default(); scenario.flow.len()],
                queues: net.names().map(queue).collect(),
            },
        }
    }

    /// The time of the next sample, if it is before `next`.
    pub(super) fn due_before(&self, next: Instant) -> Option<Instant> {
        let at = START + self.every * u32::try_from(self.taken).unwrap_or(u32::MAX);
        (at < next).then_some(at)
    }

    /// Takes a sample. `info` tells the figures of an application's connection.
    pub(super) fn take(&mut self, info: impl Fn(usize) -> Option<Info>, net: &Net) {
        for (flow, &sender) in self.series.flows.iter_mut().zip(&self.senders) {
            flow.push(&info(sender).unwrap_or_default());
        }
        for (queue, bytes) in self.series.queues.iter_mut().zip(net.waiting()) {
            queue.bytes.push(bytes);
        }
        self.taken += 1;
        if self.taken == self.points {
            self.thin();
        }
    }

    /// Leaves out every second sample.
    fn thin(&mut self) {
        let flows = self.series.flows.iter_mut().flat_map(FlowSeries::columns);
        for column in flows.chain(self.series.queues.iter_mut().map(|queue| &mut queue.bytes)) {
            let mut number = 0;
            column.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.taken = self.taken.div_ceil(2);
        self.every *= 2;
    }

    pub(super) fn into_series(mut self) -> Series {
        self.series.every_us = self.every.as_micros() as u64;
        self.series
    }
}

impl FlowSeries {
    fn push(&mut self, info: &Info) {
        let gone = info.sacked + info.lost;
        let paced = Some(info.pacing_rate).filter(|&rate| rate != u64::MAX).unwrap_or(0);
        self.cwnd.push(info.snd_cwnd.into());
        self.pacing_rate.push(paced.saturating_mul(8));
        self.rtt_us.push(info.rtt.as_micros() as u64);
        self.in_flight.push((info.unacked + info.retrans).saturating_sub(gone).into());
    }

    fn columns(&mut self) -> [&mut Vec<u64>; 4] {
        [&mut self.cwnd, &mut self.pacing_rate, &mut self.rtt_us, &mut self.in_flight]
    }
}
