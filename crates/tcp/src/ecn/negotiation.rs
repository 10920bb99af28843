//! The negotiation by the flags of SYN and SYN-ACK (RFC 9768, section 3.1), and their report of the
//! codepoint of the packet that they answer.

use plimsoll_wire::tcp::TcpFlags;

use crate::algorithm::CongestionAlgorithm;
use crate::config::{Config, Options};
use crate::segment::Ecn;

/// The kind of feedback that is requested, or agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None: nothing is ECN-capable.
    #[default]
    Off,
    /// ECE until CWR comes (RFC 3168).
    Classic,
    /// Counters of marks (RFC 9768).
    Accurate,
}

/// AE, CWR and ECE: in a SYN each is a request, elsewhere they are the ACE field.
const ACE: TcpFlags = TcpFlags(TcpFlags::AE.0 | TcpFlags::CWR.0 | TcpFlags::ECE.0);
/// A SYN with these requests RFC 3168.
const CLASSIC: TcpFlags = TcpFlags(TcpFlags::CWR.0 | TcpFlags::ECE.0);
/// The place of the ACE field among the flags.
const ACE_SHIFT: u32 = TcpFlags::ECE.0.trailing_zeros();

/// The ACE field, 0 to 7: AE, CWR and ECE from the highest bit on.
pub(crate) fn ace(flags: TcpFlags) -> u8 {
    ((flags.0 & ACE.0) >> ACE_SHIFT) as u8
}

/// The flags that are the ACE field `ace`, of which the three lowest bits count.
pub(crate) fn ace_flags(ace: u8) -> TcpFlags {
    TcpFlags(u16::from(ace & 7) << ACE_SHIFT)
}

/// A stack's requests and acceptances: `tcp_ecn`, and whether the congestion control requires
/// marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The mode that our SYN requests.
    pub(crate) ask: Mode,
    /// The highest mode that is accepted when a SYN requests it.
    pub(crate) agree: Mode,
    /// The congestion control needs marks (RFC 8257): packets of every kind are ECN-capable.
    pub(crate) needed: bool,
}

impl Policy {
    /// That of a connection with these options.
    pub(crate) fn of(config: &Config, options: &Options) -> Policy {
        let algorithm = options.congestion.unwrap_or(config.tcp_congestion_control);
        Policy::new(config.tcp_ecn, algorithm, options.route.ecn)
    }

    /// The policy of `tcp_ecn` with this algorithm. `route` is whether the route requests ECN.
    pub(crate) fn new(tcp_ecn: u8, algorithm: CongestionAlgorithm, route: bool) -> Policy {
        let (ask, agree) = match tcp_ecn {
            1 => (Mode::Classic, Mode::Classic),
            2 => (Mode::Off, Mode::Classic),
            3 => (Mode::Accurate, Mode::Accurate),
            4 => (Mode::Classic, Mode::Accurate),
            5 => (Mode::Off, Mode::Accurate),
            _ => (Mode::Off, Mode::Off),
        };
        let needed = algorithm == CongestionAlgorithm::Dctcp;
        let least = if needed || route { Mode::Classic } else { Mode::Off };
        let at_least = |mode| if mode == Mode::Off { least } else { mode };
        Policy { ask: at_least(ask), agree: at_least(agree), needed }
    }

    /// The mode that results from a SYN with these flags and this codepoint. Unassigned
    /// combinations request Accurate ECN (section 3.1.3). A SYN that requests RFC 3168 and is
    /// itself marked has passed a node that violates the rules, unless all packets are marked.
    pub(crate) fn answer(self, flags: TcpFlags, codepoint: Ecn) -> Mode {
        let classic = flags.contains(CLASSIC) && (codepoint == Ecn::NotEct || self.needed);
        match (self.agree, flags.0 & ACE.0) {
            (Mode::Off, _) | (_, 0) => Mode::Off,
            (Mode::Accurate, asked) if asked != CLASSIC.0 => Mode::Accurate,
            _ if classic => Mode::Classic,
            _ => Mode::Off,
        }
    }
}

/// The flags of a SYN that requests `mode`.
pub(crate) fn syn_flags(mode: Mode) -> TcpFlags {
    match mode {
        Mode::Off => TcpFlags::default(),
        Mode::Classic => CLASSIC,
        Mode::Accurate => ACE,
    }
}

/// The mode to which a SYN-ACK with these flags agrees when `asked` was requested (section 3.1.2):
/// the one that both support, and with Accurate ECN the codepoint with which our SYN arrived.
pub(crate) fn agreed(asked: Mode, flags: TcpFlags) -> (Mode, Ecn) {
    let ece = flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::CWR);
    match (asked, codepoint_of_handshake(ace(flags))) {
        (Mode::Accurate, Some(codepoint)) => (Mode::Accurate, codepoint),
        (Mode::Accurate | Mode::Classic, _) if ece => (Mode::Classic, Ecn::NotEct),
        _ => (Mode::Off, Ecn::NotEct),
    }
}

/// The ACE field of the packet that answers a SYN or SYN-ACK with this codepoint.
pub(crate) fn handshake_ace(codepoint: Ecn) -> u8 {
    match codepoint {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    }
}

/// The codepoint that such an ACE field reports, if it does.
pub(crate) fn codepoint_of_handshake(ace: u8) -> Option<Ecn> {
    [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce]
        .into_iter()
        .find(|&codepoint| handshake_ace(codepoint) == ace)
}

#[cfg(test)]
mod tests;
