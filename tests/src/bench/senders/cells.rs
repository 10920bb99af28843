//! The paths on which two senders are compared.

use std::fmt;

/// What happens to packets behind the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// Percent of the packets that are lost.
    Loss(f64),
    /// Percent of the packets that are overtaken.
    Reorder(f64),
    /// The same, late by a share of the round trip, and nothing is lost: the queue has space for
    /// the receiver's window.
    OnlyReorder { percent: f64, late: f64 },
}

/// How large the buffers of both sockets may become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Buffers {
    /// As large as they are by default.
    Default,
    /// The receiver's window is what the path holds.
    OnePath,
    /// Large enough for the longest of nsperf's queues, as in `docs/plans/nsperf`.
    Nsperf,
}

/// A path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// Megabits per second.
    pub(super) rate: u32,
    /// Milliseconds there and back.
    pub(super) round_trip: u32,
    pub(super) fault: Fault,
    /// Of the queue, in products of rate and round trip.
    pub(super) buffer: f64,
    pub(super) sockets: Buffers,
}

/// The largest buffer of a socket on nsperf's paths, in bytes: 64 MiB. A hundred times what the
/// path holds are 19 MB, more than the 4 MiB and 6 MiB that the kernel has by default.
const NSPERF_MOST: u32 = 64 << 20;

const RATES: [u32; 2] = [20, 100];
const ROUND_TRIPS: [u32; 3] = [2, 40, 200];
const FAULTS: [Fault; 5] =
    [Fault::Loss(0.0), Fault::Loss(0.1), Fault::Loss(1.0), Fault::Loss(3.0), Fault::Reorder(5.0)];
const BUFFERS: [f64; 3] = [0.25, 1.0, 4.0];

/// Paths that reorder and lose nothing: how many are late, and by how much of the round trip.
pub(super) fn reordering() -> Vec<Cell> {
    let late = |percent| [0.1, 0.5, 1.0].map(|late| Fault::OnlyReorder { percent, late });
    let faults = [1.0, 5.0, 20.0].into_iter().flat_map(late);
    let sockets = Buffers::OnePath;
    faults.map(|fault| Cell { rate: 20, round_trip: 50, fault, buffer: 8.0, sockets }).collect()
}

/// Every path.
pub(super) fn all() -> Vec<Cell> {
    numbered().map(|(_, cell)| cell).collect()
}

/// A third of them, in which each value of each dimension stands beside each of every other.
pub(super) fn third() -> Vec<Cell> {
    numbered().filter(|(sum, _)| sum % 3 == 0).map(|(_, cell)| cell).collect()
}

/// Those of nsperf's scenarios that fit through a link in real time: "bufferbloat", and "coexist"
/// if two flows share the path.
pub(super) fn nsperf(coexist: bool) -> Vec<Cell> {
    let buffers: &[f64] =
        if coexist { &[0.1, 0.5, 1.0, 4.0, 16.0] } else { &[1.0, 10.0, 50.0, 100.0] };
    let (fault, sockets) = (Fault::Loss(0.0), Buffers::Nsperf);
    let cell = |&buffer| Cell { rate: 50, round_trip: 30, fault, buffer, sockets };
    buffers.iter().map(cell).collect()
}

/// Each path, and the sum of its places in the dimensions.
fn numbered() -> impl Iterator<Item = (usize, Cell)> {
    RATES.into_iter().enumerate().flat_map(|(a, rate)| {
        ROUND_TRIPS.into_iter().enumerate().flat_map(move |(b, round_trip)| {
            FAULTS.into_iter().enumerate().flat_map(move |(c, fault)| {
                BUFFERS.into_iter().enumerate().map(move |(d, buffer)| {
                    let sockets = Buffers::Default;
                    (a + b + c + d, Cell { rate, round_trip, fault, buffer, sockets })
                })
            })
        })
    })
}

impl Cell {
    /// From the sender to the receiver, for `plimsoll link --link`.
    pub(super) fn there(&self) -> String {
        let Cell { rate, round_trip, fault, buffer, .. } = *self;
        let delay = f64::from(round_trip) / 2.0;
        let fault = match fault {
            Fault::Loss(percent) => format!("loss={percent}%"),
            // At most as late as a quarter of a round trip: RACK waits as long.
            Fault::Reorder(percent) => {
                let most = f64::from(round_trip) * 250.0;
                format!("reorder={percent}%,reorder-delay={most}us")
            }
            Fault::OnlyReorder { percent, late } => {
                let most = f64::from(round_trip) * late * 1000.0;
                format!("reorder={percent}%,reorder-delay={most}us")
            }
        };
        format!("rate={rate}mbit,delay={delay}ms,buffer={buffer}bdp,{fault}")
    }

