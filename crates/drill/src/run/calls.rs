//! Making calls, and looking at what they return.

use crate::posix::{Call, Dest, Errno, Out, Reply, Source};

use super::arguments::integer32;
use super::flow::{Flow, State};
use super::prepare::{Check, Expected};
use super::time::{Due, micros};
use super::{GRACE, PATIENCE, Runner, broken, control};
use crate::failure::Failure;
use crate::host::Started;
use crate::lang::ast::{self, Span};
use crate::symbols;

/// A call that sleeps.
#[derive(Debug)]
pub(super) struct Sleeping<'a> {
    pub(super) call: &'a ast::Call,
    check: Check,
    due: Due,
    /// When the script says that it returns.
    end: Option<i64>,
}

impl<'a> Runner<'a> {
    /// A call of the script.
    pub(super) fn call(
        &mut self,
        call: &'a ast::Call,
        span: &Span,
        due: Due,
    ) -> Result<(), Failure> {
        self.await_idle()?;
        let end = call.end.map(|end| due.origin.max(0).saturating_add(end));
        if self.sleeping.is_some() && end.is_some() {
            let text = "a call that sleeps while another one sleeps";
            return Err(Failure::script(span, text));
        }
        self.await_event(span, due, "the call was")?;
        let prepared = self.prepare(call)?;
        self.count_bytes(buffer_bytes(&prepared.call), span)?;
        let started = self.host.call(prepared.call, end.is_some()).map_err(broken(span))?;
        match started {
            Started::Returned(reply) => {
                let now = self.now();
                self.finish(Sleeping { call, check: prepared.check, due, end }, now, &reply)
            }
            Started::Sleeps if self.sleeping.is_some() => {
                Err(Failure::stack(span, "the call sleeps while another one sleeps"))
            }
            Started::Sleeps => {
                self.sleeping = Some(Sleeping { call, check: prepared.check, due, end });
                if end.is_none() { self.sleep_through(call, span) } else { Ok(()) }
            }
        }
    }

    /// A call that the script does not expect to sleep: everything waits for it.
    fn sleep_through(&mut self, call: &ast::Call, span: &Span) -> Result<(), Failure> {
        let until = self.now() + PATIENCE;
        while self.sleeping.is_some() {
            if self.now() >= until {
                let name = &call.name.node;
                let text = format!("{name}() sleeps although the script does not say so");
                return Err(Failure::stack(span, text));
            }
            self.wait_once(until, span)?;
        }
        Ok(())
    }

    /// Waits a little for a call that sleeps.
    pub(super) fn await_idle(&mut self) -> Result<(), Failure> {
        let until = self.now() + GRACE;
        while let Some(sleeping) = &self.sleeping {
            if self.now() >= until {
                break;
            }
            let span = sleeping.call.name.span.clone();
            self.wait_once(until, &span)?;
        }
        Ok(())
    }

