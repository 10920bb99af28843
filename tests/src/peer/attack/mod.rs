//! Attackers, and the bystander who must not notice: the parts of `bench attacks`.
//!
//! All run in the namespace of a test, end by themselves after `--seconds`, and print one line of
//! JSON.

mod bystander;
mod crowd;
mod holes;
mod spray;

pub(super) use bystander::bystander;
pub(super) use crowd::crowd;
pub(super) use holes::holes;
pub(super) use spray::spray;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many sockets as the system allows it.
fn many_descriptors() -> Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: most, maximum: most };
    setrlimit(Resource::Nofile, limit).context("raising the limit of open files")
}
