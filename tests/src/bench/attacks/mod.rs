//! `bench attacks`: a program under attacks, or two by turns.
//!
//! Each attack has a namespace of its own in which `plimsoll serve` offers a small file, a large
//! one and a stream without end. A bystander on the kernel's sockets downloads and asks for the
//! small file anew every 100 ms, first alone and then beside the attack. Shown are what it got, how
//! long its connects took, and what the attack cost the program. Every attack ends by itself.

mod beside;
mod others;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::harness::world::set_program;

/// What one attack did to one program.
#[derive(Default)]
pub(super) struct Outcome {
    /// What the bystander reported alone and beside the attack, if there is one.
    pub(super) before: Option<Value>,
    pub(super) during: Option<Value>,
    /// Processor time of the program during the attack.
    pub(super) cpu_seconds: f64,
    /// The most memory that it had resident.
    pub(super) resident_bytes: u64,
    /// What else there is to say.
    pub(super) note: String,
}

/// How long it may take.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Seconds of the bystander alone, and beside the attack.
    pub(super) seconds: f64,
    /// How often what is a matter of chance is tried.
    pub(super) tries: u32,
}

struct Attack {
    name: &'static str,
    what: &'static str,
    run: fn(Effort) -> Result<Outcome>,
}

const ALL: [Attack; 12] = [
    Attack {
        name: "closed-readers",
        what: "1,300 peers ask for a large file and never read; 1,024 descriptors",
        run: beside::closed_readers,
    },
    Attack {
        name: "slow-clients",
        what: "3,000 HTTP clients send a header that never ends",
        run: beside::slow_clients,
    },
    Attack {
        name: "syn-flood",
        what: "300,000 SYNs a second from random sources over TUN",
        run: beside::syn_flood,
    },
    Attack {
        name: "bad-sources",
        what: "SYNs from the subnet's broadcast and network addresses",
        run: beside::bad_sources,
    },
    Attack {
        name: "zero-windows",
        what: "8,000 peers with closed windows beside an unlimited transfer",
        run: beside::zero_windows,
    },
    Attack {
        name: "holes",
        what: "single bytes with holes between them; tcp_mem 8 MiB",
        run: beside::holes,
    },
    Attack {
        name: "udp-flood",
        what: "200,000 datagrams a second to closed ports",
        run: beside::udp_flood,
    },
    Attack {
        name: "fragments",
        what: "first fragments from one source; another's must be put together",
        run: beside::fragments,
    },
    Attack { name: "signal", what: "SIGTERM while nothing happens", run: others::signal },
    Attack {
        name: "control-spin",
        what: "one query while no descriptor is free, then quiet",
        run: others::control_spin,
    },
    Attack {
        name: "silent-control",
        what: "a control client that says nothing; time of a query beside it",
        run: others::silent_control,
    },
    Attack {
        name: "idle",
        what: "no attack: what the others are to be held against",
        run: beside::idle,
    },
];

struct Request {
    /// What it is held against, if it is.
    old: Option<PathBuf>,
    new: PathBuf,
    only: Vec<String>,
    effort: Effort,
    json: Option<PathBuf>,
}

/// Runs the attacks and prints the table.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let chosen: Vec<&Attack> = ALL
        .iter()
        .filter(|attack| request.only.is_empty() || request.only.iter().any(|o| o == attack.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|attack| attack.name).collect();
        bail!("no attack is called `{}`: {}", request.only.join(" "), names.join(", "));
    }
    let mut found = Vec::new();
    for attack in chosen {
        println!("\n{}: {}\n{HEAD}", attack.name, attack.what);
        let old = request.old.iter().map(|program| ("old", program));
        for (version, program) in old.chain([("new", &request.new)]) {
            found.push(measure(attack, version, program, request.effort));
        }
    }
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&found).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Request> {
    let mut effort = Effort { seconds: 5.0, tries: 100 };
    let (mut old, mut new, mut only, mut json) = (None, None, Vec::new(), None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--old" => old = Some(value()?.into()),
            "--new" => new = Some(value()?.into()),
            "--only" => only.push(value()?),
            "--quick" => effort = Effort { seconds: 2.0, tries: 20 },
            "--json" => json = Some(value()?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    let new = new.context("--new PATH: the `plimsoll` that is attacked")?;
    Ok(Request { old, new, only, effort, json })
}

const HEAD: &str = "      MB/s alone  beside  longest connect  answered      CPU  resident";

/// Runs one attack on one program, and prints its line.
fn measure(attack: &Attack, version: &str, program: &Path, effort: Effort) -> Value {
    set_program(program);
    let outcome = match (attack.run)(effort) {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("{version:4}  failed: {error:#}");
            return json!({
                "attack": attack.name,
                "what": attack.what,
                "version": version,
                "error": format!("{error:#}"),
            });
        }
    };
    let at = |part: &Option<Value>, name: &str| {
        part.as_ref().and_then(|part| part[name].as_f64()).unwrap_or(f64::NAN)
    };
    let megabytes = |part| at(part, "bytes_per_s") / 1e6;
    println!(
        "{version:4}{:12.1}{:8.1}{:15.3} s{:>10}{:7.2} s{:6.0} MiB  {}",
        megabytes(&outcome.before),
        megabytes(&outcome.during),
        at(&outcome.during, "longest_connect_s"),
        format!("{}/{}", at(&outcome.during, "answered"), at(&outcome.during, "asked")),
        outcome.cpu_seconds,
        outcome.resident_bytes as f64 / f64::from(1 << 20),
        outcome.note,
    );
    json!({
        "attack": attack.name,
        "what": attack.what,
        "version": version,
        "before": outcome.before,
        "during": outcome.during,
        "cpu_seconds": outcome.cpu_seconds,
        "resident_bytes": outcome.resident_bytes,
        "note": outcome.note,
    })
}
