//! `plimsoll rr` and `plimsoll crr`: transactions.

use serde::Serialize;

use plimsoll_lab::workload::Kind;

use super::{measure, workload};
use crate::args::RrArgs;
use crate::output::{self, print};
use plimsoll_lab::figures::{self, Counters, Figures};

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    in_process: bool,
    flows: u32,
    request_bytes: usize,
    response_bytes: usize,
    seconds: f64,
    transactions: u64,
    #[serde(flatten)]
    figures: &'a Figures,
    server_counters: Option<&'a Counters>,
}

/// Runs it, over open connections or with a connection for each transaction.
pub(crate) fn run(args: &RrArgs, reconnect: bool) -> anyhow::Result<()> {
    let (sizes, transactions) = (args.request, args.transactions.unwrap_or(u64::MAX));
    let kind = Kind::Rr { sizes, transactions, reconnect };
    let json = output::open(args.run.json.as_deref())?;
    let (workload, captures) = workload(kind, &args.run, &args.link, &args.stack)?;
    let measured = measure(&workload, &args.stack)?;
    let figures = measured.figures(&kind);
    let seconds = measured.elapsed.as_secs_f64();
    if !output::is_stdout(args.run.json.as_deref()) {
        let title = format!(
            "{} transactions of {}/{} bytes in {seconds:.2} s over {} flow(s)\n",
            measured.transactions, sizes.request, sizes.response, args.run.flows
        );
        print((title + &figures::table(&figures.rows())).as_bytes())?;
    }
    let document = Document {
        command: if reconnect { "crr" } else { "rr" },
        in_process: args.run.to.is_none(),
        flows: args.run.flows,
        request_bytes: sizes.request,
        response_bytes: sizes.response,
        seconds,
        transactions: measured.transactions,
        figures: &figures,
        server_counters: measured.server_counters(),
    };
    output::write_json(json, &document)?;
    captures.finish()
}
