//! Values of calls.

use super::super::ast::{Expr, Span, Spanned};
use super::super::diagnostic::Diagnostic;
use super::super::token::{Kind, Token};
use super::{
    Input, Result, expected, kind, maybe_sign, peek, peek_at, sign, spanned, structure, take, wrong,
};

/// Brackets may be nested so deep and no deeper.
const MAX_DEPTH: usize = 32;
/// So many values may be joined by `|`.
const MAX_JOINED: usize = 32;

/// A value.
pub(super) fn expr(input: &mut Input<'_>) -> Result<Spanned<Expr>> {
    let mut value = operand(input)?;
    for _ in 0..MAX_JOINED {
        if !maybe_sign(input, '|')? {
            return Ok(value);
        }
        let right = operand(input)?;
        let span = value.span.start..right.span.end;
        value = Spanned { node: Expr::Or(Box::new(value), Box::new(right)), span };
    }
    wrong(value.span, format!("expected at most {MAX_JOINED} values joined by `|`"))
}

/// Values up to and with the closing character; the opening one is taken already.
pub(super) fn list(input: &mut Input<'_>, close: char) -> Result<Vec<Spanned<Expr>>> {
    let mut values = Vec::new();
    if maybe_sign(input, close)? {
        return Ok(values);
    }
    loop {
        values.push(expr(input)?);
        if maybe_sign(input, close)? {
            return Ok(values);
        }
        if !maybe_sign(input, ',')? {
            return expected(input, format!("`,` or `{close}`"));
        }
    }
}

/// Runs a parser one level deeper.
fn deeper<'a, T>(
    input: &mut Input<'a>,
    parser: impl FnOnce(&mut Input<'a>) -> Result<T>,
) -> Result<T> {
    if input.state.depth == MAX_DEPTH {
        return wrong(
            peek(input).span(),
            format!("expected a value that is nested at most {MAX_DEPTH} deep"),
        );
    }
    input.state.depth += 1;
    let result = parser(input);
    input.state.depth -= 1;
    result
}

/// A value without `|`.
fn operand(input: &mut Input<'_>) -> Result<Spanned<Expr>> {
    deeper(input, |input| spanned(input, bare_operand))
}

fn bare_operand(input: &mut Input<'_>) -> Result<Expr> {
    let token = peek(input);
    match token.kind {
        Kind::Ellipsis => take(input).map(|_| Expr::Ellipsis),
        Kind::Integer | Kind::Hex => integer(input).map(Expr::Integer),
        Kind::String => strings(input),
        Kind::Word if token.text == "inet_addr" || token.text == "inet6_addr" => {
            structure::address(input).map(Expr::Address)
        }
        Kind::Word => {
            take(input)?;
            let name = token.text.to_owned();
            if maybe_sign(input, '=')? {
                Ok(Expr::Assign(name, Box::new(expr(input)?)))
            } else {
                Ok(Expr::Word(name))
            }
        }
        Kind::Sign if token.is('[') => {
            take(input)?;
            list(input, ']').map(Expr::List)
        }
        Kind::Sign if token.is('{') => structure::braces(input),
        _ => expected(input, "a value: a number, a name, a string, `...`, `[` or `{`"),
    }
}

/// A number, decimal or with 0x.
pub(super) fn integer(input: &mut Input<'_>) -> Result<i64> {
    let token = peek(input);
    let value = match token.kind {
        Kind::Integer => token.text.parse().ok(),
        // A number of 64 bits may be one without a sign.
        Kind::Hex => u64::from_str_radix(&token.text[2..], 16).ok().map(u64::cast_signed),
        _ => return expected(input, "a number"),
    };
    take(input)?;
    match value {
        Some(value) => Ok(value),
        None => wrong(token.span(), format!("{} does not fit into 64 bits", token.describe())),
    }
}

/// A decimal number.
pub(super) fn decimal(input: &mut Input<'_>, what: &str) -> Result<i64> {
    if peek(input).kind == Kind::Integer { integer(input) } else { expected(input, what) }
}

/// Strings one behind the other are one; `...` behind says that it is only the start.
fn strings(input: &mut Input<'_>) -> Result<Expr> {
    let mut bytes = Vec::new();
    while peek(input).kind == Kind::String {
        let token = take(input)?;
        unescape(&token, &mut bytes)?;
    }
    if peek(input).kind == Kind::Ellipsis && !begins_end_time(input) {
        take(input)?;
        return Ok(Expr::StringPrefix(bytes));
    }
    Ok(Expr::String(bytes))
}

/// Whether the `...` that comes next is followed by a number, as in front of an end time.
fn begins_end_time(input: &Input<'_>) -> bool {
    matches!(peek_at(input, 1).kind, Kind::Integer | Kind::Decimal)
}

/// Undoes the escapes of a string.
fn unescape(token: &Token<'_>, out: &mut Vec<u8>) -> Result<()> {
    let mut rest = token.text.bytes().enumerate();
    while let Some((at, byte)) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let escaped = rest.next().map_or(0, |(_, byte)| byte);
        out.push(match escaped {
            b'\\' | b'"' => escaped,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'x' => {
                let digits = token.text.as_bytes().get(at + 2..at + 4);
                rest.nth(1);
                match digits.and_then(hex_byte) {
                    Some(byte) => byte,
                    None => {
                        return wrong(
                            escape_span(token, at, 4),
                            "expected two hexadecimal digits behind `\\x`",
                        );
                    }
                }
            }
            _ => {
                return Err(winnow::error::ErrMode::Cut(super::Fail(Box::new(
                    Diagnostic::new(escape_span(token, at, 2), "this escape has no meaning")
                        .help("the escapes are \\\\ \\\" \\f \\n \\r \\t \\v and \\xhh"),
                ))));
            }
        });
    }
    Ok(())
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u8::from_str_radix(digits, 16).ok()
}

/// Where an escape is. In a define the place is that of the whole word.
fn escape_span(token: &Token<'_>, at: usize, len: usize) -> Span {
    if token.end - token.start == token.text.len() + 2 {
        let start = token.start + 1 + at;
        start..(start + len).min(token.end)
    } else {
        token.span()
    }
}

/// A list in square brackets.
pub(super) fn array(input: &mut Input<'_>) -> Result<Vec<Spanned<Expr>>> {
    sign(input, '[')?;
    list(input, ']')
}

/// A string as it stands, for addresses.
pub(super) fn raw_string<'a>(input: &mut Input<'a>, what: &str) -> Result<Token<'a>> {
    kind(input, Kind::String, what)
}
