//! The `plimsoll` program.
//!
//! Exit status: 0 if all went well, 1 if something failed while it ran, 2 if the command line was
//! wrong. `plimsoll run` has that of its command.
#![forbid(unsafe_code)]

mod answers;
mod args;
mod bench;
mod control;
mod drill;
mod explain;
mod get;
mod http;
mod lab;
mod link;
#[cfg(feature = "manual")]
mod manual;
mod net;
mod output;
mod query;
mod reference;
mod run;
mod serve;
mod service;
mod sim;
#[cfg(feature = "top")]
mod top;
mod units;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// The command line is well formed, but asks for something that cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// Something failed, and what was printed has said so already.
#[derive(Debug, thiserror::Error)]
#[error("what was printed says what failed")]
pub(crate) struct ToldAlready;

fn main() -> ExitCode {
    let cli = Cli::parse_from(run::attach::words(std::env::args_os()));
    if let Some(status) = run::status(&cli.command) {
        return status;
    }
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<ToldAlready>() {
                // The reader may be gone.
                let _ = writeln!(io::stderr(), "plimsoll: {error:#}");
            }
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Stream(args) => bench::stream::run(args),
        Command::Rr(args) => bench::rr::run(args, false),
        Command::Crr(args) => bench::rr::run(args, true),
        Command::Idle(args) => bench::idle::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => get::run(args),
        Command::Nstat(args) => query::nstat(args),
        Command::Sysctl(args) => query::sysctl(args),
        Command::Ss(args) => query::ss(args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(args),
        #[cfg(not(feature = "top"))]
        Command::Top(_) => anyhow::bail!(
            "this plimsoll was built without 'top'; build it with 'cargo build --release --features \
             top', or use 'plimsoll ss -i'"
        ),
        Command::Qdisc(args) => query::qdisc(args),
        Command::Port(args) => query::port(args),
        Command::Weather(args) => query::weather(args),
        Command::Drill(args) => drill::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Link(args) => link::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Sim(args) => sim::run_command(args),
        Command::Run(_)
        | Command::RunInside(_)
        | Command::RunInit(_)
        | Command::RunBegin(_)
        | Command::RunAttach(_)
        | Command::AttachInside(_) => unreachable!("they have a status of their own"),
        #[cfg(feature = "manual")]
        Command::Completions { shell } => manual::completions(*shell),
        #[cfg(feature = "manual")]
        Command::Man { dir } => manual::pages(dir.as_deref()),
    }
}
