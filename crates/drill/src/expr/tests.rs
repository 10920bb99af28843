//! What blocks mean, by example.

use super::*;

fn run(text: &str) -> Result<Vec<String>, CodeError> {
    let mut scope = Scope::default();
    for (name, value) in [("tcpi_snd_cwnd", 10), ("tcpi_rtt", 20_500), ("FLAG", 32)] {
        scope.give(name, value);
    }
    let mut out = Vec::new();
    scope.run(text, &mut out).map(|()| out)
}

fn prints(text: &str) -> String {
    run(&format!("print({text})")).unwrap().join("\n")
}

#[test]
fn expressions() {
    for (text, value) in [
        ("1 + 2 * 3 - 4", "3"),
        ("(1 + 2) * -3", "-9"),
        ("7 // 2, -7 // 2, 7 % 3, -7 % 3", "3 -4 1 2"),
        ("7 / 2, 8 / 2", "3.5 4.0"),
        ("0x10 | 3 & 2 ^ 1 << 3", "26"),
        ("19000 <= tcpi_rtt <= 21000", "True"),
        ("1 < 2 > 3", "False"),
        ("not 1 == 2 and 3 or 4", "3"),
        ("'cwnd=%d of %s: %5.2f%%' % (tcpi_snd_cwnd, 'all', 1.5)", "cwnd=10 of all:  1.50%"),
        ("\"%x\" % FLAG", "20"),
        ("abs(-3), min(3, 1, 2), max(3, 1, 2), int(2.9)", "3 1 3 2"),
        ("(FLAG & 32) != 0", "True"),
        ("not not 5", "True"),
        ("1.5 == 1.5, 'a' == 1, None == None", "True False True"),
    ] {
        assert_eq!(prints(text), value, "{text}");
    }
}

#[test]
fn statements() {
    let text = "cwnd = 9; cwnd += 1 # why\nassert tcpi_snd_cwnd == cwnd, tcpi_snd_cwnd; \\\n assert (1 +\n 1) == 2\nprint(cwnd)";
    assert_eq!(run(text).unwrap(), ["10"]);
}

#[test]
fn failed_assertions_tell_values() {
    let text = "assert tcpi_snd_cwnd  ==\t11 or 2 > 3, 'cwnd=%d' % tcpi_snd_cwnd";
    assert_eq!(
        run(text),
        Err(CodeError::Failed {
            condition: "tcpi_snd_cwnd == 11 or 2 > 3".to_owned(),
            values: vec![("tcpi_snd_cwnd".to_owned(), "10".to_owned())],
            message: Some("cwnd=10".to_owned()),
        })
    );
}

#[test]
fn what_is_not_understood_is_named() {
    for (text, part) in [
        ("import os", "import"),
        ("assert nonsense == 1", "nonsense"),
        ("assert", "value"),
        ("assert (1", ")"),
        ("x = 'a", "string"),
        ("eval('1')", "eval"),
        ("assert 1 // 0", "zero"),
        ("x = 9223372036854775807 + 1", "overflow"),
        ("x = 1 << 70", "overflow"),
        ("print('%d' % 'a')", "%d"),
        ("print('%d %d' % 1)", "more"),
        ("assert 1 $ 2", "$"),
        ("assert 1 2", "2"),
        ("x = ('a' < 1)", "compared"),
    ] {
        match run(text) {
            Err(CodeError::Wrong(message)) => assert!(message.contains(part), "{text}: {message}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let deep = format!("assert {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(run(&deep).is_err());
    assert!(run(&format!("assert {}1", "1 + ".repeat(5_000))).is_err());
    assert!(run(&format!("assert {}1", "-".repeat(5_000))).is_err());
    assert!(run(&format!("assert {}1", "not ".repeat(5_000))).is_ok());
}
