//! What can happen, as an input spells it.

use arbitrary::Arbitrary;

use crate::engine::{Forgery, OptionChoice, Writing};

/// How the packet around a forged segment looks.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Envelope {
    /// Which flow: an index into those that the stack has shown.
    pub flow: u8,
    /// Offloads, fragmentation, errors, one bit each.
    pub switches: u16,
    /// ECN and DSCP.
    pub tos: u8,
    /// A byte to break, if the switch for it is on.
    pub broken: u16,
}

/// One thing that happens.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    /// A packet of raw bytes arrives.
    Raw(Vec<u8>),
    /// Raw bytes behind a right IP header of this protocol.
    RawUpper(bool, u8, Vec<u8>),
    /// A forged segment arrives.
    Segment(Envelope, Forgery),
    /// A SYN arrives from this peer port: family, peer port, our port, options.
    Syn(bool, u8, u8, u16),
    /// An ICMP error that quotes the packet that was sent so long ago: code, MTU, quoted bytes.
    Error(u8, u8, u16, u8),
    /// An echo request with so much data, or a reply.
    Echo(bool, bool, u16),
    /// A socket connects: family, peer port.
    Connect(bool, u8),
    /// A socket listens: family, port, backlog.
    Listen(bool, u8, u8),
    /// A listener accepts.
    Accept(u8),
    /// A listener is dropped.
    DropListener(u8),
    /// A socket writes.
    Write(u8, u16),
    /// A socket writes in two parts, with flags.
    WriteWith(u8, u16, Writing),
    /// A socket writes an urgent byte.
    WriteUrgent(u8),
    /// A socket reads.
    Read(u8, u16),
    /// A socket shuts down.
    Shutdown(u8, u8),
    /// A socket is closed and stays in hand.
    Close(u8),
    /// A socket is dropped.
    DropSocket(u8),
    /// A socket aborts.
    Abort(u8),
    /// A socket sets an option.
    Option(u8, OptionChoice),
    /// A setting changes.
    Sysctl(u8, u8),
    /// Somebody asks for tables and counters.
    Ask,
    /// The device has room for so many packets from now on.
    Room(u8),
    /// So many packets complete that the device has kept.
    Complete(u8),
    /// The queueing discipline becomes fq, or pfifo.
    Qdisc(bool),
    /// Time passes; an index into a table of durations.
    Advance(u8),
    /// Time passes until the next event of the stack.
    Next,
    /// The device goes away.
    Gone,
}
