//! What runs within one process: `stream`, `rr` and `crr`, and what fair queueing costs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Effort, LIMIT, Rows, counted, median, program, said};

/// What runs on event loops, and whether also on blocking threads.
const WORK: [(&str, bool); 7] = [
    ("stream", true),
    ("stream -m 128", true),
    ("stream -m 65536", false),
    ("stream -m 65160", false),
    ("rr", true),
    ("rr -r 4096,4096 -P 20", true),
    ("crr", false),
];

/// Links on which fair queueing is held against a FIFO.
const LINKS: [(&str, &[&str]); 2] = [
    ("1 Gbit/s, 1 ms each way", &["--link-rate", "1gbit", "--delay", "1"]),
    ("no rate, no delay", &[]),
];

/// The table of the workloads in one process.
pub(super) fn in_process(root: &Path, effort: Effort) -> Result<Rows> {
    let program = program(root)?;
    let (runs, seconds) = effort.of((3, "2"), (1, "0.2"));
    let figure = |work: &str, options: &[&str]| -> Result<String> {
        println!("{work} {}", options.join(" "));
        let words: Vec<&str> = work.split_whitespace().collect();
        let words = [&words[..], &["-l", seconds], options].concat();
        let taken =
            (0..runs).map(|_| said(&program, &words, LIMIT)).collect::<Result<Vec<Value>>>()?;
        shown(&taken)
    };
    let mut rows = Vec::new();
    for (work, on_threads) in WORK {
        let threads = if on_threads { figure(work, &["--threads"])? } else { String::new() };
        rows.push(vec![format!("`{work}`"), figure(work, &[])?, threads]);
    }
    Ok(Rows {
        conditions: format!("the median of {runs} runs of {seconds} s"),
        header: ["work", "event loops (default)", "blocking threads (`--threads`)"]
            .map(str::to_owned)
            .into(),
        rows,
    })
}

/// The figure of a workload, in the median of its runs.
fn shown(runs: &[Value]) -> Result<String> {
    let middle = |path: &str| -> Option<f64> {
        let values: Option<Vec<f64>> =
            runs.iter().map(|run| run.pointer(path).and_then(Value::as_f64)).collect();
        values.filter(|values| !values.is_empty()).map(|values| median(&values))
    };
    if let Some(rate) = middle("/throughput_bits_per_s") {
        return Ok(format!("{:.1} Gbit/s", rate / 1e9));
    }
    let rate = middle("/transactions_per_s").context("a run has no figure")?;
    let latency = middle("/latency_us/p50").context("a run has no latency")?;
    Ok(format!("{rate:.0} /s, median {latency:.0} us"))
}

/// The table of what `fq` costs beside `pfifo`.
pub(super) fn fair_queueing(root: &Path, effort: Effort) -> Result<Rows> {
    let program = program(root)?;
    let (pairs, seconds) = effort.of((7, "1"), (1, "0.2"));
    let cost = |link: &[&str], qdisc: &str| -> Result<f64> {
        let setting = format!("net.core.default_qdisc={qdisc}");
        let words = [&["stream", "-P", "4", "-l", seconds, "--sysctl", &setting], link].concat();
        let taken = said(&program, &words, LIMIT)?;
        let number = |name: &str| taken[name].as_f64().with_context(|| format!("no {name}"));
        Ok(number("cpu_seconds")? / number("bytes")?)
    };
    let mut rows = Vec::new();
    for (name, link) in LINKS {
        println!("{name}");
        let mut ratios = Vec::new();
        for pair in 0..pairs {
            let fair_first = pair % 2 == 0;
            let (first, second) = if fair_first { ("fq", "pfifo") } else { ("pfifo", "fq") };
            let (first, second) = (cost(link, first)?, cost(link, second)?);
            ratios.push(if fair_first { first / second } else { second / first });
        }
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let spread = format!("{least:.2} to {most:.2}");
        rows.push(vec![name.to_owned(), format!("{:.2}", median(&ratios)), spread]);
    }
    Ok(Rows {
        conditions: format!("four flows, {} of {seconds} s", counted(pairs, "pair")),
        header: ["link", "CPU per byte, `fq` / `pfifo`", "spread"].map(str::to_owned).into(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_is_the_median_of_its_runs() {
        let rates = [3e9, 1e9, 2e9].map(|rate| json!({ "throughput_bits_per_s": rate }));
        assert_eq!(shown(&rates).unwrap(), "2.0 Gbit/s");
        let run = json!({ "transactions_per_s": 21_600.4, "latency_us": { "p50": 48.1 } });
        assert_eq!(shown(&[run]).unwrap(), "21600 /s, median 48 us");
        assert!(shown(&[json!({})]).is_err());
    }
}
