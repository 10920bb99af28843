//! `cargo xtask conformance`: a public suite of packetdrill scripts with the project's own runner
//! and with the original tool, side by side; or any scripts with the original tool on this stack.
//!
//! The scripts and the tool are not part of the repository and nothing of them is copied into it:
//! their places are arguments, and what is written is names and numbers. Each script that does not
//! pass must have a cause in `docs/results/conformance-causes.toml`, and each on which the two
//! disagree an explanation; otherwise the command fails.

mod causes;
mod original;
pub(crate) mod own;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::session::build_release;

const USAGE: &str = "usage: cargo xtask conformance --suite DIR [--packetdrill PATH] [--kernel]
       cargo xtask conformance --packetdrill PATH [--NAME=VALUE]... FILE...
  --suite DIR          the folder with the scripts, such as gtests/net/tcp of google/packetdrill
  --packetdrill PATH   the original tool, built: it runs the scripts on this stack too
  --kernel             as root: both also run the scripts on this machine's kernel
  --NAME=VALUE         passed on to the original tool; addresses that neither these options nor
                       the script give are those of documentation";

const REPORT: &str = "docs/results/conformance.md";
const CAUSES: &str = "docs/results/conformance-causes.toml";

/// How the suite's own driver runs a script, for IPv4 and for what is IPv6 by its name. What a
/// script says itself counts: some cookies that scripts expect belong to addresses that they give.
const OPTIONS_4: [&str; 9] = [
    "--ip_version=ipv4",
    "--local_ip=192.168.0.1",
    "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0",
    "--remote_ip=192.0.2.1",
    "--define=TFO_COOKIE=3021b9d889017eeb",
    "--define=CODE=host_unreachable",
    "--define=CMSG_LEVEL_IP=SOL_IP",
    "--define=CMSG_TYPE_RECVERR=IP_RECVERR",
];
const OPTIONS_6: [&str; 8] = [
    "--ip_version=ipv6",
    "--mtu=1520",
    "--local_ip=fd3d:0a0b:17d6::1",
    "--gateway_ip=fd3d:0a0b:17d6:8888::1",
    "--remote_ip=fd3d:fa7b:d17d::1",
    "--define=TFO_COOKIE=c1d1e9742a47a9bc",
    "--define=CMSG_LEVEL_IP=SOL_IPV6",
    "--define=CMSG_TYPE_RECVERR=IPV6_RECVERR",
];

/// The options with which a script of the suite runs.
fn options(suite: &Path, script: &str) -> Vec<String> {
    let six = script.ends_with("v6.pkt");
    let text = fs::read_to_string(suite.join(script)).unwrap_or_default();
    unsaid(&text, if six { &OPTIONS_6 } else { &OPTIONS_4 })
}

/// The words of a script's option lines.
fn option_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with("--")).flat_map(str::split_whitespace)
}

/// Those of `options` that a script does not give itself. Defines add up, and the version of IP is
/// what addresses are checked against.
fn unsaid(text: &str, options: &[&str]) -> Vec<String> {
    let name = |option: &str| option.split('=').next().unwrap_or(option).to_string();
    let said = |option: &str| option_words(text).any(|word| name(word) == name(option));
    let always = |option: &str| ["--define", "--ip_version"].contains(&name(option).as_str());
    let left = options.iter().filter(|option| always(option) || !said(option));
    left.map(|option| (*option).to_string()).collect()
}

/// How a script went.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) passed: bool,
    /// The kernel is older than the one whose behaviour the script states: it was not run.
    pub(crate) differs: bool,
    /// Why not, in one line.
    pub(crate) said: String,
}

/// How every script went, by its path below the suite.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// One way to run the suite.
struct Column {
    title: &'static str,
    verdicts: Verdicts,
}

#[derive(Default)]
struct Options {
    suite: PathBuf,
    tool: Option<PathBuf>,
    kernel: bool,
    passed_on: Vec<String>,
    files: Vec<PathBuf>,
}

