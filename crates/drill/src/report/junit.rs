//! Reports in the XML that continuous integration reads.

use std::fmt::Write as _;

use super::{Report, Status};

/// Reports as one test suite.
pub fn junit(reports: &[Report]) -> String {
    let count = |status: Status| reports.iter().filter(|report| report.status == status).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuite name=\"drill\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        reports.len(),
        count(Status::Failed),
        count(Status::Error),
        count(Status::Skipped)
    );
    for report in reports {
        let seconds = report.ms / 1000.0;
        let name = escape(&report.file);
        let _ = write!(text, "  <testcase name=\"{name}\" time=\"{seconds:.6}\"");
        let element = match report.status {
            Status::Passed => {
                text.push_str("/>\n");
                continue;
            }
            Status::Failed => "failure",
            Status::Error => "error",
            Status::Skipped => "skipped",
        };
        let cause = escape(report.cause.as_deref().unwrap_or_default());
        let body = escape(&report.text);
        let _ = writeln!(
            text,
            ">\n    <{element} message=\"{cause}\">{body}</{element}>\n  </testcase>"
        );
    }
    text.push_str("</testsuite>\n");
    text
}

/// Text for XML, without characters that XML does not have.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_is_escaped_and_counted() {
        let passed = Report {
            status: Status::Passed,
            cause: None,
            ..Report::unrun("a", Status::Passed, "")
        };
        let failed = Report::unrun("b<c>", Status::Failed, "\"x\" & \u{1}");
        let text = junit(&[passed, failed]);
        assert!(text.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{text}");
        assert!(text.contains("name=\"b&lt;c&gt;\""), "{text}");
        assert!(text.contains("message=\"&quot;x&quot; &amp; ?\""), "{text}");
    }
}
