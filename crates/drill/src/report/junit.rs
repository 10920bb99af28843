//! Reports in the XML that continuous integration reads.

use std::fmt::Write as _;

use super::{Report, Status};

/// Reports as one test suite.
pub fn junit(reports: &[Report]) -> String {
    let (differing, tested): (Vec<&Report>, Vec<&Report>) =
        reports.iter().partition(|report| report.status == Status::Differs);
    let count = |status: Status| reports.iter().filter(|report| report.status == status).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuite name=\"drill\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        tested.len(),
        count(Status::Failed),
        count(Status::Error),
        count(Status::Skipped)
    );
    properties(&mut text, &differing);
    for report in tested {
        let seconds = report.ms / 1000.0;
        let name = escape(&report.file);
        let _ = write!(text, "  <testcase name=\"{name}\" time=\"{seconds:.6}\"");
        let element = match report.status {
            Status::Passed | Status::Differs => {
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

/// The scripts that state what a newer kernel does: JUnit has no verdict for them, and they must
/// count neither as passed nor as skipped.
fn properties(text: &mut String, differing: &[&Report]) {
    if differing.is_empty() {
        return;
    }
    text.push_str("  <properties>\n");
    for report in differing {
        let (name, cause) = (&report.file, report.cause.as_deref().unwrap_or_default());
        let value = escape(&format!("{name}: {cause}"));
        let _ = writeln!(text, "    <property name=\"differs\" value=\"{value}\"/>");
    }
    text.push_str("  </properties>\n");
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

    #[test]
    fn a_script_for_a_newer_kernel_is_named_and_counts_for_nothing() {
        let differs = Report::unrun("a", Status::Differs, "needs Linux 7.0");
        let passed = Report { cause: None, ..Report::unrun("b", Status::Passed, "") };
        let text = junit(&[differs, passed]);
        assert!(text.contains("tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\""), "{text}");
        assert!(
            text.contains("<property name=\"differs\" value=\"a: needs Linux 7.0\"/>"),
            "{text}"
        );
        assert_eq!(text.matches("<testcase").count(), 1, "{text}");
    }
}
