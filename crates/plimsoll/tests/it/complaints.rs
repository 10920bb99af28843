//! The table of complaints in `docs/testing.md` names tests that there are.
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of all sources below `folder`.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_complaint_has_a_test() {
    let page = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let table = page.split("## What users complain of").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut text = String::new();
    for folder in ["crates/stack/src", "crates/plimsoll/tests"] {
        sources(&root().join(folder), &mut text);
    }
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(rows.len(), 12);
    for row in rows {
        let tests: Vec<&str> =
            row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{row}");
        for test in tests {
            assert!(text.contains(&format!("fn {test}(")), "there is no test {test}");
        }
    }
}
