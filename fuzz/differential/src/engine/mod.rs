//! What the driver asks of an engine, in words of its own. The adapter is the only code that knows
//! the engine.

mod adapter;
mod figures;
mod knobs;

use plimsoll_buf::{Slice, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{FastOpenOption, TcpRepr};

pub use adapter::Side;
pub use figures::{FIGURES, Figures};
pub use knobs::{NONE, Opt, Setting};

/// What comes with a call. Times are nanoseconds since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct At {
    /// The time now.
    pub now: u64,
    /// What lies below.
    pub below: Below,
}

/// What lies below an engine.
#[derive(Clone, Copy, Debug)]
pub struct Below {
    /// Data bytes that have not completed.
    pub bytes: u32,
    /// The last serial that completed.
    pub completed: u64,
    /// Something below tells of completions.
    pub completions: bool,
    /// Somebody below writes down why packets leave.
    pub takes_notes: bool,
    /// Something below keeps departure times.
    pub keeps_departures: bool,
    /// Memory is short.
    pub pressure: bool,
    /// Bytes of memory that the queues may still take.
    pub room: u32,
}

impl Default for Below {
    fn default() -> Below {
        Below {
            bytes: 0,
            completed: 0,
            completions: false,
            takes_notes: false,
            keeps_departures: false,
            pressure: false,
            room: u32::MAX,
        }
    }
}

/// What a connection is opened with.
#[derive(Clone, Debug)]
pub struct Open {
    /// Our port and the peer's.
    pub ports: (u16, u16),
    /// The initial sequence number.
    pub iss: SeqNum,
    /// The offset of the timestamp clock.
    pub ts_offset: u32,
    /// The MTU of the path.
    pub mtu: u16,
    /// Bytes of the IP header.
    pub ip_header_len: u16,
    /// Most payload bytes of one packet.
    pub max_super_segment: usize,
    /// Options of the socket.
    pub options: Vec<(Opt, u64)>,
}

/// How a connection comes into being.
#[derive(Clone, Debug)]
pub enum How {
    /// Actively.
    Connect,
    /// Actively, once the application has written something.
    ConnectDeferred,
    /// A SYN arrived.
    Accept(Segment),
    /// A SYN arrived for a listener with Fast Open: the option of the answer, and whether the data
    /// of the SYN is taken.
    AcceptFastOpen(Segment, Option<FastOpenOption>, bool),
    /// An ACK brought a SYN cookie back, which says this MSS.
    AcceptCookie(Segment, u8),
}

/// What an open with Fast Open starts from.
#[derive(Clone, Debug)]
pub struct Known {
    /// The option of the SYN.
    pub option: Option<FastOpenOption>,
    /// The SYN may carry data.
    pub data: bool,
    /// The peer's MSS, if it is known.
    pub mss: Option<u16>,
    /// Fast Open was off for a while.
    pub probing: bool,
}

/// A segment that arrives.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The header.
    pub repr: TcpRepr,
    /// The data.
    pub payload: Slices,
    /// Wire segments that it consists of.
    pub segs: u16,
    /// The ECN field of the packet, as on the wire.
    pub ecn: u8,
}

/// A packet that leaves.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The header.
    pub repr: TcpRepr,
    /// The data.
    pub payload: Slices,
    /// Payload bytes of a wire segment.
    pub segment_size: u16,
    /// Wire segments.
    pub segs: u16,
    /// Not to leave before this point.
    pub departure: u64,
    /// Why it leaves.
    pub kind: &'static str,
    /// Its number below, if it is charged.
    pub serial: Option<u64>,
    /// The ECN field of the packet, as on the wire.
    pub ecn: u8,
    /// What a capture would write beside it.
    pub note: Option<String>,
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// MSG_MORE.
    pub more: bool,
    /// MSG_EOR.
    pub eor: bool,
    /// MSG_OOB.
    pub urgent: bool,
    /// MSG_ZEROCOPY.
    pub zerocopy: bool,
}

/// What the stack learnt about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Packet too big.
    Mtu(u16),
    /// An error that is remembered, by its place in the list of errors.
    Soft(u8),
    /// An error that ends the connection, by its place in the list of errors.
    Hard(u8),
}

/// The outcome of a read or write: bytes, or the error in words.
pub type Outcome<T> = Result<T, String>;

