//! Numbers as short texts.

use std::time::Duration;

/// A time in at most six characters, as in `14 us`, `1.2 ms`, `59 s`, `12 min`.
pub(super) fn time(time: Duration) -> String {
    let secs = time.as_secs();
    match time.as_micros() {
        0..1000 => format!("{} us", time.as_micros()),
        1000..9950 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        9950..999_500 => format!("{:.0} ms", time.as_secs_f64() * 1e3),
        999_500..9_950_000 => format!("{:.1} s", time.as_secs_f64()),
        9_950_000..60_000_000 => format!("{secs} s"),
        _ if secs < 3600 => format!("{} min", secs / 60),
        _ if secs < 48 * 3600 => format!("{} h", secs / 3600),
        _ => format!("{} d", secs / 86_400),
    }
}

/// A number of bytes in at most four characters, as in `999`, `1.2k`, `12k`, `999M`.
pub(super) fn size(bytes: f64) -> String {
    let mut number = bytes;
    for unit in ["", "k", "M", "G", "T"] {
        if number < 999.5 {
            let digits = usize::from(number < 9.95 && !unit.is_empty());
            return format!("{number:.digits$}{unit}");
        }
        number /= 1000.0;
    }
    format!("{number:.0}P")
}

/// A count in at most four characters.
pub(super) fn count(count: u32) -> String {
    if count < 10_000 { count.to_string() } else { size(count.into()) }
}

/// `head` and `tail` in `width` characters. Of a long head the middle is left out: the end of a
/// name, and the beginning and end of an address, say most.
pub(super) fn shortened(head: &str, tail: &str, width: usize) -> String {
    let (count, tail_count) = (head.chars().count(), tail.chars().count());
    if count + tail_count <= width {
        return format!("{head}{tail}");
    }
    let left = width.saturating_sub(tail_count + 1);
    let first: String = head.chars().take(left / 3).collect();
    let last: String = head.chars().skip(count - (left - left / 3)).collect();
    format!("{first}…{last}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (micros, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1000, "1.0 ms"),
            (9_949, "9.9 ms"),
            (9_950, "10 ms"),
            (999_499, "999 ms"),
            (999_500, "1.0 s"),
            (9_949_000, "9.9 s"),
            (59_999_999, "59 s"),
            (60_000_000, "1 min"),
            (3_599_000_000, "59 min"),
            (3_600_000_000, "1 h"),
            (172_800_000_000, "2 d"),
        ] {
            assert_eq!(time(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0.0, "0"),
            (0.6, "1"),
            (999.4, "999"),
            (999.5, "1.0k"),
            (9_949.0, "9.9k"),
            (9_950.0, "10k"),
            (999_499.0, "999k"),
            (999_500.0, "1.0M"),
            (2.5e9, "2.5G"),
            (7e15, "7P"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!([count(9999), count(10_000), count(u32::MAX)], ["9999", "10k", "4.3G"]);
    }

    #[test]
    fn long_destinations_lose_their_middle() {
        assert_eq!(shortened("192.0.2.1", ":443", 21), "192.0.2.1:443");
        assert_eq!(shortened("255.255.255.255", ":65535", 21), "255.255.255.255:65535");
        let long = "[2001:db8:1234:5678:9abc:def0:1234:5678]";
        assert_eq!(shortened(long, ":443", 21), "[2001…:1234:5678]:443");
        assert_eq!(shortened("a-long-name.cdn.example.com", ":443", 21), "a-lon…example.com:443");
        assert_eq!(shortened("name", ":443", 5), "…:443");
        assert_eq!(shortened("name", ":443", 0), "…:443", "the port is never cut");
    }
}
