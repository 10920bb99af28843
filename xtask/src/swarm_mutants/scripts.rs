//! Packetdrill scripts of shrunk runs: whether one shows a mutant.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::build::Build;
use super::table::Script;

/// Times that the kernel must pass a script: timers of Linux may be late by an eighth of their
/// time, and a script that does not leave them so much passes by chance.
const PASSES: u32 = 4;
/// Times that it may fail, since a busy machine may hold it up.
const FAILURES: u32 = 1;
/// A script that every kernel passes on which scripts can run at all.
const PROBE: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Drilled {
    Passes,
    /// In this line a packet or the result of a call is another one, or did not come.
    Differs(usize),
    /// The stack has panicked, or the script cannot be run. Neither is a packet.
    Broken,
}

/// Runs scripts on mutants, on the stack without and on the kernel.
pub(super) struct Scripts {
    /// Why scripts cannot run on the kernel.
    no_kernel: Option<String>,
}

impl Scripts {
    pub(super) fn new(build: &Build) -> Result<Scripts> {
        Ok(Scripts { no_kernel: ask_kernel(build)? })
    }

    /// Looks for a script that fails on the mutant and passes without: of either end, with the
    /// windows as well where the mutant passes else. The kernel chooses other windows.
    pub(super) fn of(
        &self,
        build: &Build,
        number: usize,
        toml: &str,
        seed: &str,
    ) -> Result<Script> {
        let mut best = Script::None("the shrunk run has no connection".to_owned());
        for host in hosts(&build.read(toml)?) {
            for windows in [false, true] {
                let kind = if windows { "windows.pkt" } else { "pkt" };
                let file = format!("{}.{host}.{kind}", toml.trim_end_matches(".toml"));
                let mut args =
                    vec!["sim", "script", toml, "--seed", seed, "--host", &host, "-o", &file];
                args.extend(windows.then_some("--windows"));
                let script = self.write(build, number, &args, &file)?;
                let windows_matter = script == Script::PassesOnMutant;
                best = best.max(script);
                if best.is_good() {
                    return Ok(best);
                }
                if !windows_matter {
                    break;
                }
            }
        }
        Ok(best)
    }

    /// A script that somebody has written: whether it shows the mutant as the others do.
    pub(super) fn by_hand(&self, build: &Build, number: usize, script: &str) -> Result<Script> {
        let path = build.in_tree(script);
        let file = path.to_str().context("a path that is no text")?;
        let here = drill(build, 0, file)?;
        if here != Drilled::Passes {
            return Ok(Script::FailsHere);
        }
        if let Err(shows_not) = shown_at(here, drill(build, number, file)?) {
            return Ok(shows_not);
        }
        Ok(match &self.no_kernel {
            Some(why) => Script::NotRunOnKernel { file: script.to_owned(), why: why.clone() },
            None if passes_on_kernel(build, file)? => Script::ByHand(script.to_owned()),
            None => Script::FailsOnKernel(script.to_owned()),
        })
    }

    /// Writes a script by the build without a mutant, and runs it.
    fn write(&self, build: &Build, number: usize, args: &[&str], file: &str) -> Result<Script> {
        let written = build.run(0, args)?;
        if !written.status.success() {
            let why = String::from_utf8_lossy(&written.stderr).trim().to_owned();
            let why = why.rsplit("no script: ").next().unwrap_or_default().to_owned();
            return Ok(Script::None(why));
        }
        let line = match shown_at(drill(build, 0, file)?, drill(build, number, file)?) {
            Ok(line) => line,
            Err(script) => return Ok(script),
        };
        // What comes behind shows nothing, and nobody need follow: super-segments of the device
        // that runs scripts may be cut in another way than the packets of the simulated host.
        let short = file.replace(".pkt", ".short.pkt");
        build.write(&short, &up_to(&build.read(file)?, line))?;
        if drill(build, 0, &short)? != Drilled::Passes
            || drill(build, number, &short)? != Drilled::Differs(line)
        {
            return Ok(Script::FailsHere);
        }
        Ok(match &self.no_kernel {
            Some(why) => Script::NotRunOnKernel { file: short, why: why.clone() },
            None if passes_on_kernel(build, &short)? => Script::Good(short),
            None => Script::FailsOnKernel(short),
        })
    }
}

fn drill(build: &Build, number: usize, file: &str) -> Result<Drilled> {
    let out = build.run(number, &["drill", file])?;
    if out.status.success() {
        return Ok(Drilled::Passes);
    }
    let [stdout, stderr] = [&out.stdout, &out.stderr].map(|said| String::from_utf8_lossy(said));
    Ok(verdict(file, &stdout, &stderr))
}

