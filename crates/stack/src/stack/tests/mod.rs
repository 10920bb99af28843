//! Two stacks over a memory link, on virtual time, in one thread.

pub(crate) mod harness;

mod abandoned;
mod below;
mod budgets;
mod channel;
mod close;
mod closed_windows;
mod connect;
mod counters_ip;
mod counters_work;
mod devices;
mod ended;
mod gate;
mod gate_storm;
mod icmp;
mod interfaces;
mod lifecycle;
mod malformed;
mod memory;
mod metrics;
mod owned;
mod panics;
mod prequeue;
mod qdisc;
mod readiness;
mod request_ack;
mod signed;
mod spinning;
mod syn_flood;
mod tcp_mem;
mod transfer;
mod turns;
mod waiting;
mod wakeups;
