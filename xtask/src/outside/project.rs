//! The own tests of a project, on our sockets.
//!
//! They are taken from its published package when they are run, and nothing of them is kept: in a
//! package below the target folder, their imports name our sockets.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::registry;
use crate::{session, tree};

/// A project with tests that run on our sockets.
pub(crate) struct Project {
    pub(super) name: &'static str,
    /// The manifest's features and dependencies. `PLIMSOLL` is the path of the library.
    pub(super) manifest: &'static str,
    /// The library that the tests use.
    pub(super) library: &'static str,
    /// The test files.
    pub(super) files: &'static [&'static str],
    /// How the names of those files of `tests/` begin that are about sockets.
    pub(super) prefixes: &'static [&'static str],
    /// The files among them that are not run.
    pub(super) not_run: &'static [&'static str],
    pub(super) excluded: &'static [Excluded],
    /// Pairs of a text on one line and its replacement.
    pub(super) replacements: &'static [(&'static str, &'static str)],
    /// The end of each file.
    pub(super) end: &'static str,
    /// Words for `cargo test`.
    pub(super) words: &'static [&'static str],
}

/// A test that is left out.
pub(super) struct Excluded {
    /// The name of its file, without the extension.
    pub(super) file: &'static str,
    pub(super) test: &'static str,
    pub(super) why: &'static str,
}

/// The rest of a manifest.
const MANIFEST: &str = r#"[package]
name = "outside"
version = "0.0.0"
edition = "2021"
publish = false

[profile.dev]
opt-level = 1
debug = "line-tables-only"

[workspace]
"#;

impl Project {
    /// Writes the package and returns the command that runs its tests, or says what cannot be
    /// fetched.
    pub(crate) fn prepared(&self, root: &Path) -> Result<Result<Command, String>> {
        let outside = session::cargo_target(root).join("outside");
        let folder = outside.join(self.name);
        let write = |path: &str, text: &str| tree::write(&folder.join(path), text);
        let plimsoll = root.join("crates/plimsoll").display().to_string();
        let manifest = self.manifest.replace("PLIMSOLL", &plimsoll);
        write("Cargo.toml", &(MANIFEST.to_owned() + &manifest))?;
        write("src/lib.rs", self.library)?;
        // The versions of the repository, as far as they go.
        write("Cargo.lock", &fs::read_to_string(root.join("Cargo.lock"))?)?;
        let source = match registry::dependency(&folder, self.name)? {
            Ok(package) => registry::folder_of(&package)?,
            Err(why) => return Ok(Err(why)),
        };
        let unknown = self.unknown_files(&source)?;
        ensure!(
            unknown.is_empty(),
            "{}'s package has tests that are neither run nor left out with a reason: {}",
            self.name,
            unknown.join(", ")
        );
        for file in self.files {
            let text = fs::read_to_string(source.join(file))
                .with_context(|| format!("{}'s package has no {file}", self.name))?;
            let name = file.rsplit('/').next().unwrap_or(file);
            write(&format!("tests/{name}"), &self.rewritten(name, &text)?)?;
        }
        let mut command = Command::new("cargo");
        command.args(["test", "--no-fail-fast", "--tests"]).args(self.words).current_dir(&folder);
        command.env("CARGO_TARGET_DIR", outside.join("build"));
        Ok(Ok(command))
    }

    /// Files of `tests/` that are not known: a new version brings them.
    fn unknown_files(&self, source: &Path) -> Result<Vec<String>> {
        let entries = fs::read_dir(source.join("tests")).context("the package has no tests")?;
        let mut unknown: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".rs") && !self.not_run.contains(&name.as_str()))
            .filter(|name| self.prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .filter(|name| self.files.iter().all(|file| *file != format!("tests/{name}")))
            .collect();
        unknown.sort();
        Ok(unknown)
    }

    /// The text of a test file with its imports replaced, and without the excluded tests.
    fn rewritten(&self, file: &str, text: &str) -> Result<String> {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            let changed = self.replacements.iter();
            lines.push(changed.fold(line.to_owned(), |line, (from, to)| line.replace(from, to)));
        }
        for one in self.excluded.iter().filter(|one| file.strip_suffix(".rs") == Some(one.file)) {
            println!("left out: {}::{}: {}", one.file, one.test, one.why);
            let head = format!("fn {}(", one.test);
            let at = lines.iter().position(|line| line.contains(&head));
            let mut at = at.with_context(|| format!("{file} has no test {}", one.test))?;
            while at > 0 && lines[at - 1].trim_start().starts_with("#[") {
                at -= 1;
            }
            lines.insert(at, "#[cfg(any())]".to_owned());
        }
        Ok(lines.join("\n") + "\n" + self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QUINN, TOKIO};
    use super::*;

    #[test]
    fn a_new_file_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        for name in ["tcp_echo", "tcp_news", "udp_news", "many_connections", "post_quantum"] {
            fs::write(folder.path().join(format!("tests/{name}.rs")), "").unwrap();
        }
        fs::write(folder.path().join("tests/tcp_notes.md"), "").unwrap();
        assert_eq!(TOKIO.unknown_files(folder.path()).unwrap(), ["tcp_news.rs", "udp_news.rs"]);
        let unknown = QUINN.unknown_files(folder.path()).unwrap();
        assert_eq!(unknown, ["tcp_echo.rs", "tcp_news.rs", "udp_news.rs"]);
    }

    #[test]
    fn the_documentation_names_what_is_left_out() {
        let text = include_str!("../../../docs/testing.md");
        for project in [TOKIO, QUINN] {
            let tests = project.excluded.iter().map(|one| format!("{}::{}", one.file, one.test));
            for name in tests.chain(project.not_run.iter().map(ToString::to_string)) {
                assert!(text.contains(&format!("- `{name}`: ")), "docs/testing.md lacks `{name}`");
            }
        }
    }

    #[test]
    fn imports_change_and_what_is_excluded_is_left_out() {
        let excluded = &[Excluded { file: "tcp_echo", test: "one", why: "because" }];
        let tokio = Project { excluded, ..TOKIO };
        let text = "use tokio::net::{TcpListener, TcpStream};\nuse std::{net, thread};\n\
                    use std::net::SocketAddr;\n\n#[test]\n#[ignore]\nfn one() {}\n";
        let expected = "use plimsoll::net::{TcpListener, TcpStream};\n\
                        use outside::std_net as net;\nuse std::thread;\nuse std::net::SocketAddr;\n\
                        \n#[cfg(any())]\n#[test]\n#[ignore]\nfn one() {}\noutside::begin!();\n";
        assert_eq!(tokio.rewritten("tcp_echo.rs", text).unwrap(), expected);
        assert!(tokio.rewritten("tcp_echo.rs", "fn two() {}").is_err());
    }

    #[test]
    fn a_file_of_quinns_crate_becomes_one_outside_of_it() {
        let text = "use std::net::{SocketAddr, UdpSocket};\nuse crate::runtime::TokioRuntime;\n\
                    use super::{ClientConfig, Endpoint, EndpointConfig};\n\
                    let config = crate::ClientConfig::new();\n";
        let expected = "use std::net::{SocketAddr};\nuse outside::{Endpoint, UdpSocket};\n\
                        use quinn::TokioRuntime;\nuse quinn::{ClientConfig, EndpointConfig};\n\
                        let config = quinn::ClientConfig::new();\n";
        assert_eq!(QUINN.rewritten("tests.rs", text).unwrap(), expected);
    }
}
