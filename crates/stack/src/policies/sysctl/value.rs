//! Values as text: parsing, with the allowed values in the error.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use plimsoll_tcp::Duration;

/// The result of a setter: the text says what is allowed.
pub(super) type Outcome = Result<(), String>;

/// A switch: 0 or 1.
pub(super) fn switch(field: &mut bool, text: &str) -> Outcome {
    *field = match text {
        "0" => false,
        "1" => true,
        _ => return Err("0 or 1".to_owned()),
    };
    Ok(())
}

/// A whole number within `range`, of things called `unit` (which may be empty).
pub(super) fn number<T>(field: &mut T, text: &str, range: RangeInclusive<T>, unit: &str) -> Outcome
where
    T: FromStr + PartialOrd + Display,
{
    match text.parse::<T>() {
        Ok(value) if range.contains(&value) => {
            *field = value;
            Ok(())
        }
        _ => {
            let of = if unit.is_empty() { "" } else { " of " };
            Err(format!("a whole number{of}{unit} from {} to {}", range.start(), range.end()))
        }
    }
}

/// A set of bits, as a decimal or (behind `0x`) hexadecimal number.
pub(super) fn bits(field: &mut u32, text: &str) -> Outcome {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    *field = parsed.map_err(|_| "a number, decimal or with 0x".to_owned())?;
    Ok(())
}

/// The unit of a time.
pub(super) struct Unit {
    name: &'static str,
    span: Duration,
}

pub(super) const SECONDS: Unit = Unit { name: "seconds", span: Duration::from_secs(1) };
pub(super) const MILLISECONDS: Unit = Unit { name: "milliseconds", span: Duration::from_millis(1) };
pub(super) const MICROSECONDS: Unit = Unit { name: "microseconds", span: Duration::from_micros(1) };
pub(super) const NANOSECONDS: Unit = Unit { name: "nanoseconds", span: Duration::from_nanos(1) };

/// A time as a whole number of units of `unit`, within `range`.
pub(super) fn time(
    field: &mut Duration,
    text: &str,
    unit: &Unit,
    range: RangeInclusive<u32>,
) -> Outcome {
    let mut count = 0;
    number(&mut count, text, range, unit.name)?;
    *field = unit.span * count;
    Ok(())
}

/// The number of units of `unit` in `time`, as text.
pub(super) fn show_time(time: Duration, unit: &Unit) -> String {
    (time.as_nanos() / unit.span.as_nanos()).to_string()
}

/// Three sizes in bytes: minimum, default, maximum, each not below the one before.
pub(super) fn three_sizes(field: &mut [usize; 3], text: &str) -> Outcome {
    let allowed =
        || "three sizes in bytes, none below the one before, from 2048 to 1073741824".to_owned();
    let sizes = text
        .split_ascii_whitespace()
        .map(|word| word.parse().ok().filter(|size| (2048..=1 << 30).contains(size)))
        .collect::<Option<Vec<usize>>>();
    match sizes.as_deref() {
        Some(&[low, middle, high]) if low <= middle && middle <= high => {
            *field = [low, middle, high];
            Ok(())
        }
        _ => Err(allowed()),
    }
}

/// Three numbers of pages of 4096 bytes, each not below the one before.
pub(super) fn three_pages(field: &mut [u64; 3], text: &str) -> Outcome {
    let pages = text
        .split_ascii_whitespace()
        .map(|word| word.parse().ok().filter(|pages| (1..=1 << 32).contains(pages)))
        .collect::<Option<Vec<u64>>>();
    match pages.as_deref() {
        Some(&[low, middle, high]) if low <= middle && middle <= high => {
            *field = [low, middle, high];
            Ok(())
        }
        _ => {
            Err("three numbers of pages, none below the one before, from 1 to 4294967296"
                .to_owned())
        }
    }
}

/// Two ports, the second not below the first.
pub(super) fn port_range(field: &mut (u16, u16), text: &str) -> Outcome {
    let ports: Option<Vec<u16>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    match ports.as_deref() {
        Some(&[low, high]) if low >= 1 && low <= high => {
            *field = (low, high);
            Ok(())
        }
        _ => Err("two ports from 1 to 65535, the second not below the first".to_owned()),
    }
}
