//! Answers the requests of the control socket, from the stacks of this process.

use std::time::Duration;

use plimsoll::{Hold, Info, Stack, State};

use crate::control::protocol::{
    Answer, FqLine, NetId, QdiscLine, Request, SocketLine, StackQdiscs, StackSockets, StackValues,
};
use crate::control::server::Respond;

/// The stacks of this process, with their names.
pub(crate) struct Stacks(pub Vec<(String, Stack)>);

impl Respond for Stacks {
    fn respond(&self, request: Request) -> Answer {
        match request {
            Request::Nstat => Answer::Values(self.each(|stack| {
                let memory = stack.memory();
                let held = [("MemoryUsed", memory.bytes), ("MemoryPeak", memory.peak)]
                    .map(|(name, bytes)| (format!("plimsoll.{name}"), bytes.to_string()));
                let counters = stack.counters().into_iter();
                let counters = counters.map(|(name, value)| (name.to_owned(), value.to_string()));
                counters.chain(held).collect()
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
            Request::Qdisc => Answer::Qdiscs(self.qdiscs()),
            Request::QdiscSet { dev, qdisc } => self.set_qdisc(&dev, &qdisc),
            Request::Ports | Request::PortAdd { .. } | Request::PortRemove { .. } => {
                Answer::Error("this process publishes no ports; 'plimsoll run' does".to_owned())
            }
            Request::Weather { .. } => Answer::Error(
                "this process has no link of its own; 'plimsoll run --link' does".to_owned(),
            ),
            Request::Ss => Answer::Sockets(
                self.0
                    .iter()
                    .map(|(name, stack)| StackSockets {
                        stack: name.clone(),
                        sockets: sockets(stack),
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

impl Stacks {
    fn qdiscs(&self) -> Vec<StackQdiscs> {
        let of = |(name, stack): &(String, Stack)| StackQdiscs {
            stack: name.clone(),
            qdiscs: stack.qdiscs().iter().map(qdisc_line).collect(),
        };
        self.0.iter().map(of).collect()
    }

    fn set_qdisc(&self, dev: &str, text: &str) -> Answer {
        let mut found = false;
        for (_, stack) in &self.0 {
            for (index, summary) in stack.qdiscs().iter().enumerate() {
                if summary.interface != dev {
                    continue;
                }
                found = true;
                if let Err(error) = stack.set_qdisc(index, text) {
                    return Answer::Error(error.to_string());
                }
            }
        }
        match found {
            true => Answer::Qdiscs(self.qdiscs()),
            false => Answer::Error(format!(
                "no interface is called {dev}; 'plimsoll qdisc' prints all of them"
            )),
        }
    }
}

fn qdisc_line(summary: &plimsoll::QdiscSummary) -> QdiscLine {
    let stats = &summary.stats;
    let fq = summary.fq.as_ref().map(|fq| FqLine {
        flows: fq.flows as u64,
        inactive: fq.inactive as u64,
        throttled: fq.throttled as u64,
        gc: fq.gc,
        highprio: fq.highprio,
        throttled_events: fq.throttled_events,
        flows_plimit: fq.flows_plimit,
        horizon_drops: fq.horizon_drops,
        horizon_caps: fq.horizon_caps,
    });
    QdiscLine {
        kind: summary.kind.name().to_owned(),
        dev: summary.interface.clone(),
        options: summary.kind.to_string(),
        bytes: stats.sent_bytes,
        packets: stats.dequeued,
        drops: stats.dropped,
        backlog: stats.bytes as u64,
        qlen: stats.len as u64,
        fq,
    }
}

/// The most decisions reported for one connection.
const MOST_DECISIONS: usize = 100;

/// All sockets of a stack.
fn sockets(stack: &Stack) -> Vec<SocketLine> {
    let (tcp, udp) = (stack.sockets(), stack.udp_sockets());
    tcp.iter().map(line).chain(udp.iter().map(udp_line)).collect()
}

fn udp_line(socket: &plimsoll::UdpSocketSummary) -> SocketLine {
    let figures = [("datagrams", socket.datagrams), ("memory", socket.memory)];
    let info = figures.map(|(name, value)| (name.to_owned(), value.to_string()));
    SocketLine {
        netid: NetId::Udp,
        state: if socket.remote.is_some() { "ESTAB" } else { "UNCONN" }.to_owned(),
        recv_q: socket.recv_queue as u64,
        send_q: socket.send_queue as u64,
        local: socket.local.to_string(),
        remote: socket.remote.map_or_else(|| "*".to_owned(), |remote| remote.to_string()),
        info: info.to_vec(),
        why: Vec::new(),
    }
}

fn line(socket: &plimsoll::SocketSummary) -> SocketLine {
    let mut info = Vec::new();
    if socket.orphan {
        info.push(("orphan".to_owned(), "yes".to_owned()));
    }
    info.extend(socket.info.iter().flat_map(|told| words(told)));
    let last = &socket.decisions[socket.decisions.len().saturating_sub(MOST_DECISIONS)..];
    SocketLine {
        netid: NetId::Tcp,
        state: state_name(socket.state).to_owned(),
        recv_q: socket.recv_queue as u64,
        send_q: socket.send_queue as u64,
        local: socket.local.to_string(),
        remote: socket.remote.map_or_else(|| "*".to_owned(), |remote| remote.to_string()),
        info,
        why: last.iter().map(ToString::to_string).collect(),
    }
}

/// The words of `ss -i`: those of Linux's `ss`, and what holds the next send.
fn words(told: &Info) -> Vec<(String, String)> {
    let millis = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    let words = vec![
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
    let mut words: Vec<(String, String)> =
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(model) = &told.bbr {
        words.push(("bbr".to_owned(), model.to_string()));
    }
    words.extend(hold_words(told));
    words
}

/// The reason that holds the next send, since when, and what will end it. Then, for each reason
/// that has occurred, how often and how long in all.
fn hold_words(told: &Info) -> Vec<(String, String)> {
    let mut words = Vec::new();
    if let Some(hold) = told.hold {
        let text = format!(
            "{},{}us,until({})",
            hold.name(),
            told.held_for.as_micros(),
            hold.restarted_by()
        );
        words.push(("hold".to_owned(), text));
    }
    for hold in Hold::ALL {
        let (count, time) = (told.holds[hold as usize], told.hold_times[hold as usize]);
        if count > 0 {
            words
                .push((format!("held_{}", hold.name()), format!("{count}/{}us", time.as_micros())));
        }
    }
    words
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
