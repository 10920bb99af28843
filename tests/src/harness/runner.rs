//! Runs tests by name, each in a process of its own under a time limit.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{files, process, scope};

/// One test.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Result<()>,
    /// After this it is killed and counts as failed.
    pub(crate) limit: Duration,
    /// Whether it moves so much data that it should have the machine to itself.
    pub(crate) alone: bool,
    /// A program without which it is left out.
    pub(crate) needs: Option<&'static str>,
    /// A module of the system's Python without which it is left out.
    pub(crate) module: Option<&'static str>,
    /// Whether what it needs is large, so that only `nightly` installs it.
    pub(crate) nightly: bool,
}

impl Case {
    /// A test that shares the machine with others.
    pub(crate) const fn light(name: &'static str, run: fn() -> Result<()>) -> Case {
        let limit = Duration::from_secs(60);
        Case { name, run, limit, alone: false, needs: None, module: None, nightly: false }
    }

    /// A test that runs alone.
    pub(crate) const fn heavy(name: &'static str, run: fn() -> Result<()>) -> Case {
        Case { limit: Duration::from_secs(120), alone: true, ..Case::light(name, run) }
    }

    /// The same, left out where this program is not installed.
    pub(crate) const fn needing(self, program: &'static str) -> Case {
        Case { needs: Some(program), ..self }
    }

    /// The same, left out where the system's Python has no such module.
    pub(crate) const fn needing_module(self, module: &'static str) -> Case {
        Case { module: Some(module), ..self }
    }

    /// The same, and the suites of `test` do not install what it needs.
    pub(crate) const fn of_nightly(self) -> Case {
        Case { nightly: true, ..self }
    }

    /// The program or module that is missing.
    fn lacks(&self) -> Option<&'static str> {
        let has = |module: &str| {
            let mut python = Command::new("/usr/bin/python3");
            python.args(["-c", &format!("import {module}")]).stderr(Stdio::null());
            python.status().is_ok_and(|status| status.success())
        };
        if let Some(module) = self.module.filter(|module| !has(module)) {
            return Some(module);
        }
        let path = env::var_os("PATH").unwrap_or_default();
        self.needs.filter(|name| !env::split_paths(&path).any(|dir| dir.join(name).is_file()))
    }
}

/// Processes that a signal must take along, by process number, with their scopes.
static RUNNING: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

/// What became of the tests.
#[derive(Default)]
struct Totals {
    passed: usize,
    failed: Vec<String>,
}

/// Runs the tests whose names contain one of `filters`, all without filters.
pub(crate) fn run(cases: &[Case], filters: &[String], jobs: usize) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        bail!("the tests against the host kernel need root: they make network namespaces");
    }
    scope::sweep_stale();
    end_on_signals(|| ())?;
    let chosen: Vec<(usize, &Case)> = cases
        .iter()
        .enumerate()
        .filter(|(_, case)| filters.is_empty() || filters.iter().any(|f| case.name.contains(f)))
        .collect();
    println!("running {} tests", chosen.len());
    let (ignored, chosen): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|(_, case)| case.lacks().is_some());
    for (_, case) in &ignored {
        let missing = case.lacks().unwrap_or_default();
        if case.nightly {
            println!("{} is left to cargo xtask check programs: it needs {missing}", case.name);
        } else {
            println!("test {} ... ignored, it needs {missing}", case.name);
        }
    }
    let (alone, shared): (Vec<_>, Vec<_>) = chosen.iter().partition(|(_, case)| case.alone);
    let totals = Mutex::new(Totals::default());
    run_queue(alone, 1, &totals);
    run_queue(shared, jobs, &totals);
    let totals = totals.into_inner().expect("no worker panics while it counts");
    let word = if totals.failed.is_empty() { "ok" } else { "FAILED" };
    for name in &totals.failed {
        println!("failed: {name}");
    }
    println!(
        "\ntest result: {word}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out",
        totals.passed,
        totals.failed.len(),
        ignored.len(),
        cases.len() - chosen.len() - ignored.len()
    );
    Ok(totals.failed.is_empty())
}

fn run_queue(cases: Vec<(usize, &Case)>, jobs: usize, totals: &Mutex<Totals>) {
    let queue = Mutex::new(VecDeque::from(cases));
    thread::scope(|threads| {
        for _ in 0..jobs {
            threads.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics here").pop_front();
                    let Some((index, case)) = next else { return };
                    report(case, run_apart(index, case), totals);
                }
            });
        }
    });
}

