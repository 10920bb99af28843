use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::super::rows::{rows, totals};
use super::*;
use crate::control::protocol::{ConnectionLine, Connections, Leg, Role};

const SECOND: Duration = Duration::from_secs(1);

/// An answer with 1,000 connections, `time` seconds after they were opened. Each has a rate of its
/// number in kilobytes per second, and its number is its port at the other host.
fn answer(time: u64) -> Connections {
    let line = |number: u16| ConnectionLine {
        far: match number % 3 {
            0 => format!("[2001:db8:1234:5678:9abc:def0:1234:5678]:{number}"),
            _ => format!("255.255.255.255:{number}"),
        }
        .parse()
        .unwrap(),
        name: (number % 3 == 2).then(|| "a-long-name.of-a-cdn.example.com".to_owned()),
        near: format!("10.0.2.15:{}", 40_000 + number).parse().unwrap(),
        role: Role::Server,
        state: "CLOSE-WAIT".to_owned(),
        age_ms: Some(time * 1000),
        network: Some(Leg {
            rtt_us: 123_000,
            cwnd: 10,
            in_flight: 3,
            retrans: 17,
            unsent: 65_536,
            sent: 1000 * time * u64::from(number),
            received: 123_000_000 * time,
            rwnd_us: 1_000_000 * time,
            ..Leg::default()
        }),
        inside: None,
    };
    Connections { running_ms: 754_000, flows: 1, lines: (1..=1000).map(line).collect() }
}

fn screen() -> Screen {
    let mut rows = rows(&answer(3), Some((&answer(2), SECOND)));
    Order::Rate.sort(&mut rows);
    Screen {
        process: "plimsoll 1234567".to_owned(),
        running: Duration::from_millis(754_000),
        flows: 1,
        totals: totals(&rows, Some(SECOND)),
        rows,
        ..Screen::default()
    }
}

/// The lines of a screen, without spaces at their ends.
fn lines(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let symbols = |y| (0..width).map(move |x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| symbols(y).trim_end().to_owned()).collect()
}

#[test]
fn eighty_columns() {
    let lines = lines(&screen(), 80, 24);
    assert_eq!(
        lines[..7],
        [
            "plimsoll 1234567, running 12 min: 1000 connections, 1 UDP flow",
            "up 500MB/s, down 123GB/s, 0 retransmissions/s",
            "DESTINATION            STATE       UP/s DOWN/s    RTT HELD UP BY",
            "255.255.255.255:1000   CLOSE-WAIT  1.0M   123M 123 ms server reads slowly 100 %",
            "[2001…0:1234:5678]:999 CLOSE-WAIT  999k   123M 123 ms server reads slowly 100 %",
            "a-lon….example.com:998 CLOSE-WAIT  998k   123M 123 ms server reads slowly 100 %",
            "255.255.255.255:997    CLOSE-WAIT  997k   123M 123 ms server reads slowly 100 %",
        ]
    );
    assert_eq!(
        lines[22],
        "[2001…0:1234:5678]:981".to_owned()
            + " CLOSE-WAIT  981k   123M 123 ms server reads slowly 100 %"
    );
    let last = "q quit  s sort (rate)  p pause  arrows scroll                      1-20 of 1000";
    assert_eq!(
        lines[23].split_whitespace().collect::<Vec<_>>(),
        last.split_whitespace().collect::<Vec<_>>()
    );
    assert!(lines[23].ends_with("1-20 of 1000") && lines[23].len() == 80, "{}", lines[23]);
}

