//! Writes a script of what one end of a connection has seen and done.
//!
//! Packets that reached it become packets that arrive, those that left it are what must leave, and
//! its calls are made again. All sequence numbers and timestamps count from the first of their
//! sender. What left in one burst and belongs together is one line, because scripts do not say how
//! a burst is cut into super-segments.

use std::fmt::Write as _;

use plimsoll_tcp::Duration;

use crate::packet::live::{self, Body, Live, Segment};
use crate::packet::{flag, icmp, show};

/// The first timestamp of this end, in the script.
const LOCAL_STAMP: u32 = 10_000;
/// The first timestamp of the peer, in the script.
const REMOTE_STAMP: u32 = 500_000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, from any beginning.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// This packet arrived, from the IP header on.
    Arrived(Vec<u8>),
    /// This packet left, from the IP header on. It may be a super-segment.
    Left(Vec<u8>),
    /// This call was made, as a script writes it, with its result.
    Call(String),
    /// A line for the reader.
    Remark(String),
}

/// How a script begins, and what it looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What the script is about: lines of a comment.
    pub about: Vec<String>,
    /// Options of the runner, such as `--mtu=1280`.
    pub options: Vec<String>,
    /// Settings that are made before, by Linux's names.
    pub settings: Vec<(String, String)>,
    /// The windows of packets that leave are part of what must be.
    pub windows: bool,
}

/// Writes the script of `events`, which are in their order.
///
/// # Errors
/// If there is something among them that no script can say; the text names it.
pub fn write(head: &Head, events: &[Event]) -> Result<String, String> {
    let mut writer = Writer::new(head.windows);
    let mut at = events.first().map_or(Duration::ZERO, |event| event.at);
    let mut text = writer.head(head);
    let events = bursts_first(events);
    let mut rest = events.as_slice();
    let mut first = true;
    while let Some((event, behind)) = rest.split_first() {
        let (line, used) = match &event.what {
            What::Remark(remark) => {
                let _ = writeln!(text, "// {remark}");
                rest = behind;
                continue;
            }
            What::Call(call) => (call.clone(), 1),
            What::Arrived(packet) => (writer.arrived(packet)?, 1),
            What::Left(_) => writer.left(rest)?,
        };
        let delta = event.at.saturating_sub(at);
        let time = if first { "0".to_owned() } else { relative(delta) };
        let _ = writeln!(text, "{time:>10} {line}");
        (at, first) = (event.at, false);
        rest = rest.get(used..).unwrap_or_default();
    }
    Ok(text)
}

/// The same events, but where a burst leaves in pieces and somebody answers the first of them at
/// once, the answers come behind the burst. It was under way as a whole before anybody answered,
/// and may leave as one super-segment.
fn bursts_first(events: &[Event]) -> Vec<Event> {
    let mut sorted: Vec<Event> = Vec::new();
    let mut answers: Vec<Event> = Vec::new();
    for event in events {
        let burst = sorted.last().filter(|last| last.at == event.at);
        let (last, now) = (burst.and_then(piece), piece(event));
        let answer = matches!(&event.what, What::Arrived(packet) if is_icmp(packet));
        match (last, now) {
            (Some(_), None) if answer => answers.push(event.clone()),
            (Some(last), Some(now)) if continues(&last, &now, &last.0) => {
                sorted.push(event.clone());
            }
            _ => {
                sorted.append(&mut answers);
                sorted.push(event.clone());
            }
        }
    }
    sorted.append(&mut answers);
    sorted
}

/// The segment that leaves with an event, if it has data.
fn piece(event: &Event) -> Option<(Segment, String)> {
    let What::Left(packet) = &event.what else { return None };
    let live = live::parse(packet)?;
    let mark = mark(&live);
    match live.body {
        Body::Tcp(segment) if segment.len > 0 => Some((segment, mark)),
        _ => None,
    }
}

fn is_icmp(packet: &[u8]) -> bool {
    live::parse(packet).is_some_and(|live| matches!(live.body, Body::Icmp { .. }))
}

/// `+.05` for 50 ms: to the microsecond, without zeroes at the end.
fn relative(delta: Duration) -> String {
    let micros = (delta + Duration::from_nanos(500)).as_micros();
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    if micros == 0 {
        return format!("+{seconds}");
    }
    let text = format!("+{seconds}.{micros:06}");
    text.trim_end_matches('0').replacen("+0.", "+.", 1)
}

