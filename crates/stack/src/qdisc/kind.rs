//! Which disciplines there are, and their parameters as text.

use std::fmt;

use plimsoll_tcp::Duration;

use super::Qdisc;
use super::fifo::Fifo;
use super::fq::{Fq, FqConfig};
use crate::limits::TX_QUEUE_LEN;

/// A discipline with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First in, first out.
    Pfifo {
        /// Packets that it holds at most; 0 refuses every packet.
        limit: usize,
    },
    /// Fair queueing with departure times.
    Fq(FqConfig),
}

/// The reason why an interface did not get another discipline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// There is no such interface.
    #[error("there is no interface {0}")]
    Interface(usize),
    /// There is no such discipline.
    #[error("`{0}` is no queueing discipline; give fq or pfifo")]
    Name(String),
    /// The discipline has no such parameter.
    #[error("{kind} has no parameter `{word}`; it has {known}")]
    Parameter {
        /// The discipline.
        kind: &'static str,
        /// The word that was given.
        word: String,
        /// The parameters that it has.
        known: &'static str,
    },
    /// The parameter needs another value.
    #[error("{word}: `{value}` is not allowed; give {allowed}")]
    Value {
        /// The parameter.
        word: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
}

impl Kind {
    /// First in, first out: the default of interfaces.
    pub const PFIFO: Kind = Kind::Pfifo { limit: TX_QUEUE_LEN };

    /// Parses a discipline in the words of `tc qdisc`: a name and then parameters with their
    /// values, as in `fq limit 1000 flow_limit 50`. The other parameters have Linux's defaults for
    /// a device with an MTU of `mtu` bytes.
    ///
    /// # Errors
    /// If there is no such discipline or parameter, or a value is not allowed.
    pub fn parse(text: &str, mtu: u16) -> Result<Kind, KindError> {
        let mut words = text.split_whitespace();
        match words.next().unwrap_or_default() {
            "pfifo" | "pfifo_fast" | "fifo" => pfifo(words),
            "fq" => fq(words, FqConfig::for_mtu(mtu)),
            other => Err(KindError::Name(other.to_owned())),
        }
    }

    /// The name of the discipline.
    pub const fn name(&self) -> &'static str {
        match self {
            Kind::Pfifo { .. } => "pfifo",
            Kind::Fq(_) => "fq",
        }
    }

    /// Whether it keeps departure times.
    pub const fn keeps_departures(&self) -> bool {
        matches!(self, Kind::Fq(_))
    }

    /// An empty queue of this kind.
    pub(crate) fn build(self) -> Box<dyn Qdisc> {
        match self {
            Kind::Pfifo { limit } => Box::new(Fifo::new(limit)),
            Kind::Fq(config) => Box::new(Fq::new(config)),
        }
    }
}

impl fmt::Display for Kind {
    /// As `tc qdisc show` prints parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Pfifo { limit } => write!(f, "limit {limit}p"),
            Kind::Fq(config) => {
                write!(
                    f,
                    "limit {}p flow_limit {}p quantum {}b initial_quantum {}b refill_delay {}ms \
                     horizon {}s {}",
                    config.limit,
                    config.flow_limit,
                    config.quantum,
                    config.initial_quantum,
                    config.refill_delay.as_millis(),
                    config.horizon.as_secs(),
                    if config.horizon_drop { "horizon_drop" } else { "horizon_cap" },
                )
            }
        }
    }
}

const COUNT: &str = "a number from 1 to 1000000";

fn pfifo<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Kind, KindError> {
    let mut limit = TX_QUEUE_LEN;
    while let Some(word) = words.next() {
        match word {
            "limit" => {
                limit = match words.next() {
                    Some("0" | "0p") => 0,
                    other => count("limit", other)?,
                }
            }
            _ => return Err(unknown("pfifo", word, "limit")),
        }
    }
    Ok(Kind::Pfifo { limit })
}

fn fq<'a>(
    mut words: impl Iterator<Item = &'a str>,
    mut config: FqConfig,
) -> Result<Kind, KindError> {
    const KNOWN: &str = "limit, flow_limit, quantum, initial_quantum, refill_delay (ms), \
                         horizon (s), horizon_drop and horizon_cap";
    while let Some(word) = words.next() {
        match word {
            "limit" => config.limit = count("limit", words.next())?,
            "flow_limit" => config.flow_limit = count("flow_limit", words.next())?,
            "quantum" => config.quantum = bytes("quantum", words.next())?,
            "initial_quantum" => config.initial_quantum = bytes("initial_quantum", words.next())?,
            "refill_delay" => {
                let ms = count("refill_delay", words.next().map(|word| unit(word, "ms")))?;
                config.refill_delay = Duration::from_millis(ms as u64);
            }
            "horizon" => {
                let seconds = count("horizon", words.next().map(|word| unit(word, "s")))?;
                config.horizon = Duration::from_secs(seconds as u64);
            }
            "horizon_drop" => config.horizon_drop = true,
            "horizon_cap" => config.horizon_drop = false,
            _ => return Err(unknown("fq", word, KNOWN)),
        }
    }
    Ok(Kind::Fq(config))
}

fn unknown(kind: &'static str, word: &str, known: &'static str) -> KindError {
    KindError::Parameter { kind, word: word.to_owned(), known }
}

/// The word without its unit.
fn unit<'a>(word: &'a str, unit: &str) -> &'a str {
    word.strip_suffix(unit).unwrap_or(word)
}

fn count(word: &'static str, value: Option<&str>) -> Result<usize, KindError> {
    let value = value.unwrap_or_default();
    let number = value.strip_suffix('p').unwrap_or(value).parse().ok();
    number.filter(|number| (1..=1_000_000).contains(number)).ok_or(KindError::Value {
        word,
        value: value.to_owned(),
        allowed: COUNT,
    })
}

fn bytes(word: &'static str, value: Option<&str>) -> Result<u32, KindError> {
    let number = count(word, value.map(|word| unit(word, "b")))?;
    // At most a million.
    Ok(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(Kind::parse("pfifo", 1500), Ok(Kind::PFIFO));
        assert_eq!(Kind::parse("pfifo limit 7", 1500), Ok(Kind::Pfifo { limit: 7 }));
        assert_eq!(Kind::parse("pfifo limit 0p", 1500), Ok(Kind::Pfifo { limit: 0 }));
        let Ok(Kind::Fq(config)) = Kind::parse("fq flow_limit 5p horizon 2s horizon_cap", 1500)
        else {
            panic!("fq is known");
        };
        assert_eq!((config.limit, config.flow_limit, config.horizon_drop), (10_000, 5, false));
        assert_eq!((config.quantum, config.initial_quantum), (3028, 15_140));
        let shown = "limit 10000p flow_limit 5p quantum 3028b initial_quantum 15140b \
                     refill_delay 40ms horizon 2s horizon_cap";
        assert_eq!(Kind::Fq(config).to_string(), shown);
        assert_eq!(Kind::parse(&format!("fq {shown}"), 9000), Ok(Kind::Fq(config)));
    }

    #[test]
    fn errors_say_what_to_write() {
        let error =
            |text| Kind::parse(text, 1500).map_or_else(|error| error.to_string(), |_| "".into());
        assert_eq!(error("sfq"), "`sfq` is no queueing discipline; give fq or pfifo");
        assert_eq!(error("pfifo quantum 1"), "pfifo has no parameter `quantum`; it has limit");
        let value = "limit: `0` is not allowed; give a number from 1 to 1000000";
        assert_eq!(error("fq limit 0"), value);
        assert!(error("fq limit").starts_with("limit: `` is not allowed"));
    }
}
