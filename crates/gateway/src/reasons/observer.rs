//! The times of one connection.

use std::io;
use std::net::{SocketAddr, TcpStream as HostStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::{AckReason, Decision, SetOption, TcpStream};

use super::Reasons;
use super::cause::Cause;
use crate::names::Names;
use crate::tcp_info::Sample;

/// Shorter waits are those of any transfer.
const NOTICEABLE: Duration = Duration::from_millis(5);
/// An answer that takes less beyond its round trip is not late.
const LATE: Duration = Duration::from_millis(20);
/// The times by which receivers delay ACKs.
const DELAYS: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(500));
/// How long after a delayed ACK the data arrives that had waited for it.
const AT_ONCE: Duration = Duration::from_millis(10);
/// Decisions of the stack that are kept of each connection.
const DECISIONS: u32 = 16;

/// The latest data of a connection.
#[derive(Clone, Copy)]
enum Latest {
    /// From the command, or none yet: the server may be waited for.
    Up(Instant),
    /// From the server.
    Down(Instant),
}

/// The times of one connection of the command.
pub(crate) struct Observer {
    reasons: Arc<Reasons>,
    to: SocketAddr,
    begun: Instant,
    is_open: bool,
    is_refused: bool,
    /// The latest SYN of an attempt that the command has given up, some time after it.
    abandoned: Option<Instant>,
    /// No side has ended.
    is_active: bool,
    latest: Latest,
    sample: Sample,
    /// The round trip between the command and the stack, which a link makes long.
    inner_rtt: Duration,
    /// Since when the host's socket has taken no data, if data waits.
    host_full: Option<Instant>,
    /// The same for the command's side.
    command_full: Option<Instant>,
    /// The command's side was full since the latest data of the server.
    was_full: bool,
    /// Time in which the command's window was full.
    command_limited: Duration,
    up: u64,
    down: u64,
}

impl Observer {
    /// The command connects.
    pub(crate) fn new(reasons: &Arc<Reasons>, to: SocketAddr) -> Observer {
        let begun = Instant::now();
        Observer {
            reasons: reasons.clone(),
            to,
            begun,
            is_open: false,
            is_refused: false,
            abandoned: None,
            is_active: false,
            latest: Latest::Up(begun),
            sample: Sample::default(),
            inner_rtt: Duration::ZERO,
            host_full: None,
            command_full: None,
            was_full: false,
            command_limited: Duration::ZERO,
            up: 0,
            down: 0,
        }
    }

    fn record(&self, cause: Cause, from: Instant, until: Instant) {
        self.reasons.book().record(self.to, cause, (from, until));
    }

    /// The dial has failed.
    pub(crate) fn failed(&mut self, error: &io::Error) {
        self.is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
    }

    /// The command has given up after its latest SYN.
    pub(crate) fn abandoned(&mut self, latest: Instant) {
        self.abandoned = Some(latest);
    }

    /// Both sides are connected.
    pub(crate) fn opened(&mut self, host: &HostStream, guest: &TcpStream, names: &Names) {
        let now = Instant::now();
        // The option cannot be out of range.
        let _ = guest.set_option(SetOption::DecisionLog(DECISIONS));
        self.sample = self.reasons.sample(host);
        self.inner_rtt = guest.info().min_rtt.unwrap_or_default();
        (self.is_open, self.is_active, self.latest) = (true, true, Latest::Up(now));
        let is_repeated = self.sample.retransmissions > 0;
        // The kernel takes no sample of the round trip from a repeated SYN.
        let took = now - self.begun;
        let lost = if is_repeated { took.saturating_sub(self.sample.rtt) } else { Duration::ZERO };
        if is_repeated {
            self.record(Cause::RepeatedSyn, self.begun, self.begun + lost);
        }
        let name = names.name_of(self.to.ip(), now);
        let mut book = self.reasons.book();
        let Some(destination) = book.destination(self.to) else { return };
        destination.name = name.or(destination.name.take());
        destination.connections += 1;
        destination.active += 1;
        if destination.active == 1 && destination.connections > 1 {
            destination.waits[Cause::Reconnects as usize].add(self.begun + lost, now);
        }
    }

    /// One of the sides has ended.
    pub(crate) fn ended(&mut self) {
        if std::mem::take(&mut self.is_active)
            && let Some(destination) = self.reasons.book().destination(self.to)
        {
            destination.active = destination.active.saturating_sub(1);
        }
    }

    /// The figures now. Returns their increase since the latest call.
    fn look(&mut self, host: &HostStream) -> Sample {
        let sample = self.reasons.sample(host);
        let before = std::mem::replace(&mut self.sample, sample);
        sample.since(&before)
    }

    /// The host's socket takes no more data, and some waits.
    pub(crate) fn host_is_full(&mut self) {
        self.host_full.get_or_insert_with(Instant::now);
    }

