//! Byte ranges (RFC 9110, section 14).

/// The part of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// `start..end`, not empty.
    Part {
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Nothing that was asked for exists: status 416.
    Unsatisfiable,
}

/// Parses a Range field for a file of `size` bytes. A field with a syntax error or several ranges
/// means the whole file, as a server may ignore Range.
pub(crate) fn wanted(field: Option<&str>, size: u64) -> Wanted {
    let Some(spec) = field.and_then(|field| field.trim().strip_prefix("bytes=")) else {
        return Wanted::Whole;
    };
    let Some((first, last)) = spec.split_once('-').filter(|_| !spec.contains(',')) else {
        return Wanted::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number too large for u64 is beyond every file.
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let (start, end) = match (number(first), number(last)) {
        (Some(start), None) if last.is_empty() => (start, size),
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
        (None, Some(count)) if first.is_empty() => (size.saturating_sub(count), size),
        _ => return Wanted::Whole,
    };
    if start >= end { Wanted::Unsatisfiable } else { Wanted::Part { start, end } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let part = |start, end| Wanted::Part { start, end };
        for (field, size, expected) in [
            (None, 10, Wanted::Whole),
            (Some("bytes=0-0"), 10, part(0, 1)),
            (Some("bytes=2-5"), 10, part(2, 6)),
            (Some("bytes=2-"), 10, part(2, 10)),
            (Some("bytes=-3"), 10, part(7, 10)),
            (Some("bytes=-30"), 10, part(0, 10)),
            (Some("bytes=5-99"), 10, part(5, 10)),
            (Some("bytes=5-99999999999999999999999"), 10, part(5, 10)),
            (Some("bytes=10-"), 10, Wanted::Unsatisfiable),
            (Some("bytes=0-"), 0, Wanted::Unsatisfiable),
            (Some("bytes=-0"), 10, Wanted::Unsatisfiable),
            (Some("bytes=5-2"), 10, Wanted::Whole),
            (Some("bytes=0-1,4-5"), 10, Wanted::Whole),
            (Some("bytes=-"), 10, Wanted::Whole),
            (Some("bytes=x-1"), 10, Wanted::Whole),
            (Some("lines=0-1"), 10, Wanted::Whole),
        ] {
            assert_eq!(wanted(field, size), expected, "{field:?}");
        }
    }
}
