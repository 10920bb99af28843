//! Plimsoll: a TCP/IP stack in user space, as a library.
//!
//! # Theory of operation
//!
//! A [`Stack`] runs on one or more [`device`]s: a link in memory, a TUN device, or one of these
//! wrapped by a capture or by fault injection. [`TcpStream`], [`TcpListener`] and [`UdpSocket`] are
//! its sockets; they behave as those of std, down to the kinds of their errors.
//!
//! Somebody has to poll the devices, run the timers and hand out what arrives. There are two ways.
//!
//! - [`StackBuilder::build`] starts a *softirq thread* that does it. It sleeps in the kernel until
//!   a device is readable, a timer is due, or a socket call needs it.
//! - [`StackBuilder::build_without_thread`] starts nothing. The caller's own loop calls
//!   [`Stack::poll`], and [`Stack::wait`] when there is nothing to do; [`ReadyQueue`] tells which
//!   of its non-blocking sockets can go on. This way one thread carries a packet from the device to
//!   the application and back without a switch. With the feature `tokio`, `net::Driver` is such
//!   a loop, as a task of the runtime.
//!
//! In both, sockets may be used from any thread, also with blocking calls; only the thread that
//! runs the loop must not block on a socket of its own stack. A blocked call sleeps until its
//! socket can go on or its timeout comes. Nothing polls with sleeps.
//!
//! A stack lives as long as somebody holds a handle: a [`Stack`], a stream or a listener. When the
//! last is dropped its threads end by themselves, soon after; dropping never waits for them. A
//! program that is about to exit calls [`Stack::shutdown`], which waits until what was written has
//! arrived, captures are written and the threads have ended; [`Stack::drain`] only waits.
//!
//! # Panics of the application, and of whoever runs the stack
//!
//! A panic of a waker is caught and counted (`plimsoll.WakerPanics`); the others are woken. A panic
//! of whoever runs the stack (a softirq thread, or [`Stack::poll`] in a loop) ends the stack: every
//! blocked call fails with an error that names the thread and the message, every waker is woken,
//! and [`Stack::error`] tells it as well. What the application itself does within
//! [`Stack::poll_with`], and what [`Stack::wait`] asks, may panic without harm to the stack. A
//! device that panics has failed, which ends the stack only when no device is left. With
//! `panic = "abort"` any of these ends the process.
//!
//! # Panics of the stack
//!
//! The stack should not panic. If it does while it works on a connection, that connection ends, and
//! nothing else does: the peer is reset, whoever waits is woken, and calls fail with
//! [`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted) and a text that asks you to report
//! it. The counter `plimsoll.ConnectionPanics` counts such connections; the message of the panic
//! goes to the panic hook. Values that were written by reference may panic when they are dropped:
//! that harms nobody. All this needs `panic = "unwind"`, which is the default. A program that is
//! built with `panic = "abort"` ends at the first panic, on whatever thread.
//!
//! # Where to look
//!
//! | to | use |
//! |---|---|
//! | connect with options, a timeout, or data in the SYN | [`Connector`] |
//! | wait for many sockets in one loop | [`ReadyQueue`], [`Stack::poll_with`] |
//! | run a device with several queues in as many loops | [`Stack::queue`], [`QueueLoop`] |
//! | keep a loop from sleeping while packets follow each other closely | [`IdlePolls`] |
//! | run a stack in an epoll loop of one's own | [`QueueLoop::prepare_wait`] |
//! | use sockets as those of tokio | [`net`], with the feature `tokio` |
//! | serve axum | the feature `axum` |
//! | read and write by the traits of futures-io | the feature `futures-io` |
//! | read and write in futures of one's own | [`TcpStream::poll_read`] and its neighbours |
//! | connect and accept in a future | [`Connector::connect_async`], [`TcpListener::accept_async`] |
//! | wait in a future | [`Registration`], from [`TcpStream::readable`] and its neighbours |
//! | read and write without a copy | [`TcpStream::read_shared`], [`TcpStream::write_shared`] |
//! | write a little at a time at the cost of a copy | [`BufferedStream`] |
//! | change a setting, or see what there is | [`Stack::set_sysctl`], [`SysctlInfo`] |
//! | overrule one for a socket | [`TcpStream::set_option`] and its neighbours |
//! | count | [`Stack::counters`], [`CounterInfo`], [`TcpStream::info`] |
//! | take all figures of a stack at once | [`Stack::metrics`] |
//! | give them to Prometheus | [`prometheus`], with the feature of that name |
//! | follow connections with the crate tracing | the feature `tracing`, see [below](#tracing) |
//! | ask why | [`TcpStream::decisions`], a capture ([`StackBuilder::pcap`]) |
//! | look names up otherwise than the host does | [`Resolve`] |
//! | end a stack and know what was delivered | [`Stack::shutdown`], `net::shutdown` |
//! | take connections to any address | [`TcpListener::bind_any`], [`StackBuilder::any_address`] |
//! | send and receive datagrams | [`UdpSocket`]; with tokio's API, in [`net`] |
//! | speak QUIC by the crate quinn | `quic`, with the feature `quinn` |
//! | take datagrams to any address | [`UdpListener::bind_any`], [`UdpSocket::bind_any`] |
//! | take packets that nobody wants, proxy pings | [`Stack::on_unhandled`], [`UnhandledPackets`] |
//! | send packets of one's own making | [`Stack::send_raw`] |
//! | bound what connections cost | [`Budget`], [`TcpStream::set_memory_budget`] |
//! | share a port among listeners | [`TcpListener::bind_with_config`], [`ListenConfig`] |
//! | dial before a connection opens, or refuse it | [`gate`]; with tokio's streams, in [`net`] |
//! | give and take packets by hand | [`device::channel()`] |
//! | use a descriptor that was passed to the program | [`device::tun::from_fd`] |
//! | hurt packets on purpose | [`device::fault`], [`device::memory_link::LinkConfig`] |
//!
//! # Tracing
//!
//! With the feature `tracing` the life of each connection is a span, and what happens to it are
//! events, all with the target `plimsoll`:
//!
//! | name | level | fields |
//! |---|---|---|
//! | span `connection` | INFO | `local`, `peer`, `opened` (`connect`, `accept`), `reason` |
//! | event `opening`, in it | INFO | |
//! | event `established`, in it | INFO | |
//! | event `retransmission`, in it | DEBUG | `seq`, `len` (bytes of data) |
//! | event `closed`, in it | INFO | `reason`: `in order`, `discarded` (let go early), the error |
//! | event `refused` | DEBUG | `peer`, `local`, `reason` |
//! | event `gate` | DEBUG | `peer`, `local`, `decision` |
//! | event `interface down` | WARN | `interface`, `reason` |
//! | event `stack ended` | INFO | `reason` |
//!
//! The span closes when the connection leaves the table of the stack; one that waits in TIME-WAIT
//! has left it. Subscribers are called when the stack holds no lock that a call on a socket takes,
//! on the thread that did the work or on one that is telling of the same connection just then. They
//! may use sockets; a poll from there may do nothing, since that very thread may be polling. A
//! panic of one goes no further. Packets have no events. Without the feature there is no code for
//! it, and with it, but without a subscriber, a connection costs a comparison for each change of
//! its state and for each segment that leaves.
//!
//! # A device of one's own
//!
//! A program that has packets as values uses [`device::channel()`]. A driver of its own implements
//! [`device::DeviceTx`] and [`device::DeviceRx`], and says by a [`device::WaitSource`] how the
//! stack learns that there is something to do: by a file descriptor, or by a [`device::KickSlot`].
//! Neither half ever blocks. This one sends what it gets back to where it came from, so that each
//! address seems to be its own peer.
//!
//! ```
//! use std::collections::VecDeque;
//! use std::sync::{Arc, Mutex};
//! use plimsoll::device::{
//!     Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, KickSlot, TxProgress,
//!     WaitSource,
//! };
//! use plimsoll::{Instant, Packet, Pool, Stack};
//!
//! /// Packets on their way, at most.
//! const ROOM: usize = 64;
//!
//! struct Tx {
//!     caps: Caps,
//!     way: Arc<Mutex<VecDeque<Packet>>>,
//!     kick: KickSlot,
//!     stats: DeviceStats,
//! }
//!
//! struct Rx {
//!     way: Arc<Mutex<VecDeque<Packet>>>,
//!     kick: KickSlot,
//!     stats: DeviceStats,
//! }
//!
//! impl DeviceTx for Tx {
//!     fn caps(&self) -> &Caps {
//!         &self.caps
//!     }
//!
//!     fn transmit(
//!         &mut self,
//!         _now: Instant,
//!         queue: &mut VecDeque<Packet>,
//!     ) -> Result<TxProgress, DeviceError> {
//!         let mut way = self.way.lock().map_err(|_| DeviceError::Gone("broken".into()))?;
//!         let count = queue.len().min(ROOM - way.len());
//!         for packet in queue.drain(..count) {
//!             self.stats.passed(&packet);
//!             way.push_back(packet);
//!         }
//!         drop(way);
//!         if count > 0 {
//!             self.kick.kick(); // the receiving half has something
//!         }
//!         // What does not fit stays in the queue. It is never dropped.
//!         let all = queue.is_empty();
//!         Ok(if all { TxProgress::done(count) } else { TxProgress::busy(count) })
//!     }
//!
//!     fn stats(&self) -> DeviceStats {
//!         self.stats
//!     }
//! }
//!
//! impl DeviceRx for Rx {
//!     fn receive(
//!         &mut self,
//!         _now: Instant,
//!         _pool: &Pool,
//!         out: &mut Vec<Packet>,
//!         max: usize,
//!     ) -> Result<usize, DeviceError> {
//!         let mut way = self.way.lock().map_err(|_| DeviceError::Gone("broken".into()))?;
//!         let count = max.min(way.len());
//!         for mut packet in way.drain(..count) {
//!             packet.complete(); // it is not below its connection any more
//!             self.stats.passed(&packet);
//!             out.push(packet);
//!         }
//!         drop(way);
//!         if count > 0 {
//!             self.kick.kick_for_room(); // the sending half may have been busy
//!         }
//!         Ok(count)
//!     }
//!
//!     fn next_event(&self) -> Option<Instant> {
//!         // Asked before the stack sleeps: a kick may have come too early to be seen.
//!         let waits = self.way.lock().is_ok_and(|way| !way.is_empty());
//!         waits.then_some(Instant::ZERO)
//!     }
//!
//!     fn stats(&self) -> DeviceStats {
//!         self.stats
//!     }
//! }
//!
//! let (way, kick) = (Arc::default(), KickSlot::new());
//! let caps = Caps::new("mirror", 1500).completions(true);
//! let stats = DeviceStats::default();
//! let device = Device {
//!     tx: Box::new(Tx { caps, way: Arc::clone(&way), kick: kick.clone(), stats }),
//!     rx: Box::new(Rx { way, kick: kick.clone(), stats }),
//!     wait: WaitSource::from_kick(kick),
//! };
//! let stack = Stack::builder().device(device).address("192.0.2.1/24").build()?;
//! let refused = plimsoll::TcpStream::connect_timeout(
//!     &stack,
//!     &"192.0.2.9:7".parse()?,
//!     std::time::Duration::from_millis(100),
//! );
//! assert!(refused.is_err(), "our own SYN is not for us");
//! let sent = stack.counters().iter().find(|(name, _)| *name == "IpInAddrErrors").unwrap().1;
//! assert!(sent >= 1, "but it came back");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Example
//!
//! Two stacks in one process, joined by a link in memory. It needs no privilege.
//!
//! ```
//! use std::io::{Read, Write};
//! use plimsoll::{Stack, TcpListener, TcpStream, device};
//!
//! let (here, there) = device::memory_link::pair(Default::default());
//! let client = Stack::builder().device(here).address("192.0.2.1/24").build()?;
//! let server = Stack::builder().device(there).address("192.0.2.2/24").build()?;
//!
//! let listener = TcpListener::bind(&server, "192.0.2.2:7")?;
//! let echo = std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _) = listener.accept()?;
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text)?;
//!     stream.write_all(text.to_uppercase().as_bytes())
//! });
//!
//! let mut stream = TcpStream::connect(&client, "192.0.2.2:7")?;
//! stream.write_all(b"load line")?;
//! stream.shutdown(std::net::Shutdown::Write)?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert_eq!(answer, "LOAD LINE");
//! echo.join().expect("the thread does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(feature = "tokio"), allow(rustdoc::broken_intra_doc_links, reason = "of `net`"))]
#![forbid(unsafe_code)]

