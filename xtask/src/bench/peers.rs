//! `bench peers`: builds a server on each stack that is compared, and has them compared.
//!
//! The servers are programs of ours in `bench/peers`, which is no part of the workspace: the stacks
//! are no dependencies of the library. Each is built from the registry of its language, with the
//! versions that are committed; lwIP, and the programs that forward to the kernel's own server, are
//! Debian's packages, which are installed if they are missing and that is possible. A stack of
//! somebody else's that cannot be had here is named and left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Error, Result, bail};

use super::value;
use crate::shell::quiet;
use crate::{packages, session, shell};

/// What the comparison runs beside the servers.
const PROGRAMS: [&str; 1] = ["ip"];

/// A stack, by the name of its server's folder, or a program that forwards, by its own.
struct Stack {
    name: &'static str,
    build: fn(&Place) -> Result<Result<PathBuf, String>>,
    /// What follows if it cannot be built.
    without_it: Without,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    /// There is nothing to compare, or nothing to compare it with: a defect of this repository.
    Fail,
    /// The others are compared.
    LeaveOut,
}

const fn own(name: &'static str) -> Stack {
    Stack { name, build: rust, without_it: Without::Fail }
}

const fn other(name: &'static str, build: fn(&Place) -> Result<Result<PathBuf, String>>) -> Stack {
    Stack { name, build, without_it: Without::LeaveOut }
}

const STACKS: [Stack; 9] = [
    own("ours"),
    own(KERNEL),
    other("gvisor", go),
    other("smoltcp", rust),
    other("netstack-smoltcp", rust),
    other("ipstack", rust),
    other("lwip", c),
    other("pasta", forwarder),
    other("slirp4netns", forwarder),
];

/// The stack whose server is behind the programs that forward.
pub(super) const KERNEL: &str = "kernel";

/// Where a server is built.
pub(super) struct Place {
    name: &'static str,
    /// The folder of all servers' sources.
    sources: PathBuf,
    /// The folder for what is built.
    target: PathBuf,
}

impl Place {
    pub(super) fn new(root: &Path, name: &'static str) -> Result<Place> {
        let target = std::path::absolute(session::cargo_target(root).join("peers"))?;
        Ok(Place { name, sources: root.join("bench/peers"), target })
    }

    fn program(&self) -> String {
        format!("peer-{}", self.name)
    }
}

/// Builds what is compared, and compares it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&PROGRAMS).map_err(Error::msg)?;
    let (chosen, rest) = chosen(args.get(1..).unwrap_or(&[]))?;
    let mut words = vec!["peers".to_owned()];
    for stack in chosen {
        let place = Place::new(root, stack.name)?;
        println!("building {}", place.program());
        match (stack.build)(&place)? {
            Ok(program) => {
                let program = program.to_str().context("the path of the repository is text")?;
                words.extend(["--server".to_owned(), format!("{}={program}", stack.name)]);
            }
            Err(why) if stack.without_it == Without::Fail => bail!("{}: {why}", place.program()),
            Err(why) => {
                println!("{} is left out: {why}", stack.name);
                words.extend(["--missing".to_owned(), format!("{}={why}", stack.name)]);
            }
        }
    }
    words.extend(rest);
    session::bench(root, &words)
}

/// The stacks that `--with` names, or all, and the other words. The kernel is always among them:
/// there would be no ratios.
fn chosen(words: &[String]) -> Result<(Vec<&'static Stack>, Vec<String>)> {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--with" => names.push(value(word, &mut rest)?.as_str()),
            _ => others.push(word.clone()),
        }
    }
    let known = || STACKS.iter().map(|stack| stack.name).collect::<Vec<_>>();
    if let Some(name) = names.iter().find(|name| !known().contains(name)) {
        bail!("there is no stack {name}; the stacks: {}", known().join(" "));
    }
    let is_chosen =
        |stack: &&Stack| names.is_empty() || stack.name == KERNEL || names.contains(&stack.name);
    Ok((STACKS.iter().filter(is_chosen).collect(), others))
}

