//! A server as a whole: how it ends, what slow clients cost others, what it says of a full disk.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::http::curl_expects;
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::{DEVICE, KERNEL, OURS, World, curl, our_url};

const SOON: Duration = Duration::from_secs(30);

pub(crate) const CASES: &[Case] = &[
    Case::heavy("serve::150_servers_end_at_a_signal", ends_at_a_signal),
    Case::heavy("serve::two_queues_serve_and_end", two_queues),
    Case::heavy("serve::connections_follow_the_processors_of_their_peers", by_processor),
    Case::heavy("serve::3000_slow_http_clients_leave_others_served", slow_clients),
    Case::light("serve::a_capture_on_a_full_disk_is_whole_and_told_of", full_disk),
];

/// Nothing arrives while the signal comes, so nothing wakes a server that has missed it.
fn ends_at_a_signal() -> Result<()> {
    let world = World::new()?;
    for round in 0..150 {
        let signal = if round % 2 == 0 { Signal::TERM } else { Signal::INT };
        let server = world.serve(&["echo:7"])?;
        server.end_cleanly(signal, SOON).with_context(|| format!("server {round}"))?;
    }
    Ok(())
}

/// Two loops, each for one queue of the device: files arrive whole, a signal ends a server at which
/// nothing happens, and so does the loss of the device, which is named.
fn two_queues() -> Result<()> {
    let world = World::with_queues()?;
    let queues = ["--queues", "2"];
    let expected = world.scratch.generate("file", 300_000, 3)?;
    let server = world.serve_http(&queues)?;
    let url = our_url("file");
    std::thread::scope(|scope| {
        let fetch = || curl_expects(&world, &url, &expected);
        let curls: Vec<_> = (0..64).map(|_| scope.spawn(fetch)).collect();
        curls.into_iter().try_for_each(|curl| curl.join().expect("a fetch does not panic"))
    })?;
    server.end_cleanly(Signal::TERM, SOON)?;
    for round in 0..20 {
        let pin = if round % 2 == 0 { &["--pin"][..] } else { &[] };
        let server = world.serve(&[&queues[..], pin, &["echo:7"]].concat())?;
        server.end_cleanly(Signal::TERM, SOON).with_context(|| format!("server {round}"))?;
    }
    let server = world.serve(&[&queues[..], &["echo:7"]].concat())?;
    world.ns.ip(&format!("link delete {DEVICE}"))?;
    let ended = server.wait(SOON)?;
    ensure!(ended.status.code() == Some(1), "it ended with {}:\n{}", ended.status, ended.said);
    ensure!(ended.said.contains(DEVICE), "the device is not named:\n{}", ended.said);
    Ok(())
}

/// Loops that stay on their processors, as a server and as a client. The scheduler moves the peer's
/// threads, and the connections move with them; all go on. A count of transactions ends by itself,
/// also if there are fewer flows than loops.
fn by_processor() -> Result<()> {
    let world = World::with_queues()?;
    let by_processor = ["--queues", "2", "--pin"];
    let server = world.serve(&[&by_processor[..], &["rr:5002:64:4096"]].concat())?;
    let address = format!("{OURS}:5002");
    let sizes = ["--request", "64", "--response", "4096"];
    let words = [&["rr", &address][..], &sizes, &["--flows", "20", "--seconds", "1"]].concat();
    Process::spawn("rr", &mut world.peer(&words)?)?.success(SOON)?;
    server.end_cleanly(Signal::TERM, SOON)?;

    let address = format!("{KERNEL}:5003");
    let _server = world.start_peer(&[&["rr-server", &address][..], &sizes].concat())?;
    for flows in ["1", "3", "20"] {
        let mut client = world.plimsoll("rr")?;
        client.args(by_processor).args(["-r", "64,4096", "-P", flows, "-n", "2000"]);
        client.args(["--to", &address]);
        Process::spawn("client", &mut client)?
            .success(SOON)
            .with_context(|| format!("{flows} flows"))?;
    }
    Ok(())
}

/// The server has fewer descriptors than there are clients that do not read their file.
fn slow_clients() -> Result<()> {
    let world = World::new()?;
    world.scratch.generate("big", 4 << 20, 1)?;
    let expected = world.scratch.generate("small", 10_000, 2)?;
    let server = world.serve_http(&[])?;
    let pid = Pid::from_raw(server.id().cast_signed()).context("a child has a number")?;
    let limit = Rlimit { current: Some(48), maximum: Some(48) };
    prlimit(Some(pid), Resource::Nofile, limit).context("limiting descriptors")?;
    let words = ["slow-http", &format!("{OURS}:80"), "--count", "3000"];
    let mut slow = Process::spawn("slow clients", &mut world.peer(&words)?)?;
    slow.wait_line(SOON, |line| line == "open")?;
    for _ in 0..10 {
        curl_expects(&world, &our_url("small"), &expected)?;
    }
    let missing = curl(&world, &["-o", "/dev/null", &our_url("none")])
        .stderr(Stdio::null())
        .status()
        .context("starting curl")?;
    ensure!(missing.code() == Some(22), "what is not there is 404 still: {missing}");
    drop(slow);
    curl_expects(&world, &our_url("small"), &expected)?;
    server.end_cleanly(Signal::TERM, SOON)
}

fn full_disk() -> Result<()> {
    let world = World::new()?;
    let folder = world.scratch.file("disk");
    std::fs::create_dir(&folder).context("making a folder")?;
    let path = folder.display().to_string();
    let capture = folder.join("x.pcapng").display().to_string();
    // The mount goes with the shell's own namespace.
    let script = format!(
        "mount -t tmpfs -o size=2m none {path} && \
         {{ {} stream -n 64MiB --pcap {capture}; echo status $?; \
         {} explain {capture} --json - > {path}.json && cat {path}.json; }}",
        crate::harness::world::plimsoll_program()?.display(),
        crate::harness::world::plimsoll_program()?.display(),
    );
    let mut command = world.ns.command("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let ended = Process::spawn("full disk", &mut command)?.success(SOON)?;
    ensure!(ended.stdout.contains("status 1"), "the failure is not in the status: {}", ended.said);
    ensure!(ended.said.contains("ends early"), "nobody is told: {}", ended.said);
    let json = ended.stdout.find("\n{").map(|at| &ended.stdout[at..]).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(json).context("what explain says")?;
    ensure!(report["note"].is_null(), "the capture is cut: {}", report["note"]);
    Ok(())
}
