//! The stack of this project as what a script runs on, with a virtual clock.
//!
//! The clock stands still while anything is done and jumps to the next event: a timer of the stack,
//! the deadline of a sleeping call, or the time that the script waits for. Nothing sleeps and no
//! thread is started. Secrets and seeds are fixed, so that every run is the same.

mod commands;
mod device;
mod files;

use std::sync::Arc;

use crate::posix::{Call, Errno, Out, Pending, Process, Progress, Reply};
use plimsoll_stack::qdisc::Kind;
use plimsoll_stack::{CoarseTimers, InterfaceConfig, RouteConfig, Stack, StackConfig};
use plimsoll_tcp::{Duration, Instant};

use crate::host::{Captured, Host, HostError, Network, Started};
use crate::shell::Command;
use device::{Shape, SharedWire};
use files::Files;

/// What the stack's clock shows when a script begins: not zero, as on a machine that has been up
/// for a while.
const START: Instant = Instant::from_millis(1_000_000);
/// The most polls at one moment. A stack that is busy for longer than this has gone wild.
const MOST_POLLS: u32 = 100_000;
/// The most steps of the clock in one script.
const MOST_STEPS: u64 = 200_000;
/// Packets taken from the device in one poll.
const BUDGET: usize = 256;

const SOL_TCP: i32 = 6;
const TCP_INFO: i32 = 11;
/// Bytes of Linux's structure.
const TCP_INFO_LEN: i32 = 280;

/// The stack, a process on it, a device and a clock.
pub struct EmbeddedHost {
    network: Network,
    shape: Shape,
    /// Routes that a script has added.
    routes: Vec<RouteConfig>,
    timers: Option<Arc<dyn CoarseTimers>>,
    /// Settings so far, in case the stack is built again with another device.
    settings: Vec<(String, String)>,
    wire: SharedWire,
    stack: Arc<Stack>,
    process: Process,
    now: Instant,
    /// A call was made or a packet injected: from now on the device stays what it is.
    begun: bool,
    sleeping: Option<Sleeping>,
    returned: Option<(Instant, Reply)>,
    files: Files,
    /// Counters at the last look.
    counted: Vec<(&'static str, u64)>,
    steps: u64,
}

struct Sleeping {
    /// `None` only while it is being resumed.
    pending: Option<Pending>,
    deadline: Option<Instant>,
}

impl EmbeddedHost {
    /// A stack on a network of its own.
    ///
    /// # Errors
    /// If the stack refuses the addresses.
    pub fn new(network: &Network) -> Result<EmbeddedHost, HostError> {
        let shape = Shape {
            mtu: network.mtu,
            offload: true,
            inbound_mss: network.inbound_mss,
            bucket: None,
            qdisc: None,
        };
        let wire = SharedWire::default();
        let stack = build(network, shape, &wire, None)?;
        Ok(EmbeddedHost {
            network: network.clone(),
            shape,
            routes: Vec::new(),
            timers: None,
            settings: Vec::new(),
            wire,
            process: Process::new(stack.clone()),
            counted: stack.counters(),
            stack,
            now: START,
            begun: false,
            sleeping: None,
            returned: None,
            files: Files::default(),
            steps: 0,
        })
    }

    /// The same, with timers that are put off.
    ///
    /// # Errors
    /// If the stack refuses the addresses.
    pub fn with_timers(
        network: &Network,
        timers: Arc<dyn CoarseTimers>,
    ) -> Result<EmbeddedHost, HostError> {
        let mut host = EmbeddedHost::new(network)?;
        host.timers = Some(timers);
        host.build_again()?;
        Ok(host)
    }

    /// What the stack's clock shows when the script begins.
    pub const fn start() -> Instant {
        START
    }

    /// The stack under test.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// Builds the stack again, with another device.
    fn rebuild(&mut self, shape: Shape) -> Result<(), HostError> {
        if shape == self.shape {
            return Ok(());
        }
        if self.begun {
            let why = "the device cannot be changed once the script has begun";
            return Err(HostError(why.to_owned()));
        }
        self.shape = shape;
        self.build_again()?;
        shape.qdisc.map_or(Ok(()), |kind| self.queue_by(kind))
    }

    /// Builds the stack again, as it is said to be by now.
    fn build_again(&mut self) -> Result<(), HostError> {
        self.stack = build(&self.network, self.shape, &self.wire, self.timers.clone())?;
        self.process = Process::new(self.stack.clone());
        self.counted = self.stack.counters();
        for (name, value) in &self.settings {
            self.stack.sysctl().set(name, value).map_err(|error| HostError(error.to_string()))?;
        }
        self.routes.iter().try_for_each(|route| self.add_route(*route))
    }

    /// Gives the stack a route.
    fn add_route(&self, route: RouteConfig) -> Result<(), HostError> {
        self.stack.add_route(route).map_err(|error| HostError(error.to_string()))
    }

    /// Gives the device another queueing discipline, at any time.
    fn queue_by(&mut self, kind: Kind) -> Result<(), HostError> {
        self.shape.qdisc = Some(kind);
        let text = format!("{} {kind}", kind.name());
        self.stack.set_qdisc(self.now, 0, &text).map_err(|error| HostError(error.to_string()))
    }

