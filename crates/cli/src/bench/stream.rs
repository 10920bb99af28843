//! `plimsoll stream`: bulk data one way.

use serde::Serialize;

use plimsoll_lab::workload::Kind;

use super::{measure, workload};
use crate::args::StreamArgs;
use crate::output::{self, print};
use plimsoll_lab::figures::{self, Counters, Figures};
use plimsoll_lab::show;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    in_process: bool,
    reverse: bool,
    flows: u32,
    message_bytes: usize,
    write_buffer_bytes: Option<usize>,
    shared: bool,
    seconds: f64,
    bytes: u64,
    #[serde(flatten)]
    figures: &'a Figures,
    server_counters: Option<&'a Counters>,
}

/// Runs it.
pub(crate) fn run(args: &StreamArgs) -> anyhow::Result<()> {
    let (message, bytes) = (args.message, args.bytes.unwrap_or(u64::MAX));
    let kind =
        if args.reverse { Kind::Receive { message, bytes } } else { Kind::Send { message, bytes } };
    let json = output::open(args.run.json.as_deref())?;
    let (mut workload, captures) = workload(kind, &args.run, &args.link, &args.stack)?;
    workload.write_buffer = args.write_buffer;
    workload.shared = args.shared;
    let measured = measure(&workload, &args.stack)?;
    let figures = measured.figures(&kind);
    let seconds = measured.elapsed.as_secs_f64();
    if !output::is_stdout(args.run.json.as_deref()) {
        let verb = if args.reverse { "received" } else { "sent" };
        let total = show::bytes(measured.bytes as f64);
        let title = format!("{verb} {total} in {seconds:.2} s over {} flow(s)\n", args.run.flows);
        print((title + &figures::table(&figures.rows())).as_bytes())?;
    }
    let document = Document {
        command: "stream",
        in_process: args.run.to.is_none(),
        reverse: args.reverse,
        flows: args.run.flows,
        message_bytes: message,
        write_buffer_bytes: args.write_buffer,
        shared: args.shared,
        seconds,
        bytes: measured.bytes,
        figures: &figures,
        server_counters: measured.server_counters(),
    };
    output::write_json(json, &document)?;
    captures.finish()
}
