//! The same calls with and without `plimsoll run`: a program has to see the same, except for the
//! differences that are named here and in docs/run.md.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::harness::behind::{PYTHON, World};
use crate::harness::netns::Namespace;
use crate::harness::path::DEVICE;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::{FAR, NEAR};

pub(crate) const CASES: &[Case] = &[
    // Most of its time is spent waiting for timeouts.
    Case { limit: Duration::from_secs(60), ..Case::light("run::calls_end_as_without_run", calls) },
    Case::light("run::a_visitor_sees_the_server_s_ends", visits),
];

const LATER: Duration = Duration::from_secs(50);

const FAR_SECOND: &str = "198.51.100.3";
const NEAR6: &str = "2001:db8:1::1";
const FAR6: &str = "2001:db8:1::2";
const FAR_SECOND6: &str = "2001:db8:1::3";

/// A difference that is expected: the call, its outcome without `run` and with it.
type Difference = (&'static str, &'static str, &'static str);

/// Differences that are expected, by their reasons. A fault is to be mended, and then its lines go.
const DIFFERENCES: &[(&str, &[Difference])] = &[
    (
        "no ICMP error stands for a route of the host that prohibits or drops",
        &[
            ("v4 connect, address prohibited", "EACCES", "EHOSTUNREACH"),
            ("v4 connect, address dropped", "EINVAL", "EHOSTUNREACH"),
            ("v6 connect, address dropped", "EINVAL", "EHOSTUNREACH"),
        ],
    ),
    (
        "the host itself is closed",
        &[("connect, the host's own address", "ECONNREFUSED", "EHOSTUNREACH")],
    ),
    (
        "the command has addresses of its own, and the host chooses the port of a connection",
        &[
            ("v4 getsockname", "198.51.100.1", "10.0.2.15"),
            ("v6 getsockname", "2001:db8:1::1", "fd70:6c69:6d73:2::15"),
            ("v4 server sees the client's port", "True", "False"),
            ("v6 server sees the client's port", "True", "False"),
            (
                "order of addresses of a name",
                "['2001:db8:1::2', '198.51.100.2']",
                "['198.51.100.2', '2001:db8:1::2']",
            ),
        ],
    ),
    (
        "a datagram is sent before the host's routing has been looked up",
        &[
            ("v4 datagram to no route", "ENETUNREACH", "1"),
            ("v4 datagram to no route, connect", "ENETUNREACH", "None"),
            ("v4 datagram to unreachable", "EHOSTUNREACH", "1"),
            ("v4 datagram to unreachable, connect", "EHOSTUNREACH", "None"),
            ("v4 datagram to prohibited", "EACCES", "1"),
            ("v4 datagram to prohibited, connect", "EACCES", "None"),
            ("v4 datagram to dropped", "EINVAL", "1"),
            ("v4 datagram to dropped, connect", "EINVAL", "None"),
            ("v6 datagram to no route", "ENETUNREACH", "1"),
            ("v6 datagram to no route, connect", "ENETUNREACH", "None"),
            ("v6 datagram to unreachable", "EHOSTUNREACH", "1"),
            ("v6 datagram to unreachable, connect", "EHOSTUNREACH", "None"),
            ("v6 datagram to prohibited", "EACCES", "1"),
            ("v6 datagram to prohibited, connect", "EACCES", "None"),
            ("v6 datagram to dropped", "EINVAL", "1"),
            ("v6 datagram to dropped, connect", "EINVAL", "None"),
        ],
    ),
    (
        "the gateway acknowledges data, so the command cannot notice that the server has gone",
        &[("vanished server, TCP_USER_TIMEOUT", "ETIMEDOUT", "timed out")],
    ),
    (
        "the host's sockets have headers of their own",
        &[("TOS and TTL at the server", "[(1, 72), (2, 33)]", "[(1, 0), (2, 64)]")],
    ),
    (
        "an ICMP error has no data of the datagram, and comes only if it ends the flow",
        &[
            (
                "error queue, port closed",
                "ECONNREFUSED origin 2 type 3 code 3 from 198.51.100.2 for b'lost' \
                 to 198.51.100.2",
                "ECONNREFUSED origin 2 type 3 code 3 from 198.51.100.2 for b'' to 198.51.100.2",
            ),
            (
                "error queue, port prohibited",
                "EHOSTUNREACH origin 2 type 3 code 13 from 198.51.100.2 for b'lost' \
                 to 198.51.100.2",
                "EHOSTUNREACH origin 2 type 3 code 13 from 198.51.100.2 for b'' to 198.51.100.2",
            ),
            (
                "error queue, port unreachable",
                "EHOSTUNREACH origin 2 type 3 code 1 from 198.51.100.2 for b'lost' \
                 to 198.51.100.2",
                "empty",
            ),
            (
                "error queue, port no_route",
                "ENETUNREACH origin 2 type 3 code 0 from 198.51.100.2 for b'lost' \
                 to 198.51.100.2",
                "empty",
            ),
        ],
    ),
];

/// The same for a visitor of a published port.
const VISIT_DIFFERENCES: &[(&str, &[Difference])] = &[
    (
        "the host accepts before the command is dialled",
        &[("nothing listens", "ECONNREFUSED", "connected, ECONNRESET")],
    ),
    (
        "the visitor's address is kept, and its port is not",
        &[("server sees the client's port", "True", "False")],
    ),
];

/// The TCP ports of peers.py, and one without a socket.
const PEER_PORTS: RangeInclusive<u16> = 5000..=5017;

/// The names that the calls look up.
const HOSTS: &str = "127.0.0.1 localhost
2001:db8:1::2 both.test
198.51.100.2 both.test
2001:db8:1::3 six-refused.test
198.51.100.2 six-refused.test
2001:db8:2::67 six-dropped.test
198.51.100.2 six-dropped.test
2001:db8:2::65 six-unreachable.test
198.51.100.2 six-unreachable.test
2001:db8:f::1 six-no-route.test
198.51.100.2 six-no-route.test
203.0.113.67 four-dropped.test
2001:db8:1::2 four-dropped.test
";

/// The packet filter of the far host, for the ports of peers.py without a socket.
const FILTER: &str = "table inet calls {
  chain input {
    type filter hook input priority 0;
    ip6 daddr 2001:db8:1::3 meta l4proto tcp reject with tcp reset
    meta l4proto { tcp, udp } th dport 5018 drop
    meta l4proto { tcp, udp } th dport 5019 reject with icmpx type admin-prohibited
    meta l4proto { tcp, udp } th dport 5020 reject with icmpx type no-route
    meta l4proto { tcp, udp } th dport 5021 reject with icmpx type host-unreachable
    meta l4proto { tcp, udp } th dport 5022 reject with icmpx type port-unreachable
  }
}
";

