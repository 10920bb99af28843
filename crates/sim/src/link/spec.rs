//! Links as they are written on a command line: `rate=20mbit,delay=20ms,loss=1%`.
//!
//! A specification is a list of items. The first one may be a [preset](PRESETS). An item is
//! NAME=VALUE, or has words of `tc netem`: `delay 50ms 20ms`, `loss 0.3% 25%`.

mod netem;
mod presets;

use std::fmt;
use std::str::FromStr;

use plimsoll_tcp::Duration;

pub use self::presets::{PRESETS, Preset};
use super::{LinkConfig, Loss, QueueConfig, Trace};
use crate::units;

/// The queue, if nothing is said of it.
const BUFFER: Buffer = Buffer::Bytes(1_000_000);

/// Every name that may be given, for messages.
const NAMES: &str = "rate, trace, delay, jitter, mtu, overhead, loss, burst, reorder, \
                     reorder-delay, reorder-correlation, duplicate, corrupt, mark, queue, qdisc, \
                     buffer, seed";

/// The direction of a link, seen from the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the user to the network.
    Up,
    /// From the network to the user.
    Down,
}

/// A link as it was written. Names that are missing are those of another specification
/// ([`over`](Self::over)), or of a perfect link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    preset: Option<&'static Preset>,
    items: Vec<(String, String)>,
    /// The contents of the file that an item names.
    trace: Option<Trace>,
}

/// How much may wait before the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Buffer {
    Bytes(u64),
    /// So many times what the rate carries in the time that both directions take.
    Bdp(f64),
}

/// How a queue treats packets that wait for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discipline {
    DropTail,
    CoDel,
    FqCoDel,
    DualPi2,
}

impl FromStr for LinkSpec {
    type Err = String;

    /// Reads a specification, and the file of a `trace` as well.
    fn from_str(text: &str) -> Result<LinkSpec, String> {
        let mut spec = LinkSpec::default();
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        for (place, item) in items.enumerate() {
            if let Some((name, value)) = item.split_once('=') {
                spec.add(name.trim(), value.trim())?;
            } else if item.contains(char::is_whitespace) {
                for (name, value) in netem::translate(item)? {
                    spec.add(&name, &value)?;
                }
            } else {
                spec.preset = Some(preset(item, place)?);
            }
        }
        Ok(spec)
    }
}

fn preset(item: &str, place: usize) -> Result<&'static Preset, String> {
    match presets::find(item) {
        Some(_) if place > 0 => {
            Err(format!("'{item}' is a preset; only the first item may be one"))
        }
        Some(preset) => Ok(preset),
        None => Err(format!(
            "'{item}' is not NAME=VALUE, as in rate=20mbit,delay=20ms,loss=1%, nor one of {}",
            presets::names()
        )),
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preset = self.preset.map(|preset| preset.name.to_owned());
        let items = self.items.iter().map(|(name, value)| format!("{name}={value}"));
        let all: Vec<String> = preset.into_iter().chain(items).collect();
        let is_perfect = all.is_empty();
        f.write_str(if is_perfect { "perfect".to_owned() } else { all.join(",") }.as_str())
    }
}

/// Names that exclude each other have the same key.
fn key(name: &str) -> &str {
    if name == "trace" { "rate" } else { name }
}