#[test]
fn two_hundred_columns() {
    let lines = lines(&screen(), 200, 50);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(&lines[2]),
        "DESTINATION STATE UP/s DOWN/s RTT CWND FLIGHT RETR UNSENT AGE PORT UP DOWN HELD UP BY"
            .split(' ')
            .collect::<Vec<_>>()
    );
    assert_eq!(
        words(&lines[4]),
        "[2001:db8:1234:5678:9abc:def0:1234:5678]:999 CLOSE-WAIT 999k 123M 123 ms 10 3 17 66k \
         3.0 s 40999 3.0M 369M server reads slowly 100 %"
            .split(' ')
            .collect::<Vec<_>>()
    );
    assert!(lines[5].starts_with("a-long-name.of-a-cdn.example.com:998 "), "{}", lines[5]);
    // Each figure ends below the end of its title.
    for (title, figure) in [("DOWN/s", "123M"), ("UNSENT", "66k"), ("PORT", "40999")] {
        let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
        assert_eq!(end(&lines[2], title), end(&lines[4], figure), "{title}");
    }
    assert!(lines[49].ends_with("1-46 of 1000"), "{}", lines[49]);
}

#[test]
fn widths_between_have_the_columns_that_fit() {
    let titles = |width| {
        let all = columns(width).into_iter();
        let (titles, widths): (Vec<_>, Vec<_>) =
            all.map(|(column, width)| (column.title().0, width)).unzip();
        let sum = widths.iter().sum::<u16>() + widths.len() as u16 - 1;
        assert!(sum <= width.max(79), "{width}: {widths:?}");
        titles.join(" ")
    };
    assert_eq!(titles(80), "DESTINATION STATE UP/s DOWN/s RTT HELD UP BY");
    assert_eq!(titles(20), titles(80), "what does not fit is cut at the right");
    assert_eq!(titles(84), "DESTINATION STATE UP/s DOWN/s RTT RETR HELD UP BY");
    for width in 20..300 {
        assert!(titles(width).starts_with(&titles(80)[..33]) && titles(width).ends_with("BY"));
    }
}

#[test]
fn keys() {
    let mut screen = screen();
    let press = |screen: &mut Screen, code| screen.quits_on(KeyEvent::from(code), 20);
    let place = |screen: &Screen| {
        let lines = lines(screen, 80, 24);
        let first = lines[3].split(' ').next().unwrap_or_default().to_owned();
        (first, lines[23].rsplit("  ").next().unwrap_or_default().trim().to_owned())
    };
    let is = |screen: &Screen, first: &str, shown: &str| {
        assert_eq!(place(screen), (first.to_owned(), shown.to_owned()));
    };
    for (code, first, shown) in [
        (KeyCode::Up, "255.255.255.255:1000", "1-20 of 1000"),
        (KeyCode::Down, "[2001…0:1234:5678]:999", "2-21 of 1000"),
        (KeyCode::PageDown, "255.255.255.255:979", "22-41 of 1000"),
        (KeyCode::End, "a-long….example.com:20", "981-1000 of 1000"),
        (KeyCode::PageDown, "a-long….example.com:20", "981-1000 of 1000"),
        (KeyCode::PageUp, "255.255.255.255:40", "961-980 of 1000"),
        (KeyCode::Home, "255.255.255.255:1000", "1-20 of 1000"),
    ] {
        assert!(!press(&mut screen, code));
        is(&screen, first, shown);
    }
    for _ in 0..4 {
        press(&mut screen, KeyCode::Char('s'));
    }
    assert!(lines(&screen, 80, 24)[23].contains("s sort (destination)"));
    is(&screen, "255.255.255.255:1", "1-20 of 1000");
    press(&mut screen, KeyCode::Char('p'));
    assert!(lines(&screen, 80, 24)[1].ends_with("PAUSED"));
    screen.error = Some("process 7 does not answer".to_owned());
    assert_eq!(lines(&screen, 80, 24)[1], "process 7 does not answer");
    assert!(press(&mut screen, KeyCode::Char('q')));
}

#[test]
fn fewer_rows_than_before() {
    let mut screen = screen();
    screen.scroll(isize::MAX, 20);
    screen.rows.truncate(30);
    let text = lines(&screen, 80, 24);
    assert!(text[23].ends_with("11-30 of 30"), "{}", text[23]);
    screen.rows.clear();
    let text = lines(&screen, 80, 24);
    assert!(text[0].contains(": 0 connections") && text[23].ends_with("no connection"));
    // A terminal without room for a table.
    assert_eq!(lines(&screen, 30, 2).len(), 2);
    assert_eq!(lines(&screen, 1, 1).len(), 1);
}
