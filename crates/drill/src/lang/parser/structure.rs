//! Values in braces, most of which are structures of C, and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::ast::{Expr, Message, Spanned};
use super::super::token::{Kind, Token};
use super::expr::{array, decimal, expr, list, raw_string};
use super::{
    Input, Result, expected, field, kind, maybe_sign, number_u16, peek, peek_at, sign, spanned,
    take, word, wrong,
};

/// A value in braces. The first word tells which.
pub(super) fn braces(input: &mut Input<'_>) -> Result<Expr> {
    let open = take(input)?;
    let first = peek(input);
    if is_iovec(input) {
        take(input)?;
        sign(input, ',')?;
        let len = decimal(input, "a length")?;
        return close(input, Expr::Iovec(len));
    }
    let named = first.kind == Kind::Word && peek_at(input, 1).is('=');
    let value = match first.text {
        "msg_name" if first.kind == Kind::Word => message(input)?,
        "sa_family" if named => socket_address(input)?,
        "fd" if named => poll_fd(input)?,
        "events" if named => epoll_event(input)?,
        "onoff" if named => linger(input)?,
        "cmsg_level" if named => control_message(input)?,
        "scm_sec" if named => scm_timestamping(input)?,
        "ee_errno" if named => extended_error(input)?,
        "flags" | "Flags" | "(" if !named => {
            return wrong(first.span(), "MPLS labels and GRE headers are not supported as values");
        }
        _ => {
            let values = list(input, '}')?;
            if values.is_empty() {
                return wrong(open.start..input.state.end, "expected a value between the braces");
            }
            return Ok(Expr::Braces(values));
        }
    };
    close(input, value)
}

fn close(input: &mut Input<'_>, value: Expr) -> Result<Expr> {
    sign(input, '}')?;
    Ok(value)
}

/// `..., 1000}`
fn is_iovec(input: &Input<'_>) -> bool {
    peek(input).kind == Kind::Ellipsis
        && peek_at(input, 1).is(',')
        && peek_at(input, 2).kind == Kind::Integer
        && peek_at(input, 3).is('}')
}

fn comma_field(input: &mut Input<'_>, name: &str) -> Result<()> {
    sign(input, ',')?;
    field(input, name)
}

fn boxed(input: &mut Input<'_>) -> Result<Box<Spanned<Expr>>> {
    expr(input).map(Box::new)
}

/// `inet_addr("192.0.2.1")` or `inet6_addr("2001:db8::1")`.
pub(super) fn address(input: &mut Input<'_>) -> Result<IpAddr> {
    let name = take(input)?;
    let (token, text) = address_argument(input)?;
    let address = if name.text == "inet_addr" {
        text.parse::<Ipv4Addr>().map(IpAddr::V4)
    } else {
        text.parse::<Ipv6Addr>().map(IpAddr::V6)
    };
    match address {
        Ok(address) => Ok(address),
        Err(_) if name.text == "inet_addr" => not_an_address(&token, "an IPv4 address"),
        Err(_) => not_an_address(&token, "an IPv6 address"),
    }
}

fn address_argument<'a>(input: &mut Input<'a>) -> Result<(Token<'a>, &'a str)> {
    sign(input, '(')?;
    let token = raw_string(input, "an address in quotes")?;
    sign(input, ')')?;
    Ok((token, token.text))
}

fn not_an_address<T>(token: &Token<'_>, what: &str) -> Result<T> {
    wrong(token.span(), format!("expected {what}, found {}", token.describe()))
}

