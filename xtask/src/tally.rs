//! Counts what passed, failed and was skipped, suite by suite, from the words of Rust's test
//! harness, and holds each suite to its budget.
//!
//! Where the variable `CI` is set nothing may be skipped: what would be skipped has failed there,
//! with the reason for which it could not run.

use std::time::Duration;

/// One line of the closing table.
#[derive(Debug, Default)]
struct Row {
    suite: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    took: Duration,
    building: Duration,
}

/// What became of all tests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Whether a skipped test has failed.
    strict: bool,
    rows: Vec<Row>,
    failed: Vec<String>,
    skipped: Vec<(String, String)>,
    differing: Vec<(String, String)>,
}

impl Tally {
    /// An empty tally. With `strict` nothing may be skipped.
    pub(crate) fn new(strict: bool) -> Tally {
        Tally { strict, ..Tally::default() }
    }

    /// What is counted from here on belongs to `suite`.
    pub(crate) fn begin(&mut self, suite: &str) {
        self.rows.push(Row { suite: suite.into(), ..Row::default() });
    }

    /// The suite that was begun last is over. It has failed if it took longer than its budget,
    /// which does not count the time in which it was building.
    pub(crate) fn end(&mut self, took: Duration, building: Duration, budget: Duration) {
        (self.row().took, self.row().building) = (took, building);
        let counted = took.saturating_sub(building);
        if counted > budget {
            let suite = self.row().suite.clone();
            let (counted, budget) = (counted.as_secs(), budget.as_secs());
            let what = format!("{suite}: over its budget: {counted} s, and {budget} s are allowed");
            self.fail(&what);
        }
    }

    fn row(&mut self) -> &mut Row {
        if self.rows.is_empty() {
            self.begin("");
        }
        self.rows.last_mut().expect("there is a row now")
    }

    pub(crate) fn pass(&mut self) {
        self.row().passed += 1;
    }

    pub(crate) fn fail(&mut self, what: &str) {
        self.row().failed += 1;
        self.failed.push(what.into());
    }

    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        if self.strict {
            self.fail(&format!("{what}: {why} (with CI set nothing may be skipped)"));
        } else {
            self.row().skipped += 1;
            self.skipped.push((what.into(), why.into()));
        }
    }

    /// A check that is known not to hold on this machine, for this reason. It counts for nothing.
    pub(crate) fn differing(&mut self, what: &str, why: &str) {
        self.differing.push((what.into(), why.into()));
    }

    pub(crate) fn failures(&self) -> usize {
        self.failed.len()
    }

    pub(crate) fn passes(&self) -> usize {
        self.rows.iter().map(|row| row.passed).sum()
    }

    /// Takes in one line of a test harness. Other lines change nothing.
    pub(crate) fn line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test ") else { return };
        let Some((name, outcome)) = rest.split_once(" ... ") else { return };
        if outcome.starts_with("ok") {
            self.pass();
        } else if outcome.starts_with("FAILED") {
            self.fail(name);
        } else if let Some(why) = outcome.strip_prefix("ignored") {
            let why = why.trim_start_matches([',', ' ']);
            self.skip(name, if why.is_empty() { "marked as ignored" } else { why });
        }
    }

    /// The closing report. Its last line stands alone and holds the three numbers.
    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        for (what, why) in &self.differing {
            text.push_str(&format!("differs: {what}: {why}\n"));
        }
        for (what, why) in &self.skipped {
            text.push_str(&format!("skipped: {what}: {why}\n"));
        }
        for what in &self.failed {
            text.push_str(&format!("failed: {what}\n"));
        }
        text.push_str(&self.table());
        text.push_str(&format!(
            "{} passed, {} failed, {} skipped\n",
            self.passes(),
            self.failed.len(),
            self.skipped.len()
        ));
        text
    }

    fn table(&self) -> String {
        let line = |words: [&str; 6]| {
            let [suite, passed, failed, skipped, seconds, building] = words;
            format!("{suite:<12} {passed:>7} {failed:>7} {skipped:>8} {seconds:>8} {building:>9}\n")
        };
        let seconds = |time: Duration| format!("{:.0}", time.as_secs_f64());
        let mut text = line(["suite", "passed", "failed", "skipped", "seconds", "building"]);
        for row in &self.rows {
            let counts = [row.passed, row.failed, row.skipped].map(|count| count.to_string());
            let [took, building] = [row.took, row.building].map(seconds);
            text.push_str(&line([
                &row.suite, &counts[0], &counts[1], &counts[2], &took, &building,
            ]));
        }
        let took = seconds(self.rows.iter().map(|row| row.took).sum());
        let building = seconds(self.rows.iter().map(|row| row.building).sum());
        text.push_str(&line(["", "", "", "", &took, &building]));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 7] = [
        "running 4 tests",
        "test a::b ... ok",
        "test src/lib.rs - x (line 3) ... ok",
        "test slow ... ok (3.2s)",
        "test c ... FAILED",
        "test d ... ignored, needs a network",
        "test result: FAILED. 1 passed; 1 failed",
    ];

    fn counted(strict: bool) -> String {
        let mut tally = Tally::new(strict);
        tally.begin("unit");
        LINES.iter().for_each(|line| tally.line(line));
        tally.end(Duration::from_secs(7), Duration::from_secs(2), Duration::from_secs(60));
        tally.report()
    }

    #[test]
    fn lines_of_the_harness_are_counted() {
        let report = counted(false);
        assert!(report.starts_with("skipped: d: needs a network\nfailed: c\nsuite "), "{report}");
        assert!(report.ends_with("\n3 passed, 1 failed, 1 skipped\n"), "{report}");
        let words: Vec<&str> = report.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(words, ["unit", "3", "1", "1", "7", "2"]);
    }

    #[test]
    fn what_would_be_skipped_fails_where_ci_is_set() {
        let report = counted(true);
        let why = "failed: d: needs a network (with CI set nothing may be skipped)\n";
        assert!(report.contains(why), "{report}");
        assert!(report.ends_with("\n3 passed, 2 failed, 0 skipped\n"), "{report}");
    }

    #[test]
    fn what_is_expected_to_differ_is_named_and_counts_for_nothing() {
        let mut tally = Tally::new(true);
        tally.differing("a script", "expected to differ (needs Linux 7.0, this is 6.18)");
        let report = tally.report();
        let line = "differs: a script: expected to differ (needs Linux 7.0, this is 6.18)\n";
        assert!(report.starts_with(line), "{report}");
        assert!(report.ends_with("\n0 passed, 0 failed, 0 skipped\n"), "{report}");
    }

    #[test]
    fn a_suite_over_its_budget_fails_by_name() {
        let mut tally = Tally::new(false);
        for (suite, took, building) in [("loom", 60, 0), ("fuzz", 71, 10), ("unit", 600, 540)] {
            tally.begin(suite);
            tally.pass();
            let [took, building] = [took, building].map(Duration::from_secs);
            tally.end(took, building, Duration::from_secs(60));
        }
        let report = tally.report();
        assert!(report.starts_with("failed: fuzz: over its budget: 61 s, and 60 s are allowed\n"));
        assert!(report.ends_with("\n3 passed, 1 failed, 0 skipped\n"), "{report}");
        let sum = report.lines().rev().nth(1).unwrap();
        assert_eq!(sum.split_whitespace().collect::<Vec<_>>(), ["731", "550"]);
    }
}
