//! Rows from two answers: rates, and what held each connection up between them.
//!
//! A cause is the one to which most of the time between the answers went, and its share of that
//! time. Causes have the names that `plimsoll run --explain` uses.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::control::protocol::{ConnectionLine, Connections, Leg, Role};

/// The share of the time below which a cause is not shown.
const LEAST_SHARE: f64 = 0.1;
/// An answer that takes less is not late, as for `run --explain`.
const LATE: Duration = Duration::from_millis(200);

/// Shorter waits for more data are those of any transfer, as for `run --explain`.
const NOTICEABLE_US: u64 = 5000;

/// One connection on the screen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The other host, and the part behind it that is always shown.
    pub(super) far: (String, String),
    pub(super) near_port: u16,
    pub(super) state: String,
    pub(super) age: Option<Duration>,
    /// Bytes per second away from the program and towards it, if there was an answer before.
    pub(super) rates: Option<[f64; 2]>,
    /// Those in all. Data counts once it is on its way to its receiver.
    pub(super) bytes: Option<[u64; 2]>,
    pub(super) rtt: Option<Duration>,
    pub(super) cwnd: Option<u32>,
    pub(super) in_flight: Option<u32>,
    /// Segments that were retransmitted between the answers, and since it opened.
    pub(super) retransmitted: (u32, u32),
    pub(super) unsent: Option<u64>,
    pub(super) held: Held,
    key: (SocketAddr, SocketAddr),
}

/// The reason why a connection moves no more data than it does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held {
    /// Nothing that the figures show.
    Unknown,
    /// A cause, and its share of the time.
    By(String, f64),
    /// Data arrives behind a hole.
    Gaps,
    /// The server has what was sent, and has not answered for this long.
    NoAnswer(Duration),
    /// No data has moved for this long.
    Idle(Duration),
}

impl Held {
    /// A number that is higher the more a connection is held up.
    fn rank(&self) -> f64 {
        match self {
            Held::By(_, share) => 3.0 + share,
            Held::Gaps => 2.0,
            // From one to two.
            Held::NoAnswer(time) => 2.0 - 1.0 / (1.0 + time.as_secs_f64()),
            Held::Unknown | Held::Idle(_) => 0.0,
        }
    }

    /// The text of the column; `-` if nothing is known.
    pub(super) fn text(&self) -> String {
        match self {
            Held::Unknown => "-".to_owned(),
            Held::By(cause, share) => format!("{cause} {:.0} %", share * 100.0),
            Held::Gaps => "data arrives with gaps".to_owned(),
            Held::NoAnswer(time) => format!("no answer {}", super::text::time(*time)),
            Held::Idle(time) => format!("idle {}", super::text::time(*time)),
        }
    }
}

/// The sums over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Bytes per second away from the program and towards it, if there was an answer before.
    pub(super) rates: Option<[f64; 2]>,
    /// Segments that were retransmitted per second.
    pub(super) retransmitted: f64,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The highest rate of both directions first.
    #[default]
    Rate,
    /// The longest round trip first.
    Rtt,
    /// The most retransmissions between the answers first, then the most in all.
    Retransmissions,
    /// Those that a cause holds up first, for the greatest share; then those without an answer for
    /// the longest.
    Held,
    /// By name or address.
    Destination,
}

impl Order {
    pub(super) fn next(self) -> Order {
        match self {
            Order::Rate => Order::Rtt,
            Order::Rtt => Order::Retransmissions,
            Order::Retransmissions => Order::Held,
            Order::Held => Order::Destination,
            Order::Destination => Order::Rate,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::Rtt => "RTT",
            Order::Retransmissions => "retransmissions",
            Order::Held => "held up",
            Order::Destination => "destination",
        }
    }

    /// Sorts the rows. Those that are equal keep their places from one look to the next.
    pub(super) fn sort(self, rows: &mut [Row]) {
        let rate = |row: &Row| row.rates.map_or(0.0, |[up, down]| up + down);
        let by = |a: &Row, b: &Row| match self {
            Order::Rate => rate(b).total_cmp(&rate(a)),
            Order::Rtt => b.rtt.cmp(&a.rtt),
            Order::Retransmissions => b.retransmitted.cmp(&a.retransmitted),
            Order::Held => b.held.rank().total_cmp(&a.held.rank()),
            Order::Destination => Ordering::Equal,
        };
        rows.sort_by(|a, b| by(a, b).then_with(|| (&a.far, a.key).cmp(&(&b.far, b.key))));
    }
}

