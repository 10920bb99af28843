//! What a recorded run says of itself.

use serde::{Deserialize, Serialize};

/// The run that the faults of a scenario are those of. With it, the file is a record, which
/// `plimsoll sim replay` runs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Record {
    /// The seed of the run. It is also that of what is random in the stacks.
    pub seed: u64,
    /// The hash of its packets ([`Outcome::trace`](crate::Outcome::trace)), in hexadecimal.
    pub trace: String,
}

impl Record {
    /// The record of a run with `seed` whose packets have the hash `trace`.
    pub fn new(seed: u64, trace: u64) -> Record {
        Record { seed, trace: format!("{trace:016x}") }
    }
}
