//! `plimsoll lab`: the published experiments, before and after.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_lab::experiment::{Plan, table};
use plimsoll_lab::experiments::{self, Experiment};

use crate::{net, units};

/// `plimsoll lab`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LabArgs {
    /// Experiments to run [default: print the list]
    #[arg(value_name = "NAME", value_parser = experiment)]
    pub names: Vec<&'static str>,
    /// Also write the figures as JSON: one object for one experiment, else an array; - is standard
    /// output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Flows of each case, in place of the experiment's own
    #[arg(short = 'P', long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub flows: Vec<u32>,
    /// Pairs of runs, before and after in turn
    #[arg(long, value_name = "COUNT", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub pairs: u16,
    /// Seconds that each run is measured
    #[arg(short = 'l', long, value_name = "SECONDS", default_value = "1",
          value_parser = units::run_time)]
    pub length: Duration,
    /// Write captures of one run before and one after into this directory
    #[arg(long, value_name = "DIR")]
    pub pcap_dir: Option<PathBuf>,
    /// Leave out what needs root: the runs over TUN against the kernel
    #[arg(long)]
    pub no_tun: bool,
}

/// A name that is known, for clap.
fn experiment(text: &str) -> Result<&'static str, String> {
    experiments::find(text).map(|found| found.name).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().map(|known| known.name).collect();
        format!("no such experiment; known: {}", names.join(", "))
    })
}

/// Runs it.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<()> {
    if args.names.is_empty() {
        for Experiment { name, about, .. } in experiments::ALL {
            println!("{name:<12} {about}");
        }
        return Ok(());
    }
    let chosen: Vec<&Experiment> =
        args.names.iter().filter_map(|name| experiments::find(name)).collect();
    let plan = Plan {
        flows: (!args.flows.is_empty()).then(|| args.flows.clone()),
        pairs: usize::from(args.pairs),
        length: args.length,
        pcap_dir: args.pcap_dir.clone(),
        tun: !args.no_tun,
        ..Plan::default()
    };
    let reports = plimsoll_lab::run(&chosen, &plan)?;
    if !net::is_stdout(args.json.as_deref()) {
        print!("{}", table::text(&reports));
    }
    args.json.as_deref().map_or(Ok(()), |path| plimsoll_lab::write_json(path, &reports))
}
