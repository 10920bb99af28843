//! Plimsoll is a TCP/IP stack that runs inside your process.
//!
//! You give it IP packets, from a TUN device or from your own code. It gives you TCP and UDP
//! sockets: blocking, async or polled. The smallest program is two stacks in one process, joined by
//! a link in memory. It needs no privilege.
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
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | `tokio` | [`net`]: sockets with the API of `tokio::net`, and a task that runs a stack |
//! | `axum` | `axum::serve` on our listeners; turns `tokio` on |
//! | `quinn` | [`quic`]: QUIC through the crate quinn; turns `tokio` on |
//! | `futures-io` | the traits of futures-io on sockets and on the ends of a channel device |
//! | `futures` | `Stream` and `Sink` on the ends of a channel device |
//! | `prometheus` | [`prometheus`]: a stack's figures for Prometheus |
//! | `tracing` | spans and events for connections and stacks, see [below](#tracing) |
//!
//! # Ways to run a stack
//!
//! A thread must poll the devices, run the timers and wake waiting tasks. There are three ways.
//!
//! - *A thread of the stack.* [`StackBuilder::build`] starts it. It sleeps in the kernel until a
//!   device is readable, a timer is due, or a socket call needs it.
//! - *A task.* [`StackBuilder::build_without_thread`] starts no thread. With the feature `tokio`,
//!   [`net::Driver`] runs the stack as a task of the runtime.
//! - *Your own loop* on such a stack calls [`Stack::poll`], and [`Stack::wait`] when it is idle.
//!   [`ReadyQueue`] names the non-blocking sockets that are ready. One thread then carries a packet
//!   from the device to the application and back without a switch. [`QueueLoop`] is the same for a
//!   device with several queues, and for an epoll loop.
//!
//! Sockets may be used from any thread, also with blocking calls. Only the thread that runs the
//! loop must not block on a socket of its own stack. A blocked call sleeps until its socket is
//! ready or its timeout expires; nothing polls with sleeps.
//!
//! # Where to look
//!
//! | to | use |
//! |---|---|
//! | connect with options, a timeout, or data in the SYN | [`Connector`] |
//! | wait for many sockets in one loop | [`ReadyQueue`], [`Stack::poll_with`] |
//! | run one loop for each queue of a device | [`Stack::queue`], [`QueueLoop`] |
//! | keep a loop awake while packets follow each other closely | [`IdlePolls`] |
//! | run a stack in your own epoll loop | [`QueueLoop::prepare_wait`] |
//! | use sockets with tokio's API | [`net`] |
//! | read and write in your own futures | [`TcpStream::poll_read`] and its neighbours |
//! | connect and accept in a future | [`Connector::connect_async`], [`TcpListener::accept_async`] |
//! | wait in a future | [`Registration`], from [`TcpStream::readable`] and its neighbours |
//! | read and write without a copy | [`TcpStream::read_shared`], [`TcpStream::write_shared`] |
//! | make small writes cheap | [`BufferedStream`] |
//! | change a setting, or list them | [`Stack::set_sysctl`], [`SysctlInfo`] |
//! | override a setting for one socket | [`TcpStream::set_option`] and its neighbours |
//! | read counters | [`Stack::counters`], [`CounterInfo`], [`TcpStream::info`] |
//! | read all figures of a stack at once | [`Stack::metrics`] |
//! | find out why data waits | [`TcpStream::decisions`], a capture ([`StackBuilder::pcap`]) |
//! | resolve names without the host's resolver | [`Resolve`] |
//! | shut a stack down, and learn what was delivered | [`Stack::shutdown`], [`net::shutdown`] |
//! | accept connections to any address | [`TcpListener::bind_any`], [`StackBuilder::any_address`] |
//! | dial before a connection opens, or refuse it | [`gate`]; with tokio's streams, in [`net`] |
//! | send and receive datagrams | [`UdpSocket`]; with tokio's API, in [`net`] |
//! | accept datagrams to any address | [`UdpListener::bind_any`], [`UdpSocket::bind_any`] |
//! | handle packets that no socket accepts | [`Stack::on_unhandled`], [`UnhandledPackets`] |
//! | send your own packets | [`Stack::send_raw`] |
//! | limit the memory of connections | [`Budget`], [`TcpStream::set_memory_budget`] |
//! | share a port among listeners | [`TcpListener::bind_with_config`], [`ListenConfig`] |
//! | hand packets over in your own code | [`device::channel()`] |
//! | use a descriptor that was passed to the program | [`device::tun::from_fd`] |
//! | write your own device | [`device::Device`], the example `custom_device` |
//! | lose or damage packets in a test | [`device::fault`], [`device::memory_link::LinkConfig`] |
//!
//! # Tracing
//!
//! With the feature `tracing` each connection is a span, and its changes are events, all with the
//! target `plimsoll`:
//!
//! | name | level | fields |
//! |---|---|---|
//! | span `connection` | INFO | `local`, `peer`, `opened` (`connect`, `accept`), `reason` |
//! | event `opening`, in it | INFO | |
//! | event `established`, in it | INFO | |
//! | event `retransmission`, in it | DEBUG | `seq`, `len` (bytes of data) |
//! | event `closed`, in it | INFO | `reason`: `in order`, `discarded` (closed early), the error |
//! | event `refused` | DEBUG | `peer`, `local`, `reason` |
//! | event `gate` | DEBUG | `peer`, `local`, `decision` |
//! | event `interface down` | WARN | `interface`, `reason` |
//! | event `stack ended` | INFO | `reason` |
//!
//! The span closes when the connection leaves the stack's table, which it does before TIME-WAIT.
//! Subscribers are called while the stack holds no lock that a socket call takes. They run on the
//! thread that did the work, or on a thread that is already delivering events for the same
//! connection. They may use sockets. A poll from a subscriber may do nothing, since the same thread
//! may be polling. A subscriber's panic is caught. There are no events for packets. Without the
//! feature no code is generated for it; with it, but without a subscriber, a connection pays one
//! comparison for each change of state and for each segment that it sends.
//!
//! # Theory of operation
//!
//! A [`Stack`] runs on one or more [`device`]s: a link in memory, a TUN device, or one of these
//! wrapped by a capture or by fault injection. [`TcpStream`], [`TcpListener`] and [`UdpSocket`]
//! behave like those of std, down to the kinds of their errors.
//!
//! A stack lives as long as a handle exists: a [`Stack`], a stream or a listener. When the last is
//! dropped, its threads end soon after; dropping never waits for them. A program that is about to
//! exit calls [`Stack::shutdown`], which waits until written data has arrived, captures are written
//! and the threads have ended. [`Stack::drain`] only waits for the data.
//!
//! # Panics of the application, and of the poller
//!
//! A panic of a waker is caught and counted (`plimsoll.WakerPanics`); the other wakers still run. A
//! panic of the thread that polls (a softirq thread, or [`Stack::poll`] in a loop) ends the stack:
//! every blocked call fails with an error that contains the thread and the message, every waker is
//! woken, and [`Stack::error`] returns the same error. The application's code within
//! [`Stack::poll_with`] and [`Stack::wait`] may panic without harm to the stack. A device that
//! panics has failed, which ends the stack only when no device is left.
//!
//! # Panics of the stack
//!
//! The stack should not panic. If it does while it works on a connection, only that connection
//! ends: the peer is reset, waiting threads and tasks are woken, and calls fail with
//! [`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted) and a text that asks you to report
//! it. The counter `plimsoll.ConnectionPanics` counts such connections; the panic's message goes to
//! the panic hook. A panic in the `Drop` of a value that was written by reference is caught, too.
//!
//! All this needs `panic = "unwind"`, which is the default. With `panic = "abort"` the process ends
//! at the first panic, on any thread.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "tokio", feature = "quinn", feature = "prometheus")),
    allow(rustdoc::broken_intra_doc_links, reason = "to modules behind features")
)]
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

/// The code in the repository's README compiles.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// The code in the page about moving from other stacks compiles and runs.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/migrating.md")]
pub struct Migrating;
