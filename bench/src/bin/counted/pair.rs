//! Two stacks, a link in memory between them, and time that passes only when told to.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Clock, Connector, Instant, Polled, Stack, TcpListener, TcpStream};

/// Bytes that fill a segment on the link exactly: MTU 1500 less headers and timestamps.
pub(crate) const SEGMENT: usize = 1448;

/// Where the listener of the measured stack is, and that of the other one.
pub(crate) const HERE: &str = "192.0.2.1:7";
pub(crate) const THERE: &str = "192.0.2.2:7";

/// Polls with nothing to do that must follow one another before the stacks count as quiet.
const QUIET: usize = 100;

/// What passes with each poll of both.
const STEP: u64 = 1_000;

/// The limits of a machine with 16 GiB: they must not be those of this one.
const TCP_MEM: &str = "190707 254276 381414";

/// A send buffer takes a super-segment from the first one on.
const TCP_WMEM: &str = "4096 131072 4194304";

/// Time that passes only when told to.
#[derive(Default)]
pub(crate) struct Virtual(AtomicU64);

impl Clock for Virtual {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What a pair is like.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    /// The measured stack acknowledges everything at once.
    pub(crate) quickack: bool,
    /// The other one does.
    pub(crate) peer_quickack: bool,
    /// The link takes super-segments and leaves out checksums. Without, a packet is a wire segment,
    /// so that packets can be counted.
    pub(crate) offloads: bool,
}

/// A stack that is measured, and one that is not.
pub(crate) struct Pair {
    pub(crate) measured: Stack,
    pub(crate) other: Stack,
    pub(crate) here: TcpListener,
    pub(crate) there: TcpListener,
    clock: Arc<Virtual>,
}

impl Pair {
    pub(crate) fn new(shape: Shape) -> Result<Pair> {
        let link = LinkConfig::default().offloads(shape.offloads);
        let (here, there) = memory_link::pair(link);
        let clock = Arc::new(Virtual(AtomicU64::new(1_000_000_000)));
        let build = |device, address: &str, seed, quickack| {
            let builder = Stack::builder().device(device).address(address).seed(seed);
            let builder = builder.sysctl("net.ipv4.tcp_mem", TCP_MEM);
            let builder = builder.sysctl("net.ipv4.tcp_wmem", TCP_WMEM);
            builder.quickack(quickack).clock(clock.clone()).build_without_thread()
        };
        let measured = build(here, "192.0.2.1/24", 1, shape.quickack)?;
        let other = build(there, "192.0.2.2/24", 2, shape.peer_quickack)?;
        let listen = |stack, address| -> Result<TcpListener> {
            let listener = TcpListener::bind(stack, address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let (here, there) = (listen(&measured, HERE)?, listen(&other, THERE)?);
        Ok(Pair { measured, other, here, there, clock })
    }

    /// Lets a moment pass, and polls the other stack.
    pub(crate) fn other_turn(&self) -> Polled {
        self.clock.0.fetch_add(STEP, Ordering::Relaxed);
        self.other.poll()
    }

    /// Polls both until neither has had anything to do for a while.
    pub(crate) fn settle(&self) {
        let mut quiet = 0;
        while quiet < QUIET {
            let worked = self.other_turn().worked | self.measured.poll().worked;
            quiet = if worked { 0 } else { quiet + 1 };
        }
    }

    /// Connects from the other stack to the measured one. Ours comes first.
    pub(crate) fn connection(&self) -> Result<(TcpStream, TcpStream)> {
        let theirs = Connector::new(&self.other).start(HERE.parse().context("an address")?)?;
        for _ in 0..1000 {
            self.other_turn();
            self.measured.poll();
            match self.here.accept() {
                Ok((ours, _)) => {
                    for stream in [&ours, &theirs] {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                    }
                    self.settle();
                    return Ok((ours, theirs));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("the connection was not established")
    }

    /// A counter of the measured stack.
    pub(crate) fn counter(&self, name: &str) -> Result<usize> {
        let counters = self.measured.counters();
        let found = counters.iter().find(|(known, _)| *known == name);
        Ok(usize::try_from(found.with_context(|| format!("a counter {name}"))?.1)?)
    }
}

/// A pair, and a connection between its stacks.
pub(crate) struct Joined {
    pub(crate) pair: Pair,
    pub(crate) ours: TcpStream,
    pub(crate) theirs: TcpStream,
}

impl Joined {
    pub(crate) fn new(shape: Shape) -> Result<Joined> {
        let pair = Pair::new(shape)?;
        let (ours, theirs) = pair.connection()?;
        Ok(Joined { pair, ours, theirs })
    }

    /// Sends `data` to the measured stack, which takes it with one `poll`, and reads it there.
    pub(crate) fn receive(
        &mut self,
        data: &[u8],
        room: &mut [u8],
        poll: impl Fn(&Stack),
    ) -> Result<()> {
        let sent = self.theirs.write(data)?;
        self.pair.other_turn();
        poll(&self.pair.measured);
        let mut taken = 0;
        while taken < sent {
            match self.ours.read(room) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.pair.other_turn();
                    poll(&self.pair.measured);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.pair.settle();
        Ok(())
    }

    /// Sends `data` by `write`, which is told the stack and the stream, and has the peer read it.
    pub(crate) fn send(
        &mut self,
        data: &[u8],
        room: &mut [u8],
        mut write: impl FnMut(&Stack, &mut TcpStream) -> std::io::Result<usize>,
    ) -> Result<()> {
        let sent = write(&self.pair.measured, &mut self.ours)?;
        ensure!(sent == data.len(), "{sent} bytes were taken of {}", data.len());
        let mut taken = 0;
        while taken < sent {
            self.pair.other_turn();
            match self.theirs.read(room) {
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.pair.measured.poll();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
