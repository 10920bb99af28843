//! Packets.

use super::super::ast::{
    Direction, Embedded, Icmp, IpInfo, Packet, PacketBody, Spanned, Tcp, TcpFlags, TcpOption, Tos,
};
use super::super::diagnostic::Diagnostic;
use super::super::token::{Kind, Token};
use super::{
    Input, Result, expected, ip, kind, maybe_word, number, number_u16, number_u32, peek, peek_at,
    refuse, sign, spanned, take, tcp_option, wrong,
};

/// What IP and TCP headers take of a packet at least.
const HEADERS: usize = 40;

/// A packet, from its direction on.
pub(super) fn packet(input: &mut Input<'_>) -> Result<Packet> {
    let arrow = take(input)?;
    let direction = if arrow.is('<') { Direction::Inbound } else { Direction::Outbound };
    let mut encapsulation = ip::encapsulation(input)?;
    let before = peek(input);
    let ip = ip::opt_ip_info(input)?;
    if ip.tos == Some(Tos::EitherEct) && direction == Direction::Inbound {
        return wrong(
            before.start..input.state.end,
            "`ect01` is for outbound packets: an inbound one is either `ect0` or `ect1`",
        );
    }
    let body = if peek(input).is_word("udp") {
        udp(input, &ip)?
    } else if peek(input).is_word("icmp") {
        take(input)?;
        PacketBody::Icmp(icmp(input)?)
    } else {
        encapsulation.extend(ip::opt_psp(input)?);
        PacketBody::Tcp(tcp(input, &arrow)?)
    };
    Ok(Packet { direction, encapsulation, ip, body })
}

/// `src > dst`, if there.
fn opt_ports(input: &mut Input<'_>) -> Result<Option<(u16, u16)>> {
    if peek(input).kind != Kind::Integer || !peek_at(input, 1).is('>') {
        return Ok(None);
    }
    let src = number_u16(input, "a port")?;
    sign(input, '>')?;
    Ok(Some((src, number_u16(input, "a port")?)))
}

fn udp(input: &mut Input<'_>, ip: &IpInfo) -> Result<PacketBody> {
    let token = take(input)?;
    if matches!(ip.tos, Some(Tos::Ecn(_) | Tos::EitherEct)) {
        return wrong(token.span(), "a UDP datagram has no ECN bits here: expected `tos 0x..`");
    }
    let ports = opt_ports(input)?;
    let len = parenthesised_len(input)?;
    Ok(PacketBody::Udp { ports, len })
}

/// `(1000)`
fn parenthesised_len(input: &mut Input<'_>) -> Result<u16> {
    sign(input, '(')?;
    let len = number_u16(input, "a length")?;
    sign(input, ')')?;
    Ok(len)
}

fn tcp(input: &mut Input<'_>, arrow: &Token<'_>) -> Result<Tcp> {
    let ports = opt_ports(input)?;
    let flags = flags(input)?;
    let Spanned { node: (seq, seq_end, len), span } = spanned(input, sequence)?;
    let ack = if maybe_word(input, "ack")? {
        Some(number_u32(input, "an acknowledgement number")?)
    } else {
        None
    };
    let window =
        if maybe_word(input, "win")? { Some(number_u16(input, "a window")?) } else { None };
    let urgent = if maybe_word(input, "urg")? {
        Some(number_u16(input, "an urgent pointer")?)
    } else {
        None
    };
    let options = opt_options(input, arrow)?;
    if window.is_none() && arrow.is('<') {
        return refuse(
            Diagnostic::new(
                arrow.start..input.state.end,
                "expected the window of an inbound segment, and there is none",
            )
            .help("add for example `win 257` behind the acknowledgement number"),
        );
    }
    let option_len: usize =
        options.iter().flatten().map(|option| tcp_option::wire_len(&option.node)).sum();
    if HEADERS + option_len + len as usize > usize::from(u16::MAX) {
        return wrong(span, "with its headers this segment is longer than any IP packet");
    }
    Ok(Tcp { ports, flags, seq, seq_end, len, ack, window, urgent, options })
}

/// `<...>`, `<mss 1460,nop>` or nothing.
fn opt_options(
    input: &mut Input<'_>,
    arrow: &Token<'_>,
) -> Result<Option<Vec<Spanned<TcpOption>>>> {
    if !peek(input).is('<') {
        return Ok(Some(Vec::new()));
    }
    let open = take(input)?;
    if peek(input).kind != Kind::Ellipsis {
        return tcp_option::options(input, &open).map(Some);
    }
    take(input)?;
    sign(input, '>')?;
    if arrow.is('<') {
        return wrong(
            open.start..input.state.end,
            "`<...>` is for outbound segments: expected the options of this inbound one",
        );
    }
    Ok(None)
}

