//! Plans: a scenario, and the values of which each combination is to be run.

use std::hash::Hasher;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};

use plimsoll_tcp::Duration;
use serde::Deserialize;
use siphasher::sip::SipHasher13;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use crate::link::{ANY_PACKETS, LinkConfig, Loss, QueueConfig};
use crate::scenario::path::{Path, Step};
use crate::scenario::{Flow, MAX_PARTS, Scenario, ScenarioError};
use crate::units;

/// Cells of a grid, at most.
pub const MAX_CELLS: u64 = 100_000;
/// Runs of a plan, its cells by its seeds, at most.
pub const MAX_RUNS: u64 = 10_000_000;
/// Points of a curve, at most.
pub const MAX_POINTS: usize = 10_000;

/// What a plan says, before its grid is looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    scenario: Option<Value>,
    #[serde(default)]
    seeds: Option<String>,
    #[serde(default)]
    points: Option<usize>,
    #[serde(default)]
    bottleneck: usize,
    #[serde(default)]
    grid: Table,
}

/// A plan.
///
/// | key | meaning | default |
/// |---|---|---|
/// | `scenario` | a scenario file, from the plan's directory; or a table, the scenario | |
/// | `seeds` | a range of seeds, its end not included, with each of which a cell runs | `"0..1"` |
/// | `points` | points of a curve over the time, at most 10,000; 0 is no curves | 300 |
/// | `bottleneck` | the number of the link that `rate`, `delay`, `loss` and `buffer` are of | 0 |
/// | `[grid]` | lists of values: the last one changes first from cell to cell | one cell |
///
/// Keys of the grid are `rate`, `delay`, `loss` (of the bottleneck's `forward`, and so of both
/// directions unless the scenario gives a `backward`), `buffer` (its queue, in bytes or as `1bdp`:
/// times rate and delay there and back), `controller` (of all hosts), `flows` (how many connections
/// there are: those of the scenario, again and again), and every key of a scenario by its path,
/// such as `"flow[0].up"` or `'host[*].sysctl."net.ipv4.tcp_sack"'`.
///
/// If the scenario does not say `faults_until`, faults last until `limit`.
#[derive(Clone, Debug)]
pub struct Plan {
    file: PathBuf,
    text: String,
    base: Table,
    seeds: Range<u64>,
    points: usize,
    bottleneck: usize,
    /// Keys with their values, in the order of the file.
    grid: Vec<(String, Vec<Value>)>,
}

impl Plan {
    /// Reads a plan and the scenario that it names. Every cell is checked.
    ///
    /// # Errors
    /// If a file cannot be read, or something is wrong in it or in a cell. The error names file,
    /// line and key.
    pub fn load(file: &FilePath) -> Result<Plan, ScenarioError> {
        let text = read(file)?;
        let wrong = |error: ScenarioError| error.located(&text).in_file(file);
        let parsed: Text = toml::from_str(&text)
            .map_err(|error| ScenarioError::of_toml(&error, &text).in_file(file))?;
        let base = match parsed.scenario {
            Some(Value::Table(table)) => table,
            Some(Value::String(name)) => {
                let beside = file.parent().unwrap_or(FilePath::new("")).join(name);
                let text = read(&beside)?;
                let table: Table = toml::from_str(&text)
                    .map_err(|error| ScenarioError::of_toml(&error, &text).in_file(&beside))?;
                if table.contains_key("faults_until") {
                    // What is wrong without the grid is told with its own line.
                    Scenario::parse(&text).map_err(|error| error.in_file(&beside))?;
                }
                table
            }
            None => {
                let reason = "a plan needs one; write the name of a scenario file, or a table \
                              [scenario]";
                return Err(wrong(ScenarioError::new("scenario", reason)));
            }
            Some(_) => {
                let reason = "write the name of a scenario file, or a table [scenario]";
                return Err(wrong(ScenarioError::new("scenario", reason)));
            }
        };
        let seeds = units::parse_range(parsed.seeds.as_deref().unwrap_or("0..1"))
            .map_err(|reason| wrong(ScenarioError::new("seeds", reason)))?;
        let points = parsed.points.unwrap_or(300);
        if points > MAX_POINTS {
            let reason = format!("{points} points; write at most {MAX_POINTS}");
            return Err(wrong(ScenarioError::new("points", reason)));
        }
        let grid = grid_of(&text, parsed.grid).map_err(wrong)?;
        let plan = Plan {
            file: file.to_owned(),
            base,
            seeds,
            points,
            bottleneck: parsed.bottleneck,
            grid,
            text: text.clone(),
        };
        if plan.cells() > MAX_CELLS {
            let reason = format!("{} cells; at most {MAX_CELLS} fit into one plan", plan.cells());
            return Err(plan.refuse("grid", reason));
        }
        plan.check_seeds()?;
        for cell in 0..plan.cells() {
            plan.scenario(cell)?;
        }
        Ok(plan)
    }

