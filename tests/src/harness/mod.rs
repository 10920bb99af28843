//! What a test against the host kernel stands on: namespaces, processes, files, time limits.
//!
//! Every test runs in a process of its own, so that a hang, a panic or a leaked descriptor of one
//! cannot touch another. The runner gives that process a *scope*, a name that holds the runner's
//! process number. Namespaces and directories carry the scope in their names, so the runner can
//! remove what a test left behind, whatever happened to it, and a later run can remove what a
//! killed runner left behind.
//!
//! Nothing here waits by sleeping in a loop: lines arrive over channels, processes end on a pidfd.

pub(crate) mod behind;
pub(crate) mod capture;
pub(crate) mod files;
pub(crate) mod netns;
pub(crate) mod path;
pub(crate) mod process;
pub(crate) mod routed;
pub(crate) mod runner;
pub(crate) mod scope;
pub(crate) mod unprivileged;
pub(crate) mod veth;
pub(crate) mod web;
pub(crate) mod world;
