//! The line that shows how far a run is, on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::show;

/// A progress line on standard error. It costs one comparison per call between two updates.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    next: Duration,
}

/// Time between two updates.
const EVERY: Duration = Duration::from_millis(200);

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// A line that shows up only if standard error is a terminal.
    pub fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let plain = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(plain.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Progress { bar, started: Instant::now(), next: EVERY }
    }

    /// Shows bytes so far, of `expected` if that is known.
    pub fn bytes(&mut self, done: u64, expected: Option<u64>) {
        self.update(|seconds| {
            let rate = show::rate(done as f64 * 8.0 / seconds);
            let of = expected
                .map_or_else(String::new, |bytes| format!(" of {}", show::bytes(bytes as f64)));
            format!("{seconds:.1} s  {}{of}  {rate}", show::bytes(done as f64))
        });
    }

    /// Shows transactions so far.
    pub fn transactions(&mut self, done: u64) {
        self.update(|seconds| {
            format!("{seconds:.1} s  {done} transactions  {:.0}/s", done as f64 / seconds)
        });
    }

    fn update(&mut self, message: impl FnOnce(f64) -> String) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.started.elapsed();
        if elapsed >= self.next {
            self.next = elapsed + EVERY;
            bar.set_message(message(elapsed.as_secs_f64()));
            bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