/// Both hosts with both versions of IP, addresses that cannot be reached in several ways, and the
/// scripts.
fn world() -> Result<World> {
    let world = World::with_delay()?;
    let (near, far) = (&world.hosts.near, &world.hosts.far);
    near.ip(&format!("-6 addr add {NEAR6}/64 dev {DEVICE} nodad"))?;
    far.ip(&format!("-6 addr add {FAR6}/64 dev {DEVICE} nodad"))?;
    far.ip(&format!("-6 addr add {FAR_SECOND6}/64 dev {DEVICE} nodad"))?;
    far.ip(&format!("addr add {FAR_SECOND}/24 dev {DEVICE}"))?;
    // A network with a neighbour that does not answer.
    near.ip("link add empty0 type veth peer name empty1")?;
    near.ip("link set empty0 up")?;
    near.ip("link set empty1 up")?;
    near.ip("addr add 203.0.113.97/28 dev empty0")?;
    near.sysctl("net/ipv4/neigh/empty0/mcast_solicit", "1")?;
    for group in ["224.0.0.0/4", "255.255.255.255/32"] {
        near.ip(&format!("route add {group} dev {DEVICE}"))?;
    }
    // The far kernel's answers are not limited in number.
    far.sysctl("net/ipv4/icmp_ratelimit", "0")?;
    far.sysctl("net/ipv6/icmp/ratelimit", "0")?;
    far.sysctl("net/ipv4/ip_forward", "1")?;
    far.sysctl("net/ipv6/conf/all/forwarding", "1")?;
    near.ip(&format!("route add 203.0.113.64/28 via {FAR}"))?;
    near.ip(&format!("-6 route add 2001:db8:2::/64 via {FAR6}"))?;
    refuse(far, "203.0.113", "65 66 67", "2001:db8:2")?;
    refuse(near, "203.0.113", "33 34 35", "2001:db8:3")?;
    for (name, text) in [
        ("hosts", HOSTS),
        ("filter", FILTER),
        ("calls.py", include_str!("calls.py")),
        ("peers.py", include_str!("peers.py")),
    ] {
        std::fs::write(world.scratch.file(name), text).context("writing a script")?;
    }
    far.run(&format!("nft -f {}", world.scratch.file("filter").display()))?;
    Ok(world)
}

/// Three routes of each version that refuse.
fn refuse(host: &Namespace, net: &str, ends: &str, net6: &str) -> Result<()> {
    for (end, kind) in ends.split(' ').zip(["unreachable", "prohibit", "blackhole"]) {
        host.ip(&format!("route add {kind} {net}.{end}/32"))?;
        host.ip(&format!("-6 route add {kind} {net6}::{end}/128"))?;
    }
    Ok(())
}

