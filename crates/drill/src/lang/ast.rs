//! What a script says, after parsing and before anything is looked up.
//!
//! Names of constants are still words here: what `SO_SNDBUF` or `EAGAIN` mean is decided when the
//! script runs, so that an unknown one can be pointed at. Everything knows its place in the text.

use std::net::IpAddr;
use std::ops::Range;

use super::Release;

/// Something with its place in the script: a range of bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Spanned<T> {
    /// What is there.
    pub node: T,
    /// Where it is.
    pub span: Span,
}

/// A range of bytes of the script.
pub type Span = Range<usize>;

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The first Linux that does what the script says, if not all do.
    pub since: Option<Spanned<Release>>,
    /// `--name=value` lines. A value may be empty.
    pub options: Vec<Spanned<ScriptOption>>,
    /// Shell lines before the first event.
    pub init: Option<Spanned<String>>,
    /// What happens, in order.
    pub events: Vec<Event>,
    /// Shell lines after the last event.
    pub cleanup: Option<Spanned<String>>,
}

/// One option line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOption {
    /// Without the dashes.
    pub name: String,
    /// What stands behind the equals sign.
    pub value: Option<String>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub time: Spanned<Time>,
    /// What.
    pub action: Spanned<Action>,
}

/// When an event happens. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// So long after the event before (`+.1`). `+0` is the usual one.
    Relative(i64),
    /// So long after the start of the script.
    Absolute(i64),
    /// At any time (`*`).
    Any,
    /// Between two times after the start (`1.0~1.2`).
    AbsoluteRange(i64, i64),
    /// Between two times after the event before (`+.1~+.2`).
    RelativeRange(i64, i64),
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A packet arrives or leaves.
    Packet(Packet),
    /// A system call.
    Call(Call),
    /// Shell lines.
    Command(String),
    /// The inside of `%{ }%`.
    Code(String),
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `<`: to the stack under test.
    Inbound,
    /// `>`: from the stack under test.
    Outbound,
}

/// A packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Where it goes.
    pub direction: Direction,
    /// Headers around it, outermost first.
    pub encapsulation: Vec<Spanned<Encapsulation>>,
    /// What is said of its IP header.
    pub ip: IpInfo,
    /// What is in it.
    pub body: PacketBody,
}

/// A header around a packet.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields have the names that the language gives them")]
pub enum Encapsulation {
    /// An IPv4 or IPv6 header.
    Ip { src: IpAddr, dst: IpAddr, info: IpInfo },
    /// Something else that the language has and this runner does not (GRE, MPLS, PSP).
    Other(String),
}

/// What is said of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpInfo {
    /// ECN bits, or the whole traffic class.
    pub tos: Option<Tos>,
    /// The flow label of IPv6.
    pub flow_label: Option<u32>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
}

/// What is said of the traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tos {
    /// `noecn`, `ect0`, `ect1`, `ce`: these two bits.
    Ecn(u8),
    /// `ect01`: either of the two capable code points.
    EitherEct,
    /// `tos 0x..`: all eight bits.
    Byte(u8),
}

/// What is in a packet.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields have the names that the language gives them")]
pub enum PacketBody {
    /// A TCP segment.
    Tcp(Tcp),
    /// A UDP datagram.
    Udp { ports: Option<(u16, u16)>, len: u16 },
    /// An ICMP or ICMPv6 message.
    Icmp(Icmp),
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// `src > dst`, if the script names ports.
    pub ports: Option<(u16, u16)>,
    /// The flags.
    pub flags: TcpFlags,
    /// Relative to the first SYN of its sender, as the next two are.
    pub seq: u32,
    /// One behind the last byte.
    pub seq_end: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The acknowledgement number, if the segment has one.
    pub ack: Option<u32>,
    /// The window field as on the wire; `None` is "do not look".
    pub window: Option<u16>,
    /// The urgent pointer.
    pub urgent: Option<u16>,
    /// The options in order; `None` is `<...>`, "do not look".
    pub options: Option<Vec<Spanned<TcpOption>>>,
}

/// The flags of a TCP segment, as the script writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags {
    /// The flag bits FIN (1) to CWR (128), and AE (256).
    pub bits: u16,
    /// The flags give the accurate-ECN counter as a digit (`.5`).
    pub ace: Option<u8>,
}

/// One TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names that the language gives them")]
pub enum TcpOption {
    /// `nop`
    Nop,
    /// `eol`
    Eol,
    /// `mss 1460`
    Mss(u16),
    /// `wscale 7`
    WindowScale(u8),
    /// `sackOK`
    SackPermitted,
    /// `sack 1:1001 2001:3001`, relative sequence numbers
    Sack(Vec<(u32, u32)>),
    /// `TS val 100 ecr 0`
    Timestamp { val: u32, ecr: u32 },
    /// `md5 00112233...`
    Md5(Vec<u8>),
    /// `FO 0011223344556677`
    FastOpen(Vec<u8>),
    /// `FOEXP 0011223344556677`
    FastOpenExperimental(Vec<u8>),
    /// `ECN e0b 1 ceb 2 e1b 3`: the counters in their order on the wire.
    AccEcn(Vec<(AccEcnField, u32)>),
}

