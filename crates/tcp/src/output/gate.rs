//! The gate: may new data leave now, how much, and if not, why.
//!
//! Every reason not to send is a [`Hold`]. They are asked here, in the order of the enum, each
//! answered by one predicate; the first that holds wins and is counted. Retransmissions do not pass
//! here: recovery has its own quota.

use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::output::nagle::{Nagle, nagle_holds};
use crate::output::silly_window::silly_window_holds;
use crate::output::tso_tail::cut_tail;
use crate::send::segmentation::Room;

/// Why new data does not leave, in the order in which the gate asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The congestion window is full. An ACK restarts.
    Cwnd,
    /// The peer's window is full. An ACK restarts; with nothing in flight the Persist timer probes.
    Rwnd,
    /// The peer's window has room for less than is worth sending (RFC 9293, section 3.8.6.2.1). An
    /// ACK restarts; with nothing in flight the Persist timer overrides.
    SillyWindow,
    /// A small segment is unacknowledged (RFC 896, with Minshall's rule). An ACK, more data, a FIN or
    /// TCP_NODELAY restarts.
    Nagle,
}

impl Hold {
    /// All, in the order of the gate.
    pub const ALL: [Hold; 4] = [Hold::Cwnd, Hold::Rwnd, Hold::SillyWindow, Hold::Nagle];

    /// A word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Hold::Cwnd => "cwnd",
            Hold::Rwnd => "rwnd",
            Hold::SillyWindow => "silly-window",
            Hold::Nagle => "nagle",
        }
    }

    const fn counter(self) -> Counter {
        match self {
            Hold::Cwnd => Counter::HoldCwnd,
            Hold::Rwnd => Counter::HoldRwnd,
            Hold::SillyWindow => Counter::HoldSillyWindow,
            Hold::Nagle => Counter::HoldNagle,
        }
    }
}

/// The congestion window has no room for a full segment, nor for all there is. A lone FIN passes.
fn cwnd_holds(room: &Room) -> bool {
    room.unsent > 0 && room.cwnd < room.mss.min(room.unsent)
}

/// The peer's window is closed.
fn rwnd_holds(room: &Room) -> bool {
    room.rwnd == 0
}

/// Asks all of them. `Ok` is the number of payload bytes to send; zero is a lone FIN.
fn ask(room: &Room, nagle: &Nagle, max_wnd: u32, silly_override: bool) -> Result<usize, Hold> {
    if cwnd_holds(room) {
        return Err(Hold::Cwnd);
    }
    if rwnd_holds(room) {
        return Err(Hold::Rwnd);
    }
    let len = room.length();
    if silly_window_holds(len, room, max_wnd, silly_override) {
        return Err(Hold::SillyWindow);
    }
    let held = |len| nagle_holds(nagle, len);
    if len <= room.mss {
        let last = len == room.unsent;
        return if last && len > 0 && held(len) { Err(Hold::Nagle) } else { Ok(len) };
    }
    Ok(cut_tail(len, room.mss, held))
}

impl Connection {
    /// Whether new data (or a FIN) leaves now, and how much.
    pub(crate) fn gate(&mut self, cx: &Context) -> Result<usize, Hold> {
        let room = self.room();
        let nagle = self.nagle(&room);
        let passed = ask(&room, &nagle, self.snd.max_wnd, self.snd.override_silly_window);
        match passed {
            Ok(len) => {
                // What is left behind by cwnd counts as limited by it: the window may grow.
                self.cc
                    .set_cwnd_limited(len < room.unsent && room.cwnd < room.rwnd.min(room.unsent));
            }
            Err(hold) => {
                let idle = self.snd.rtx.is_empty() && cx.below.bytes == 0;
                debug_assert!(!(idle && matches!(hold, Hold::Cwnd | Hold::Nagle)), "{hold:?}");
                self.cc.set_cwnd_limited(hold == Hold::Cwnd);
                cx.counters.bump(hold.counter());
                let count = &mut self.stats.holds[hold as usize];
                *count = count.saturating_add(1);
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::nagle::NagleRule;

    #[test]
    fn the_enum_is_in_the_order_of_the_gate() {
        for (index, hold) in Hold::ALL.into_iter().enumerate() {
            assert_eq!(hold as usize, index);
        }
    }

    #[test]
    fn the_first_reason_wins() {
        let base =
            Room { mss: 1000, unsent: 5500, fin: false, cwnd: 9000, rwnd: 9000, largest: 64_000 };
        let free = Nagle {
            rule: NagleRule::Minshall,
            nodelay: false,
            fin: false,
            urgent: false,
            unacked: false,
            small_unacked: false,
        };
        let small = Nagle { unacked: true, small_unacked: true, ..free };
        let cases = [
            (base, free, Ok(5500), "all of it, tail included"),
            (base, small, Ok(5000), "the tail waits for the small segment in flight"),
            (Room { cwnd: 0, rwnd: 0, ..base }, small, Err(Hold::Cwnd), "cwnd is asked first"),
            (Room { rwnd: 0, ..base }, small, Err(Hold::Rwnd), "then the peer's window"),
            (Room { rwnd: 400, ..base }, small, Err(Hold::SillyWindow), "then silliness"),
            (Room { unsent: 400, ..base }, small, Err(Hold::Nagle), "then Nagle"),
            (Room { unsent: 400, ..base }, free, Ok(400), "or nothing"),
            (Room { unsent: 0, fin: true, cwnd: 0, ..base }, small, Ok(0), "a lone FIN"),
        ];
        for (room, nagle, expected, name) in cases {
            assert_eq!(ask(&room, &nagle, 20_000, false), expected, "{name}");
        }
    }
}
