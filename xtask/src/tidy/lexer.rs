//! Masks comments and literals, so that rules look at code only.
//!
//! The result has the same lines and the same number of bytes per line as the source. Every byte
//! of a comment and of a literal that is no number is a space. A rule can then search for words and
//! match braces without knowing Rust any further.

use anyhow::{Error, Result};
use proc_macro2::{TokenStream, TokenTree};

/// Returns `source` with comments and literals replaced by spaces.
pub(crate) fn mask(source: &str) -> Result<String> {
    let blank = |byte| if byte == b'\n' { byte } else { b' ' };
    let mut out: Vec<u8> = source.bytes().map(blank).collect();
    let tokens = source.parse().map_err(|error| Error::msg(format!("{error}")))?;
    copy(tokens, source.as_bytes(), &mut out);
    Ok(String::from_utf8(out).expect("whole tokens take the place of spaces"))
}

fn copy(tokens: TokenStream, source: &[u8], out: &mut [u8]) {
    for token in tokens {
        let place = token.span().byte_range();
        let text = &source[place.clone()];
        // A comment of documentation becomes an attribute, whose tokens are all where it is.
        if text.starts_with(b"//") || text.starts_with(b"/*") {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                for side in [group.span_open(), group.span_close()] {
                    let place = side.byte_range();
                    out[place.clone()].copy_from_slice(&source[place]);
                }
                copy(group.stream(), source, out);
            }
            TokenTree::Literal(_) if !text[0].is_ascii_digit() => {}
            _ => out[place].copy_from_slice(text),
        }
    }
}

/// Whether a byte can be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Byte positions at which `word` is a whole word of `text`.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let end = at + word.len();
        let open = at == 0 || !is_word(bytes[at - 1]) || !is_word(word.as_bytes()[0]);
        open && (end == bytes.len() || !is_word(bytes[end]) || !is_word(bytes[end - 1]))
    })
}

/// The position just behind the bracket that closes the one at `open`, or the end of the text.
pub(crate) fn matching(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The number of the line, counted from one, that holds byte `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
}