    /// An error of a key of this plan.
    pub(super) fn refuse(&self, key: &str, reason: impl Into<String>) -> ScenarioError {
        ScenarioError::new(key, reason).located(&self.text).in_file(&self.file)
    }

    /// The same plan with other seeds.
    ///
    /// # Errors
    /// If there is no seed, or the plan has more than [`MAX_RUNS`] runs with them.
    pub fn with_seeds(mut self, seeds: Range<u64>) -> Result<Plan, ScenarioError> {
        self.seeds = seeds;
        self.check_seeds()?;
        Ok(self)
    }

    fn check_seeds(&self) -> Result<(), ScenarioError> {
        let Range { start, end } = self.seeds;
        let each = match end.checked_sub(start) {
            None | Some(0) => {
                let reason = format!("{start}..{end} has no seed; write an end above {start}");
                return Err(self.refuse("seeds", reason));
            }
            Some(each) => each,
        };
        let (cells, runs) = (self.cells(), self.cells().saturating_mul(each));
        if runs > MAX_RUNS {
            let reason = format!(
                "{cells} cells with {each} seeds each are too many runs; at most {MAX_RUNS} fit \
                 into one plan"
            );
            return Err(self.refuse("seeds", reason));
        }
        Ok(())
    }

    /// A hash of all that the plan says but its seeds, in hexadecimal. Spaces and comments do not
    /// matter.
    pub(super) fn identity(&self) -> String {
        let grid = self.grid.iter().map(|(key, values)| {
            Value::Array(vec![Value::String(key.clone()), Value::Array(values.clone())])
        });
        let numbers = [self.points, self.bottleneck].map(|number| number.to_string());
        let scenario = Value::Table(self.base.clone());
        let all = [scenario, Value::Array(grid.collect()), numbers.to_vec().into()];
        let mut hasher = SipHasher13::new();
        hasher.write(Value::Array(all.to_vec()).to_string().as_bytes());
        format!("{:016x}", hasher.finish())
    }

    /// Cells of the grid.
    pub fn cells(&self) -> u64 {
        let counts = self.grid.iter().map(|(_, values)| values.len() as u64);
        counts.fold(1, u64::saturating_mul)
    }

    /// The seeds of each cell.
    pub fn seeds(&self) -> Range<u64> {
        self.seeds.clone()
    }

    /// Points of a curve, at most.
    pub fn points(&self) -> usize {
        self.points
    }

