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
        println!("\n{}: {}\n{}", attack.name, attack.what, HEAD[1..].join(" | "));
        let old = request.old.iter().map(|program| ("old", program));
        for (version, program) in old.chain([("new", &request.new)]) {
            let cells = measure(attack, program, request.effort);
            println!("{version:4} {}", cells[1..].join(" | "));
            found.push(cells);
        }
    }
    if let Some(path) = &request.json {
        let conditions = "Each attack runs once.";
        let table = json!({ "conditions": conditions, "header": HEAD, "rows": found });
        let text = serde_json::to_string_pretty(&json!({ "table": table }))?;
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

const HEAD: [&str; 8] = [
    "attack",
    "MB/s alone",
    "MB/s under attack",
    "longest connect",
    "answered",
    "CPU",
    "memory",
    "note",
];

/// Runs one attack on one program. Returns its row.
fn measure(attack: &Attack, program: &Path, effort: Effort) -> [String; 8] {
    set_program(program);
    let outcome = match (attack.run)(effort) {
        Ok(outcome) => outcome,
        Err(error) => {
            let mut cells = HEAD.map(|_| "-".to_owned());
            attack.what.clone_into(&mut cells[0]);
            cells[7] = format!("failed: {error:#}");
            return cells;
        }
    };
    let at = |part: &Option<Value>, name: &str, scale: f64, places: usize| {
        let value = part.as_ref().and_then(|part| part[name].as_f64());
        value.map_or("-".to_owned(), |value| format!("{:.places$}", value * scale))
    };
    let during = |name, scale, places| at(&outcome.during, name, scale, places);
    [
        attack.what.to_owned(),
        at(&outcome.before, "bytes_per_s", 1e-6, 0),
        during("bytes_per_s", 1e-6, 0),
        during("longest_connect_s", 1.0, 3) + " s",
        format!("{} of {}", during("answered", 1.0, 0), during("asked", 1.0, 0)),
        format!("{:.2} s", outcome.cpu_seconds),
        format!("{:.0} MiB", outcome.resident_bytes as f64 / f64::from(1 << 20)),
        outcome.note,
    ]
}
