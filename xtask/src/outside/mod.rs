//! Tests of other projects, on our sockets: suites of `cargo xtask nightly`.

pub(crate) mod facades;
pub(crate) mod h2;
mod project;
mod quinn;
pub(crate) mod registry;
pub(crate) mod slirp4netns;
mod tokio;

pub(crate) use quinn::QUINN;
pub(crate) use tokio::TOKIO;