fn report(case: &Case, result: Result<(bool, String, Duration)>, totals: &Mutex<Totals>) {
    let mut totals = totals.lock().expect("no worker panics while it counts");
    let mut out = std::io::stdout().lock();
    let (passed, text) = match result {
        Ok((true, _, took)) => (true, format!("test {} ... ok ({took:.1?})", case.name)),
        Ok((false, said, took)) => {
            (false, format!("test {} ... FAILED ({took:.1?})\n{said}", case.name))
        }
        Err(error) => (false, format!("test {} ... FAILED\n{error:#}", case.name)),
    };
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
    if passed {
        totals.passed += 1;
    } else {
        totals.failed.push(case.name.into());
    }
}

/// This program, to be run in a process group of its own. What it makes bears `scope`.
fn in_scope(scope: &str) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("finding this program")?);
    command.env(scope::VARIABLE, scope).process_group(0);
    Ok(command)
}

/// Runs one test in a process group of its own and removes whatever it leaves.
fn run_apart(index: usize, case: &Case) -> Result<(bool, String, Duration)> {
    // Number 0 is the runner itself.
    let scope = scope::of_runner(std::process::id(), index + 1);
    let start = Instant::now();
    let log = files::Scratch::new()?;
    let path = log.file("log");
    let out = fs::File::create(&path).context("making the log of a test")?;
    let mut command = in_scope(&scope)?;
    command.args(["one", case.name]);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let child = command.spawn().context("starting a test")?;
    let id = child.id();
    RUNNING.lock().expect("no worker panics here").push((id, scope.clone()));
    let outcome = outcome(child, case.limit);
    kill_group(id);
    scope::sweep(&scope);
    RUNNING.lock().expect("no worker panics here").retain(|(other, _)| *other != id);
    let mut said = fs::read_to_string(&path).unwrap_or_default();
    let passed = match outcome? {
        Some(passed) => passed,
        None => {
            said.push_str(&format!("killed: it still ran after {:?}\n", case.limit));
            false
        }
    };
    Ok((passed, said, start.elapsed()))
}

/// Whether the test passed, or nothing if it had to be stopped.
fn outcome(mut child: Child, limit: Duration) -> Result<Option<bool>> {
    let done = process::exits_within(child.id(), limit);
    if !matches!(done, Ok(true)) {
        kill_group(child.id());
    }
    let status = child.wait()?;
    Ok(done?.then_some(status.success()))
}

fn kill_group(id: u32) {
    if let Some(pid) = Pid::from_raw(id.cast_signed()) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// On SIGINT and SIGTERM: end what runs, remove what it made, and `undo` what it changed.
fn end_on_signals(undo: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            // Held to the end: nobody goes on with what has ended.
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, scope) in running.iter() {
                kill_group(*id);
                scope::sweep(scope);
            }
            undo();
            scope::sweep(&scope::current());
            std::process::exit(130);
        }
    });
    Ok(())
}

/// Has a process of its own do what this one was called for, with all that it starts in a group of
/// its own. If that or this is ended, the group ends as well, what it made is removed, and `undo`
/// takes back what it changed. That process itself goes on with `measure`.
pub(crate) fn measure_apart(
    measure: impl FnOnce() -> Result<()>,
    undo: impl Fn() + Clone + Send + 'static,
) -> Result<()> {
    if env::var_os(scope::VARIABLE).is_some() {
        set_parent_process_death_signal(Some(Signal::KILL)).context("prctl")?;
        return measure();
    }
    scope::sweep_stale();
    end_on_signals(undo.clone())?;
    let scope = scope::of_runner(std::process::id(), 1);
    let mut child = in_scope(&scope)?
        .args(env::args_os().skip(1))
        .spawn()
        .context("starting the measurement")?;
    let id = child.id();
    RUNNING.lock().expect("nobody panics here").push((id, scope.clone()));
    let status = child.wait()?;
    let _running = RUNNING.lock().expect("nobody panics here");
    kill_group(id);
    scope::sweep(&scope);
    if !status.success() {
        undo();
        // It has said why.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

/// Runs one test in this process: the other half of `run_apart`.
pub(crate) fn run_one(cases: &[Case], name: &str) -> Result<()> {
    // If the runner dies, so does the test; the next runner sweeps up behind it.
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl")?;
    let case = cases.iter().find(|case| case.name == name).context("no test of that name")?;
    match catch_unwind(AssertUnwindSafe(case.run)) {
        Ok(result) => result,
        Err(_) => bail!("the test panicked"),
    }
}
