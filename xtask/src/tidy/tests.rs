//! Every rule is shown one text that breaks it and one that keeps it.

use super::lexer::{mask, matching, words};
use super::*;

fn tree(files: &[(&str, &str)]) -> Tree {
    let files = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    Tree { files }
}

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    check(&tree(files)).unwrap().iter().map(ToString::to_string).collect()
}

fn one(path: &str, text: &str) -> Vec<String> {
    findings(&[(path, text)])
}

#[test]
fn mask_hides_comments_and_literals() {
    let source =
        "let a = \"// no\"; // unsafe\nlet b = 'x'; /* fn { */ let c: &'a str = r#\"\"}\"#;";
    let masked = mask(source).unwrap();
    assert_eq!(masked.len(), source.len());
    assert!(!masked.contains("unsafe") && !masked.contains("no") && !masked.contains('}'));
    assert!(masked.contains("&'a str") && masked.contains("let c"));
}

#[test]
fn mask_keeps_lines_and_escapes() {
    let masked = mask("let q = '\\''; let s = \"\\\"\n{\"; fn x() {}\nlet b = b'{';").unwrap();
    assert_eq!(masked.lines().count(), 3);
    assert!(masked.contains("fn x() {}"));
    assert_eq!(masked.matches('{').count(), 1);
}

#[test]
fn words_stand_alone() {
    assert_eq!(words("unsafe unsafe_code a_unsafe (unsafe)", "unsafe").count(), 2);
    assert_eq!(words("Instant::now() MyInstant::nowhere", "Instant::now").count(), 1);
    assert_eq!(matching("f(a, [b]) c", 1), 9);
}

#[test]
fn file_length_leaves_tests_and_comments_out() {
    let code = "const A: u8 = 1;\n".repeat(1000);
    let comments = "// A remark.\n".repeat(500);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const B: u8 = 1;\n".repeat(500));
    let text = format!("//! D.\n{comments}{code}{tests}");
    assert!(one("a.rs", &text).is_empty());
    assert_eq!(one("a.rs", &format!("{text}const C: u8 = 1;\n")).len(), 1);
}

#[test]
fn lines_have_at_most_a_hundred_columns() {
    let wide = format!("//! {}\n", "ü".repeat(97));
    assert_eq!(one("a.rs", &wide).len(), 1);
    assert!(one("a.rs", &format!("//! {}\n", "ü".repeat(96))).is_empty());
}

#[test]
fn a_sentence_may_make_a_line_longer() {
    let text =
        |len: usize| format!("//! D.\nconst A: &str = \"in a few words{}\";\n", "x".repeat(len));
    assert!(one("a.rs", &text(100)).is_empty());
    assert_eq!(one("a.rs", &text(120)).len(), 1);
}

#[test]
fn module_doc_comes_first() {
    assert_eq!(one("a.rs", "// A remark.\n").len(), 1);
    assert!(one("a.rs", "\n//! Doc.\n#![no_std]\n").is_empty());
}

#[test]
fn unfinished_work_is_found() {
    for mark in [concat!("// TO", "DO later"), concat!("// FIX", "ME")] {
        assert_eq!(one("a.rs", &format!("//! D.\n{mark}\n")).len(), 1, "{mark}");
    }
}

#[test]
fn documents_name_what_exists() {
    let text = "See `crates/a.rs`, [this](docs/b.md) and `crates/c/*`.";
    let missing = findings(&[("ARCHITECTURE.md", text)]);
    assert_eq!(missing.len(), 2);
    let all = [("ARCHITECTURE.md", text), ("crates/a.rs", "//! D.\n"), ("docs/b.md", "")];
    assert!(findings(&all).is_empty());
}

