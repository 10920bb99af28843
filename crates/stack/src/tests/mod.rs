//! Two stacks over a memory link, on virtual time, in one thread.

pub(crate) mod harness;

mod below;
mod close;
mod connect;
mod devices;
mod ended;
mod icmp;
mod lifecycle;
mod malformed;
mod memory;
mod prequeue;
mod qdisc;
mod readiness;
mod request_ack;
mod signed;
mod spinning;
mod tcp_mem;
mod transfer;
mod turns;
mod wakeups;