    /// The host's socket has taken data of the command.
    pub(crate) fn sent(&mut self, len: usize, host: &HostStream, guest: &TcpStream) {
        let now = Instant::now();
        let change = self.look(host);
        self.up += len as u64;
        if let Some(since) = self.host_full.take() {
            let mut rest = now - since;
            let limited = part_of(rest, change.window_limited);
            if limited >= NOTICEABLE {
                self.record(Cause::SlowReader, now - limited, now);
                rest -= limited;
            }
            let holes = (change.rtt * change.retransmissions).min(rest);
            if holes >= NOTICEABLE {
                self.record(Cause::Loss, since, since + holes);
            }
        } else if let Latest::Up(latest) = self.latest
            && self.up > len as u64
            && waited_for_ack(guest, now - latest)
        {
            self.record(Cause::Nagle, latest, now);
        }
        self.latest = Latest::Up(now);
    }

    /// Data of the server was read.
    pub(crate) fn received(&mut self, len: usize, host: &HostStream) {
        let now = Instant::now();
        let change = self.look(host);
        self.down += len as u64;
        let latest = std::mem::replace(&mut self.latest, Latest::Down(now));
        let was_full = std::mem::take(&mut self.was_full);
        match latest {
            Latest::Up(latest) => self.answered(&change, latest, now),
            // Data behind a hole waited for the segment that was lost.
            Latest::Down(latest) if change.out_of_order > 0 && !was_full => {
                if now - latest >= NOTICEABLE.max(change.rtt / 2) {
                    self.record(Cause::Loss, latest, now);
                }
            }
            Latest::Down(_) => {}
        }
    }

    /// An answer begins. The latest data of the command left at `asked`.
    fn answered(&self, change: &Sample, asked: Instant, now: Instant) {
        let mut rest = (now - asked).saturating_sub(change.rtt);
        let limited = change.window_limited.min(rest);
        if limited >= NOTICEABLE {
            self.record(Cause::SlowReader, asked, asked + limited);
            rest -= limited;
        }
        // All was in flight, or some had to wait for the rest.
        let all_was_sent = change.not_sent == 0;
        let holes = change.retransmissions + change.out_of_order;
        if holes > 0 {
            let lost = if all_was_sent { rest } else { rest.min(change.rtt * holes) };
            if lost >= NOTICEABLE {
                self.record(Cause::Loss, now - lost, now);
            }
            return;
        }
        if !all_was_sent {
            rest = rest.min((now - asked).saturating_sub(change.busy));
        }
        if rest >= LATE {
            self.record(Cause::SlowServer, now - rest, now);
        }
    }

    /// The command's side takes no more data, and some waits.
    pub(crate) fn command_is_full(&mut self) {
        self.was_full = true;
        self.command_full.get_or_insert_with(Instant::now);
    }

    /// The command's side has taken data.
    pub(crate) fn delivered(&mut self, guest: &TcpStream) {
        let Some(since) = self.command_full.take() else { return };
        let now = Instant::now();
        if now - since < NOTICEABLE {
            return;
        }
        let info = guest.info();
        let before = std::mem::replace(&mut self.command_limited, info.rwnd_limited);
        let limited = part_of(now - since, info.rwnd_limited.saturating_sub(before));
        // A window of less than a round trip makes a sender wait for that long, however fast the
        // command reads.
        let limited = limited.saturating_sub(info.rtt);
        if limited >= NOTICEABLE {
            self.record(Cause::SlowCommand, now - limited, now);
        }
    }
}

/// The part of a wait in which a window limited the sender. A window that did so most of the time
/// opens by and by, and is the cause of the whole.
fn part_of(wait: Duration, limited: Duration) -> Duration {
    if limited * 2 >= wait { wait } else { limited }
}

/// Whether data that has just come had waited for the stack's delayed ACK, for `gap` in all.
fn waited_for_ack(guest: &TcpStream, gap: Duration) -> bool {
    if gap < DELAYS.0 || gap > DELAYS.1 {
        return false;
    }
    let decisions = guest.decisions();
    let is_delayed = |decision| matches!(decision, Decision::Ack(AckReason::Timer));
    let Some(ack) = decisions.iter().rposition(|record| is_delayed(record.decision)) else {
        return false;
    };
    let deferred = decisions[..ack].iter().rev().find_map(|record| match record.decision {
        Decision::AckDeferred(time) => Some(time),
        _ => None,
    });
    deferred.is_some_and(|time| gap + AT_ONCE >= time && gap <= time + AT_ONCE)
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ended();
        let until = self.abandoned.unwrap_or_else(Instant::now);
        let mut book = self.reasons.book();
        if !self.is_open && !self.is_refused && until - self.begun >= NOTICEABLE {
            book.record(self.to, Cause::NoAnswer, (self.begun, until));
        }
        let Some(destination) = book.destination(self.to) else { return };
        destination.connections += u64::from(!self.is_open);
        destination.up += self.up;
        destination.down += self.down;
        let rtt = self.sample.rtt + self.inner_rtt;
        let rtts = [destination.rtt, rtt].into_iter().filter(|rtt| !rtt.is_zero());
        destination.rtt = rtts.min().unwrap_or_default();
    }
}
