//! `plimsoll sim script`: what one host of a run did, as a packetdrill script.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_drill::report::{Report, Status};
use plimsoll_drill::suite;
use plimsoll_drill::transcript::{self, Event, Head, What};
use plimsoll_sim::journal::{self, Call, SocketOptions};
use plimsoll_sim::scenario::{Happening, Host};
use plimsoll_sim::{Outcome, RunConfig, Scenario, run};

use crate::UsageError;
use crate::output::print;

/// The settings that a script relies on, so that those of a machine do not matter.
const SETTINGS: [(&str, &str); 14] = [
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_ecn", "2"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_early_retrans", "3"),
    ("net.ipv4.tcp_frto", "2"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_retries2", "15"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_invalid_ratelimit", "500"),
];

/// The send buffer that the host of a script has from the beginning, if the scenario says nothing
/// of it: how much a write takes is a matter of memory, in which stacks differ.
const SEND_BUFFER: (&str, &str) = ("net.ipv4.tcp_wmem", "4096 4194304 4194304");

/// How late a packet may be. Timers of Linux keep to its tick, and those of more than 63 ticks to
/// every eighth one: with the usual tick of 4 ms they are up to 32 ms late. Here time is a number.
const TOLERANCE: &str = "--tolerance_usecs=40000";

/// `plimsoll sim script`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScriptArgs {
    /// The scenario. It has one flow
    #[arg(value_name = "SCENARIO.toml")]
    pub scenario: PathBuf,
    /// Seed of the stacks' random numbers [default: the one in the file, or 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// The host that the script is about [default: the one that connects]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Also compare the windows of packets that leave
    #[arg(long)]
    pub windows: bool,
    /// Where to write the script
    #[arg(short = 'o', long, value_name = "FILE.pkt", default_value = "run.pkt")]
    pub output: PathBuf,
}

pub(crate) fn run_command(args: &ScriptArgs) -> anyhow::Result<()> {
    let (scenario, seed) = super::read_or_draw(Some(&args.scenario), args.seed)?;
    let host = match (&args.host, scenario.flow.first()) {
        (Some(name), _) => name,
        (None, Some(flow)) => &flow.from,
        (None, None) => bail!("the scenario has no flow"),
    };
    let about = [format!("{} with seed {seed}.", args.scenario.display())];
    let text = script(&scenario, seed, host, args.windows, &about)
        .map_err(|why| UsageError(format!("{}: no script: {why}", args.scenario.display())))?;
    std::fs::write(&args.output, &text)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    print(told(&args.output, host, &text).as_bytes())
}

