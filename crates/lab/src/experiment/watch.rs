//! Progress.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Where experiments say how far they are: a bar with the time left on a terminal, a line for each
/// experiment elsewhere.
pub struct Watch {
    bar: Option<ProgressBar>,
    experiments: usize,
    /// Experiments that began.
    begun: usize,
    name: String,
    /// Pairs of this experiment, and those that are done.
    pairs: (usize, usize),
}

/// Steps of the bar for each experiment.
const STEPS: u64 = 1000;

impl Watch {
    /// For so many experiments.
    pub fn new(experiments: usize) -> Watch {
        use std::io::IsTerminal;
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS * experiments as u64);
            let template = "{bar:24} {left}{msg}";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key(
                "left",
                |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    if state.pos() > 0 {
                        let _ = write!(out, "about {} s left, ", state.eta().as_secs());
                    }
                },
            ));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Watch { bar, experiments, begun: 0, name: String::new(), pairs: (1, 0) }
    }

    /// An experiment begins.
    pub(crate) fn begin(&mut self, name: &str) {
        self.begun += 1;
        self.pairs = (1, 0);
        self.name = format!("{}/{} {name}", self.begun, self.experiments);
        if self.bar.is_none() {
            eprintln!("{}", self.name);
        }
        self.draw();
    }

    /// It has so many pairs.
    pub(crate) fn expect(&mut self, pairs: usize) {
        self.pairs = (pairs.max(1), 0);
    }

    /// A pair is done.
    pub(crate) fn advance(&mut self) {
        self.pairs.1 += 1;
        self.draw();
    }

    /// Says what runs now.
    pub fn show(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {what}", self.name));
        }
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            let (all, done) = self.pairs;
            let before = STEPS * self.begun.saturating_sub(1) as u64;
            bar.set_position(before + STEPS * done.min(all) as u64 / all as u64);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
