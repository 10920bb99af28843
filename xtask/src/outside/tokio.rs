//! tokio's own tests of its sockets, on ours.
//!
//! Who moves a program from tokio's sockets to ours changes its imports and nothing else. tokio's
//! own test files are such programs. They are taken from tokio's published package when they are
//! run, and nothing of them is kept: in a package of their own below the target folder, their
//! imports name our sockets, and a last line gives the process its stack.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::package::Package;
use super::rewrite::{Excluded, TOKIO, rewritten};

/// The test files, without their extension.
const FILES: [&str; 13] = [
    "io_copy_bidirectional",
    "tcp_accept",
    "tcp_accept_ready",
    "tcp_connect",
    "tcp_echo",
    "tcp_into_split",
    "tcp_into_std",
    "tcp_peek",
    "tcp_shutdown",
    "tcp_socket",
    "tcp_split",
    "tcp_stream",
    "udp",
];

/// Tests that are left out.
const EXCLUDED: [Excluded; 2] = [
    Excluded {
        file: "tcp_accept_ready",
        test: "later_reads_after_runtime_drop_report_shutdown",
        why: "our sockets do not end with a runtime: the stack has its own thread",
    },
    Excluded {
        file: "tcp_accept_ready",
        test: "unix_accepted_stream_reads_without_an_event",
        why: "it is about sockets of the domain AF_UNIX",
    },
];

const MANIFEST: &str = r#"[package]
name = "outside"
version = "0.0.0"
edition = "2021"
publish = false

[features]
default = ["full", "net", "macros", "rt", "io-util"]
full = []
net = []
macros = []
rt = []
io-util = []

[dependencies]
plimsoll = { path = "PLIMSOLL", features = ["tokio"] }

[dev-dependencies]
tokio = { version = "1", features = ["full"] }
tokio-stream = "0.1"
tokio-test = "0.4"
futures = "0.3"

[profile.dev]
opt-level = 1
debug = "line-tables-only"

[workspace]
"#;

/// Writes the package and returns the command that runs its tests, or says what cannot be fetched.
pub(crate) fn prepared(root: &Path) -> Result<Result<Command, String>> {
    let package = Package::begin(root, "tokio", MANIFEST, include_str!("shim.txt"))?;
    let tests = match package.source_of("tokio")? {
        Ok(folder) => folder.join("tests"),
        Err(why) => return Ok(Err(why)),
    };
    let unknown = unknown_files(&tests)?;
    ensure!(
        unknown.is_empty(),
        "tokio's package has tests of TCP or UDP that are neither run nor left out with a reason: {}",
        unknown.join(", ")
    );
    for file in FILES {
        let path = tests.join(file).with_extension("rs");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("tokio's package has no {}", path.display()))?;
        let excluded: Vec<&Excluded> = EXCLUDED.iter().filter(|one| one.file == file).collect();
        for one in &excluded {
            println!("left out: {file}::{}: {}", one.test, one.why);
        }
        let begin = "outside::begin!();\n";
        let text = rewritten(&text, TOKIO, &excluded)? + begin;
        package.write(&format!("tests/{file}.rs"), &text)?;
    }
    Ok(Ok(package.tests()))
}

/// Test files of TCP and UDP that [`FILES`] does not have: a new version of tokio brings them.
fn unknown_files(tests: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(tests).context("tokio's package has no tests")?;
    let mut unknown: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .filter(|name| {
            let ours = ["tcp_", "udp"].iter().any(|prefix| name.starts_with(prefix));
            ours || name == "io_copy_bidirectional"
        })
        .filter(|name| !FILES.contains(&name.as_str()))
        .collect();
    unknown.sort();
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_of_tokio_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tcp_echo.rs", "tcp_news.rs", "udp.rs", "udp_news.rs", "tcp_notes.md"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(unknown_files(folder.path()).unwrap(), ["tcp_news", "udp_news"]);
    }

    #[test]
    fn the_documentation_names_what_is_left_out() {
        let text = include_str!("../../../docs/testing.md");
        for one in &EXCLUDED {
            let name = format!("- `{}::{}`: ", one.file, one.test);
            assert!(text.contains(&name), "docs/testing.md does not say `{name}`");
        }
    }
}
