//! What is asked of an experiment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::Column;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Flows of each case, in place of the experiment's own.
    pub flows: Option<Vec<u32>>,
    /// Pairs of each case.
    pub pairs: usize,
    /// How long one run is measured.
    pub length: Duration,
    /// How long it runs before that.
    pub warm_up: Duration,
    /// Captures of what runs, if they are wanted.
    pub captures: Option<Captures>,
    /// Also run against the host's kernel over TUN, and its own TCP beside ours; needs root.
    pub kernel: bool,
}

/// Where captures go, and of what.
#[derive(Clone, Debug)]
pub struct Captures {
    /// The directory. It is made if it does not exist.
    pub dir: PathBuf,
    /// Of every case, or only of the headline.
    pub all: bool,
}

/// How long the runs are that are captured. They count for nothing, since capturing costs more than
/// what is measured.
pub(crate) const CAPTURED: Duration = Duration::from_millis(50);
const CAPTURED_WARM_UP: Duration = Duration::from_millis(20);

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            flows: None,
            pairs: 5,
            length: Duration::from_millis(800),
            warm_up: Duration::from_millis(300),
            captures: None,
            kernel: false,
        }
    }
}

impl Plan {
    /// Three short pairs: enough to see every effect, too little for a publication.
    pub fn quick() -> Plan {
        Plan { pairs: 3, length: Duration::from_millis(600), ..Plan::default() }
    }

    /// The same, as short as a run that is captured.
    pub(super) fn captured(&self) -> Plan {
        Plan { length: CAPTURED, warm_up: CAPTURED_WARM_UP, ..self.clone() }
    }

    /// The directory for captures of a case, if they are wanted; it is made.
    pub(super) fn capture_dir(&self, headline: bool) -> anyhow::Result<Option<&Path>> {
        let wanted = self.captures.as_ref().filter(|captures| captures.all || headline);
        let Some(Captures { dir, .. }) = wanted else { return Ok(None) };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Some(dir))
    }
}

/// The name of the file of a capture.
pub(super) fn file_name(experiment: &str, case: &str, column: Column) -> String {
    let words: Vec<&str> =
        case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    format!("{experiment}-{}-{}.pcapng", words.join("-"), column.name())
}
