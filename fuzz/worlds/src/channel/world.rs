//! The world: a stack, the caller's halves of its channel, sockets and time.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use plimsoll_buf::Pool;
use plimsoll_stack::device::Caps;
use plimsoll_stack::device::channel::{
    ChannelConfig, ChannelOffloads, ChannelReceiver, ChannelSender, SendError, TryRecvError,
    channel,
};
use plimsoll_stack::packet::Packet;
use plimsoll_stack::{
    Duration, GateConfig, Instant, InterfaceConfig, ListenOn, Listener, Reject, Stack, StackConfig,
    TcpSocket,
};
use plimsoll_tcp::Options;
use plimsoll_wire::SeqNum;

use super::Setup;
use super::step::{By, Claim, Step};
use crate::engine::{Forgery, Seen};
use crate::stack::device::{OURS, PEER, SharedLine};
use crate::stack::forge;
use crate::stack::step::Envelope;

/// Polls without anything new from outside.
const MAX_POLLS: usize = 10_000;
/// Events until nothing may remain.
const MAX_ROUNDS: usize = 20_000;
const MAX_SOCKETS: usize = 16;
/// The longest IP packet.
const MAX_PACKET: usize = 65_535;

const MTUS: [u16; 4] = [1500, 576, 9000, 65_535];
const DURATIONS_US: [u64; 6] = [1, 1_000, 200_000, 1_000_000, 60_000_000, 600_000_000];

/// A flow that the stack has shown: family, our port, the peer's port.
type Flow = (bool, u16, u16);

/// A waker that remembers.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Somebody who waits, until the flag is up.
type Waiting = Option<Arc<Flag>>;

/// The world.
pub struct World {
    /// The time.
    pub now: Instant,
    stack: Arc<Stack>,
    sender: Option<ChannelSender>,
    receiver: Option<ChannelReceiver>,
    limits: (usize, usize),
    /// Judges what the stack sends: with the offloads that were agreed on, and without any.
    judges: [SharedLine; 2],
    /// Who found nothing to receive, and who found no room to send.
    wants_packet: Waiting,
    wants_room: Waiting,
    sockets: Vec<Arc<TcpSocket>>,
    listeners: Vec<Arc<Listener>>,
    flows: Vec<Flow>,
    seen: HashMap<Flow, Seen>,
    pool: Pool,
}

fn port(choice: u8) -> u16 {
    80 + u16::from(choice % 4)
}

fn pick<T>(list: &[T], choice: u8) -> Option<&T> {
    if list.is_empty() { None } else { list.get(usize::from(choice) % list.len()) }
}

/// Whether the one who waits, if any, has been woken.
fn is_woken(waiting: &Waiting) -> bool {
    waiting.as_ref().is_none_or(|flag| flag.0.load(Ordering::Relaxed))
}

/// Polls with a waker that is kept if there is nothing.
fn poll<T>(waiting: &mut Waiting, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    match poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => {
            *waiting = Some(flag);
            None
        }
    }
}

impl World {
    /// A world at its beginning.
    pub fn new(setup: &Setup) -> World {
        let mtu = MTUS[usize::from(setup.mtu) % MTUS.len()];
        let offloads = match setup.offloads % 3 {
            0 => ChannelOffloads::None,
            1 => ChannelOffloads::Checksum,
            _ => ChannelOffloads::Segmentation,
        };
        let limits = (1 + usize::from(setup.queues.0 % 16), 1 + usize::from(setup.queues.1 % 16));
        let config =
            ChannelConfig::with_mtu(mtu).offloads(offloads).to_caller(limits.0).to_stack(limits.1);
        let (device, end) = channel(config).expect("a configuration without mistakes");
        let (sender, receiver) = end.split();
        let interface =
            InterfaceConfig { device, addresses: vec![(OURS[0], 24), (OURS[1], 64)], mtu: None };
        let stack = Stack::new(StackConfig {
            interfaces: vec![interface],
            secret: [setup.seed; 32],
            seed: setup.seed.into(),
            ..StackConfig::default()
        });
        let judge = |offloads| {
            SharedLine::new(
                Caps::new("channel", mtu)
                    .tso4(offloads == ChannelOffloads::Segmentation)
                    .tso6(offloads == ChannelOffloads::Segmentation)
                    .uso(offloads == ChannelOffloads::Segmentation)
                    .tx_checksum(offloads != ChannelOffloads::None)
                    .completions(true),
            )
        };
        World {
            now: Instant::from_millis(1000),
            stack: stack.expect("a configuration without mistakes"),
            sender: Some(sender),
            receiver: Some(receiver),
            limits,
            judges: [judge(offloads), judge(ChannelOffloads::None)],
            wants_packet: None,
            wants_room: None,
            sockets: Vec::new(),
            listeners: Vec::new(),
            flows: Vec::new(),
            seen: HashMap::new(),
            pool: Pool::new(),
        }
    }

