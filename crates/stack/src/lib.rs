//! Many TCP connections on devices: demultiplexing, IP, ICMP, timers, devices.
//!
//! # Theory of operation
//!
//! A [`Stack`] owns interfaces, tables and settings. It has no thread and no clock of its own:
//! every call takes the time as an argument. [`Stack::poll`] is the only loop. It fires the timers
//! that are due, takes batches of packets from the devices, finds the connection of each, hands
//! the segments to the engine (`plimsoll_tcp`), collects what the engine wants sent, and gives it
//! to the devices. Application calls on a [`TcpSocket`] do the same for one connection on the
//! caller's thread.
//!
//! One connection is worked on by one thread at a time: the socket's lock is held around each call
//! of the engine. Nobody holds two sockets. The locks of tables, timer wheel and queueing
//! disciplines are leaves: they are taken for a few instructions while nothing else is waited for.
//! Wakers fire after every lock has been released.
//!
//! Limits are in [`limits`], each with what happens at it.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | what happens in one poll | `stack.rs`, `poll.rs` |
//! | what happens to a packet that arrives | `ip/input.rs`, `demux/mod.rs` |
//! | what happens if its socket is owned | `sync/socket_lock.rs`, `backlog.rs` |
//! | what happens if a call of a connection panics | `panics.rs` |
//! | what happens to a packet that leaves | `ip/output.rs`, `tx_path.rs`, `device/` |
//! | what happens when a device fails | `interface_health.rs` |
//! | what all connections may hold, who waits for memory | `memory.rs` |
//! | when a connection's timer fires | `timer_wheel.rs` |
//! | how a thread sleeps and is woken | `wait.rs`, `kick.rs` |
//! | who waits for a socket | `wakers.rs` |
//! | what ends a stack | `ending.rs` |
//! | which settings exist | `sysctl.rs` |
//! | what is counted | `snmp.rs` |

mod backlog;
mod busy_poll;
mod clock;
mod completion;
mod decision_log;
mod demux;
pub mod device;
mod ending;
mod endpoint;
mod error;
mod events;
mod fast_connect;
mod fast_open;
mod interface;
mod interface_health;
mod interfaces;
mod ip;
pub mod kick;
pub mod limits;
mod listener;
mod loopback;
mod md5;
mod memory;
pub mod offload;
mod orphans;
pub mod packet;
mod panics;
mod path_news;
mod policies;
mod poll;
mod pollers;
mod prequeue;
mod published;
pub mod qdisc;
mod queue;
mod queue_pool;
mod rx_path;
mod sending;
mod snmp;
mod socket;
mod socket_lock;
mod stack;
mod sync;
mod sysctl;
mod tables;
pub(crate) mod tcp_metrics;
mod timed;
mod timer_wheel;
mod tx_path;
mod wait;
mod waiter_role;
mod wakers;

pub use busy_poll::{Spin, Spun};
pub use endpoint::{Edges, Readiness};
pub use error::{SocketError, StackError};
pub use fast_open::FastOpenKeys;
pub use interface::{InterfaceConfig, InterfaceStatus};
pub use ip::route::RouteConfig;
pub use listener::Listener;
pub use md5::Md5Keys;
pub use memory::MemoryUse;
pub use plimsoll_tcp::{Duration, Instant};
pub use sending::QdiscSummary;
pub use snmp::CounterInfo;
pub use socket::TcpSocket;
pub use stack::{ConnectionMemory, Poll, SocketSummary, Stack, StackConfig};
pub use sysctl::{SysctlError, SysctlInfo, SysctlTable};
pub use tcp_metrics::PeerMetrics;
pub use wait::{QueueWaiter, Waiter};
pub use wakers::{Interest, WaitKey};

#[cfg(test)]
mod tests;
