//! `docs/sysctls.md` and `docs/counters.md` are made from the tables in the code.
//!
//! `cargo xtask docs` writes them: it runs this test with `PLIMSOLL_WRITE_DOCS` set. Without that
//! the test holds the pages to the tables, so that a setting or a counter cannot change without
//! its page.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use plimsoll::{CounterInfo, SysctlInfo};

const SYSCTLS: &str = "\
# Settings

<!-- Made from the code by `cargo xtask docs`; edit
crates/stack/src/policies/sysctl/entries.rs instead. -->

Settings can be changed while the stack runs: with `plimsoll sysctl NAME[=VALUE]` in a running
program, with `--sysctl NAME=VALUE` at its start, and in your own program with
`StackBuilder::sysctl`, `Stack::sysctl` and `Stack::set_sysctl`. A change applies from the next call
of the engine on, also to open connections, except where a line says *new*. A running timer keeps
its time. A value that is not allowed is refused with the words of the third column.
`plimsoll sysctl --explain` prints this page without a running program.

Names that begin with `net.` are Linux's, with Linux's meaning unless the line says otherwise; names
that begin with `plimsoll.` are our own. Each applies to one stack. The last column names the socket
option that overrides it. [mechanisms.md](mechanisms.md) explains the most important ones.
";

const COUNTERS: &str = "\
# Counters

<!-- Made from the code by `cargo xtask docs`; edit the tables in crates/tcp/src/counters.rs and
crates/stack/src/snmp.rs instead. -->

`plimsoll nstat` prints the counters of a running program (with `-z` also those that are zero, with
words only those that contain one), and `Stack::counters` returns those of a stack in your own
program. They start at zero with the stack and never decrease. Two figures are not counts:
`plimsoll.MemoryUsed`, which goes up and down, and `plimsoll.MemoryPeak`, its highest value so far.
`plimsoll nstat --explain` prints this page without a running program.

Names are Linux's, with Linux's meaning unless the line says otherwise; those that begin with
`plimsoll.` are our own. *Segments* are counted as on the wire: a super-segment counts as often as
it is cut. *Packets* are counted at IP: a super-segment is one. `plimsoll ss -i` shows the same for
one connection, and under `held_*` how often and how long each reason has held it.
";

/// Prefixes of names, of which the longest counts, each with the title of its group.
const SYSCTL_GROUPS: [(&str, &str); 5] = [
    ("net.ipv4.tcp_", "TCP"),
    ("plimsoll.", "Plimsoll's own"),
    ("net.core.", "Core"),
    ("net.ipv4.", "IPv4 and ICMP"),
    ("net.ipv6.", "IPv6"),
];
const COUNTER_GROUPS: [(&str, &str); 9] = [
    ("plimsoll.", "Plimsoll's own"),
    ("TcpExt", "TCP, extended"),
    ("IpExt", "IPv4, extended"),
    ("Ip6", "IPv6"),
    ("Icmp6", "ICMPv6"),
    ("Ip", "IPv4"),
    ("Icmp", "ICMP"),
    ("Tcp", "TCP"),
    ("Udp", "UDP"),
];

fn title<'a>(groups: &[(&str, &'a str)], name: &str) -> &'a str {
    let found = groups.iter().filter(|(prefix, _)| name.starts_with(prefix));
    let found = found.max_by_key(|(prefix, _)| prefix.len());
    found.unwrap_or_else(|| panic!("{name} belongs to no group")).1
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\t', '\n'], " ")
}

/// A description, and behind it how Linux differs.
fn described(doc: &str, linux: &str) -> String {
    if linux.is_empty() { cell(doc) } else { cell(&format!("{doc} *{linux}*")) }
}

fn sysctls() -> String {
    let mut page = SYSCTLS.to_owned();
    let all = SysctlInfo::all();
    for (_, group) in SYSCTL_GROUPS {
        page += &format!("\n## {group}\n\n");
        page += "| name | what it does | default; what may be given | for one socket |\n";
        page += "|---|---|---|---|\n";
        for info in all.iter().filter(|info| title(&SYSCTL_GROUPS, info.name) == group) {
            let SysctlInfo { name, doc, default, allowed, socket, linux, .. } = info;
            let (doc, default) = (described(doc, linux), cell(default));
            let socket = if socket.is_empty() { String::new() } else { cell(socket) };
            writeln!(page, "| `{name}` | {doc} | `{default}`; {} | {socket} |", cell(allowed))
                .expect("a string takes all");
        }
    }
    page
}

fn counters() -> String {
    let mut page = COUNTERS.to_owned();
    let mut last = "";
    for CounterInfo { name, doc, linux, .. } in CounterInfo::all() {
        let group = title(&COUNTER_GROUPS, name);
        if group != last {
            page += &format!("\n## {group}\n\n| name | what it counts |\n|---|---|\n");
            last = group;
        }
        writeln!(page, "| `{name}` | {} |", described(doc, linux)).expect("a string takes all");
    }
    page
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the pages are to be written, and nothing else.
fn writing() -> bool {
    env::var_os("PLIMSOLL_WRITE_DOCS").is_some()
}

fn hold(path: &str, page: &str) {
    let file = root().join(path);
    if writing() {
        fs::write(&file, page).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(there == page, "{path} is not what the code says; run: cargo xtask docs");
}

#[test]
fn settings_are_documented() {
    hold("docs/sysctls.md", &sysctls());
}

#[test]
fn counters_are_documented() {
    hold("docs/counters.md", &counters());
}

/// The methods and options that the settings name exist.
#[test]
fn options_of_sockets_exist() {
    if writing() {
        return;
    }
    let sources = ["options", "stream", "listener"].map(|name| {
        fs::read_to_string(root().join(format!("crates/plimsoll/src/{name}.rs"))).unwrap()
    });
    let engine = |name: &str| fs::read_to_string(root().join("crates/tcp/src").join(name)).unwrap();
    let (config, route) = (engine("config.rs"), engine("route.rs"));
    for info in SysctlInfo::all() {
        for word in info.socket.split('`').skip(1).step_by(2) {
            let (owner, item) = word.split_once("::").unwrap_or_else(|| panic!("{word}"));
            let there = match owner {
                "SetOption" => config.contains(&format!("    {item}(")),
                "Options" => config.contains(&format!("    pub {item}:")),
                "RouteMetrics" => route.contains(&format!("    pub {item}:")),
                _ => sources.iter().any(|source| source.contains(&format!("pub fn {item}("))),
            };
            assert!(there, "{}: there is no {word}", info.name);
        }
    }
}