/// The rows of an answer that came so long after the one before it.
pub(super) fn rows(now: &Connections, before: Option<(&Connections, Duration)>) -> Vec<Row> {
    let key = |line: &ConnectionLine| (line.far, line.near);
    let lines = before.iter().flat_map(|(before, _)| &before.lines);
    let known: HashMap<_, _> = lines.map(|line| (key(line), line)).collect();
    let row = |line| {
        let then = before.map(|(_, time)| (known.get(&key(line)).copied(), time));
        Row::new(line, then)
    };
    now.lines.iter().map(row).collect()
}

/// The sums of the rows of answers that came so long after one another.
pub(super) fn totals(rows: &[Row], time: Option<Duration>) -> Totals {
    let Some(time) = time else { return Totals::default() };
    let rates = rows.iter().filter_map(|row| row.rates);
    let rates = rates.fold([0.0; 2], |[up, down], [more_up, more]| [up + more_up, down + more]);
    let count: u64 = rows.iter().map(|row| u64::from(row.retransmitted.0)).sum();
    Totals { rates: Some(rates), retransmitted: count as f64 / seconds(time) }
}

impl Row {
    fn new(line: &ConnectionLine, then: Option<(Option<&ConnectionLine>, Duration)>) -> Row {
        let network = line.network.as_ref();
        let none = Leg::default();
        let change = then.zip(network).map(|((before, time), leg)| {
            // Another connection may have had the same addresses.
            let same = before.and_then(|line| line.network.as_ref()).filter(|it| it.is_before(leg));
            (leg.since(same.unwrap_or(&none)), time)
        });
        let inside = then.zip(line.inside.as_ref()).map(|((before, _), leg)| {
            let same = before.and_then(|line| line.inside.as_ref()).filter(|it| it.is_before(leg));
            leg.since(same.unwrap_or(&none))
        });
        let rate = |bytes: u64, time| bytes as f64 / seconds(time);
        let down =
            |network: &Leg, inside: Option<&Leg>| inside.map_or(network.received, |it| it.sent);
        let retransmitted = [network, line.inside.as_ref()].into_iter().flatten();
        let news = change.iter().map(|(leg, _)| leg).chain(&inside).map(|leg| leg.retrans);
        Row {
            far: far(line),
            near_port: line.near.port(),
            state: line.state.clone(),
            age: line.age_ms.map(Duration::from_millis),
            rates: change.as_ref().map(|(leg, time)| {
                [leg.sent, down(leg, inside.as_ref())].map(|it| rate(it, *time))
            }),
            bytes: network.map(|leg| [leg.sent, down(leg, line.inside.as_ref())]),
            rtt: network.filter(|leg| leg.rtt_us > 0).map(|leg| {
                // The command sees the link before the gateway as well.
                let inside = line.inside.as_ref().map_or(0, |leg| leg.rtt_us);
                Duration::from_micros(leg.rtt_us + inside)
            }),
            cwnd: network.map(|leg| leg.cwnd),
            in_flight: network.map(|leg| leg.in_flight),
            retransmitted: (news.sum(), retransmitted.map(|leg| leg.retrans).sum()),
            unsent: network.map(|leg| leg.unsent),
            held: held(line, change.as_ref(), inside.as_ref()),
            key: (line.far, line.near),
        }
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-3)
}

/// The other host, by name if it has one.
fn far(line: &ConnectionLine) -> (String, String) {
    let host = match (&line.name, line.far.ip()) {
        (Some(name), _) => name.clone(),
        (None, IpAddr::V4(address)) => address.to_string(),
        (None, IpAddr::V6(address)) => format!("[{address}]"),
    };
    let port = match line.role {
        // The port that is published, not the visitor's own.
        Role::Visitor => format!(" > :{}", line.near.port()),
        Role::Server | Role::Peer => format!(":{}", line.far.port()),
    };
    (host, port)
}

impl Leg {
    /// Whether these figures may be earlier ones of the same connection.
    fn is_before(&self, now: &Leg) -> bool {
        self.sent <= now.sent && self.received <= now.received && self.busy_us <= now.busy_us
    }