impl LinkSpec {
    /// Adds an item under its main name.
    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let name = match name {
            // A queue is either a size or a discipline.
            "queue" if value.starts_with(|first: char| first.is_ascii_digit()) => "buffer",
            "qdisc" => "queue",
            name => name,
        };
        if let Some((other, _)) = self.items.iter().find(|(other, _)| key(other) == key(name)) {
            return Err(match other == name {
                true => format!("{name} is given twice"),
                false => format!("{other} and {name} exclude each other"),
            });
        }
        if name == "trace" {
            let text = std::fs::read_to_string(value)
                .map_err(|error| format!("trace: cannot read '{value}': {error}"))?;
            self.trace = Some(text.parse().map_err(|error| format!("trace '{value}': {error}"))?);
        } else {
            // Errors that only the whole shows are returned later: another specification may give
            // some names.
            Names::new(&LinkConfig::default()).take(name, value)?;
        }
        self.items.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.preset.is_none() && self.items.is_empty()
    }

    /// The value of an item, as it was written.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.items.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The seed of the random numbers, if there is one.
    pub fn seed(&self) -> Option<u64> {
        self.get("seed").and_then(|seed| seed.parse().ok())
    }

    /// This specification, with names that it does not give from `other`. A preset leaves nothing
    /// of it.
    #[must_use]
    pub fn over(&self, other: &LinkSpec) -> LinkSpec {
        if self.preset.is_some() {
            return self.clone();
        }
        let is_own = |name: &str| self.items.iter().any(|(own, _)| key(own) == key(name));
        let inherited = other.items.iter().filter(|(name, _)| !is_own(name));
        LinkSpec {
            preset: other.preset,
            items: inherited.chain(&self.items).cloned().collect(),
            trace: if is_own("trace") { self.trace.clone() } else { other.trace.clone() },
        }
    }

    /// The link of one direction. Names that are not given are as in `base`. `back` is the delay of
    /// the other direction, from which a buffer in round trips follows.
    fn config(
        &self,
        direction: Direction,
        base: &LinkConfig,
        back: Option<Duration>,
    ) -> Result<LinkConfig, String> {
        let mut names = Names::new(base);
        if let Some(preset) = self.preset {
            let text = if direction == Direction::Up { preset.up } else { preset.down };
            for (name, value) in text.split(',').filter_map(|item| item.split_once('=')) {
                names.take(name, value)?;
            }
        }
        for (name, value) in &self.items {
            if name == "trace" {
                (names.config.rate, names.config.trace) = (None, self.trace.clone());
            } else {
                names.take(name, value)?;
            }
        }
        let Names { mut config, buffer, discipline, burst } = names;
        if let Some(packets) = burst {
            config.loss = bursty(config.loss, packets)?;
        }
        let bytes = buffer.bytes(&config, back.unwrap_or(config.delay))?;
        config.queue = match discipline {
            Discipline::DropTail => QueueConfig::drop_tail(bytes),
            Discipline::CoDel => QueueConfig::codel(bytes),
            Discipline::FqCoDel => QueueConfig::fq_codel(bytes),
            Discipline::DualPi2 => QueueConfig::dual_pi2(bytes),
        };
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }
}

/// The links of both directions, up first. Names that are not given are as in `base`.
///
/// # Errors
/// Says which name or value was not understood, or contradicts another, in which direction.
pub fn pair(
    [up, down]: [&LinkSpec; 2],
    base: &LinkConfig,
) -> Result<[LinkConfig; 2], (Direction, String)> {
    let of = |spec: &LinkSpec, direction, back| {
        spec.config(direction, base, back).map_err(|error| (direction, error))
    };
    // The buffer of each direction may depend on the delay of the other.
    let first = of(up, Direction::Up, None)?;
    let down = of(down, Direction::Down, Some(first.delay))?;
    Ok([of(up, Direction::Up, Some(down.delay))?, down])
}

/// The parsed names of a direction.
struct Names {
    config: LinkConfig,
    buffer: Buffer,
    discipline: Discipline,
    /// The mean length of a burst of losses in packets.
    burst: Option<f64>,
}

impl Names {
    fn new(base: &LinkConfig) -> Names {
        let (config, discipline) = (base.clone(), Discipline::DropTail);
        Names { config, buffer: BUFFER, discipline, burst: None }
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let in_name = |error: String| format!("{name}: {error}");
        match name {
            "buffer" => self.buffer = value.parse().map_err(in_name)?,
            "queue" => self.discipline = value.parse().map_err(in_name)?,
            "seed" => {
                let seed = value.parse::<u64>();
                seed.map_err(|_| in_name(format!("'{value}' is not a whole number")))?;
            }
            "burst" => self.burst = Some(mean_burst(value).map_err(in_name)?),
            _ => set(&mut self.config, name, value)?,
        }
        Ok(())
    }
}

