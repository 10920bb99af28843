//! The world: a stack, its line, sockets and time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::Waker;

use plimsoll_buf::{Pool, Slice};
use plimsoll_stack::device::Caps;
use plimsoll_stack::{Duration, Instant, InterfaceConfig, Listener, Stack, StackConfig, TcpSocket};
use plimsoll_tcp::Options;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpRepr;

use super::Setup;
use super::device::{OURS, PEER, SharedLine};
use super::forge::{self, Around};
use super::step::{Envelope, Step};
use crate::engine::{Forgery, Seen};

/// Polls without anything new from outside.
const MAX_POLLS: usize = 10_000;
/// Events until nothing may remain.
const MAX_ROUNDS: usize = 20_000;
const MAX_SOCKETS: usize = 32;
const MAX_FLOWS: usize = 64;

const MTUS: [u16; 4] = [1500, 576, 9000, 1280];
const DURATIONS_US: [u64; 10] = [
    1,
    1_000,
    10_000,
    40_000,
    200_000,
    1_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    7_200_000_000,
];

/// Settings that are changed, with two values each.
const SETTINGS: [(&str, [&str; 2]); 33] = [
    ("net.ipv4.tcp_rto_min_us", ["120000000", "200000"]),
    ("net.ipv4.tcp_rto_max_ms", ["1000", "120000"]),
    ("plimsoll.tcp_delack_min", ["1000", "40"]),
    ("plimsoll.tcp_delack_max", ["1", "200"]),
    ("net.ipv4.tcp_sack", ["0", "1"]),
    ("net.ipv4.tcp_timestamps", ["0", "1"]),
    ("net.ipv4.tcp_window_scaling", ["0", "1"]),
    ("net.ipv4.tcp_rmem", ["4096 16384 65536", "4096 131072 6291456"]),
    ("net.ipv4.tcp_wmem", ["4096 4096 8192", "4096 16384 4194304"]),
    ("net.ipv4.tcp_abort_on_overflow", ["0", "1"]),
    ("net.ipv4.tcp_max_syn_backlog", ["1", "128"]),
    ("net.ipv4.tcp_rfc1337", ["0", "1"]),
    ("net.ipv4.tcp_ecn", ["3", "4"]),
    ("net.ipv4.tcp_ecn_option", ["1", "3"]),
    ("net.ipv4.tcp_congestion_control", ["bbr", "dctcp"]),
    ("net.ipv4.ip_local_port_range", ["40000 40003", "32768 60999"]),
    ("net.core.somaxconn", ["1", "4096"]),
    ("net.ipv4.tcp_autocorking", ["0", "1"]),
    ("net.ipv4.tcp_limit_output_bytes", ["2048", "4194304"]),
    ("net.ipv4.tcp_min_tso_segs", ["1", "8"]),
    ("net.ipv4.tcp_tso_win_divisor", ["0", "3"]),
    ("net.ipv4.tcp_tso_rtt_log", ["0", "9"]),
    ("net.ipv4.tcp_pacing_ss_ratio", ["1", "200"]),
    ("net.ipv4.tcp_pacing_ca_ratio", ["1", "120"]),
    ("net.ipv4.tcp_backlog_ack_defer", ["0", "1"]),
    ("net.ipv4.tcp_low_latency", ["0", "1"]),
    ("net.ipv4.tcp_notsent_lowat", ["1", "4294967295"]),
    ("net.ipv4.tcp_comp_sack_nr", ["0", "44"]),
    ("plimsoll.tcp_tso_tail", ["split", "trim"]),
    ("plimsoll.tcp_tso_tail", ["empty", "nagle"]),
    ("no.such.setting", ["0", "x"]),
    ("plimsoll.tcp_backlog_limit", ["1", "2"]),
    ("plimsoll.tcp_pingpong", ["2", "1"]),
];

/// A flow that the stack has shown: family, our port, the peer's port.
type Flow = (bool, u16, u16);

/// The world.
pub struct World {
    /// The time.
    pub now: Instant,
    stack: Arc<Stack>,
    line: SharedLine,
    sockets: Vec<Arc<TcpSocket>>,
    listeners: Vec<Arc<Listener>>,
    flows: Vec<Flow>,
    seen: HashMap<Flow, Seen>,
    pool: Pool,
    gone: bool,
}

fn port(choice: u8) -> u16 {
    80 + u16::from(choice % 4)
}

fn pick<T>(list: &[T], choice: u8) -> Option<&T> {
    if list.is_empty() { None } else { list.get(usize::from(choice) % list.len()) }
}