/// What is known of the connection so far.
struct Writer {
    windows: bool,
    local_isn: Option<u32>,
    remote_isn: Option<u32>,
    local_stamp: Option<u32>,
    remote_stamp: Option<u32>,
}

impl Writer {
    fn new(windows: bool) -> Writer {
        Writer { windows, local_isn: None, remote_isn: None, local_stamp: None, remote_stamp: None }
    }

    fn head(&self, head: &Head) -> String {
        let mut text = String::new();
        for line in &head.about {
            let _ = writeln!(text, "// {line}");
        }
        for option in &head.options {
            let _ = writeln!(text, "{option}");
        }
        if !head.settings.is_empty() {
            let lines = head.settings.iter().map(|(name, value)| format!("{name}=\"{value}\""));
            let lines: Vec<String> = lines.map(|line| format!("sysctl -q {line}")).collect();
            let _ = writeln!(text, "\n`{}`", lines.join("\n"));
        }
        text.push('\n');
        text
    }

    fn arrived(&mut self, packet: &[u8]) -> Result<String, String> {
        let live = live::parse(packet).ok_or("a packet arrived that is no IP packet")?;
        let Body::Tcp(segment) = &live.body else { return self.icmp(packet, &live) };
        if segment.has(flag::SYN) {
            self.remote_isn.get_or_insert(segment.seq);
        }
        let mut segment = segment.clone();
        let (local, remote) = (self.local_isn.unwrap_or(0), self.remote_isn.unwrap_or(0));
        self.shift(&mut segment, (remote, local));
        let ack = segment.has(flag::ACK);
        let first = self.local_stamp;
        for option in &mut segment.options {
            let Some((val, ecr)) = option.timestamps() else { continue };
            let own = *self.remote_stamp.get_or_insert(val);
            let echo = first.filter(|_| ack).map_or(0, |first| count(ecr, first, LOCAL_STAMP));
            option.set_timestamps(count(val, own, REMOTE_STAMP), echo);
        }
        Ok(format!("< {}{}", mark(&live), line(&segment, true)))
    }

    /// Subtracts initial sequence numbers. SYNs keep their own: they are written as 0.
    fn shift(&self, segment: &mut Segment, (own, other): (u32, u32)) {
        segment.seq = segment.seq.wrapping_sub(own);
        if segment.has(flag::ACK) {
            segment.ack = segment.ack.wrapping_sub(other);
        }
        for option in &mut segment.options {
            option.shift_sack(other.wrapping_neg());
        }
    }

    /// An error that quotes a segment of ours.
    fn icmp(&self, packet: &[u8], live: &Live) -> Result<String, String> {
        let Body::Icmp { kind, code } = live.body else {
            return Err("a packet arrived that is neither TCP nor ICMP".to_owned());
        };
        let v6 = live.src.is_ipv6();
        let quote = quoted(packet, v6).ok_or("an ICMP message arrived that quotes no segment")?;
        let isn = self.local_isn.ok_or("an ICMP message arrived before the first segment")?;
        let mut text = format!("< icmp {}", icmp::names(v6, kind, code));
        if quote.mtu > 0 {
            let _ = write!(text, " mtu {}", quote.mtu);
        }
        let seq = quote.seq.wrapping_sub(isn);
        let _ = write!(text, " [{seq}:{}({})]", seq.wrapping_add(quote.len), quote.len);
        Ok(text)
    }

