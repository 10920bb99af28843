//! What the control socket answers: the stacks of this process.

use std::time::Duration;

use plimsoll::{Info, Stack, State};

use crate::control::protocol::{Answer, Request, SocketLine, StackSockets, StackValues};
use crate::control::server::Respond;

/// The stacks of this process, with their names.
pub(crate) struct Stacks(pub Vec<(String, Stack)>);

impl Respond for Stacks {
    fn respond(&self, request: Request) -> Answer {
        match request {
            Request::Nstat => Answer::Values(self.each(|stack| {
                let counters = stack.counters().into_iter();
                counters.map(|(name, value)| (name.to_owned(), value.to_string())).collect()
            })),
            Request::SysctlGet { names } => self.get(&names),
            Request::SysctlSet { name, value } => {
                for (_, stack) in &self.0 {
                    if let Err(error) = stack.set_sysctl(&name, &value) {
                        return Answer::Error(error.to_string());
                    }
                }
                self.get(&[name])
            }
            Request::Ss => Answer::Sockets(
                self.0
                    .iter()
                    .map(|(name, stack)| StackSockets {
                        stack: name.clone(),
                        sockets: stack.sockets().iter().map(line).collect(),
                    })
                    .collect(),
            ),
        }
    }
}

impl Stacks {
    fn each(&self, values: impl Fn(&Stack) -> Vec<(String, String)>) -> Vec<StackValues> {
        self.0
            .iter()
            .map(|(name, stack)| StackValues { stack: name.clone(), values: values(stack) })
            .collect()
    }

    fn get(&self, names: &[String]) -> Answer {
        let unknown = |name: &&String| self.0.iter().any(|(_, stack)| stack.sysctl(name).is_none());
        if let Some(name) = names.iter().find(unknown) {
            return Answer::Error(format!(
                "no such setting: {name}; 'plimsoll sysctl' prints all of them"
            ));
        }
        Answer::Values(self.each(|stack| {
            if names.is_empty() {
                let all = stack.sysctls().into_iter();
                return all.map(|(name, value)| (name.to_owned(), value)).collect();
            }
            names
                .iter()
                .filter_map(|name| stack.sysctl(name).map(|value| (name.clone(), value)))
                .collect()
        }))
    }
}

fn line(socket: &plimsoll::SocketSummary) -> SocketLine {
    let mut info = Vec::new();
    if socket.orphan {
        info.push(("orphan".to_owned(), "yes".to_owned()));
    }
    info.extend(socket.info.iter().flat_map(|told| words(told)));
    SocketLine {
        state: state_name(socket.state).to_owned(),
        recv_q: socket.recv_queue as u64,
        send_q: socket.send_queue as u64,
        local: socket.local.to_string(),
        remote: socket.remote.map_or_else(|| "*".to_owned(), |remote| remote.to_string()),
        info,
    }
}

/// The words of `ss -i`: those of Linux's `ss`, and what holds the next send.
fn words(told: &Info) -> Vec<(String, String)> {
    let millis = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    let mut words = vec![
        ("congestion", told.congestion.name().to_owned()),
        ("wscale", format!("{},{}", told.snd_wscale, told.rcv_wscale)),
        ("rto", millis(told.rto)),
        ("rtt", format!("{}/{}", millis(told.rtt), millis(told.rttvar))),
        ("mss", told.snd_mss.to_string()),
        ("pmtu", told.pmtu.to_string()),
        ("rcvmss", told.rcv_mss.to_string()),
        ("advmss", told.advmss.to_string()),
        ("cwnd", told.snd_cwnd.to_string()),
        ("bytes_sent", told.bytes_sent.to_string()),
        ("bytes_retrans", told.bytes_retrans.to_string()),
        ("bytes_acked", told.bytes_acked.to_string()),
        ("bytes_received", told.bytes_received.to_string()),
        ("segs_out", told.segs_out.to_string()),
        ("segs_in", told.segs_in.to_string()),
        ("unacked", told.unacked.to_string()),
        ("retrans", format!("{}/{}", told.retrans, told.total_retrans)),
        ("rcv_space", told.rcv_space.to_string()),
        ("notsent", told.notsent_bytes.to_string()),
    ];
    words.extend(told.hold.map(|hold| ("hold", hold.name().to_owned())));
    words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The names that `ss` uses.
fn state_name(state: Option<State>) -> &'static str {
    match state {
        None => "LISTEN",
        Some(State::SynSent) => "SYN-SENT",
        Some(State::SynReceived) => "SYN-RECV",
        Some(State::Established) => "ESTAB",
        Some(State::FinWait1) => "FIN-WAIT-1",
        Some(State::FinWait2) => "FIN-WAIT-2",
        Some(State::CloseWait) => "CLOSE-WAIT",
        Some(State::Closing) => "CLOSING",
        Some(State::LastAck) => "LAST-ACK",
        Some(State::TimeWait) => "TIME-WAIT",
        Some(State::Closed) => "UNCONN",
    }
}
