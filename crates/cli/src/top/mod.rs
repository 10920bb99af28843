//! `plimsoll top`: the connections of a running process, live.
//!
//! Every interval it asks for the connections over the control socket, and shows the difference to
//! the answer before ([`rows`]) as a table ([`screen`]).

mod rows;
mod screen;
mod text;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::TopArgs;
use crate::control::client::{Ended, ask_within, socket_of};
use crate::control::protocol::{Answer, Connections, Request};
use crate::output::print;
use screen::{Screen, visible_rows};

/// How often keys and signals are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How long the process may take for an answer. No key is read meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);

/// `plimsoll top`.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    ensure!(
        io::stdout().is_terminal(),
        "standard output is not a terminal; 'plimsoll ss -i' prints the connections once"
    );
    let socket = socket_of(args.pid)?;
    let mut top = Top::new(socket, args.interval)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("signals")?;
    }
    // From here on a panic restores the terminal, too.
    let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()));
    let mut terminal = terminal.context("cannot use the terminal")?;
    let ended = top.watch(&mut terminal, &stop);
    if terminal.show_cursor().is_err() {
        // Dropping it would report that on a terminal that has gone, and panic.
        std::mem::forget(terminal);
    }
    // A terminal that has gone has nothing to restore.
    let _ = ratatui::try_restore();
    match ended? {
        None => Ok(()),
        Some(ended) => print(format!("plimsoll: {ended}\n").as_bytes()),
    }
}

/// The answers, and the screen that is made of them.
struct Top {
    socket: PathBuf,
    interval: Duration,
    answer: Connections,
    at: Instant,
    screen: Screen,
}

impl Top {
    fn new(socket: PathBuf, interval: Duration) -> anyhow::Result<Top> {
        let answer = ask(&socket)?;
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        let process = format!("plimsoll {name}");
        let screen = Screen { process, ..Screen::default() };
        let mut top =
            Top { socket, interval, answer: Connections::default(), at: Instant::now(), screen };
        top.show(answer, None);
        Ok(top)
    }

    /// Shows the connections until the user quits, or a signal ends this program. Returns the
    /// error if the process has ended.
    fn watch(
        &mut self,
        terminal: &mut DefaultTerminal,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Ended>> {
        let mut next = self.at + self.interval;
        while !stop.load(Ordering::Relaxed) {
            terminal.draw(|frame| self.screen.draw(frame))?;
            let event = wait(next, stop)?;
            let visible = visible_rows(Rect::from((Position::ORIGIN, terminal.size()?)));
            if let Some(Event::Key(key)) = event
                && key.kind != KeyEventKind::Release
                && self.screen.quits_on(key, visible)
            {
                return Ok(None);
            }
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                if let Some(ended) = self.look()? {
                    return Ok(Some(ended));
                }
            }
        }
        Ok(None)
    }

    /// Asks again. While the screen is paused, and from a process that does not answer, the rows
    /// stay as they are.
    fn look(&mut self) -> anyhow::Result<Option<Ended>> {
        match ask(&self.socket).map_err(|error| error.downcast::<Ended>()) {
            Err(Ok(ended)) => return Ok(Some(ended)),
            Err(Err(error)) => self.screen.error = Some(format!("{error:#}")),
            Ok(_) if self.screen.is_paused => self.screen.error = None,
            Ok(answer) => {
                self.screen.error = None;
                self.show(answer, Some(self.at));
            }
        }
        Ok(None)
    }

    /// Makes the rows of an answer. `before` is the time of the one before, if there was one.
    fn show(&mut self, answer: Connections, before: Option<Instant>) {
        let now = Instant::now();
        let time = before.map(|before| now - before);
        let screen = &mut self.screen;
        screen.rows = rows::rows(&answer, time.map(|time| (&self.answer, time)));
        screen.totals = rows::totals(&screen.rows, time);
        screen.running = Duration::from_millis(answer.running_ms);
        screen.flows = answer.flows;
        screen.order.sort(&mut screen.rows);
        (self.answer, self.at) = (answer, now);
    }
}

impl Screen {
    /// Does what a key is for. Returns whether that is to quit.
    fn quits_on(&mut self, key: KeyEvent, visible: usize) -> bool {
        let page = visible.max(1).cast_signed();
        match key.code {
            KeyCode::Char('q') => return true,
            // In this mode of the terminal it is no signal.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.order.sort(&mut self.rows);
            }
            KeyCode::Up => self.scroll(-1, visible),
            KeyCode::Down => self.scroll(1, visible),
            KeyCode::PageUp => self.scroll(-page, visible),
            KeyCode::PageDown => self.scroll(page, visible),
            KeyCode::Home => self.scroll(isize::MIN, visible),
            KeyCode::End => self.scroll(isize::MAX, visible),
            _ => {}
        }
        false
    }
}

/// Waits for an event of the terminal, until a time or a signal. The end of the terminal is an
/// error: crossterm would read from it again and again, and never return.
fn wait(until: Instant, stop: &AtomicBool) -> io::Result<Option<Event>> {
    let mut timeout = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let out = io::stdout();
        // Keys may come from another terminal, so only the end of this one is waited for.
        let mut terminal = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut terminal, Timespec::try_from(timeout).ok().as_ref()) {
            // A signal, which may be that the size has changed.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the terminal has gone"));
        }
        if event::poll(Duration::ZERO)? {
            return event::read().map(Some);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        timeout = left.min(TICK);
    }
    Ok(None)
}

/// Asks for the connections.
fn ask(socket: &Path) -> anyhow::Result<Connections> {
    match ask_within(socket, &Request::Connections, PATIENCE)? {
        Answer::Connections(connections) => Ok(connections),
        Answer::Error(error) if error.starts_with("not a request") => bail!(
            "the running plimsoll is older than 'top' and has no answer for it; use 'plimsoll ss -i'"
        ),
        Answer::Error(error) => bail!("{error}"),
        _ => bail!("the process gave an answer to another question"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_older_process_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("77.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answers = [
            r#"{"error":"not a request: unknown variant `connections`"}"#,
            r#"{"error":"the gateway has ended, or is busy; ask again"}"#,
            r#"{"ports":[]}"#,
        ];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().unwrap();
                BufReader::new(&client).read_line(&mut String::new()).unwrap();
                writeln!(client, "{answer}").unwrap();
            }
        });
        for part in ["is older than 'top'", "or is busy", "to another question"] {
            let error = ask(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        server.join().unwrap();
        let error = Top::new(path, TICK).err().unwrap();
        assert!(error.is::<Ended>(), "{error}");
    }
}
