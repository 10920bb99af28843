//! Cuts the text of a script into tokens.
//!
//! Of the kinds that fit at a place the longest is taken. That is what makes `0...0.5` three
//! tokens, `1.2.3.4` one, and `3021b9d889017eeb` a word and not the number 3021.

use std::net::Ipv6Addr;

use super::diagnostic::Diagnostic;
use super::token::{Kind, Token};

/// No IPv6 address is longer as text.
const MAX_IPV6_LEN: usize = 45;

/// What became of a text.
pub(super) struct Lexed<'a> {
    /// The tokens before the first error. The last one is always [`Kind::End`].
    pub(super) tokens: Vec<Token<'a>>,
    /// The first error.
    pub(super) error: Option<Diagnostic>,
}

/// Cuts a whole text.
pub(super) fn lex(text: &str) -> Lexed<'_> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    let mut error = None;
    loop {
        match lexer.next() {
            Ok(Some(token)) => tokens.push(token),
            Ok(None) => break,
            Err(diagnostic) => {
                error = Some(diagnostic);
                break;
            }
        }
    }
    let end = lexer.at;
    tokens.push(Token { kind: Kind::End, text: "", start: end, end });
    Lexed { tokens, error }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Option<Token<'a>>, Diagnostic> {
        self.skip_blanks()?;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(None) };
        let token = match first {
            '"' => self.delimited(Kind::String, "\"", string_end(rest, b'"'), "\"", "string")?,
            '`' => self.delimited(Kind::Shell, "`", string_end(rest, b'`'), "`", "shell line")?,
            '%' if rest.starts_with("%{") => {
                let end = rest.find("}%");
                let mut token = self.delimited(Kind::Code, "%{", end, "}%", "block of code")?;
                token.text = token.text.trim_matches([' ', '\t']);
                token
            }
            _ => self.plain(first),
        };
        Ok(Some(token))
    }

    /// A token with an opening and a closing mark. `end` is where the closing one was found.
    fn delimited(
        &mut self,
        kind: Kind,
        open: &str,
        end: Option<usize>,
        close: &str,
        name: &str,
    ) -> Result<Token<'a>, Diagnostic> {
        let start = self.at;
        let Some(end) = end else {
            return Err(Diagnostic::new(
                start..start + open.len(),
                format!("this {name} has no end: expected a closing `{close}`"),
            ));
        };
        let text = &self.text[start + open.len()..start + end];
        self.at = start + end + close.len();
        Ok(Token { kind, text, start, end: self.at })
    }

    /// Any other token.
    fn plain(&mut self, first: char) -> Token<'a> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let start = self.at;
        let (kind, skip, len) = if bytes.starts_with(b"...") {
            (Kind::Ellipsis, 0, 3)
        } else if let Some(name) = rest.strip_prefix("--").map(word_len).filter(|&len| len > 0) {
            (Kind::Option, 2, 2 + name)
        } else {
            let (kind, len) = longest(rest).unwrap_or((Kind::Sign, first.len_utf8()));
            (kind, 0, len)
        };
        self.at = start + len;
        Token { kind, text: &rest[skip..len], start, end: self.at }
    }

    /// Goes over white space and comments of both kinds.
    fn skip_blanks(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            self.at += blank;
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(Diagnostic::new(
                        self.at..self.at + 2,
                        "this comment has no end: expected a closing `*/`",
                    ));
                };
                self.at += 2 + end + 2;
            } else {
                return Ok(());
            }
        }
    }
}

/// Where the closing quote is; one behind a backslash does not close.
fn string_end(rest: &str, quote: u8) -> Option<usize> {
    let mut escaped = false;
    for (at, &byte) in rest.as_bytes().iter().enumerate().skip(1) {
        if escaped {
            escaped = false;
        } else if byte == b'\\' {
            escaped = true;
        } else if byte == quote {
            return Some(at);
        }
    }
    None
}

/// The longest of the kinds that begin here; of two of the same length the first that is named.
fn longest(rest: &str) -> Option<(Kind, usize)> {
    let candidates = [
        (Kind::Decimal, decimal_len(rest)),
        (Kind::Integer, integer_len(rest)),
        (Kind::Hex, hex_len(rest)),
        (Kind::Word, word_len(rest)),
        (Kind::Ipv4, ipv4_len(rest)),
        (Kind::Ipv6, ipv6_len(rest)),
    ];
    let best = candidates.iter().map(|&(_, len)| len).max()?;
    candidates.into_iter().find(|&(_, len)| len == best && len > 0)
}

fn count(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|&byte| belongs(byte)).count()
}

fn digits(text: &str) -> usize {
    count(text, |byte| byte.is_ascii_digit())
}

fn word_len(text: &str) -> usize {
    count(text, |byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn minus(text: &str) -> usize {
    usize::from(text.starts_with('-'))
}

fn integer_len(text: &str) -> usize {
    let sign = minus(text);
    match digits(&text[sign..]) {
        0 => 0,
        len => sign + len,
    }
}

fn decimal_len(text: &str) -> usize {
    let sign = minus(text);
    let whole = sign + digits(&text[sign..]);
    let Some(fraction) = text[whole..].strip_prefix('.') else { return 0 };
    match digits(fraction) {
        0 => 0,
        len => whole + 1 + len,
    }
}

fn hex_len(text: &str) -> usize {
    match text.strip_prefix("0x").map(|rest| count(rest, |byte| byte.is_ascii_hexdigit())) {
        None | Some(0) => 0,
        Some(len) => 2 + len,
    }
}

fn ipv4_len(text: &str) -> usize {
    let mut len = digits(text);
    if len == 0 {
        return 0;
    }
    for _ in 0..3 {
        let Some(part) = text[len..].strip_prefix('.') else { return 0 };
        match digits(part) {
            0 => return 0,
            part => len += 1 + part,
        }
    }
    len
}

/// An IPv6 address is told from sequence numbers by its `::`, or by having all of its eight parts.
fn ipv6_len(text: &str) -> usize {
    let belongs = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
    let limit = text.floor_char_boundary(MAX_IPV6_LEN);
    let run = &text[..count(&text[..limit], belongs)];
    if !run.contains("::") && run.bytes().filter(|&byte| byte == b':').count() < 7 {
        return 0;
    }
    (2..=run.len()).rev().find(|&len| run[..len].parse::<Ipv6Addr>().is_ok()).unwrap_or(0)
}