mod buffered;
mod builder;
mod clock;
mod error;
#[cfg(feature = "futures-io")]
mod futures_io;
pub mod gate;
mod idle_polls;
mod listener;
#[cfg(feature = "tokio")]
pub mod net;
mod options;
mod park;
mod platform;
mod poll;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod queue_loop;
#[cfg(feature = "quinn")]
pub mod quic;
mod ready;
mod receive;
mod registration;
mod resolve;
mod send;
mod shutdown;
mod spin;
mod stack;
mod stream;
mod turns;
mod udp;
mod udp_flows;
mod udp_options;
mod unhandled;

pub use buffered::{BufferedStream, Buffers};
pub use builder::{BuildError, StackBuilder};
pub use clock::{Clock, now};
pub use idle_polls::IdlePolls;
pub use listener::{DEFAULT_BACKLOG, Incoming, TcpListener};
pub use options::Keepalive;
pub use plimsoll_buf::{ChunkWriter, MAX_SLICES, Pool, Slice, Slices};
pub use plimsoll_stack::kick::Kick;
pub use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
pub use plimsoll_stack::{
    Budget, BudgetUse, ConnectionCounts, CounterGroup, CounterInfo, CounterValue, DatagramInfo,
    Disposition, InterfaceMetrics, InterfaceStatus, ListenConfig, ListenOn, ListenerMetrics,
    MemoryUse, Metrics, PathMtuDiscovery, QdiscSummary, RawTransmit, Received, Refusal,
    RouteMetrics, ShutdownReport, SocketSummary, StackError, SysctlError, SysctlInfo,
    UdpFlowConfig, UdpMemoryUse, UdpMetrics, UdpOptions, UdpSocketSummary, UdpTransmit, Unhandled,
    UnhandledConfig, UnhandledHook, UnhandledKind, device, offload, packet, qdisc,
};
pub use plimsoll_tcp::{
    AckReason, BbrCause, BbrModel, BbrState, Bound, Causes, CongestionAlgorithm, Decision,
    ErrorReport, Hold, Info, Instant, Note, Options, Record, Released, Resend, SetOption, State,
    Tail, TsoTail, WriteFlags,
};
pub use poll::{Accept, Connecting};
pub use queue_loop::QueueLoop;
#[cfg(unix)]
pub use queue_loop::{PreparedWait, Watch};
pub use ready::ReadyQueue;
pub use registration::Registration;
pub use resolve::{Resolve, Resolving, ToSocketAddrs};
pub use shutdown::Drained;
pub use stack::{Kicker, Polled, Stack};
pub use stream::{Connector, TcpStream};
pub use udp::UdpSocket;
pub use udp_flows::UdpListener;
pub use unhandled::UnhandledPackets;

/// The code in the README of the repository compiles and runs.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// So does the code in the page for those who come from other stacks.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/migrating.md")]
pub struct Migrating;
