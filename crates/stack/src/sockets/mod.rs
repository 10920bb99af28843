//! The state of each socket: the connection, its owner, the work left for the owner, and the
//! waiters.
//!
//! Nothing here refers to the stack. The code that uses these types is in `stack/`.

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
