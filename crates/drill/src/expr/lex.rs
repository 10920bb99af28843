//! Cutting a block into tokens.

use super::CodeError;

/// A token with its place in the block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Name(String),
    Int(i64),
    Float(f64),
    Str(String),
    /// An operator or a bracket.
    Op(&'static str),
    /// The end of a statement: a line's end outside of brackets, or a semicolon.
    End,
}

/// Longest first.
const OPERATORS: &[&str] = &[
    "//=", "**=", "<<=", ">>=", "==", "!=", "<=", ">=", "//", "**", "<<", ">>", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "<", ">", "=", ":", ".",
];

/// All tokens of `text`.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, CodeError> {
    let bytes = text.as_bytes();
    let mut list = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let kind = match byte {
            b'\n' | b';' => {
                at += 1;
                if byte == b'\n' && depth > 0 {
                    continue;
                }
                Kind::End
            }
            b'\\' if matches!(bytes.get(at + 1), Some(b'\n' | b'\r')) => {
                at += 1;
                while matches!(bytes.get(at), Some(b'\n' | b'\r')) {
                    at += 1;
                }
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                while bytes.get(at).is_some_and(|&byte| byte != b'\n') {
                    at += 1;
                }
                continue;
            }
            b'"' | b'\'' => string(text, &mut at)?,
            b'0'..=b'9' => number(text, &mut at)?,
            byte if byte.is_ascii_alphabetic() || byte == b'_' => Kind::Name(word(text, &mut at)),
            _ => operator(text, &mut at, &mut depth)?,
        };
        list.push(Token { kind, start, end: at });
    }
    Ok(list)
}

fn operator(text: &str, at: &mut usize, depth: &mut usize) -> Result<Kind, CodeError> {
    let rest = &text[*at..];
    let Some(&found) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) else {
        let odd = rest.chars().next().unwrap_or(' ');
        return Err(CodeError::wrong(format!("`{odd}` is not understood in a code block")));
    };
    match found {
        "(" | "[" => *depth += 1,
        ")" | "]" => *depth = depth.saturating_sub(1),
        _ => {}
    }
    *at += found.len();
    Ok(Kind::Op(found))
}

/// Letters, digits and underscores from `at` on.
fn word(text: &str, at: &mut usize) -> String {
    let rest = &text[*at..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    *at += end;
    rest[..end].to_owned()
}

fn number(text: &str, at: &mut usize) -> Result<Kind, CodeError> {
    let start = *at;
    let whole = word(text, at);
    let wrong = |text: &str| CodeError::wrong(format!("`{text}` is not a number"));
    if let Some(digits) = whole.strip_prefix("0x").or_else(|| whole.strip_prefix("0X")) {
        return i64::from_str_radix(digits, 16).map(Kind::Int).map_err(|_| wrong(&whole));
    }
    let fraction = text[*at..].starts_with('.');
    if fraction {
        *at += 1;
        word(text, at);
    }
    let digits = text[start..*at].replace('_', "");
    let found = if fraction || digits.contains(['e', 'E']) {
        digits.parse().ok().map(Kind::Float)
    } else {
        digits.parse().ok().map(Kind::Int)
    };
    found.ok_or_else(|| wrong(&digits))
}

fn string(text: &str, at: &mut usize) -> Result<Kind, CodeError> {
    let mut chars = text[*at..].char_indices();
    let quote = chars.next().map_or('"', |(_, quote)| quote);
    let mut value = String::new();
    while let Some((offset, next)) = chars.next() {
        match next {
            _ if next == quote => {
                *at += offset + 1;
                return Ok(Kind::Str(value));
            }
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other)) => value.push(other),
                None => break,
            },
            '\n' => break,
            other => value.push(other),
        }
    }
    Err(CodeError::wrong("a string without an end"))
}