    /// The first of `events` has left; those behind it that continue it are of the same line. Says
    /// how many are.
    fn left(&mut self, events: &[Event]) -> Result<(String, usize), String> {
        let mut pieces: Vec<(Segment, String)> = Vec::new();
        let mut used = 0;
        for event in events {
            let What::Left(packet) = &event.what else { break };
            let live = live::parse(packet).ok_or("a packet left that is no IP packet")?;
            let Body::Tcp(segment) = &live.body else {
                return Err("a packet left that is no TCP segment".to_owned());
            };
            let piece = (segment.clone(), mark(&live));
            let fits = pieces.last().is_none_or(|before| {
                event.at == events[0].at && continues(before, &piece, &pieces[0].0)
            });
            if !fits {
                break;
            }
            pieces.push(piece);
            used += 1;
        }
        let (Some((first, mark)), Some((last, _))) = (pieces.first(), pieces.last()) else {
            return Err("nothing has left".to_owned());
        };
        let mut whole = last.clone();
        whole.seq = first.seq;
        whole.flags = last.flags & !flag::CWR | first.flags & flag::CWR;
        whole.len = pieces.iter().map(|(piece, _)| piece.len).sum();
        if whole.has(flag::SYN) {
            self.local_isn.get_or_insert(whole.seq);
        }
        let (local, remote) = (self.local_isn.unwrap_or(0), self.remote_isn.unwrap_or(0));
        self.shift(&mut whole, (local, remote));
        let other = self.remote_stamp;
        for option in &mut whole.options {
            let Some((val, ecr)) = option.timestamps() else { continue };
            let own = *self.local_stamp.get_or_insert(val);
            let echo = other.filter(|_| ecr != 0);
            let echo = echo.map_or(0, |first| count(ecr, first, REMOTE_STAMP));
            option.set_timestamps(count(val, own, LOCAL_STAMP), echo);
        }
        Ok((format!("> {mark}{}", line(&whole, self.windows)), used))
    }
}

/// A timestamp, counted from the first of its sender.
fn count(stamp: u32, first: u32, from: u32) -> u32 {
    stamp.wrapping_sub(first).wrapping_add(from)
}

fn mark(live: &Live) -> String {
    match live.tos & 3 {
        0 => String::new(),
        1 => "[ect1] ".to_owned(),
        2 => "[ect0] ".to_owned(),
        _ => "[ce] ".to_owned(),
    }
}

fn line(segment: &Segment, window: bool) -> String {
    let text = show::segment(segment);
    if window {
        return text;
    }
    let before = format!(" win {}", segment.window);
    text.replacen(&before, "", 1)
}

/// Whether a segment goes on where the one before it ends, as a part of the same super-segment.
fn continues(
    (before, mark): &(Segment, String),
    (next, next_mark): &(Segment, String),
    first: &Segment,
) -> bool {
    const MAY_DIFFER: u16 = flag::PSH | flag::FIN;
    let options =
        |segment: &Segment| segment.options.iter().map(|option| option.bytes.len()).sum::<usize>();
    let same = before.flags & !MAY_DIFFER & !flag::CWR == next.flags & !MAY_DIFFER
        && (before.ack, before.window, options(before)) == (next.ack, next.window, options(next));
    same && mark == next_mark
        && before.len > 0
        && next.len > 0
        && before.flags & (MAY_DIFFER | flag::SYN) == 0
        && before.seq.wrapping_add(before.len) == next.seq
        && before.len == first.len
}

/// What an ICMP error tells.
struct Quoted {
    mtu: u32,
    seq: u32,
    len: u32,
}

