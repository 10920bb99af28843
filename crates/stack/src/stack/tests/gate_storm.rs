//! A gate on a channel device under arbitrary actions of peers and the application. Attempts that
//! the application has not accepted are never answered, the limits of the gate hold, and when all
//! have gone nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use plimsoll_tcp::{Duration, Instant, Options};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr, Timestamps};
use plimsoll_wire::{SeqNum, checksum, protocol};
use proptest::prelude::*;

use super::harness::*;
use crate::device::channel::{Channel, ChannelConfig, channel};
use crate::{GateConfig, Incoming, ListenOn, Listener, Reject, Stack, TcpSocket, Unreachable};

const WAITING: usize = 4;
const PER_SOURCE: usize = 2;

/// A flow: the peer, and its destination.
type Flow = (SocketAddrV4, SocketAddrV4);

/// The packets of a peer.
#[derive(Clone, Debug)]
struct Sent {
    flow: Flow,
    flags: TcpFlags,
    /// The sequence number: one of few, so that SYNs are repeated and numbers fit.
    seq: u32,
    /// It acknowledges the stack's last packet, or a random number.
    acks: bool,
    timestamps: Option<u32>,
    data: usize,
}

#[derive(Clone, Copy, Debug)]
enum Decision {
    Accept,
    Reset,
    Unreachable,
    Ignore,
    Drop,
}

#[derive(Clone, Debug)]
enum Step {
    Peer(Sent),
    Junk(Vec<u8>),
    Take,
    Decide(usize, Decision),
    Write(usize),
    Close(usize),
    Abandon(usize),
    Wait(u64),
}

