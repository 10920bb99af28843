//! Tools of the kernel's side see the hosts of a stack for any address as they see hosts behind a
//! router: each runs through the kernel's router, and through a stack in its place, and what it
//! says, apart from times, has to be the same.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::process::Process;
use crate::harness::routed::{HOST, HOST6, Routed};
use crate::harness::runner::Case;

const LATER: Duration = Duration::from_secs(20);

pub(crate) const CASES: &[Case] = &[
    Case::light("routed::ping_as_through_a_router", ping),
    Case::light("routed::traceroute_as_through_a_router", traceroute).needing("traceroute"),
    Case::light("routed::dig_as_through_a_router", dig).needing("dig"),
    Case::light("routed::mdns_as_through_a_router", mdns).needing("dig"),
];

/// A line of words, and what has to be in what it gives.
type Line = (String, &'static str);

/// Runs each line in both places, and compares what `facts` finds in what it said.
fn compare(
    (kernel, stack): (&Routed, &Routed),
    lines: &[Line],
    facts: fn(&str) -> String,
) -> Result<()> {
    for (line, expected) in lines {
        let run = |place: &Routed| -> Result<(Option<i32>, String, String)> {
            let mut words = line.split(' ');
            let program = words.next().unwrap_or_default();
            let mut command = place.command(program);
            let ended = Process::spawn(program, command.args(words))?.wait(LATER)?;
            Ok((ended.status.code(), facts(&ended.said), ended.said))
        };
        let (without, with) = (run(kernel)?, run(stack)?);
        ensure!(
            (without.0, &without.1) == (with.0, &with.1),
            "`{line}` differs.\nThrough the kernel's router (status {:?}):\n{}\n{}\n\
             Through a stack (status {:?}):\n{}\n{}",
            without.0,
            without.1,
            without.2,
            with.0,
            with.1,
            with.2
        );
        ensure!(with.1.contains(expected), "`{line}` gives no `{expected}`:\n{}", with.2);
    }
    Ok(())
}

fn both() -> Result<(Routed, Routed)> {
    let (mut kernel, mut stack) = (Routed::kernel()?, Routed::stack()?);
    kernel.start_hosts()?;
    stack.start_hosts()?;
    Ok((kernel, stack))
}

/// How many were answered, and what else was said, without times and TTLs.
fn pinged(said: &str) -> String {
    let keep = |line: &&str| {
        !(line.is_empty()
            || line.starts_with("rtt")
            || line.starts_with("PING")
            || line.starts_with("---"))
    };
    let words = |line: &str| -> String {
        let words = line.split_whitespace().filter(|word| {
            !["time", "ttl=", "ms"].iter().any(|sign| word.starts_with(sign))
                && !word.ends_with("ms")
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    said.lines().filter(keep).map(words).collect()
}

fn ping() -> Result<()> {
    let (kernel, stack) = both()?;
    let three = "3 packets transmitted, 3 received";
    let common = "ping -n -c 3 -i 0.2 -W 2";
    let mut lines = Vec::new();
    for host in [HOST, HOST6] {
        lines.push((format!("{common} {host}"), three));
        // In fragments both ways.
        lines.push((format!("{common} -s 8000 {host}"), three));
        lines.push((format!("{common} -s 65000 {host}"), three));
        // Nothing to compare with: no time fits into so few bytes.
        lines.push((format!("{common} -s 0 {host}"), three));
        // As far as the router.
        lines.push((format!("ping -n -c 1 -t 1 -W 2 {host}"), "xceeded"));
    }
    lines.push((format!("{common} -M do -s 1472 {HOST}"), three));
    lines.push((format!("ping -n -c 100 -f -W 2 {HOST}"), "100 packets transmitted, 100 received"));
    compare((&kernel, &stack), &lines, pinged)
}

/// Who answered at each hop, and with what remark.
fn hops(said: &str) -> String {
    let of_hop = |line: &str| -> String {
        let words =
            line.split_whitespace().filter(|word| *word != "ms" && word.parse::<f64>().is_err());
        let hop = line.split_whitespace().next().unwrap_or_default();
        format!("{hop} {}\n", words.collect::<Vec<_>>().join(" "))
    };
    said.lines().filter(|line| !line.starts_with("traceroute to")).map(of_hop).collect()
}

fn traceroute() -> Result<()> {
    let (kernel, stack) = both()?;
    let mut lines = Vec::new();
    for (host, router, found) in
        [(HOST, "192.0.2.2", "2 198.51.100.129\n"), (HOST6, "2001:db8::2", "2 2001:db8:9::9\n")]
    {
        for mode in ["", " -I", " -T -p 80", " -T -p 81", " -U -p 54"] {
            lines.push((format!("traceroute -n -q 3 -w 3 -m 4{mode} {host}"), found));
        }
        // The router itself is one hop away.
        lines.push((format!("traceroute -n -q 3 -w 3 -m 4 {router}"), "1 "));
    }
    compare((&kernel, &stack), &lines, hops)
}

/// All but what tells of the run: identifiers, times, the message's size.
fn dug(said: &str) -> String {
    let keep = |line: &&str| !(line.is_empty() || line.starts_with("; <<>>"));
    said.lines().filter(keep).map(|line| line.to_owned() + "\n").collect()
}

fn dig() -> Result<()> {
    let (kernel, stack) = both()?;
    let mut lines = Vec::new();
    for host in [HOST, HOST6] {
        let asks = format!("dig +short +tries=1 +timeout=3 @{host}");
        lines.push((format!("{asks} name.example A"), "198.51.100.77"));
        lines.push((format!("{asks} name.example AAAA"), "2001:db8:9::77"));
        // A closed port.
        lines.push((format!("{asks} -p 54 name.example A"), "refused"));
    }
    compare((&kernel, &stack), &lines, dug)
}

fn mdns() -> Result<()> {
    let (mut kernel, stack) = both()?;
    let asks = "dig +short +tries=1 +timeout=1 -p 5353 @224.0.0.251 name.local A".to_owned();
    // No router lets it through.
    compare((&kernel, &stack), &[(asks, "timed out")], dug)?;
    // It may answer itself. What asks must take an answer from another address than it asked.
    kernel.start_mdns()?;
    drop(stack);
    let mut stack = Routed::stack()?;
    stack.start_mdns()?;
    let answer = |place: &Routed| -> Result<String> {
        let mut asker = place.this_program(&["peer", "mdns-ask", "224.0.0.251:5353"])?;
        Ok(Process::spawn("asker", &mut asker)?.success(LATER)?.stdout)
    };
    let (without, with) = (answer(&kernel)?, answer(&stack)?);
    ensure!(without == with, "the kernel's router: {without}, a stack: {with}");
    ensure!(with.contains("192.0.2.2:5353 says 198.51.100.77"), "{with}");
    Ok(())
}
