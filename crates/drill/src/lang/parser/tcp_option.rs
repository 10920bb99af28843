//! TCP options.

use super::super::ast::{AccEcnField, Spanned, TcpOption};
use super::super::diagnostic::Diagnostic;
use super::super::token::{Kind, Token};
use super::packet::small;
use super::{
    Input, Result, expected, maybe_sign, maybe_word, number, number_u16, number_u32, peek, refuse,
    sign, spanned, take, word, wrong,
};

/// A TCP header has room for no more.
const MAX_LEN: usize = 40;
/// Length of an MD5 digest.
const MD5_LEN: usize = 16;
/// The largest value of a counter of the accurate-ECN option.
const MAX_COUNTER: u64 = 0xff_ffff;

/// Options up to and with the closing `>`. `open` is the token that opened the list.
pub(super) fn options(input: &mut Input<'_>, open: &Token<'_>) -> Result<Vec<Spanned<TcpOption>>> {
    let mut options = Vec::new();
    let mut len = 0;
    loop {
        let option = spanned(input, option)?;
        len += wire_len(&option.node);
        if len > MAX_LEN {
            return wrong(
                option.span,
                format!("with this option they take {len} bytes; there is room for {MAX_LEN}"),
            );
        }
        options.push(option);
        if !maybe_sign(input, ',')? {
            break;
        }
    }
    if !peek(input).is('>') {
        return expected(input, "`,` and another TCP option, or `>`");
    }
    sign(input, '>')?;
    if !len.is_multiple_of(4) {
        return refuse(
            Diagnostic::new(
                open.start..input.state.end,
                format!("these options take {len} bytes: expected a multiple of 4"),
            )
            .help(format!("add {}", ["nop"; 3][..4 - len % 4].join(","))),
        );
    }
    Ok(options)
}

/// Length of an option on the wire.
pub(super) fn wire_len(option: &TcpOption) -> usize {
    match option {
        TcpOption::Nop | TcpOption::Eol => 1,
        TcpOption::Mss(_) => 4,
        TcpOption::WindowScale(_) => 3,
        TcpOption::SackPermitted => 2,
        TcpOption::Sack(blocks) => 2 + 8 * blocks.len(),
        TcpOption::Timestamp { .. } => 10,
        TcpOption::Md5(bytes) | TcpOption::FastOpen(bytes) => 2 + bytes.len(),
        TcpOption::FastOpenExperimental(bytes) => 4 + bytes.len(),
        TcpOption::AccEcn(counters) => 2 + 3 * counters.len(),
    }
}

fn option(input: &mut Input<'_>) -> Result<TcpOption> {
    let token = peek(input);
    if token.kind != Kind::Word {
        return expected(input, WHAT);
    }
    if !NAMES.contains(&token.text) {
        return expected(input, WHAT);
    }
    take(input)?;
    Ok(match token.text {
        "nop" => TcpOption::Nop,
        "eol" => TcpOption::Eol,
        "mss" => TcpOption::Mss(number_u16(input, "a segment size")?),
        "wscale" => TcpOption::WindowScale(small(input, "a shift count")?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => TcpOption::Sack(sack_blocks(input)?),
        "TS" => {
            word(input, "val")?;
            let val = number_u32(input, "a timestamp")?;
            word(input, "ecr")?;
            TcpOption::Timestamp { val, ecr: number_u32(input, "an echoed timestamp")? }
        }
        "md5" => {
            if !begins_blob(&peek(input)) {
                return expected(input, "the digest as hexadecimal digits");
            }
            TcpOption::Md5(blob(input, "a digest", MD5_LEN)?)
        }
        "FO" => TcpOption::FastOpen(blob(input, "a cookie", MAX_LEN - 2)?),
        "FOEXP" => TcpOption::FastOpenExperimental(blob(input, "a cookie", MAX_LEN - 4)?),
        _ => TcpOption::AccEcn(counters(input)?),
    })
}

const NAMES: [&str; 11] =
    ["nop", "eol", "mss", "wscale", "sackOK", "sack", "TS", "md5", "FO", "FOEXP", "ECN"];

const WHAT: &str = "a TCP option: `nop`, `eol`, `mss`, `wscale`, `sackOK`, `sack`, `TS`, `md5`, \
                    `FO`, `FOEXP` or `ECN`";

fn sack_blocks(input: &mut Input<'_>) -> Result<Vec<(u32, u32)>> {
    let mut blocks = Vec::new();
    while blocks.is_empty() || peek(input).kind == Kind::Integer {
        let left = number_u32(input, "a SACK block such as `1:1001`")?;
        sign(input, ':')?;
        blocks.push((left, number_u32(input, "the right edge of the SACK block")?));
        if 2 + 8 * blocks.len() > MAX_LEN {
            return expected(input, "at most 4 SACK blocks");
        }
    }
    Ok(blocks)
}

fn begins_blob(token: &Token<'_>) -> bool {
    matches!(token.kind, Kind::Word | Kind::Integer)
}

/// Bytes as hexadecimal digits; none if the next token cannot be any.
fn blob(input: &mut Input<'_>, what: &str, max: usize) -> Result<Vec<u8>> {
    let token = peek(input);
    if !begins_blob(&token) {
        return Ok(Vec::new());
    }
    take(input)?;
    let digits = token.text.as_bytes();
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return wrong(
            token.span(),
            format!("expected {what} as hexadecimal digits, found {}", token.describe()),
        );
    }
    if !digits.len().is_multiple_of(2) {
        return wrong(
            token.span(),
            format!("expected {what} with two digits for each byte, found {}", digits.len()),
        );
    }
    if digits.len() / 2 > max {
        return wrong(
            token.span(),
            format!("expected {what} of at most {max} bytes, found {}", digits.len() / 2),
        );
    }
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
    Ok(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

/// `e0b 1 ceb 2 e1b 3` or `e1b 1 ceb 2 e0b 3`, of which the later ones may be missing.
fn counters(input: &mut Input<'_>) -> Result<Vec<(AccEcnField, u32)>> {
    use AccEcnField::{Ce, Ect0, Ect1};
    let fields = if peek(input).is_word("e0b") {
        [("e0b", Ect0), ("ceb", Ce), ("e1b", Ect1)]
    } else if peek(input).is_word("e1b") {
        [("e1b", Ect1), ("ceb", Ce), ("e0b", Ect0)]
    } else {
        return expected(input, "a counter, `e0b` or `e1b`");
    };
    let mut counters = Vec::new();
    for (name, field) in fields {
        if !maybe_word(input, name)? {
            break;
        }
        counters.push((field, number(input, "a counter of bytes", MAX_COUNTER)?));
    }
    Ok(counters)
}