/// `S.`, `FP.`, `.`, `-`, `SEW`, `.5` and so on.
fn flags(input: &mut Input<'_>) -> Result<TcpFlags> {
    let mut flags = TcpFlags::default();
    let first = peek(input);
    if first.is('-') {
        take(input)?;
        return Ok(flags);
    }
    let mut any = false;
    if first.kind == Kind::Word {
        take(input)?;
        add_flags(&mut flags, &first)?;
        any = true;
    }
    let next = peek(input);
    if next.is('.') || next.kind == Kind::Decimal {
        take(input)?;
        add_flags(&mut flags, &next)?;
        any = true;
    }
    if any { Ok(flags) } else { expected(input, "TCP flags, such as `S`, `S.`, `P.`, `.` or `-`") }
}

/// ECE, CWR and AE, which a digit stands for as well.
const ECN_BITS: u16 = 0x1c0;

fn add_flags(flags: &mut TcpFlags, token: &Token<'_>) -> Result<()> {
    for flag in token.text.chars() {
        let bit = match flag {
            'F' => 0x001,
            'S' => 0x002,
            'R' => 0x004,
            'P' => 0x008,
            '.' => 0x010,
            'U' => 0x020,
            'E' => 0x040,
            'W' => 0x080,
            'A' => 0x100,
            '0'..='7' => {
                if flags.ace.is_some() || flags.bits & ECN_BITS != 0 {
                    return twice(token);
                }
                let digit = flag as u8 - b'0';
                flags.ace = Some(digit);
                // The three bits of the counter are ECE, CWR and AE from the lowest on.
                flags.bits |= u16::from(digit) << 6;
                continue;
            }
            _ => {
                return wrong(
                    token.span(),
                    format!(
                        "expected TCP flags, found {}: `{}` is none of F, S, R, P, `.`, U, E, W, \
                         A and the digits 0 to 7",
                        token.describe(),
                        flag.escape_debug()
                    ),
                );
            }
        };
        if flags.ace.is_some() && bit & ECN_BITS != 0 {
            return twice(token);
        }
        flags.bits |= bit;
    }
    Ok(())
}

fn twice<T>(token: &Token<'_>) -> Result<T> {
    wrong(
        token.span(),
        "expected either one digit for the ACE counter or the flags E, W and A, found both",
    )
}

/// `1:1001(1000)`
fn sequence(input: &mut Input<'_>) -> Result<(u32, u32, u32)> {
    let start = peek(input).start;
    let seq = number_u32(input, "sequence numbers such as `1:1001(1000)`")?;
    sign(input, ':')?;
    let seq_end = number_u32(input, "the sequence number behind the last byte")?;
    let len = parenthesised_len(input)?;
    if u64::from(seq) + u64::from(len) != u64::from(seq_end) {
        return wrong(
            start..input.state.end,
            format!(
                "{seq} and {len} bytes make {}, not {seq_end}",
                u64::from(seq) + u64::from(len)
            ),
        );
    }
    Ok((seq, seq_end, u32::from(len)))
}

/// The part of an ICMP message behind its keyword.
fn icmp(input: &mut Input<'_>) -> Result<Icmp> {
    let kind = spanned(input, |input| {
        kind(input, Kind::Word, "the type of the ICMP message, such as `unreachable`")
            .map(|token| token.text.to_owned())
    })?;
    let next = peek(input);
    let code = if next.kind == Kind::Word && !next.is_word("mtu") && !next.is_word("id") {
        Some(spanned(input, |input| take(input).map(|token| token.text.to_owned()))?)
    } else {
        None
    };
    let mtu = if maybe_word(input, "mtu")? { Some(number_u32(input, "an MTU")?) } else { None };
    let echo_id =
        if maybe_word(input, "id")? { Some(number_u16(input, "an identifier")?) } else { None };
    let embedded = if peek(input).is('[') { Some(embedded(input)?) } else { None };
    Ok(Icmp { kind, code, embedded, mtu, echo_id })
}

fn embedded(input: &mut Input<'_>) -> Result<Embedded> {
    sign(input, '[')?;
    let embedded = if maybe_word(input, "udp")? {
        Embedded::Udp { len: parenthesised_len(input)? }
    } else if maybe_word(input, "raw")? {
        Embedded::Raw { len: parenthesised_len(input)? }
    } else if peek(input).kind == Kind::Integer {
        let (seq, seq_end, len) = sequence(input)?;
        Embedded::Tcp { seq, seq_end, len }
    } else {
        return expected(
            input,
            "what is embedded: `1:1001(1000)` for TCP, `udp (1000)` or `raw (1000)`",
        );
    };
    sign(input, ']')?;
    Ok(embedded)
}

/// A small number, for callers that know its limit.
pub(super) fn small(input: &mut Input<'_>, what: &str) -> Result<u8> {
    number(input, what, u64::from(u8::MAX))
}
