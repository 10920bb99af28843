use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn leg() -> Leg {
    Leg { rtt_us: 20_000, cwnd: 10, since_sent_ms: 5, since_received_ms: 5, ..Leg::default() }
}

fn line(port: u16, network: Leg) -> ConnectionLine {
    ConnectionLine {
        far: SocketAddr::new("198.51.100.7".parse().unwrap(), port),
        name: None,
        near: "10.0.2.15:40000".parse().unwrap(),
        role: Role::Server,
        state: "ESTAB".to_owned(),
        age_ms: Some(3_000),
        network: Some(network),
        inside: None,
    }
}

fn answer(lines: impl IntoIterator<Item = ConnectionLine>) -> Connections {
    Connections { lines: lines.into_iter().collect(), ..Connections::default() }
}

/// The row of a connection with these two answers, two seconds apart.
fn row(before: ConnectionLine, now: ConnectionLine) -> Row {
    rows(&answer([now]), Some((&answer([before]), 2 * SECOND))).remove(0)
}

/// The column of a connection whose figures were zero before.
fn held(network: Leg) -> Held {
    row(line(7, leg()), line(7, network)).held
}

fn by(cause: &str, share: f64) -> Held {
    Held::By(cause.to_owned(), share)
}

#[test]
fn rates_are_those_between_two_answers() {
    let before = line(7, Leg { sent: 1000, received: 50, retrans: 4, ..leg() });
    let now = line(7, Leg { sent: 5000, received: 1050, retrans: 5, unsent: 9, ..leg() });
    let row = row(before.clone(), now.clone());
    assert_eq!(row.rates, Some([2000.0, 500.0]));
    assert_eq!(row.bytes, Some([5000, 1050]));
    assert_eq!((row.retransmitted, row.unsent), ((1, 5), Some(9)));
    assert_eq!((row.rtt, row.age), (Some(20 * SECOND / 1000), Some(3 * SECOND)));
    let all = totals(std::slice::from_ref(&row), Some(2 * SECOND));
    assert_eq!(all, Totals { rates: Some([2000.0, 500.0]), retransmitted: 0.5 });
    // Without an answer before there is none.
    let first = rows(&answer([now.clone()]), None).remove(0);
    assert_eq!((first.rates, first.retransmitted), (None, (0, 5)));
    assert_eq!(totals(&[first], None), Totals::default());
    // A connection that has begun since had nothing before, nor had one whose addresses an earlier
    // one had.
    let new = rows(&answer([now.clone()]), Some((&answer([]), SECOND))).remove(0);
    assert_eq!(new.rates, Some([5000.0, 1050.0]));
    let earlier = line(7, Leg { sent: 9_000_000, ..leg() });
    let new = rows(&answer([now]), Some((&answer([earlier]), SECOND))).remove(0);
    assert_eq!(new.rates, Some([5000.0, 1050.0]));
}

#[test]
fn the_cause_with_most_of_the_time_is_shown() {
    let micros = 1_000_000;
    let window = Leg { busy_us: 2 * micros, rwnd_us: micros, sndbuf_us: micros / 2, ..leg() };
    assert_eq!(held(window.clone()), by("server reads slowly", 0.5));
    assert_eq!(held(Leg { rwnd_us: 0, ..window.clone() }), by("send buffer", 0.25));
    let full = Leg { rwnd_us: 0, in_flight: 10, unsent: 1, ..window };
    assert_eq!(held(full.clone()), by("congestion window", 0.75));
    // Less in flight than it allows: a request waits for its ACK, and nothing holds data.
    assert_eq!(held(Leg { sndbuf_us: 0, in_flight: 1, unsent: 0, ..full }), Held::Unknown);
    assert_eq!(held(Leg { retrans: 30, ..leg() }), by("data lost", 0.3));
    assert_eq!(held(Leg { retrans: 9, ..leg() }), Held::Unknown, "less than a tenth");
    assert_eq!(held(Leg { out_of_order: 10, ..leg() }), Held::Gaps);
    assert_eq!(held(Leg { out_of_order: 9, ..leg() }), Held::Unknown, "20 ms each, in 2 s");
    // It has recovered all the time from a loss without anything to count.
    let recovers = Leg { recovers: true, ..leg() };
    assert_eq!(row(line(7, recovers.clone()), line(7, recovers)).held, by("data lost", 1.0));
    for (name, cause) in
        [("nagle", "Nagle's rule"), ("cwnd", "congestion window"), ("small_queue", "small queue")]
    {
        let holds = |count: u64, time| Leg { holds: vec![(name.to_owned(), count, time)], ..leg() };
        let held =
            |count: u64| row(line(7, holds(8, micros)), line(7, holds(8 + count, 2 * micros))).held;
        assert_eq!(held(200), by(cause, 0.5));
        // The tail of bulk data, which waits for less than 5 ms each time.
        let short = if name == "nagle" { Held::Unknown } else { by(cause, 0.5) };
        assert_eq!(held(201), short);
    }
}

