//! `cargo xtask bench`: measurements, each a program of its own.
//!
//! Those that need the host kernel are commands of `plimsoll-interop`. Those that only need the
//! library are programs of the package `bench`.

pub(crate) mod gateways;
mod million;
pub(crate) mod peers;
pub(crate) mod tun2proxy;

use std::path::Path;

use anyhow::{Result, bail};

use crate::session;

const USAGE: &str = "usage: cargo xtask bench WHAT; all but million need root
  kernel [--quick] [--repetitions N] [--seconds S] [--json FILE]
          the host kernel's TCP and ours
  peers [--quick] [--repetitions N] [--seconds S] [--with STACK]... [--only WORK]... [--json FILE]
          gVisor, smoltcp, lwIP and others, and ours
  latency [--quick] [--seconds S] [--runs N] [--json FILE]
          percentiles of answers, alone and during bulk transfer
  stalls [--quick] [--json FILE]
          conversations in small pieces with the host kernel
  web [--quick] [--repetitions N] [--seconds S] [--only NAME]... [--json FILE]
          axum's hello world on ours and on the kernel's
  tun2proxy [--quick] [--long] [--pairs N] [--seconds S] [--only ROW]... [--json|--into FILE]
          tun2proxy on ours and as published
  gateways [--quick] [--rounds N] [--seconds S] [--mtu 1500|65520]... [--only WORK]...
          [--before PROGRAM] [--rules] [--json FILE]
          plimsoll run, pasta, slirp4netns and gvisor-tap-vsock; another build; with 100 rules
  weather [--quick] [--seconds S] [--only WORK]... [--json FILE]
          rate, delay and loss of links before a command
  reasons [--quick] [--runs N] [--only CAUSE]... [--json FILE]
          the times of run --explain compared with programs without the defect
  udp [--quick] [--repetitions N] [--seconds S] [--only NAME]... [--json FILE]
          UDP and QUIC on ours and on the kernel's
  senders [--quick] [--all | --reordering | --nsperf] [--receive] [--congestion NAME]
          [--beside NAME | --kernel-beside NAME] [--kernel-twice] [--jobs N] [--pairs N]
          [--more N] [--seconds S] [--only PATH]... [--json FILE]
          our sender and Linux's through one bottleneck
  versions --old PATH --new PATH [--pairs N] [--seconds S] [--only NAME]... [--json FILE]
          two programs on the same work, by turns
  attacks [--old PATH] --new PATH [--only NAME]... [--quick] [--json FILE]
          a program, or two, under attacks
  million [--quick] [--counts N,N,...] [--json FILE]
          what a packet costs as connections become a million";

/// Runs one measurement.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some(
            "kernel" | "latency" | "stalls" | "versions" | "attacks" | "senders" | "weather"
            | "reasons",
        ) => session::bench(root, args),
        Some("peers") => peers::run(root, args),
        Some("gateways") => gateways::run(root, args),
        Some("web") => session::bench_web(root, args),
        Some("tun2proxy") => tun2proxy::run(root, args),
        Some("udp") => session::bench_udp(root, args),
        Some("million") => million::run(root, &args[1..]),
        _ => bail!("{USAGE}"),
    }
}

/// The value that follows an option.
fn value<'a>(word: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<&'a String> {
    match rest.next() {
        Some(value) => Ok(value),
        None => bail!("{word} wants a value\n\n{USAGE}"),
    }
}
