//! Letting the events of a script happen on a host, and comparing.
//!
//! Events happen in order. A call, an inbound packet, a code block and shell lines wait for their
//! time; an outbound packet is waited for at once, so that one which leaves too early is noticed.
//! One call may sleep meanwhile. Relative times count from the moment at which the event before was
//! done, except between two inbound packets, where they count from its time.

mod arguments;
mod calls;
mod code;
mod compare;
mod control;
mod fds;
mod flow;
mod journal;
mod packets;
mod prepare;
pub mod tcp_info;
mod time;

use std::path::Path;

use plimsoll_tcp::Instant;

use crate::config::Config;
use crate::expr::Scope;
use crate::failure::Failure;
use crate::host::{Host, HostError, Network};
use crate::lang::ast::{Action, Direction, Event, Script, Span};
use crate::shell;
use calls::Sleeping;
use fds::Other;
use flow::Flow;
pub use journal::{Journal, SentSegment};
use time::{Due, Kind, micros};

/// How long a call may sleep that the script does not expect to, and how long a packet is waited
/// for that may come at any time; in microseconds.
const PATIENCE: i64 = 600_000_000;
/// How long a call in progress is waited for by the next one, and by the end of the script.
const GRACE: i64 = 1_000_000;
/// The most bytes that one script may move, in buffers of calls and in packets.
const MOST_BYTES: u64 = 1 << 30;
/// The first port of the peer's connections.
const FIRST_PORT: u16 = 45_000;

/// What a run left behind.
#[derive(Debug, Default)]
pub struct Traces {
    /// The packets.
    pub journal: Journal,
    /// What code blocks printed.
    pub printed: Vec<String>,
    /// Why sockets that have something to send do not.
    pub holds: Vec<String>,
}

/// Runs a script on a host. `folder` is where the script lies.
///
/// # Errors
/// If the script does not pass. The traces are filled in either way.
pub fn run(
    host: &mut dyn Host,
    script: &Script,
    config: &Config,
    network: &Network,
    folder: Option<&Path>,
    traces: &mut Traces,
) -> Result<(), Failure> {
    let mut runner = Runner {
        host,
        config,
        network,
        folder,
        flows: Vec::new(),
        under_test: None,
        others: Vec::new(),
        sleeping: None,
        scope: code::constants(),
        last: None,
        next_port: FIRST_PORT,
        moved: 0,
        traces,
    };
    let outcome = runner.script(script);
    if outcome.is_err() {
        runner.traces.holds = runner.host.holds();
    }
    outcome
}

/// The event before.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: i64,
    inbound: bool,
    absolute: bool,
}

pub(crate) struct Runner<'a> {
    host: &'a mut dyn Host,
    config: &'a Config,
    network: &'a Network,
    folder: Option<&'a Path>,
    flows: Vec<Flow>,
    /// Packets of the script are about this one.
    under_test: Option<usize>,
    others: Vec<Other>,
    sleeping: Option<Sleeping<'a>>,
    scope: Scope,
    last: Option<Last>,
    next_port: u16,
    /// Bytes moved so far.
    moved: u64,
    traces: &'a mut Traces,
}

/// The host failed while something at `span` was done.
fn broken(span: &Span) -> impl Fn(HostError) -> Failure + '_ {
    |error| Failure::script(span, error.0)
}

fn is_inbound(event: &Event) -> bool {
    matches!(&event.action.node, Action::Packet(packet) if packet.direction == Direction::Inbound)
}

impl<'a> Runner<'a> {
    fn script(&mut self, script: &'a Script) -> Result<(), Failure> {
        if let Some(init) = &script.init {
            shell::run(self.host, &init.node, self.folder).map_err(broken(&init.span))?;
        }
        self.start(script)?;
        self.host.begin();
        let events = self.events(script);
        if let Some(cleanup) = &script.cleanup {
            let done = shell::run(self.host, &cleanup.node, self.folder);
            events.and(done.map_err(broken(&cleanup.span)))
        } else {
            events
        }
    }