/// One connection of one engine, with its settings and counters.
pub trait Engine {
    /// Sets a setting of the stack.
    fn configure(&mut self, setting: Setting, value: u64);
    /// Opens the connection. Returns whether there is one.
    fn open(&mut self, at: At, open: &Open, how: &How) -> bool;
    /// Lets the SYN of a deferred open go. Returns the bytes that it takes.
    fn begin_fast_open(&mut self, at: At, known: &Known, data: &[u8]) -> usize;
    /// Whether the SYN waits for a write.
    fn is_deferred(&self) -> bool;
    /// An application has taken it from the listener.
    fn adopt(&mut self);
    /// A writer sleeps and has more.
    fn set_write_pending(&mut self, pending: bool);
    /// The data of the SYN was a zero-copy write.
    fn report_syn_data(&mut self);
    /// What an open with Fast Open taught.
    fn poll_fast_open(&mut self) -> Option<String>;

    /// A segment arrived. Returns what TIME-WAIT said in words, and whether the ACK of a segment
    /// that is `batched` may wait.
    fn segment(&mut self, at: At, segment: &Segment, batched: bool) -> (String, bool);
    /// A deadline has passed.
    fn timeout(&mut self, at: At);
    /// News of the path.
    fn path(&mut self, at: At, news: News);
    /// Something below has completed.
    fn completion(&mut self, at: At);
    /// Whether it waits for a completion.
    fn awaits_completion(&self) -> bool;
    /// There may be memory again.
    fn memory(&mut self, at: At);
    /// Whether it waits for memory.
    fn awaits_memory(&self) -> bool;

    /// The application writes.
    fn write(&mut self, at: At, parts: &[&[u8]], flags: WriteFlags) -> Outcome<usize>;
    /// The application writes what it shares.
    fn write_shared(&mut self, at: At, parts: &[Slice], flags: WriteFlags) -> Outcome<usize>;
    /// The application writes behind what automatic corking holds.
    fn write_corked(&mut self, data: &[u8]) -> bool;
    /// The application reads.
    fn read(&mut self, at: At, out: &mut [u8]) -> Outcome<usize>;
    /// The application takes what arrived by reference.
    fn read_shared(&mut self, at: At, max: usize) -> Outcome<Slices>;
    /// The application looks at what a read would find.
    fn peek(&self, out: &mut [u8]) -> Outcome<usize>;
    /// The application takes the urgent byte.
    fn read_urgent(&mut self) -> Option<u8>;
    /// The application writes no more.
    fn shutdown(&mut self, at: At);
    /// The application lets go.
    fn close(&mut self, at: At);
    /// The application ends it.
    fn abort(&mut self, at: At);
    /// The application sets an option.
    fn set_option(&mut self, at: At, option: Opt, value: u64);
    /// The application takes the error.
    fn take_error(&mut self) -> Option<String>;
    /// The application takes a report from the error queue.
    fn take_report(&mut self) -> Option<String>;
    /// The application asks for space and waits if there is none.
    fn poll_writable(&mut self) -> usize;
    /// A reader sleeps, or does not.
    fn set_reader_waiting(&mut self, waiting: bool);
    /// Somebody was woken.
    fn wake(&mut self, at: At, readers: bool, writers: bool);
    /// What is left of the connection in TIME-WAIT takes its place.
    fn keep_time_wait(&mut self);

    /// The next packet that leaves.
    fn poll_transmit(&mut self, at: At) -> Option<Packet>;
    /// What happened, one bit for each event.
    fn poll_event(&mut self) -> u16;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<u64>;
    /// Everything that it tells about itself in numbers.
    fn figures(&self, at: At, out: &mut Figures);
    /// What it counted, in the order of [`counter_names`](Self::counter_names).
    fn counters(&self, out: &mut Vec<u64>);
    /// The names of its counters.
    fn counter_names(&self) -> Vec<&'static str>;
    /// The log of decisions.
    fn decisions(&self) -> Vec<String>;
    /// The state of RFC 9293, or `None` without a connection.
    fn state(&self) -> Option<&'static str>;
}

/// Events in the order of their bits.
pub const EVENTS: [&str; 8] =
    ["connected", "readable", "writable", "error", "time-wait", "closed", "drained", "report"];