    /// The keys of the grid.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.grid.iter().map(|(key, _)| key.as_str())
    }

    /// The values of a cell, in the order of the keys.
    pub fn values(&self, cell: u64) -> Vec<String> {
        self.chosen(cell).map(|(_, value)| shown(value)).collect()
    }

    /// Keys and values of a cell.
    fn chosen(&self, cell: u64) -> impl Iterator<Item = (&str, &Value)> {
        let mut left = self.cells();
        self.grid.iter().map(move |(key, values)| {
            left /= values.len() as u64;
            (key.as_str(), &values[(cell / left) as usize % values.len()])
        })
    }

    /// The scenario of a cell.
    ///
    /// # Errors
    /// If the grid makes a scenario of it that contradicts itself.
    pub fn scenario(&self, cell: u64) -> Result<Scenario, ScenarioError> {
        let mut table = self.base.clone();
        for (key, value) in self.chosen(cell).filter(|(key, _)| !is_short(key)) {
            let path: Path = key.parse().map_err(|error: String| self.in_grid(key, error))?;
            set(&mut table, &path, value).map_err(|error| self.in_grid(key, error))?;
        }
        // The grid may have set `limit`.
        if !table.contains_key("faults_until")
            && let Some(limit) = table.get("limit").cloned()
        {
            table.insert("faults_until".to_owned(), limit);
        }
        let named = |error: ScenarioError| {
            let values: Vec<String> =
                self.chosen(cell).map(|(key, value)| format!("{key} = {}", shown(value))).collect();
            let reason = format!(
                "in cell {cell} ({}): {}: {}",
                values.join(", "),
                error.key(),
                error.reason()
            );
            self.refuse("grid", reason)
        };
        let text =
            toml::to_string(&table).map_err(|error| self.refuse("scenario", error.to_string()))?;
        let mut scenario = Scenario::parse(&text).map_err(named)?;
        for (key, value) in
            SHORT.iter().filter_map(|&short| self.chosen(cell).find(|&(key, _)| key == short))
        {
            self.set_short(&mut scenario, key, value)
                .map_err(|reason| self.in_grid(key, reason))?;
        }
        scenario.check().map_err(named)?;
        self.check_draws(cell, &scenario)?;
        Ok(scenario)
    }

    /// Links of a scenario that lists its faults draw none, so a key for that would change nothing.
    fn check_draws(&self, cell: u64, scenario: &Scenario) -> Result<(), ScenarioError> {
        if !scenario.only_listed && scenario.fault.is_empty() {
            return Ok(());
        }
        let reason = "the scenario lists its faults (only_listed, or fault), so its links draw \
                      none, and this key changes nothing; take the faults out of the scenario, or \
                      the key out of the grid";
        match self.chosen(cell).find(|(key, _)| is_drawn(key)) {
            None => Ok(()),
            Some((key, _)) => Err(self.in_grid(key, reason.to_owned())),
        }
    }

    fn in_grid(&self, key: &str, reason: String) -> ScenarioError {
        self.refuse(&in_grid(key), reason)
    }

    fn set_short(&self, scenario: &mut Scenario, key: &str, value: &Value) -> Result<(), String> {
        let text = shown(value);
        if key == "controller" {
            for host in &mut scenario.host {
                host.sysctl.insert("net.ipv4.tcp_congestion_control".to_owned(), text.clone());
            }
            return Ok(());
        }
        if key == "flows" {
            return repeat(&mut scenario.flow, &text);
        }
        let links = scenario.link.len();
        let Some(link) = scenario.link.get_mut(self.bottleneck) else {
            return Err(format!(
                "there is no link {} (bottleneck); there are {links}",
                self.bottleneck
            ));
        };
        match key {
            "rate" => link.forward.rate = Some(units::parse_rate(&text)?),
            "delay" => link.forward.delay = units::parse_time(&text)?,
            "loss" => link.forward.loss = Loss::Independent(units::parse_share(&text)?),
            _ => {
                let back = link.direction(true).delay;
                let bytes = buffer(&text, &link.forward, back)?;
                link.forward.queue = with_bytes(link.forward.queue, bytes);
            }
        }
        Ok(())
    }
}

/// The short keys of a grid, in the order in which they are set: a buffer may be in terms of rate
/// and delay.
const SHORT: [&str; 6] = ["rate", "delay", "loss", "controller", "flows", "buffer"];

fn is_short(key: &str) -> bool {
    SHORT.contains(&key)
}

/// Makes as many flows of those of the scenario as `count` says.
fn repeat(flows: &mut Vec<Flow>, count: &str) -> Result<(), String> {
    match count.parse() {
        Ok(count) if (1..=MAX_PARTS).contains(&count) => {
            *flows = flows.iter().cycle().take(count).cloned().collect();
            Ok(())
        }
        _ => Err(format!("'{count}' is no number of flows; write 1 to {MAX_PARTS}")),
    }
}

/// Whether a key of the grid says how often a link has some fault, or how bad that is.
fn is_drawn(key: &str) -> bool {
    let drawn = ["loss", "jitter", "reorder", "reorder_delay", "duplicate", "corrupt", "mark"];
    let Ok(Path(steps)) = key.parse() else { return false };
    match steps.split_first() {
        Some((Step::Key(first), [])) => first == "loss",
        Some((Step::Key(first), rest)) if first == "link" => {
            rest.iter().any(|step| matches!(step, Step::Key(key) if drawn.contains(&&**key)))
        }
        _ => false,
    }
}