    fn start(&self, script: &Script) -> Result<(), Failure> {
        use crate::lang::ast::Time;
        match script.events.first() {
            Some(first) => match first.time.node {
                Time::Absolute(0) | Time::Relative(0) | Time::Any => Ok(()),
                Time::AbsoluteRange(0, _) | Time::RelativeRange(0, _) => Ok(()),
                _ => Err(Failure::script(&first.time.span, "the first event must be at time 0")),
            },
            None => Ok(()),
        }
    }

    fn events(&mut self, script: &'a Script) -> Result<(), Failure> {
        for event in &script.events {
            self.take_returned()?;
            let due = self.due(event)?;
            self.event(event, due)?;
            let absolute = due.kind != Kind::Any && due.origin == i64::MIN;
            self.last = Some(Last { at: due.at, inbound: is_inbound(event), absolute });
        }
        self.await_idle()?;
        match &self.sleeping {
            None => Ok(()),
            Some(sleeping) => {
                let span = &sleeping.call.name.span;
                let name = &sleeping.call.name.node;
                Err(Failure::stack(span, format!("{name}() still sleeps at the end of the script")))
            }
        }
    }

    /// When an event is due.
    fn due(&self, event: &Event) -> Result<Due, Failure> {
        use crate::lang::ast::Time;
        let span = &event.time.span;
        let absolute = matches!(event.time.node, Time::Absolute(_) | Time::AbsoluteRange(..));
        let origin = match self.last {
            Some(last) if last.inbound && is_inbound(event) => last.at,
            _ => self.now(),
        };
        let too_far = || Failure::script(span, "the script lasts longer than a day");
        let mut due = Due::of(event, origin).ok_or_else(too_far)?;
        if absolute {
            // Marks that nothing in it is relative.
            due.origin = i64::MIN;
        }
        match self.last {
            Some(last) if absolute && last.absolute && due.at < last.at => {
                Err(Failure::script(span, "time goes backwards in the script"))
            }
            _ => Ok(due),
        }
    }

    fn event(&mut self, event: &'a Event, due: Due) -> Result<(), Failure> {
        let span = &event.action.span;
        match &event.action.node {
            Action::Packet(packet) if packet.direction == Direction::Outbound => {
                self.outbound(packet, span, due)
            }
            Action::Packet(packet) => {
                self.await_event(span, due, "the inbound packet was")?;
                self.inbound(packet, span)
            }
            Action::Call(call) => self.call(call, span, due),
            Action::Command(text) => {
                self.await_event(span, due, "the command was")?;
                shell::run(self.host, text, self.folder).map_err(broken(span))
            }
            Action::Code(text) => {
                self.await_event(span, due, "the code was")?;
                self.code(text, span)
            }
        }
    }

    /// Microseconds since the script began.
    fn now(&self) -> i64 {
        micros(self.host.now())
    }

    fn slack(&self) -> i64 {
        time::length(self.host.slack())
    }

    /// Lets time pass until `until`; calls that return meanwhile are looked at.
    fn wait_until(&mut self, until: i64, span: &Span) -> Result<(), Failure> {
        while self.now() < until {
            self.wait_once(until, span)?;
        }
        Ok(())
    }

    /// Lets time pass until `until` at most, or until something happens.
    fn wait_once(&mut self, until: i64, span: &Span) -> Result<(), Failure> {
        self.host.wait(time::instant(until)).map_err(broken(span))?;
        self.take_returned()
    }

    /// Waits for the time of an event, and checks that it is not too late.
    fn await_event(&mut self, span: &Span, due: Due, what: &str) -> Result<(), Failure> {
        self.wait_until(due.at, span)?;
        let Some(last) = self.last else { return Ok(()) };
        let now = self.now();
        due.check(self.config, self.slack(), Some(last.at), now, what)
            .map_err(|text| Failure::stack(span, text))
    }

    /// Counts bytes that the script moves.
    fn count_bytes(&mut self, bytes: usize, span: &Span) -> Result<(), Failure> {
        self.moved = self.moved.saturating_add(bytes as u64);
        if self.moved > MOST_BYTES {
            return Err(Failure::script(span, "the script moves more bytes than anybody needs"));
        }
        Ok(())
    }

    /// The moment that a host's time stands for.
    fn at(&self, instant: Instant) -> i64 {
        micros(instant)
    }
}

#[cfg(test)]
mod tests;
