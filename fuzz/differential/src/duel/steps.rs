//! What each step of a script does.

use super::{Duel, Outcome, show};
use crate::engine::{News, Setting};
use crate::script::{App, Step, Time};

/// Deadlines that are met while time passes, at most.
const MAX_FIRINGS: usize = 64;

impl Duel<'_> {
    /// Takes a step.
    pub(super) fn take(&mut self, step: &Step) -> Outcome<()> {
        let arrives = matches!(
            step,
            Step::Batch(_)
                | Step::Ack(_)
                | Step::Data(_)
                | Step::Odd(_)
                | Step::Arrive(_)
                | Step::Scatter(..)
                | Step::App(App::Read(_))
        );
        if !arrives {
            self.finish_batch()?;
        }
        match step {
            Step::Handshake => self.handshake(),
            Step::App(_) if !self.opened => Ok(()),
            Step::App(call) => self.app(call),
            Step::Below(below) => {
                if self.opened {
                    self.below_step(*below)
                } else {
                    Ok(())
                }
            }
            Step::Time(time) => self.time(*time),
            Step::Arrive(arrive) => self.arrive(arrive),
            Step::Ack(ack) => {
                let segments = self.peer.acks(self.now, ack);
                self.deliver_all(&segments)
            }
            Step::Data(data) => {
                let segment = self.peer.data(self.now, data);
                self.deliver(&segment)
            }
            Step::Odd(odd) => {
                let segment = self.peer.odd(self.now, *odd);
                self.deliver(&segment)
            }
            Step::Scatter(count, gap, len) => {
                let segments = self.peer.scatter(self.now, *count, *gap, *len);
                self.deliver_all(&segments)
            }
            Step::Path(news) => self.path(*news),
            Step::Batch(count) => {
                self.batch = *count;
                Ok(())
            }
            Step::Configure(setting, value) => {
                if *setting == Setting::BacklogAckDefer {
                    self.config_defers = *value != 0;
                }
                self.reach.hit_named("settings", format!("{setting:?}={value}"));
                self.both("configure", |side, _| side.configure(*setting, *value))?;
                self.flush()
            }
        }
    }

    fn path(&mut self, news: News) -> Outcome<()> {
        if !self.opened {
            return Ok(());
        }
        self.both("path", |side, at| side.path(at, news))?;
        self.flush()
    }

    fn app(&mut self, call: &App) -> Outcome<()> {
        match *call {
            App::Write(len, parts, flags) => return self.write(len, parts, flags),
            App::WriteShared(len, parts, flags) => return self.write_shared(len, parts, flags),
            App::WriteSmall(count, len) => return self.write_small(count, len),
            App::WriteReported(count) => return self.write_reported(count),
            App::Read(len) => {
                self.read(len)?;
                if self.batch > 0 {
                    // A reader that owns the connection takes the batch before anything leaves.
                    self.waits = true;
                    return Ok(());
                }
            }
            App::ReadShared(max) => {
                let read = self.both("read_shared", |side, at| {
                    side.read_shared(at, max as usize).map(show::Read)
                })?;
                self.count_error("read errors", read.err());
            }
            App::Peek(len) => {
                let (peeked, _) = self.both("peek", |side, _| {
                    let mut out = vec![0; len as usize];
                    let result = side.peek(&mut out);
                    (result, out)
                })?;
                self.count_error("read errors", peeked.err());
            }
            App::ReadUrgent => {
                self.both("read_urgent", |side, _| side.read_urgent())?;
            }
            App::Shutdown => self.both("shutdown", |side, at| side.shutdown(at))?,
            App::Close => self.both("close", |side, at| side.close(at))?,
            App::Abort => self.both("abort", |side, at| side.abort(at))?,
            App::Option(option, value) => {
                self.reach.hit_named("options", format!("{option:?}={value}"));
                self.both("set_option", |side, at| side.set_option(at, option, value))?;
            }
            _ => self.other_call(call)?,
        }
        self.flush()
    }

    fn other_call(&mut self, call: &App) -> Outcome<()> {
        match *call {
            App::TakeError => {
                self.both("take_error", |side, _| side.take_error())?;
            }
            App::TakeReports => {
                while let Some(report) = self.both("take_report", |side, _| side.take_report())? {
                    let word = report.split([' ', '{']).next().unwrap_or_default();
                    self.reach.hit_named("reports", word.to_string());
                }
            }
            App::PollWritable => {
                self.both("poll_writable", |side, _| side.poll_writable())?;
            }
            App::ReaderWaits(waits) => {
                self.both("set_reader_waiting", |side, _| side.set_reader_waiting(waits))?;
            }
            App::Wake(readers, writers) => {
                self.both("wake", |side, at| side.wake(at, readers, writers))?;
            }
            App::Adopt => self.both("adopt", |side, _| side.adopt())?,
            App::WritePending(on) => {
                self.both("set_write_pending", |side, _| side.set_write_pending(on))?;
            }
            App::KeepTimeWait if self.sides[1].state() == Some("TIME-WAIT") => {
                self.both("keep_time_wait", |side, _| side.keep_time_wait())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn time(&mut self, time: Time) -> Outcome<()> {
        let deadline = self.sides[1].poll_timeout();
        match (time, deadline) {
            (Time::Pass(micros), _) => self.pass(u64::from(micros) * 1000),
            (Time::Early, _) if self.opened => {
                self.both("timeout", |side, at| side.timeout(at))?;
                self.flush()
            }
            (Time::Fraction(part), Some(deadline)) => {
                let left = deadline.saturating_sub(self.now);
                self.now += (u128::from(left) * u128::from(part) / 256) as u64;
                self.depart()
            }
            (Time::Deadline, Some(deadline)) => {
                self.now = self.now.max(deadline);
                self.depart()?;
                self.fire()
            }
            (Time::Late(micros), Some(deadline)) => {
                self.now = self.now.max(deadline) + u64::from(micros) * 1000;
                self.depart()?;
                self.fire()
            }
            (Time::Deadlines(count), Some(_)) => {
                (0..count).try_for_each(|_| self.time(Time::Deadline))
            }
            _ => Ok(()),
        }
    }

    /// Time passes, and every deadline on the way is met.
    pub(super) fn pass(&mut self, nanos: u64) -> Outcome<()> {
        let until = self.now + nanos;
        for _ in 0..MAX_FIRINGS {
            let next = self.sides[1].poll_timeout().filter(|&deadline| deadline <= until);
            let Some(deadline) = next else { break };
            self.now = self.now.max(deadline);
            self.depart()?;
            self.fire()?;
        }
        self.now = self.now.max(until);
        self.depart()
    }

    /// What is due fires. It must not be due again at once.
    fn fire(&mut self) -> Outcome<()> {
        for _ in 0..16 {
            let due = self.sides[1].poll_timeout().is_some_and(|deadline| deadline <= self.now);
            if !due {
                return Ok(());
            }
            self.say(|_| "  timer".to_string());
            self.both("timeout", |side, at| side.timeout(at))?;
            self.flush()?;
        }
        Err(self.both_fail("timeout", "a timer is due again and again"))
    }
}
