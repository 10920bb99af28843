//! `cargo xtask bench`: measurements, each a program of its own.
//!
//! Those that need the host kernel are commands of `plimsoll-interop`. Those that only need the
//! library are programs of the package `bench`.

mod million;
pub(crate) mod peers;
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
  million [--quick] [--counts N,N,...] [--json FILE]";

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
