//! `cargo xtask bench`: measurements, each a program of its own.
//!
//! Those that need the host kernel are commands of `plimsoll-interop`. Those that only need the
//! library are programs of the package `bench`, which keep to the public interface, so that they
//! can be built with an older version of the stack (see `at.rs`) and compared.

mod at;
mod atomics;
mod callgrind;
mod flood;
pub(crate) mod idle;
pub(crate) mod million;
pub(crate) mod peers;
mod sacked;
pub(crate) mod tun2proxy;

use std::path::Path;

use anyhow::{Result, bail};

use crate::session;

const USAGE: &str = "usage: cargo xtask bench WHAT
  kernel [--quick] [--json FILE]
  peers [--quick] [--repetitions N] [--seconds S] [--with STACK]... [--only WORK]... [--json FILE]
  stalls [--quick] [--json FILE]
  web [--quick] [--repetitions N] [--seconds S] [--only NAME]... [--json FILE]
  tun2proxy [--quick] [--pairs N] [--seconds S] [--only NAME]... [--json FILE]
  udp [--quick] [--repetitions N] [--seconds S] [--only NAME]... [--json FILE]
  latency [--quick] [--seconds S] [--runs N] [--json FILE]
  senders [--quick] [--all | --reordering | --nsperf] [--receive] [--congestion NAME]
          [--beside NAME | --kernel-beside NAME] [--kernel-twice] [--jobs N] [--pairs N]
          [--more N] [--seconds S] [--only PATH]... [--json FILE]
  versions --old PATH --new PATH [--pairs N] [--seconds S] [--only NAME]... [--json FILE]
  attacks [--old PATH] --new PATH [--only NAME]... [--quick] [--json FILE]
  atomics [--at COMMIT]... [--rounds N] [--places] [--json FILE]
  flood [--at COMMIT]... [--rate N] [--seconds S] [--json FILE]
  sacked [--at COMMIT]... [--rounds N] [--json FILE]
  idle [--at COMMIT]... [--connections N] [--json FILE]
  million [--quick] [--counts N,N,...] [--no-misses] [--json FILE]";

/// Runs one measurement.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some("kernel" | "latency" | "stalls" | "versions" | "attacks" | "senders") => {
            session::bench(root, args)
        }
        Some("peers") => peers::run(root, args),
        Some("web") => session::bench_web(root, args),
        Some("tun2proxy") => tun2proxy::run(root, args),
        Some("udp") => session::bench_udp(root, args),
        Some("atomics") => atomics::run(root, &args[1..]),
        Some("flood") => flood::run(root, &args[1..]),
        Some("idle") => idle::run(root, &args[1..]),
        Some("million") => million::run(root, &args[1..]),
        Some("sacked") => sacked::run(root, &args[1..]),
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
