//! The gate: every reason not to send new data, asked in one fixed order.
//!
//! A [`Situation`] is everything that the predicates may look at. Each predicate is a pure function
//! in a file of its own; the first that holds gives the answer.

use super::autocork::autocork_holds;
use super::cwnd::cwnd_holds;
use super::rwnd::rwnd_holds;
use super::silly_window::silly_window_holds;
use super::situation::Situation;
use super::small_queue::small_queue_holds;
use super::tso_defer::tso_defer_holds;
use super::tso_tail::cut_tail;
use crate::counters::Counter;
use crate::send::segmentation::most_bytes;

/// A reason not to send what waits, in the order in which the gate asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Hold {
    /// Automatic corking: a small write waits for the completion of what is below us. A completion,
    /// an ACK or a timer ends it. It is asked before all others, and on a write only.
    Autocork,
    /// The departure time of the next packet has not come. The Pacing timer ends it.
    Pacing,
    /// The congestion window is full. An ACK, or loss found by a timer, ends it.
    Cwnd,
    /// The peer's window takes nothing. A window update or the Persist timer ends it.
    Rwnd,
    /// The peer's window takes too little to be worth a segment (RFC 9293, section 3.8.6.2.1). A
    /// window update or the Persist timer ends it.
    SillyWindow,
    /// A super-segment that is not full waits for the ACK that will let it grow. An ACK, a write or
    /// the TsoDefer timer ends it.
    TsoDefer,
    /// Nagle's rule: less than a segment waits while an earlier one like that is unacknowledged. An
    /// ACK, a write or TCP_NODELAY ends it.
    Nagle,
    /// TCP_CORK or MSG_MORE: less than a segment waits for what the application will write. A
    /// write, an ACK (MSG_MORE), an option or the Persist timer ends it.
    Cork,
    /// Too much of the connection is below us already. A completion ends it.
    SmallQueue,
}

impl Hold {
    /// All reasons, in gate order.
    pub const ALL: [Hold; 9] = [
        Hold::Autocork,
        Hold::Pacing,
        Hold::Cwnd,
        Hold::Rwnd,
        Hold::SillyWindow,
        Hold::TsoDefer,
        Hold::Nagle,
        Hold::Cork,
        Hold::SmallQueue,
    ];

    /// The name in figures and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Hold::Autocork => "autocork",
            Hold::Pacing => "pacing",
            Hold::Cwnd => "cwnd",
            Hold::Rwnd => "rwnd",
            Hold::SillyWindow => "silly_window",
            Hold::TsoDefer => "tso_defer",
            Hold::Nagle => "nagle",
            Hold::Cork => "cork",
            Hold::SmallQueue => "small_queue",
        }
    }

    /// What ends it.
    pub const fn restarted_by(self) -> &'static str {
        match self {
            Hold::Autocork => "a completion, an ACK or a timer",
            Hold::Pacing => "the departure time",
            Hold::Cwnd => "an ACK, or a timer that finds loss",
            Hold::Rwnd | Hold::SillyWindow => "a window update, or a probe",
            Hold::TsoDefer => "an ACK, a write or a timer",
            Hold::Nagle => "an ACK, a write or TCP_NODELAY",
            Hold::Cork => "a write, an option or a timer",
            Hold::SmallQueue => "a completion",
        }
    }

    pub(crate) const fn counter(self) -> Counter {
        match self {
            Hold::Autocork => Counter::TcpAutoCorking,
            Hold::Pacing => Counter::HoldPacing,
            Hold::Cwnd => Counter::HoldCwnd,
            Hold::Rwnd => Counter::HoldRwnd,
            Hold::SillyWindow => Counter::HoldSillyWindow,
            Hold::TsoDefer => Counter::HoldTsoDefer,
            Hold::Nagle => Counter::HoldNagle,
            Hold::Cork => Counter::HoldCork,
            Hold::SmallQueue => Counter::HoldSmallQueue,
        }
    }
}

/// How many bytes leave in the next packet (zero only for a FIN alone), or what holds them.
pub(crate) fn ask(now: &Situation) -> Result<u32, Hold> {
    if autocork_holds(now) {
        return Err(Hold::Autocork);
    }
    if now.early {
        return Err(Hold::Pacing);
    }
    if cwnd_holds(now) {
        return Err(Hold::Cwnd);
    }
    if rwnd_holds(now) {
        return Err(Hold::Rwnd);
    }
    if silly_window_holds(now) {
        return Err(Hold::SillyWindow);
    }
    if now.unsent > now.mss && tso_defer_holds(now).is_some() {
        return Err(Hold::TsoDefer);
    }
    let len = cut_tail(now, most_bytes(now))?;
    // The packet as it would leave is what counts.
    if small_queue_holds(&now.below, len, false) {
        return Err(Hold::SmallQueue);
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::small_queue::HostQueue;
    use crate::output::tso_defer::Deferral;
    use crate::time::Duration;

    /// Takes away what holds first, and nothing else.
    fn let_go(now: &mut Situation, hold: Hold) {
        match hold {
            Hold::Autocork => now.written = false,
            Hold::Pacing => now.early = false,
            Hold::Cwnd => now.quota = 1000,
            Hold::Rwnd => now.usable = 400,
            Hold::SillyWindow => now.usable = 1000,
            // Less than a segment is left, for which nothing defers.
            Hold::TsoDefer => now.unsent = 500,
            Hold::Nagle => now.small_unacked = false,
            Hold::Cork => now.corked = false,
            Hold::SmallQueue => now.below.packets = 1,
        }
    }

    #[test]
    fn reasons_are_asked_in_the_order_of_their_declaration() {
        // Every reason holds at once.
        let mut now = Situation {
            mss: 1000,
            unsent: 1500,
            cwnd: 10_000,
            quota: 0,
            usable: 0,
            largest: 65_000,
            contiguous: 1500,
            small_unacked: true,
            corked: true,
            early: true,
            below: HostQueue {
                completions: true,
                bytes: 2000,
                packets: 2,
                in_flight: 2,
                ..Default::default()
            },
            written: true,
            autocork: true,
            open: true,
            goal: 5000,
            deferral: Deferral {
                allowed: true,
                divisor: 3,
                wnd: 60_000,
                age: Some(Duration::from_micros(400)),
                srtt: Duration::from_micros(500),
                ..Deferral::default()
            },
            ..Situation::default()
        };
        for (index, expected) in Hold::ALL.into_iter().enumerate() {
            assert_eq!(expected as usize, index, "figures are found by it");
            assert_eq!(ask(&now), Err(expected));
            let_go(&mut now, expected);
        }
        assert_eq!(ask(&now), Ok(500));
    }
}
