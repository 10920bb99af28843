//! A host: a stack, its device and its clock.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use plimsoll_stack::device::channel::{Channel, ChannelConfig, ChannelOffloads};
use plimsoll_stack::device::pcapng::{self, CaptureConfig};
use plimsoll_stack::device::{Device, channel};
use plimsoll_stack::packet::Packet;
use plimsoll_stack::{InterfaceConfig, Listener, SocketError, Stack, StackConfig, StackError};
use plimsoll_tcp::{Duration, Info, Instant, Options};

use super::Socket;
use super::memory::Memory;
use crate::coverage::Reached;
use crate::program::HostClock;
use crate::rng::Rng;
use crate::scenario::{FIRST_PORT, Scenario, ScenarioError};
use crate::watch::Wrong;

/// Packets that one poll works on, at most.
const BATCH: usize = 64;
/// Packets that wait for a stack that does not run, at most: what a network card keeps.
const RING: usize = 1024;
/// `tcp_mem` of hosts with programs, in pages.
const PROGRAM_MEMORY: &str = "190000 254000 381000";

/// A host.
pub(super) struct Host {
    index: usize,
    life: Option<Life>,
    /// How far its clock is ahead of the world's.
    ahead: Duration,
    stalled: bool,
    /// Something may have changed since the last poll.
    touched: bool,
    /// The link's queue has no place for its packets.
    blocked: bool,
    /// When its stack wants to be polled, by its own clock.
    deadline: Option<Instant>,
    /// Applications that were woken while it did not run.
    remembered: Vec<usize>,
    figures: HashMap<usize, Figures>,
    /// How often it was started.
    boots: u64,
    /// What programs of it see; none if there are none.
    program_clock: Option<Arc<HostClock>>,
}

/// What a crash takes away.
struct Life {
    listeners: BTreeMap<usize, Arc<Listener>>,
    stack: Arc<Stack>,
    /// The same with a clock, for programs.
    handle: Option<plimsoll::Stack>,
    channel: Channel,
}

impl Host {
    pub(super) fn boot(
        scenario: &Scenario,
        index: usize,
        seed: u64,
        capture: Option<&Path>,
        mtu: u16,
        program_clock: Option<Arc<HostClock>>,
    ) -> Result<Host, ScenarioError> {
        let life = Life::new(scenario, index, seed, capture, mtu, program_clock.as_ref())?;
        Ok(Host {
            index,
            life: Some(life),
            ahead: Duration::ZERO,
            stalled: false,
            touched: true,
            blocked: false,
            deadline: None,
            remembered: Vec::new(),
            figures: HashMap::new(),
            boots: 1,
            program_clock,
        })
    }

    pub(super) fn reboot(
        &mut self,
        scenario: &Scenario,
        index: usize,
        seed: u64,
        mtu: u16,
    ) -> Result<(), ScenarioError> {
        self.boots += 1;
        let seed = seed.wrapping_add(self.boots << 32);
        self.life = Some(Life::new(scenario, index, seed, None, mtu, self.program_clock.as_ref())?);
        self.touched = true;
        Ok(())
    }

    /// All is lost, and nobody is told.
    pub(super) fn crash(&mut self) {
        self.life = None;
        self.deadline = None;
        self.figures.clear();
        self.remembered.clear();
    }

    pub(super) fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// Whether its process runs.
    pub(super) fn is_running(&self) -> bool {
        self.life.is_some() && !self.stalled
    }

    pub(super) fn stall(&mut self) {
        self.stalled = true;
    }

    pub(super) fn resume(&mut self) {
        self.stalled = false;
        self.touched = true;
    }

    pub(super) fn step_clock(&mut self, by: Duration) {
        self.ahead += by;
        self.touched = true;
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        if let Some(life) = &mut self.life {
            // It was checked with the scenario.
            let _ = life.channel.set_mtu(mtu);
        }
        self.touched = true;
    }

    /// Its time when the world has `now`.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// Programs see its clock, which is that of the world at `now`.
    pub(super) fn show_clock(&self, now: Instant) {
        if let Some(clock) = &self.program_clock {
            clock.set(self.clock(now));
        }
    }

    /// What its programs use, if it has any and is up.
    pub(super) fn program_parts(&self) -> Option<(plimsoll::Stack, Arc<HostClock>)> {
        let handle = self.life.as_ref()?.handle.clone()?;
        Some((handle, self.program_clock.clone()?))
    }

    /// The world's time when it has `time`.
    pub(super) fn world_time(&self, time: Instant) -> Instant {
        Instant::from_nanos(time.since(Instant::ZERO + self.ahead).as_nanos() as u64)
    }

