//! Two stacks and their applications on a virtual clock: exact, and the same every time.
//!
//! # Theory of operation
//!
//! One loop runs both stacks to completion, asks both applications whether they go on, and then
//! moves the time to the next thing that happens: a packet arrives, a timer fires, an application
//! wakes. Nothing else passes time, so a run is decided by its configuration to the last packet.
//!
//! An application is a thread that blocks: what it waits for comes, and a *wake latency* later it
//! runs.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::device::pcapng;
use plimsoll_stack::{InterfaceConfig, SocketError, Stack, StackConfig, TcpSocket, WaitKey};
use plimsoll_tcp::{Instant, Options, State};

use crate::experiment::Run;
use crate::experiment::pin::Setting;
use crate::requester::new_histogram;
use crate::workload::{Kind, Measured, RequestResponse, Snapshot};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const PORT: u16 = 5001;

/// Virtual time after which a run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Polls at one moment after which the stacks count as never coming to rest.
const MOST_POLLS: usize = 100_000;

/// What a run is like.
#[derive(Clone, Debug)]
pub struct World {
    /// The link between the stacks, each way.
    pub link: LinkConfig,
    /// Settings of both stacks.
    pub settings: Vec<Setting>,
    /// Options of the client's socket.
    pub client: Options,
    /// Options of the server's socket.
    pub server: Options,
    /// From when an application could go on until it does.
    pub wake_latency: Duration,
    /// How the client writes bulk data; without, each write is one step that takes no time.
    pub sosend: Option<Sosend>,
    /// Where chance comes from.
    pub seed: u64,
    /// Where a capture of the client's device goes.
    pub pcap: Option<PathBuf>,
}

/// A writer like FreeBSD's `sosend`. It looks at the space, copies as much as fits, and appends
/// that. ACKs that arrive meanwhile do not change the amount. Then it looks again without sleeping.
/// It sleeps if neither the rest of the write nor `lowat` bytes have space, and every acknowledged
/// byte wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sosend {
    /// The send buffer, in bytes of data.
    pub buffer: usize,
    /// Free bytes that are enough for a part of a write.
    pub lowat: usize,
    /// From the look at the space until the bytes are appended.
    pub copy: Duration,
}

/// Runs bulk data to the server, or transactions, over one connection from its first write until
/// everything has been read. Setting up and closing are not measured.
///
/// # Errors
/// If the stacks cannot be built, or the connection fails or gets stuck.
pub fn run(world: &World, kind: &Kind) -> anyhow::Result<Measured> {
    let mut pair = Pair::new(world)?;
    let (client, server) = pair.connect(world)?;
    let start = pair.now;
    let before = Snapshot::of_pair(&pair.client, &pair.server);
    let latency = world.wake_latency;
    // The snapshot comes before the applications let go of their sockets, which closes them.
    let (after, moved, latencies) = match *kind {
        Kind::Send { message, bytes } => {
            let messages = Messages { message, left: bytes, rest: 0 };
            let mut reader = App::new(server, latency, Reader { left: bytes });
            let after = match world.sosend {
                None => pair.run_until_done(&mut App::new(client, latency, messages), &mut reader),
                Some(rule) => {
                    let writer = SosendWriter { rule, messages, copied: None };
                    pair.run_until_done(&mut App::new(client, latency, writer), &mut reader)
                }
            };
            (after?, (bytes, 0), new_histogram())
        }
        Kind::Rr { sizes, transactions, .. } => {
            let asks = Requests::new(sizes, transactions);
            let mut asker = App::new(client, latency, asks);
            let mut answerer = App::new(server, latency, Answers::new(sizes, transactions));
            let after = pair.run_until_done(&mut asker, &mut answerer)?;
            (after, (0, transactions), asker.what.latencies)
        }
        Kind::Receive { .. } => bail!("the virtual clock has no such workload"),
    };
    let elapsed = pair.now.since(start);
    Ok(Measured::between(&before, &after, elapsed, moved, latencies))
}