/// The outcomes of calls by their names.
type Outcomes = BTreeMap<String, String>;

/// Adds the lines of a script. Several of one name count in their order.
fn add(outcomes: &mut Outcomes, lines: &str) -> Result<()> {
    for line in lines.lines().filter(|line| *line != "ready") {
        let (name, outcome) = line.split_once(": ").with_context(|| format!("no name: {line}"))?;
        let before = outcomes.entry(name.to_owned()).or_default();
        if !before.is_empty() {
            before.push_str(", then ");
        }
        before.push_str(outcome);
    }
    Ok(())
}

/// Runs the calls with fresh peers at the far host.
fn outcomes(with_run: bool) -> Result<Outcomes> {
    let world = world()?;
    let script = |name: &str| world.scratch.file(name).to_string_lossy().into_owned();
    let mut peers = world.hosts.far.command(PYTHON);
    peers.args(["-B", &script("peers.py"), FAR, FAR_SECOND, FAR6]);
    let calls = script("calls.py");
    let words = [PYTHON, "-B", &calls];
    let mut calls = if with_run { world.run(&[], &words)? } else { world.directly(&words) };
    lines_of(&mut peers, &mut calls)
}

/// Runs the calls of a visitor at the far host, with the peers as the command.
fn visited(with_run: bool) -> Result<Outcomes> {
    let world = world()?;
    let script = |name: &str| world.scratch.file(name).to_string_lossy().into_owned();
    let publish: Vec<String> =
        PEER_PORTS.flat_map(|port| ["-p".into(), format!("{NEAR}:{port}:{port}")]).collect();
    let publish: Vec<&str> = publish.iter().map(String::as_str).collect();
    let peers = script("peers.py");
    let words = [PYTHON, "-B", &peers];
    let mut peers = if with_run { world.run(&publish, &words)? } else { world.directly(&words) };
    let mut calls = world.hosts.far.command(PYTHON);
    calls.args(["-B", &script("calls.py"), "visit", NEAR]);
    lines_of(&mut peers, &mut calls)
}

/// Runs the peers and then the calls, both to their ends.
fn lines_of(peers: &mut Command, calls: &mut Command) -> Result<Outcomes> {
    let mut peers = Process::spawn("peers.py", peers)?;
    peers.wait_line(LATER, |line| line == "ready")?;
    let calls = Process::spawn("calls.py", calls)?.success(LATER)?;
    let peers = peers.success(LATER)?;
    let mut outcomes = Outcomes::new();
    add(&mut outcomes, &calls.stdout)?;
    add(&mut outcomes, &peers.stdout)?;
    Ok(outcomes)
}

/// Compares all outcomes, of which there are at least so many. Each difference has to be an
/// expected one, and each expected one has to be there.
fn compare(
    outcomes: fn(bool) -> Result<Outcomes>,
    differences: &[(&str, &[Difference])],
    least: usize,
) -> Result<()> {
    // Side by side, since most of their time is spent waiting.
    let (without, with) = thread::scope(|threads| {
        let without = threads.spawn(move || outcomes(false));
        let with = outcomes(true);
        (without.join(), with)
    });
    let without = without.map_err(|_| anyhow!("the calls without run: a panic"))??;
    let with = with?;
    let mut expected: BTreeMap<&str, (&str, &str)> = differences
        .iter()
        .flat_map(|(_, differences)| *differences)
        .map(|&(name, without, with)| (name, (without, with)))
        .collect();
    let names: BTreeSet<&String> = without.keys().chain(with.keys()).collect();
    ensure!(names.len() >= least, "there are {} lines only", names.len());
    let none = "no such line".to_owned();
    let mut wrong = Vec::new();
    for name in names {
        let found = (without.get(name).unwrap_or(&none), with.get(name).unwrap_or(&none));
        let is_right = match expected.remove(name.as_str()) {
            Some((without, with)) => found.0 == without && found.1 == with,
            None => found.0 == found.1,
        };
        if !is_right {
            let (without, with) = found;
            wrong.push(format!("{name}\n  without run: {without}\n  with run:    {with}"));
        }
    }
    wrong.extend(expected.keys().map(|name| format!("{name}: {none}")));
    ensure!(wrong.is_empty(), "these are not as expected:\n{}", wrong.join("\n"));
    Ok(())
}

fn calls() -> Result<()> {
    compare(outcomes, DIFFERENCES, 280)
}

fn visits() -> Result<()> {
    compare(visited, VISIT_DIFFERENCES, 40)
}
