//! Links that the packets of a command cross, and changes of them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::behind::{LATER, World};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::veth::FAR;

pub(crate) const CASES: &[Case] = &[
    Case::light("run::weather_loses_packets_and_no_bytes", losses),
    Case::light("run::weather_that_makes_no_sense_is_named", bad_input),
];

/// A count of one direction in an answer of `plimsoll weather --json`.
fn count(answer: &Value, direction: usize, name: &str) -> Result<u64> {
    let count = answer[direction][name].as_u64();
    count.with_context(|| format!("no {name} of direction {direction} in {answer}"))
}

fn losses() -> Result<()> {
    let world = World::new()?;
    let address = format!("{FAR}:7");
    let mut echo =
        Process::spawn("echo", &mut world.hosts.far.program(&["peer", "echo", &address])?)?;
    echo.wait_line(LATER, |line| line == "ready")?;
    let (tests, go) = (world.scratch.file("tests"), world.scratch.file("go"));
    let check = format!("{} peer echo-check {address} --bytes 1000000", tests.display());
    let script = format!(
        "{check} && echo ready; until [ -e {} ]; do sleep 0.1; done; {check} && echo again; \
         exec sleep 100",
        go.display()
    );
    let link = ["--link", "loss=5%,delay=10ms", "--link-up", "seed=7,duplicate=1%"];
    let mut inside = world.started(&link, &["sh", "-c", &script])?;
    let pid = inside.id().to_string();
    let ask = |words: &[&str]| world.ask(&[&["weather", "--pid", &pid], words].concat());
    let counts = || -> Result<Value> {
        let answer = ask(&["--json"])?;
        serde_json::from_str(&answer.stdout).context(answer.said)
    };
    let before = counts()?;
    for direction in 0..2 {
        let count = |name| count(&before, direction, name);
        ensure!(count("lost")? > 0 && count("delivered_bytes")? > 1_000_000, "{before}");
        ensure!((count("duplicated")? > 0) == (direction == 0), "{before}");
    }
    // Other names stay as they are.
    let changed = ask(&["delay=1ms", "--down", "loss=0"])?;
    ensure!(changed.stdout.contains("duplicate=1%,delay=1ms\n"), "{}", changed.said);
    ensure!(changed.stdout.contains("\ndown delay=1ms,loss=0\n"), "{}", changed.said);
    let refused = ask(&["seed=8"])?;
    ensure!(refused.said.contains("a running link cannot change its seed"), "{}", refused.said);
    let perfect = ask(&["perfect"])?;
    ensure!(perfect.stdout.starts_with("up   perfect\n"), "{}", perfect.said);
    let before = counts()?;
    std::fs::write(&go, "")?;
    inside.wait_line(LATER, |line| line == "again")?;
    let after = counts()?;
    for direction in 0..2 {
        let (before, after) =
            (|name| count(&before, direction, name), |name| count(&after, direction, name));
        ensure!(before("lost")? == after("lost")?, "a perfect link loses packets");
        ensure!(before("delivered_bytes")? + 1_000_000 < after("delivered_bytes")?);
    }
    inside.signal(Signal::TERM)?;
    inside.wait(LATER).map(drop)
}

fn bad_input() -> Result<()> {
    let world = World::new()?;
    let cases: [(&[&str], &str); 4] = [
        (&["--link", "5g"], "nor one of 3g, lte"),
        (&["--link", "3g,qdisc=cake"], "known: drop-tail, codel, fq_codel"),
        (&["--link", "3g", "--queues", "2"], "a link has one queue"),
        (&["--link", "3g", "--link-down", "burst=3"], "--link-down burst: without a loss"),
    ];
    for (options, named) in cases {
        let ended = world.ended(options, &["echo", "started"])?;
        let status = ended.status.code();
        ensure!(status == Some(2) && ended.stdout.is_empty(), "{options:?}: {}", ended.said);
        ensure!(ended.said.contains(named), "{options:?}: {}", ended.said);
    }
    let inside = world.started(&[], &["sh", "-c", "echo ready; exec sleep 100"])?;
    let pid = inside.id().to_string();
    let asked = world.ask(&["weather", "--pid", &pid])?;
    ensure!(asked.said.contains("there is no link to change"), "{}", asked.said);
    inside.signal(Signal::TERM)?;
    inside.wait(LATER).map(drop)
}
