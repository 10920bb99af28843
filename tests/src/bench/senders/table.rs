//! How the comparison is shown.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::stage::{Sample, Way};
use super::{Measured, Paths, Request, verdict};
use crate::bench::table::{aligned, median, spread};

/// The published columns of paths, and then those of the text alone.
const HEAD: [&str; 10] = [
    "control",
    "path",
    "ours",
    "Linux",
    "ratio",
    "retransmitted, ours / Linux",
    "queue p95, ours / Linux",
    "verdict",
    "second flow, Jain's index, queue p50",
    "undone, ours / Linux",
];
const PUBLISHED: usize = 8;

/// The published columns of the flows of nsperf's scenarios.
const FLOWS: [&str; PUBLISHED] = [
    "flows",
    "seconds",
    "path",
    "first flow, Mbit/s",
    "second flow, Mbit/s",
    "Jain's index",
    "retransmitted, %",
    "queue p50, ms",
];

/// A line of the table.
pub(super) fn line(measured: &Measured, request: &Request) -> [String; 10] {
    let rate = |side| {
        let rate = measured.middle(side, |sample| sample.goodput);
        rate.map_or("-".to_owned(), |rate| format!("{:.2} Mbit/s", rate / 1e6))
    };
    let ratios = measured.ratios(|sample| sample.goodput);
    let ratio = median(&ratios).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let spread =
        spread(&ratios).map_or("-".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}"));
    let [.., second, fairness, _, queue] = flows(measured, request);
    [
        request.congestion.clone(),
        measured.cell.to_string(),
        rate(0),
        rate(1),
        format!("{ratio} ({spread})"),
        both(measured, |sample| sample.again) + " %",
        both(measured, |sample| sample.queue_ms) + " ms",
        verdict::words(&measured.pairs),
        format!("{second} Mbit/s, fairness {fairness}, {queue} ms"),
        format!("{} / {}", undone(measured, 0), undone(measured, 1)),
    ]
}

/// A line of the table of flows.
fn flows(measured: &Measured, request: &Request) -> [String; PUBLISHED] {
    [
        format!("{}, {}", request.congestion, request.beside.as_deref().unwrap_or("-")),
        format!("{:?}", request.plan.time.as_secs_f64()),
        measured.cell.to_string(),
        both(measured, |sample| sample.goodput / 1e6),
        both(measured, |sample| sample.beside.map_or(f64::NAN, |rate| rate / 1e6)),
        both(measured, Sample::fairness),
        both(measured, |sample| sample.again),
        both(measured, |sample| sample.queue_middle_ms),
    ]
}

/// The medians of both sides.
fn both(measured: &Measured, figure: fn(&Sample) -> f64) -> String {
    let side = |side| match measured.middle(side, figure) {
        Some(value) if value.is_finite() => format!("{value:.2}"),
        _ => "-".to_owned(),
    };
    format!("{} / {}", side(0), side(1))
}

/// Reductions of one side, in all its runs, that were undone.
fn undone(measured: &Measured, side: usize) -> String {
    let sum = |figure: fn(&Sample) -> f64| -> f64 {
        measured.pairs.iter().map(|pair| figure(&pair[side])).sum()
    };
    format!("{} of {}", sum(|sample| sample.undone), sum(|sample| sample.reductions))
}

/// The table as text.
pub(super) fn text(measured: &[Measured], request: &Request) -> String {
    let side = match request.way {
        Way::Send => "sends, a kernel receives",
        Way::Receive => "receives, a kernel sends",
    };
    let twice = if request.kernel_twice { "; both sides of a pair are the kernel's" } else { "" };
    let mut out = format!(
        "\n{} of runs of {:?}, {} where ours is behind; medians; {}; the near end {side}{twice}\n\n",
        if request.plan.pairs == 1 {
            "1 pair".into()
        } else {
            format!("{} pairs", request.plan.pairs)
        },
        request.plan.time,
        request.plan.more,
        request.congestion
    );
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(measured.iter().map(|cell| line(cell, request).to_vec()));
    out.push_str(&aligned(lines));
    let late = measured.iter().flat_map(|cell| &cell.pairs).flatten().map(|sample| sample.late_ms);
    let late: Vec<f64> = late.collect();
    if let (Some(middle), Some((_, most))) = (median(&late), spread(&late)) {
        let _ = writeln!(
            out,
            "\nThe link was late by {middle:.2} ms (p99 of the middle run), {most:.2} ms (worst run)."
        );
    }
    for cell in measured {
        for error in &cell.errors {
            let _ = writeln!(out, "\n{}: {error}", cell.cell);
        }
    }
    out
}

/// The table as JSON, with every sample.
pub(super) fn document(measured: &[Measured], request: &Request) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "throughput_bits_per_s": sample.goodput,
            "sent_again_percent": sample.again,
            "queue_delay_ms_p50": sample.queue_middle_ms,
            "reductions": sample.reductions,
            "undone": sample.undone,
            "queue_delay_ms_p95": sample.queue_ms,
            "beside_bits_per_s": sample.beside,
            "fairness": sample.beside.map(|_| sample.fairness()),
            "link_late_ms_p99": sample.late_ms,
        })
    };
    let rows: Vec<Value> = measured
        .iter()
        .map(|cell| {
            let pairs: Vec<Value> = cell
                .pairs
                .iter()
                .map(|[ours, kernel]| json!({ "ours": sample(ours), "kernel": sample(kernel) }))
                .collect();
            json!({ "path": cell.cell.to_string(), "pairs": pairs, "errors": cell.errors })
        })
        .collect();
    json!({
        "congestion_control": request.congestion,
        "beside": request.beside,
        "kernel_beside": request.kernel_beside,
        "kernel_twice": request.kernel_twice,
        "nsperf": request.paths == Paths::Nsperf,
        "way": format!("{:?}", request.way).to_lowercase(),
        "seconds": request.plan.time.as_secs_f64(),
        "rows": rows,
        "table": published(measured, request),
    })
}

fn published(measured: &[Measured], request: &Request) -> Value {
    let of_flows = request.paths == Paths::Nsperf;
    let row = |cell| match of_flows {
        true => flows(cell, request).to_vec(),
        false => line(cell, request)[..PUBLISHED].to_vec(),
    };
    let (conditions, header) = if of_flows {
        let conditions = "Plimsoll / Linux over 50 Mbit/s and a round trip of 30 ms. Figures are \
                          medians of 3 to 10 pairs. Linux's BBR is version 1.";
        (conditions.to_owned(), &FLOWS[..])
    } else {
        let seconds = request.plan.time.as_secs_f64();
        let conditions = format!(
            "Medians of 3 pairs of runs of {seconds:?} s, and of 10 pairs where 3 pairs show a \
             figure behind."
        );
        (conditions, &HEAD[..PUBLISHED])
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    json!({ "conditions": conditions, "header": header, "rows": rows })
}