    /// Does what is due at this moment: polls the stack and resumes the sleeping call until both
    /// have come to rest. Returns when the stack wants to be polled next.
    fn settle(&mut self) -> Result<Option<Instant>, HostError> {
        for _ in 0..MOST_POLLS {
            let poll =
                self.stack.poll(self.now, BUDGET).map_err(|error| HostError(error.to_string()))?;
            let resumed = self.resume();
            if !poll.worked && !resumed {
                return Ok(poll.next);
            }
        }
        Err(HostError("the stack never comes to rest".to_owned()))
    }

    /// Tries the sleeping call again. Returns whether it has returned.
    fn resume(&mut self) -> bool {
        let Some(sleeping) = &mut self.sleeping else { return false };
        let Some(pending) = sleeping.pending.take() else { return false };
        match self.process.resume(self.now, pending) {
            Progress::Done(reply) => {
                self.sleeping = None;
                self.returned = Some((self.since_start(), reply));
                true
            }
            Progress::Blocked { pending, deadline } => {
                self.sleeping = Some(Sleeping { pending: Some(pending), deadline });
                false
            }
        }
    }

    fn since_start(&self) -> Instant {
        Instant::ZERO + self.now.since(START)
    }

    fn check_sanity(&mut self) -> Result<(), HostError> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(HostError("the script takes too many steps".to_owned()));
        }
        if self.wire.lock().lost > 0 {
            return Err(HostError("more packets left than anybody can look at".to_owned()));
        }
        Ok(())
    }
}

/// Builds a stack with one device.
fn build(
    network: &Network,
    shape: Shape,
    wire: &SharedWire,
    coarse_timers: Option<Arc<dyn CoarseTimers>>,
) -> Result<Arc<Stack>, HostError> {
    let interface = InterfaceConfig {
        device: device::device(wire, shape),
        addresses: vec![(network.local, network.prefix)],
        mtu: None,
    };
    let config = StackConfig {
        interfaces: vec![interface],
        secret: [0x5a; 32],
        seed: 1,
        coarse_timers,
        ..StackConfig::default()
    };
    Stack::new(config).map_err(|error| HostError(error.to_string()))
}

impl Host for EmbeddedHost {
    fn now(&self) -> Instant {
        self.since_start()
    }

    fn wait(&mut self, until: Instant) -> Result<(), HostError> {
        let until = START + until.since(Instant::ZERO);
        // Packets that nobody has looked at yet are no news.
        let before = self.wire.lock().out.len();
        loop {
            self.check_sanity()?;
            let next = self.settle()?;
            let news = self.returned.is_some() || self.wire.lock().out.len() > before;
            if news || self.now >= until {
                return Ok(());
            }
            let deadline = self.sleeping.as_ref().and_then(|sleeping| sleeping.deadline);
            let next = next.into_iter().chain(deadline).min().unwrap_or(until).min(until);
            // What was due by now has been done; what claims to be due again gets a little later.
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError> {
        self.begun = true;
        self.wire.lock().inbound.push_back(packet.to_vec());
        self.settle().map(drop)
    }

    fn sniff(&mut self) -> Option<Captured> {
        let (at, bytes) = self.wire.lock().out.pop_front()?;
        Some(Captured { at: Instant::ZERO + at.since(START), bytes })
    }

    fn call(&mut self, call: Call, _may_sleep: bool) -> Result<Started, HostError> {
        self.begun = true;
        let call = match call {
            Call::Open { path, flags } => match self.files.real(&path) {
                Some(path) => Call::Open { path, flags },
                None => return Ok(Started::Returned(Reply::error(Errno::ENOENT))),
            },
            call => call,
        };
        match self.process.call(self.now, call) {
            Progress::Done(reply) => {
                self.settle()?;
                Ok(Started::Returned(reply))
            }
            Progress::Blocked { .. } if self.sleeping.is_some() => {
                Err(HostError("a second call sleeps".to_owned()))
            }
            Progress::Blocked { pending, deadline } => {
                self.sleeping = Some(Sleeping { pending: Some(pending), deadline });
                self.settle()?;
                Ok(Started::Sleeps)
            }
        }
    }

    fn returned(&mut self) -> Option<(Instant, Reply)> {
        self.returned.take()
    }

    fn command(&mut self, command: &Command) -> Result<(), HostError> {
        self.apply(command)
    }

    fn tcp_info(&mut self, fd: i32) -> Result<Vec<u8>, HostError> {
        let call =
            Call::Getsockopt { fd, level: SOL_TCP, name: TCP_INFO, len: TCP_INFO_LEN, null: false };
        match self.process.call(self.now, call) {
            Progress::Done(Reply { result: Ok(_), out: Out::Option { value, .. } }) => Ok(value),
            Progress::Done(Reply { result: Err(errno), .. }) => {
                Err(HostError(format!("TCP_INFO: {errno}")))
            }
            _ => Err(HostError("TCP_INFO gives nothing".to_owned())),
        }
    }

    fn holds(&mut self) -> Vec<String> {
        let held = |socket: plimsoll_stack::SocketSummary| {
            let info = socket.info?;
            let hold = info.hold?;
            let remote = socket.remote?;
            Some(format!(
                "{} -> {remote}: {} bytes not sent yet, held by {}",
                socket.local,
                info.notsent_bytes,
                hold.name()
            ))
        };
        self.stack.sockets().into_iter().filter_map(held).collect()
    }

    fn epoch(&self) -> Duration {
        START.since(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests;
