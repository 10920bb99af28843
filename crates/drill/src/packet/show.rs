//! Packets as a script writes them.

use std::fmt::Write as _;

use super::live::{Body, Live, Segment};
use super::{flag, icmp, options};

/// The letters of the flags, in the order in which scripts write them.
pub fn flags(bits: u16) -> String {
    const LETTERS: [(u16, char); 9] = [
        (flag::FIN, 'F'),
        (flag::SYN, 'S'),
        (flag::RST, 'R'),
        (flag::PSH, 'P'),
        (flag::URG, 'U'),
        (flag::ECE, 'E'),
        (flag::CWR, 'W'),
        (flag::AE, 'A'),
        (flag::ACK, '.'),
    ];
    let text: String =
        LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, letter)| letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A segment.
pub fn segment(segment: &Segment) -> String {
    let mut text = format!(
        "{} {}:{}({})",
        flags(segment.flags),
        segment.seq,
        segment.seq.wrapping_add(segment.len),
        segment.len
    );
    if segment.has(flag::ACK) {
        let _ = write!(text, " ack {}", segment.ack);
    }
    let _ = write!(text, " win {}", segment.window);
    if segment.has(flag::URG) {
        let _ = write!(text, " urg {}", segment.urgent);
    }
    if !segment.options.is_empty() {
        let _ = write!(text, " <{}>", options::show_all(&segment.options));
    }
    text
}

/// A packet, without its direction.
pub fn packet(live: &Live) -> String {
    let mark = match live.tos & 3 {
        0 => "",
        1 => "[ect1] ",
        2 => "[ect0] ",
        _ => "[ce] ",
    };
    let body = match &live.body {
        Body::Tcp(tcp) => segment(tcp),
        Body::Udp(len) => format!("udp ({len})"),
        Body::Icmp { kind, code } => {
            format!("icmp {}", icmp::names(live.src.is_ipv6(), *kind, *code))
        }
        Body::Other(protocol) => format!("protocol {protocol}"),
    };
    format!("{mark}{body}")
}

/// Microseconds as seconds.
pub fn seconds(usecs: i64) -> String {
    let sign = if usecs < 0 { "-" } else { "" };
    let usecs = usecs.unsigned_abs();
    format!("{sign}{}.{:06}", usecs / 1_000_000, usecs % 1_000_000)
}