impl World {
    /// A world at its beginning.
    pub fn new(setup: &Setup) -> World {
        let bit = |bit: u16| setup.switches & (1 << bit) != 0;
        let line = SharedLine::new(
            Caps::new("fuzz", MTUS[usize::from(setup.mtu) % MTUS.len()])
                .tso4(bit(0))
                .tso6(bit(1))
                .uso(bit(0))
                .tx_checksum(bit(0) || bit(1) || bit(2))
                .completions(bit(3)),
        );
        // What completes by being dropped may be kept for a while.
        line.lock().hold(bit(3) && bit(6));
        let interface = InterfaceConfig {
            device: line.device(),
            addresses: vec![(OURS[0], 24), (OURS[1], 64)],
            mtu: None,
        };
        let stack = Stack::new(StackConfig {
            interfaces: vec![interface],
            secret: [setup.seed; 32],
            seed: setup.seed.into(),
            sysctls: vec![
                ("net.ipv4.tcp_fastopen".to_owned(), if bit(4) { "0x602" } else { "1" }.to_owned()),
                ("net.ipv4.tcp_syncookies".to_owned(), if bit(5) { "2" } else { "1" }.to_owned()),
            ],
            ..StackConfig::default()
        });
        World {
            now: Instant::from_millis(1000),
            stack: stack.expect("a configuration without mistakes"),
            line,
            sockets: Vec::new(),
            listeners: Vec::new(),
            flows: Vec::new(),
            seen: HashMap::new(),
            pool: Pool::new(),
            gone: false,
        }
    }

    /// Polls until nothing is left to do, and takes note of what left.
    fn poll(&mut self) -> Option<Instant> {
        for _ in 0..MAX_POLLS {
            let polled = match self.stack.poll(self.now, 64) {
                Ok(polled) => polled,
                Err(error) => {
                    assert!(self.gone, "the stack ended: {error}");
                    return None;
                }
            };
            self.take_note();
            assert!(!polled.busy, "there is only one poller");
            if !polled.worked {
                return polled.next;
            }
        }
        panic!("polling does not come to an end");
    }

    fn take_note(&mut self) {
        let shown = core::mem::take(&mut self.line.lock().shown);
        for (v6, repr, payload_len) in shown {
            let flow = (v6, repr.src_port, repr.dst_port);
            if !self.seen.contains_key(&flow) {
                if self.flows.len() >= MAX_FLOWS {
                    continue;
                }
                self.flows.push(flow);
            }
            let seen = self.seen.entry(flow);
            seen.or_insert_with(|| Seen::new(1500, 20, 0, repr.seq)).observe(&repr, payload_len);
        }
    }

