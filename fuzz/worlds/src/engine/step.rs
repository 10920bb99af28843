//! What can happen, as an input spells it.

use arbitrary::Arbitrary;
use plimsoll_tcp::{CongestionAlgorithm, Duration, SetOption, TsoTail, TxTimestamps, WriteFlags};

use super::forge::Forgery;
use super::settings::Setting;

/// One side of the world.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The first.
    A,
    /// The second.
    B,
}

impl Host {
    /// Index of this side.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Index of the other side.
    pub fn other(self) -> usize {
        1 - self as usize
    }
}

/// How the application writes.
#[derive(Arbitrary, Clone, Copy, Debug, Default)]
pub struct Writing {
    more: bool,
    eor: bool,
    zerocopy: bool,
    /// By reference.
    pub shared: bool,
    /// By the short way behind a write that automatic corking holds, if it is open.
    pub corked: bool,
}

impl Writing {
    /// The flags of the call.
    pub fn flags(self) -> WriteFlags {
        let Writing { more, eor, zerocopy, .. } = self;
        WriteFlags { more, eor, urgent: false, zerocopy }
    }
}

/// An option to set, with a small choice of values.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum OptionChoice {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// SO_KEEPALIVE with short times.
    KeepAlive(bool),
    /// TCP_USER_TIMEOUT in units of 100 ms.
    UserTimeout(u8),
    /// SO_SNDBUF as a power of two.
    SndBuf(u8),
    /// SO_RCVBUF as a power of two.
    RcvBuf(u8),
    /// TCP_NOTSENT_LOWAT.
    NotsentLowat(u16),
    /// SO_RCVLOWAT.
    RcvLowat(u16),
    /// SO_OOBINLINE.
    OobInline(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// TCP_LINGER2 in seconds.
    Linger2(u8),
    /// TCP_CONGESTION.
    Cubic(bool),
    /// TCP_CORK.
    Cork(bool),
    /// SO_ZEROCOPY.
    ZeroCopy(bool),
    /// Automatic corking of this socket.
    Autocork(Option<bool>),
    /// The policy for tails of this socket.
    TsoTail(Option<u8>),
    /// SO_MAX_PACING_RATE as a power of two; 0 is no limit.
    MaxPacingRate(u8),
    /// The log of decisions.
    DecisionLog(u8),
    /// SO_TIMESTAMPING, a bit for each field.
    TxTimestamps(u8),
    /// IP_TOS.
    Tos(u8),
    /// IP_TTL.
    Ttl(u8),
    /// TCP_SYNCNT.
    SynRetries(u8),
    /// TCP_DEFER_ACCEPT.
    DeferAccept(u8),
    /// TCP_MAXSEG.
    MaxSeg(u16),
    /// TCP_KEEPIDLE in seconds.
    KeepIdle(u8),
    /// TCP_KEEPINTVL in seconds.
    KeepIntvl(u8),
    /// TCP_KEEPCNT.
    KeepCnt(u8),
}

impl From<OptionChoice> for SetOption {
    fn from(choice: OptionChoice) -> SetOption {
        match choice {
            OptionChoice::NoDelay(on) => SetOption::NoDelay(on),
            OptionChoice::KeepAlive(on) => SetOption::KeepAlive(on),
            OptionChoice::UserTimeout(tenths) => {
                SetOption::UserTimeout(Duration::from_millis(100 * u64::from(tenths)))
            }
            OptionChoice::SndBuf(power) => SetOption::SndBuf(1 << (power % 20)),
            OptionChoice::RcvBuf(power) => SetOption::RcvBuf(1 << (power % 20)),
            OptionChoice::NotsentLowat(bytes) => SetOption::NotsentLowat(bytes.into()),
            OptionChoice::RcvLowat(bytes) => SetOption::RcvLowat(bytes.into()),
            OptionChoice::OobInline(on) => SetOption::OobInline(on),
            OptionChoice::QuickAck(on) => SetOption::QuickAck(on),
            OptionChoice::Linger2(seconds) => {
                SetOption::Linger2(Duration::from_secs(seconds.into()))
            }
            OptionChoice::Cork(on) => SetOption::Cork(on),
            OptionChoice::ZeroCopy(on) => SetOption::ZeroCopy(on),
            OptionChoice::Autocork(on) => SetOption::Autocork(on),
            OptionChoice::TsoTail(which) => SetOption::TsoTail(
                which.map(|which| TsoTail::ALL[usize::from(which) % TsoTail::ALL.len()]),
            ),
            OptionChoice::MaxPacingRate(0) => SetOption::MaxPacingRate(u64::MAX),
            // From about a kilobyte per second on, so that everything comes to its end.
            OptionChoice::MaxPacingRate(power) => SetOption::MaxPacingRate(1 << (10 + power % 28)),
            OptionChoice::DecisionLog(entries) => SetOption::DecisionLog(entries.into()),
            OptionChoice::TxTimestamps(bits) => SetOption::TxTimestamps(TxTimestamps {
                sched: bits & 1 != 0,
                software: bits & 2 != 0,
                ack: bits & 4 != 0,
                opt_id: bits & 8 != 0,
            }),
            OptionChoice::Cubic(true) => SetOption::Congestion(CongestionAlgorithm::Cubic),
            OptionChoice::Cubic(false) => SetOption::Congestion(CongestionAlgorithm::NewReno),
            _ => choice.of_the_socket(),
        }
    }
}

