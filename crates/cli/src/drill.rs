//! `plimsoll drill`: run packetdrill scripts.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use plimsoll_drill::config::Config;
use plimsoll_drill::report::{self, Report, Status};
use plimsoll_drill::suite::{self, Options, StackKind};

use crate::output::{self, print};
use crate::{ToldAlready, UsageError, units};

/// The stack under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackArg {
    /// This stack, with a virtual clock; needs no privilege.
    #[default]
    Embedded,
    /// The kernel of this machine, in a separate network namespace; needs root.
    Kernel,
}

/// `plimsoll drill`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DrillArgs {
    /// Scripts, or folders with *.pkt files
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// The stack that scripts run on
    #[arg(long, value_enum, default_value_t)]
    pub stack: StackArg,
    /// Scripts that run at the same time [default: one per CPU; 1 on the kernel]
    #[arg(short = 'j', long, value_name = "COUNT",
          value_parser = |text: &str| units::whole(text, 1_u16, 1024))]
    pub jobs: Option<u16>,
    /// Also print the packets of every script, and what its code blocks print
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print the list of segments that left: flags, relative offset, length
    #[arg(long)]
    pub segments: bool,
    /// Write the result of each script as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the same as JUnit's XML; - is standard output
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Options that scripts may give as well.
    #[command(flatten)]
    pub script: ScriptArgs,
}

/// Options that a script may give as well, under the original tool's names. Options given here win.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptArgs(Vec<(String, Option<String>)>);

/// An option of scripts.
struct ScriptOption {
    name: &'static str,
    /// The name with - for _, where that is another one.
    alias: &'static str,
    /// The name of the value; empty if there is none.
    value: &'static str,
    help: &'static str,
}

const fn option(
    name: &'static str,
    alias: &'static str,
    value: &'static str,
    help: &'static str,
) -> ScriptOption {
    ScriptOption { name, alias, value, help }
}

const SCRIPT_OPTIONS: &[ScriptOption] = &[
    option("ip_version", "ip-version", "VERSION", "ipv4, ipv6 or ipv4-mapped-ipv6"),
    option("local_ip", "local-ip", "ADDR", "Our address [default: 192.0.2.1 or 2001:db8::1]"),
    option(
        "remote_ip",
        "remote-ip",
        "ADDR",
        "The peer's address [default: 198.51.100.1 or 2001:db8:1::1]",
    ),
    option(
        "gateway_ip",
        "gateway-ip",
        "ADDR",
        "The device's far end [default: 192.0.2.2 or 2001:db8::2]",
    ),
    option("netmask_ip", "netmask-ip", "MASK", "The mask of our network [default: 255.255.255.0]"),
    option("bind_port", "bind-port", "PORT", "The port that bind(...) takes [default: 8080]"),
    option(
        "connect_port",
        "connect-port",
        "PORT",
        "The port that connect(...) takes [default: 8080]",
    ),
    option("mtu", "", "BYTES", "MTU of the device [default: 1500]"),
    option("mss", "", "BYTES", "Segment size of inbound super-segments"),
    option(
        "tolerance_usecs",
        "tolerance-usecs",
        "US",
        "How far events may be from their time [default: 4000]",
    ),
    option(
        "tolerance_percent",
        "tolerance-percent",
        "PERCENT",
        "The same as a share of the time since the event before [default: 12.5]",
    ),
    option(
        "tcp_ts_tick_usecs",
        "tcp-ts-tick-usecs",
        "US",
        "Microseconds per tick of outbound timestamps; 0 does not check them [default: 0]",
    ),
    option(
        "tcp_ts_ecr_scaled",
        "tcp-ts-ecr-scaled",
        "",
        "Inbound segments may echo timestamps that were not sent",
    ),
    option(
        "strict_segments",
        "strict-segments",
        "",
        "Every super-segment must appear as written, not in pieces",
    ),
    option(
        "send_omit_free",
        "send-omit-free",
        "",
        "Accepted for the sake of command lines of the original tool",
    ),
];