    /// Runs one step.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Raw(ref bytes) => self.arrive([forge::plain(bytes.clone())]),
            Step::RawUpper(v6, upper, ref bytes) => {
                let packet = forge::packet(v6, upper, Around::default(), bytes);
                self.arrive([forge::plain(packet)]);
            }
            Step::Segment(ref envelope, ref forgery) => self.segment(envelope, forgery),
            Step::Syn(v6, from, to, options) => {
                let ports = (1000 + u16::from(from % 8), port(to));
                let seq = SeqNum(u32::from(options) << 16);
                let syn = Forgery::opening_syn(seq, options, ports);
                let envelope = Envelope { flow: 0, switches: 0, tos: 0, broken: 0 };
                self.note_arrival((v6, ports.1, ports.0), &syn.repr);
                self.arrive(forge::enclose(v6, &envelope, &syn));
            }
            Step::Error(age, kind, mtu, len) => {
                let quoted = pick(self.line.lock().sent.make_contiguous(), age).cloned();
                let Some(mut quoted) = quoted else { return };
                quoted.truncate(usize::from(len).max(8));
                self.arrive([forge::plain(forge::icmp_error(&quoted, kind, mtu))]);
            }
            Step::Echo(v6, reply, len) => self.arrive([forge::plain(forge::echo(v6, reply, len))]),
            Step::Room(room) => {
                self.line.lock().room = if room > 200 { usize::MAX } else { room.into() };
            }
            Step::Complete(count) => {
                let held = self.line.lock().complete(count.into());
                drop(held);
            }
            Step::Qdisc(fq) => {
                let kind = if fq { "fq" } else { "pfifo" };
                self.stack.set_qdisc(self.now, 0, kind).expect("a discipline that exists");
            }
            Step::Advance(which) => {
                let micros = DURATIONS_US[usize::from(which) % DURATIONS_US.len()];
                self.advance_to(self.now + Duration::from_micros(micros));
            }
            Step::Next => {
                if let Some(next) = self.poll() {
                    self.now = self.now.max(next);
                }
            }
            Step::Gone => {
                self.gone = true;
                self.line.lock().gone = true;
            }
            _ => self.call(step),
        }
        self.poll();
    }

    fn call(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Connect(v6, to) => self.connect(v6, to),
            Step::Listen(v6, on, backlog) => {
                let any: IpAddr =
                    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                let local = SocketAddr::new(any, port(on));
                let listener = self.stack.listen(local, backlog.into(), Options::default());
                if self.listeners.len() < MAX_SOCKETS {
                    self.listeners.extend(listener.ok());
                }
            }
            Step::Accept(which) => {
                let Some(listener) = pick(&self.listeners, which) else { return };
                let _ = listener.poll_acceptable(Waker::noop());
                if let Ok(Some((socket, _))) = listener.accept(now)
                    && self.sockets.len() < MAX_SOCKETS
                {
                    self.sockets.push(socket);
                }
            }
            Step::DropListener(which) => {
                if !self.listeners.is_empty() {
                    let at = usize::from(which) % self.listeners.len();
                    self.listeners.swap_remove(at).close(now);
                }
            }
            Step::DropSocket(which) => {
                if !self.sockets.is_empty() {
                    let at = usize::from(which) % self.sockets.len();
                    self.sockets.swap_remove(at);
                }
            }
            Step::Sysctl(which, value) => {
                let (name, values) = SETTINGS[usize::from(which) % SETTINGS.len()];
                let set = self.stack.sysctl().set(name, values[usize::from(value) % 2]);
                assert_eq!(set.is_ok(), !name.starts_with("no."), "{name}: {set:?}");
            }
            Step::Ask => {
                let _ = (self.stack.counters(), self.stack.sockets(), self.stack.sysctl().list());
            }
            _ => self.call_socket(step),
        }
    }

    fn connect(&mut self, v6: bool, to: u8) {
        // Some connect to ourselves.
        let table = if to & 0x80 != 0 { OURS } else { PEER };
        let remote = SocketAddr::new(table[usize::from(v6)], port(to));
        let socket = self.stack.connect(self.now, remote, None, Options::default());
        if self.sockets.len() < MAX_SOCKETS {
            self.sockets.extend(socket.ok());
        }
    }

    fn call_socket(&mut self, step: &Step) {
        let now = self.now;
        let socket = |which| pick(&self.sockets, which).cloned();
        match *step {
            Step::Write(which, len) => {
                let Some(socket) = socket(which) else { return };
                let _ = socket.write(now, &vec![0x77; usize::from(len)]);
                let _ = socket.poll_writable(Waker::noop());
            }
            Step::WriteWith(which, len, how) => {
                let Some(socket) = socket(which) else { return };
                let data = vec![0x78; usize::from(len)];
                let middle = data.len() / 2;
                if how.corked && socket.write_corked(&data) {
                    return;
                }
                let _ = match how.shared {
                    true => {
                        let whole = Slice::from_owner(data.clone());
                        let parts = [whole.range(0, middle), whole.range(middle, data.len())];
                        socket.write_shared(now, &parts, how.flags())
                    }
                    false => {
                        socket.write_with(now, &[&data[..middle], &data[middle..]], how.flags())
                    }
                };
                while socket.take_report().is_some() {}
            }
            Step::WriteUrgent(which) => {
                let _ = socket(which).map(|socket| socket.write_urgent(now, b"!"));
            }
            Step::Read(which, len) => {
                let Some(socket) = socket(which) else { return };
                let mut buffer = vec![0; usize::from(len)];
                let _ = socket.peek(&mut buffer);
                let _ = (socket.read(now, &mut buffer), socket.read_urgent());
                let _ = (socket.poll_readable(Waker::noop()), socket.poll_connected(Waker::noop()));
                let _ = (socket.info(now), socket.readable_bytes(), socket.send_queue_len());
            }
            Step::Shutdown(which, how) => {
                let how = [Shutdown::Write, Shutdown::Read, Shutdown::Both][usize::from(how % 3)];
                let _ = socket(which).map(|socket| socket.shutdown(now, how));
            }
            Step::Close(which) => {
                let _ = socket(which).map(|socket| socket.close(now));
            }
            Step::Abort(which) => {
                let _ = socket(which).map(|socket| socket.abort(now));
            }
            Step::Option(which, choice) => {
                let _ = socket(which).map(|socket| socket.set_option(now, choice.into()));
            }
            _ => {}
        }
    }

    fn segment(&mut self, envelope: &Envelope, forgery: &Forgery) {
        let Some(&flow) = pick(&self.flows, envelope.flow) else { return };
        let (v6, ours, theirs) = flow;
        let segment = forgery.segment(&self.seen[&flow], &self.pool, (theirs, ours));
        self.note_arrival(flow, &segment.repr);
        self.arrive(forge::enclose(v6, envelope, &segment));
    }

    fn note_arrival(&mut self, flow: Flow, repr: &TcpRepr) {
        if let Some(seen) = self.seen.get_mut(&flow) {
            seen.deliver(repr);
        }
    }

    fn arrive(&mut self, packets: impl IntoIterator<Item = super::device::Incoming>) {
        self.line.lock().to_stack.extend(packets);
    }

    /// Lets time pass, with a poll at each event on the way.
    fn advance_to(&mut self, until: Instant) {
        for _ in 0..MAX_ROUNDS {
            match self.poll().filter(|&next| next <= until) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// Everybody lets go and the peer is silent. In the end nothing may remain.
    pub fn let_go(mut self) {
        self.sockets.clear();
        self.listeners.clear();
        self.line.lock().room = usize::MAX;
        self.line.lock().hold(false);
        let mut next = self.poll();
        if self.gone {
            return;
        }
        for _ in 0..MAX_ROUNDS {
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            next = self.poll();
        }
        let left = self.stack.sockets();
        assert!(left.is_empty(), "sockets remain: {left:?}, next event {next:?}");
        let stats = self.stack.pool().stats();
        assert_eq!(stats.in_use_bytes, 0, "buffers remain");
    }
}
