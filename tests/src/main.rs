//! Plimsoll against the host kernel, in network namespaces of its own.
//!
//! `plimsoll-interop [FILTER...]` runs the tests, `plimsoll-interop bench kernel` the comparison
//! of `docs/results/kernel.md`, `plimsoll-interop h2` a server of HTTP/2 under h2spec. The other
//! commands are parts of these: `one` runs one test, `peer` is a program on the kernel's sockets
//! and `client` one on Plimsoll's.

mod bench;
mod cases;
mod client;
mod datagrams;
mod dns;
mod h2;
mod harness;
mod peer;
mod talk;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use harness::runner;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<bool> {
    match args.first().map(String::as_str) {
        Some("one") => {
            let name = args.get(1).context("one NAME")?;
            runner::run_one(&cases::all(), name).map(|()| true)
        }
        Some("peer") => peer::run(&args[1..]).map(|()| true),
        Some("client") => client::run(&args[1..]).map(|()| true),
        Some("h2") => h2::run(&args[1..]),
        Some("bench") => bench::run(&args[1..]).map(|()| true),
        Some("--list") => {
            for case in cases::all() {
                println!("{}", case.name);
            }
            Ok(true)
        }
        Some("--help" | "-h") => {
            println!("usage: plimsoll-interop [--jobs N] [FILTER...] | --list | bench kernel");
            Ok(true)
        }
        _ => run_tests(args),
    }
}

fn run_tests(args: &[String]) -> Result<bool> {
    let mut jobs = 4;
    let mut filters = Vec::new();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--jobs" => jobs = rest.next().context("--jobs N")?.parse().context("--jobs N")?,
            flag if flag.starts_with('-') => bail!("unknown option {flag}"),
            filter => filters.push(filter.to_string()),
        }
    }
    runner::run(&cases::all(), &filters, jobs)
}
