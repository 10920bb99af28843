//! Runs commands with a time limit, shows what they say, and takes them along when interrupted.
//!
//! A suite has a budget: after [`allow`] nothing that is run here runs longer than that, but for
//! what only builds or fetches. How long a build takes says how busy the machine is, so no budget
//! counts it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};

/// The longest that anything may take which is fetched from elsewhere.
pub(crate) const FETCH_LIMIT: Duration = Duration::from_secs(900);

/// The longest that one build may take. It ends a build that hangs.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// The process groups of the commands that run now.
static CURRENT: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// The budget of the suite that runs now.
static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

struct Budget {
    /// When it is used up.
    end: Instant,
    /// How long the suite has been building and fetching so far.
    building: Duration,
}

/// Held while something runs that must not be ended half-way.
static WHOLE: Mutex<()> = Mutex::new(());

/// From now on commands may run for `budget`, all together.
pub(crate) fn allow(budget: Duration) {
    let budget = Budget { end: Instant::now() + budget, building: Duration::ZERO };
    *BUDGET.lock().expect("nothing panics with this lock") = Some(budget);
}

/// How long was spent on builds and fetches since the last [`allow`].
pub(crate) fn building() -> Duration {
    let budget = BUDGET.lock().expect("nothing panics with this lock");
    budget.as_ref().map_or(Duration::ZERO, |budget| budget.building)
}

/// Does something that the budget neither counts nor ends.
fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let lock = || BUDGET.lock().expect("nothing panics with this lock");
    let kept = lock().take();
    let start = Instant::now();
    let done = work();
    let took = start.elapsed();
    *lock() =
        kept.map(|Budget { end, building }| Budget { end: end + took, building: building + took });
    done
}

/// Runs a command that builds and runs nothing of what it has built.
pub(crate) fn build(command: &mut Command) -> Result<Outcome> {
    uncounted(|| run(command, BUILD_LIMIT, |_| {}))
}

/// What of a command is building.
pub(crate) enum Builds {
    Nothing,
    /// What this other command does, after which the first one only runs.
    First(Command),
    All,
}

impl Builds {
    /// Reads a command of cargo's, also one of a toolchain or of Miri. Other programs build
    /// nothing.
    pub(crate) fn of(command: &Command) -> Builds {
        let program = command.get_program();
        if Path::new(program).file_name().is_some_and(|name| name == "cargo-hack") {
            return Builds::All;
        }
        let words: Vec<&OsStr> = command.get_args().take_while(|word| *word != "--").collect();
        let verb = if program == "cargo" {
            Some(0)
        } else {
            words.iter().position(|word| *word == "cargo").map(|at| at + 1)
        };
        let Some(verb) = verb else { return Builds::Nothing };
        let verb =
            if words.get(verb).is_some_and(|word| *word == "miri") { verb + 1 } else { verb };
        let word = words.get(verb).map(|word| word.to_string_lossy());
        let mut first = Command::new(program);
        match word.as_deref() {
            Some("test") => first.args(&words).arg("--no-run"),
            Some("run") => first.args(&words[..verb]).arg("build").args(&words[verb + 1..]),
            _ => return Builds::All,
        };
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => first.env(name, value),
                None => first.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            first.current_dir(folder);
        }
        Builds::First(first)
    }
}

/// When a command that starts now must have ended.
fn end(limit: Duration) -> Instant {
    let own = Instant::now() + limit;
    let budget = BUDGET.lock().expect("nothing panics with this lock");
    budget.as_ref().map_or(own, |budget| own.min(budget.end))
}

/// Ends the running command when this program is interrupted.
pub(crate) fn end_on_signals() -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end_all(Signal::TERM);
            // The runner of the tests in namespaces needs a moment to remove them.
            thread::sleep(Duration::from_secs(1));
            end_all(Signal::KILL);
            let _whole = WHOLE.lock();
            std::process::exit(130);
        }
    });
    Ok(())
}

/// How a command ended.
pub(crate) enum Outcome {
    Ended(ExitStatus),
    OutOfTime,
}

impl Outcome {
    pub(crate) fn success(&self) -> bool {
        matches!(self, Outcome::Ended(status) if status.success())
    }
}

/// Runs a command, echoes each line of its standard output and gives it to `on_line`.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<Outcome> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let group = Group::of(child.id());
    let stdout = child.stdout.take().context("standard output is piped")?;
    let (tx, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let _ = tx.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let deadline = end(limit);
    let mut in_time = true;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                println!("{line}");
                on_line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                in_time = false;
                group.end();
                break;
            }
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {command:?}"))?;
    Ok(if in_time { Outcome::Ended(status) } else { Outcome::OutOfTime })
}

/// Runs a command that neither the budget nor an interrupt ends: this program waits for it. What
/// `before` makes is dropped when the command has ended, and before this program does.
pub(crate) fn to_its_end<T>(
    command: &mut Command,
    before: impl FnOnce() -> Result<T>,
) -> Result<ExitStatus> {
    let _whole = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    let _kept = before()?;
    // A terminal's interrupt goes to all processes of a group.
    command.stdin(Stdio::null()).process_group(0);
    command.status().with_context(|| format!("starting {command:?}"))
}

