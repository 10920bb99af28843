//! Loss recovery, from its specification in docs/recovery.md.

mod min_rtt;
mod rtt;
