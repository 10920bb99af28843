//! Dates as HTTP writes them (RFC 9110, section 5.6.7).

use std::time::{SystemTime, UNIX_EPOCH};

/// `time` as an IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let (year, month, day) = civil(days);
    let names =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    format!(
        "{weekday}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        names[month as usize],
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// Year, month from 0 and day from 1 of a day counted from 1 January 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    let mut rest = days;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if rest < length {
            break;
        }
        rest -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while rest >= lengths[month] {
        rest -= lengths[month];
        month += 1;
    }
    (year, month as u64, rest + 1)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_dates() {
        let show = |seconds| http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(show(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(show(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(show(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
