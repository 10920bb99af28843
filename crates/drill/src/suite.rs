//! Running script files, one or many at a time.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant as Clock;

use crate::config::Config;
use crate::embedded::EmbeddedHost;
use crate::host::Host;
use crate::kernel::KernelHost;
use crate::lang::{self, Defines, Release};
use crate::report::{Report, Status};
use crate::run::{self, Traces};

/// Where the kernel says which release it is.
const OS_RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The longest script that is read.
const MAX_SCRIPT: u64 = 4 << 20;

/// What scripts run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackKind {
    /// The stack of this project with a virtual clock.
    #[default]
    Embedded,
    /// The kernel of this machine, in a network namespace of its own.
    Kernel,
}

/// How scripts are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What they run on.
    pub stack: StackKind,
    /// Options of the command line, which win over those of a script: name and value.
    pub options: Vec<(String, Option<String>)>,
}

/// Finds the scripts that `paths` name: files as they are, and what is called `*.pkt` in folders,
/// in order of their names.
///
/// # Errors
/// If a path cannot be read, or is a folder without scripts; the text names it.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        collect(path, &mut files, 0)?;
        if files.len() == before {
            return Err(format!("{}: no script (*.pkt) is in this folder", path.display()));
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>, depth: u8) -> Result<(), String> {
    if depth > 32 {
        return Err(format!("{}: folders are nested too deeply", folder.display()));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries: Result<Vec<_>, std::io::Error> =
        std::fs::read_dir(folder).map_err(failed)?.collect();
    let mut paths: Vec<PathBuf> =
        entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files, depth + 1)?;
        } else if path.extension().is_some_and(|ending| ending == "pkt") {
            files.push(path);
        }
    }
    Ok(())
}

/// Runs one file.
pub fn run_file(path: &Path, options: &Options) -> Report {
    let file = path.display().to_string();
    let start = Clock::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| load_and_run(path, &file, options)));
    let mut report = outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "no words".to_owned());
        Report::unrun(&file, Status::Failed, format!("panic: {}", text.replace('\n', " ")))
    });
    report.ms = start.elapsed().as_secs_f64() * 1000.0;
    report
}

fn load_and_run(path: &Path, file: &str, options: &Options) -> Report {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => return Report::unrun(file, Status::Error, error),
    };
    run_text(file, &text, path.parent(), options)
}

fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    // What is no regular file has no length that could be looked at before.
    let read = file.take(MAX_SCRIPT + 1).read_to_string(&mut text);
    match read {
        Err(error) => Err(error.to_string()),
        Ok(len) if len as u64 > MAX_SCRIPT => Err("the file is too long for a script".to_owned()),
        Ok(_) => Ok(text),
    }
}

/// Runs the text of a script that is called `file`. `folder` is where its helpers are looked for.
pub fn run_text(file: &str, text: &str, folder: Option<&Path>, options: &Options) -> Report {
    let mut given = Config::default();
    for (name, value) in &options.options {
        if let Err(error) = given.apply(name, value.as_deref()) {
            return Report::unrun(file, Status::Error, error);
        }
    }
    let mut defines = Defines::new();
    for (name, value) in &given.defines {
        defines.set(name, value);
    }
    let script = match lang::parse(text, &defines) {
        Ok(script) => script,
        Err(what) => return Report::unreadable(file, text, &what),
    };
    let mut config = Config::default();
    for option in &script.options {
        let applied = config.apply(&option.node.name, option.node.value.as_deref());
        if let Err(error) = applied {
            let what = lang::Diagnostic::new(option.span.clone(), error);
            return Report::unreadable(file, text, &what);
        }
    }
    for (name, value) in &options.options {
        // They have been looked at above.
        let _ = config.apply(name, value.as_deref());
    }
    let network = match config.network() {
        Ok(network) => network,
        Err(error) => return Report::unrun(file, Status::Error, error),
    };
    if let Some(since) = &script.since
        && options.stack == StackKind::Kernel
    {
        match too_old(since.node) {
            Ok(None) => {}
            Ok(Some(why)) => return Report::unrun(file, Status::Differs, why),
            Err(error) => return Report::unrun(file, Status::Error, error),
        }
    }
    let mut host: Box<dyn Host> = match options.stack {
        StackKind::Embedded => match EmbeddedHost::new(&network) {
            Ok(host) => Box::new(host),
            Err(error) => return Report::unrun(file, Status::Error, error.0),
        },
        StackKind::Kernel => match KernelHost::new(network.clone()) {
            Ok(host) => Box::new(host),
            Err(error) => return Report::unrun(file, Status::Skipped, error.0),
        },
    };
    let mut traces = Traces::default();
    let outcome = run::run(&mut *host, &script, &config, &network, folder, &mut traces);
    Report::of(file, text, outcome, &traces)
}

/// Why the kernel of this machine is expected to differ from a script that states what Linux does
/// from `needed` on.
fn too_old(needed: Release) -> Result<Option<String>, String> {
    let text = std::fs::read_to_string(OS_RELEASE).map_err(|error| {
        format!("the script needs Linux {needed}, and {OS_RELEASE} cannot be read: {error}")
    })?;
    let this = Release::of_kernel(&text).ok_or_else(|| {
        format!("the script needs Linux {needed}, and `{}` is no release", text.trim())
    })?;
    let why = || format!("expected to differ (needs Linux {needed}, this is {this})");
    Ok((this < needed).then(why))
}

/// Runs files, up to `jobs` at a time. `told` hears of each, in the order of the list.
pub fn run_all(
    files: &[PathBuf],
    options: &Options,
    jobs: usize,
    told: &mut dyn FnMut(&Report),
) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut done: Vec<Option<Report>> = files.iter().map(|_| None).collect();
    let mut reports = Vec::with_capacity(files.len());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, files.len().max(1)) {
            let (next, send) = (&next, send.clone());
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = files.get(at) else { break };
                    if send.send((at, run_file(path, options))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (at, report) in receive {
            done[at] = Some(report);
            while let Some(report) = done.get_mut(reports.len()).and_then(Option::take) {
                told(&report);
                reports.push(report);
            }
        }
    });
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_for_a_newer_kernel_is_expected_to_differ() {
        let text = "// A call that no stack answers so.\n// since 999.0\n0 close(9) = 7\n";
        let run = |stack| {
            let options = Options { stack, ..Options::default() };
            run_text("a.pkt", text, None, &options)
        };
        let report = run(StackKind::Kernel);
        assert_eq!(report.status, Status::Differs);
        let summary = report.summary();
        let start = "differs a.pkt: expected to differ (needs Linux 999.0, this is ";
        assert!(summary.starts_with(start), "{summary}");
        let totals = crate::report::totals(&[report]);
        let expected = "1 script: 0 passed, 0 failed, 0 skipped, 0 in error, 1 expected to differ";
        assert_eq!(totals, expected);
        assert_ne!(run(StackKind::Embedded).status, Status::Differs, "it is run here");
    }

    #[test]
    fn a_kernel_that_is_new_enough_is_held_to_the_script() {
        let oldest = Release { major: 2, minor: 6 };
        assert_eq!(too_old(oldest), Ok(None));
    }
}
