//! The values of `--link` and `--back`.

use std::str::FromStr;
use std::time::Duration;

use plimsoll_sim::link::{LinkConfig, Loss, QueueConfig};

use crate::units;

/// The queue, if nothing is said of it.
const BUFFER: Buffer = Buffer::Bytes(1_000_000);

/// Every name that may be given, for messages.
const NAMES: &str = "rate, delay, jitter, mtu, overhead, loss, burst, reorder, reorder-delay, \
                     duplicate, corrupt, mark, queue, buffer";

/// One direction of a path, as it was written. Names that are missing are those of the other
/// direction, or of a perfect link.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinkSpec {
    items: Vec<(String, String)>,
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
    DualPi2,
}

impl FromStr for LinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkSpec, String> {
        let mut items: Vec<(String, String)> = Vec::new();
        for item in text.split(',').filter(|item| !item.trim().is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                format!("'{item}' is not NAME=VALUE; try rate=20mbit,delay=20ms,loss=1%")
            })?;
            let name = name.trim();
            if items.iter().any(|(other, _)| other == name) {
                return Err(format!("{name} is given twice"));
            }
            items.push((name.to_owned(), value.trim().to_owned()));
        }
        // Errors that only the whole shows are returned later: the other direction may give some
        // names.
        for (name, value) in &items {
            Names::default().take(name, value)?;
        }
        Ok(LinkSpec { items })
    }
}

impl LinkSpec {
    /// The link of this direction. Names that the direction does not give are taken from `other`.
    /// `back` is the delay of the other direction, from which a buffer in round trips follows.
    ///
    /// # Errors
    /// Says which name or value was not understood, or contradicts another.
    pub(crate) fn config(
        &self,
        other: &LinkSpec,
        back: Option<Duration>,
    ) -> Result<LinkConfig, String> {
        let own = |name: &str| self.items.iter().any(|(own, _)| own == name);
        let inherited = other.items.iter().filter(|(name, _)| !own(name));
        let mut names = Names::default();
        for (name, value) in self.items.iter().chain(inherited) {
            names.take(name, value)?;
        }
        let Names { mut config, buffer, discipline, burst } = names;
        if let Some(packets) = burst {
            config.loss = bursty(config.loss, packets)?;
        }
        let bytes = buffer.bytes(&config, back.unwrap_or(config.delay))?;
        config.queue = match discipline {
            Discipline::DropTail => QueueConfig::drop_tail(bytes),
            Discipline::CoDel => QueueConfig::codel(bytes),
            Discipline::DualPi2 => QueueConfig::dual_pi2(bytes),
        };
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }
}

/// The parsed names of a direction.
struct Names {
    config: LinkConfig,
    buffer: Buffer,
    discipline: Discipline,
    /// The mean length of a burst of losses in packets.
    burst: Option<f64>,
}

impl Default for Names {
    fn default() -> Names {
        let (config, discipline) = (LinkConfig::default(), Discipline::DropTail);
        Names { config, buffer: BUFFER, discipline, burst: None }
    }
}

impl Names {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let in_name = |error: String| format!("{name}: {error}");
        match name {
            "buffer" => self.buffer = value.parse().map_err(in_name)?,
            "queue" => self.discipline = value.parse().map_err(in_name)?,
            "burst" => self.burst = Some(mean_burst(value).map_err(in_name)?),
            _ => set(&mut self.config, name, value)?,
        }
        Ok(())
    }
}

fn set(config: &mut LinkConfig, name: &str, value: &str) -> Result<(), String> {
    let in_name = |error: String| format!("{name}: {error}");
    let share = || units::fraction(value).map_err(in_name);
    let time = || units::delay(value).map_err(in_name);
    let short = || units::whole(value, 0_u16, u16::MAX).map_err(in_name);
    match name {
        "rate" => config.rate = Some(units::link_rate(value).map_err(in_name)?),
        "delay" => config.delay = time()?,
        "jitter" => config.jitter = time()?,
        "mtu" => config.mtu = short()?,
        "overhead" => config.overhead = short()?,
        "loss" => config.loss = Loss::Independent(share()?),
        "reorder" => config.reorder = share()?,
        "reorder-delay" => config.reorder_delay = time()?,
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
            return units::size(text).map(Buffer::Bytes);
        };
        match number.trim().parse::<f64>() {
            Ok(times) if times > 0.0 && times <= 1e4 => Ok(Buffer::Bdp(times)),
            _ => Err(format!("'{text}' is no buffer; try 250kB or 1bdp")),
        }
    }
}

impl Buffer {
    fn bytes(self, config: &LinkConfig, back: Duration) -> Result<u64, String> {
        match (self, config.rate) {
            (Buffer::Bytes(bytes), _) => Ok(bytes),
            (Buffer::Bdp(_), None) => {
                Err("buffer: without a rate there is no product of rate and delay; give rate=RATE \
                     or a buffer in bytes"
                    .to_owned())
            }
            (Buffer::Bdp(times), Some(rate)) => {
                let round_trip = (config.delay + back).as_secs_f64();
                let bytes = rate as f64 / 8.0 * round_trip * times;
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
            _ => Err(format!("unknown queue '{text}'; known: drop-tail, codel, dual-pi2")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LinkConfig, String> {
        text.parse::<LinkSpec>()?.config(&LinkSpec::default(), None)
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
        let forward: LinkSpec = "rate=20mbit,delay=20ms,buffer=1bdp".parse().unwrap();
        let config = forward.config(&LinkSpec::default(), Some(Duration::from_millis(60))).unwrap();
        assert_eq!(config.queue, QueueConfig::drop_tail(200_000));
    }

    #[test]
    fn the_way_back_is_as_the_way_there_but_for_what_it_says() {
        let there: LinkSpec = "rate=20mbit,delay=20ms,loss=1%".parse().unwrap();
        let back: LinkSpec = "rate=1mbit,loss=0".parse().unwrap();
        let config = back.config(&there, None).unwrap();
        assert_eq!(config.rate, Some(1_000_000));
        assert_eq!(config.delay, Duration::from_millis(20));
        assert_eq!(config.loss, Loss::Independent(0.0));
        // The names of one direction may need names that the other one gives.
        let back: LinkSpec = "buffer=1bdp,burst=3".parse().unwrap();
        let config = back.config(&there, None).unwrap();
        assert_eq!(config.queue, QueueConfig::drop_tail(100_000));
        assert!(matches!(config.loss, Loss::Bursty { .. }), "{config:?}");
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
            ("speed=3", "unknown name 'speed'"),
            ("rate=20mbit,rate=3mbit", "rate is given twice"),
            ("loss=2", "loss:"),
            ("buffer=1bdp", "without a rate"),
            ("rate=1mbit,buffer=-1bdp", "no buffer"),
            ("burst=3", "without a loss"),
            ("loss=90%,burst=1", "cannot make up"),
            ("loss=1%,burst=0", "mean length"),
            ("queue=red", "unknown queue 'red'"),
            ("mtu=68", "576"),
            ("delay=soon", "delay:"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
