//! Times, rates, sizes and shares as people write them: `20ms`, `100mbit`, `64KiB`, `2%`.
//!
//! Every parser names what it did not understand and shows what it would take. Scenario files and
//! the program's flags read numbers with these parsers and no others.

use std::ops::Range;

use plimsoll_tcp::Duration;

/// Splits `text` into a number that is not negative and the letters behind it.
fn split_number(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(format!("'{text}' must not be negative"));
    }
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    match digits.replace('_', "").parse::<f64>() {
        Ok(number) => Ok((number, unit.trim())),
        Err(_) => Err(format!("'{text}' does not begin with a number")),
    }
}

/// Parses a time: `20ms`, `250us`, `1.5s`, `2min`, `0`.
///
/// # Errors
/// If there is no unit or an unknown one, or if it is longer than 30 years.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match split_number(text)? {
        (number, "") if number != 0.0 => {
            let text = text.trim();
            Err(format!("'{text}' has no unit; try {text}ms or {text}s"))
        }
        _ => parse_time_in(text, "ns"),
    }
}

/// As [`parse_time`], but a number without a unit is in `unit`.
///
/// # Errors
/// If the unit is unknown, or if it is longer than 30 years.
pub fn parse_time_in(text: &str, unit: &str) -> Result<Duration, String> {
    let (number, own) = split_number(text)?;
    let nanos = match if own.is_empty() { unit } else { own } {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        unit => return Err(format!("unknown unit '{unit}' of a time; try 3s, 250ms or 50us")),
    };
    let total = number * nanos;
    if total > 1e18 {
        return Err(format!("'{text}' is longer than 30 years"));
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// A time in the longest unit in which it is a whole number.
pub fn show_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match nanos {
        0 => "0s".to_owned(),
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", nanos / 1_000_000_000),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => format!("{}us", nanos / 1_000),
        nanos => format!("{nanos}ns"),
    }
}

/// Parses a rate in bits per second: `100mbit`, `1.5gbit`, `10Mbit/s`, `100Mbps`, `64000`.
///
/// # Errors
/// If the unit is unknown, or if it is not from 1 bit to 1000 Tbit per second.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let lower = unit.to_ascii_lowercase();
    let plain = lower.strip_suffix("/s").or(lower.strip_suffix("ps")).unwrap_or(&lower);
    let factor = match plain {
        "" | "bit" => 1.0,
        "k" | "kb" | "kbit" => 1e3,
        "m" | "mb" | "mbit" => 1e6,
        "g" | "gb" | "gbit" => 1e9,
        _ => return Err(format!("unknown unit '{unit}' of a rate; try 10gbit or 100mbit")),
    };
    let bits = number * factor;
    if !(1.0..=1e15).contains(&bits) {
        return Err(format!("'{text}' is not a rate from 1bit to 1000000gbit; try 10mbit"));
    }
    Ok(bits.round() as u64)
}

/// As [`parse_rate`], for a link at which a run does not seem to hang.
///
/// # Errors
/// If it is less than 10 kbit per second as well.
pub fn parse_link_rate(text: &str) -> Result<u64, String> {
    match parse_rate(text)? {
        bits if bits < 10_000 => Err(format!(
            "at {bits} bits per second a packet of 1500 bytes takes {} s; give 10kbit or more",
            12_000 / bits
        )),
        bits => Ok(bits),
    }
}

/// A rate in the largest unit in which it is a whole number.
pub fn show_rate(rate: u64) -> String {
    match rate {
        rate if rate % 1_000_000_000 == 0 => format!("{}gbit", rate / 1_000_000_000),
        rate if rate % 1_000_000 == 0 => format!("{}mbit", rate / 1_000_000),
        rate if rate % 1_000 == 0 => format!("{}kbit", rate / 1_000),
        rate => format!("{rate}bit"),
    }
}

/// Parses a number of bytes: `16384`, `16k`, `16KiB`, `1.5M`, `1GiB`, `10GB`. A single letter and
/// the `iB` forms are powers of 1024, the `B` forms powers of 1000.
///
/// # Errors
/// If the unit is unknown, or if it is more than 10^18 bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let factor: f64 = match unit {
        "" | "B" | "b" => 1.0,
        "k" | "K" | "Ki" | "KiB" | "kiB" => 1024.0,
        "m" | "M" | "Mi" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "Gi" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return Err(format!("unknown unit '{unit}' of a size; try 16384, 16K or 1GiB")),
    };
    let bytes = number * factor;
    if bytes > 1e18 {
        return Err(format!("'{text}' is larger than any transfer"));
    }
    Ok(bytes.round() as u64)
}

