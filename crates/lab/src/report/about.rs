//! What is to be said about each mechanism, and what its section shows.

use super::sequence::{Kind, Look, Packet};
use super::values::Shows;
use crate::experiment::Column;

/// What the picture of packets shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// One request and its answer.
    Transaction,
    /// So many packets of data, as long as they are on average by this figure; rather with a
    /// comment in which these words are.
    Bulk(usize, Option<(&'static str, &'static str)>),
}

/// A mechanism.
pub(crate) struct About {
    /// The name of its experiment.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) title: &'static str,
    /// What it does, in three sentences.
    pub(crate) what: &'static str,
    /// Who published it, when and under which title.
    pub(crate) source: &'static str,
    /// The main figures, for a chart.
    pub(crate) figures: &'static [Shows],
    /// What it costs, and how much goes over the link.
    pub(crate) costs: &'static [Shows],
    /// What the picture shows.
    pub(crate) scene: Scene,
    /// What the two ends in the picture are called, the side that captured first.
    pub(crate) ends: [&'static str; 2],
    /// What to look at in the picture.
    pub(crate) look_at: &'static str,
}

const PACKETS_PER: Shows =
    Shows::new("packets per transaction", "packets_per_transaction", 2).less();
const OCTETS: Shows = Shows::new("octets per packet", "octets_per_packet", 0).more();
const CPU_PER: Shows = Shows::new("CPU, ns per transaction", "cpu_ns_per_transaction", 0).less();
const SWITCHES_PER: Shows =
    Shows::new("context switches per transaction", "context_switches_per_transaction", 2).less();
const TRANSACTIONS: Shows = Shows::new("transactions per second", "transactions_per_s", 0).more();
const CPU: Shows = Shows::new("CPU of the process, s", "cpu_seconds", 3).less();
const VOLUNTARY: Shows = Shows::new("context switches, voluntary", "voluntary_context_switches", 0);
const OTHERS: Shows = Shows::new("context switches, others", "involuntary_context_switches", 0);
const ACKS: Shows = Shows::new("pure ACKs per second", "acks_per_s", 0).less();
const VIRTUAL: Shows = Shows::new("seconds, virtual", "virtual_seconds", 3).less();
const WIRE: Shows = Shows::new("wire segments", "wire_segments", 0);
const SUPER: Shows = Shows::new("super-segments", "super_segments", 0);
const ACKS_PER: Shows = Shows::new("pure ACKs per gigabyte", "acks_per_gigabyte", 0).less();

/// All mechanisms.
static ALL: [About; 9] = [
    About {
        name: "tso-split",
        title: "Refined TSO split",
        what: "A message is rarely a whole number of segments, and the sender used to cut its \
               tail off and send it in a packet of its own. Here the tail is judged when the data \
               leaves, by the rules of Nagle and Minshall at the boundary of a segment: unless a \
               small segment is still in flight, the tail goes along inside the super-segment. \
               A request of 4 KiB is then one packet instead of two.",
        source: "Eric Dumazet, December 2013: “tcp: refine TSO splits” (Linux)",
        figures: &[PACKETS_PER, OCTETS, CPU_PER],
        costs: &[CPU_PER, CPU, SWITCHES_PER, TRANSACTIONS, ACKS, WIRE, SUPER],
        scene: Scene::Transaction,
        ends: ["client", "server"],
        look_at: "The tail of 1200 bytes: a packet of its own before, the end of the \
                  super-segment after.",
    },
    About {
        name: "autocork",
        title: "Automatic corking",
        what: "A program that writes in small pieces asks for a small packet with every write. \
               Automatic corking holds a packet that is not full for as long as an earlier packet \
               of the same flow is still in the queue or the device, and lets further writes fill \
               it; the completion of that packet releases it. Nothing waits on a timer, and a \
               flow with nothing below it is never held.",
        source: "Eric Dumazet, December 2013: “tcp: auto corking” (Linux)",
        figures: &[
            Shows::new("throughput, Mbit/s", "throughput_bits_per_s", 0).scaled(1e6).more(),
            OCTETS,
            Shows::new("writers' CPU, ns per byte", "cpu_ns_per_byte", 3).less(),
        ],
        costs: &[
            Shows::new("writers' CPU, ns per byte", "cpu_ns_per_byte", 3).less(),
            Shows::new("whole process, ns per byte", "cpu_ns_per_byte_of_process", 3).less(),
            CPU,
            VOLUNTARY,
            OTHERS,
            ACKS,
            ACKS_PER,
            WIRE,
            SUPER,
        ],
        scene: Scene::Bulk(10, Some(("octets_per_packet", " by autocork"))),
        ends: ["sender", "receiver"],
        look_at: "How much leaves at once, and how many writes of 128 bytes went into it.",
    },
    About {
        name: "pure-ack",
        title: "No wake-up for pure ACKs",
        what: "With the prequeue on, a thread that waits for an answer processes its own packets, \
               so it was woken by each one, also by the ACK of its request, found no data and \
               slept again. A segment without payload that finds the prequeue empty is now \
               processed by the thread of the stack. The reader sleeps until there is something \
               to read, which halves the context switches.",
        source: "Eric Dumazet, February 2013: “tcp: avoid wakeups for pure ACK” (Linux)",
        figures: &[
            SWITCHES_PER,
            Shows::new("client's CPU, ns per transaction", "cpu_ns_per_transaction", 0).less(),
            TRANSACTIONS,
        ],
        costs: &[
            Shows::new("client's CPU, ns per transaction", "cpu_ns_per_transaction", 0).less(),
            Shows::new("whole process, ns per transaction", "cpu_ns_per_transaction_of_process", 0)
                .less(),
            CPU,
            Shows::new(
                "voluntary switches per transaction",
                "voluntary_switches_per_transaction",
                2,
            )
            .less(),
            PACKETS_PER,
            ACKS,
            TRANSACTIONS,
        ],
        scene: Scene::Transaction,
        ends: ["client", "server"],
        look_at: "A transaction takes as many packets; what differs is who works on an ACK \
                  without data. \
                  What stands beside such an ACK is the rule of the knob for a reader that is \
                  blocked and has nothing queued. It is not seen in the capture: whether the \
                  reader was woken, the context switches above tell.",
    },
    About {
        name: "tso-trim",
        title: "Trimming of fractional tails",
        what: "A bulk sender whose writes are no whole number of segments empties its buffer with \
               every super-segment, and each ends in a fraction of a segment. Trimming leaves \
               that fraction behind, so that the next write fills it up. Only full segments go \
               over the wire while data follows, and the receiver gets as few packets as the \
               data allows.",
        source: "Cheng Cui with Hans Petter Selasky, November 2015: “question about trimning data \
                 \"len\" conditions in TSO in tcp_output.c” (FreeBSD)",
        figures: &[
            Shows::new("data segments", "data_segments", 0).less(),
            Shows::new("chunks handed to TSO", "data_packets", 0).less(),
            VIRTUAL,
        ],
        costs: &[
            Shows::new("data segments", "data_segments", 0).less(),
            SUPER,
            ACKS,
            ACKS_PER,
            Shows::new("throughput, Mbit/s, virtual", "throughput_bits_per_s", 0)
                .scaled(1e6)
                .more(),
        ],
        scene: Scene::Bulk(10, None),
        ends: ["sender", "receiver"],
        look_at: "The last segment of each chunk: one byte before, a full segment after.",
    },
    About {
        name: "ack-defer",
        title: "ACK deferral in a backlog",
        what: "While a thread owns its socket, packets that arrive wait in a backlog, and the \
               thread has to process them before it lets go; each asked for an ACK of its own. \
               ACKs are cumulative, so those of one backlog become one, sent when the socket is \
               released. That spares both sides work and empties the backlog sooner.",
        source: "Eric Dumazet, September 2023: “tcp: defer regular ACK while processing socket \
                 backlog” (Linux)",
        figures: &[
            Shows::new("ACKs per second", "acks_per_s", 0).less(),
            ACKS_PER,
            Shows::new("throughput, Gbit/s", "throughput_bits_per_s", 1).scaled(1e9).more(),
        ],
        costs: &[
            Shows::new("reader's CPU, ns per byte", "reader_cpu_ns_per_byte", 4).less(),
            Shows::new("softirq's CPU, ns per byte", "softirq_cpu_ns_per_byte", 4).less(),
            Shows::new("whole process, ns per byte", "cpu_ns_per_byte_of_process", 4).less(),
            VOLUNTARY,
            OTHERS,
            ACKS,
            Shows::new("backlog drops", "backlog_drops", 0).less(),
        ],
        scene: Scene::Bulk(24, None),
        ends: ["receiver", "sender"],
        look_at: "The ACKs: one for every super-segment before, one for a whole backlog after.",
    },
    About {
        name: "sack-compress",
        title: "Later reports of what is out of order",
        what: "While data is missing, every packet that arrives asks for an ACK. The receiver \
               may wait for a part of the round trip, a millisecond at most, and then send one \
               ACK that reports all. The part was 5 %, which saves nothing on short paths; here \
               it is a third.",
        source: "Eric Dumazet, November 2025: “tcp: add net.ipv4.tcp_comp_sack_rtt_percent” \
                 (Linux 6.19)",
        figures: &[ACKS_PER, VIRTUAL],
        costs: &[ACKS_PER, VIRTUAL, WIRE],
        scene: Scene::Bulk(24, None),
        ends: ["sender", "receiver"],
        look_at: "The ACKs while data is missing: one for every few segments before, one for \
                  many after.",
    },
    About {
        name: "tso-defer",
        title: "Waiting for an ACK that is due",
        what: "A window that is nearly full opens by two segments with each ACK, and the stream \
               would move in small packets for ever. The sender waits for the next ACK, so that \
               packets grow. It waits only if that ACK is due within half of a round trip and a \
               millisecond, since a wait over a long path costs a turn.",
        source: "Linux, October 2025: the limit of a millisecond in tcp_tso_should_defer",
        figures: &[Shows::new("packets handed to TSO", "packets_sent", 0).less(), VIRTUAL],
        costs: &[SUPER, WIRE, ACKS_PER, VIRTUAL],
        scene: Scene::Bulk(10, None),
        ends: ["sender", "receiver"],
        look_at: "How many segments leave after each ACK.",
    },
    About {
        name: "ring-window",
        title: "A window that the device can hold",
        what: "The queue of a TUN device holds 1000 packets. A receiver whose buffer grows by \
               itself advertises more than that, and the sender fills the queue until it drops. \
               With a window of less than the queue nothing is dropped.",
        source: "RootlessKit, pull request 615, July 2026",
        figures: &[
            Shows::new("kilobytes in the queue, at most", "queue_bytes_max", 0).scaled(1e3).less(),
            Shows::new("throughput, Mbit/s, virtual", "throughput_bits_per_s", 0)
                .scaled(1e6)
                .more(),
        ],
        costs: &[
            Shows::new("packets dropped per gigabyte", "dropped_per_gigabyte", 0).less(),
            Shows::new("retransmitted segments", "retransmitted", 0).less(),
            WIRE,
        ],
        scene: Scene::Bulk(24, None),
        ends: ["sender", "receiver"],
        look_at: "",
    },
    About {
        name: "busy-loop",
        title: "Polling while it pays",
        what: "A loop that has nothing to do sleeps, and the next packet has to wake it, which \
               costs more than a small transaction. Here the loop looks again for a while. It \
               gives its processor to others meanwhile, and learns whether looking finds \
               anything; if not, it sleeps at once.",
        source: "Joe Damato and Martin Karsten, November 2024: “Suspend IRQs during application \
                 busy periods” (Linux 6.13)",
        figures: &[TRANSACTIONS, CPU_PER],
        costs: &[CPU_PER, CPU, SWITCHES_PER, TRANSACTIONS],
        scene: Scene::Transaction,
        ends: ["client", "server"],
        look_at: "",
    },
];

/// What every section shows that has no description of its own.
static OTHER: About = About {
    name: "",
    title: "",
    what: "",
    source: "",
    figures: &[],
    costs: &[CPU, VOLUNTARY, OTHERS, ACKS, WIRE, SUPER],
    scene: Scene::Transaction,
    ends: ["client", "server"],
    look_at: "",
};

/// The description of an experiment.
pub(crate) fn about(name: &str) -> &'static About {
    ALL.iter().find(|about| about.name == name).unwrap_or(&OTHER)
}