    /// The increase of counts and times since `before`; the rest as it is now.
    fn since(&self, before: &Leg) -> Leg {
        let hold = |(name, count, time): &(String, u64, u64)| {
            let known = before.holds.iter().find(|(known, ..)| known == name);
            let (_, count_then, time_then) = known.cloned().unwrap_or_default();
            (name.clone(), count.saturating_sub(count_then), time.saturating_sub(time_then))
        };
        Leg {
            retrans: self.retrans.saturating_sub(before.retrans),
            out_of_order: self.out_of_order.saturating_sub(before.out_of_order),
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            rwnd_us: self.rwnd_us.saturating_sub(before.rwnd_us),
            sndbuf_us: self.sndbuf_us.saturating_sub(before.sndbuf_us),
            // Over all of the time between the two, as far as they show.
            recovers: self.recovers && before.recovers,
            holds: self.holds.iter().map(hold).collect(),
            ..self.clone()
        }
    }

    /// Microseconds that went to each cause. `reader` is the receiver of what is sent.
    fn causes(&self, reader: &str) -> Vec<(String, u64)> {
        let lost = u64::from(self.retrans) * self.rtt_us;
        let lost = if self.recovers { u64::MAX } else { lost };
        let mut causes = vec![
            (format!("{reader} reads slowly"), self.rwnd_us),
            ("data lost".to_owned(), lost),
            ("send buffer".to_owned(), self.sndbuf_us),
        ];
        // The kernel has no time for the congestion window: all that no other cause has, if data
        // waits for it.
        let rest = self.busy_us.saturating_sub(self.rwnd_us + self.sndbuf_us);
        let is_full = self.unsent > 0 && self.in_flight >= self.cwnd;
        if is_full {
            causes.push(("congestion window".to_owned(), rest));
        }
        causes.extend(self.holds.iter().filter_map(|(name, count, time)| {
            // In a bulk transfer the tail of the data waits for the next write all the time.
            let waits_for_more = matches!(&**name, "nagle" | "cork" | "autocork" | "tso_defer");
            let name = match &**name {
                "cwnd" => "congestion window".to_owned(),
                "nagle" => "Nagle's rule".to_owned(),
                other => other.replace('_', " "),
            };
            (!waits_for_more || *time >= NOTICEABLE_US * (*count).max(1)).then_some((name, *time))
        }));
        causes
    }
}

fn held(line: &ConnectionLine, change: Option<&(Leg, Duration)>, inside: Option<&Leg>) -> Held {
    let Some(network) = &line.network else { return Held::Unknown };
    if line.state == "SYN-SENT" {
        let age = Duration::from_millis(line.age_ms.unwrap_or_default());
        return if age >= LATE { Held::NoAnswer(age) } else { Held::Unknown };
    }
    let sent = Duration::from_millis(network.since_sent_ms);
    let received = Duration::from_millis(network.since_received_ms);
    if let Some((leg, time)) = change {
        let reader = match line.role {
            Role::Server => "server",
            Role::Visitor => "visitor",
            Role::Peer => "peer",
        };
        let causes = leg.causes(reader).into_iter();
        let causes = causes.chain(inside.iter().flat_map(|leg| leg.causes("command")));
        let longest = causes.max_by_key(|&(_, time)| time);
        let share = |part: u64| (part as f64 / 1e6 / seconds(*time)).min(1.0);
        if let Some((cause, part)) = longest.filter(|&(_, part)| share(part) >= LEAST_SHARE) {
            return Held::By(cause, share(part));
        }
        // How many of them one hole has delayed is not known.
        if share(u64::from(leg.out_of_order) * leg.rtt_us) >= LEAST_SHARE {
            return Held::Gaps;
        }
    }
    let is_with_server = network.unsent == 0 && network.in_flight == 0 && network.sent > 0;
    if line.role == Role::Server && is_with_server && sent < received && sent >= LATE {
        return Held::NoAnswer(sent);
    }
    let quiet = sent.min(received);
    let longest = change.map_or(LATE, |&(_, time)| time);
    if quiet >= longest { Held::Idle(quiet) } else { Held::Unknown }
}

#[cfg(test)]
mod tests;
