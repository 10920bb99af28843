//! The tables and the pictures in README.md and docs/ are those of docs/lab.json and
//! docs/bench.json.
//!
//! `cargo xtask docs` writes them by running this test with `PLIMSOLL_WRITE_DOCS` set. Without that
//! the test holds the pages to the documents. It measures nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use plimsoll_lab::{pages, peers, report};
use serde_json::Value;

const PAGES: [&str; 3] = ["README.md", "docs/performance.md", "docs/mechanisms.md"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn document(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(file(name)).unwrap()).unwrap()
}

#[test]
fn figures_in_pages_are_those_of_the_documents() {
    let (lab, bench) = (document("docs/lab.json"), document("docs/bench.json"));
    let mut made: Vec<(&str, String)> = PAGES
        .iter()
        .map(|&name| {
            let page = fs::read_to_string(file(name)).unwrap();
            (name, pages::fill(&page, |table| pages::table(&lab, &bench, table)).unwrap())
        })
        .collect();
    made.push(("docs/lab.svg", report::svg_of(&lab)));
    made.push(("docs/peers.svg", peers::svg(&bench["peers"]).unwrap()));
    for (name, text) in made {
        if env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
            fs::write(file(name), text).unwrap();
            continue;
        }
        let there = fs::read_to_string(file(name)).unwrap_or_default();
        assert!(there == text, "{name} is not what docs/*.json say: run `cargo xtask docs`");
    }
}