/// Runs `bytes` of bulk data in large writes. Returns its figures, with the seconds of virtual
/// time, and the run itself.
///
/// # Errors
/// As [`run`].
pub fn run_bulk(world: &World, bytes: u64) -> anyhow::Result<(Run, Measured)> {
    let kind = Kind::Send { message: 65_536, bytes };
    let measured = run(world, &kind)?;
    let mut run = Run { figures: measured.figures(&kind), ..Run::default() };
    run.more.insert("virtual_seconds".into(), measured.elapsed.as_secs_f64().into());
    Ok((run, measured))
}

/// Both stacks and the time.
struct Pair {
    client: Arc<Stack>,
    server: Arc<Stack>,
    now: Instant,
}

impl Pair {
    fn new(world: &World) -> anyhow::Result<Pair> {
        let (mut here, there) = memory_link::pair(world.link.clone());
        if let Some(path) = &world.pcap {
            let file = File::create(path);
            let file = file.with_context(|| format!("cannot write {}", path.display()))?;
            here = pcapng::wrap(here, file);
        }
        let build = |device, address, side: u64| {
            let interface = InterfaceConfig { device, addresses: vec![(address, 24)], mtu: None };
            let own = |&(name, value): &Setting| (name.to_owned(), value.to_owned());
            let config = StackConfig {
                interfaces: vec![interface],
                sysctls: world.settings.iter().map(own).collect(),
                secret: [side as u8 + 1; 32],
                seed: world.seed ^ side,
                ..StackConfig::default()
            };
            Stack::new(config).context("cannot build a stack")
        };
        let (client, server) = (build(here, CLIENT, 0)?, build(there, SERVER, 1)?);
        Ok(Pair { client, server, now: Instant::from_millis(1000) })
    }

    /// Polls both stacks until neither has anything to do now. Returns when one has next.
    fn settle(&self) -> anyhow::Result<Option<Instant>> {
        for _ in 0..MOST_POLLS {
            let client = self.client.poll(self.now, 256)?;
            let server = self.server.poll(self.now, 256)?;
            if !client.worked && !server.worked {
                return Ok(client.next.into_iter().chain(server.next).min());
            }
        }
        bail!("the stacks never come to rest")
    }

    /// Moves the time to the first of these.
    fn step(&mut self, events: [Option<Instant>; 3]) -> anyhow::Result<()> {
        let next = events.into_iter().flatten().min();
        let next = next.ok_or_else(|| anyhow!("nothing will ever happen again"))?;
        self.now = self.now.max(next);
        Ok(())
    }

    fn connect(&mut self, world: &World) -> anyhow::Result<(Arc<TcpSocket>, Arc<TcpSocket>)> {
        let remote = SocketAddr::new(SERVER, PORT);
        let listener = self.server.listen(remote, 1, world.server.clone())?;
        let client = self.client.connect(self.now, remote, None, world.client.clone())?;
        let limit = self.now + PATIENCE;
        while self.now < limit {
            let next = self.settle()?;
            if let Some((server, _)) = listener.accept(self.now)? {
                return Ok((client, server));
            }
            if client.state() == State::Closed {
                bail!("the connection was refused");
            }
            self.step([next, None, None])?;
        }
        bail!("the connection was never accepted")
    }

    fn run_until_done<A: Program, B: Program>(
        &mut self,
        one: &mut App<A>,
        other: &mut App<B>,
    ) -> anyhow::Result<Snapshot> {
        let limit = self.now + PATIENCE;
        loop {
            let next = self.settle()?;
            if one.step(self.now)? | other.step(self.now)? {
                continue;
            }
            if one.what.is_done() && other.what.is_done() {
                return Ok(Snapshot::of_pair(&self.client, &self.server));
            }
            if self.now >= limit {
                bail!("the workload is not done after {PATIENCE:?} of its time");
            }
            self.step([next, one.wake_at, other.wake_at])?;
        }
    }
}

