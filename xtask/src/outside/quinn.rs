//! quinn's own tests, on our UDP sockets.
//!
//! quinn takes any socket that is a `quinn::AsyncUdpSocket`, and its own tests say what it expects
//! of one. They are taken from quinn's published package, in the version that our feature `quinn`
//! uses, when they are run, and nothing of them is kept. One of the two files is part of quinn's
//! crate: it becomes a test from outside, which it can be since it uses nothing that is private.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::package::Package;
use super::rewrite::{Excluded, QUINN, rewritten};

/// The test files in quinn's package, and their names here.
const FILES: [(&str, &str); 2] =
    [("src/tests.rs", "tests"), ("tests/many_connections.rs", "many_connections")];

/// Files of `tests/` that are not run.
const NO_SOCKETS: [&str; 1] = ["post_quantum.rs"];

/// Tests that are left out.
const EXCLUDED: [Excluded; 0] = [];

const MANIFEST: &str = r#"[package]
name = "outside"
version = "0.0.0"
edition = "2021"
publish = false

[features]
default = ["rustls-ring"]
rustls-ring = []
rustls-aws-lc-rs = []

[dependencies]
plimsoll = { path = "PLIMSOLL", features = ["quinn"] }
quinn = { version = "0.11", default-features = false, features = ["runtime-tokio", "rustls-ring"] }

[dev-dependencies]
bytes = "1"
crc = "3"
proto = { package = "quinn-proto", version = "0.11", default-features = false }
rand = "0.10"
rcgen = { version = "0.14", default-features = false, features = ["crypto", "pem", "ring"] }
rustls = { version = "0.23", default-features = false, features = ["std"] }
tokio = { version = "1", features = ["full"] }
tracing = "0.1"
tracing-futures = { version = "0.2", default-features = false, features = ["std-future"] }
tracing-subscriber = { version = "0.3", default-features = false, features = ["env-filter", "fmt"] }

[profile.dev]
opt-level = 1
debug = "line-tables-only"

[workspace]
"#;

/// Writes the package and returns the command that runs its tests, or says what cannot be fetched.
pub(crate) fn prepared(root: &Path) -> Result<Result<Command, String>> {
    let package = Package::begin(root, "quinn", MANIFEST, include_str!("quinn_shim.txt"))?;
    let source = match package.source_of("quinn")? {
        Ok(folder) => folder,
        Err(why) => return Ok(Err(why)),
    };
    let unknown = unknown_files(&source)?;
    ensure!(
        unknown.is_empty(),
        "quinn's package has tests that are neither run nor left out with a reason: {}",
        unknown.join(", ")
    );
    for (path, name) in FILES {
        let text = fs::read_to_string(source.join(path))
            .with_context(|| format!("quinn's package has no {path}"))?;
        let excluded: Vec<&Excluded> = EXCLUDED.iter().filter(|one| one.file == name).collect();
        for one in &excluded {
            println!("left out: {name}::{}: {}", one.test, one.why);
        }
        package.write(&format!("tests/{name}.rs"), &rewritten(&text, QUINN, &excluded)?)?;
    }
    let mut command = package.tests();
    // quinn leaves out by default what takes seconds. Some of its tests bound the time of a
    // handshake, so none runs beside another.
    command.args(["--", "--include-ignored", "--test-threads=1"]);
    Ok(Ok(command))
}

/// Files of `tests/` that [`FILES`] does not have: a new version of quinn brings them.
fn unknown_files(source: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(source.join("tests")).context("quinn's package has no tests")?;
    let mut unknown: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".rs") && !NO_SOCKETS.contains(&name.as_str()))
        .filter(|name| FILES.iter().all(|(path, _)| *path != format!("tests/{name}")))
        .collect();
    unknown.sort();
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_of_quinn_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        for name in ["many_connections.rs", "post_quantum.rs", "few_connections.rs", "notes.md"] {
            fs::write(folder.path().join("tests").join(name), "").unwrap();
        }
        assert_eq!(unknown_files(folder.path()).unwrap(), ["few_connections.rs"]);
    }

    #[test]
    fn the_documentation_names_what_is_left_out() {
        let text = include_str!("../../../docs/testing.md");
        let tests = EXCLUDED.iter().map(|one| format!("- `{}::{}`: ", one.file, one.test));
        for name in tests.chain(NO_SOCKETS.iter().map(|file| format!("- `{file}`: "))) {
            assert!(text.contains(&name), "docs/testing.md does not say `{name}`");
        }
    }
}