/// Runs a command and keeps what it says. Nothing if it had to be ended, as its time was over.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<Option<Output>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let group = Group::of(child.id());
    let stdout = gather(child.stdout.take().context("standard output is piped")?);
    let stderr = gather(child.stderr.take().context("standard error is piped")?);
    let deadline = end(limit);
    let in_time = |said: Receiver<Vec<u8>>| {
        said.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    };
    let said = in_time(stdout).zip(in_time(stderr));
    if said.is_none() {
        group.end();
    }
    let status = child.wait().with_context(|| format!("waiting for {command:?}"))?;
    Ok(said.map(|(stdout, stderr)| Output { status, stdout, stderr }))
}

/// Reads all there is, on a thread of its own.
fn gather(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tx, rx) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = tx.send(bytes);
    });
    rx
}

/// A command's process group, known to the handler of signals as long as this lives.
struct Group(i32);

impl Group {
    fn of(child: u32) -> Group {
        let group = child.cast_signed();
        CURRENT.lock().expect("nothing panics with this lock").push(group);
        Group(group)
    }

    /// Ends the command: first as a user would, then for certain.
    fn end(&self) {
        end_group(self.0, Signal::TERM);
        thread::sleep(Duration::from_secs(2));
        end_group(self.0, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        CURRENT.lock().expect("nothing panics with this lock").retain(|group| *group != self.0);
    }
}

/// Whether a command can be started and succeeds, without a word. It may fetch something.
pub(crate) fn quiet(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let out = uncounted(|| output(command.args(args), FETCH_LIMIT));
    out.is_ok_and(|out| out.is_some_and(|out| out.status.success()))
}

fn end_all(signal: Signal) {
    let groups = CURRENT.lock().expect("nothing panics with this lock").clone();
    groups.into_iter().for_each(|group| end_group(group, signal));
}

fn end_group(group: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(group) {
        let _ = kill_process_group(pid, signal);
    }
}

/// The end of the budget holds for the whole process. Tests that set it, or run commands under it,
/// go one after the other.
#[cfg(test)]
pub(crate) fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    *BUDGET.lock().expect("nothing panics with this lock") = None;
    guard
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn sleep() -> Command {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    }

    #[test]
    fn commands_end_with_their_time_or_with_the_budget() {
        let _one = one_at_a_time();
        let out = output(Command::new("sh").args(["-c", "echo a; echo b >&2"]), LONG);
        let out = out.unwrap().expect("it ends by itself");
        assert_eq!((&*out.stdout, &*out.stderr), (&b"a\n"[..], &b"b\n"[..]));
        assert!(output(&mut sleep(), Duration::from_millis(10)).unwrap().is_none());
        allow(Duration::from_millis(10));
        assert!(output(&mut sleep(), LONG).unwrap().is_none());
        assert!(matches!(run(&mut sleep(), LONG, |_| {}).unwrap(), Outcome::OutOfTime));
    }

    #[test]
    fn a_build_is_neither_counted_nor_ended() {
        let _one = one_at_a_time();
        allow(Duration::ZERO);
        assert!(build(Command::new("sleep").arg("0.05")).unwrap().success());
        let built = building();
        assert!(built >= Duration::from_millis(50), "{built:?}");
        allow(Duration::from_secs(5));
        let before = end(LONG);
        assert!(build(Command::new("sleep").arg("0.05")).unwrap().success());
        assert!(end(LONG) >= before + Duration::from_millis(50));
        // Without a budget there is nothing to count.
        *BUDGET.lock().unwrap() = None;
        assert!(build(&mut Command::new("true")).unwrap().success());
        assert_eq!(building(), Duration::ZERO);
    }

    #[test]
    fn what_a_command_builds_is_known() {
        let words = |command: &Command| {
            let args = command.get_args().map(|word| word.to_string_lossy().into_owned());
            args.collect::<Vec<_>>().join(" ")
        };
        let of = |program: &str, line: &str| {
            let mut command = Command::new(program);
            command.args(line.split(' ')).env("A", "b").env_remove("C").current_dir("/");
            match Builds::of(&command) {
                Builds::Nothing => "nothing".to_string(),
                Builds::All => "all".to_string(),
                Builds::First(first) => {
                    assert_eq!(first.get_program(), program);
                    assert_eq!(first.get_envs().count(), 2);
                    assert_eq!(first.get_current_dir(), command.get_current_dir());
                    words(&first)
                }
            }
        };
        let expected = "test -p a --no-run";
        assert_eq!(of("cargo", "test -p a -- --include-ignored run"), expected);
        assert_eq!(of("cargo", "run -q -p a -- test"), "build -q -p a");
        let miri = "run nightly cargo miri test -p a";
        assert_eq!(of("rustup", miri), format!("{miri} --no-run"));
        assert_eq!(of("cargo", "clippy -- -D warnings"), "all");
        assert_eq!(of("tools/cargo-hack", "hack check"), "all");
        assert_eq!(of("plimsoll-interop", "test"), "nothing");
    }
}