fn quoted(packet: &[u8], v6: bool) -> Option<Quoted> {
    let ip_len = if v6 { 40 } else { usize::from(packet.first()? & 15) * 4 };
    let message = packet.get(ip_len..)?;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    };
    let mtu = word(message, 4)?;
    let inner = message.get(8..)?;
    let half =
        |at: usize| inner.get(at..at + 2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let (header, total) = match v6 {
        true => (40, half(4)? + 40),
        false => (usize::from(inner.first()? & 15) * 4, half(2)?),
    };
    let tcp = inner.get(header..)?;
    let tcp_header = tcp.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4);
    let len = total.saturating_sub(u32::try_from(header + tcp_header).ok()?);
    Some(Quoted { mtu, seq: word(tcp, 4)?, len })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::lang::ast::IpInfo;
    use crate::packet::build::{TcpFields, tcp};
    use crate::packet::options;
    use crate::report::Status;
    use crate::suite::{Options, run_text};

    const NEAR: &str = "192.0.2.1:4000";
    const FAR: &str = "198.51.100.1:80";

    fn packet(out: bool, flags: u16, seq: u32, ack: u32, len: u32, options: &[u8]) -> Vec<u8> {
        let (near, far): (SocketAddr, SocketAddr) = (NEAR.parse().unwrap(), FAR.parse().unwrap());
        let (src, dst) = if out { (near, far) } else { (far, near) };
        let options = options::split(options);
        let fields =
            TcpFields { seq, ack, flags, window: 65535, urgent: 0, options: &options, len };
        tcp(src, dst, &IpInfo::default(), &fields).unwrap()
    }

    fn at(millis: u64, what: What) -> Event {
        Event { at: Duration::from_millis(millis), what }
    }

    /// A client that writes 2500 bytes to a peer that takes segments of 1000.
    fn events() -> Vec<Event> {
        let call = |text: &str| What::Call(text.to_owned());
        let out = |flags, seq, ack, len, options: &[u8]| {
            What::Left(packet(true, flags, seq, ack, len, options))
        };
        let (syn, ack, push) = (flag::SYN, flag::ACK, flag::ACK | flag::PSH);
        vec![
            at(7, call("socket(..., SOCK_STREAM, IPPROTO_TCP) = 3")),
            at(7, call("fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0")),
            at(7, call("connect(3, ..., ...) = -1 EINPROGRESS (In progress)")),
            at(7, out(syn, 900, 0, 0, &[2, 4, 5, 180, 1, 3, 3, 10])),
            at(57, What::Arrived(packet(false, syn | ack, 70, 901, 0, &[2, 4, 3, 232]))),
            at(57, out(ack, 901, 71, 0, &[])),
            at(60, call("write(3, ..., 2500) = 2500")),
            at(60, out(ack, 901, 71, 1000, &[])),
            at(60, out(ack, 1901, 71, 1000, &[])),
            at(60, out(push, 2901, 71, 500, &[])),
        ]
    }

    #[test]
    fn what_happened_once_passes_again() {
        let settings = vec![
            ("net.ipv4.tcp_sack".to_owned(), "0".to_owned()),
            ("net.ipv4.tcp_timestamps".to_owned(), "0".to_owned()),
        ];
        let about = vec!["It was so.".to_owned()];
        let head = Head { about, settings, ..Head::default() };
        let text = write(&head, &events()).unwrap();
        assert!(text.contains("+.05 < S. 0:0(0) ack 1 win 65535 <mss 1000>"), "{text}");
        assert!(text.contains("+.003 write(3, ..., 2500) = 2500"), "{text}");
        // One line for the three.
        assert!(text.contains("+0 > P. 1:2501(2500) ack 1\n"), "{text}");
        let report = run_text("written.pkt", &text, None, &Options::default());
        assert_eq!(report.status, Status::Passed, "{text}\n{:?}", report.cause);
    }

    /// As in a simulation, where the router of a small link answers each piece before the next one
    /// comes.
    #[test]
    fn what_is_told_of_a_piece_comes_behind_the_burst() {
        let mut events = events();
        let What::Left(refused) = events[8].what.clone() else { panic!("it has left") };
        let answer = packet_too_big(&refused, 800);
        events.insert(9, at(60, What::Arrived(answer)));
        let again = packet(true, flag::ACK, 901, 71, 760, &[]);
        events.push(at(60, What::Left(again)));
        let text = write(&Head::default(), &events).unwrap();
        let wanted = "+0 > P. 1:2501(2500) ack 1\n\
                      +0 < icmp unreachable frag_needed mtu 800 [1001:2001(1000)]\n\
                      +0 > . 1:761(760) ack 1\n";
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert!(lines.join("\n").contains(wanted.trim_end()), "{text}");
    }

    fn packet_too_big(refused: &[u8], mtu: u16) -> Vec<u8> {
        let mut bytes = refused[..20].to_vec();
        bytes.extend([3, 4, 0, 0, 0, 0]);
        bytes.extend(mtu.to_be_bytes());
        bytes.extend(&refused[..28]);
        let len = (bytes.len() as u16).to_be_bytes();
        (bytes[2], bytes[3]) = (len[0], len[1]);
        bytes[9] = 1;
        bytes
    }

    #[test]
    fn windows_are_looked_at_if_they_are_to_be() {
        let head = Head { windows: true, ..Head::default() };
        let text = write(&head, &events()).unwrap();
        assert!(text.contains("> P. 1:2501(2500) ack 1 win 65535"), "{text}");
    }

    #[test]
    fn what_no_script_can_say_is_named() {
        let wrong = vec![at(0, What::Arrived(vec![0x45, 0]))];
        assert!(write(&Head::default(), &wrong).unwrap_err().contains("no IP packet"));
    }
}
