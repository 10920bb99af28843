//! `bench atomics`: atomic operations for each poll, each packet and each response.
//!
//! Counted are locked read-modify-writes and full fences that one stack executes, by the program
//! `counted` under callgrind. A poll with nothing to do has a price of its own; what a packet or a
//! response costs is shown beside it, less that price.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::at::Version;
use super::callgrind::{Kind, Place, atomics};
use super::value;
use crate::callgrind::TOGGLE;

/// Kinds of work that `counted` knows, and what one unit of it is.
const WORK: [(&str, &str); 6] = [
    ("idle", "a poll with nothing to do"),
    ("packet", "a poll that finds one segment; every other is acknowledged"),
    ("acked", "a poll that finds one segment and acknowledges it"),
    ("bulk", "a segment, sixteen for one poll"),
    ("read", "a read of one segment"),
    ("response", "a poll that finds a 1-byte request, its read, and the write of the response"),
];

/// What is derived: a name, and the work whose price less that of the others it is.
const DERIVED: [(&str, &str, &str); 3] = [
    ("a packet received, beside the poll", "packet", "idle"),
    ("a packet received and acknowledged, beside the poll", "acked", "idle"),
    ("a response, its read included, beside poll and packet", "response", "packet"),
];

struct Request {
    commits: Vec<String>,
    rounds: usize,
    places: bool,
    json: Option<PathBuf>,
}

/// Units of one kind of work, and the atomic instructions that they took.
struct Counted {
    units: u64,
    places: Vec<Place>,
}

impl Counted {
    fn per_unit(&self, kind: Option<Kind>) -> f64 {
        let places = self.places.iter().filter(|place| kind.is_none_or(|kind| place.kind == kind));
        places.map(|place| place.count).sum::<u64>() as f64 / self.units as f64
    }
}

/// Counts for every version asked for, and for this tree.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let mut document = Vec::new();
    for version in Version::build_all(root, &request.commits, "counted")? {
        let mut measured = Vec::new();
        for (work, _) in WORK {
            measured.push(count(&version, work, request.rounds)?);
        }
        show(&version.name, &measured, request.places);
        document.push(to_json(&version.name, &measured));
    }
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request { commits: Vec::new(), rounds: 200, places: false, json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--at" => request.commits.push(value(word, &mut rest)?.clone()),
            "--rounds" => {
                request.rounds = value(word, &mut rest)?.parse().context("--rounds: a number")?;
            }
            "--places" => request.places = true,
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

fn count(version: &Version, work: &str, rounds: usize) -> Result<Counted> {
    let program = version.program("counted");
    let out = program.with_file_name(format!("counted-{work}.callgrind"));
    let rounds = rounds.to_string();
    let (said, places) = atomics(&program, &[work, &rounds], TOGGLE, &out)?;
    let units = said.trim().parse().context("`counted` prints how much it did")?;
    Ok(Counted { units, places })
}

fn of<'a>(measured: &'a [Counted], work: &str) -> &'a Counted {
    let at = WORK.iter().position(|(name, _)| *name == work);
    &measured[at.expect("derived figures name known work")]
}

fn show(version: &str, measured: &[Counted], places: bool) {
    println!("\n{version}\n\n  locked  fences  together");
    for ((work, unit), counted) in WORK.iter().zip(measured) {
        println!(
            "{:8.2}{:8.2}{:10.2}  {work}: {unit}",
            counted.per_unit(Some(Kind::Locked)),
            counted.per_unit(Some(Kind::Fence)),
            counted.per_unit(None)
        );
    }
    for (name, work, less) in DERIVED {
        let price = of(measured, work).per_unit(None) - of(measured, less).per_unit(None);
        println!("{price:26.2}  {name}");
    }
    if places {
        for ((work, _), counted) in WORK.iter().zip(measured) {
            println!("\n{work}, by place");
            counted.places.iter().for_each(|place| show_place(place, counted.units));
        }
    }
}

/// A place, without those that make up less than a hundredth for each unit.
fn show_place(place: &Place, units: u64) {
    let each = place.count as f64 / units as f64;
    if each < 0.01 {
        return;
    }
    let ours = place.frames.iter().filter(|frame| frame.starts_with("crates/"));
    let mut frames: Vec<&str> = ours.take(3).map(String::as_str).collect();
    if frames.is_empty() {
        frames.extend(place.frames.first().map(String::as_str));
    }
    println!("{each:8.2}  {:34}  {}", place.instruction, frames.join(" <- "));
}

fn to_json(version: &str, measured: &[Counted]) -> Value {
    let work = WORK.iter().zip(measured).map(|((work, unit), counted)| {
        json!({
            "work": work,
            "unit": unit,
            "units": counted.units,
            "locked": counted.per_unit(Some(Kind::Locked)),
            "fences": counted.per_unit(Some(Kind::Fence)),
            "places": counted.places.iter().map(|place| json!({
                "count": place.count,
                "instruction": place.instruction,
                "frames": place.frames,
            })).collect::<Vec<_>>(),
        })
    });
    let derived = DERIVED.iter().map(|(name, work, less)| {
        let price = of(measured, work).per_unit(None) - of(measured, less).per_unit(None);
        json!({ "name": name, "atomics": price })
    });
    json!({
        "version": version,
        "work": work.collect::<Vec<_>>(),
        "derived": derived.collect::<Vec<_>>(),
    })
}