    /// `tcp_rmem` of the receiver, if it is not the default.
    pub(super) fn receive_buffer(&self) -> Option<String> {
        match self.sockets {
            Buffers::Default => None,
            Buffers::OnePath => {
                // Megabits per second by milliseconds, in bytes. Half of the buffer is the window.
                let holds = self.rate * self.round_trip * 125;
                Some(format!("4096 {holds} {}", 2 * holds))
            }
            Buffers::Nsperf => Some(format!("4096 131072 {NSPERF_MOST}")),
        }
    }

    /// `tcp_wmem` of the sender, if it is not the default.
    pub(super) fn send_buffer(&self) -> Option<String> {
        match self.sockets {
            Buffers::Default | Buffers::OnePath => None,
            Buffers::Nsperf => Some(format!("4096 16384 {NSPERF_MOST}")),
        }
    }

    /// The other direction: nothing happens to ACKs, and they have space.
    pub(super) const BACK: &'static str = "loss=0,reorder=0,buffer=10MB";
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { rate, round_trip, fault, buffer, .. } = *self;
        write!(f, "{rate} Mbit/s, {round_trip} ms, ")?;
        match fault {
            Fault::Loss(percent) => write!(f, "loss {percent} %")?,
            Fault::Reorder(percent) => write!(f, "reorder {percent} %")?,
            Fault::OnlyReorder { percent, late } => {
                write!(f, "reorder {percent} %, late by {} %", late * 100.0)?;
            }
        }
        write!(f, ", {buffer} BDP")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_has_every_value_beside_every_other() {
        let (all, third) = (all(), third());
        assert_eq!((all.len(), third.len()), (90, 30));
        for round_trip in ROUND_TRIPS {
            for buffer in BUFFERS {
                let has = |cell: &&Cell| cell.round_trip == round_trip && cell.buffer == buffer;
                assert!(third.iter().any(|cell| has(&cell)), "{round_trip} ms, {buffer} BDP");
            }
            for fault in FAULTS {
                let has = |cell: &&Cell| cell.round_trip == round_trip && cell.fault == fault;
                assert!(third.iter().any(|cell| has(&cell)), "{round_trip} ms, {fault:?}");
            }
        }
    }

    #[test]
    fn a_path_is_what_the_link_understands() {
        let (fault, sockets) = (Fault::Reorder(5.0), Buffers::Default);
        let cell = Cell { rate: 20, round_trip: 2, fault, buffer: 0.25, sockets };
        assert_eq!(
            cell.there(),
            "rate=20mbit,delay=1ms,buffer=0.25bdp,reorder=5%,reorder-delay=500us"
        );
        assert_eq!(cell.to_string(), "20 Mbit/s, 2 ms, reorder 5 %, 0.25 BDP");
        assert_eq!(cell.receive_buffer(), None);
        let only = reordering()[5];
        assert_eq!(
            only.there(),
            "rate=20mbit,delay=25ms,buffer=8bdp,reorder=5%,reorder-delay=50000us"
        );
        assert_eq!(only.to_string(), "20 Mbit/s, 50 ms, reorder 5 %, late by 100 %, 8 BDP");
        assert_eq!(only.receive_buffer().as_deref(), Some("4096 125000 250000"));
        assert_eq!((cell.send_buffer(), only.send_buffer()), (None, None));
    }

    /// The same buffers as in the plans for the simulator.
    #[test]
    fn buffers_on_the_paths_of_nsperf_are_those_of_its_plans() {
        let plans = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plans/nsperf");
        for (plan, coexist) in [("bufferbloat", false), ("coexist", true)] {
            let text = std::fs::read_to_string(plans.join(plan).with_extension("toml")).unwrap();
            for cell in nsperf(coexist) {
                let (read, written) = (cell.receive_buffer().unwrap(), cell.send_buffer().unwrap());
                assert!(text.contains(&format!("\"net.ipv4.tcp_rmem\" = \"{read}\"")), "{cell}");
                assert!(text.contains(&format!("\"net.ipv4.tcp_wmem\" = \"{written}\"")), "{cell}");
            }
        }
    }
}