    /// An application was woken while the host did not run.
    pub(super) fn remember(&mut self, app: usize) {
        if self.life.is_some() {
            self.remembered.push(app);
        }
    }

    pub(super) fn take_remembered(&mut self) -> Vec<usize> {
        core::mem::take(&mut self.remembered)
    }

    pub(super) fn touch(&mut self) {
        self.touched = true;
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    pub(super) fn next(&self) -> Option<Instant> {
        if !self.is_running() {
            return None;
        }
        self.deadline.map(|deadline| self.world_time(deadline))
    }

    pub(super) fn wants_poll(&self, now: Instant) -> bool {
        let due = self.next().is_some_and(|next| next <= now);
        self.is_running() && (self.touched || self.blocked || due)
    }

    /// Polls once; whether that did anything.
    pub(super) fn poll(&mut self, now: Instant) -> Result<bool, StackError> {
        let now = self.clock(now);
        let Some(life) = &self.life else { return Ok(false) };
        let polled = life.stack.poll(now, BATCH)?;
        self.touched = false;
        self.deadline = polled.next;
        Ok(polled.worked)
    }

    /// The next packet that its device has to send.
    pub(super) fn take(&mut self) -> Option<Packet> {
        self.life.as_mut()?.channel.try_recv().ok()
    }

    /// Its device gets a packet. Without a place for it, it is lost.
    pub(super) fn deliver(&mut self, packet: Packet) {
        if let Some(life) = &mut self.life {
            let _ = life.channel.try_send(packet);
            self.touched = true;
        }
    }

    pub(super) fn listening_address(&self, v6: bool, flow: usize) -> SocketAddr {
        SocketAddr::new(Scenario::address(self.index, v6), FIRST_PORT + flow as u16)
    }

    pub(super) fn listen(
        &mut self,
        at: SocketAddr,
        flow: usize,
        options: Options,
        waker: &Waker,
    ) -> Result<(), SocketError> {
        let life = self.life.as_mut().ok_or(SocketError::NetworkDown)?;
        let listener = life.stack.listen(at, 16, options)?;
        if listener.poll_acceptable(waker).is_ready() {
            waker.wake_by_ref();
        }
        life.listeners.insert(flow, listener);
        Ok(())
    }

    pub(super) fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: Options,
    ) -> Result<Socket, SocketError> {
        let now = self.clock(now);
        let life = self.life.as_mut().ok_or(SocketError::NetworkDown)?;
        life.stack.connect(now, to, None, options)
    }

    /// The connection of a flow, if it is there; the listener ends with it.
    pub(super) fn accept(&mut self, now: Instant, flow: usize, waker: &Waker) -> Option<Socket> {
        let life = self.life.as_mut()?;
        let listener = life.listeners.get(&flow)?;
        let accepted = listener.accept(now).ok().flatten();
        if accepted.is_none() {
            if listener.poll_acceptable(waker).is_ready() {
                waker.wake_by_ref();
            }
            return None;
        }
        if let Some(listener) = life.listeners.remove(&flow) {
            listener.close(now);
        }
        accepted.map(|(socket, _)| socket)
    }

    /// What was last seen of the figures of an application's socket.
    pub(super) fn figures(&mut self, app: usize) -> &mut Figures {
        self.figures.entry(app).or_default()
    }

    /// Whether no connection is left, but for those in TIME-WAIT, and no packet of one. Packets
    /// that are paced may stay longer than their connection.
    pub(super) fn is_quiet(&self) -> bool {
        self.life.as_ref().is_none_or(|life| {
            let bytes = life.stack.pool().stats().in_use_bytes;
            life.stack.connection_memory().connections == 0 && bytes == 0
        })
    }

    /// What is left that should not be.
    pub(super) fn leftovers(&mut self) -> Option<String> {
        let life = self.life.as_mut()?;
        life.listeners.clear();
        let open = life.stack.connection_memory().connections;
        if open > 0 {
            return Some(format!("host {}: {:?}", self.index, life.stack.sockets()));
        }
        while life.channel.try_recv().is_ok() {}
        let bytes = life.stack.pool().stats().in_use_bytes;
        (bytes > 0).then(|| format!("host {}: {bytes} bytes of buffers", self.index))
    }

    /// What its stack takes, if it is up.
    pub(super) fn memory(&self) -> Option<Memory> {
        self.life.as_ref().map(|life| Memory::of(&life.stack))
    }

    /// Whether the stack has panicked in work on a connection.
    pub(super) fn has_panicked(&self) -> bool {
        let panics = |life: &Life| life.stack.counter("plimsoll.ConnectionPanics");
        self.life.as_ref().and_then(panics).is_some_and(|panics| panics > 0)
    }

