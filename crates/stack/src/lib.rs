//! Many TCP connections and UDP sockets on devices: IP, ICMP, demultiplexing, timers, devices. It
//! has no thread and no clock. Two stacks on a link in memory, with virtual time:
//!
//! ```
//! use plimsoll_stack::device::memory_link;
//! use plimsoll_stack::{Instant, InterfaceConfig, Stack, StackConfig};
//! use plimsoll_tcp::Options;
//!
//! let (here, there) = memory_link::pair(Default::default());
//! let stack = |device, address: &str| {
//!     let addresses = vec![(address.parse().expect("an address"), 24)];
//!     let interfaces = vec![InterfaceConfig { device, addresses, mtu: None }];
//!     // A real caller takes the secret and the seed from the operating system.
//!     Stack::new(StackConfig { interfaces, secret: [7; 32], seed: 7, ..StackConfig::default() })
//! };
//! let (client, server) = (stack(here, "192.0.2.1")?, stack(there, "192.0.2.2")?);
//! let now = Instant::from_millis(1000);
//!
//! let address = "192.0.2.2:7".parse()?;
//! let listener = server.listen(address, 16, Options::default())?;
//! let socket = client.connect(now, address, None, Options::default())?;
//! while client.poll(now, 64)?.worked | server.poll(now, 64)?.worked {}
//! assert_eq!(socket.state(), plimsoll_tcp::State::Established);
//! assert!(listener.accept(now)?.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `futures` | `Stream` and `Sink` on the ends of a channel device |
//! | `futures-io` | futures-io's `AsyncRead` and `AsyncWrite` on them |
//! | `tokio` | tokio's `AsyncRead` and `AsyncWrite` on them |
//! | `tracing` | spans and events of the crate tracing |
//!
//! # Ways to run a stack
//!
//! Any thread may call [`Stack::poll`]; one at a time does the work. [`Poll::next`](Poll) is
//! when the next poll is due, and [`QueueWaiter`] sleeps until a device or a socket call needs one.
//! The crate `plimsoll` adds threads, a task for tokio, and blocking and async sockets.
//!
//! # Theory of operation
//!
//! A [`Stack`] owns interfaces, tables and settings. Every call takes the time as an argument.
//! [`Stack::poll`] is the only loop. It takes batches of packets from the devices, finds the
//! connection of each, and passes the segments to the engine (`plimsoll_tcp`). It fires due timers,
//! collects the engine's packets, and passes them to the devices. Application calls on a
//! [`TcpSocket`] do the same for one connection on the caller's thread.
//!
//! One thread at a time works on a connection: it owns the socket's lock during each call of the
//! engine. No thread owns two sockets. The locks of tables, timer wheel and queueing disciplines
//! are leaves: a thread that holds one waits for nothing else. Wakers run after every lock was
//! released.
//!
//! Limits are in [`limits`], each with the behaviour when it is reached.
//!
//! # Components
//!
//! A stack has four components: `tables` (connections and listeners), `interfaces` (devices,
//! routes), `pollers` (loops and their timers) and `policies` (settings, memory). None of them
//! references the stack, nor do the connections in `sockets`. Code that needs several of them is
//! below `stack`. Modules do not depend on each other cyclically, except a module and its children.
//!
//! # Where to look
//!
//! | question | file |
//! |---|---|
//! | what happens in one poll | `stack/poll.rs` |
//! | a packet arrives | `stack/ip/input.rs`, `stack/tcp_input.rs` |
//! | its socket is owned by another thread | `sync/socket_lock.rs`, `stack/backlog.rs` |
//! | a call of a connection panics | `stack/panics.rs` |
//! | a datagram arrives, or leaves | `stack/udp/input.rs`, `stack/udp/output.rs` |
//! | a packet leaves | `stack/ip/output.rs`, `interfaces/tx_path.rs` |
//! | the link of a link-local address | `zone.rs`, `interfaces/route/zones.rs` |
//! | a device fails | `stack/interface_health.rs` |
//! | how much memory all connections may hold | `policies/memory.rs` |
//! | how much one listener's connections may use | `policies/budget.rs`, `stack/budgets.rs` |
//! | when a connection's timer fires | `pollers/timer_wheel.rs` |
//! | how a thread sleeps and is woken | `stack/wait.rs`, `kick.rs` |
//! | differences between operating systems | `platform/` |
//! | tasks and threads that wait for a socket | `sockets/wakers.rs` |
//! | what ends a stack | `stack/ending.rs` |
//! | settings | `policies/sysctl.rs` |
//! | counters, connections by state | `snmp.rs`, `stack/life.rs` |
//! | events for the crate tracing | `events.rs` |
#![cfg_attr(docsrs, feature(doc_cfg))]

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
pub use sync::loan_cell::{Loan, LoanCell, LoanGuard};
