//! `plimsoll explain`: what held the flows of a capture up.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_explain::{Options, Report, explain, explain_file, html_report, text_report};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::SIGINT;

use crate::output;
use crate::units;

/// `plimsoll explain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A capture in the format of pcap or pcapng, of any origin; - is standard input, as in
    /// tcpdump -w - | plimsoll explain -
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Number of flows to show, the costliest first; JSON has all that are kept
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub top: usize,
    /// Also write everything as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write a page for a browser; - is standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Packets that follow within this time could have been merged; a bare number is milliseconds
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = units::delay)]
    pub soon: Duration,
    /// The longest time by which a receiver delays ACKs; TCP allows half a second, Linux takes 40
    /// to 200 ms
    #[arg(long, value_name = "TIME", default_value = "500", value_parser = units::delay)]
    pub longest_delay: Duration,
    /// Number of flows to keep at once; of others only sums are kept
    #[arg(long, value_name = "COUNT", default_value_t = 16384,
          value_parser = |text: &str| units::whole(text, 1_u32, 1_000_000))]
    pub most_flows: u32,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs it.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let options = Options {
        soon: nanos(args.soon),
        stall_most: nanos(args.longest_delay),
        most_flows: args.most_flows as usize,
        ..Options::default()
    };
    let on_stdout = output::on_stdout("--json and --html", &[&args.json, &args.html])?;
    // Opened now, so that nothing is in vain for a name that cannot be written.
    let (json, html) = (output::open(args.json.as_deref())?, output::open(args.html.as_deref())?);
    let report = if args.file == Path::new("-") {
        explain_input(&options)?
    } else {
        explain_file(&args.file, &options)?
    };
    if let Some(output) = html {
        output.write(&html_report(&report, args.top))?;
    }
    output::write_json(json, &report)?;
    if !on_stdout {
        output::print(text_report(&report, args.top).as_bytes())?;
    }
    Ok(())
}

/// Explains what comes on standard input until it ends.
fn explain_input(options: &Options) -> anyhow::Result<Report> {
    let input = io::stdin();
    if input.is_terminal() {
        bail!("standard input is a terminal; pipe a capture into it, as in tcpdump -w - | ...");
    }
    let input = Input::new().context("standard input")?;
    let mut report = explain(input, options).context("standard input")?;
    report.file = "standard input".into();
    Ok(report)
}

/// Standard input. The first Ctrl-C ends the capture, not the report: the capturing program closes
/// the pipe. If it does not, since Ctrl-C reaches only foreground processes, the second Ctrl-C ends
/// the reading. The third one ends the program.
struct Input {
    input: File,
    /// A byte for each interrupt.
    interrupts: UnixStream,
    count: u64,
    ended: Arc<AtomicBool>,
}

impl Input {
    fn new() -> io::Result<Input> {
        let (interrupts, writer) = UnixStream::pair()?;
        let ended = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&ended))?;
        signal_hook::low_level::pipe::register(SIGINT, writer)?;
        // Without the buffer of the standard library, so that nothing waits there unseen.
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Input { input, interrupts, count: 0, ended })
    }

    fn interrupted(&mut self) -> io::Result<()> {
        self.count += self.interrupts.read(&mut [0])? as u64;
        if self.count > 1 {
            self.ended.store(true, Ordering::SeqCst);
        } else {
            eprintln!("waiting for the end of the capture; Ctrl-C once more reports what has come");
        }
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !self.ended.load(Ordering::SeqCst) {
            let mut ready = [
                PollFd::new(&self.interrupts, PollFlags::IN),
                PollFd::new(&self.input, PollFlags::IN),
            ];
            poll(&mut ready, None)?;
            let [interrupt, data] = ready.map(|each| !each.revents().is_empty());
            if interrupt {
                self.interrupted()?;
            } else if data {
                return self.input.read(buf);
            }
        }
        Ok(0)
    }
}