/// One counter of the accurate-ECN option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the option's fields")]
pub enum AccEcnField {
    Ect0,
    Ce,
    Ect1,
}

/// An ICMP message.
#[derive(Clone, Debug, PartialEq)]
pub struct Icmp {
    /// `unreachable`, `packet_too_big` and so on.
    pub kind: Spanned<String>,
    /// `frag_needed`, `host_unreachable` and so on.
    pub code: Option<Spanned<String>>,
    /// What of the packet that caused it is embedded.
    pub embedded: Option<Embedded>,
    /// `mtu 1200`
    pub mtu: Option<u32>,
    /// `id 1`
    pub echo_id: Option<u16>,
}

/// The start of a packet inside an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names that the language gives them")]
pub enum Embedded {
    /// `[1:1461(1460)]`
    Tcp { seq: u32, seq_end: u32, len: u32 },
    /// `[udp (1000)]`
    Udp { len: u16 },
    /// `[raw (1000)]`
    Raw { len: u16 },
}

/// A system call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The call sleeps and returns at this time: after the start of the script if the event's
    /// time is absolute, after the event before if it is relative. In microseconds.
    pub end: Option<i64>,
    /// `socket`, `bind` and so on.
    pub name: Spanned<String>,
    /// The arguments.
    pub arguments: Vec<Spanned<Expr>>,
    /// What it returns.
    pub result: Spanned<Expr>,
    /// The error that it sets, such as `EAGAIN`.
    pub errno: Option<Spanned<String>>,
    /// The note in parentheses, which means nothing.
    pub note: Option<String>,
}

/// A value of a system call, or what is expected of one.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields have the names that the language gives them")]
pub enum Expr {
    /// `...`
    Ellipsis,
    /// A number, decimal or with 0x.
    Integer(i64),
    /// A name, looked up when the script runs.
    Word(String),
    /// A string, escapes undone.
    String(Vec<u8>),
    /// `"GET /"...`: a string of which only the start is given.
    StringPrefix(Vec<u8>),
    /// `A | B`
    Or(Box<Spanned<Expr>>, Box<Spanned<Expr>>),
    /// `name = value`
    Assign(String, Box<Spanned<Expr>>),
    /// `[a, b]`
    List(Vec<Spanned<Expr>>),
    /// `{a, b}`
    Braces(Vec<Spanned<Expr>>),
    /// `inet_addr("192.0.2.1")`, `inet6_addr("2001:db8::1")`
    Address(IpAddr),
    /// `{sa_family = AF_INET, sin_port = htons(8080), sin_addr = inet_addr("192.0.2.1")}`
    SocketAddress { family: String, port: u16, address: IpAddr },
    /// `{msg_name(...)=..., msg_iov(1)=[...], msg_flags=0, msg_control=[...]}`
    Message(Box<Message>),
    /// `{..., 1000}`
    Iovec(i64),
    /// `{fd=4, events=POLLIN, revents=POLLIN}`
    PollFd {
        fd: Box<Spanned<Expr>>,
        events: Box<Spanned<Expr>>,
        revents: Option<Box<Spanned<Expr>>>,
    },
    /// `{onoff=1, linger=0}`
    Linger { onoff: i64, linger: i64 },
    /// `{cmsg_level=.., cmsg_type=.., cmsg_data=..}`
    ControlMessage {
        /// `cmsg_level`
        level: Box<Spanned<Expr>>,
        /// `cmsg_type`
        kind: Box<Spanned<Expr>>,
        /// `cmsg_data`
        data: Box<Spanned<Expr>>,
    },
    /// `{scm_sec=0, scm_nsec=20000000}`
    ScmTimestamping { sec: i64, nsec: i64 },
    /// `{ee_errno=.., ee_origin=.., ee_type=.., ee_code=.., ee_info=.., ee_data=..}`, in this order
    ExtendedError(Box<[Spanned<Expr>; 6]>),
    /// `{events=EPOLLIN, fd=4}`, or `ptr`, `u32`, `u64` in the place of `fd`, which is `field`
    EpollEvent { events: Box<Spanned<Expr>>, field: String, data: Box<Spanned<Expr>> },
}

/// What `sendmsg` and `recvmsg` take.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The number in `msg_iov(n)`.
    pub iov_count: Spanned<i64>,
    /// The list of iovecs.
    pub iov: Vec<Spanned<Expr>>,
    /// The flags.
    pub flags: Spanned<Expr>,
    /// The ancillary messages.
    pub control: Vec<Spanned<Expr>>,
}
