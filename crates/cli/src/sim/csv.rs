//! Results as comma-separated values (RFC 4180): one line for each run.

use plimsoll_sim::batch::Results;

/// Columns behind those of the grid.
const COLUMNS: [&str; 17] = [
    "seed",
    "finished",
    "time_us",
    "goodput_bits_per_s",
    "segments",
    "retransmitted",
    "spurious",
    "reductions",
    "undone",
    "dropped",
    "marked",
    "queue_delay_p50_us",
    "queue_delay_p95_us",
    "queue_delay_p99_us",
    "queue_delay_max_us",
    "violation",
    "trace",
];

/// The results as a table with a header.
pub(super) fn table(results: &Results) -> String {
    let keys = results.keys.iter().map(String::as_str);
    let header = ["cell"].into_iter().chain(keys).chain(COLUMNS).map(str::to_owned);
    let mut text = line(header);
    for cell in &results.cells {
        for run in &cell.runs {
            let delay = run.queue_delay_us;
            let figures = [
                run.seed.to_string(),
                run.finished.to_string(),
                run.time_us.to_string(),
                run.goodput_bits_per_s.to_string(),
                run.segments.to_string(),
                run.retransmitted.to_string(),
                run.spurious.to_string(),
                run.reductions.to_string(),
                run.undone.to_string(),
                run.dropped.to_string(),
                run.marked.to_string(),
                delay.p50.to_string(),
                delay.p95.to_string(),
                delay.p99.to_string(),
                delay.max.to_string(),
                run.violation.clone().unwrap_or_default(),
                run.trace.clone(),
            ];
            let values = cell.values.iter().cloned();
            text += &line([cell.cell.to_string()].into_iter().chain(values).chain(figures));
        }
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(quoted).collect();
    fields.join(",") + "\r\n"
}

fn quoted(field: String) -> String {
    match field.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_hold_commas_or_quotes_are_quoted() {
        let fields = ["a", "b,c", "say \"d\""].map(str::to_owned);
        assert_eq!(line(fields.into_iter()), "a,\"b,c\",\"say \"\"d\"\"\"\r\n");
    }
}
