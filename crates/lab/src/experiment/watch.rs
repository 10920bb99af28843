//! Progress.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where an experiment says how far it is: a line that changes on a terminal, a line for each
/// experiment elsewhere.
pub struct Watch {
    bar: Option<ProgressBar>,
    name: String,
}

impl Watch {
    /// For one experiment, as in `2/5 autocork`.
    pub fn new(name: &str) -> Watch {
        use std::io::IsTerminal;
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let plain = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
            bar.set_style(plain.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Watch { bar, name: name.to_owned() }
    }

    /// Says that it begins, where nothing else is shown.
    pub(crate) fn begin(&self) {
        if self.bar.is_none() {
            eprintln!("{}", self.name);
        }
    }

    /// Says what runs now.
    pub fn show(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {what}", self.name));
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