/// What `failed  FILE: line 17: no packet came` says. A stack that panics ends the connection and
/// goes on, so the report of the panic is all that tells.
fn verdict(file: &str, stdout: &str, stderr: &str) -> Drilled {
    let panicked = stderr.contains(" panicked at ");
    let cause = stdout.lines().find_map(|line| {
        line.strip_prefix("failed")?.trim_start().strip_prefix(file)?.strip_prefix(": line ")
    });
    let line = cause.and_then(|cause| cause.split(':').next()?.parse().ok());
    line.filter(|_| !panicked).map_or(Drilled::Broken, Drilled::Differs)
}

/// The line in which a script fails on the mutant, if it does not fail without it up to there.
fn shown_at(here: Drilled, mutant: Drilled) -> Result<usize, Script> {
    match (here, mutant) {
        (Drilled::Passes, Drilled::Passes) => Err(Script::PassesOnMutant),
        (Drilled::Passes, Drilled::Broken) => Err(Script::BreaksMutant),
        (Drilled::Passes, Drilled::Differs(line)) => Ok(line),
        (Drilled::Differs(own), Drilled::Differs(line)) if line < own => Ok(line),
        (Drilled::Differs(_) | Drilled::Broken, _) => Err(Script::FailsHere),
    }
}

/// The script up to this line, which counts from 1.
fn up_to(script: &str, line: usize) -> String {
    script.split_inclusive('\n').take(line).collect()
}

/// Whether the kernel passes, and not by chance.
fn passes_on_kernel(build: &Build, file: &str) -> Result<bool> {
    let (mut passes, mut failures) = (0, 0);
    while passes < PASSES && failures <= FAILURES {
        match build.run(0, &["drill", "--stack", "kernel", file])?.status.success() {
            true => passes += 1,
            false => failures += 1,
        }
    }
    Ok(failures <= FAILURES)
}

/// Why no script can run on the kernel, if none can.
fn ask_kernel(build: &Build) -> Result<Option<String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("scripts on the kernel need root".to_owned()));
    }
    build.write("probe.pkt", PROBE)?;
    let out = build.run(0, &["drill", "--stack", "kernel", "probe.pkt"])?;
    if out.status.success() {
        return Ok(None);
    }
    let said = [out.stderr, out.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let said = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(Some(format!("a script that makes a socket fails there: {said}")))
}

/// The names of both ends of the first flow of a scenario.
fn hosts(scenario: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Flow {
        from: String,
        to: String,
    }
    #[derive(Deserialize)]
    struct Flows {
        flow: Vec<Flow>,
    }
    let flows = toml::from_str::<Flows>(scenario).map(|flows| flows.flow).unwrap_or_default();
    flows.into_iter().next().map_or_else(Vec::new, |flow| vec![flow.from, flow.to])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_packet_or_a_call_shows_a_mutant() {
        let report = "failed  a/1.pkt: line 17: no packet came\nerror: no packet came\n";
        assert_eq!(verdict("a/1.pkt", report, ""), Drilled::Differs(17));
        let panic = "\nthread 'main' (7) panicked at crates/tcp/src/lib.rs:1:1:\n";
        assert_eq!(verdict("a/1.pkt", report, panic), Drilled::Broken);
        for other in [
            "failed  a/1.pkt: panic: index out of bounds\n",
            "error   a/1.pkt: line 17: unknown word\n",
            "failed  b/1.pkt: line 17: no packet came\n",
            "",
        ] {
            assert_eq!(verdict("a/1.pkt", other, ""), Drilled::Broken, "{other}");
        }
    }

    #[test]
    fn a_script_need_not_pass_behind_the_line_that_shows_the_mutant() {
        let (passes, at) = (Drilled::Passes, Drilled::Differs);
        assert_eq!(shown_at(passes.clone(), at(17)), Ok(17));
        assert_eq!(shown_at(at(18), at(17)), Ok(17));
        for mutant in [passes.clone(), Drilled::Broken, at(17), at(18)] {
            assert_eq!(shown_at(at(17), mutant.clone()), Err(Script::FailsHere));
            assert_eq!(shown_at(Drilled::Broken, mutant), Err(Script::FailsHere));
        }
        assert_eq!(shown_at(passes.clone(), passes.clone()), Err(Script::PassesOnMutant));
        assert_eq!(shown_at(passes, Drilled::Broken), Err(Script::BreaksMutant));
    }

    #[test]
    fn a_script_ends_with_the_line_that_shows_the_mutant() {
        assert_eq!(up_to("// x\n0 a\n+0 b\n+0 c\n", 3), "// x\n0 a\n+0 b\n");
        assert_eq!(up_to("0 a\n", 1), "0 a\n");
    }

    #[test]
    fn both_ends_of_the_first_flow() {
        let scenario = "[record]\nseed = 1\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nup = 1\n";
        assert_eq!(hosts(scenario), ["a", "b"]);
        assert!(hosts("limit = \"1s\"").is_empty());
    }
}
