//! What is meant to differ between the two engines.
//!
//! Every entry names a finding, says which differences are its consequence, and whether the rest of
//! the script still can be compared.

use crate::duel::Difference;

/// What becomes of a script that met a known difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The rest is compared: the two go on alike.
    GoOn,
    /// The rest is not compared: the two have parted.
    End,
}

/// A known difference.
pub struct Known {
    /// The number of the finding whose mending makes the difference, or the commit.
    pub finding: &'static str,
    /// Whether this difference is meant.
    pub covers: fn(&Difference) -> bool,
    /// What becomes of the script.
    pub then: Then,
}

/// All that is meant to differ from commit 8c08334.
pub const KNOWN: &[Known] = &[
    // A commit, not a finding: one reason is worded otherwise.
    Known { finding: "28ca18c", covers: reworded, then: Then::GoOn },
];

fn reworded(difference: &Difference) -> bool {
    const BEFORE: &str = "to the end of a stretch of the buffer";
    const AFTER: &str = "cut at the end of a buffer of the write queue";
    matches!(difference.what.as_str(), "note" | "decisions")
        && difference.old.replace(BEFORE, AFTER) == difference.new
}
