//! Many connections at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::netns::run;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{OURS, World, plimsoll_program};

const SOON: Duration = Duration::from_secs(60);

/// The floor of the budget for an idle connection.
const IDLE_BYTES: f64 = 4096.0;

pub(crate) const CASES: &[Case] = &[
    Case::heavy("many::10000_connections_from_the_kernel", ten_thousand),
    Case::heavy("many::10000_idle_connections_in_memory", idle),
    Case::light("many::counters_settings_and_sockets_can_be_asked_for", control),
];

fn ten_thousand() -> Result<()> {
    let world = World::new()?;
    world.ns.sysctl("net/ipv4/ip_local_port_range", "1024 65000")?;
    let server = world.serve(&["echo:7"])?;
    let address = format!("{OURS}:7");
    let words = ["many", &address, "--count", "10000", "--hold", "1"];
    let mut many = Process::spawn("many", &mut world.peer(&words)?)?;
    many.wait_line(SOON, |line| line == "echoed")?;
    let sockets = ask(&server, &["ss"])?;
    let open = sockets.lines().filter(|line| line.contains("ESTAB")).count();
    ensure!(open >= 10_000, "`plimsoll ss` shows {open} open connections");
    drop(many);
    server.end_cleanly(Signal::TERM, SOON)
}

fn idle() -> Result<()> {
    let world = World::new()?;
    let file = world.scratch.file("idle.json");
    let program = plimsoll_program()?;
    let mut command = world.ns.command(&program.to_string_lossy());
    command.args(["idle", "-n", "10000", "--json"]).arg(&file);
    Process::spawn("plimsoll idle", &mut command)?.success(SOON)?;
    let text = std::fs::read_to_string(&file).context("reading the figures")?;
    let figures: Value = serde_json::from_str(&text).context("the figures are JSON")?;
    let bytes = idle_bytes(&figures).context("no bytes per connection in the figures")?;
    ensure!(bytes <= IDLE_BYTES, "an idle connection holds {bytes} bytes");
    Ok(())
}

/// The bytes of an idle connection in what `plimsoll idle --json` writes: the largest of what both
/// ends count themselves and of what the process really holds.
pub(crate) fn idle_bytes(figures: &Value) -> Option<f64> {
    let names = [
        "client_bytes_per_connection",
        "server_bytes_per_connection",
        "resident_bytes_per_connection_and_stack",
    ];
    let values = names.iter().filter_map(|name| figures.get(name)?.as_f64());
    values.max_by(f64::total_cmp)
}

/// Asks a running program through its control socket.
fn ask(server: &Process, words: &[&str]) -> Result<String> {
    let mut command = std::process::Command::new(plimsoll_program()?);
    command.args(words).args(["--pid", &server.id().to_string()]);
    run(&mut command)
}

fn control() -> Result<()> {
    let world = World::new()?;
    let server = world.serve(&["echo:7"])?;
    let address = format!("{OURS}:7");
    let words = ["echo-check", &address, "--bytes", "100000"];
    Process::spawn("echo check", &mut world.peer(&words)?)?.success(SOON)?;
    let counters = ask(&server, &["nstat", "-z"])?;
    for name in ["IpOutRequests", "IpExtOutOctets", "TcpPassiveOpens", "TcpRetransSegs"] {
        ensure!(counters.contains(name), "`plimsoll nstat` does not show {name}");
    }
    let sockets = ask(&server, &["ss", "-l"])?;
    ensure!(sockets.contains("LISTEN"), "`plimsoll ss -l` shows no listener: {sockets}");
    let before = ask(&server, &["sysctl", "net.ipv4.tcp_sack"])?;
    ensure!(before.trim() == "net.ipv4.tcp_sack = 1", "tcp_sack is not on: {before}");
    ask(&server, &["sysctl", "net.ipv4.tcp_sack=0"])?;
    let after = ask(&server, &["sysctl", "net.ipv4.tcp_sack"])?;
    ensure!(after.trim() == "net.ipv4.tcp_sack = 0", "tcp_sack did not change: {after}");
    let wrong = ask(&server, &["sysctl", "net.ipv4.tcp_nonsense"]);
    ensure!(wrong.is_err(), "a setting that does not exist was shown");
    server.end_cleanly(Signal::TERM, SOON)
}