fn set(config: &mut LinkConfig, name: &str, value: &str) -> Result<(), String> {
    let in_name = |error: String| format!("{name}: {error}");
    let share = || units::parse_share(value).map_err(in_name);
    let time = || units::parse_time_in(value, "ms").map_err(in_name);
    let short = || {
        let number = value.parse::<u16>();
        number.map_err(|_| in_name(format!("'{value}' is not a whole number from 0 to 65535")))
    };
    match name {
        "rate" => {
            let rate = units::parse_link_rate(value).map_err(in_name)?;
            (config.rate, config.trace) = (Some(rate), None);
        }
        "delay" => config.delay = time()?,
        "jitter" => config.jitter = time()?,
        "mtu" => config.mtu = short()?,
        "overhead" => config.overhead = short()?,
        "loss" => config.loss = Loss::Independent(share()?),
        "reorder" => config.reorder = share()?,
        "reorder-delay" => config.reorder_delay = time()?,
        "reorder-correlation" => config.reorder_correlation = share()?,
        "duplicate" => config.duplicate = share()?,
        "corrupt" => config.corrupt = share()?,
        "mark" => config.mark = share()?,
        _ => return Err(format!("unknown name '{name}'; known: {NAMES}")),
    }
    Ok(())
}

fn mean_burst(value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(packets) if (1.0..=1e6).contains(&packets) => Ok(packets),
        _ => Err(format!("'{value}' is no mean length of a burst, 1 to 1000000 packets")),
    }
}

/// The same share of packets lost, in bursts of `packets` on average in which all are lost.
fn bursty(loss: Loss, packets: f64) -> Result<Loss, String> {
    let Loss::Independent(share) = loss else {
        return Err("burst: without a loss there are no bursts; give loss=SHARE as well".to_owned());
    };
    // In the long run a share of enter / (enter + leave) of the packets meets a bad wire.
    let leave = 1.0 / packets;
    let enter = leave * share / (1.0 - share);
    if enter > 1.0 || share >= 1.0 {
        return Err(format!("burst: bursts of {packets} cannot make up a loss of {share}"));
    }
    Ok(Loss::Bursty { enter, leave, good: 0.0, bad: 1.0 })
}

impl FromStr for Buffer {
    type Err = String;

    fn from_str(text: &str) -> Result<Buffer, String> {
        let Some(number) = text.strip_suffix("bdp") else {
            return units::parse_size(text).map(Buffer::Bytes);
        };
        match number.trim().parse::<f64>() {
            Ok(times) if times > 0.0 && times <= 1e4 => Ok(Buffer::Bdp(times)),
            _ => Err(format!("'{text}' is no buffer; try 250kB or 1bdp")),
        }
    }
}

impl Buffer {
    fn bytes(self, config: &LinkConfig, back: Duration) -> Result<u64, String> {
        let mean = config.trace.as_ref().map(Trace::mean_rate);
        match (self, config.rate.map(|rate| rate as f64).or(mean)) {
            (Buffer::Bytes(bytes), _) => Ok(bytes),
            (Buffer::Bdp(_), None) => {
                Err("buffer: without a rate there is no product of rate and delay; give rate=RATE \
                     or a buffer in bytes"
                    .to_owned())
            }
            (Buffer::Bdp(times), Some(rate)) => {
                let round_trip = (config.delay + back).as_secs_f64();
                let bytes = rate / 8.0 * round_trip * times;
                // Less than a packet would be no queue at all.
                Ok((bytes as u64).max(u64::from(config.mtu)))
            }
        }
    }
}

impl FromStr for Discipline {
    type Err = String;