    /// Looks at a call that has returned meanwhile.
    pub(super) fn take_returned(&mut self) -> Result<(), Failure> {
        match self.host.returned() {
            Some((at, reply)) => match self.sleeping.take() {
                Some(sleeping) => self.finish(sleeping, micros(at), &reply),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// A call has returned.
    fn finish(&mut self, sleeping: Sleeping<'_>, at: i64, reply: &Reply) -> Result<(), Failure> {
        let Sleeping { call, check, due, end } = sleeping;
        let takes_any = matches!(check, Check::Socket(_) | Check::Descriptor | Check::Accept);
        check_result(call, takes_any, reply)?;
        let span = &call.name.span;
        if reply.result.is_ok() {
            self.check(call, check, reply)?;
        }
        let Some(end) = end else { return Ok(()) };
        let returns = Due { at: end, end, ..due };
        returns
            .check(self.config, self.slack(), Some(due.at), at, "the call's return was")
            .map_err(|text| Failure::stack(span, text))
    }

    fn check(&mut self, call: &ast::Call, check: Check, reply: &Reply) -> Result<(), Failure> {
        let span = &call.name.span;
        let wrong = |text: String| Failure::stack(span, text);
        let value = reply.result.unwrap_or(-1) as i32;
        let script = integer32(&call.result)?;
        match check {
            Check::Nothing => Ok(()),
            Check::Socket(protocol) => self.new_socket(protocol, script, value, span),
            Check::Descriptor => self.add_other(script, value).map_err(wrong),
            Check::Accept => self.accepted(script, value, reply, span),
            Check::Listen(fd) => {
                if let Some(at) = self.flow_of(fd) {
                    self.flows[at].state = State::Listening;
                }
                Ok(())
            }
            Check::Close(fd) => {
                self.note_closed(fd);
                Ok(())
            }
            Check::Pipe(ends) => {
                let Out::Pipe(live) = reply.out else { return Err(wrong("no pipe".to_owned())) };
                self.add_other(ends[0], live[0]).map_err(wrong)?;
                self.add_other(ends[1], live[1]).map_err(wrong)
            }
            Check::Ioctl(want) => {
                let have = if let Out::Int(have) = reply.out { have } else { want };
                if have == want {
                    return Ok(());
                }
                let text = format!("{}() gives {have} instead of {want}", call.name.node);
                Err(wrong(text).with(format!("[{want}]"), format!("[{have}]")))
            }
            Check::Option { value, len } => check_option(&value, len, reply).map_err(wrong),
            Check::Message { flags, control } => {
                let tolerance = self.config.tolerance_usecs + self.slack();
                let epoch = super::time::length(self.host.epoch());
                check_message(flags, &control, reply, epoch, tolerance).map_err(wrong)
            }
            Check::Poll(wanted) => check_poll(&wanted, reply).map_err(wrong),
            Check::Epoll { events, data, mask } => {
                check_epoll(events, data, mask, reply).map_err(wrong)
            }
        }
    }

    fn new_socket(
        &mut self,
        protocol: i32,
        script: i32,
        live: i32,
        span: &Span,
    ) -> Result<(), Failure> {
        let wrong = |text: String| Failure::script(span, text);
        self.check_new(script, live).map_err(wrong)?;
        // Protocol 0 is the usual one of a stream.
        let protocol = if protocol == 0 { 6 } else { protocol };
        let mut flow = Flow::new(protocol, State::New);
        flow.script_fd = Some(script);
        flow.live_fd = Some(live);
        self.under_test = Some(self.add_flow(flow, span)?);
        Ok(())
    }

    pub(super) fn add_flow(&mut self, flow: Flow, span: &Span) -> Result<usize, Failure> {
        if self.flows.len() >= 4096 {
            return Err(Failure::script(span, "too many sockets"));
        }
        self.flows.push(flow);
        Ok(self.flows.len() - 1)
    }

    /// `accept()` gave a descriptor to one of the connections that the script has begun.
    fn accepted(
        &mut self,
        script: i32,
        live: i32,
        reply: &Reply,
        span: &Span,
    ) -> Result<(), Failure> {
        // The script may give a number again that is still open; the later one is meant then.
        let peer = if let Out::Address(peer) = &reply.out { Some(*peer) } else { None };
        let is_it = |flow: &Flow| {
            matches!(flow.state, State::SynAckSent | State::SynAckAcked)
                && flow.script_fd.is_none()
                && peer.is_none_or(|peer| {
                    peer.port() == flow.remote.port()
                        && peer.ip().to_canonical() == flow.remote.ip().to_canonical()
                })
        };
        match self.flows.iter().rposition(is_it) {
            Some(at) => {
                self.flows[at].script_fd = Some(script);
                self.flows[at].live_fd = Some(live);
                Ok(())
            }
            None => Err(Failure::stack(span, "a connection came that the script has not begun")),
        }
    }
}

/// Bytes of the buffers of a call.
fn buffer_bytes(call: &Call) -> usize {
    match call {
        Call::Receive { buffers, .. } => {
            let len = |buffer: &Dest| match buffer {
                Dest::Room(len) => *len,
                Dest::Null(_) => 0,
            };
            buffers.iter().map(len).sum()
        }
        Call::Send { buffers, .. } => {
            let len = |buffer: &Source| match buffer {
                Source::Bytes(bytes) => bytes.len(),
                Source::Null(_) => 0,
            };
            buffers.iter().map(len).sum()
        }
        Call::Splice { len, .. } => *len,
        Call::Sendfile { count, .. } => *count,
        _ => 0,
    }
}

fn check_result(call: &ast::Call, takes_any: bool, reply: &Reply) -> Result<(), Failure> {
    let want = integer32(&call.result)?;
    let have = reply.result.unwrap_or(-1);
    let shown = match reply.result {
        Ok(value) => value.to_string(),
        Err(errno) => format!("-1 {errno}"),
    };
    let wanted = match &call.errno {
        Some(errno) => format!("{want} {}", errno.node),
        None => want.to_string(),
    };
    let name = &call.name.node;
    let wrong = |span: &Span| {
        let text = format!("{name}() returned {shown} instead of {wanted}");
        Failure::stack(span, text).with(wanted.clone(), shown.clone())
    };
    let good = if takes_any && want >= 0 { have >= 0 } else { have == i64::from(want) };
    if !good {
        return Err(wrong(&call.result.span));
    }
    let Some(errno) = &call.errno else { return Ok(()) };
    let number = symbols::value(&errno.node).ok_or_else(|| {
        Failure::script(&errno.span, format!("the error {} is not known", errno.node))
    })?;
    match reply.result {
        Err(Errno(have)) if i64::from(have) == number => Ok(()),
        _ => Err(wrong(&errno.span)),
    }
}

fn check_option(want: &Expected, len: i32, reply: &Reply) -> Result<(), String> {
    let Out::Option { value, len: have_len } = &reply.out else {
        return Ok(());
    };
    if *have_len != len {
        return Err(format!("the option has {have_len} bytes instead of {len}"));
    }
    match want {
        Expected::Int(want) => {
            let mut bytes = [0; 4];
            let take = value.len().min(4);
            bytes[..take].copy_from_slice(&value[..take]);
            let have = i32::from_le_bytes(bytes);
            if have == *want {
                return Ok(());
            }
            Err(format!("the option is {have} instead of {want}"))
        }
        Expected::Bytes(want) if value == want => Ok(()),
        Expected::Prefix(want) if value.starts_with(want) => Ok(()),
        Expected::Bytes(want) | Expected::Prefix(want) => {
            let (have, want) = (value.escape_ascii(), want.escape_ascii());
            Err(format!("the option is \"{have}\" instead of \"{want}\""))
        }
    }
}

fn check_message(
    flags: i32,
    want: &[control::Expected],
    reply: &Reply,
    epoch: i64,
    tolerance: i64,
) -> Result<(), String> {
    let Out::Received { control, msg_flags, .. } = &reply.out else {
        return Ok(());
    };
    if *msg_flags != flags {
        let show = |flags: i32| symbols::flags(symbols::MSG, i64::from(flags.cast_unsigned()));
        return Err(format!("the flags are {} instead of {}", show(*msg_flags), show(flags)));
    }
    if control.len() != want.len() {
        let (have, want) = (control.len(), want.len());
        let shown = control::show(control);
        return Err(format!("{have} ancillary messages instead of {want}: {shown}"));
    }
    for (at, (want, have)) in want.iter().zip(control).enumerate() {
        want.compare(have, epoch, tolerance)
            .map_err(|text| format!("ancillary message {}: {text}", at + 1))?;
    }
    Ok(())
}

fn check_poll(want: &[i64], reply: &Reply) -> Result<(), String> {
    let Out::Poll(fds) = &reply.out else { return Ok(()) };
    for (at, (want, have)) in want.iter().zip(fds).enumerate() {
        let have = i64::from(have.revents.cast_unsigned());
        if have != *want {
            let (have, want) =
                (symbols::flags(symbols::POLL, have), symbols::flags(symbols::POLL, *want));
            return Err(format!("entry {} has {have} instead of {want}", at + 1));
        }
    }
    Ok(())
}

fn check_epoll(events: u32, data: u64, mask: u64, reply: &Reply) -> Result<(), String> {
    let Out::Epoll(list) = &reply.out else { return Ok(()) };
    let first = list.first().copied().unwrap_or_default();
    if first.events != events {
        let show = |events: u32| symbols::flags(symbols::EPOLL, i64::from(events));
        return Err(format!("the events are {} instead of {}", show(first.events), show(events)));
    }
    if first.data & mask != data & mask && !list.is_empty() {
        let (have, want) = (first.data & mask, data & mask);
        return Err(format!("the event's data is {have:#x} instead of {want:#x}"));
    }
    Ok(())
}