/// Writes a script of each end of a shrunk scenario next to it. Returns a report.
pub(crate) fn write_beside(path: &Path, scenario: &Scenario, seed: u64) -> anyhow::Result<String> {
    let mut words = String::new();
    let Some(flow) = scenario.flow.first() else { return Ok(words) };
    for host in [&flow.from, &flow.to] {
        let about = [format!("{} with seed {seed}.", path.display())];
        match script(scenario, seed, host, false, &about) {
            Ok(text) => {
                let path = path.with_extension(format!("{host}.pkt"));
                std::fs::write(&path, &text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                words.push_str(&told(&path, host, &text));
            }
            Err(why) => words.push_str(&format!("no packetdrill script of {host}: {why}\n")),
        }
    }
    Ok(words)
}

/// Says whether a script passes on the stack of this program.
fn told(path: &Path, host: &str, text: &str) -> String {
    let file = path.display().to_string();
    let report: Report = suite::run_text(&file, text, None, &suite::Options::default());
    let how = match (report.status, report.cause) {
        (Status::Passed, _) => "it passes here".to_owned(),
        (_, cause) => format!("it does not pass here: {}", cause.unwrap_or_default()),
    };
    format!("{file}: what {host} does; {how}\n")
}

/// The script of what `host` does in a run of `scenario` on this build.
fn script(
    scenario: &Scenario,
    seed: u64,
    host: &str,
    windows: bool,
    about: &[String],
) -> Result<String, String> {
    let [flow] = scenario.flow.as_slice() else {
        return Err(format!("a script has one connection, and this has {}", scenario.flow.len()));
    };
    if ![&flow.from, &flow.to].contains(&&host.to_owned()) {
        return Err(format!("'{host}' is neither '{}' nor '{}'", flow.from, flow.to));
    }
    let index = scenario.host_index(host).ok_or_else(|| format!("there is no host '{host}'"))?;
    refuse_events(scenario, host)?;
    let mut scenario = scenario.clone();
    let (name, value) = SEND_BUFFER;
    scenario.host[index].sysctl.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    let scenario = &scenario;
    let outcome =
        run(scenario, seed, &RunConfig::with_journal()).map_err(|error| error.to_string())?;
    let about = about_lines(host, about, &outcome);
    let events = events(&outcome.journal, index);
    let head = Head { about, windows, ..head(scenario, &scenario.host[index], index) };
    transcript::write(&head, &events)
}

/// Refuses events that happen to a host itself: packets cannot express them.
fn refuse_events(scenario: &Scenario, name: &str) -> Result<(), String> {
    for event in &scenario.event {
        let what = match &event.what {
            Happening::Stall { host, .. } if host == name => "is stopped",
            Happening::Clock { host, .. } if host == name => "has a clock that steps",
            Happening::Crash { host, .. } if host == name => "crashes",
            _ => continue,
        };
        return Err(format!("'{name}' {what} at {:?}, which no script can say", event.at));
    }
    Ok(())
}

fn about_lines(host: &str, from: &[String], outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![format!(
        "What {host} does, of which the expectations are those of the build that ran."
    )];
    lines.extend(from.iter().cloned());
    for fault in &outcome.faults {
        let packet = &fault.packet;
        lines.push(format!(
            "link {} {:?}, {:?} {}, {} bytes, copy {}: {:?}",
            packet.link, packet.way, packet.kind, packet.seq, packet.len, packet.nth, fault.fate
        ));
    }
    if let Some(violation) = &outcome.violation {
        lines.push(format!("The run breaks an invariant {violation}"));
    }
    lines.into_iter().flat_map(|line| wrapped(&line)).collect()
}

/// Lines of a comment that are no longer than a reader likes.
fn wrapped(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) if last.len() + word.len() < 100 => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}

fn head(scenario: &Scenario, host: &Host, index: usize) -> Head {
    let mut options = vec!["--tcp_ts_ecr_scaled".to_owned(), TOLERANCE.to_owned()];
    if scenario.flow.first().is_some_and(|flow| flow.v6) {
        options.push("--ip_version=ipv6".to_owned());
    }
    let own = |link: &&plimsoll_sim::scenario::LinkPair| {
        link.between.iter().any(|end| scenario.host_index(end) == Some(index))
    };
    if let Some(link) = scenario.link.iter().find(own) {
        options.push(format!("--mtu={}", link.forward.mtu));
    }
    let mut settings: Vec<(String, String)> = SETTINGS
        .iter()
        .filter(|(name, _)| !host.sysctl.contains_key(*name))
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // Those that Linux does not have stay at their defaults.
    let known = host.sysctl.iter().filter(|(name, _)| name.starts_with("net.ipv4."));
    settings.extend(known.map(|(name, value)| (name.clone(), value.clone())));
    Head { options, settings, ..Head::default() }
}

fn events(entries: &[journal::Entry], host: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut fd = 3;
    for entry in entries.iter().filter(|entry| entry.host == host) {
        let mut push = |what| events.push(Event { at: entry.at, what });
        match &entry.what {
            journal::What::Arrived { damaged: true, packet } => {
                push(What::Remark(format!(
                    "A damaged packet of {} bytes is left out.",
                    packet.len()
                )));
            }
            journal::What::Arrived { packet, .. } => push(What::Arrived(packet.clone())),
            journal::What::Left(packet) => push(What::Left(packet.clone())),
            journal::What::Called { call, .. } => {
                if *call == Call::Accept {
                    push(What::Call("accept(3, ..., ...) = 4".to_owned()));
                    fd = 4;
                } else {
                    calls(*call, fd).into_iter().for_each(|call| push(What::Call(call)));
                }
            }
            _ => {}
        }
    }
    events
}

