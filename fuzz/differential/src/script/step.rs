//! The steps of a script. Numbers that depend on the connection are relative, so that a script
//! still means something when some of its steps are left out.

use crate::engine::{News, Opt, Setting, WriteFlags};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The handshake goes on: the peer does what is its turn.
    Handshake,
    /// The application does something.
    App(App),
    /// Something happens below the connection.
    Below(BelowStep),
    /// Time passes.
    Time(Time),
    /// What the connection sent arrives at the peer, which answers.
    Arrive(Arrive),
    /// The peer sends a segment without data that acknowledges.
    Ack(Ack),
    /// The peer sends data.
    Data(Data),
    /// The peer sends something that it should not.
    Odd(Odd),
    /// So many small segments of the peer, with gaps of so many bytes between them.
    Scatter(u16, u8, u8),
    /// News of the path.
    Path(News),
    /// The next so many segments arrive in one batch.
    Batch(u16),
    /// A setting of the stack changes.
    Configure(Setting, u64),
}

/// What an application does.
#[derive(Clone, Debug, PartialEq)]
pub enum App {
    /// A write of so many bytes in so many parts.
    Write(u32, u8, WriteFlags),
    /// A write of shared bytes in so many parts.
    WriteShared(u32, u8, WriteFlags),
    /// So many writes of so many bytes, each as a thread would that writes behind a cork.
    WriteSmall(u8, u16),
    /// So many writes of one byte each, which ask for reports.
    WriteReported(u16),
    /// A read of at most so many bytes.
    Read(u32),
    /// A read by reference.
    ReadShared(u32),
    /// A look at so many bytes.
    Peek(u32),
    /// The urgent byte.
    ReadUrgent,
    /// No more writes.
    Shutdown,
    /// The application lets go.
    Close,
    /// The application ends it.
    Abort,
    /// An option.
    Option(Opt, u64),
    /// The error.
    TakeError,
    /// All reports of the error queue.
    TakeReports,
    /// Whether there is space, and waiting if not.
    PollWritable,
    /// A reader waits, or not.
    ReaderWaits(bool),
    /// Somebody was woken.
    Wake(bool, bool),
    /// The application has taken it from the listener.
    Adopt,
    /// A writer sleeps and has more.
    WritePending(bool),
    /// What is left of TIME-WAIT takes the place of the connection.
    KeepTimeWait,
}

/// What happens below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BelowStep {
    /// So many packets complete.
    Complete(u8),
    /// The packet at this place below is dropped.
    Drop(u8),
    /// Memory: pressure, and the bytes that are left.
    Memory(bool, u32),
    /// A completion is reported that did not happen.
    Spurious,
}

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Time {
    /// By so many microseconds; every deadline on the way is met.
    Pass(u32),
    /// So many 256ths of the time to the next deadline, nothing fires.
    Fraction(u8),
    /// To the next deadline, which fires.
    Deadline,
    /// Beyond the next deadline by so many microseconds, then it fires.
    Late(u32),
    /// A timeout is reported before its time.
    Early,
    /// So many deadlines, one after the other.
    Deadlines(u8),
}

/// What the connection sent arrives at the peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrive {
    /// So many wire segments; 0 is all.
    pub count: u8,
    /// A set bit is a segment that is lost, again and again.
    pub lost: u32,
    /// A set bit is an ACK that is lost.
    pub acks_lost: u16,
    /// So many segments are turned round at a time.
    pub reordered: u8,
    /// The peer acknowledges every so many segments; 0 is once at the end.
    pub every: u8,
    /// Every so many segments are said to have met congestion; 0 is none.
    pub marked: u8,
    /// Microseconds between two ACKs.
    pub gap: u16,
    /// A set bit is a segment that arrives twice.
    pub twice: u16,
    /// What is below completes first.
    pub completes: bool,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// What it acknowledges.
    pub shape: Shape,
    /// The window becomes so large; `None` leaves it.
    pub window: Option<u32>,
    /// It echoes congestion.
    pub ece: bool,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// What the peer has: a plain or duplicate ACK, so many times.
    Same(u8),
    /// So many 256ths of what is outstanding, up to the end of a segment.
    Up(u8),
    /// All that is outstanding but so many bytes.
    Within(u16),
    /// All that is outstanding.
    All,
    /// Less than before, by so many bytes.
    Old(u16),
    /// More than was ever sent, by so many bytes.
    Future(u16),
    /// A block for each set bit of so many segments behind the first; ACKs for one block each, the
    /// lowest first, if `stepwise`.
    Sack {
        /// Which segments.
        segments: u32,
        /// An ACK for each.
        stepwise: bool,
        /// Blocks in an order of their own.
        order: u8,
    },
    /// Every other segment that is outstanding arrives, an ACK for each; so many at most.
    Alternate(u16),
    /// A block that names what was acknowledged before: so many bytes back, so long.
    Dsack(u16, u16),
    /// A block within a block (RFC 2883, section 4.2).
    DsackWithin(u16),
    /// The peer forgets what it had out of order.
    Renege,
    /// A block that makes no sense: distances from what is acknowledged.
    BadSack(i16, i16),
}

/// Data from the peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Data {
    /// Where it begins.
    pub place: Place,
    /// How long it is.
    pub len: u16,
    /// PSH.
    pub psh: bool,
    /// FIN.
    pub fin: bool,
    /// The urgent pointer: so many bytes behind the start.
    pub urgent: Option<u16>,
    /// Wire segments that it was.
    pub segs: u8,
    /// Congestion was experienced.
    pub ce: bool,
    /// It acknowledges all that is outstanding, otherwise what the peer has.
    pub acks_all: bool,
}

/// Where data of the peer begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Behind all that was sent before.
    Next,
    /// So many bytes further.
    Gap(u16),
    /// So many bytes before.
    Back(u16),
    /// Where the connection's acknowledgement is.
    Una,
    /// So many bytes behind where the connection's acknowledgement is.
    BehindUna(u16),
    /// Before the connection's acknowledgement by so many bytes.
    BeforeUna(u16),
    /// At the right edge of the window, or so many bytes from it.
    Edge(i16),
}

/// What a peer should not send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Odd {
    /// A reset, so many bytes from what is expected.
    Rst(i32),
    /// A reset in answer to all that was sent.
    RstAck,
    /// A SYN, so many bytes from what is expected.
    Syn(i32),
    /// A SYN-ACK.
    SynAck(i32),
    /// A FIN so many bytes from what is expected.
    Fin(i16),
    /// A segment without ACK.
    NoAck(u16),
    /// An old timestamp: by so many milliseconds.
    OldStamp(u16, u16),
    /// No timestamp, with so many bytes.
    NoStamp(u16),
    /// A timestamp that echoes something else.
    WrongEcho(u16),
    /// A probe of keepalive, or of a closed window.
    Probe,
    /// Flags as they come.
    Flags(u16, u16),
}
