//! What the stack keeps for each socket: the connection, who owns it, what was left for its owner,
//! and who waits.
//!
//! Nothing here knows the stack. What is done with it is in `stack/`.

pub(crate) mod backlog;
pub(crate) mod decision_log;
pub(crate) mod endpoint;
pub(crate) mod fast_open;
pub(crate) mod gate;
pub(crate) mod listening;
pub(crate) mod md5;
pub(crate) mod panics;
pub(crate) mod path_report;
pub(crate) mod prequeue;
pub(crate) mod queue_misses;
pub(crate) mod quote;
pub(crate) mod saved_syn;
pub(crate) mod summary;
pub(crate) mod udp;
pub(crate) mod unhandled;
pub(crate) mod wakers;