/// A call as scripts write it.
fn calls(call: Call, fd: i32) -> Vec<String> {
    match call {
        Call::Listen(options) => {
            let mut calls = vec![SOCKET.to_owned(), REUSE.to_owned()];
            calls.extend(set_options(options));
            calls.extend(["bind(3, ..., ...) = 0".to_owned(), "listen(3, 16) = 0".to_owned()]);
            calls
        }
        Call::Connect(options) => {
            let mut calls = vec![SOCKET.to_owned()];
            calls.extend(set_options(options));
            calls.push("fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0".to_owned());
            let pending = "connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)";
            calls.push(pending.to_owned());
            calls
        }
        Call::Write(count) => vec![format!("write({fd}, ..., {count}) = {count}")],
        Call::Read { size, got } => vec![format!("read({fd}, ..., {size}) = {got}")],
        Call::Shutdown => vec![format!("shutdown({fd}, SHUT_WR) = 0")],
        Call::Close => vec![format!("close({fd}) = 0")],
        _ => Vec::new(),
    }
}

const SOCKET: &str = "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3";
const REUSE: &str = "setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0";

fn set_options(options: SocketOptions) -> Vec<String> {
    let nodelay = "setsockopt(3, SOL_TCP, TCP_NODELAY, [1], 4) = 0";
    let keepalive = "setsockopt(3, SOL_SOCKET, SO_KEEPALIVE, [1], 4) = 0";
    let all = [(options.nodelay, nodelay), (options.keepalive, keepalive)];
    all.into_iter().filter(|(on, _)| *on).map(|(_, call)| call.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
limit = "60s"
faults_until = "5s"
only_listed = true
host = [{ name = "a" }, { name = "b" }]
link = [{ between = ["a", "b"], forward = { rate = "10mbit", delay = "20ms" } }]
flow = [{ from = "a", to = "b", up = 20000, down = 3000 }]

[[fault]]
packet = { link = 0, way = "forward", flow = 0, kind = "data", seq = 1448, len = 1448, nth = 0 }
fate = { lose = true }
"#;

    /// A lost segment, seen from both ends: what is written passes where it was made.
    #[test]
    fn scripts_of_both_ends_pass_here() {
        let scenario = Scenario::parse(SCENARIO).unwrap();
        for host in ["a", "b"] {
            let text = script(&scenario, 1, host, false, &[]).unwrap();
            assert!(text.contains("sack 2897:"), "{text}");
            let report = suite::run_text("x.pkt", &text, None, &suite::Options::default());
            assert_eq!(report.status, Status::Passed, "{}\n{text}", report.text);
        }
    }

    #[test]
    fn what_has_no_script_says_why() {
        let refusal = |from: &str, to: &str, host: &str| {
            let text = SCENARIO.replace(from, to);
            script(&Scenario::parse(&text).unwrap(), 1, host, false, &[]).unwrap_err()
        };
        let flow = r#"{ from = "a", to = "b", up = 20000, down = 3000 }"#;
        let two = refusal(flow, &format!("{flow}, {flow}"), "a");
        assert!(two.contains("one connection, and this has 2"), "{two}");
        assert!(refusal("", "", "c").contains("neither 'a' nor 'b'"));
        let event = r#"event = [{ at = "1s", stall = { host = "b", for = "1s" } }]"#;
        let stopped = refusal("only_listed = true", &format!("only_listed = true\n{event}"), "b");
        assert!(stopped.contains("'b' is stopped"), "{stopped}");
    }
}