impl OptionChoice {
    /// The options that say little about data: retries, probes, headers.
    fn of_the_socket(self) -> SetOption {
        let seconds = |count: u8| Duration::from_secs(count.into());
        match self {
            OptionChoice::Tos(tos) => SetOption::Tos(tos & !3),
            OptionChoice::Ttl(ttl) => SetOption::Ttl(ttl),
            OptionChoice::SynRetries(count) => SetOption::SynRetries(count),
            OptionChoice::DeferAccept(timeouts) => SetOption::DeferAccept(timeouts),
            OptionChoice::MaxSeg(bytes) => SetOption::MaxSeg(bytes),
            OptionChoice::KeepIdle(count) => SetOption::KeepIdle(seconds(count.max(1))),
            OptionChoice::KeepIntvl(count) => SetOption::KeepIntvl(seconds(count.max(1))),
            OptionChoice::KeepCnt(count) => SetOption::KeepCnt(count.max(1)),
            other => unreachable!("{other:?} is taken above"),
        }
    }
}

/// A path event, with a small choice of values.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum PathChoice {
    /// Packet too big.
    Mtu(u16),
    /// A soft error.
    Soft,
    /// An error that ends the connection.
    Hard,
}

/// One thing that happens.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    /// The application writes so many bytes.
    Write(Host, u16),
    /// The application writes so many bytes in two parts, with flags.
    WriteWith(Host, u16, Writing),
    /// The application writes one urgent byte.
    WriteUrgent(Host),
    /// The application reads up to so many bytes.
    Read(Host, u16),
    /// The same, by reference.
    ReadShared(Host, u16),
    /// Somebody waits for data to read, or does not any more.
    Waiting(Host, bool),
    /// Who waited was woken.
    Woken(Host),
    /// There is memory again.
    Memory(Host),
    /// The application peeks.
    Peek(Host, u16),
    /// The application asks for the urgent byte.
    ReadUrgent(Host),
    /// The application shuts its sending half down.
    Shutdown(Host),
    /// The application lets go.
    Close(Host),
    /// The application aborts.
    Abort(Host),
    /// The application sets an option.
    Option(Host, OptionChoice),
    /// A packet from this side arrives; which one, and whether only its first wire segment.
    Deliver(Host, u8, bool),
    /// Everything from this side arrives, in order.
    DeliverAll(Host),
    /// So many packets from this side arrive in order, as one batch.
    DeliverBatch(Host, u8),
    /// A router marks a packet from this side, if it may (ECN).
    Mark(Host, u8),
    /// A packet from this side is lost.
    Lose(Host, u8),
    /// A packet from this side will arrive twice.
    Repeat(Host, u8),
    /// The device of this side completes so many packets.
    Complete(Host, u8),
    /// The queue of this side drops a packet that has not left.
    Drop(Host, u8),
    /// A setting of the stack changes.
    Set(Setting),
    /// Time passes; an index into a table of durations.
    Advance(u8),
    /// Time passes until the next deadline of this side.
    Fire(Host),
    /// The path tells this side something.
    Path(Host, PathChoice),
    /// The forger sends to this side.
    Forge(Host, Forgery),
}

impl Step {
    /// Whether the connection does not go on after it.
    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            Step::Shutdown(_) | Step::Close(_) | Step::Abort(_) | Step::Path(_, PathChoice::Hard)
        )
    }
}
