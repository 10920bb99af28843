//! `plimsoll get`: fetch a URL through the stack.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll::{Connector, Stack};
use serde::Serialize;

use crate::args::GetArgs;
use crate::http::client::{self, GetError};
use crate::net::{self, Captures};
use crate::output;
use plimsoll_lab::figures::{Figures, per};
use plimsoll_lab::progress::Progress;
use plimsoll_lab::usage::Usage;

/// How long the last packets may take once everything was received.
const GRACE: Duration = Duration::from_secs(2);

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    seconds: f64,
    /// Unknown if the reader of standard output closed it before the end.
    bytes: Option<u64>,
    #[serde(flatten)]
    figures: &'a Figures,
}

/// Runs it.
pub(crate) fn run(args: &GetArgs) -> anyhow::Result<()> {
    let json = output::open(args.json.as_deref())?;
    let mut captures = Captures::default();
    let stack = net::tun_stack(&args.stack, true, &mut captures)?;
    let _control = net::control(&[("stack", &stack)]);
    let before = Usage::now();
    let start = Instant::now();
    let bytes = net::name_device(&args.stack, fetch(args, &stack))?;
    let elapsed = start.elapsed().as_secs_f64();
    let usage = Usage::now().since(before);
    let counters = net::counters(&stack);
    stack.shutdown(GRACE);
    let acks = counters.get("plimsoll.AcksSent").map(|&acks| acks as f64);
    let figures = Figures {
        throughput_bits_per_s: bytes.and_then(|bytes| per(bytes as f64 * 8.0, elapsed)),
        acks_per_gigabyte: acks.zip(bytes).and_then(|(acks, bytes)| per(acks, bytes as f64 / 1e9)),
        acks_per_s: acks.and_then(|acks| per(acks, elapsed)),
        ..Figures::of(counters, Some(usage))
    };
    let document = Document { command: "get", seconds: elapsed, bytes, figures: &figures };
    output::write_json(json, &document)?;
    captures.finish()
}

fn fetch(args: &GetArgs, stack: &Stack) -> anyhow::Result<Option<u64>> {
    let stream = Connector::new(stack)
        .timeout(args.timeout)
        .connect(args.url.addr)
        .with_context(|| format!("cannot connect to {}", args.url.addr))?;
    stream.set_read_timeout(Some(args.timeout))?;
    stream.set_write_timeout(Some(args.timeout))?;
    let mut progress = Progress::new();
    let mut show = |done, expected| progress.bytes(done, expected);
    let stdout = output::is_stdout(args.output.as_deref()) || args.output.is_none();
    let mut output: Box<dyn Write> = match &args.output {
        Some(path) if !stdout => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        _ => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    match client::get(stream, &args.url, &mut output, &mut show) {
        // The reader of standard output may close it early.
        Err(GetError::Output(error)) if stdout && error.kind() == ErrorKind::BrokenPipe => Ok(None),
        other => other.map(Some).with_context(|| format!("cannot fetch {}", args.url.target)),
    }
}
