//! `cargo xtask figures lab|bench`: takes the committed figures again.
//!
//! Each writes its document, `docs/lab.json` or `docs/bench.json`, and then the pages that are made
//! from it. Run it on a machine that does nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{docs, steps};

const USAGE: &str = "usage: cargo xtask figures lab [--kernel] [--quick] | figures bench [--quick]";

/// Runs it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let known = |words: &[&str]| args[1..].iter().all(|word| words.contains(&word.as_str()));
    match args.first().map(String::as_str) {
        Some("lab") if known(&["--kernel", "--quick"]) => lab(root, &args[1..])?,
        Some("bench") if known(&["--quick"]) => bench(root, &args[1..])?,
        _ => bail!("{USAGE}"),
    }
    docs::figures(root)
}

fn lab(root: &Path, options: &[String]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args([
        "run",
        "--release",
        "-p",
        "plimsoll-cli",
        "--",
        "lab",
        "--json",
        "docs/lab.json",
    ]);
    let status = command.args(options).current_dir(root).status().context("starting cargo")?;
    if !status.success() {
        bail!("the lab failed");
    }
    // Without line breaks it is a third as long.
    let document = root.join("docs/lab.json");
    let text = read(&document)?.to_string() + "\n";
    fs::write(&document, text).with_context(|| format!("writing {}", document.display()))
}

/// The table beside the kernel. The other tables of the document stay as they are.
fn bench(root: &Path, options: &[String]) -> Result<()> {
    let taken = root.join("target/bench-kernel.json");
    let path = taken.to_str().context("the path of the repository is text")?;
    let words = ["kernel", "--json", path].map(str::to_owned);
    steps::bench(root, &[&words, options].concat())?;
    let document = root.join("docs/bench.json");
    let mut all = read(&document)?;
    all["kernel"] = table(&read(&taken)?)?;
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(&document, text).with_context(|| format!("writing {}", document.display()))
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// The table of a document of `bench kernel`, with its conditions.
fn table(taken: &Value) -> Result<Value> {
    let mut table = taken.get("table").context("the document of the bench has no table")?.clone();
    let get = |name: &str| taken[name].to_string().trim_matches('"').to_owned();
    table["conditions"] = format!(
        "`cargo xtask figures bench`: {} pairs of {} s, {} processors, Linux {}, kernel sockets with {}.",
        get("repetitions"),
        get("seconds"),
        get("processors"),
        get("kernel_release"),
        get("kernel_congestion_control"),
    )
    .into();
    Ok(table)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_says_how_it_was_taken() {
        let taken = json!({
            "repetitions": 5, "seconds": 1.0, "processors": 2, "kernel_release": "6.18.5",
            "kernel_congestion_control": "cubic",
            "table": { "header": ["work"], "rows": [["bulk"]] },
        });
        let made = table(&taken).unwrap();
        assert_eq!(made["rows"], json!([["bulk"]]));
        let words = made["conditions"].as_str().unwrap();
        assert!(words.contains("5 pairs of 1.0 s, 2 processors, Linux 6.18.5"), "{words}");
        assert!(table(&json!({})).is_err());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for words in [&["lab", "--slow"][..], &["bench", "--kernel"], &["all"], &[]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let said = run(Path::new("/nowhere"), &words).unwrap_err().to_string();
            assert!(said.contains("usage"), "{words:?}: {said}");
        }
    }
}
