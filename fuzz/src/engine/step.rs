//! What can happen, as an input spells it.

use arbitrary::Arbitrary;
use plimsoll_tcp::{CongestionAlgorithm, Duration, SetOption};

use super::forge::Forgery;

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
            OptionChoice::Cubic(true) => SetOption::Congestion(CongestionAlgorithm::Cubic),
            OptionChoice::Cubic(false) => SetOption::Congestion(CongestionAlgorithm::NewReno),
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
    /// The application writes one urgent byte.
    WriteUrgent(Host),
    /// The application reads up to so many bytes.
    Read(Host, u16),
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
    /// A packet from this side is lost.
    Lose(Host, u8),
    /// A packet from this side will arrive twice.
    Repeat(Host, u8),
    /// The device of this side completes so many packets.
    Complete(Host, u8),
    /// Time passes; an index into a table of durations.
    Advance(u8),
    /// Time passes until the next deadline of this side.
    Fire(Host),
    /// The path tells this side something.
    Path(Host, PathChoice),
    /// The forger sends to this side.
    Forge(Host, Forgery),
}
