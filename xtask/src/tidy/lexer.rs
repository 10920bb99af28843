//! Masks comments and literals, so that rules look at code only.
//!
//! The result has the same lines and the same number of bytes per line as the source. Every byte
//! of a comment, of a string and of a character literal is a space. A rule can then search for
//! words and match braces without knowing Rust any further.

/// Returns `source` with comments and literals replaced by spaces.
pub(crate) fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if next_is(bytes, at, b'/') => line_end(bytes, at),
            b'/' if next_is(bytes, at, b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' | b'b' | b'c' if !after_word(bytes, at) => prefixed_end(bytes, at),
            b'\'' => char_end(bytes, at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("spaces replace whole literals, so the text stays UTF-8")
}

fn next_is(bytes: &[u8], at: usize, wanted: u8) -> bool {
    bytes.get(at + 1) == Some(&wanted)
}

fn after_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

/// Whether a byte can be part of an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a string that opens with the quote at `start` and knows escapes.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r".."`, `r#".."#`, `b".."`, `br".."`, `c".."`, `b'.'`, or `at` when it is none.
fn prefixed_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    let mut raw = false;
    while at < bytes.len() && at < start + 2 && matches!(bytes[at], b'r' | b'b' | b'c') {
        raw |= bytes[at] == b'r';
        at += 1;
    }
    let hashes = bytes[at..].iter().take_while(|&&b| b == b'#').count();
    match bytes.get(at + hashes) {
        Some(b'"') if raw => raw_string_end(bytes, at + hashes + 1, hashes),
        Some(b'"') if hashes == 0 => string_end(bytes, at),
        Some(b'\'') if hashes == 0 && !raw => char_end(bytes, at),
        _ => start,
    }
}

fn raw_string_end(bytes: &[u8], start: usize, hashes: usize) -> usize {
    let mut at = start;
    while at < bytes.len() {
        let closes = bytes[at] == b'"'
            && bytes.len() >= at + 1 + hashes
            && bytes[at + 1..at + 1 + hashes].iter().all(|&b| b == b'#');
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    bytes.len()
}

/// The end of a character literal, or `start` when the quote opens a lifetime or a label.
fn char_end(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start + 1..];
    if rest.first() == Some(&b'\\') {
        let close = rest.iter().skip(2).position(|&b| b == b'\'');
        return close.map_or(start, |n| start + 1 + 2 + n + 1);
    }
    let width = rest.first().map_or(0, |&b| utf8_width(b));
    match rest.get(width) {
        Some(b'\'') if width > 0 => start + 1 + width + 1,
        _ => start,
    }
}

fn utf8_width(first: u8) -> usize {
    match first {
        0x00..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

/// Byte positions at which `word` stands alone in `text`.
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