    /// Takes note of the rare branches that its counters tell of.
    pub(super) fn count_reached(&self, reached: &mut Reached) {
        if let Some(life) = &self.life {
            reached.count(&life.stack);
        }
    }
}

impl Life {
    fn new(
        scenario: &Scenario,
        index: usize,
        seed: u64,
        capture: Option<&Path>,
        mtu: u16,
        program_clock: Option<&Arc<HostClock>>,
    ) -> Result<Life, ScenarioError> {
        let config = &scenario.host[index];
        let wrong = |error: String| ScenarioError::new(format!("host[{index}]"), error);
        let offloads =
            if config.offloads { ChannelOffloads::Segmentation } else { ChannelOffloads::None };
        let queue = ChannelConfig::with_mtu(mtu).name(&config.name).offloads(offloads);
        let (device, channel) =
            channel(queue.to_stack(RING)).map_err(|error| wrong(error.to_string()))?;
        let device = match capture {
            Some(folder) => captured(device, &folder.join(format!("{}.pcapng", config.name)))
                .map_err(|error| wrong(format!("capture: {error}")))?,
            None => device,
        };
        let mut rng = Rng::new(seed, 1000 + index as u64);
        if let Some(clock) = program_clock {
            let handle = with_clock(config, index, device, clock, rng.bits());
            let handle = handle.map_err(|error| wrong(error.to_string()))?;
            let stack = handle.core().clone();
            return Ok(Life { listeners: BTreeMap::new(), stack, handle: Some(handle), channel });
        }
        let addresses =
            [(false, 24), (true, 64)].map(|(v6, prefix)| (Scenario::address(index, v6), prefix));
        let stack = Stack::new(StackConfig {
            interfaces: vec![InterfaceConfig { device, addresses: addresses.to_vec(), mtu: None }],
            sysctls: config.sysctl.clone().into_iter().collect(),
            secret: core::array::from_fn(|_| rng.bits() as u8),
            seed: rng.bits(),
            ..StackConfig::default()
        });
        let stack = stack.map_err(|error| wrong(error.to_string()))?;
        Ok(Life { listeners: BTreeMap::new(), stack, handle: None, channel })
    }
}

/// A stack as programs know it, without a thread of its own.
fn with_clock(
    config: &crate::scenario::Host,
    index: usize,
    device: Device,
    clock: &Arc<HostClock>,
    seed: u64,
) -> Result<plimsoll::Stack, plimsoll::BuildError> {
    let [v4, v6] = [false, true].map(|v6| Scenario::address(index, v6));
    let mut builder = plimsoll::Stack::builder()
        .device(device)
        .address(format!("{v4}/24"))
        .address(format!("{v6}/64"))
        .seed(seed)
        .clock(clock.clone())
        // It would follow from the memory of the machine.
        .sysctl("net.ipv4.tcp_mem", PROGRAM_MEMORY);
    for (name, value) in &config.sysctl {
        builder = builder.sysctl(name, value);
    }
    builder.build_without_thread()
}

fn captured(device: Device, path: &Path) -> std::io::Result<Device> {
    let file = File::create(path)?;
    Ok(pcapng::wrap_file(device, file, CaptureConfig::default()).0)
}

/// Figures of a connection that only grow, or are bounded by others.
#[derive(Debug, Default)]
pub(super) struct Figures {
    acked: u64,
    received: u64,
    flight: u32,
    cwnd: u32,
    /// No loss was suspected (`ca_state` 0).
    open: bool,
}

impl Figures {
    /// Compares with what was seen before.
    pub(super) fn check(&mut self, info: &Info) -> Result<(), Wrong> {
        if info.bytes_acked < self.acked || info.bytes_received < self.received {
            let what = format!("{self:?}, now {} and {}", info.bytes_acked, info.bytes_received);
            return Err(("no figure of TCP_INFO goes back", what));
        }
        let gone = info.sacked + info.lost;
        let flight = (info.unacked + info.retrans).saturating_sub(gone);
        let most = info.snd_cwnd.max(self.cwnd);
        // Where there was loss, more is in flight once it turns out to be none, and the window may
        // have grown before it was reduced. A tail loss probe leaves in any case.
        let open = info.ca_state == 0 && self.open;
        if open && flight > self.flight + 1 && flight > most + 1 {
            let what = format!("{flight} segments in flight, cwnd {most}: {self:?}");
            return Err(("flight grows up to the congestion window", what));
        }
        *self = Figures {
            acked: info.bytes_acked,
            received: info.bytes_received,
            flight,
            cwnd: info.snd_cwnd,
            open: info.ca_state == 0,
        };
        Ok(())
    }
}
