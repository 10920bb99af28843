//! Loss recovery, from its specification in docs/recovery.md.

mod loss_probe;
mod min_rtt;
mod prr;
mod rack;
mod reordering;
mod rtt;