/// The command.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    let options = parse(words)?;
    if !options.files.is_empty() {
        return original::show(root, &options);
    }
    let scripts = scripts(&options.suite)?;
    if scripts.is_empty() {
        bail!("there are no scripts in {}", options.suite.display());
    }
    let runner = build_release(root, &["plimsoll-cli"])?.join("plimsoll");
    let of = |script: &str| self::options(&options.suite, script);
    let mut ours = None;
    let mut columns = Vec::new();
    let mut column = |title, verdicts| columns.push(Column { title, verdicts });
    column("own runner", own::run(&runner, &options.suite, &scripts, false)?);
    if let Some(tool) = &options.tool {
        let library = original::library(root)?;
        let on_stack = original::Target::Stack(library);
        let verdicts = original::run(tool, &options.suite, &scripts, &on_stack, of)?;
        column("original tool", verdicts);
        ours = Some(own_scripts(root, &runner, tool, &on_stack)?);
    }
    if options.kernel {
        let verdicts = own::run(&runner, &options.suite, &scripts, true)?;
        column("own runner on the kernel", verdicts);
    }
    if let (Some(tool), true) = (&options.tool, options.kernel) {
        let on_kernel = original::Target::Kernel;
        let verdicts = original::run(tool, &options.suite, &scripts, &on_kernel, of)?;
        column("original tool on the kernel", verdicts);
    }
    let text =
        fs::read_to_string(root.join(CAUSES)).with_context(|| format!("reading {CAUSES}"))?;
    let causes = causes::Causes::parse(&text).context(CAUSES)?;
    let (mut text, mut missing) = report::write(&scripts, &columns, &causes);
    if let Some([own, original]) = &ours {
        report::own_scripts(&mut text, own, original, &mut missing);
    }
    fs::write(root.join(REPORT), text).with_context(|| format!("writing {REPORT}"))?;
    println!("wrote {REPORT}");
    for line in &missing {
        eprintln!("{line}");
    }
    if !missing.is_empty() {
        bail!("{} entries are missing in {CAUSES}", missing.len());
    }
    Ok(())
}

/// Scripts of this repository that the original tool cannot read, and why.
const NOT_FOR_THE_ORIGINAL: &[(&str, &str)] = &[
    ("accecn/active_open.pkt", ACCURATE_ECN),
    ("accecn/syn_again.pkt", ACCURATE_ECN),
    ("accecn/zero_count.pkt", ACCURATE_ECN),
    ("pmtu/reassembly_time_is_ignored.pkt", "it has no name for code 1 of ICMP's time exceeded"),
    ("route/rto_min.pkt", NEW_OPTION),
    ("rto/bounds_of_the_socket.pkt", NEW_OPTION),
    ("window/clamp.pkt", NEW_OPTION),
    ("window/clamp_holds.pkt", NEW_OPTION),
    ("window/clamp_of_a_listener.pkt", NEW_OPTION),
];

const ACCURATE_ECN: &str = "it has no names for the fields of Accurate ECN in TCP_INFO";
const NEW_OPTION: &str = "it has no name for a socket option in it";

/// The scripts of this repository with both.
fn own_scripts(
    root: &Path,
    runner: &Path,
    tool: &Path,
    on_stack: &original::Target,
) -> Result<[Verdicts; 2]> {
    let folder = root.join(crate::drills::FOLDER);
    let mut scripts = scripts(&folder)?;
    for (script, _) in NOT_FOR_THE_ORIGINAL {
        let place = scripts.iter().position(|other| other == script);
        scripts.remove(place.with_context(|| format!("NOT_FOR_THE_ORIGINAL: no {script}"))?);
    }
    let own = crate::drills::run(root, runner, false)?.verdicts;
    let options = |script: &str| {
        let text = fs::read_to_string(folder.join(script)).unwrap_or_default();
        original::own_options(&text)
    };
    Ok([own, original::run(tool, &folder, &scripts, on_stack, options)?])
}

fn parse(words: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let (mut suite, mut tool) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--suite" => suite = words.next(),
            "--packetdrill" => tool = words.next(),
            "--kernel" => options.kernel = true,
            option if option.starts_with('-') => options.passed_on.push(word.clone()),
            file => options.files.push(file.into()),
        }
    }
    options.tool = tool.map(fs::canonicalize).transpose().context("the original tool")?;
    match suite {
        Some(suite) if options.files.is_empty() && options.passed_on.is_empty() => {
            options.suite = fs::canonicalize(suite).context("the suite")?;
        }
        None if !options.files.is_empty() && !options.kernel && tool.is_some() => {}
        _ => bail!("{USAGE}"),
    }
    if options.kernel && !rustix::process::geteuid().is_root() {
        bail!("--kernel needs root: each script runs in a network namespace of its own");
    }
    Ok(options)
}

/// Every script below a folder, by its path from there, in order.
pub(crate) fn scripts(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "pkt") {
                found.push(path.strip_prefix(folder)?.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
