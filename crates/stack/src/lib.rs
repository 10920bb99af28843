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
//! # Who owns what
//!
//! A stack is four owners: `tables` (who talks with whom), `interfaces` (where packets come and
//! go), `pollers` (who polls) and `policies` (by which rules). None of them knows the stack, nor do
//! the connections in `sockets`. What needs more than one of them stands in a file below `stack`.
//! No modules use each other in a circle, but for a module and what is in it; `cargo xtask modules`
//! shows who uses whom.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | what happens in one poll | `stack/poll.rs` |
//! | what happens to a packet that arrives | `stack/ip/input.rs`, `stack/tcp_input.rs` |
//! | what happens if its socket is owned | `sync/socket_lock.rs`, `stack/backlog.rs` |
//! | what happens if a call of a connection panics | `stack/panics.rs` |
//! | what happens to a datagram of UDP | `stack/udp/input.rs`, `stack/udp/output.rs` |
//! | what happens to a packet that leaves | `stack/ip/output.rs`, `interfaces/tx_path.rs` |
//! | which link a link-local address is of | `zone.rs`, `interfaces/route/zones.rs` |
//! | what happens when a device fails | `stack/interface_health.rs` |
//! | what all connections may hold, who waits for memory | `policies/memory.rs` |
//! | what one listener's connections may use | `policies/budget.rs`, `stack/budgets.rs` |
//! | when a connection's timer fires | `pollers/timer_wheel.rs` |
//! | how a thread sleeps and is woken | `stack/wait.rs`, `kick.rs` |
//! | what differs between operating systems | `platform/` |
//! | who waits for a socket | `sockets/wakers.rs` |
//! | what ends a stack | `stack/ending.rs` |
//! | which settings exist | `policies/sysctl.rs` |
//! | what is counted | `snmp.rs`, connections by state `stack/life.rs` |
//! | what is told with the feature `tracing` | `events.rs` |

mod arrived;
mod connection_id;
pub mod device;
mod error;
mod events;
mod flow;
mod interfaces;
pub mod kick;
pub mod limits;
mod metrics;
pub mod offload;
pub mod packet;
mod platform;
mod policies;
mod pollers;
pub mod qdisc;
mod snmp;
mod sockets;
mod stack;
mod sync;
mod tables;
mod zone;

pub use error::{SocketError, StackError};
pub use interfaces::interface::{InterfaceConfig, InterfaceStatus};
pub use interfaces::route::RouteConfig;
pub use metrics::{
    ConnectionCounts, CounterGroup, CounterValue, InterfaceMetrics, ListenerMetrics, Metrics,
    UdpMetrics,
};
pub use plimsoll_tcp::{Duration, Instant, PathMtuDiscovery, RouteMetrics};
pub use policies::budget::{Budget, BudgetUse, Refusal};
pub use policies::memory::MemoryUse;
pub use policies::metrics::PeerMetrics;
pub use policies::sysctl::{SysctlError, SysctlInfo, SysctlTable};
pub use policies::udp_memory::UdpMemoryUse;
pub use pollers::coarse_timers::CoarseTimers;
pub use pollers::waiter::Waiter;
pub use snmp::CounterInfo;
pub use sockets::endpoint::{Edges, Readiness};
pub use sockets::fast_open::FastOpenKeys;
pub use sockets::gate::{Cancelled, GateConfig};
pub use sockets::md5::Md5Keys;
pub use sockets::summary::{SocketSummary, UdpSocketSummary};
pub use sockets::udp::flow::UdpFlowConfig;
pub use sockets::udp::options::UdpOptions;
pub use sockets::udp::receive_queue::{DatagramInfo, Received};
pub use sockets::unhandled::{Disposition, Unhandled, UnhandledConfig, UnhandledKind};
pub use sockets::wakers::{Interest, WaitKey};
pub use stack::busy_poll::{Spin, Spun};
pub use stack::gated::{Incoming, ListenOn, Reject, SynOptions, Unreachable};
pub use stack::listener::{ListenConfig, Listener};
pub use stack::raw::RawTransmit;
pub use stack::sending::QdiscSummary;
pub use stack::shutdown::{ShutdownBegin, ShutdownReport};
pub use stack::socket::TcpSocket;
pub use stack::udp::flows::UdpListener;
pub use stack::udp::output::UdpTransmit;
pub use stack::udp::socket::UdpSocket;
pub use stack::unhandled::{UnhandledHook, UnhandledReceiver};
pub use stack::wait::{Prepared, QueueWaiter};
pub use stack::{ConnectionMemory, Poll, Stack, StackConfig};
pub use sync::turn_cell::{Lent, Taken, TurnCell};