#[test]
fn linked_names_are_in_the_code() {
    let text = "[`ask`](../a.rs), [`Gate::shut`](../a.rs), [the gate](../a.rs), [`x y`](../a.rs)";
    let code = ("a.rs", "//! D.\nfn ask() {}\n");
    let found = findings(&[("docs/b.md", text), code]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`shut` is in `../a.rs`"), "{}", found[0]);
}

#[test]
fn machine_places_are_found() {
    let text = format!("see {}", concat!("/wo", "rk/x"));
    assert_eq!(one("README.md", &text).len(), 1);
}

const TABLE: &str = "crates/tcp/src/counters.rs";

/// What is found of one counter, with this code of a test.
fn counted(test: &str) -> Vec<String> {
    let code = "//! D.\nfn f(c: &Counters) { c.bump(Counter::InSegs); }\n";
    let test = format!("{code}#[cfg(test)]\nmod tests {{\n{test}\n}}\n");
    let table = "//! D.\ncounters! {\n    InSegs => \"TcpInSegs\", \"Segments received.\";\n}\n";
    findings(&[(TABLE, table), ("crates/tcp/src/a.rs", &test)])
}

#[test]
fn a_test_names_each_counter() {
    let no_test = ["crates/tcp/src/counters.rs:3: no test names the counter `TcpInSegs`"];
    for test in ["", "fn t() { assert_eq!(c.get(Counter::InSegsToo), 1); }"] {
        assert_eq!(counted(test), no_test, "{test}");
    }
    for name in ["Counter::InSegs", "\"TcpInSegs\""] {
        assert_eq!(counted(&format!("fn t() {{ assert!(c.get({name}) > 1); }}")), [""; 0]);
    }
}

/// A rule that sees no table, or not all of its rows, must not pass.
#[test]
fn tables_of_counters_are_found_and_understood() {
    let mut found = Vec::new();
    counters::check_places(&tree(&[(TABLE, "")]), &mut found);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("crates/stack/src/snmp.rs:0: there is no such file"), "{found:?}");
    assert_eq!(one(TABLE, "//! D.\n"), [format!("{TABLE}:0: no counter is in this table")]);
    let odd =
        "//! D.\ncounters! {\n    A => \"TcpA\", \"X.\";\n    B => \"TcpB\",\n    \"Y.\";\n}\n";
    let lost = format!("{TABLE}:0: 2 lines have ` => \"`, but 1 are rows of counters");
    assert!(one(TABLE, odd).contains(&lost));
}

#[test]
fn a_counter_moves() {
    let table = "//! D.\ncounters! {\n    A => \"TcpA\", \"Nothing.\";\n}\n";
    let found = ["crates/tcp/src/counters.rs:3: nothing counts `TcpA`: delete it"];
    assert_eq!(one(TABLE, table), found);
    // The tests in the table's own file make it move by themselves.
    let own = "#[cfg(test)]\nmod tests {\nfn t() { bump(Counter::A); assert!(\"TcpA\"); }\n}\n";
    assert_eq!(one(TABLE, &format!("{table}{own}")), found);
}

#[test]
fn tests_are_ignored_for_one_reason() {
    let good = "//! D.\n#[ignore = \"needs root, network namespaces and /dev/net/tun\"]\n";
    assert!(one("a.rs", good).is_empty());
    for bad in ["//! D.\n#[ignore]\n", "//! D.\n#[ignore = \"slow\"]\n"] {
        assert_eq!(one("a.rs", bad).len(), 1, "{bad}");
    }
}

#[test]
fn modules_of_the_stack_use_each_other_in_no_circle() {
    let circle = [
        ("crates/stack/src/a.rs", "//! D.\nuse crate::b::B;\n"),
        ("crates/stack/src/b.rs", "//! D.\nuse crate::a::A;\n"),
    ];
    let found = "crates/stack/src:1: modules use each other in a circle: a, b";
    assert_eq!(findings(&circle), [found]);
    assert!(findings(&circle[..1]).is_empty());
    let for_tests = ("crates/stack/src/b/tests.rs", "//! D.\nuse crate::a::A;\n");
    assert!(findings(&[circle[0], for_tests]).is_empty());
}

#[test]
fn who_is_owned_by_the_stack_does_not_know_it() {
    let files = [
        ("crates/stack/src/a.rs", "//! D.\nuse crate::stack::work::Work;\n"),
        ("crates/stack/src/stack/mod.rs", "//! D.\npub struct Stack;\n"),
        ("crates/stack/src/stack/work.rs", "//! D.\nuse crate::stack::Stack;\n"),
    ];
    assert_eq!(findings(&files), ["crates/stack/src:1: `a` uses `stack`, which owns it"]);
    assert!(findings(&files[1..]).is_empty());
}

#[test]
fn words_that_plain_english_avoids_only_become_fewer() {
    let list = ("xtask/english.toml", "\"a.rs\" = 1\n\"gone.rs\" = 1\n");
    let text = "//! D.\n// Nobody tells\n// why.\nlet told = \"told\";\n";
    let found = |path, text| findings(&[list, (path, text)]);
    assert_eq!(one("a.rs", text).len(), 2, "both of a file that is not listed");
    let moved = found("a.rs", text);
    assert_eq!(moved.len(), 1, "one is listed, one came from a file that is gone: {moved:?}");
    assert!(moved[0].contains("--update"));
    assert_eq!(
        found("b.rs", "//! D.\n// Nobody tells the other, or hears of it.\n").len(),
        1 + 3 - 2 + 2
    );
    let free = "//! D.\n// It runs. What a run gives is kept. What for? Here.\n";
    assert_eq!(one("a.rs", free).len(), 1);
    assert!(one("page.md", "A page.\n\n```\nWho knows\n```\n").is_empty());
}
