//! What a packet says of its IP header, and headers around it.

use std::net::IpAddr;

use super::super::ast::{Encapsulation, IpInfo, Spanned, Tos};
use super::super::token::Kind;
use super::{
    Input, Result, expected, kind, maybe_sign, number, peek, sign, spanned, take, word, wrong,
};

/// No more headers than this around a packet.
const MAX_HEADERS: usize = 8;

/// `(ect0, flowlabel 0x1)` and the like, in either kind of brackets; empty if not there.
pub(super) fn opt_ip_info(input: &mut Input<'_>) -> Result<IpInfo> {
    let mut info = IpInfo::default();
    let close = match peek(input) {
        token if token.is('(') => ')',
        token if token.is('[') => ']',
        _ => return Ok(info),
    };
    take(input)?;
    loop {
        ip_field(input, &mut info)?;
        if !maybe_sign(input, ',')? {
            break;
        }
    }
    sign(input, close)?;
    Ok(info)
}

fn ip_field(input: &mut Input<'_>, info: &mut IpInfo) -> Result<()> {
    let token = peek(input);
    let tos = match token.text {
        _ if token.kind != Kind::Word => None,
        "noecn" => Some(Tos::Ecn(0)),
        "ect1" => Some(Tos::Ecn(1)),
        "ect0" => Some(Tos::Ecn(2)),
        "ce" => Some(Tos::Ecn(3)),
        "ect01" => Some(Tos::EitherEct),
        _ => None,
    };
    if let Some(tos) = tos {
        take(input)?;
        info.tos = Some(tos);
    } else if token.is_word("tos") {
        take(input)?;
        let value = hex(input, "the traffic class with 0x, such as `0x2`", 0xff)?;
        info.tos = Some(Tos::Byte(value as u8));
    } else if token.is_word("flowlabel") {
        take(input)?;
        info.flow_label = Some(hex(input, "a flow label with 0x, such as `0x1`", 0xf_ffff)?);
    } else if token.is_word("ttl") {
        take(input)?;
        info.ttl = Some(number(input, "a time to live", u64::from(u8::MAX))?);
    } else {
        return expected(
            input,
            "something about the IP header: `noecn`, `ect0`, `ect1`, `ect01`, `ce`, `tos`, \
             `flowlabel` or `ttl`",
        );
    }
    Ok(())
}

fn hex(input: &mut Input<'_>, what: &str, max: u32) -> Result<u32> {
    let token = kind(input, Kind::Hex, what)?;
    match u32::from_str_radix(&token.text[2..], 16) {
        Ok(value) if value <= max => Ok(value),
        _ => wrong(
            token.span(),
            format!("expected a number up to {max:#x}, found {}", token.describe()),
        ),
    }
}

/// Headers around the packet, outermost first.
pub(super) fn encapsulation(input: &mut Input<'_>) -> Result<Vec<Spanned<Encapsulation>>> {
    let mut headers = Vec::new();
    loop {
        let token = peek(input);
        let header = match token.text {
            _ if token.kind != Kind::Word => return Ok(headers),
            "ipv4" => spanned(input, |input| ip_header(input, Kind::Ipv4))?,
            "ipv6" => spanned(input, |input| ip_header(input, Kind::Ipv6))?,
            "gre" | "GREv0" | "mpls" => spanned(input, other_header)?,
            _ => return Ok(headers),
        };
        if headers.len() == MAX_HEADERS {
            return wrong(
                header.span,
                format!("expected at most {MAX_HEADERS} headers around a packet"),
            );
        }
        headers.push(header);
    }
}

fn ip_header(input: &mut Input<'_>, family: Kind) -> Result<Encapsulation> {
    take(input)?;
    let info = opt_ip_info(input)?;
    let src = address(input, family)?;
    sign(input, '>')?;
    let dst = address(input, family)?;
    sign(input, ':')?;
    Ok(Encapsulation::Ip { src, dst, info })
}

fn address(input: &mut Input<'_>, family: Kind) -> Result<IpAddr> {
    let what = if family == Kind::Ipv4 { "an IPv4 address" } else { "an IPv6 address" };
    let token = kind(input, family, what)?;
    match token.text.parse() {
        Ok(address) => Ok(address),
        Err(_) => wrong(token.span(), format!("{} is not {what}", token.describe())),
    }
}

/// A header that is only remembered as text, up to its colon.
fn other_header(input: &mut Input<'_>) -> Result<Encapsulation> {
    let first = take(input)?;
    let mut end = first.end;
    while !peek(input).is(':') {
        if matches!(peek(input).kind, Kind::End | Kind::Shell | Kind::Code) {
            return expected(input, format!("the `:` behind the header `{}`", first.text));
        }
        end = take(input)?.end;
    }
    sign(input, ':')?;
    Ok(Encapsulation::Other(input.state.text[first.start..end].to_owned()))
}

/// `encap psp spi 1`, which stands behind what is said of the IP header.
pub(super) fn opt_psp(input: &mut Input<'_>) -> Result<Option<Spanned<Encapsulation>>> {
    if !peek(input).is_word("encap") {
        return Ok(None);
    }
    let header = spanned(input, |input| {
        let start = take(input)?.start;
        word(input, "psp")?;
        word(input, "spi")?;
        if !matches!(peek(input).kind, Kind::Integer | Kind::Hex) {
            return expected(input, "a security parameter index, such as `1`");
        }
        let end = take(input)?.end;
        Ok(Encapsulation::Other(input.state.text[start..end].to_owned()))
    })?;
    Ok(Some(header))
}
