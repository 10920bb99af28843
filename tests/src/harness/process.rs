//! A child process with its output at hand, ended when it goes out of scope.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// How many bytes of a process's words are kept for the report of a failure.
const KEPT: usize = 64 * 1024;

type Text = Arc<Mutex<String>>;

/// A running child.
pub(crate) struct Process {
    name: String,
    child: Child,
    /// Lines of both outputs as they come.
    lines: Receiver<String>,
    stdout: Text,
    said: Text,
    readers: Vec<thread::JoinHandle<()>>,
}

/// How a process ended and all that it said, standard output first.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) said: String,
}

impl Process {
    /// Starts `command` with both outputs collected.
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let said = Text::default();
        let stdout = Text::default();
        let (tx, lines) = channel();
        let out = child.stdout.take().context("standard output is piped")?;
        let err = child.stderr.take().context("standard error is piped")?;
        let readers = vec![
            collect(out, vec![said.clone(), stdout.clone()], tx.clone()),
            collect(err, vec![said.clone()], tx),
        ];
        Ok(Process { name: name.into(), child, lines, stdout, said, readers })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far on both outputs.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("no reader panics while it holds the text").clone()
    }

    /// Waits for a line that `wanted` accepts.
    pub(crate) fn wait_line(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not say it in {limit:?}:\n{}", self.name, self.said())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{} ended before it said it:\n{}", self.name, self.said())
                }
            }
        }
    }

    /// Waits for the end. A process that is not done in time is killed and reported.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Ended> {
        if !exits_within(self.child.id(), limit)? {
            bail!("{} still runs after {limit:?}:\n{}", self.name, self.said());
        }
        let status = self.child.wait()?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let stdout = self.stdout.lock().expect("no reader panics while it holds the text");
        Ok(Ended { status, stdout: stdout.clone(), said: self.said() })
    }

    /// Waits for the end and wants success.
    pub(crate) fn success(self, limit: Duration) -> Result<Ended> {
        let name = self.name.clone();
        let ended = self.wait(limit)?;
        if !ended.status.success() {
            bail!("{name} ended with {}:\n{}", ended.status, ended.said);
        }
        Ok(ended)
    }

    /// Whether the process has not ended yet.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a child has a number")?;
        kill_process(pid, signal).with_context(|| format!("signalling {}", self.name))
    }

    /// Asks politely and wants a clean end: exit code zero, not death by the signal.
    pub(crate) fn end_cleanly(self, signal: Signal, limit: Duration) -> Result<()> {
        self.signal(signal)?;
        let name = self.name.clone();
        let ended = self.wait(limit)?;
        if let Some(signal) = ended.status.signal() {
            bail!("{name} died of signal {signal}:\n{}", ended.said);
        }
        if !ended.status.success() {
            bail!("{name} ended with {}:\n{}", ended.status, ended.said);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the child with this number ends or `limit` has passed; says whether it ended.
pub(crate) fn exits_within(id: u32, limit: Duration) -> Result<bool> {
    let pid = Pid::from_raw(id.cast_signed()).context("a child has a number")?;
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        // It has ended, and somebody has waited for it already.
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        other => other.context("pidfd_open")?,
    };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("a time limit is not years long")?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll on a pidfd"),
        }
    }
}

/// The processes that descend from this one, parents before their children.
pub(crate) fn descendants(id: u32) -> Result<Vec<u32>> {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse() else { continue };
        // A process that ends meanwhile has none.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name before it may have spaces.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let parent = fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok());
        all.extend(parent.map(|parent| (child, parent)));
    }
    let mut found = vec![id];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, other)| *other == parent).map(|(child, _)| *child));
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Memory of a process as its status reports it under `field`, in bytes.
pub(crate) fn resident(id: &str, field: &str) -> Result<f64> {
    memory(id, "status", field)
}

/// Memory of a process as a file of its folder in /proc reports it under `field`, in bytes.
pub(crate) fn memory(id: &str, file: &str, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/{file}"));
    let status = status.with_context(|| format!("process {id} has ended"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = value.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024.0).with_context(|| format!("no {field}"))
}

fn collect(
    from: impl Read + Send + 'static,
    texts: Vec<Text>,
    lines: Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_string();
            for text in &texts {
                let mut text = text.lock().expect("no reader panics while it holds the text");
                if text.len() < KEPT {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            // Nobody may be listening any more; the pipe must be emptied all the same.
            let _ = lines.send(line);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_by_their_parents() {
        let mut child =
            Process::spawn("sh", Command::new("sh").args(["-c", "sleep 9 & echo; wait"]))
                .expect("there is a shell");
        child.wait_line(Duration::from_secs(9), str::is_empty).unwrap();
        let own = descendants(std::process::id()).unwrap();
        let below = descendants(child.id()).unwrap();
        let [sleeper] = below[..] else { panic!("{below:?}") };
        let at = |id| own.iter().position(|other| *other == id);
        assert!(at(child.id()).unwrap() < at(sleeper).unwrap(), "{own:?}");
        let pid = Pid::from_raw(sleeper.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
}
