//! Answers the requests of the control socket, from the stacks of this process.

use std::time::{Duration, Instant};

use plimsoll::{Hold, Info, Stack, State};
use plimsoll_gateway::connections::{ConnectionSummary, Sample};

use crate::control::protocol::{
    Answer, ConnectionLine, Connections, FqLine, Leg, NetId, QdiscLine, Request, Role, SocketLine,
    StackQdiscs, StackSockets, StackValues,
};
use crate::control::server::Respond;

/// The stacks of this process.
pub(crate) struct Stacks {
    /// The stacks, with their names.
    all: Vec<(String, Stack)>,
    begun: Instant,
}

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
                for (_, stack) in &self.all {
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
            Request::Connections => Answer::Connections(self.connections()),
            Request::Ss => Answer::Sockets(
                self.all
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
    /// Answers for these stacks, which have just been built.
    pub(crate) fn new(all: Vec<(String, Stack)>) -> Stacks {
        Stacks { all, begun: Instant::now() }
    }

    /// Milliseconds since the stacks were built.
    pub(crate) fn running_ms(&self) -> u64 {
        millis(self.begun.elapsed())
    }

    fn connections(&self) -> Connections {
        let tcp = self.all.iter().flat_map(|(_, stack)| stack.sockets());
        let lines = tcp.filter_map(|socket| {
            let network = socket.info.as_deref().map(Leg::from);
            Some(ConnectionLine {
                far: socket.remote?,
                name: None,
                near: socket.local,
                role: Role::Peer,
                state: state_name(socket.state).to_owned(),
                age_ms: None,
                network,
                inside: None,
            })
        });
        let udp = self.all.iter().flat_map(|(_, stack)| stack.udp_sockets());
        Connections {
            running_ms: self.running_ms(),
            lines: lines.collect(),
            flows: udp.filter(|socket| socket.remote.is_some()).count(),
        }
    }

    fn each(&self, values: impl Fn(&Stack) -> Vec<(String, String)>) -> Vec<StackValues> {
        self.all
            .iter()
            .map(|(name, stack)| StackValues { stack: name.clone(), values: values(stack) })
            .collect()
    }

    fn get(&self, names: &[String]) -> Answer {
        let unknown =
            |name: &&String| self.all.iter().any(|(_, stack)| stack.sysctl(name).is_none());
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
        self.all.iter().map(of).collect()
    }

    fn set_qdisc(&self, dev: &str, text: &str) -> Answer {
        let mut found = false;
        for (_, stack) in &self.all {
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// From this state of loss recovery on, data that was lost is being retransmitted.
const RECOVERY: u8 = 3;

impl From<&Info> for Leg {
    fn from(info: &Info) -> Leg {
        // The windows and the buffer have times of their own.
        let other = |hold: &Hold| !matches!(hold, Hold::Rwnd | Hold::SillyWindow);
        let figures = |hold: Hold| {
            let (count, time) = (info.holds[hold as usize], info.hold_times[hold as usize]);
            (hold.name().to_owned(), count, micros(time))
        };
        let holds = Hold::ALL.into_iter().filter(other).map(figures);
        let holds = holds.filter(|&(_, count, _)| count > 0);
        Leg {
            rtt_us: micros(info.rtt),
            cwnd: info.snd_cwnd,
            in_flight: info.unacked,
            retrans: info.total_retrans,
            out_of_order: info.rcv_ooopack,
            unsent: info.notsent_bytes.into(),
            sent: info.bytes_sent.saturating_sub(info.bytes_retrans),
            received: info.bytes_received,
            busy_us: micros(info.busy_time),
            rwnd_us: micros(info.rwnd_limited),
            sndbuf_us: micros(info.sndbuf_limited),
            recovers: info.ca_state >= RECOVERY,
            since_sent_ms: millis(info.last_data_sent),
            since_received_ms: millis(info.last_data_recv),
            holds: holds.collect(),
        }
    }
}

impl From<&Sample> for Leg {
    fn from(sample: &Sample) -> Leg {
        Leg {
            rtt_us: micros(sample.smoothed_rtt),
            cwnd: sample.cwnd,
            in_flight: sample.in_flight,
            retrans: sample.retransmissions,
            out_of_order: sample.out_of_order,
            unsent: sample.not_sent.into(),
            sent: sample.sent,
            received: sample.received,
            busy_us: micros(sample.busy),
            rwnd_us: micros(sample.window_limited),
            sndbuf_us: micros(sample.buffer_limited),
            recovers: sample.recovery >= RECOVERY,
            since_sent_ms: millis(sample.since_sent),
            since_received_ms: millis(sample.since_received),
            holds: Vec::new(),
        }
    }
}

impl From<&ConnectionSummary> for ConnectionLine {
    fn from(summary: &ConnectionSummary) -> ConnectionLine {
        ConnectionLine {
            far: summary.far,
            name: summary.name.clone(),
            near: summary.near,
            role: if summary.is_visitor { Role::Visitor } else { Role::Server },
            state: state_name(Some(summary.state)).to_owned(),
            age_ms: Some(millis(summary.age)),
            network: summary.host.as_ref().map(Leg::from),
            inside: summary.guest.as_deref().map(Leg::from),
        }
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