impl About {
    /// How the packets of a column are drawn.
    pub(crate) fn look(&self, column: Column) -> Look {
        let remark: Option<fn(&Packet) -> Option<&'static str>> = match (self.name, column) {
            ("pure-ack", Column::Before) => Some(queued),
            ("pure-ack", _) => Some(worked_on),
            _ => None,
        };
        Look { ends: self.ends, remark }
    }

    /// What is looked for in a capture, with the figures of its column.
    pub(crate) fn kind(&self, figures: &serde_json::Value) -> Kind {
        match self.scene {
            Scene::Transaction => Kind::Transaction,
            Scene::Bulk(data, None) => Kind::Bulk { data, octets: None, words: "" },
            Scene::Bulk(data, Some((path, words))) => {
                let octets = figures.get(path).and_then(serde_json::Value::as_f64);
                Kind::Bulk { data, octets, words }
            }
        }
    }
}

/// What becomes of an ACK without data while the thread that reads is blocked.
fn queued(packet: &Packet) -> Option<&'static str> {
    is_pure_ack(packet).then_some("queued for the reader")
}

fn worked_on(packet: &Packet) -> Option<&'static str> {
    is_pure_ack(packet).then_some("worked on by the stack's thread")
}

fn is_pure_ack(packet: &Packet) -> bool {
    !packet.sent && packet.len == 0
}
