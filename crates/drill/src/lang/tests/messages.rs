//! How messages look.

use super::super::{Colour, Defines, Diagnostic, parse};

/// The message about a wrong script, as the user sees it.
#[track_caller]
fn shows(text: &str, expected: &str) {
    let told = parse(text, &Defines::new()).expect_err("this is wrong");
    let shown = told.render("x.pkt", text);
    let trimmed: Vec<_> = shown.lines().map(str::trim_end).collect();
    assert_eq!(trimmed.join("\n"), expected.trim_matches('\n'), "\n{shown}");
}

#[test]
fn a_wrong_token_has_a_caret() {
    shows(
        "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ... = 0\n",
        "
error: expected `,` or `)`, found `=`
 --> x.pkt:2:21
  |
2 | +0 bind(3, ..., ... = 0
  |                     ^
",
    );
}

#[test]
fn a_mistake_that_shows_late_points_at_its_cause() {
    shows(
        "+0 read(3, ..., 100) = -1 EAGAIN\n+0 close(3) = 0\n",
        "
error: expected words in parentheses behind the error `EAGAIN`, found `+`
 --> x.pkt:2:1
  |
1 | +0 read(3, ..., 100) = -1 EAGAIN
  |                           ------ this is taken for the name of an error
2 | +0 close(3) = 0
  | ^
  |
  = help: for example `= -1 EAGAIN (try again)`
",
    );
}

#[test]
fn parts_in_the_wrong_order_get_help() {
    shows(
        "+0 > . 1:1(0) win 5 ack 3\n",
        "
error: expected the time of the next event, such as `0`, `+.1` or `*`, found `ack`
 --> x.pkt:1:21
  |
1 | +0 > . 1:1(0) win 5 ack 3
  |                     ^^^
  |
  = help: the parts of a segment come in this order: flags, sequence, ack, win, urg, <options>
",
    );
}

#[test]
fn options_of_an_odd_length_get_help() {
    shows(
        "+0 < S 0:0(0) win 100 <mss 1000,sackOK,nop>\n",
        "
error: these options take 7 bytes: expected a multiple of 4
 --> x.pkt:1:23
  |
1 | +0 < S 0:0(0) win 100 <mss 1000,sackOK,nop>
  |                       ^^^^^^^^^^^^^^^^^^^^^
  |
  = help: add nop
",
    );
}

#[test]
fn an_open_string_is_told_and_not_its_consequences() {
    shows(
        "+0 write(3, \"abc, 3) = 3\n",
        "
error: this string has no end: expected a closing `\"`
 --> x.pkt:1:13
  |
1 | +0 write(3, \"abc, 3) = 3
  |             ^
",
    );
    // But an error before it comes first.
    let text = "+0 write 3, \"abc, 3) = 3\n";
    let told = parse(text, &Defines::new()).expect_err("this is wrong");
    assert_eq!(told.message, "expected `(`, found `3`");
}

#[test]
fn an_empty_script_is_none() {
    for text in ["", " // only a comment", "--mss=1000\n", "`true`"] {
        let told = parse(text, &Defines::new()).expect_err("this is wrong");
        assert_eq!(
            told.message,
            "expected the time of the first event, such as `0` or `+.1`, found the end of the \
             script"
        );
    }
}

#[test]
fn shell_lines_at_the_end_end_the_script() {
    let text = "0 f() = 0\n`bar`\n+0 f() = 0\n";
    let told = parse(text, &Defines::new()).expect_err("this is wrong");
    assert_eq!(told.message, "expected the end of the script, found `+`");
    assert_eq!(told.line(text), 3);
    assert!(told.help.is_some());
}

#[test]
fn a_message_has_all_its_parts() {
    let text = "0 socket(...) = 3\n+0 > S 0:0(0)\n+0 > . 1:1(0)\n";
    let told = Diagnostic::new(21..31, "another segment came")
        .label("expected this")
        .context(18..20, "at this time")
        .note("came: R. 0:0(0)\nat 0.1 s")
        .help("is \x1b[31m anybody there?");
    let shown = told.render("x.pkt", text);
    let expected = "
error: another segment came
 --> x.pkt:2:4
  |
2 | +0 > S 0:0(0)
  | -- ^^^^^^^^^^ expected this
  | |
  | at this time
  |
  = note: came: R. 0:0(0)
          at 0.1 s
  = help: is \u{241b}[31m anybody there?
";
    let trimmed: Vec<_> = shown.lines().map(str::trim_end).collect();
    assert_eq!(trimmed.join("\n"), expected.trim_matches('\n'), "\n{shown}");
    assert!(!shown.contains('\x1b'));
    assert!(told.render_in("x.pkt", text, Colour::Ansi).contains('\x1b'));
}

#[test]
fn places_outside_the_text_do_no_harm() {
    let text = "é";
    for (start, end) in [(0, 1), (1, 2), (1, 1), (5, 2), (7, 9), (0, usize::MAX)] {
        let told = Diagnostic::new(start..end, "here").context(start..end, "or there");
        assert!(told.render("x.pkt", text).contains("here"));
        assert_eq!(told.line(text), 1);
        let _ = told.render("x.pkt", "");
    }
}
