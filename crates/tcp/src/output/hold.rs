//! All reasons not to send new data, in the one order in which they are checked.
//!
//! The list below is that order. [`Hold`] is made from it here, the checks are made from it in
//! [`gate`](super::gate).

use crate::counters::Counter;
use crate::time::Instant;
use crate::timer::Timer;

/// The list. An entry has its meaning, the name in figures and traces, the counter, and the events
/// that end it in words. For the gate, it has the check, and the events that end it as a
/// [`Restart`]. The first group is checked for the sender, independently of the packet, the next
/// for the packet that would leave. The last group has no check: the packet was built, and the
/// layer below answered ([`Refusal`]).
macro_rules! holds {
    ($apply:ident) => {
        $apply! {
            sender {
                /// Automatic corking: a small write waits for the completion of packets below. A
                /// completion, an ACK or a timer ends it. It is checked before all others, and only
                /// for a write.
                Autocork, "autocork", Counter::TcpAutoCorking, "a completion, an ACK or a timer",
                    autocork_holds, |_| Restart::Completion;
                /// The departure time of the next packet has not come. The Pacing timer ends it.
                Pacing, "pacing", Counter::HoldPacing, "the departure time",
                    waits_to_depart, |view| until(Timer::Pacing, view.departs);
                /// The congestion window is full. An ACK, or loss found by a timer, ends it.
                Cwnd, "cwnd", Counter::HoldCwnd, "an ACK, or a timer that finds loss",
                    cwnd_holds, |_| Restart::Ack;
                /// The peer's window has no room. A window update or the Persist timer ends it.
                Rwnd, "rwnd", Counter::HoldRwnd, "a window update, or a probe",
                    rwnd_holds, |_| Restart::Persist;
                /// The peer's window has too little room to be worth a segment (RFC 9293, section
                /// 3.8.6.2.1). A window update or the Persist timer ends it.
                SillyWindow, "silly_window", Counter::HoldSillyWindow,
                    "a window update, or a probe",
                    silly_window_holds, |_| Restart::Persist;
                /// A probe of the path MTU waits until the windows allow it to leave with the data
                /// that must follow it. An ACK ends it.
                MtuProbe, "mtu_probe", Counter::HoldMtuProbe, "an ACK",
                    mtu_probe_holds, |_| Restart::Ack;
                /// A super-segment that is not full waits for the ACK that allows it to grow. An
                /// ACK, a write or the TsoDefer timer ends it.
                TsoDefer, "tso_defer", Counter::HoldTsoDefer, "an ACK, a write or a timer",
                    tso_defer_holds, |view| until(Timer::TsoDefer, Some(view.deferral.ends));
            }
            packet {
                /// Nagle's algorithm: less than a segment waits while an earlier one like that is
                /// unacknowledged. An ACK, a write or TCP_NODELAY ends it.
                Nagle, "nagle", Counter::HoldNagle, "an ACK, a write or TCP_NODELAY",
                    nagle_keeps_all, |view| until(Timer::TsoDefer, view.nagle_ends);
                /// TCP_CORK or MSG_MORE: less than a segment waits for the application's next
                /// write. A write, an ACK (MSG_MORE), an option or the Persist timer ends it.
                Cork, "cork", Counter::HoldCork, "a write, an option or a timer",
                    cork_keeps_all, |_| Restart::Persist;
                /// Too many bytes of the connection are below already. A completion ends it.
                SmallQueue, "small_queue", Counter::HoldSmallQueue, "a completion",
                    below_is_full, |_| Restart::Completion;
            }
            offer {
                /// The layer below did not take the offered packet. A completion, space in its
                /// queue or a timer ends it.
                Refused, "refused", Counter::HoldRefused, "a completion, space or a timer";
            }
        }
    };
}
pub(super) use holds;

macro_rules! declare {
    ($($stage:ident { $($(#[$doc:meta])+ $hold:ident, $name:literal, $counter:expr, $words:literal
        $(, $asked:ident, $restart:expr)?;)+ })+) => {
        /// A reason not to send waiting data, in the order in which the gate checks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Hold {
            $($($(#[$doc])+ $hold,)+)+
        }

        impl Hold {
            /// All reasons, in gate order.
            pub const ALL: [Hold; [$($($name,)+)+].len()] = [$($(Hold::$hold,)+)+];

            /// The name in figures and traces.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Hold::$hold => $name,)+)+
                }
            }

            /// The events that end it.
            pub const fn restarted_by(self) -> &'static str {
                match self {
                    $($(Hold::$hold => $words,)+)+
                }
            }

            pub(crate) const fn counter(self) -> Counter {
                match self {
                    $($(Hold::$hold => $counter,)+)+
                }
            }
        }
    };
}

holds!(declare);

/// The reason why the layer below does not take a packet, and the event that restarts the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its queue is full. That is congestion: cwnd is reduced, once per window of data.
    ///
    /// If data of the connection is below and completions are reported, the next completion
    /// restarts it ([`Connection::awaits_completion`](crate::Connection::awaits_completion)).
    /// Otherwise the refusing caller polls again when the queue has space; a timer does so every
    /// half second.
    QueueFull,
    /// There is no memory for the packet. A timer restarts it after 10 ms.
    NoMemory,
}

/// The event that ends a hold, at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The completion of a packet below.
    Completion,
    /// An ACK, which will come since data is in flight.
    Ack,
    /// A timer, if no other event comes before.
    Timer(Timer, Instant),
    /// A window update, a write or an option; while nothing is in flight, the Persist timer at the
    /// latest.
    Persist,
    /// Space in the queue below, which the caller detects; while nothing is in flight, the Persist
    /// timer at the latest, and otherwise the retransmission timer.
    Space,
}
