//! Counts what passed, failed and was skipped, from the words of Rust's test harness.

/// The sum of all steps.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<(String, String)>,
}

impl Tally {
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self, what: &str) {
        self.failed.push(what.into());
    }

    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push((what.into(), why.into()));
    }

    pub(crate) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Takes in one line of a test harness. Other lines change nothing.
    pub(crate) fn line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test ") else { return };
        let Some((name, outcome)) = rest.split_once(" ... ") else { return };
        if outcome.starts_with("ok") {
            self.passed += 1;
        } else if outcome.starts_with("FAILED") {
            self.failed.push(name.into());
        } else if let Some(why) = outcome.strip_prefix("ignored") {
            let why = why.trim_start_matches([',', ' ']);
            self.skip(name, if why.is_empty() { "marked as ignored" } else { why });
        }
    }

    /// The closing report. Its last line stands alone and holds the three numbers.
    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        for (what, why) in &self.skipped {
            text.push_str(&format!("skipped: {what}: {why}\n"));
        }
        for what in &self.failed {
            text.push_str(&format!("failed: {what}\n"));
        }
        text.push_str(&format!(
            "{} passed, {} failed, {} skipped\n",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_of_the_harness() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test src/lib.rs - x (line 3) ... ok",
            "test slow ... ok (3.2s)",
            "test c ... FAILED",
            "test d ... ignored, needs a network",
            "test result: FAILED. 1 passed; 1 failed",
        ] {
            tally.line(line);
        }
        let report = tally.report();
        assert!(report.ends_with("failed: c\n3 passed, 1 failed, 1 skipped\n"), "{report}");
        assert!(report.starts_with("skipped: d: needs a network\n"), "{report}");
    }
}
