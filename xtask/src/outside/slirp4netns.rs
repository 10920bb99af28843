//! The test scripts of slirp4netns, on `plimsoll run --attach` under its name.
//!
//! They are in the source of Debian's package, which is fetched into the target folder when they
//! are run, and nothing of them is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{packages, session, shell, tree};

/// The file with the source of version 1.2.0, the folder in it, and the file's SHA-256.
const ARCHIVE: &str = "slirp4netns_1.2.0.orig.tar.gz";
const FOLDER: &str = "slirp4netns-1.2.0";
const SHA256: &str = "b584edde686d3cfbac210cbdb93c4b0ba5d8cc0a6a4d92b9dfc3c5baec99c727";

/// Scripts that are not run, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("dhcp", "there is no DHCP server"),
    ("disable-dns", "it asks for libslirp's version, and expects silence in place of a refusal"),
    ("macaddress", "a TUN device has no such address"),
    ("outbound-addr", "the host's routing chooses the address"),
    ("sandbox", "it looks for slirp4netns's own capabilities and folders"),
];

/// Runs each script in new namespaces, with which all that it has started ends.
const RUN: &str = r#"
for test in "$@"; do
    if timeout 120 unshare --net --pid --fork --kill-child --mount-proc \
        sh -c 'ip link set lo up && exec bash "$0"' "$PWD/tests/$test" >"$test.log" 2>&1; then
        echo "test $test ... ok"
    else
        tail -n 30 "$test.log"
        echo "test $test ... FAILED"
    fi
done"#;

/// Fetches the scripts and returns the command that runs them, or says what is missing. The program
/// must have been built.
pub(crate) fn prepared(root: &Path) -> Result<Result<Command, String>> {
    let ready = packages::kernel_tests(&["ip", "ncat", "jq"]);
    if let Err(why) = ready {
        return Ok(Err(why));
    }
    let place = std::path::absolute(session::cargo_target(root).join("outside/slirp4netns"))?;
    fs::create_dir_all(&place).context("making the folder of slirp4netns")?;
    if let Err(why) = fetched(&place)? {
        return Ok(Err(why));
    }
    let wrapper = place.join("bin/slirp4netns");
    let program = std::path::absolute(session::plimsoll_program(root))?;
    let text = format!("#!/bin/sh\nexec '{}' run --attach \"$@\"\n", program.display());
    tree::write(&wrapper, text)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let folder = place.join(FOLDER);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command.args(["-c", RUN, "bash"]).args(scripts(&folder)?).current_dir(&folder);
    command.env("PATH", format!("{}:{path}", place.join("bin").display()));
    Ok(Ok(command))
}

/// The scripts to be run.
fn scripts(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder.join("tests")).context("the source has no tests")?;
    let mut all: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("test-"))
        .collect();
    all.sort();
    for (name, why) in LEFT_OUT {
        let file = format!("test-slirp4netns-{name}.sh");
        let place = all.iter().position(|other| *other == file);
        all.remove(place.with_context(|| format!("the source has no {file}"))?);
        println!("left out: {name}: {why}");
    }
    Ok(all)
}

/// Fetches the source from Debian's mirror that apt uses, unless it is there, and unpacks it. Says
/// why it cannot be had.
fn fetched(place: &Path) -> Result<Result<(), String>> {
    let archive = place.join(ARCHIVE);
    if !is_right(&archive) {
        let text = run(place, "apt-get", &["download", "--print-uris", "slirp4netns"])?;
        let address = text.split('\'').nth(1).and_then(|uri| Some(uri.rsplit_once('/')?.0));
        let Some(address) = address else { return Ok(Err("apt has no slirp4netns".into())) };
        let words = ["download-file", &format!("{address}/{ARCHIVE}"), ARCHIVE];
        if let Err(error) = run(place, "/usr/lib/apt/apt-helper", &words) {
            return Ok(Err(format!("Debian's source of slirp4netns cannot be fetched: {error:#}")));
        }
        ensure!(is_right(&archive), "{} has another SHA-256 than {SHA256}", archive.display());
    }
    run(place, "tar", &["--extract", "--file", ARCHIVE])?;
    Ok(Ok(()))
}

/// Whether the file has the right SHA-256.
fn is_right(archive: &Path) -> bool {
    let sum = Command::new("sha256sum").arg(archive).stderr(Stdio::null()).output();
    sum.is_ok_and(|sum| sum.stdout.starts_with(SHA256.as_bytes()))
}

/// Runs a program in a folder, and returns its output.
fn run(place: &Path, program: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let out = shell::output(command.args(words).current_dir(place), shell::FETCH_LIMIT)?;
    match out {
        Some(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        Some(out) => bail!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim()),
        None => bail!("{program} did not end in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_what_is_left_out() {
        let text = include_str!("../../../docs/testing.md");
        for (name, _) in LEFT_OUT {
            assert!(text.contains(&format!("- `{name}`: ")), "docs/testing.md lacks `{name}`");
        }
    }
}