fn socket_address(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "sa_family")?;
    let family = kind(input, Kind::Word, "`AF_INET` or `AF_INET6`")?;
    comma_field(input, "sin_port")?;
    word(input, "htons")?;
    sign(input, '(')?;
    let port = number_u16(input, "a port")?;
    sign(input, ')')?;
    comma_field(input, "sin_addr")?;
    if !peek(input).is_word("inet_addr") && !peek(input).is_word("inet6_addr") {
        return expected(input, "`inet_addr(\"...\")`");
    }
    take(input)?;
    let (token, text) = address_argument(input)?;
    let address = match family.text {
        "AF_INET" => text.parse::<Ipv4Addr>().map(IpAddr::V4),
        "AF_INET6" => text.parse::<Ipv6Addr>().map(IpAddr::V6),
        _ => {
            return wrong(
                family.span(),
                format!("expected `AF_INET` or `AF_INET6`, found {}", family.describe()),
            );
        }
    };
    match address {
        Ok(address) => Ok(Expr::SocketAddress { family: family.text.to_owned(), port, address }),
        Err(_) => not_an_address(&token, &format!("an address of the family `{}`", family.text)),
    }
}

fn message(input: &mut Input<'_>) -> Result<Expr> {
    word(input, "msg_name")?;
    sign(input, '(')?;
    ellipsis(input)?;
    sign(input, ')')?;
    sign(input, '=')?;
    ellipsis(input)?;
    sign(input, ',')?;
    word(input, "msg_iov")?;
    sign(input, '(')?;
    let iov_count = spanned(input, |input| decimal(input, "the number of iovecs"))?;
    sign(input, ')')?;
    sign(input, '=')?;
    let iov = array(input)?;
    comma_field(input, "msg_flags")?;
    let flags = expr(input)?;
    let control = if maybe_sign(input, ',')? {
        field(input, "msg_control")?;
        array(input)?
    } else {
        Vec::new()
    };
    Ok(Expr::Message(Box::new(Message { iov_count, iov, flags, control })))
}

fn ellipsis(input: &mut Input<'_>) -> Result<()> {
    kind(input, Kind::Ellipsis, "`...`").map(drop)
}

fn poll_fd(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "fd")?;
    let fd = boxed(input)?;
    comma_field(input, "events")?;
    let events = boxed(input)?;
    let revents = if maybe_sign(input, ',')? {
        field(input, "revents")?;
        Some(boxed(input)?)
    } else {
        None
    };
    Ok(Expr::PollFd { fd, events, revents })
}

fn epoll_event(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "events")?;
    let events = boxed(input)?;
    sign(input, ',')?;
    let name = peek(input);
    if !["fd", "ptr", "u32", "u64"].iter().any(|field| name.is_word(field)) {
        return expected(input, "`fd`, `ptr`, `u32` or `u64`");
    }
    field(input, name.text)?;
    let field = name.text.to_owned();
    Ok(Expr::EpollEvent { events, field, data: boxed(input)? })
}

fn linger(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "onoff")?;
    let onoff = decimal(input, "a number")?;
    comma_field(input, "linger")?;
    Ok(Expr::Linger { onoff, linger: decimal(input, "a number of seconds")? })
}

fn control_message(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "cmsg_level")?;
    let level = boxed(input)?;
    comma_field(input, "cmsg_type")?;
    let kind = boxed(input)?;
    comma_field(input, "cmsg_data")?;
    Ok(Expr::ControlMessage { level, kind, data: boxed(input)? })
}

fn scm_timestamping(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "scm_sec")?;
    let sec = decimal(input, "a number of seconds")?;
    comma_field(input, "scm_nsec")?;
    Ok(Expr::ScmTimestamping { sec, nsec: decimal(input, "a number of nanoseconds")? })
}

fn extended_error(input: &mut Input<'_>) -> Result<Expr> {
    field(input, "ee_errno")?;
    let errno = expr(input)?;
    let mut next = |name: &str| {
        comma_field(input, name)?;
        expr(input)
    };
    let parts = [
        errno,
        next("ee_origin")?,
        next("ee_type")?,
        next("ee_code")?,
        next("ee_info")?,
        next("ee_data")?,
    ];
    Ok(Expr::ExtendedError(Box::new(parts)))
}