#[test]
fn the_command_s_side_counts_as_well() {
    let inside = |rwnd_us, retrans| {
        // Of the server's data some waits in the gateway.
        let sent = (u64::from(retrans) - 1) * 1000;
        let inside = Some(Leg { rwnd_us, retrans, sent, ..Leg::default() });
        ConnectionLine { inside, ..line(7, Leg { rwnd_us: rwnd_us / 2, ..leg() }) }
    };
    let row = row(inside(0, 1), inside(1_900_000, 3));
    assert_eq!((row.rates, row.bytes), (Some([0.0, 1000.0]), Some([0, 2000])));
    assert_eq!(row.held, by("command reads slowly", 0.95));
    assert_eq!(row.retransmitted, (2, 3), "a link may lose packets of that side");
    assert_eq!(row.held.text(), "command reads slowly 95 %");
}

#[test]
fn a_silent_connection_waits_for_the_server_or_is_idle() {
    let asked = Leg { sent: 9, received: 3, since_sent_ms: 4000, since_received_ms: 9000, ..leg() };
    assert_eq!(held(asked.clone()), Held::NoAnswer(4 * SECOND));
    assert_eq!(Held::NoAnswer(4 * SECOND).text(), "no answer 4.0 s");
    assert_eq!(held(Leg { since_sent_ms: 199, ..asked.clone() }), Held::Unknown);
    // The server's host does not have it yet, or it has answered.
    assert_eq!(held(Leg { in_flight: 1, ..asked.clone() }), Held::Idle(4 * SECOND));
    assert_eq!(held(Leg { since_received_ms: 3000, ..asked.clone() }), Held::Idle(3 * SECOND));
    // A visitor, or a peer, owes no answer.
    for role in [Role::Visitor, Role::Peer] {
        let line = ConnectionLine { role, ..line(7, asked.clone()) };
        assert_eq!(row(line.clone(), line).held, Held::Idle(4 * SECOND));
    }
    let mut dialled = line(7, leg());
    dialled.state = "SYN-SENT".to_owned();
    assert_eq!(row(dialled.clone(), dialled).held, Held::NoAnswer(3 * SECOND));
    // Without figures nothing is said.
    let unknown = ConnectionLine { network: None, ..line(7, leg()) };
    let row = row(unknown.clone(), unknown);
    assert_eq!((row.held, row.rates, row.rtt), (Held::Unknown, None, None));
}

#[test]
fn destinations_have_the_name_that_was_looked_up() {
    let far = |line: ConnectionLine| {
        let (host, port) = far(&line);
        host + &port
    };
    let plain = line(443, leg());
    assert_eq!(far(plain.clone()), "198.51.100.7:443");
    assert_eq!(
        far(ConnectionLine { name: Some("a.example".into()), ..plain.clone() }),
        "a.example:443"
    );
    let v6 = ConnectionLine { far: "[2001:db8::7]:443".parse().unwrap(), ..plain.clone() };
    assert_eq!(far(v6), "[2001:db8::7]:443");
    let visitor =
        ConnectionLine { role: Role::Visitor, near: "10.0.2.15:80".parse().unwrap(), ..plain };
    assert_eq!(far(visitor), "198.51.100.7 > :80");
}

#[test]
fn a_cause_ranks_above_a_late_answer() {
    let held = [
        by("data lost", 1.0),
        by("data lost", 0.1),
        Held::Gaps,
        Held::NoAnswer(9 * SECOND),
        Held::NoAnswer(SECOND),
        Held::Unknown,
    ];
    assert!(held.windows(2).all(|pair| pair[0].rank() > pair[1].rank()), "{held:?}");
}

#[test]
fn orders() {
    let lines = |sent: [u64; 3]| {
        let line = |(port, sent): (u16, u64)| {
            let number = u64::from(port);
            let leg = Leg {
                sent,
                rtt_us: number * 1000,
                retrans: 4 - u32::from(port),
                // Nothing at first.
                rwnd_us: sent.min(1) * (300_000 - 100_000 * number.abs_diff(2)),
                ..leg()
            };
            line(port, leg)
        };
        answer([1, 2, 3].into_iter().zip(sent).map(line))
    };
    let mut rows = rows(&lines([5, 9, 7]), Some((&lines([0; 3]), SECOND)));
    let mut order = Order::default();
    let mut seen = Vec::new();
    for _ in 0..5 {
        order.sort(&mut rows);
        seen.push((order.name(), rows.iter().map(|row| row.far.1.as_str()).collect::<String>()));
        order = order.next();
    }
    let expected = [
        ("rate", ":2:3:1"),
        ("RTT", ":3:2:1"),
        ("retransmissions", ":1:2:3"),
        ("held up", ":2:1:3"),
        ("destination", ":1:2:3"),
    ];
    assert_eq!(seen, expected.map(|(name, ports)| (name, ports.to_owned())));
    assert_eq!(order, Order::default());
}