impl Args for ScriptArgs {
    fn augment_args(command: Command) -> Command {
        let option = |&ScriptOption { name, alias, value, help }: &ScriptOption| {
            let arg = Arg::new(name).long(name).help(help).hide(name == "send_omit_free");
            let arg = if alias.is_empty() { arg } else { arg.alias(alias) };
            if value.is_empty() { arg.action(ArgAction::SetTrue) } else { arg.value_name(value) }
        };
        let define = Arg::new("define").short('D').long("define").value_name("NAME=VALUE");
        command
            .next_help_heading("Options of scripts (with - or _ in the names)")
            .args(SCRIPT_OPTIONS.iter().map(option))
            .arg(define.action(ArgAction::Append).help("Give a word of scripts a value"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ScriptArgs::augment_args(command)
    }
}

impl FromArgMatches for ScriptArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ScriptArgs, clap::Error> {
        let mut given = Vec::new();
        for &ScriptOption { name, value, .. } in SCRIPT_OPTIONS {
            if value.is_empty() {
                given.extend(matches.get_flag(name).then(|| (name.to_owned(), None)));
            } else if let Some(text) = matches.get_one::<String>(name) {
                given.push((name.to_owned(), Some(text.clone())));
            }
        }
        let defines = matches.get_many::<String>("define").into_iter().flatten();
        given.extend(defines.map(|define| ("define".to_owned(), Some(define.clone()))));
        Ok(ScriptArgs(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ScriptArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs it.
pub(crate) fn run(args: &DrillArgs) -> anyhow::Result<()> {
    let given = args.script.0.clone();
    let mut config = Config::default();
    for (name, value) in &given {
        config.apply(name, value.as_deref()).map_err(UsageError)?;
    }
    config.network().map_err(UsageError)?;
    let quiet = output::on_stdout("--json and --junit", &[&args.json, &args.junit])?;
    let json = output::open(args.json.as_deref())?;
    let junit = output::open(args.junit.as_deref())?;
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
    let mut told = Ok(());
    let reports = suite::run_all(&files, &options, jobs, &mut |report| {
        if !quiet && told.is_ok() {
            told = print(words(args, report).as_bytes());
        }
    });
    told?;
    if let Some(output) = json {
        output.write(&report::json(&reports)?)?;
    }
    if let Some(output) = junit {
        output.write(&report::junit(&reports))?;
    }
    if !quiet {
        print((report::totals(&reports) + "\n").as_bytes())?;
    }
    let fine = |report: &Report| matches!(report.status, Status::Passed | Status::Differs);
    if reports.iter().all(fine) { Ok(()) } else { Err(ToldAlready.into()) }
}

/// The printed report of one script.
fn words(args: &DrillArgs, report: &Report) -> String {
    let mut text = report.summary() + "\n";
    if args.verbose {
        for line in report.packets.iter().chain(&report.printed) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    if args.segments {
        text.push_str(&report.segment_list());
    }
    text.push_str(&report.text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Vec<(String, Option<String>)> {
        let command = ScriptArgs::augment_args(Command::new("drill").no_binary_name(true));
        let matches = command.try_get_matches_from(words).unwrap();
        ScriptArgs::from_arg_matches(&matches).unwrap().0
    }

    #[test]
    fn every_option_is_one_of_scripts() {
        for &ScriptOption { name, alias, value, .. } in SCRIPT_OPTIONS {
            let text = match name {
                "ip_version" => "ipv6",
                "netmask_ip" => "255.255.0.0",
                _ if name.ends_with("_ip") => "192.0.2.7",
                _ => "1000",
            };
            let text = Some(text).filter(|_| !value.is_empty());
            for name in [name, alias].into_iter().filter(|name| !name.is_empty()) {
                let word = text.map_or(format!("--{name}"), |text| format!("--{name}={text}"));
                let found = given(&[word.as_str()]);
                assert_eq!(found.len(), 1, "{word}");
                assert_eq!(found[0].1.as_deref(), text, "{word}");
                Config::default().apply(&found[0].0, text).unwrap();
            }
        }
        let defines = given(&["-D", "A=b", "--define=C=d", "--strict_segments"]);
        let names: Vec<&str> = defines.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["strict_segments", "define", "define"]);
    }
}
