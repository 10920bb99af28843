//! What the control socket answers: the stacks of this process.

use plimsoll::{Stack, State};

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
    SocketLine {
        state: state_name(socket.state).to_owned(),
        recv_q: socket.recv_queue as u64,
        send_q: socket.send_queue as u64,
        local: socket.local.to_string(),
        remote: socket.remote.map_or_else(|| "*".to_owned(), |remote| remote.to_string()),
        info,
    }
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
