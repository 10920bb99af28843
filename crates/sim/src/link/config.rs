//! The properties of a link.

use plimsoll_tcp::Duration;
use serde::{Deserialize, Serialize};

use super::trace::Trace;
use crate::units;

/// The shortest MTU that a link may have: the one that TCP needs (RFC 879).
pub const MIN_MTU: u16 = 576;

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LinkConfig {
    /// Bits per second at which packets leave the queue; `None` is no limit, and then there is
    /// never a queue.
    #[serde(with = "units::rate")]
    pub rate: Option<u64>,
    /// When packets leave the queue, instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Time from the last bit of a packet on one side to its arrival on the other.
    #[serde(with = "units::time")]
    pub delay: Duration,
    /// The time that each packet takes longer, at most: uniform from zero. Packets stay in order.
    #[serde(with = "units::time")]
    pub jitter: Duration,
    /// The longest IP packet in bytes, 576 to 65535. Longer ones are dropped:
    /// [`Link::offer`](super::Link::offer) gives the first of them back so that a router can answer
    /// it.
    pub mtu: u16,
    /// Bytes of each packet on the wire in addition to those of IP, for the time that it takes.
    pub overhead: u16,
    /// Which packets are lost on the wire, behind the queue.
    pub loss: Loss,
    /// Probability that a packet is overtaken by those that follow within
    /// [`reorder_delay`](Self::reorder_delay).
    pub reorder: f64,
    /// How much that of one packet depends on the packet before it: 0 is not at all.
    pub reorder_correlation: f64,
    /// How much later than the others an overtaken packet arrives, at most: uniform from an eighth
    /// of it.
    #[serde(with = "units::time")]
    pub reorder_delay: Duration,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is wrong.
    pub corrupt: f64,
    /// Probability that a packet that allows it is marked (CE), whatever the queue does.
    pub mark: f64,
    /// Where packets wait for the wire.
    pub queue: QueueConfig,
}

impl Default for LinkConfig {
    /// A perfect link: without limit, delay or loss, with an MTU of 1500 bytes.
    fn default() -> LinkConfig {
        LinkConfig {
            rate: None,
            trace: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            mtu: 1500,
            overhead: 0,
            loss: Loss::None,
            reorder: 0.0,
            reorder_correlation: 0.0,
            reorder_delay: Duration::from_millis(1),
            duplicate: 0.0,
            corrupt: 0.0,
            mark: 0.0,
            queue: QueueConfig::default(),
        }
    }
}

plimsoll_tcp::setters!(LinkConfig {
    rate: Option<u64>,
    trace: Option<Trace>,
    delay: Duration,
    jitter: Duration,
    mtu: u16,
    overhead: u16,
    loss: Loss,
    reorder: f64,
    reorder_correlation: f64,
    reorder_delay: Duration,
    duplicate: f64,
    corrupt: f64,
    mark: f64,
    queue: QueueConfig,
});

/// Which packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with this probability.
    Independent(f64),
    /// In bursts (Gilbert and Elliott): the wire is good or bad, and changes between packets.
    Bursty {
        /// Probability that a good wire is bad for the next packet.
        enter: f64,
        /// Probability that a bad wire is good for the next packet; above 0.
        leave: f64,
        /// Probability that a packet is lost while it is good.
        good: f64,
        /// The same while it is bad.
        bad: f64,
    },
}

/// A bound of packets that no queue reaches. TOML has no larger number.
pub(crate) const ANY_PACKETS: u64 = u64::MAX >> 1;

/// A queue, and what it does when packets wait for long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum QueueConfig {
    /// Drops what does not fit.
    DropTail {
        /// Bytes that wait, at most. A packet is taken if the queue is empty.
        bytes: u64,
        /// Packets that wait, at most.
        packets: u64,
        /// Packets that find more than so many bytes before them are marked if they allow it (the
        /// threshold of DCTCP, RFC 8257, section 3.1). 0 is never.
        #[serde(default)]
        mark_above: u64,
    },
    /// CoDel, RFC 8289: drops or marks once packets have waited longer than `target` for
    /// `interval`.
    #[serde(rename = "codel")]
    CoDel {
        /// Bytes that wait, at most.
        bytes: u64,
        /// The delay that is accepted for longer than an interval.
        #[serde(with = "units::time")]
        target: Duration,
        /// About the longest round trip of the flows.
        #[serde(with = "units::time")]
        interval: Duration,
    },
    /// FQ-CoDel, RFC 8290: a queue with CoDel for each flow, which take turns.
    #[serde(rename = "fq-codel")]
    FqCoDel {
        /// Bytes that wait in all of them together, at most. Packets beyond that are dropped
        /// from the longest one.
        bytes: u64,
        /// The delay that is accepted for longer than an interval.
        #[serde(with = "units::time")]
        target: Duration,
        /// About the longest round trip of the flows.
        #[serde(with = "units::time")]
        interval: Duration,
    },
    /// DualPI2, RFC 9332: two queues, coupled, so that scalable senders see a short one.
    DualPi2 {
        /// Bytes that wait in both together, at most.
        bytes: u64,
        /// The delay that the classic queue is steered to.
        #[serde(with = "units::time")]
        target: Duration,
        /// The longest round trip that is expected; the gains follow from it.
        #[serde(with = "units::time")]
        rtt_max: Duration,
    },
}

