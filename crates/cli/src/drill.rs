//! `plimsoll drill`: run packetdrill scripts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use plimsoll_drill::config::Config;
use plimsoll_drill::report::{self, Report, Status};
use plimsoll_drill::suite::{self, Options, StackKind};

use crate::UsageError;

/// What scripts run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackArg {
    /// This stack, with a virtual clock; needs no privilege.
    #[default]
    Embedded,
    /// The kernel of this machine, in a network namespace of its own; needs root.
    Kernel,
}

/// `plimsoll drill`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DrillArgs {
    /// Scripts, or folders whose *.pkt files are meant
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// What scripts run on
    #[arg(long, value_enum, default_value_t)]
    pub stack: StackArg,
    /// Scripts that run at the same time [default: one per CPU; 1 on the kernel]
    #[arg(short = 'j', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Also print the packets of every script, and what its code blocks print
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print the list of segments that left: flags, relative offset, length
    #[arg(long)]
    pub segments: bool,
    /// Write an array of what became of each script; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the same as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Options that scripts may give as well.
    #[command(flatten)]
    pub script: ScriptArgs,
}

/// Options that a script may give as well, under the original tool's names. What is given here
/// wins.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of scripts (with - or _ in the names)")]
pub(crate) struct ScriptArgs {
    /// ipv4, ipv6 or ipv4-mapped-ipv6
    #[arg(long = "ip_version", alias = "ip-version", value_name = "VERSION")]
    pub ip_version: Option<String>,
    /// Our address [default: 192.0.2.1 or 2001:db8::1]
    #[arg(long = "local_ip", alias = "local-ip", value_name = "ADDR")]
    pub local_ip: Option<String>,
    /// The peer's address [default: 198.51.100.1 or 2001:db8:1::1]
    #[arg(long = "remote_ip", alias = "remote-ip", value_name = "ADDR")]
    pub remote_ip: Option<String>,
    /// The address of the device's far end [default: 192.0.2.2 or 2001:db8::2]
    #[arg(long = "gateway_ip", alias = "gateway-ip", value_name = "ADDR")]
    pub gateway_ip: Option<String>,
    /// The mask of our network [default: 255.255.255.0]
    #[arg(long = "netmask_ip", alias = "netmask-ip", value_name = "MASK")]
    pub netmask_ip: Option<String>,
    /// The port that bind(...) takes [default: 8080]
    #[arg(long = "bind_port", alias = "bind-port", value_name = "PORT")]
    pub bind_port: Option<String>,
    /// The port that connect(...) takes [default: 8080]
    #[arg(long = "connect_port", alias = "connect-port", value_name = "PORT")]
    pub connect_port: Option<String>,
    /// MTU of the device [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<String>,
    /// Segment size of inbound super-segments
    #[arg(long, value_name = "BYTES")]
    pub mss: Option<String>,
    /// How far events may be from their time, in microseconds [default: 4000]
    #[arg(long = "tolerance_usecs", alias = "tolerance-usecs", value_name = "US")]
    pub tolerance_usecs: Option<String>,
    /// The same as a share of the time since the event before [default: 12.5]
    #[arg(long = "tolerance_percent", alias = "tolerance-percent", value_name = "PERCENT")]
    pub tolerance_percent: Option<String>,
    /// Microseconds per tick of outbound timestamps; 0 does not check them [default: 0]
    #[arg(long = "tcp_ts_tick_usecs", alias = "tcp-ts-tick-usecs", value_name = "US")]
    pub tcp_ts_tick_usecs: Option<String>,
    /// Inbound segments may echo timestamps that were not sent
    #[arg(long = "tcp_ts_ecr_scaled", alias = "tcp-ts-ecr-scaled")]
    pub tcp_ts_ecr_scaled: bool,
    /// Every super-segment must appear as written, not in pieces
    #[arg(long = "strict_segments", alias = "strict-segments")]
    pub strict_segments: bool,
    /// Accepted for the sake of command lines of the original tool
    #[arg(long = "send_omit_free", alias = "send-omit-free", hide = true)]
    pub send_omit_free: bool,
    /// Give a word of scripts a value
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE")]
    pub defines: Vec<String>,
}

impl ScriptArgs {
    /// The options that were given.
    fn given(&self) -> Vec<(String, Option<String>)> {
        let values = [
            ("ip_version", &self.ip_version),
            ("local_ip", &self.local_ip),
            ("remote_ip", &self.remote_ip),
            ("gateway_ip", &self.gateway_ip),
            ("netmask_ip", &self.netmask_ip),
            ("bind_port", &self.bind_port),
            ("connect_port", &self.connect_port),
            ("mtu", &self.mtu),
            ("mss", &self.mss),
            ("tolerance_usecs", &self.tolerance_usecs),
            ("tolerance_percent", &self.tolerance_percent),
            ("tcp_ts_tick_usecs", &self.tcp_ts_tick_usecs),
        ];
        let values = values
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), Some(value.clone()?))));
        let flags = [
            ("tcp_ts_ecr_scaled", self.tcp_ts_ecr_scaled),
            ("strict_segments", self.strict_segments),
        ];
        let flags =
            flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name.to_owned(), None));
        let defines = self.defines.iter().map(|define| ("define".to_owned(), Some(define.clone())));
        values.chain(flags).chain(defines).collect()
    }
}

/// Runs it.
pub(crate) fn run(args: &DrillArgs) -> anyhow::Result<()> {
    let given = args.script.given();
    let mut config = Config::default();
    for (name, value) in &given {
        config.apply(name, value.as_deref()).map_err(UsageError)?;
    }
    config.network().map_err(UsageError)?;
    let files = suite::find(&args.paths).map_err(anyhow::Error::msg)?;
    let stack = match args.stack {
        StackArg::Embedded => StackKind::Embedded,
        StackArg::Kernel => StackKind::Kernel,
    };
    let usual = match stack {
        // Scripts on a real clock disturb each other.
        StackKind::Kernel => 1,
        StackKind::Embedded => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let jobs = args.jobs.map_or(usual, usize::from);
    let options = Options { stack, options: given };
    let mut broken = None;
    let reports = suite::run_all(&files, &options, jobs, &mut |report| {
        if broken.is_none() {
            broken = tell(args, report).err();
        }
    });
    if let Some(error) = broken {
        return Err(error.into());
    }
    write(args.json.as_deref(), || Ok(report::json(&reports)?))?;
    write(args.junit.as_deref(), || Ok(report::junit(&reports)))?;
    if args.json.as_deref() != Some(Path::new("-")) {
        println!("{}", report::totals(&reports));
    }
    let bad = reports.iter().filter(|report| report.status != Status::Passed).count();
    anyhow::ensure!(bad == 0, "{bad} of {} scripts did not pass", reports.len());
    Ok(())
}

/// Prints what became of one script.
fn tell(args: &DrillArgs, report: &Report) -> io::Result<()> {
    if args.json.as_deref() == Some(Path::new("-")) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", report.summary())?;
    if args.verbose {
        for line in report.packets.iter().chain(&report.printed) {
            writeln!(out, "  {line}")?;
        }
    }
    if args.segments {
        out.write_all(report.segment_list().as_bytes())?;
    }
    out.write_all(report.text.as_bytes())
}

/// Writes a document, if one is wanted.
fn write(
    path: Option<&Path>,
    document: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = document()?;
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
