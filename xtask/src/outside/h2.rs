//! h2spec and h2load against a server of HTTP/2 on the kernel's sockets and on ours.
//!
//! h2spec is a program in Go. It is built from its published module when it is run, with the
//! versions below, which the compiler of Debian 12 can build as well as later ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{packages, session, shell};

/// h2spec has no list of what it needs of its own.
const GO_MOD: &str = "module outside

go 1.17

require (
	github.com/fatih/color v1.15.0
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.19 // indirect
	github.com/spf13/cobra v1.7.0
	github.com/spf13/pflag v1.0.5 // indirect
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.17.0
	golang.org/x/sys v0.13.0 // indirect
	golang.org/x/text v0.13.0 // indirect
)
";

/// Builds what is needed and returns the command that runs the comparison, or says what is missing.
pub(crate) fn prepared(root: &Path) -> Result<Result<Command, String>> {
    if let Err(why) = packages::kernel_tests(&["ip", "go", "h2load"]) {
        return Ok(Err(why));
    }
    let h2spec = match h2spec(root)? {
        Ok(program) => program,
        Err(why) => return Ok(Err(why)),
    };
    let built = session::build_release(root, &["plimsoll-cli", "plimsoll-interop"])?;
    // Apart from these, so that they are built without the features of the web server.
    session::build_release(root, &["plimsoll-web"])?;
    let mut command = Command::new(built.join("plimsoll-interop"));
    command.args(["h2", "--h2spec"]).arg(h2spec);
    Ok(Ok(command))
}

/// The path of h2spec, which is built if need be. Says why if it cannot be.
fn h2spec(root: &Path) -> Result<Result<PathBuf, String>> {
    let folder = session::cargo_target(root).join("outside/h2spec");
    let (modules, program) = (folder.join("go.mod"), folder.join("h2spec"));
    let current = fs::read_to_string(&modules).is_ok_and(|before| before == GO_MOD);
    if current && program.exists() {
        return Ok(Ok(std::path::absolute(program)?));
    }
    fs::create_dir_all(&folder).context("making the folder of h2spec")?;
    fs::write(&modules, GO_MOD).context("writing go.mod")?;
    let mut command = Command::new("go");
    command.args(["build", "-mod=mod", "-o", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec"]);
    let out = shell::output(command.current_dir(&folder), shell::FETCH_LIMIT)?;
    match out {
        Some(out) if out.status.success() => Ok(Ok(std::path::absolute(program)?)),
        Some(out) => {
            let said = String::from_utf8_lossy(&out.stderr);
            Ok(Err(format!("h2spec cannot be fetched and built: {}", said.trim())))
        }
        None => Ok(Err("h2spec was not fetched and built in time".into())),
    }
}
