//! What to do about a finding: what helps most first, and only what the stack that was captured
//! has.

use crate::kinds::Kind;
use crate::nagle::Rule;

/// The stack of the side that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// The capture says that it is Plimsoll.
    Plimsoll,
    /// Any other, or unknown: what sockets have everywhere, and settings of Linux by name.
    Other,
}

/// The setting to turn, or the call to make.
pub(crate) fn remedy(kind: Kind, stack: Stack, rule: Rule) -> &'static str {
    match (kind, stack) {
        (Kind::Fractional | Kind::TailApart | Kind::SmallWrites | Kind::WakeUps, _) => {
            cutting(kind, stack, rule)
        }
        (Kind::AckAlone | Kind::AckRate, _) => acks(kind, stack),
        // Each of their reasons has a remedy of its own.
        (
            Kind::Refused
            | Kind::NoAnswer
            | Kind::RepeatedSyn
            | Kind::LateHandshake
            | Kind::Reset
            | Kind::TooLarge,
            _,
        ) => "Compare with a capture at the other end.",
        (Kind::Stall, _) => {
            "Write header and body in one call (writev), or header with MSG_MORE, or both between \
             TCP_CORK on and off; if the program gathers its writes already, set TCP_NODELAY. \
             Where only the other side can be changed, TCP_QUICKACK there helps, one ACK at a time."
        }
        (Kind::NagleRoundTrip, _) => {
            "Write the message in one call (writev), or its first part with MSG_MORE, or all of it \
             between TCP_CORK on and off; if the program gathers its writes already, set \
             TCP_NODELAY. The ACKs are not the cause: they came at once."
        }
        (Kind::Loss, _) => {
            "Look for the place: a queue that is too short for the rate behind it, a policer, a \
             radio link, errors of a device (ip -s link). Senders that pace (the fq queueing \
             discipline) or that BBR controls overflow short queues less; a lower rate at the \
             sender avoids the loss."
        }
        (Kind::FullWindow | Kind::ZeroWindow, _) => {
            "Read faster, in larger pieces, or in a thread of its own; a larger receive buffer \
             (net.ipv4.tcp_rmem, SO_RCVBUF) helps against bursts only."
        }
        (Kind::SmallBuffer, _) => {
            "If the receiving program sets SO_RCVBUF, leave it out: the stack then lets the buffer \
             grow as the path needs it, up to the third value of net.ipv4.tcp_rmem; or set it \
             before connect or listen to twice the rate wanted times the round trip. If it is not \
             set, raise the second and third value."
        }
        (Kind::SillyWindow, _) => {
            "Make the receive buffer several segments long at least (SO_RCVBUF); read in larger \
             pieces."
        }
    }
}

fn cutting(kind: Kind, stack: Stack, rule: Rule) -> &'static str {
    match (kind, stack, rule) {
        (Kind::Fractional, Stack::Plimsoll, _) => {
            "Trim the tail while more is to come (plimsoll.tcp_tso_tail = trim or nagle); in the \
             program write larger pieces, or say MSG_MORE or TCP_CORK while more is to come."
        }
        (Kind::Fractional, Stack::Other, Rule::Off) => {
            "Say MSG_MORE or TCP_CORK while more is to come, or write larger pieces; do not set \
             TCP_NODELAY for bulk data, and Nagle's rule keeps the tails back."
        }
        (Kind::Fractional, Stack::Other, _) => {
            "Write larger pieces, or say MSG_MORE or TCP_CORK while more is to come."
        }
        (Kind::TailApart, Stack::Plimsoll, _) => {
            "Leave the tail in the last super-segment (plimsoll.tcp_tso_tail = nagle, not split); \
             write a message in one call."
        }
        (Kind::TailApart, ..) => {
            "Write a message in one call (writev), or its parts with MSG_MORE or TCP_CORK: each \
             write that is sent at once ends in a packet of its own."
        }
        (Kind::SmallWrites, _, Rule::Off) => {
            "Gather writes in the program (writev, a buffered writer), or say MSG_MORE or TCP_CORK \
             until a burst is complete; do not set TCP_NODELAY for bulk data. If \
             net.ipv4.tcp_autocorking is 0, set it back to 1."
        }
        (Kind::SmallWrites, ..) => {
            "Gather writes in the program (writev, a buffered writer), or say MSG_MORE or TCP_CORK \
             until a burst is complete. If net.ipv4.tcp_autocorking is 0, set it back to 1."
        }
        _ => {
            "Write a message in one call; see the other findings for what cut it. A reader that \
             knows the size can ask to be woken late (SO_RCVLOWAT)."
        }
    }
}

fn acks(kind: Kind, stack: Stack) -> &'static str {
    match (kind, stack) {
        (Kind::AckAlone, Stack::Plimsoll) => {
            "See that net.ipv4.tcp_backlog_ack_defer and plimsoll.tcp_pingpong are 1, which has \
             ACKs wait until the reader was asked; clear TCP_QUICKACK, and the route's quickack."
        }
        (Kind::AckAlone, Stack::Other) => {
            "Clear TCP_QUICKACK in the program, and the route's quickack. At the beginning of a \
             connection Linux acknowledges at once whatever is set."
        }
        (_, Stack::Plimsoll) => {
            "See that plimsoll.gro, which merges arriving segments, and \
             net.ipv4.tcp_backlog_ack_defer are 1; clear TCP_QUICKACK, and the route's quickack."
        }
        (_, Stack::Other) => {
            "Merge arriving segments (on Linux ethtool -K DEVICE gro on); clear TCP_QUICKACK in \
             the program, and the route's quickack."
        }
    }
}