/// What an application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// For space to write.
    ToWrite,
    /// For the send queue to have fewer bytes than this.
    ForAck(usize),
    /// For its own work, which takes this long.
    ForItself(Duration),
    /// For something to read.
    ToRead,
    /// For nothing: it is through.
    ForNothing,
}

/// What an application does when it runs.
trait Program {
    /// Goes on until it would block.
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits>;

    /// Whether it is through.
    fn is_done(&self) -> bool;
}

/// An application as a thread that blocks.
struct App<P> {
    socket: Arc<TcpSocket>,
    /// As a thread has one: the stack tells threads that wait from tasks that poll.
    key: WaitKey,
    latency: Duration,
    waits: Option<Waits>,
    wake_at: Option<Instant>,
    what: P,
}

impl<P: Program> App<P> {
    fn new(socket: Arc<TcpSocket>, latency: Duration, what: P) -> App<P> {
        App { socket, key: WaitKey::of_thread(), latency, waits: None, wake_at: None, what }
    }

    /// Runs if it can run now; whether it did.
    fn step(&mut self, now: Instant) -> anyhow::Result<bool> {
        if self.wake_at.is_none() {
            let ready = match self.waits {
                None | Some(Waits::ForItself(_)) => true,
                Some(Waits::ForAck(bytes)) => self.socket.send_queue_len() < bytes,
                Some(Waits::ToWrite) => {
                    self.socket.wait_writable(self.key, Waker::noop()).is_ready()
                }
                Some(Waits::ToRead) => {
                    self.socket.wait_readable(self.key, Waker::noop()).is_ready()
                }
                Some(Waits::ForNothing) => false,
            };
            let wait = match self.waits {
                // The first run needs no wake-up.
                None => Duration::ZERO,
                Some(Waits::ForItself(time)) => time,
                Some(_) => self.latency,
            };
            self.wake_at = ready.then(|| now + wait);
        }
        if self.wake_at.is_none_or(|at| at > now) {
            return Ok(false);
        }
        self.wake_at = None;
        self.waits = Some(self.what.go_on(&self.socket, now)?);
        Ok(true)
    }
}

/// Bytes that are written; nobody looks at them.
static BLOCK: [u8; 64 * 1024] = [0x5a; 64 * 1024];

/// Writes up to `count` bytes; `None` if there is no space.
fn write(socket: &TcpSocket, now: Instant, count: usize) -> anyhow::Result<Option<usize>> {
    match socket.write(now, &BLOCK[..count.min(BLOCK.len())]) {
        Ok(taken) => Ok(Some(taken)),
        Err(SocketError::WouldBlock) => Ok(None),
        Err(error) => Err(error).context("a write failed"),
    }
}

/// Reads up to `count` bytes; `None` if there is nothing.
fn read(socket: &TcpSocket, now: Instant, count: u64) -> anyhow::Result<Option<usize>> {
    let mut block = [0; 64 * 1024];
    let most = usize::try_from(count).map_or(block.len(), |count| count.min(block.len()));
    match socket.read(now, &mut block[..most]) {
        Ok(0) => bail!("the connection ended too early"),
        Ok(taken) => Ok(Some(taken)),
        Err(SocketError::WouldBlock) => Ok(None),
        Err(error) => Err(error).context("a read failed"),
    }
}

/// Messages of one size that are written, each with as many calls as it takes.
struct Messages {
    message: usize,
    /// Bytes that are not yet written, those of `rest` included.
    left: u64,
    /// Bytes of the present message that are not yet written.
    rest: usize,
}

impl Messages {
    /// Bytes of the present message that are not yet written; `None` after the last message.
    fn rest(&mut self) -> Option<usize> {
        if self.rest == 0 {
            self.rest = usize::try_from(self.left).unwrap_or(usize::MAX).min(self.message);
        }
        (self.rest > 0).then_some(self.rest)
    }

    fn written(&mut self, count: usize) {
        self.rest -= count;
        self.left -= count as u64;
    }
}

