//! `bench gateways`: `plimsoll run`, pasta, slirp4netns and gvisor-tap-vsock, which each give a
//! command of an ordinary user a network, on the same work.
//!
//! In a round each gateway is started afresh, once for each MTU, and all of them are alive until
//! the round has ended. Each work runs behind one gateway after the other, and who goes first
//! changes with each round. A ratio is that of two runs of the same round, so the drift of a shared
//! machine meets both. The same client runs without a gateway as well.
//!
//! A gateway whose run has failed is started afresh for its next one. One that has failed twice in
//! a work is not tried again there, and the caption counts failures.

mod rows;
mod table;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::rows::{Held, ROWS, Row, Sample};
use self::world::{Gateway, KINDS, Kind, Memory, Programs, World};
use super::Plan;

/// The plans. The full one takes less than 25 minutes.
const FULL: Plan = Plan { seconds: Duration::from_secs(2), repetitions: 6 };
const QUICK: Plan = Plan { seconds: Duration::from_millis(500), repetitions: 2 };

/// The MTU of Ethernet, and the largest that all gateways take.
const MTUS: [u16; 2] = [1500, 65520];

/// After so many failures a gateway is not tried again in a work.
const FAILURES: usize = 2;

/// The name of the measurement of memory, for `--only`.
const MEMORY: &str = "memory";

struct Request {
    plan: Plan,
    programs: Programs,
    mtus: Vec<u16>,
    only: Vec<String>,
    /// Gateways that cannot be had here, and why.
    missing: Vec<(Kind, String)>,
    /// Measures ours with rules as well.
    rules: bool,
    json: Option<PathBuf>,
}

impl Request {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }

    /// Whether a gateway is measured at this MTU. Without one it is that of the hosts, 1500.
    fn has(&self, kind: Kind, mtu: u16) -> bool {
        let is_missing = match kind {
            Kind::Before => self.programs.before.is_none(),
            Kind::Rules => !self.rules,
            _ => self.missing.iter().any(|(missing, _)| *missing == kind),
        };
        !is_missing && (kind != Kind::Without || mtu == MTUS[0])
    }
}

/// One work at one MTU, behind all gateways.
struct Line {
    row: &'static Row,
    mtu: u16,
    /// In the order of [`KINDS`], one sample for each round; nothing where it failed.
    samples: [Vec<Option<Sample>>; KINDS.len()],
    errors: Vec<(Kind, String)>,
}

impl Line {
    fn new(row: &'static Row, mtu: u16) -> Line {
        Line { row, mtu, samples: Default::default(), errors: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{}, MTU {}", self.row.name, self.mtu)
    }
}

/// All that was measured.
struct Findings {
    lines: Vec<Line>,
    /// Memory at the first MTU, in the order of [`KINDS`].
    memory: [Vec<Held>; KINDS.len()],
    /// The same after the works of the round.
    after_work: [Vec<Memory>; KINDS.len()],
    errors: Vec<(Kind, String)>,
    /// Of the gateways' sockets.
    congestion_control: &'static str,
}

/// Runs the comparison.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let findings = measure(&request)?;
    print!("{}", table::text(&request, &findings));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&table::json(&request, &findings));
        let text = text.context("writing JSON")? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let errors = findings.lines.iter().flat_map(|line| &line.errors).chain(&findings.errors);
    let failed = errors.filter(|(kind, _)| *kind == Kind::Plimsoll).count();
    ensure!(failed == 0, "{failed} runs behind Plimsoll have failed");
    Ok(())
}

fn measure(request: &Request) -> Result<Findings> {
    let mut findings = Findings {
        lines: Vec::new(),
        memory: Default::default(),
        after_work: Default::default(),
        errors: Vec::new(),
        congestion_control: "",
    };
    for &mtu in &request.mtus {
        let rows = ROWS.iter().filter(|row| mtu == MTUS[0] || row.at_all_mtus);
        let rows = rows.filter(|row| request.wants(row.name));
        findings.lines.extend(rows.map(|row| Line::new(row, mtu)));
    }
    for round in 0..request.plan.repetitions {
        for (place, &mtu) in request.mtus.iter().enumerate() {
            let world = World::new(&request.programs)?;
            findings.congestion_control = world.congestion_control;
            let mut stage = Round { request, world, mtu, round, running: Default::default() };
            stage.take(&mut findings, place == 0 && request.wants(MEMORY));
        }
    }
    Ok(findings)
}

/// A round at one MTU. Fields are dropped in this order: first the gateways, then the hosts.
struct Round<'a> {
    /// In the order of [`KINDS`].
    running: [Option<Gateway>; KINDS.len()],
    world: World,
    request: &'a Request,
    mtu: u16,
    round: usize,
}