/// Runs a compiler. Says why it has failed, in its last line.
fn built(command: &mut Command, program: PathBuf) -> Result<Result<PathBuf, String>> {
    let Some(out) = shell::output(command, shell::FETCH_LIMIT)? else {
        return Ok(Err("it was not built in time".to_owned()));
    };
    if out.status.success() {
        return Ok(Ok(program));
    }
    let said = String::from_utf8_lossy(&out.stderr);
    println!("{}", said.trim());
    Ok(Err(format!("it cannot be built: {}", said.trim().lines().last().unwrap_or_default())))
}

/// A server in Rust: a package of the workspace in `bench/peers`.
pub(super) fn rust(place: &Place) -> Result<Result<PathBuf, String>> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--quiet", "-p", &place.program()]);
    command.current_dir(&place.sources).env("CARGO_TARGET_DIR", &place.target);
    built(&mut command, place.target.join("release").join(place.program()))
}

/// A server in Go: a module of its own.
pub(super) fn go(place: &Place) -> Result<Result<PathBuf, String>> {
    if !quiet("go", &["version"]) {
        return Ok(Err("there is no Go compiler; install one, from version 1.25 on".to_owned()));
    }
    let program = place.target.join(place.program());
    let mut command = Command::new("go");
    command.args(["build", "-mod=readonly", "-trimpath", "-o"]).arg(&program).arg(".");
    built(command.current_dir(place.sources.join(place.name)), program)
}

/// A program that forwards, which is there already: what is built is the server behind it.
fn forwarder(place: &Place) -> Result<Result<PathBuf, String>> {
    if let Err(why) = packages::program(place.name) {
        return Ok(Err(why));
    }
    let (sources, target) = (place.sources.clone(), place.target.clone());
    rust(&Place { name: KERNEL, sources, target })
}

/// The server in C, on lwIP as the system has it.
fn c(place: &Place) -> Result<Result<PathBuf, String>> {
    if let Err(why) = packages::lwip() {
        return Ok(Err(why));
    }
    if !quiet("cc", &["--version"]) {
        return Ok(Err("there is no C compiler; Debian's package of one is gcc".to_owned()));
    }
    std::fs::create_dir_all(&place.target).context("making the folder of the servers")?;
    let program = place.target.join(place.program());
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-I", packages::LWIP_HEADERS, "-o"]).arg(&program);
    command.args(["main.c", "-llwip"]).current_dir(place.sources.join(place.name));
    built(&mut command, program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Result<(Vec<&'static str>, String)> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (stacks, rest) = chosen(&words)?;
        Ok((stacks.iter().map(|stack| stack.name).collect(), rest.join(" ")))
    }

    #[test]
    fn the_kernel_is_always_among_the_chosen() {
        let (stacks, rest) = names("--quick --with smoltcp --only bulk").unwrap();
        assert_eq!(
            (stacks.as_slice(), &*rest),
            (&["kernel", "smoltcp"][..], "--quick --only bulk")
        );
        let all = names("").unwrap().0;
        assert_eq!(all.len(), STACKS.len());
        assert!(names("--with theirs").is_err());
        assert!(names("--with").is_err());
    }

    #[test]
    fn only_stacks_of_others_are_left_out() {
        let needed = STACKS.iter().filter(|stack| stack.without_it == Without::Fail);
        assert_eq!(needed.map(|stack| stack.name).collect::<Vec<_>>(), ["ours", KERNEL]);
    }

    /// Every server has its folder, and what forwards its package.
    #[test]
    fn every_stack_has_its_sources() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers");
        let forwards = |stack: &&Stack| ["pasta", "slirp4netns"].contains(&stack.name);
        for stack in STACKS.iter().filter(|stack| !forwards(stack)) {
            assert!(sources.join(stack.name).is_dir(), "{}", stack.name);
        }
    }
}