impl Program for Messages {
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits> {
        while let Some(rest) = self.rest() {
            let Some(taken) = write(socket, now, rest)? else { return Ok(Waits::ToWrite) };
            self.written(taken);
        }
        Ok(Waits::ForNothing)
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

struct SosendWriter {
    rule: Sosend,
    messages: Messages,
    /// Bytes that are copied and not yet appended.
    copied: Option<usize>,
}

impl Program for SosendWriter {
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits> {
        if let Some(count) = self.copied.take() {
            // The space was there when it looked, and only this writer uses it.
            let taken = write(socket, now, count)?;
            ensure!(taken == Some(count), "{taken:?} of {count} bytes were appended");
            self.messages.written(count);
        }
        let Some(rest) = self.messages.rest() else { return Ok(Waits::ForNothing) };
        let queued = socket.send_queue_len();
        let free = self.rule.buffer.saturating_sub(queued);
        if free < rest.min(self.rule.lowat) {
            return Ok(Waits::ForAck(queued));
        }
        self.copied = Some(free.min(rest));
        Ok(Waits::ForItself(self.rule.copy))
    }

    fn is_done(&self) -> bool {
        self.messages.is_done()
    }
}

/// Reads and forgets.
struct Reader {
    left: u64,
}

impl Program for Reader {
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits> {
        while self.left > 0 {
            let Some(taken) = read(socket, now, self.left)? else { return Ok(Waits::ToRead) };
            self.left -= taken as u64;
        }
        Ok(Waits::ForNothing)
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

/// One message on its way in either direction.
#[derive(Default)]
struct Message {
    to_write: usize,
    to_read: usize,
}

impl Message {
    /// `None` when everything is written and read.
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Option<Waits>> {
        while self.to_write > 0 {
            let Some(taken) = write(socket, now, self.to_write)? else {
                return Ok(Some(Waits::ToWrite));
            };
            self.to_write -= taken;
        }
        while self.to_read > 0 {
            let Some(taken) = read(socket, now, self.to_read as u64)? else {
                return Ok(Some(Waits::ToRead));
            };
            self.to_read -= taken;
        }
        Ok(None)
    }
}

/// Asks, and waits for the answer, over and over.
struct Requests {
    sizes: RequestResponse,
    left: u64,
    message: Message,
    began: Option<Instant>,
    latencies: Histogram<u64>,
}

impl Requests {
    fn new(sizes: RequestResponse, left: u64) -> Requests {
        let latencies = new_histogram();
        Requests { sizes, left, message: Message::default(), began: None, latencies }
    }
}

impl Program for Requests {
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits> {
        loop {
            if let Some(waits) = self.message.go_on(socket, now)? {
                return Ok(waits);
            }
            if let Some(began) = self.began.take() {
                self.left -= 1;
                let nanos = u64::try_from(now.since(began).as_nanos()).unwrap_or(u64::MAX);
                // A histogram that grows by itself takes every value.
                let _ = self.latencies.record(nanos.max(1));
            }
            if self.left == 0 {
                return Ok(Waits::ForNothing);
            }
            self.began = Some(now);
            let RequestResponse { request, response } = self.sizes;
            self.message = Message { to_write: request, to_read: response };
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}

/// Waits for a request and answers it, over and over.
struct Answers {
    sizes: RequestResponse,
    left: u64,
    message: Message,
    asked: bool,
}

impl Answers {
    fn new(sizes: RequestResponse, left: u64) -> Answers {
        let message = Message { to_write: 0, to_read: sizes.request };
        Answers { sizes, left, message, asked: false }
    }
}

impl Program for Answers {
    fn go_on(&mut self, socket: &TcpSocket, now: Instant) -> anyhow::Result<Waits> {
        while self.left > 0 {
            if let Some(waits) = self.message.go_on(socket, now)? {
                return Ok(waits);
            }
            self.asked = !self.asked;
            if self.asked {
                self.message = Message { to_write: self.sizes.response, to_read: 0 };
                continue;
            }
            self.left -= 1;
            self.message = Message { to_write: 0, to_read: self.sizes.request };
        }
        Ok(Waits::ForNothing)
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}
