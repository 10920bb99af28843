//! Tests of other projects, on our sockets: suites of `cargo xtask nightly`.

pub(crate) mod facades;
pub(crate) mod h2;
mod package;
pub(crate) mod quinn;
pub(crate) mod registry;
mod rewrite;
pub(crate) mod tokio;
