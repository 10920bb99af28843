//! What is asked of an experiment.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::Column;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Flows of each case, in place of the experiment's own.
    pub flows: Option<Vec<u32>>,
    /// Pairs of each case.
    pub pairs: usize,
    /// How many pairs of a case are measured again because other programs had the processors.
    pub again: usize,
    /// Only the first case of each experiment runs.
    pub headlines: bool,
    /// No pair begins that would end after this, except the first of a case.
    pub until: Option<Instant>,
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
            again: 5,
            headlines: false,
            until: None,
            length: Duration::from_millis(800),
            warm_up: Duration::from_millis(300),
            captures: None,
            kernel: false,
        }
    }
}

/// How long the quick form may take. It is a little less than the 90 seconds that are promised, for
/// what ends late.
const QUICK: Duration = Duration::from_secs(82);
/// What each further experiment is left of that.
const EACH: Duration = Duration::from_secs(11);

impl Plan {
    /// Three short pairs of the headlines: enough to see every effect, too little for a
    /// publication.
    pub fn quick() -> Plan {
        let length = Duration::from_millis(600);
        Plan { pairs: 3, again: 2, headlines: true, length, ..Plan::default() }
    }

    /// The plan of an experiment that so many others follow, in a run that began at `started`.
    pub(crate) fn of_experiment(&self, others: usize, started: Instant) -> Plan {
        let until = self.headlines.then(|| started + QUICK.saturating_sub(EACH * others as u32));
        Plan { until, ..self.clone() }
    }

    /// Whether every case runs, in at least the usual number of pairs.
    pub(crate) fn is_whole(&self) -> bool {
        !self.headlines && self.pairs >= Plan::default().pairs
    }

    /// Whether there is time for a pair that takes as long as `pair`.
    pub(super) fn has_time(&self, pair: Duration) -> bool {
        self.until.is_none_or(|until| Instant::now() + pair <= until)
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