fn sent() -> impl Strategy<Value = Sent> {
    let flow = (0_u8..3, 0_u16..2, 0_u8..2).prop_map(|(peer, port, to)| {
        let peer = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 10 + peer), 4000 + port);
        (peer, SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7 + to), 443))
    });
    let flags = prop_oneof![
        4 => Just(TcpFlags::SYN),
        4 => Just(TcpFlags::ACK),
        1 => Just(TcpFlags::RST),
        1 => Just(TcpFlags::ACK | TcpFlags::FIN),
        1 => Just(TcpFlags::ACK | TcpFlags::RST),
        1 => any::<u8>().prop_map(|bits| {
            let all = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN, TcpFlags::RST, TcpFlags::PSH];
            let chosen = all.into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
            chosen.fold(TcpFlags::default(), |flags, (_, flag)| flags | flag)
        }),
    ];
    let data = prop_oneof![3 => Just(0), 1 => 1_usize..1000];
    let timestamps = proptest::option::of(0_u32..1000);
    (flow, flags, 0_u32..3, any::<bool>(), timestamps, data).prop_map(
        |(flow, flags, seq, acks, timestamps, data)| Sent {
            flow,
            flags,
            seq,
            acks,
            timestamps,
            data,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let decision = prop_oneof![
        4 => Just(Decision::Accept),
        1 => Just(Decision::Reset),
        1 => Just(Decision::Unreachable),
        1 => Just(Decision::Ignore),
        1 => Just(Decision::Drop),
    ];
    prop_oneof![
        12 => sent().prop_map(Step::Peer),
        1 => proptest::collection::vec(any::<u8>(), 0..100).prop_map(Step::Junk),
        4 => Just(Step::Take),
        4 => (any::<usize>(), decision).prop_map(|(at, how)| Step::Decide(at, how)),
        1 => any::<usize>().prop_map(Step::Write),
        1 => any::<usize>().prop_map(Step::Close),
        1 => any::<usize>().prop_map(Step::Abandon),
        2 => prop_oneof![0_u64..2_000, 0_u64..90_000].prop_map(Step::Wait),
    ]
}

struct Storm {
    stack: Arc<Stack>,
    end: Channel,
    listener: Arc<Listener>,
    now: Instant,
    undecided: Vec<Incoming>,
    sockets: Vec<Arc<TcpSocket>>,
    /// The flows that the application has ever let in.
    let_in: BTreeSet<Flow>,
    /// The last state sent in each flow: the next sequence number.
    next: BTreeMap<Flow, SeqNum>,
    /// SYN-ACKs so far.
    answered: usize,
}

impl Storm {
    fn new() -> Storm {
        let (device, end) = channel(ChannelConfig::default()).unwrap();
        let stack = stack(device, A4, A6, &[]);
        let gate = GateConfig { waiting: WAITING, per_source: PER_SOURCE, ..GateConfig::default() };
        let options = Options::default().half_close_timeout(Some(Duration::from_secs(300)));
        let listener = stack.listen_on(ListenOn::Everything, 8, options, Some(gate)).unwrap();
        Storm {
            stack,
            end,
            listener,
            now: Instant::from_millis(1000),
            undecided: Vec::new(),
            sockets: Vec::new(),
            let_in: BTreeSet::new(),
            next: BTreeMap::new(),
            answered: 0,
        }
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Peer(sent) => self.peer_sends(&sent),
            Step::Junk(bytes) => drop(self.end.try_send(bytes)),
            Step::Take => {
                let taken = self.listener.take_incoming(now).unwrap();
                self.undecided.extend(taken);
            }
            Step::Decide(at, how) if !self.undecided.is_empty() => {
                let incoming = self.undecided.swap_remove(at % self.undecided.len());
                self.decide(incoming, how);
            }
            Step::Write(at) => {
                if let Some(socket) = self.socket(at) {
                    let _ = socket.write(now, &[7; 3000]);
                }
            }
            Step::Close(at) => {
                if let Some(socket) = self.socket(at) {
                    let _ = socket.shutdown(now, std::net::Shutdown::Write);
                }
            }
            Step::Abandon(at) if !self.sockets.is_empty() => {
                drop(self.sockets.swap_remove(at % self.sockets.len()));
            }
            Step::Decide(..) | Step::Abandon(_) => {}
            Step::Wait(millis) => self.wait(Duration::from_millis(millis)),
        }
        self.settle();
        self.check();
    }

    fn socket(&self, at: usize) -> Option<&Arc<TcpSocket>> {
        self.sockets.get(at % self.sockets.len().max(1))
    }

    fn decide(&mut self, incoming: Incoming, how: Decision) {
        let now = self.now;
        let (std::net::SocketAddr::V4(peer), std::net::SocketAddr::V4(to)) =
            (incoming.peer(), incoming.destination())
        else {
            panic!("{incoming:?} is of IPv4");
        };
        match how {
            Decision::Accept => {
                let over = incoming.cancelled();
                match incoming.accept(now) {
                    Ok(socket) => {
                        assert_eq!(over, None, "it had ended");
                        self.let_in.insert((peer, to));
                        self.sockets.push(socket);
                    }
                    Err(error) => assert!(over.is_some(), "{error}"),
                }
            }
            Decision::Reset => incoming.reject(now, Reject::Rst),
            Decision::Unreachable => incoming.reject(now, Reject::Icmp(Unreachable::Host)),
            Decision::Ignore => incoming.ignore(now),
            Decision::Drop => drop(incoming),
        }
    }

    fn peer_sends(&mut self, sent: &Sent) {
        let (peer, to) = sent.flow;
        let ack = self.next.get(&sent.flow).copied().filter(|_| sent.acks).unwrap_or(SeqNum(77));
        let repr = TcpRepr {
            src_port: peer.port(),
            dst_port: to.port(),
            seq: SeqNum(100 + sent.seq),
            ack,
            flags: sent.flags,
            window: 5000,
            options: TcpOptions {
                timestamps: sent.timestamps.map(|val| Timestamps { val, ecr: 0 }),
                ..TcpOptions::default()
            },
            ..TcpRepr::default()
        };
        let mut segment = vec![0; repr.header_len()];
        repr.emit(&mut segment);
        segment.resize(segment.len() + sent.data, 7);
        let pseudo =
            checksum::pseudo_header_v4(*peer.ip(), *to.ip(), protocol::TCP, segment.len() as u32);
        checksum::fill(pseudo, &mut segment, 16);
        let header = Ipv4Repr {
            src: *peer.ip(),
            dst: *to.ip(),
            protocol: protocol::TCP,
            ttl: 64,
            tos: 0,
            ident: 1,
            dont_frag: true,
            more_frags: false,
            frag_offset: 0,
            payload_len: segment.len(),
        };
        let mut packet = vec![0; 20];
        header.emit(&mut packet);
        packet.extend(segment);
        self.end.try_send(packet).unwrap();
    }

    /// Polls until there is nothing to do now, and looks at everything that leaves.
    fn settle(&mut self) {
        loop {
            let worked = self.stack.poll(self.now, 64).unwrap().worked;
            let mut left = false;
            while let Ok(packet) = self.end.try_recv() {
                left = true;
                self.look_at(&packet.to_vec());
            }
            if !worked && !left {
                return;
            }
        }
    }

    fn look_at(&mut self, packet: &[u8]) {
        let (header, at) = Ipv4Repr::parse(packet).unwrap();
        if header.protocol != protocol::TCP {
            return;
        }
        let (tcp, _) = TcpRepr::parse(&packet[at..]).unwrap();
        let flow = (
            SocketAddrV4::new(header.dst, tcp.dst_port),
            SocketAddrV4::new(header.src, tcp.src_port),
        );
        if tcp.flags.contains(TcpFlags::RST) {
            return;
        }
        assert!(self.let_in.contains(&flow), "{flow:?} is answered and was not let in");
        let syn = tcp.flags.contains(TcpFlags::SYN);
        self.answered += usize::from(syn);
        self.next.insert(flow, tcp.seq + u32::from(syn));
    }

    /// The invariants.
    fn check(&self) {
        assert!(self.listener.waiting() <= WAITING, "{} wait", self.listener.waiting());
        let mut of_source = BTreeMap::new();
        for incoming in self.undecided.iter().filter(|incoming| incoming.cancelled().is_none()) {
            *of_source.entry(incoming.peer().ip()).or_insert(0) += 1;
        }
        assert!(of_source.values().all(|&count| count <= PER_SOURCE), "{of_source:?}");
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            match self.stack.next_deadline().filter(|&at| at < until) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
        }
        self.now = until;
    }

    /// Everybody walks away.
    fn end(&mut self) {
        self.undecided.clear();
        self.sockets.clear();
        self.wait(Duration::from_secs(1800));
        self.settle();
        assert_eq!(self.listener.waiting(), 0);
        let memory = self.stack.connection_memory();
        assert_eq!((memory.connections, self.stack.time_wait_count()), (0, 0));
        assert_eq!(self.stack.memory().bytes, 0, "bytes are charged to nobody");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nobody_is_answered_who_was_not_let_in(steps in proptest::collection::vec(step(), 1..80)) {
        let mut storm = Storm::new();
        for step in steps {
            storm.take(step);
        }
        storm.end();
    }
}

/// The storm would show nothing if no attempt succeeded.
#[test]
fn who_is_let_in_is_answered() {
    let mut storm = Storm::new();
    let peer = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 10), 4000);
    let flow = (peer, SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), 443));
    let syn = Sent { flow, flags: TcpFlags::SYN, seq: 0, acks: false, timestamps: None, data: 0 };
    storm.take(Step::Peer(syn.clone()));
    storm.take(Step::Take);
    assert_eq!((storm.answered, storm.undecided.len()), (0, 1));
    storm.take(Step::Decide(0, Decision::Accept));
    assert_eq!(storm.answered, 1);
    storm.take(Step::Peer(Sent { flags: TcpFlags::ACK, seq: 1, acks: true, data: 9, ..syn }));
    let mut heard = [0; 99];
    assert_eq!(storm.sockets[0].read(storm.now, &mut heard), Ok(9));
    storm.end();
}
