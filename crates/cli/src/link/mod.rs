//! `plimsoll link`: a path of a given rate, delay and loss between two TUN devices, in real time.
//!
//! The links and queues are those of the simulator, with the machine's clock. So a kernel, or any
//! program, can be at either end of the very bottleneck that a simulation has. Unlike a simulation,
//! a machine sends packets late. The lateness is measured before the first packet is carried, and
//! with every packet.

mod carrier;
mod late;
mod place;
mod report;

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plimsoll::now;
use plimsoll_sim::link::LinkConfig;
use plimsoll_sim::link::spec::{self, Direction, LinkSpec};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::carrier::Carrier;
use self::place::Place;
use self::report::{Check, Report};
use crate::output::{self, Output, print};
use crate::{UsageError, units};

/// `plimsoll link`.
///
/// A SPEC is a list of NAME=VALUE: rate=20mbit or trace=FILE (of mahimahi), delay=20ms (one way),
/// jitter=1ms, loss=1%, burst=4 (mean length of losses in packets), reorder=1%, reorder-delay=5ms,
/// duplicate=0.1%, corrupt=0.01%, mark=1% (congestion experienced),
/// queue=drop-tail|codel|fq_codel|dual-pi2, buffer=250kB or buffer=1bdp, overhead=38 (bytes of each
/// packet in addition to IP's), mtu=1500 (longer packets are dropped silently), seed=7. Everything
/// else is perfect. It may begin with 3g, lte, dsl, satellite, transatlantic or bad-wifi, as in
/// '3g,loss=2%', with the user on the left. Words of tc netem do as well: 'delay 50ms 20ms loss
/// 0.3% 25%'.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkCommandArgs {
    /// The device at one end, created if it does not exist; NETNS as in `ip netns`
    #[arg(long, value_name = "tun:NAME[@NETNS]")]
    pub left: Place,
    /// The device at the other end
    #[arg(long, value_name = "tun:NAME[@NETNS]")]
    pub right: Place,
    /// The path from left to right
    #[arg(long, value_name = "SPEC", default_value = "")]
    pub link: LinkSpec,
    /// Differences of the path from right to left
    #[arg(long, value_name = "SPEC", default_value = "")]
    pub back: LinkSpec,
    /// Seed of all random numbers, unless SPEC has one
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How long to measure, before any packet is carried, how well rate and delay are kept; 0 skips
    /// it
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub check: Duration,
    /// Refuse to start if the check finds rate or delay off by more than this
    #[arg(long, value_name = "SHARE", value_parser = units::fraction)]
    pub max_error: Option<f64>,
    /// End after this time [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "TIME", value_parser = units::run_time)]
    pub time: Option<Duration>,
    /// Write the figures of the check and of the traffic as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs it.
pub(crate) fn run(args: &LinkCommandArgs) -> anyhow::Result<()> {
    let configs = configs(args)?;
    let json = output::open(args.json.as_deref())?;
    let quiet = json.as_ref().is_some_and(Output::is_stdout);
    let say = |text: String| if quiet { Ok(()) } else { print(text.as_bytes()) };
    // Without this the kernel wakes a sleeper up to 50 microseconds late, to save power.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("prctl")?;
    let (stop, wake) = UnixStream::pair().context("cannot make a pair of sockets")?;
    for signal in [SIGINT, SIGTERM] {
        let wake = wake.try_clone().context("cannot duplicate a socket")?;
        signal_hook::low_level::pipe::register(signal, wake).context("cannot await signals")?;
    }
    let check = check(args, &configs)?;
    if let Some(check) = &check {
        say(check.to_string())?;
        check.within(args.max_error)?;
    }
    let mut carrier =
        Carrier::open([&args.left, &args.right], configs, args.link.seed().unwrap_or(args.seed))?;
    say(format!("carrying between {} and {}\n", args.left, args.right))?;
    let began = now();
    carrier.run(args.time.map(|time| began + time), stop.as_fd())?;
    let time = now().since(began);
    let report = Report::new([&args.left, &args.right], carrier.links(), time, check);
    say(report.to_string())?;
    output::write_json(json, &report)
}

fn configs(args: &LinkCommandArgs) -> Result<[LinkConfig; 2], UsageError> {
    if args.left == args.right {
        return Err(UsageError(format!("both ends are {}; a link needs two devices", args.left)));
    }
    if args.max_error.is_some() && args.check.is_zero() {
        return Err(UsageError("--max-error needs a --check longer than 0".to_owned()));
    }
    let back = args.back.over(&args.link);
    let configs = spec::pair([&args.link, &back], &LinkConfig::default());
    configs.map_err(|(direction, error)| {
        let option = if direction == Direction::Up { "--link" } else { "--back" };
        UsageError(format!("{option} {error}"))
    })
}

fn check(args: &LinkCommandArgs, configs: &[LinkConfig; 2]) -> anyhow::Result<Option<Check>> {
    if args.check.is_zero() {
        return Ok(None);
    }
    // The faster direction is the harder one to keep.
    let rate = |config: &&LinkConfig| config.rate.unwrap_or(0);
    let [there, back] = configs;
    let config = if rate(&back) > rate(&there) { back } else { there };
    let late = Carrier::check(config, args.check)?;
    let Some(check) = Check::new(config, &late, args.check) else {
        bail!(
            "within a check of {:?} too few packets leave to measure the rate; give a longer --check",
            args.check
        );
    };
    Ok(Some(check))
}
