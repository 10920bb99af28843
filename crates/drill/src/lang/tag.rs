//! The tag `since`: a script may say from which Linux on the kernel does what it says.
//!
//! It is a line of the comment at the head, so that the original tool reads past it:
//!
//! ```text
//! // since 7.0
//! ```

use std::fmt;

use super::ast::{Span, Spanned};
use super::diagnostic::Diagnostic;

/// A release of Linux: its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The 6 of 6.18.
    pub major: u16,
    /// The 18 of 6.18.
    pub minor: u16,
}

impl Release {
    /// Reads what `uname -r` prints, such as `6.18.44-generic`.
    pub fn of_kernel(text: &str) -> Option<Release> {
        let mut parts = text.trim().splitn(3, '.');
        let (major, rest) = (parts.next()?, parts.next()?);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Release::exact(major, &rest[..digits])
    }

    fn exact(major: &str, minor: &str) -> Option<Release> {
        // `parse` would take a plus sign as well.
        let number = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        Some(Release { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The tag of a script, if it has one.
///
/// # Errors
/// If a line begins like the tag and is none, or if there are two.
pub(super) fn since(text: &str) -> Result<Option<Spanned<Release>>, Diagnostic> {
    let mut found: Option<Spanned<Release>> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let span = at..at + line.trim_end().len();
        at += line.len();
        let comment = match line.trim().strip_prefix("//") {
            Some(comment) => comment.trim(),
            None if line.trim().is_empty() => continue,
            None => break,
        };
        let Some(words) = comment.strip_prefix("since ").map(str::trim_start) else { continue };
        // A sentence may begin with the word.
        if !words.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let node = release_of_tag(words, span.clone())?;
        if let Some(before) = found.replace(Spanned { node, span: span.clone() }) {
            let told = Diagnostic::new(span, "a script has one tag `since`");
            return Err(told.context(before.span, "the first one"));
        }
    }
    Ok(found)
}

fn release_of_tag(words: &str, span: Span) -> Result<Release, Diagnostic> {
    let release = words.split_once('.').and_then(|(major, minor)| Release::exact(major, minor));
    release.ok_or_else(|| {
        let told = Diagnostic::new(span, format!("`{words}` is no release of Linux"));
        told.help("a tag is a line `// since 7.0` with nothing behind the two numbers")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Option<Release> {
        since(text).unwrap().map(|tag| tag.node)
    }

    #[test]
    fn the_tag_is_a_line_of_the_head() {
        let release = Some(Release { major: 7, minor: 0 });
        assert_eq!(tag("// What it shows.\n// since 7.0\n\n0 f() = 0\n"), release);
        assert_eq!(tag("\n  //since 7.0  \n"), release);
        assert_eq!(tag("// since the first ACK\n0 f() = 0\n"), None);
        assert_eq!(tag("0 f() = 0\n// since 7.0\n"), None, "behind the head it is a comment");
        assert_eq!(since("// a\n// since 7.0\n").unwrap().unwrap().span, 5..17);
    }

    #[test]
    fn a_tag_that_is_none_is_refused() {
        for line in ["// since 7", "// since 7.", "// since 7.0 on", "// since 7.0.1"] {
            let told = since(line).unwrap_err();
            assert!(told.message.contains(&line[9..]), "{line}: {}", told.message);
        }
        let told = since("// since 7.0\n// since 7.1\n").unwrap_err();
        assert_eq!((told.message.as_str(), told.span), ("a script has one tag `since`", 13..25));
    }

    #[test]
    fn releases_are_compared_by_number() {
        let release = |text| Release::of_kernel(text).unwrap();
        assert_eq!(release("6.18.44-fc-v595\n").to_string(), "6.18");
        assert!(release("6.9.0") < release("6.18"));
        assert!(release("6.18.0") < release("7.0-rc1"));
        for text in ["", "7", "seven.0", "+7.0", "7.x"] {
            assert_eq!(Release::of_kernel(text), None, "{text}");
        }
    }
}