impl Round<'_> {
    fn take(&mut self, findings: &mut Findings, with_memory: bool) {
        let others = |kind: &Kind| *kind != Kind::Without;
        if with_memory {
            self.say(MEMORY);
            for place in self.turns().into_iter().filter(|&place| others(&KINDS[place])) {
                match self.with(place, rows::hold) {
                    Ok(held) => findings.memory[place].push(held),
                    Err(error) => findings.errors.push(failed(MEMORY, KINDS[place], &error)),
                }
            }
        }
        let mtu = self.mtu;
        for line in findings.lines.iter_mut().filter(|line| line.mtu == mtu) {
            self.say(&line.name());
            for place in self.turns() {
                self.work(place, line);
            }
        }
        if with_memory {
            for place in self.turns().into_iter().filter(|&place| others(&KINDS[place])) {
                match self.with(place, |_, gateway| gateway.memory()) {
                    Ok(memory) => findings.after_work[place].push(memory),
                    Err(error) => findings.errors.push(failed(MEMORY, KINDS[place], &error)),
                }
            }
        }
    }

    fn say(&self, what: &str) {
        eprintln!("{}/{}: {what}", self.round + 1, self.request.plan.repetitions);
    }

    /// The places of the gateways that are measured, in the order of this round.
    fn turns(&self) -> Vec<usize> {
        let all = (0..KINDS.len()).map(|turn| (turn + self.round) % KINDS.len());
        all.filter(|&place| self.request.has(KINDS[place], self.mtu)).collect()
    }

    fn work(&mut self, place: usize, line: &mut Line) {
        let kind = KINDS[place];
        let failures = line.errors.iter().filter(|(other, _)| *other == kind).count();
        let (row, seconds) = (line.row, self.request.plan.seconds);
        let sample = (failures < FAILURES)
            .then(|| self.with(place, |world, gateway| row.run(world, gateway, seconds)));
        let sample = sample.and_then(|sample| {
            sample.map_err(|error| line.errors.push(failed(&line.name(), kind, &error))).ok()
        });
        line.samples[place].push(sample);
    }

    /// Calls `act` with a gateway, which is started if it does not run. One that has failed is
    /// ended.
    fn with<T>(
        &mut self,
        place: usize,
        act: impl FnOnce(&World, &Gateway) -> Result<T>,
    ) -> Result<T> {
        if self.running[place].is_none() {
            let gateway = Gateway::new(&self.world, KINDS[place], self.mtu);
            self.running[place] = Some(gateway.context("starting the gateway")?);
        }
        let gateway = self.running[place].as_ref().context("it has been started")?;
        act(&self.world, gateway).map_err(|error| {
            let words = self.running[place].take().map(|mut gateway| gateway.last_words());
            anyhow::anyhow!("{error:#}{}", words.unwrap_or_default())
        })
    }
}

fn failed(what: &str, kind: Kind, error: &anyhow::Error) -> (Kind, String) {
    eprintln!("{what}: {}: {error:#}", kind.name());
    (kind, format!("{error:#}"))
}

fn parse(words: &[String]) -> Result<Request> {
    let (mut plan, mut only, mut mtus, mut missing) = (FULL, Vec::new(), Vec::new(), Vec::new());
    let (mut rounds, mut seconds, mut json) = (None, None, None);
    let (mut server, mut gvisor_tap_vsock, mut before, mut rules) = (None, None, None, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => plan = QUICK,
            "--only" => only.push(value()?),
            "--json" => json = Some(value()?.into()),
            "--rounds" => rounds = Some(value()?.parse().context("--rounds: a number")?),
            "--seconds" => {
                let number: f64 = value()?.parse().context("--seconds: a number")?;
                seconds = Some(Duration::try_from_secs_f64(number).context("--seconds")?);
            }
            "--mtu" => {
                let mtu = value()?.parse().ok().filter(|mtu| MTUS.contains(mtu));
                mtus.push(mtu.with_context(|| format!("--mtu: one of {MTUS:?}"))?);
            }
            "--server" => server = Some(value()?.into()),
            "--before" => before = Some(value()?.into()),
            "--rules" => rules = true,
            "--gvisor-tap-vsock" => gvisor_tap_vsock = Some(value()?.into()),
            "--missing" => missing.push(left_out(&value()?)?),
            other => bail!("unknown option {other}"),
        }
    }
    plan.repetitions = rounds.unwrap_or(plan.repetitions);
    plan.seconds = seconds.unwrap_or(plan.seconds);
    ensure!(plan.repetitions > 0 && !plan.seconds.is_zero(), "there is nothing to measure");
    if mtus.is_empty() {
        mtus.extend(MTUS);
    }
    let server = server.context("--server PATH: the server on the kernel's sockets")?;
    if gvisor_tap_vsock.is_none() && missing.iter().all(|(kind, _)| *kind != Kind::GvisorTapVsock) {
        missing.push((Kind::GvisorTapVsock, "no --gvisor-tap-vsock PATH".to_owned()));
    }
    let programs = Programs { server, gvisor_tap_vsock, before };
    Ok(Request { plan, programs, mtus, only, missing, rules, json })
}

/// `NAME=WHY` of a gateway of others.
fn left_out(text: &str) -> Result<(Kind, String)> {
    let (name, why) = text.split_once('=').context("--missing NAME=WHY")?;
    let kind = KINDS.into_iter().find(|kind| kind.is_other() && kind.name() == name);
    Ok((kind.with_context(|| format!("--missing: no gateway is called {name}"))?, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_gateway_that_is_not_there_is_left_out() {
        let request = parsed("--server /a --missing pasta=none --only out").unwrap();
        assert!(!request.has(Kind::Before, 1500) && !request.has(Kind::Rules, 1500));
        assert!(!request.has(Kind::Pasta, 1500) && !request.has(Kind::GvisorTapVsock, 1500));
        assert!(request.has(Kind::Plimsoll, 65520) && request.has(Kind::Without, 1500));
        assert!(!request.has(Kind::Without, 65520));
        assert!(request.wants("out, 1 flow") && !request.wants(MEMORY));
        assert_eq!(request.mtus, MTUS);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "--server",
            "--server /a --mtu 9000",
            "--server /a --rounds 0",
            "--server /a --seconds -1",
            "--server /a --missing without=x",
            "--server /a --fast",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
