//! Captures: taken by tcpdump on the kernel's side, or by `plimsoll --pcap`, read by tshark.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::netns::{Namespace, run};
use super::process::Process;

/// The longest packet seen in each direction, in bytes of IP.
#[derive(Default, Debug)]
pub(crate) struct Longest {
    pub(crate) from_kernel: u32,
    pub(crate) from_us: u32,
}

/// Starts tcpdump on a device. It keeps the first bytes of each packet and stops after many.
pub(crate) fn start(ns: &Namespace, device: &str, file: &Path) -> Result<Process> {
    start_as(ns, &["-i", device, "-s", "96", "tcp"], file)
}

/// Starts tcpdump with these words. It stops after many packets.
pub(crate) fn start_as(ns: &Namespace, words: &[&str], file: &Path) -> Result<Process> {
    let mut command = ns.command("tcpdump");
    // Immediately, or what the kernel has gathered is lost when tcpdump is told to end.
    command.args(["--immediate-mode", "-c", "20000", "-U", "-n", "-Z", "root", "-w"]);
    command.arg(file).args(words);
    let mut process = Process::spawn("tcpdump", &mut command)?;
    process.wait_line(Duration::from_secs(10), |line| line.contains("listening on"))?;
    Ok(process)
}

/// Ends a capture and waits until its file is complete.
pub(crate) fn stop(mut process: Process) -> Result<()> {
    if process.alive() {
        process.signal(Signal::INT)?;
    }
    process.wait(Duration::from_secs(10)).map(drop)
}

/// Reads the lengths from a capture of raw IP packets in the classic format: of those of the
/// version of the kernel's address.
pub(crate) fn longest(file: &Path, kernel: IpAddr) -> Result<Longest> {
    let data = fs::read(file).context("reading a capture")?;
    let word = |at: usize| -> Option<u32> {
        let bytes = data.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    ensure!(word(0) == Some(0xa1b2_c3d4), "not a little-endian capture in the classic format");
    let (version, source, kernel) = match kernel {
        IpAddr::V4(address) => (4, 12..16, address.octets().to_vec()),
        IpAddr::V6(address) => (6, 8..24, address.octets().to_vec()),
    };
    let mut found = Longest::default();
    let mut at = 24;
    while let (Some(kept), Some(len)) = (word(at + 8), word(at + 12)) {
        let packet = data.get(at + 16..at + 16 + kept as usize).unwrap_or(&[]);
        if packet.len() >= source.end && packet[0] >> 4 == version {
            let from_kernel = packet[source.clone()] == kernel;
            let side = if from_kernel { &mut found.from_kernel } else { &mut found.from_us };
            *side = len.max(*side);
        }
        at += 16 + kept as usize;
    }
    Ok(found)
}

/// Runs tshark with a display filter and returns one line per packet that matches.
pub(crate) fn matching(file: &Path, filter: &str) -> Result<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file);
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    command.args(["-n", "-Y", filter]);
    Ok(run(&mut command)?.lines().map(String::from).collect())
}

/// Wants a capture without a malformed packet or a wrong checksum, and not an empty one.
pub(crate) fn expect_sound(file: &Path) -> Result<()> {
    let bad = "_ws.malformed || ip.checksum.status == \"Bad\" || tcp.checksum.status == \"Bad\" \
               || icmp.checksum.status == \"Bad\" || icmpv6.checksum.status == \"Bad\"";
    let packets = matching(file, "tcp.checksum.status == \"Good\"")?.len();
    ensure!(packets > 10, "the capture holds {packets} TCP packets with a checksum to verify");
    let bad = matching(file, bad)?;
    if !bad.is_empty() {
        let some = bad.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        bail!("tshark finds {} unsound packets of {packets}:\n{some}", bad.len());
    }
    Ok(())
}
