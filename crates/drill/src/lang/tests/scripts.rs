//! Options, times, defines, comments: everything around what happens.

use super::super::ast::{Action, Expr, ScriptOption, Time};
use super::super::{BadDefine, Defines, parse};
use super::{call, event, message, script};

fn option(name: &str, value: Option<&str>) -> ScriptOption {
    ScriptOption { name: name.to_owned(), value: value.map(str::to_owned) }
}

#[test]
fn options_stand_first() {
    let script = script(
        "--ip_version=ipv4\n--strict_segments\n--local_ip=192.0.2.1 --mss=1000\n\
         --remote_ip=2001:db8::1\n--define=CC=\"reno\" --define=N=3 --name=\"a b\"\n0 f() = 0",
    );
    let options: Vec<_> = script.options.into_iter().map(|option| option.node).collect();
    assert_eq!(
        options,
        [
            option("ip_version", Some("ipv4")),
            option("strict_segments", None),
            option("local_ip", Some("192.0.2.1")),
            option("mss", Some("1000")),
            option("remote_ip", Some("2001:db8::1")),
            option("define", Some("CC=\"reno\"")),
            option("define", Some("N=3")),
            option("name", Some("a b")),
        ]
    );
}

#[test]
fn times_are_microseconds() {
    for (text, time) in [
        ("0", Time::Absolute(0)),
        ("1.5", Time::Absolute(1_500_000)),
        ("+0", Time::Relative(0)),
        ("+.1", Time::Relative(100_000)),
        ("+ 0.29", Time::Relative(290_000)),
        ("+1.0000019", Time::Relative(1_000_001)),
    ] {
        assert_eq!(event(&format!("{text} f() = 0")).time.node, time, "{text}");
    }
    for (text, time) in [
        ("*", Time::Any),
        ("1.0~1.2", Time::AbsoluteRange(1_000_000, 1_200_000)),
        ("+.1~+.2", Time::RelativeRange(100_000, 200_000)),
        ("+0 ~ +3", Time::RelativeRange(0, 3_000_000)),
    ] {
        assert_eq!(event(&format!("{text} > . 1:1(0) ack 1")).time.node, time, "{text}");
    }
}

#[test]
fn times_that_are_none() {
    assert_eq!(message("+-1 f() = 0"), "a time cannot be negative");
    assert_eq!(message("1000000001 f() = 0"), "this time is too far away");
    assert_eq!(message("9223372036854775807 f() = 0"), "this time is too far away");
    assert_eq!(message("2~1 > . 1:1(0)"), "this range of times ends before it begins");
    assert!(message("* f() = 0").starts_with("only an outbound packet"));
    assert!(message("+0~+1 < . 1:1(0) win 1").starts_with("only an outbound packet"));
    assert!(message("+1~2 > . 1:1(0)").starts_with("expected `+`, found `2`"));
}

#[test]
fn shell_lines_before_between_and_after() {
    let script = script("`one\ntwo \\` three`\n0 f() = 0\n+0 `middle`\n`last`\n");
    assert_eq!(script.init.map(|init| init.node).as_deref(), Some("one\ntwo \\` three"));
    assert_eq!(script.events.len(), 2);
    assert_eq!(script.events[1].action.node, Action::Command("middle".to_owned()));
    assert_eq!(script.cleanup.map(|cleanup| cleanup.node).as_deref(), Some("last"));
}

#[test]
fn code_loses_its_outer_blanks_only() {
    let event = event("+0 %{ \t\nif a:\n  assert b, {c}\n }%");
    assert_eq!(event.action.node, Action::Code("\nif a:\n  assert b, {c}\n".to_owned()));
}

#[test]
fn comments_of_both_kinds() {
    let script = script(
        "// one\n/* two * \n // ** still */ 0 f(/* three */ 1) = 0 // four\n+0 g() = 0 // no end",
    );
    assert_eq!(script.events.len(), 2);
}

#[test]
fn every_event_knows_its_place() {
    let text = "0 f() = 0\n  +.1   > S. 0:0(0) ack 1 <...>  // note\n";
    let script = script(text);
    let last = &script.events[1];
    assert_eq!(&text[last.time.span.clone()], "+.1");
    assert_eq!(&text[last.action.span.clone()], "> S. 0:0(0) ack 1 <...>");
}

fn defines(list: &[&str]) -> Defines {
    let mut defines = Defines::new();
    for text in list {
        defines.define(text).expect("a define");
    }
    defines
}

#[test]
fn defines_stand_in_the_place_of_words() {
    let defines = defines(&[
        "A=12",
        "B=0x10",
        "C=\"text\"",
        "D=`shell`",
        "E=SO_SNDBUF",
        "F=12x",
        "N=-3",
        "ack=7",
    ]);
    let script = parse("0 f(A, B, C, E, F, N, G) = A\n+0 > . 1:1(0) ack 1\n+0 D", &defines)
        .expect("a script");
    let Action::Call(call) = &script.events[0].action.node else { panic!("no call") };
    let values: Vec<_> = call.arguments.iter().map(|value| value.node.clone()).collect();
    assert_eq!(
        values,
        [
            Expr::Integer(12),
            Expr::Integer(16),
            Expr::String(b"text".to_vec()),
            Expr::Word("SO_SNDBUF".to_owned()),
            Expr::Word("12x".to_owned()),
            Expr::Integer(-3),
            // `F` is a flag as well, but not `G`; and `ack` is a word of the language.
            Expr::Word("G".to_owned()),
        ]
    );
    assert_eq!(script.events[2].action.node, Action::Command("shell".to_owned()));
}

#[test]
fn the_caller_overrules_the_script() {
    let text = "--define=A=1\n--define=B=\"x\"\n0 f(A, B) = 0";
    let parsed = parse(text, &defines(&["A=2"])).expect("a script");
    let Action::Call(call) = &parsed.events[0].action.node else { panic!("no call") };
    assert_eq!(call.arguments[0].node, Expr::Integer(2));
    assert_eq!(call.arguments[1].node, Expr::String(b"x".to_vec()));
}

#[test]
fn what_is_no_define() {
    assert_eq!(Defines::new().define("A"), Err(BadDefine("A".to_owned())));
    assert_eq!(Defines::new().define("=1"), Err(BadDefine("=1".to_owned())));
}

#[test]
fn the_longest_token_wins() {
    assert_eq!(call("0...0.5 f() = 0").end, Some(500_000));
    assert_eq!(call("+.1....25 f() = 0").end, Some(250_000));
    assert_eq!(call("0 f(7z, 0x) = 0").arguments[0].node, Expr::Word("7z".to_owned()));
}