/// A file as text.
fn read(file: &FilePath) -> Result<String, ScenarioError> {
    let refuse = |reason: String| ScenarioError::new("", reason).in_file(file);
    let bytes = std::fs::read(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| refuse("this is not a text file; write TOML".to_owned()))
}

/// The lists of a grid in the order of the file, which the parsed table has lost.
fn grid_of(text: &str, table: Table) -> Result<Vec<(String, Vec<Value>)>, ScenarioError> {
    let (places, _) = DeTable::parse_recoverable(text);
    let place = |key: &str| {
        let DeValue::Table(grid) = places.get_ref().get("grid")?.get_ref() else { return None };
        let (key, _) = grid.iter().find(|(other, _)| other.get_ref() == key)?;
        Some(key.span().start)
    };
    let mut grid = Vec::new();
    for (key, value) in table {
        let bad = |reason: &str| Err(ScenarioError::new(in_grid(&key), reason));
        match value {
            Value::Array(values) if values.is_empty() => {
                return bad("an empty list leaves no cell; write at least one value");
            }
            Value::Array(values) => grid.push((place(&key), key, values)),
            _ => return bad("this is not a list; write [\"10mbit\", \"100mbit\"], say"),
        }
    }
    grid.sort_by_key(|(place, _, _)| *place);
    Ok(grid.into_iter().map(|(_, key, values)| (key, values)).collect())
}

/// The path of a key of the grid.
fn in_grid(key: &str) -> String {
    Path(["grid", key].map(|key| Step::Key(key.to_owned())).to_vec()).to_string()
}

/// A value as people write it on the command line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Bytes of a buffer: a size, or times the product of rate and the delays there and back.
fn buffer(text: &str, forward: &LinkConfig, back: Duration) -> Result<u64, String> {
    let Some(times) = text.strip_suffix("bdp") else { return units::parse_size(text) };
    let times: f64 = match times.trim().parse() {
        Ok(times) if times > 0.0 && times <= 1e4 => times,
        _ => return Err(format!("'{text}' is no buffer; try 250kB or 1bdp")),
    };
    let Some(rate) = forward.rate else {
        return Err(format!("'{text}' needs a rate; give the link one, or write 250kB"));
    };
    let round_trip = (forward.delay + back).as_secs_f64();
    // Less than a packet would be no queue at all.
    Ok(((rate as f64 / 8.0 * round_trip * times) as u64).max(u64::from(forward.mtu)))
}

/// The same queue with another size in bytes, which alone bounds it.
fn with_bytes(queue: QueueConfig, size: u64) -> QueueConfig {
    let mut queue = queue;
    if let QueueConfig::DropTail { packets, .. } = &mut queue {
        *packets = ANY_PACKETS;
    }
    match &mut queue {
        QueueConfig::DropTail { bytes, .. }
        | QueueConfig::CoDel { bytes, .. }
        | QueueConfig::FqCoDel { bytes, .. }
        | QueueConfig::DualPi2 { bytes, .. } => *bytes = size,
    }
    queue
}

/// Sets what is at `path`, in every element where it says so.
fn set(table: &mut Table, path: &Path, value: &Value) -> Result<(), String> {
    let Some((Step::Key(first), rest)) = path.0.split_first() else {
        return Err(format!("'{path}' names no key"));
    };
    let known = ["limit", "faults_until", "host", "router", "link", "flow", "event"];
    if !known.contains(&first.as_str()) {
        return Err(format!(
            "'{path}' is no key of a grid; write one of {}, or the path of a key of the scenario, \
             such as flow[0].up",
            SHORT.join(", ")
        ));
    }
    let missing = || format!("the scenario has no '{path}'; write the path of a key that it has");
    let place = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    set_in(place, rest, value).ok_or_else(missing)
}

fn set_in(place: &mut Value, path: &[Step], value: &Value) -> Option<()> {
    let Some((step, rest)) = path.split_first() else {
        *place = value.clone();
        return Some(());
    };
    match (step, place) {
        (Step::Key(key), Value::Table(table)) => {
            let inner = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
            set_in(inner, rest, value)
        }
        (&Step::Index(index), Value::Array(array)) => set_in(array.get_mut(index)?, rest, value),
        (Step::All, Value::Array(array)) if !array.is_empty() => {
            array.iter_mut().try_for_each(|inner| set_in(inner, rest, value))
        }
        _ => None,
    }
}