    fn from_str(text: &str) -> Result<Discipline, String> {
        match text {
            "drop-tail" => Ok(Discipline::DropTail),
            "codel" => Ok(Discipline::CoDel),
            "dual-pi2" => Ok(Discipline::DualPi2),
            "fq_codel" | "fq-codel" => Ok(Discipline::FqCoDel),
            _ => Err(format!(
                "unknown queue '{text}'; known: drop-tail, codel, fq_codel, dual-pi2, or a size as \
                 250kB or 1bdp"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LinkConfig, String> {
        let spec = text.parse::<LinkSpec>()?;
        pair([&spec, &spec], &LinkConfig::default()).map(|[up, _]| up).map_err(|(_, error)| error)
    }

    #[test]
    fn what_is_not_said_is_a_perfect_link() {
        assert_eq!(read("").unwrap(), LinkConfig::default());
    }

    #[test]
    fn a_buffer_may_be_said_in_round_trips() {
        let config = read("rate=20mbit, delay=20ms, buffer=0.5bdp").unwrap();
        assert_eq!(config.queue, QueueConfig::drop_tail(50_000));
        let config = read("rate=20mbit,delay=20ms,queue=codel,buffer=64kB").unwrap();
        assert_eq!(config.queue, QueueConfig::codel(64_000));
        // The other direction takes longer.
        let up: LinkSpec = "rate=20mbit,delay=20ms,buffer=1bdp".parse().unwrap();
        let down: LinkSpec = "delay=60ms".parse().unwrap();
        let [up, down] = pair([&up, &down.over(&up)], &LinkConfig::default()).unwrap();
        assert_eq!(up.queue, QueueConfig::drop_tail(200_000));
        assert_eq!(down.queue, QueueConfig::drop_tail(200_000));
        // A queue is a size as well.
        let config = read("rate=20mbit,delay=20ms,queue=1bdp,qdisc=codel").unwrap();
        assert_eq!(config.queue, QueueConfig::codel(100_000));
        let config = read("qdisc=fq_codel,queue=64kB").unwrap();
        assert_eq!(config.queue, QueueConfig::fq_codel(64_000));
        assert_eq!(read("queue=64kB").unwrap().queue, QueueConfig::drop_tail(64_000));
    }

    fn both(up: &str, down: &str) -> [LinkConfig; 2] {
        let [up, down] = [up, down].map(|text| text.parse::<LinkSpec>().unwrap());
        pair([&up, &down.over(&up)], &LinkConfig::default().mtu(9000)).unwrap()
    }

    #[test]
    fn one_specification_may_be_over_another() {
        let [_, back] = both("rate=20mbit,delay=20ms,loss=1%", "rate=1mbit,loss=0");
        assert_eq!((back.rate, back.delay), (Some(1_000_000), Duration::from_millis(20)));
        assert_eq!((back.loss, back.mtu), (Loss::Independent(0.0), 9000));
        // The names of one direction may need names that the other one gives.
        let [_, back] = both("rate=20mbit,delay=20ms,loss=1%", "buffer=1bdp,burst=3");
        assert_eq!(back.queue, QueueConfig::drop_tail(100_000));
        assert!(matches!(back.loss, Loss::Bursty { .. }), "{back:?}");
        // A preset leaves nothing of the other.
        let [_, back] = both("loss=1%", "perfect");
        assert_eq!(back, LinkConfig::default().mtu(9000));
        let text = |spec: &str| spec.parse::<LinkSpec>().unwrap();
        let merged = text("loss=2%").over(&text("3g,jitter=1ms,loss=1%"));
        assert_eq!(merged.to_string(), "3g,jitter=1ms,loss=2%");
        assert_eq!(LinkSpec::default().to_string(), "perfect");
        assert_eq!(text("seed=7").seed(), Some(7));
    }

    #[test]
    fn presets_have_two_directions() {
        for preset in &PRESETS {
            both(preset.name, "");
        }
        let [up, down] = both("dsl,loss=2%", "");
        assert_eq!((up.rate, down.rate), (Some(384_000), Some(1_500_000)));
        assert_eq!((up.loss, down.loss), (Loss::Independent(0.02), Loss::Independent(0.02)));
        assert_eq!(down.delay, Duration::from_millis(25));
    }

    #[test]
    fn words_of_netem() {
        let config = read("delay 50ms 20ms loss 0.3% 25% rate 1mbit").unwrap();
        let times = [config.delay, config.jitter].map(|time| time.as_millis());
        assert_eq!((times, config.rate), ([30, 40], Some(1_000_000)));
        let Loss::Bursty { enter, leave, .. } = config.loss else { panic!("{config:?}") };
        assert!((enter - 0.003 * 0.75).abs() < 1e-12 && (leave - 0.997 * 0.75).abs() < 1e-12);
        let config = read("delay 10ms reorder 25% 50%, duplicate 1%, corrupt 0.1%").unwrap();
        assert_eq!((config.reorder, config.reorder_correlation), (0.25, 0.5));
        assert_eq!((config.delay, config.reorder_delay), (config.delay, config.delay));
        assert_eq!((config.duplicate, config.corrupt), (0.01, 0.001));
        let config = read("delay 10ms 30ms,loss random 1%").unwrap();
        assert_eq!([config.delay, config.jitter].map(|time| time.as_millis()), [0, 40]);
        assert_eq!(config.loss, Loss::Independent(0.01));
        assert_eq!(read("rate 1mbit 14").unwrap().overhead, 14);
    }

    #[test]
    fn traces_of_mahimahi() {
        let file = std::env::temp_dir().join(format!("plimsoll-trace-{}", std::process::id()));
        std::fs::write(&file, "0\n1\n1\n3\n").unwrap();
        let name = file.display();
        let config = read(&format!("lte,trace={name},delay=5ms,queue=1bdp"));
        let twice = read(&format!("rate=1mbit,trace={name}")).unwrap_err();
        std::fs::write(&file, "never").unwrap();
        let wrong = read(&format!("trace={name}")).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        let config = config.unwrap();
        // It takes the place of the preset's rate: 6000 bytes in 3 ms, and a round trip of 10 ms.
        assert_eq!((config.rate, config.trace.is_some()), (None, true));
        assert_eq!(config.queue, QueueConfig::drop_tail(20_000));
        assert!(twice.contains("exclude each other"), "{twice}");
        assert!(wrong.contains("line 1: 'never'"), "{wrong}");
        let missing = read("trace=/no/such/file").unwrap_err();
        assert!(missing.contains("cannot read '/no/such/file'"), "{missing}");
    }

    #[test]
    fn losses_in_bursts_keep_their_share() {
        let Loss::Bursty { enter, leave, good, bad } = read("loss=2%,burst=4").unwrap().loss else {
            panic!("no bursts");
        };
        assert_eq!((leave, good, bad), (0.25, 0.0, 1.0));
        assert!((enter / (enter + leave) - 0.02).abs() < 1e-9);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("rate", "'rate' is not NAME=VALUE"),
            ("4g", "nor one of 3g, lte"),
            ("speed=3", "unknown name 'speed'"),
            ("rate=20mbit,rate=3mbit", "rate is given twice"),
            ("loss=2", "loss:"),
            ("buffer=1bdp", "without a rate"),
            ("rate=1mbit,buffer=-1bdp", "no buffer"),
            ("burst=3", "without a loss"),
            ("loss=90%,burst=1", "cannot make up"),
            ("loss=1%,burst=0", "mean length"),
            ("queue=red", "unknown queue 'red'"),
            ("qdisc=cake", "known: drop-tail, codel, fq_codel"),
            ("queue=1mb,buffer=1MB", "unknown unit 'mb'"),
            ("queue=1MB,buffer=1MB", "buffer is given twice"),
            ("loss=1%,3g", "only the first item"),
            ("seed=x", "seed: 'x'"),
            ("delay 50ms 20ms 25%", "delay 50ms 20ms 25%: a correlation"),
            ("delay 50", "has no unit"),
            ("rate 1mbps", "bytes per second"),
            ("slot 1ms 2ms", "unknown word 'slot'"),
            ("loss gemodel 1%", "not supported"),
            ("duplicate 1% 25%", "'25%' is not supported"),
            ("loss 1% 100%", "no end"),
            ("delay loss 1%", "a value is missing"),
            ("mtu=68", "576"),
            ("delay=soon", "delay:"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