impl Default for QueueConfig {
    /// Drops what does not fit into a megabyte.
    fn default() -> QueueConfig {
        QueueConfig::drop_tail(1_000_000)
    }
}

impl QueueConfig {
    /// A queue of `bytes` that drops what does not fit.
    pub const fn drop_tail(bytes: u64) -> QueueConfig {
        QueueConfig::DropTail { bytes, packets: ANY_PACKETS, mark_above: 0 }
    }

    /// CoDel with the constants of RFC 8289, section 4.
    pub const fn codel(bytes: u64) -> QueueConfig {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        QueueConfig::CoDel { bytes, target, interval }
    }

    /// FQ-CoDel with the constants of RFC 8290, section 5.2.
    pub const fn fq_codel(bytes: u64) -> QueueConfig {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        QueueConfig::FqCoDel { bytes, target, interval }
    }

    /// DualPI2 with the constants of RFC 9332, appendix A.1.
    pub const fn dual_pi2(bytes: u64) -> QueueConfig {
        let (target, rtt_max) = (Duration::from_millis(15), Duration::from_millis(100));
        QueueConfig::DualPi2 { bytes, target, rtt_max }
    }
}

/// A value of a [`LinkConfig`] that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
#[non_exhaustive]
pub struct LinkError {
    /// The field.
    pub field: &'static str,
    /// Why.
    pub reason: String,
}

impl LinkConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of its range or contradicts another.
    pub fn check(&self) -> Result<(), LinkError> {
        let bad = |field, reason: String| Err(LinkError { field, reason });
        for (field, odds) in self.odds() {
            if !(0.0..=1.0).contains(&odds) {
                return bad(field, format!("{odds} is no probability from 0 to 1"));
            }
        }
        if matches!(self.loss, Loss::Bursty { enter, leave: 0.0, .. } if enter > 0.0) {
            return bad("loss.leave", "with 0 a wire that is bad once stays so".to_owned());
        }
        if self.mtu < MIN_MTU {
            return bad("mtu", format!("{} is less than the {MIN_MTU} that TCP needs", self.mtu));
        }
        if self.rate == Some(0) {
            return bad(
                "rate",
                "at 0 nothing ever arrives; take the link down for that".to_owned(),
            );
        }
        if self.rate.is_some() && self.trace.is_some() {
            return bad("trace", "it takes the place of a rate; give one of the two".to_owned());
        }
        if self.reorder > 0.0 && self.reorder_delay.is_zero() {
            return bad("reorder_delay", "with 0 nothing is overtaken; give a time".to_owned());
        }
        self.queue.check()
    }

    fn odds(&self) -> [(&'static str, f64); 9] {
        let (first, rest) = match self.loss {
            Loss::None => (0.0, [0.0; 3]),
            Loss::Independent(odds) => (odds, [0.0; 3]),
            Loss::Bursty { enter, leave, good, bad } => (bad, [enter, leave, good]),
        };
        [
            ("loss", first),
            ("loss.enter", rest[0]),
            ("loss.leave", rest[1]),
            ("loss.good", rest[2]),
            ("reorder", self.reorder),
            ("reorder_correlation", self.reorder_correlation),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("mark", self.mark),
        ]
    }

    /// The same link without any fault: rate, delay, MTU and queue stay.
    #[must_use]
    pub fn without_faults(&self) -> LinkConfig {
        LinkConfig {
            jitter: Duration::ZERO,
            loss: Loss::None,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            mark: 0.0,
            ..self.clone()
        }
    }
}

impl QueueConfig {
    fn check(&self) -> Result<(), LinkError> {
        let bad = |field, reason: &str| Err(LinkError { field, reason: reason.to_owned() });
        match *self {
            QueueConfig::DropTail { packets: 0, .. } => {
                bad("queue.packets", "a queue of 0 packets lets none through; give at least 1")
            }
            QueueConfig::CoDel { target, interval, .. }
            | QueueConfig::FqCoDel { target, interval, .. }
                if target >= interval =>
            {
                bad("queue.target", "it must be shorter than the interval")
            }
            QueueConfig::CoDel { target, .. } | QueueConfig::FqCoDel { target, .. }
                if target.is_zero() =>
            {
                bad("queue.target", "with 0 every packet has waited too long")
            }
            QueueConfig::DualPi2 { rtt_max, .. } if rtt_max.is_zero() => {
                bad("queue.rtt_max", "the gains follow from it: it must not be 0")
            }
            _ => Ok(()),
        }
    }
}