/// Parses a share from 0 to 1: `0.02` or `2%`.
///
/// # Errors
/// If it is neither, or not from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = split_number(text)?;
    let value = match unit {
        "" => number,
        "%" => number / 100.0,
        _ => return Err(format!("'{text}' is not a share; try 0.02 or 2%")),
    };
    if !(0.0..=1.0).contains(&value) {
        return Err(format!("'{text}' is not between 0 and 1; try 0.02 or 2%"));
    }
    Ok(value)
}

/// Parses a range of whole numbers whose end is not included, as of seeds: `0..1000`.
///
/// # Errors
/// If it is none, or has no number in it.
pub fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let parsed = text.split_once("..").and_then(|(start, end)| {
        Some(start.trim().parse::<u64>().ok()?..end.trim().parse::<u64>().ok()?)
    });
    match parsed {
        None => Err(format!("'{text}' is not a range; try 0..1000")),
        Some(Range { start, end }) if start >= end => Err(format!(
            "'{text}' is empty, because its end, {end}, is not included; try {start}..{}",
            start.saturating_add(1)
        )),
        Some(range) => Ok(range),
    }
}

/// For `#[serde(with)]`: a time as text.
pub(crate) mod time {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{Duration, parse_time, show_time};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&show_time(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_time(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// For `#[serde(with)]`: a rate as text, where there may be none.
pub(crate) mod rate {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{parse_rate, show_rate};

    pub(crate) fn serialize<S: Serializer>(rate: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&rate.map_or_else(|| "unlimited".to_owned(), show_rate))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        match String::deserialize(from)?.as_str() {
            "unlimited" => Ok(None),
            text => parse_rate(text).map(Some).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for text in ["20ms", "250us", "3s", "17ns", "0s"] {
            assert_eq!(show_time(parse_time(text).unwrap()), text);
        }
        assert_eq!(parse_time("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_time("2min").unwrap(), Duration::from_secs(120));
        assert!(parse_time("20").unwrap_err().contains("20ms"));
        assert!(parse_time("20 parsec").unwrap_err().contains("parsec"));
        assert!(parse_time("-1s").unwrap_err().contains("must not be negative"));
        assert_eq!(parse_time("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_time_in("3", "s").unwrap(), Duration::from_secs(3));
        assert_eq!(parse_time_in("3ms", "s").unwrap(), Duration::from_millis(3));
    }

    #[test]
    fn rates_are_read_as_they_are_shown() {
        for text in ["100mbit", "1gbit", "64kbit", "7bit"] {
            assert_eq!(show_rate(parse_rate(text).unwrap()), text);
        }
        assert_eq!(parse_rate("1.5gbit").unwrap(), 1_500_000_000);
        assert!(parse_rate("0").is_err());
        assert!(parse_rate("9furlong").unwrap_err().contains("furlong"));
        assert_eq!(parse_rate("100Mbps").unwrap(), 100_000_000);
        assert_eq!(parse_rate("10Gbit/s").unwrap(), 10_000_000_000);
    }

    #[test]
    fn ranges_have_something_in_them() {
        assert_eq!(parse_range("3..7"), Ok(3..7));
        assert!(parse_range("7..7").unwrap_err().contains("try 7..8"));
        assert!(parse_range("9..7").unwrap_err().contains("is empty"));
        assert!(parse_range("7").unwrap_err().contains("try 0..1000"));
    }

    #[test]
    fn sizes_and_shares_are_read() {
        assert_eq!(parse_size("16384"), Ok(16384));
        assert_eq!(parse_size("16k"), Ok(16384));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("1.5K"), Ok(1536));
        assert_eq!(parse_size("2MB"), Ok(2_000_000));
        assert!(parse_size("12 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_size("-1").unwrap_err().contains("must not be negative"));
        assert_eq!(parse_share("0.02"), Ok(0.02));
        assert_eq!(parse_share("2%"), Ok(0.02));
        assert!(parse_share("2").unwrap_err().contains("between 0 and 1"));
    }
}
