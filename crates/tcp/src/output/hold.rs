//! Every reason not to send new data, in the one order in which they are asked.
//!
//! The list below is that order. [`Hold`] comes from it here, the questions come from it in
//! [`gate`](super::gate).

use crate::counters::Counter;
use crate::time::Instant;
use crate::timer::Timer;

/// The list. An entry has what it means, the name in figures and traces, the counter, what ends it
/// in words; then, for the gate, the question, and what ends it as a
/// [`Restart`]. The first ones are asked about the sender, whatever it would send, the next about
/// the packet that would leave. The last stage is no question: the packet was built, and what lies
/// below answered ([`Refusal`]).
macro_rules! holds {
    ($apply:ident) => {
        $apply! {
            sender {
                /// Automatic corking: a small write waits for the completion of what is below us. A
                /// completion, an ACK or a timer ends it. It is asked before all others, and on a
                /// write only.
                Autocork, "autocork", Counter::TcpAutoCorking, "a completion, an ACK or a timer",
                    autocork_holds, |_| Restart::Completion;
                /// The departure time of the next packet has not come. The Pacing timer ends it.
                Pacing, "pacing", Counter::HoldPacing, "the departure time",
                    waits_to_depart, |view| until(Timer::Pacing, view.departs);
                /// The congestion window is full. An ACK, or loss found by a timer, ends it.
                Cwnd, "cwnd", Counter::HoldCwnd, "an ACK, or a timer that finds loss",
                    cwnd_holds, |_| Restart::Ack;
                /// The peer's window takes nothing. A window update or the Persist timer ends it.
                Rwnd, "rwnd", Counter::HoldRwnd, "a window update, or a probe",
                    rwnd_holds, |_| Restart::Persist;
                /// The peer's window takes too little to be worth a segment (RFC 9293, section
                /// 3.8.6.2.1). A window update or the Persist timer ends it.
                SillyWindow, "silly_window", Counter::HoldSillyWindow,
                    "a window update, or a probe",
                    silly_window_holds, |_| Restart::Persist;
                /// A probe of the path MTU waits until the windows let it leave with what must
                /// follow it. An ACK ends it.
                MtuProbe, "mtu_probe", Counter::HoldMtuProbe, "an ACK",
                    mtu_probe_holds, |_| Restart::Ack;
                /// A super-segment that is not full waits for the ACK that will let it grow. An
                /// ACK, a write or the TsoDefer timer ends it.
                TsoDefer, "tso_defer", Counter::HoldTsoDefer, "an ACK, a write or a timer",
                    tso_defer_holds, |view| until(Timer::TsoDefer, Some(view.deferral.ends));
            }
            packet {
                /// Nagle's rule: less than a segment waits while an earlier one like that is
                /// unacknowledged. An ACK, a write or TCP_NODELAY ends it.
                Nagle, "nagle", Counter::HoldNagle, "an ACK, a write or TCP_NODELAY",
                    nagle_keeps_all, |view| until(Timer::TsoDefer, view.nagle_ends);
                /// TCP_CORK or MSG_MORE: less than a segment waits for what the application will
                /// write. A write, an ACK (MSG_MORE), an option or the Persist timer ends it.
                Cork, "cork", Counter::HoldCork, "a write, an option or a timer",
                    cork_keeps_all, |_| Restart::Persist;
                /// Too much of the connection is below us already. A completion ends it.
                SmallQueue, "small_queue", Counter::HoldSmallQueue, "a completion",
                    below_is_full, |_| Restart::Completion;
            }
            offer {
                /// What lies below did not take the packet that was offered. A completion, space in
                /// its queue or a timer ends it.
                Refused, "refused", Counter::HoldRefused, "a completion, space or a timer";
            }
        }
    };
}
pub(super) use holds;

macro_rules! declare {
    ($($stage:ident { $($(#[$doc:meta])+ $hold:ident, $name:literal, $counter:expr, $words:literal
        $(, $asked:ident, $restart:expr)?;)+ })+) => {
        /// A reason not to send what waits, in the order in which the gate asks.
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

            /// What ends it.
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

/// Why what lies below does not take a packet, and what restarts the connection.
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

/// What ends a hold, at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// The completion of something that is below us.
    Completion,
    /// An ACK, which is to come since data is in flight.
    Ack,
    /// A timer, if nothing does so before.
    Timer(Timer, Instant),
    /// A window update, a write or an option; while nothing is in flight, the Persist timer at the
    /// latest.
    Persist,
    /// Space in the queue below, of which the caller knows; while nothing is in flight, the Persist
    /// timer at the latest, and otherwise that of retransmission.
    Space,
}