    /// Whether both halves are there.
    fn is_whole(&self) -> bool {
        self.sender.is_some() && self.receiver.is_some()
    }

    /// Polls until nothing is left to do.
    fn poll(&mut self) -> Option<Instant> {
        for _ in 0..MAX_POLLS {
            match self.stack.poll(self.now, 64) {
                Err(error) => {
                    assert!(!self.is_whole(), "the stack ended: {error}");
                    return None;
                }
                Ok(polled) => {
                    assert!(!polled.busy, "there is only one poller");
                    if !polled.worked {
                        return polled.next;
                    }
                }
            }
        }
        panic!("polling does not come to an end");
    }

    /// Takes note of what was received.
    fn judge(&mut self, packet: &Packet, as_bytes: bool) {
        let mut judge = self.judges[usize::from(as_bytes)].lock();
        judge.judge(packet);
        for (v6, repr, payload_len) in core::mem::take(&mut judge.shown) {
            let flow = (v6, repr.src_port, repr.dst_port);
            if !self.seen.contains_key(&flow) {
                self.flows.push(flow);
            }
            let seen = self.seen.entry(flow);
            seen.or_insert_with(|| Seen::new(1500, 20, 0, repr.seq)).observe(&repr, payload_len);
        }
    }

    /// Runs one step.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Raw(ref bytes, claim, by) => self.send(bytes, &claim, by),
            Step::Length(len, claim, by) => {
                self.send(&vec![0x45; len as usize % (2 * MAX_PACKET)], &claim, by);
            }
            Step::Segment(ref envelope, ref forgery, claim, by) => {
                self.segment(envelope, forgery, &claim, by);
            }
            Step::Syn(v6, from, to, options, claim) => {
                let ports = (1000 + u16::from(from % 8), port(to));
                let syn = Forgery::opening_syn(SeqNum(u32::from(options) << 16), options, ports);
                let envelope = Envelope { flow: 0, switches: 0, tos: 0, broken: 0 };
                for incoming in forge::enclose(v6, &envelope, &syn) {
                    self.send(&incoming.bytes, &claim, By::One);
                }
            }
            Step::Receive(count) => (0..count).for_each(|_| self.receive_one()),
            Step::ReceiveMany(max) => self.receive_many(max.into()),
            Step::Read(len) => self.read(len.into()),
            Step::Mtu(mtu) => {
                let Some(sender) = &self.sender else { return };
                assert_eq!(sender.set_mtu(mtu).is_ok(), mtu >= 576, "an MTU of {mtu}");
                // What is on its way may have the length of the one before.
                for judge in &self.judges {
                    let mut judge = judge.lock();
                    judge.caps.mtu = judge.caps.mtu.max(mtu);
                }
            }
            Step::DropHalf(sender) => self.drop_half(sender, None),
            Step::Close(sender) => self.drop_half(sender, Some("the fuzzer ended it")),
            Step::Advance(which) => {
                let micros = DURATIONS_US[usize::from(which) % DURATIONS_US.len()];
                self.advance_to(self.now + Duration::from_micros(micros));
            }
            _ => self.call(step),
        }
        self.poll();
        self.check();
    }

    /// What holds at any time: the bounds, and that nobody waits for what is there.
    fn check(&mut self) {
        if let Some(receiver) = &self.receiver {
            let waits = receiver.waiting();
            assert!(waits <= self.limits.0, "{waits} packets wait for the caller");
            assert!(waits == 0 || is_woken(&self.wants_packet), "who waits for a packet sleeps");
            let over = receiver.has_ended();
            assert!(!over || is_woken(&self.wants_packet), "who waits is not told of the end");
        }
        if self.is_whole() {
            // The stack takes all that is there whenever it is polled.
            assert!(is_woken(&self.wants_room), "who waits for room sleeps");
        }
    }

    fn send(&mut self, bytes: &[u8], claim: &Claim, by: By) {
        let Some(sender) = &mut self.sender else { return };
        let right = (1..=MAX_PACKET).contains(&bytes.len());
        match by {
            By::One => match sender.try_send(claim.packet(bytes)) {
                Ok(()) => assert!(right, "{} bytes are no packet", bytes.len()),
                Err(SendError::Length(len)) => assert!(!right && len == bytes.len()),
                Err(SendError::Full(packet)) => assert_eq!(packet.to_vec(), bytes, "given back"),
                Err(SendError::Closed(_)) => assert!(self.receiver.is_none(), "it is there"),
                Err(error) => panic!("an error that is new: {error}"),
            },
            By::Many(count) => {
                let count = usize::from(count % 40);
                let mut packets: VecDeque<_> = (0..count).map(|_| claim.packet(bytes)).collect();
                let sent = poll(&mut self.wants_room, |cx| sender.poll_send_many(cx, &mut packets));
                match sent {
                    Some(Ok(sent)) => assert_eq!(sent + packets.len(), count),
                    Some(Err(_)) => assert!(self.receiver.is_none(), "it is there"),
                    None => assert!(right && packets.len() == count, "it waits with all of them"),
                }
            }
            By::Bytes => {
                let (front, back) = bytes.split_at(bytes.len() / 3);
                let parts = [front, back].map(std::io::IoSlice::new);
                let sent = poll(&mut self.wants_room, |cx| sender.poll_write_packet(cx, &parts));
                match sent {
                    Some(Ok(len)) => assert!(len == bytes.len() && len <= MAX_PACKET),
                    Some(Err(_)) => assert!(!right || self.receiver.is_none(), "it is refused"),
                    None => {}
                }
            }
        }
    }

    fn segment(&mut self, envelope: &Envelope, forgery: &Forgery, claim: &Claim, by: By) {
        let Some(&flow) = pick(&self.flows, envelope.flow) else { return };
        let (v6, ours, theirs) = flow;
        let segment = forgery.segment(&self.seen[&flow], &self.pool, (theirs, ours));
        if let Some(seen) = self.seen.get_mut(&flow) {
            seen.deliver(&segment.repr);
        }
        for incoming in forge::enclose(v6, envelope, &segment) {
            self.send(&incoming.bytes, claim, by);
        }
    }

    fn receive_one(&mut self) {
        let Some(receiver) = &mut self.receiver else { return };
        match receiver.try_recv() {
            Ok(packet) => self.judge(&packet, false),
            Err(TryRecvError::Closed(_)) => assert!(self.is_over(), "the device is there"),
            Err(TryRecvError::Empty) => {
                // It waits from here on.
                let found = poll(&mut self.wants_packet, |cx| receiver.poll_recv(cx));
                assert!(found.is_none(), "there was none a moment ago");
            }
            Err(error) => panic!("an error that is new: {error}"),
        }
    }

    fn receive_many(&mut self, max: usize) {
        let Some(receiver) = &mut self.receiver else { return };
        let mut out = Vec::new();
        let got = poll(&mut self.wants_packet, |cx| receiver.poll_recv_many(cx, &mut out, max));
        assert_eq!(got.unwrap_or(0), out.len());
        assert!(out.len() <= max);
        assert!(got != Some(0) || max == 0 || self.is_over(), "the device is there");
        out.iter().for_each(|packet| self.judge(packet, false));
    }

    fn read(&mut self, len: usize) {
        let Some(receiver) = &mut self.receiver else { return };
        let mut buf = vec![0; len];
        match poll(&mut self.wants_packet, |cx| receiver.poll_read_packet(cx, &mut buf)) {
            Some(Ok(0)) => assert!(self.is_over(), "the device is there"),
            Some(Ok(len)) => {
                buf.truncate(len);
                self.judge(&buf.into(), true);
            }
            Some(Err(error)) => {
                assert!(error.to_string().contains("shorter than the packet"), "{error}");
            }
            None => {}
        }
    }

    /// Whether the stack, or its interface, has come to its end.
    fn is_over(&self) -> bool {
        !self.is_whole() || self.stack.error().is_some()
    }

    fn drop_half(&mut self, sender: bool, reason: Option<&str>) {
        match (sender, reason) {
            (true, Some(reason)) => {
                let _ = self.sender.take().map(|half| half.close(reason));
            }
            (false, Some(reason)) => {
                let _ = self.receiver.take().map(|half| half.close(reason));
            }
            (true, None) => drop(self.sender.take()),
            (false, None) => drop(self.receiver.take()),
        }
    }

    fn call(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Connect(v6, to) => {
                let remote = SocketAddr::new(PEER[usize::from(v6)], port(to));
                let socket = self.stack.connect(now, remote, None, Options::default());
                if self.sockets.len() < MAX_SOCKETS {
                    self.sockets.extend(socket.ok());
                }
            }
            Step::Listen(v6, on, asks) => {
                let any: IpAddr =
                    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                let on = ListenOn::Address(SocketAddr::new(any, port(on)));
                let gate = asks.then(GateConfig::default);
                let listener = self.stack.listen_on(on, 8, Options::default(), gate);
                self.listeners.extend(listener.ok());
            }
            Step::Accept(which, accept) => self.accept(which, accept),
            Step::Write(which, len) => {
                let Some(socket) = pick(&self.sockets, which) else { return };
                let _ = socket.write(now, &vec![0x77; usize::from(len)]);
            }
            Step::ReadSocket(which, len) => {
                let Some(socket) = pick(&self.sockets, which) else { return };
                let _ = socket.read(now, &mut vec![0; usize::from(len)]);
            }
            Step::DropSocket(which) if !self.sockets.is_empty() => {
                let at = usize::from(which) % self.sockets.len();
                self.sockets.swap_remove(at);
            }
            _ => {}
        }
    }

    fn accept(&mut self, which: u8, accept: bool) {
        let now = self.now;
        let Some(listener) = pick(&self.listeners, which) else { return };
        if let Ok(Some(incoming)) = listener.take_incoming(now) {
            if !accept {
                incoming.reject(now, Reject::Rst);
            } else if let Ok(socket) = incoming.accept(now)
                && self.sockets.len() < MAX_SOCKETS
            {
                self.sockets.push(socket);
            }
        }
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

    /// Everybody lets go and the peer is silent; the caller takes what still comes. In the end
    /// nothing may remain.
    pub fn let_go(mut self) {
        self.sockets.clear();
        self.listeners.clear();
        for _ in 0..MAX_ROUNDS {
            let next = self.poll();
            let mut taken = 0;
            while let Some(Ok(packet)) = self.receiver.as_mut().map(ChannelReceiver::try_recv) {
                self.judge(&packet, false);
                taken += 1;
            }
            // Room in the queue lets the stack go on.
            match self.poll().or(next) {
                Some(at) => self.now = self.now.max(at),
                None if taken == 0 => break,
                None => {}
            }
        }
        let error = self.stack.error().cloned();
        let left = self.stack.sockets();
        assert!(left.is_empty(), "sockets remain: {left:?}, the stack's end: {error:?}");
        drop((self.sender.take(), self.receiver.take()));
        self.poll();
        let stats = self.stack.pool().stats();
        assert_eq!(stats.in_use_bytes, 0, "buffers remain");
    }
}
