//! How a stack is put together.

use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_stack::device::{self, Device};
use plimsoll_stack::{
    Budget, InterfaceConfig, RouteConfig, RouteMetrics, SocketError, Stack as Core, StackConfig,
    StackError,
};
use plimsoll_tcp::Instant;

use crate::clock::{Clock, now};
use crate::resolve::Resolve;
use crate::stack::{OnThreadStart, Stack, Threads};

/// Builds a [`Stack`].
///
/// A device and the calls after it, up to the next device, make one interface. Nothing is checked
/// before one of the `build` methods; their errors name the field that is wrong.
///
/// ```
/// use plimsoll::{Stack, device};
/// let (device, _peer) = device::memory_link::pair(Default::default());
/// let stack = Stack::builder()
///     .device(device)
///     .address("192.0.2.1/24")
///     .address("2001:db8::1/64")
///     .mtu(1400)
///     .sysctl("net.ipv4.tcp_sack", "0")
///     .build()?;
/// # Ok::<(), plimsoll::BuildError>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct StackBuilder {
    interfaces: Vec<Interface>,
    sysctls: Vec<(String, String)>,
    seed: Option<u64>,
    busy_poll: Duration,
    spin_while_sending: bool,
    wait_for_devices: bool,
    name: Option<String>,
    on_thread_start: Option<OnThreadStart>,
    queues: usize,
    loopback_only: bool,
    clock: Option<Arc<dyn Clock>>,
    resolver: Option<Arc<dyn Resolve>>,
    any_address: bool,
    budget: Budget,
    misplaced: Option<&'static str>,
}

struct Interface {
    device: Device,
    more_queues: Vec<Device>,
    addresses: Vec<String>,
    mtu: Option<u16>,
    pcap: Option<PathBuf>,
    fault: Option<device::fault::FaultConfig>,
    qdisc: Option<String>,
    metrics: RouteMetrics,
}

/// Why a stack could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No device was given.
    #[error("device: a stack needs at least one, unless it is loopback_only")]
    NoDevice,
    /// A stack that is to have no device has one.
    #[error("loopback_only: the stack has a device as well; leave one of the two out")]
    NotLoopbackOnly,
    /// A stack that is to have no device is to take packets to any address.
    #[error("any_address: a stack that is loopback_only gets none; leave one of the two out")]
    NothingArrives,
    /// Something that belongs to a device was set before any device.
    #[error("{0}: set it after the device that it belongs to")]
    Misplaced(&'static str),
    /// An address is not an IP address with a prefix length.
    #[error("address: '{0}' is not an IP address with a prefix length, as in 192.0.2.1/24")]
    Address(String),
    /// A setting is unknown, or cannot have that value.
    #[error("sysctl: {0}")]
    Sysctl(plimsoll_stack::SysctlError),
    /// The budget lets nothing through.
    #[error("{0}")]
    Budget(SocketError),
    /// There is no such queueing discipline.
    #[error("qdisc: {0}")]
    Qdisc(plimsoll_stack::qdisc::KindError),
    /// The capture file cannot be written.
    #[error("pcap: cannot write {path}: {error}")]
    Pcap {
        /// The file.
        path: PathBuf,
        /// The error that the call returned.
        error: std::io::Error,
    },
    /// The system gave no random numbers.
    #[error("seed: the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The thread could not be started.
    #[error("thread: cannot start it: {0}")]
    Thread(std::io::Error),
    /// The stack refuses its configuration.
    #[error(transparent)]
    Stack(#[from] StackError),
}

impl StackBuilder {
    /// A builder with no device yet.
    pub fn new() -> StackBuilder {
        StackBuilder::default()
    }

    /// Adds a device.
    pub fn device(mut self, device: Device) -> StackBuilder {
        let (addresses, more_queues) = (Vec::new(), Vec::new());
        let (mtu, pcap, fault, qdisc) = (None, None, None, None);
        let metrics = RouteMetrics::default();
        self.interfaces.push(Interface {
            device,
            more_queues,
            addresses,
            mtu,
            pcap,
            fault,
            qdisc,
            metrics,
        });
        self
    }

    /// Lets the stack do without a device: its sockets only reach each other, by its loopback
    /// addresses 127.0.0.0/8 and `::1`. For tests of programs that use sockets.
    pub fn loopback_only(mut self) -> StackBuilder {
        self.loopback_only = true;
        self
    }

    /// Adds further queues to the last device, each a separate device, as
    /// [`tun::open_queues`](device::tun::open_queues) opens them. They are distributed to the
    /// threads that [`queues`](Self::queues) asks for. A capture has a file for each, whose name
    /// ends in `.1` and so on.
    pub fn more_queues(self, queues: impl IntoIterator<Item = Device>) -> StackBuilder {
        self.interface("more_queues", |interface| interface.more_queues.extend(queues))
    }

    /// Gives the last device an address with its prefix length, as in `192.0.2.1/24`. A device may
    /// have several, and several devices may have the same link-local address. The scope id of such
    /// an address is the device's place in [`Stack::interfaces`](crate::Stack::interfaces), counted
    /// from 1: sockets report it with every link-local address. A call may leave it out where only
    /// one device has link-local addresses.
    pub fn address(self, address: impl Into<String>) -> StackBuilder {
        let address = address.into();
        self.interface("address", |interface| interface.addresses.push(address))
    }

    /// Sets the MTU of the last device, below the device's own.
    pub fn mtu(self, mtu: u16) -> StackBuilder {
        self.interface("mtu", |interface| interface.mtu = Some(mtu))
    }

    /// Captures all packets of the last device into a pcapng file.
    pub fn pcap(self, path: impl Into<PathBuf>) -> StackBuilder {
        let path = path.into();
        self.interface("pcap", |interface| interface.pcap = Some(path))
    }

    /// Hurts packets of the last device on their way.
    pub fn fault(self, fault: device::fault::FaultConfig) -> StackBuilder {
        self.interface("fault", |interface| interface.fault = Some(fault))
    }

    /// Gives the last device a queueing discipline, in the syntax of `tc qdisc`: `fq` or `pfifo`,
    /// and then parameters, as in `fq limit 1000 flow_limit 50`. The default is the discipline in
    /// `net.core.default_qdisc`.
    pub fn qdisc(self, qdisc: impl Into<String>) -> StackBuilder {
        let qdisc = qdisc.into();
        self.interface("qdisc", |interface| interface.qdisc = Some(qdisc))
    }

    /// Lets connections over the last device acknowledge everything at once, as the attribute
    /// `quickack` of `ip route` does on Linux. ACKs that are due within one batch of packets are
    /// still combined into one, unless `net.ipv4.tcp_backlog_ack_defer` is 0.
    pub fn quickack(self, on: bool) -> StackBuilder {
        self.interface("quickack", |interface| interface.metrics.quickack = on)
    }

    /// Gives the routes over the last device these attributes, as `ip route` takes them on Linux.
    /// They replace all earlier attributes of these routes, also [`quickack`](Self::quickack). A
    /// separate route may have others ([`Stack::add_route_with`](crate::Stack::add_route_with)).
    /// [`build`](Self::build) fails, and names the attribute, if one is out of its range.
    ///
    /// ```
    /// use plimsoll::device::memory_link::{self, LinkConfig};
    /// use plimsoll::{RouteMetrics, Stack};
    /// let (device, _peer) = memory_link::pair(LinkConfig::default());
    /// let metrics = RouteMetrics::default().initcwnd(Some(20)).advmss(Some(1360));
    /// let builder = Stack::builder().device(device).address("192.0.2.1/24");
    /// assert!(builder.route_metrics(metrics).build().is_ok());
    /// ```
    pub fn route_metrics(self, metrics: RouteMetrics) -> StackBuilder {
        self.interface("route_metrics", |interface| interface.metrics = metrics)
    }

    /// Lets the stack's thread spin, not sleep, while a device is at sending and will complete a
    /// packet soon. A sleep of microseconds takes much longer than asked for, so that a fast link
    /// with a rate would run dry. It costs a CPU while data flows.
    pub fn spin_while_sending(mut self, on: bool) -> StackBuilder {
        self.spin_while_sending = on;
        self
    }

    /// Changes a setting of the stack by Linux's name.
    pub fn sysctl(mut self, name: impl Into<String>, value: impl Into<String>) -> StackBuilder {
        self.sysctls.push((name.into(), value.into()));
        self
    }

    /// How much all connections together may use at a time; see
    /// [`Stack::set_budget`](crate::Stack::set_budget). Settings that are given as well
    /// ([`sysctl`](Self::sysctl)) come after it.
    ///
    /// ```
    /// use plimsoll::{Budget, Stack};
    /// let budget = Budget::default().connections(Some(0));
    /// let error = Stack::builder().loopback_only().budget(budget).build().unwrap_err();
    /// assert!(error.to_string().contains("budget.connections is 0"));
    /// ```
    pub fn budget(mut self, budget: Budget) -> StackBuilder {
        self.budget = budget;
        self
    }

    /// Accepts packets to any address, not only to its own: a listener may be bound to any, and a
    /// connection opened from any. [`TcpListener::bind_any`](crate::TcpListener::bind_any) includes
    /// it. Where no route leads, packets leave by the first device, which needs no address then.
    /// Packets that no socket accepts are answered (RST, ICMP) from their own destination address.
    pub fn any_address(mut self) -> StackBuilder {
        self.any_address = true;
        self
    }

    /// Keeps an interface whose device has failed until
    /// [`Stack::replace_device`](crate::Stack::replace_device) gives it the next one. Connections,
    /// listeners and the stack continue. Packets sent meanwhile are lost, as with an unplugged
    /// cable, and are retransmitted. Android's VPN service, for example, replaces its device when
    /// the network changes. Without this setting they end with an error, and the stack ends with
    /// its last device.
    ///
    /// ```
    /// # use plimsoll::device::memory_link;
    /// # let (device, peer) = memory_link::pair(Default::default());
    /// let builder = plimsoll::Stack::builder().device(device).address("192.0.2.1/24");
    /// let stack = builder.wait_for_devices(true).build()?;
    /// drop(peer);
    /// let (another, _peer) = memory_link::pair(Default::default());
    /// stack.replace_device(0, another).expect("the stack is there");
    /// # Ok::<(), plimsoll::BuildError>(())
    /// ```
    pub fn wait_for_devices(mut self, on: bool) -> StackBuilder {
        self.wait_for_devices = on;
        self
    }

    /// Fixes the values that are otherwise random: initial sequence numbers, ports, table keys. Use
    /// it only for tests: with a known seed an attacker can guess sequence numbers.
    pub fn seed(mut self, seed: u64) -> StackBuilder {
        self.seed = Some(seed);
        self
    }

    /// Polls the devices for up to this time before sleeping. It saves the wake-up when packets
    /// follow each other closely, and costs a CPU that does nothing else. Zero is off.
    pub fn busy_poll(mut self, time: Duration) -> StackBuilder {
        self.busy_poll = time;
        self
    }

    /// Gives the stack another clock than that of the process, as one that tests can stop. A stack
    /// with threads needs one that runs. Stacks that a link in memory joins need the same clock,
    /// since packets take their times along.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> StackBuilder {
        self.clock = Some(clock);
        self
    }

    /// Has names looked up by `resolver` for the sockets of the stack, rather than by the host.
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> StackBuilder {
        self.resolver = Some(resolver);
        self
    }

    /// Names the stack's threads; `softirq` unless set. With several queues the second is called
    /// `softirq/1`, and so on.
    pub fn name(mut self, name: impl Into<String>) -> StackBuilder {
        self.name = Some(name.into());
        self
    }

    /// Calls `hook` on each softirq thread when it has started, with the number of its queue. Use
    /// it for settings of the thread itself: its CPU, its priority, a runtime to enter. A panic in
    /// it ends the stack, as any panic of such a thread does.
    ///
    /// ```
    /// let (sender, started) = std::sync::mpsc::channel();
    /// let stack = plimsoll::Stack::builder()
    ///     .loopback_only()
    ///     .name("packets")
    ///     .on_thread_start(move |queue| {
    ///         let name = std::thread::current().name().map(str::to_owned);
    ///         let _ = sender.send((queue, name));
    ///     })
    ///     .build()?;
    /// assert_eq!(started.recv()?, (0, Some("packets".to_owned())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_thread_start(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> StackBuilder {
        self.on_thread_start = Some(Arc::new(hook));
        self
    }

    /// How many softirq threads there are; 1 unless set. Every connection belongs to one of them,
    /// that of the queue of the device that its packets come by, so more threads than a device has
    /// queues are of no use to it. A stack without a thread has so many queues, to be run by as
    /// many loops ([`Stack::queue`]) or by one ([`Stack::poll`]).
    ///
    /// ```no_run
    /// use plimsoll::{Stack, device::tun};
    /// let mut queues = tun::open_queues(tun::TunConfig::default(), 4)?.into_iter();
    /// let first = queues.next().expect("as many as asked for");
    /// let stack = Stack::builder()
    ///     .device(first)
    ///     .more_queues(queues)
    ///     .address("192.0.2.1/24")
    ///     .queues(4)
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(mut self, count: usize) -> StackBuilder {
        self.queues = count;
        self
    }

    /// Builds the stack and starts its softirq threads, one unless [`queues`](Self::queues) says
    /// otherwise.
    ///
    /// # Errors
    /// If a field is wrong, or the device, the capture file or the thread cannot be had.
    pub fn build(self) -> Result<Stack, BuildError> {
        let name = self.name.clone().unwrap_or_else(|| "softirq".into());
        let threads = Threads { name, on_start: self.on_thread_start.clone() };
        let (busy_poll, spin) = (self.busy_poll, self.spin_while_sending);
        let (clock, resolver) = (self.clock.clone(), self.resolver.clone());
        Stack::run(self.core()?, clock, resolver, (busy_poll, spin), Some(threads))
    }

    /// Builds the stack; the caller's loop runs it with [`Stack::poll`] and [`Stack::wait`], or one
    /// loop for each of its [`queues`](Self::queues) with a [`QueueLoop`](crate::QueueLoop).
    ///
    /// # Errors
    /// If a field is wrong, or the device or the capture file cannot be had.
    pub fn build_without_thread(self) -> Result<Stack, BuildError> {
        let (busy_poll, spin) = (self.busy_poll, self.spin_while_sending);
        let (clock, resolver) = (self.clock.clone(), self.resolver.clone());
        Stack::run(self.core()?, clock, resolver, (busy_poll, spin), None)
    }

    fn interface(mut self, field: &'static str, change: impl FnOnce(&mut Interface)) -> Self {
        match self.interfaces.last_mut() {
            Some(interface) => change(interface),
            None => self.misplaced = Some(field),
        }
        self
    }

    fn core(self) -> Result<Arc<Core>, BuildError> {
        if let Some(field) = self.misplaced {
            return Err(BuildError::Misplaced(field));
        }
        if self.loopback_only != self.interfaces.is_empty() {
            let both = BuildError::NotLoopbackOnly;
            return Err(if self.loopback_only { both } else { BuildError::NoDevice });
        }
        let (any_address, budget) = (self.any_address, self.budget);
        if self.loopback_only && any_address {
            return Err(BuildError::NothingArrives);
        }
        let (secret, seed) = secrets(self.seed)?;
        let now = self.clock.as_ref().map_or_else(now, |clock| clock.now());
        let qdiscs: Vec<_> = self.interfaces.iter().map(|each| each.qdisc.clone()).collect();
        let metrics: Vec<_> = self.interfaces.iter().map(|each| each.metrics).collect();
        let mut more_queues = Vec::new();
        let mut interfaces = Vec::new();
        for (index, interface) in self.interfaces.into_iter().enumerate() {
            let (config, more) = interface.config(now)?;
            interfaces.push(config);
            more_queues.extend(more.into_iter().map(|device| (index, device)));
        }
        let routes = routes_with(&interfaces, &metrics);
        let pollers = self.queues;
        let config = StackConfig {
            interfaces,
            more_queues,
            pollers,
            routes,
            secret,
            seed,
            memory: physical_memory(),
            wait_for_devices: self.wait_for_devices,
            ..StackConfig::default()
        };
        let core = Core::new(config)?;
        core.set_budget(now, &budget).map_err(BuildError::Budget)?;
        if any_address {
            core.take_any_address();
        }
        for (name, value) in &self.sysctls {
            core.sysctl().set(name, value).map_err(BuildError::Sysctl)?;
        }
        for (index, qdisc) in qdiscs.iter().enumerate() {
            if let Some(text) = qdisc {
                core.set_qdisc(now, index, text).map_err(BuildError::Qdisc)?;
            }
        }
        Ok(core)
    }
}

/// Bytes of memory of this machine, if the system reports them.
fn physical_memory() -> Option<u64> {
    total_of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The total memory in bytes, from a text in the format of /proc/meminfo.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

impl Interface {
    /// The interface, and the further queues of its device.
    fn config(self, now: Instant) -> Result<(InterfaceConfig, Vec<Device>), BuildError> {
        let addresses =
            self.addresses.iter().map(|address| parse(address)).collect::<Result<_, _>>()?;
        let (fault, pcap) = (self.fault, self.pcap);
        let device = wrapped(self.device, fault.as_ref(), pcap.clone(), now)?;
        let mut more = Vec::new();
        for (index, queue) in self.more_queues.into_iter().enumerate() {
            let path = pcap.as_ref().map(|path| {
                let mut path = path.clone().into_os_string();
                path.push(format!(".{}", index + 1));
                PathBuf::from(path)
            });
            more.push(wrapped(queue, fault.as_ref(), path, now)?);
        }
        Ok((InterfaceConfig { device, addresses, mtu: self.mtu }, more))
    }
}

/// The device with its wrappers.
fn wrapped(
    mut device: Device,
    fault: Option<&device::fault::FaultConfig>,
    pcap: Option<PathBuf>,
    now: Instant,
) -> Result<Device, BuildError> {
    if let Some(fault) = fault {
        fault.check()?;
        device = device::fault::wrap(device, fault.clone());
    }
    // Outermost, so that the capture shows what the stack sends and sees.
    let Some(path) = pcap else { return Ok(device) };
    match File::create(&path) {
        Ok(file) => Ok(capture(device, file, now)),
        Err(error) => Err(BuildError::Pcap { path, error }),
    }
}

/// The routes that lead out of the interfaces anyway, with the attributes of those that have any.
fn routes_with(interfaces: &[InterfaceConfig], metrics: &[RouteMetrics]) -> Vec<RouteConfig> {
    let mut routes = Vec::new();
    let mut known = Vec::new();
    for (interface, (config, &metrics)) in interfaces.iter().zip(metrics).enumerate() {
        for &(prefix, prefix_len) in &config.addresses {
            // The first interface of a family is the default route.
            let default = !known.contains(&prefix.is_ipv4());
            known.push(prefix.is_ipv4());
            if metrics == RouteMetrics::default() {
                continue;
            }
            routes.push(RouteConfig { prefix, prefix_len, interface, metrics });
            if default {
                routes.push(RouteConfig { prefix, prefix_len: 0, interface, metrics });
            }
        }
    }
    routes
}

/// Captures with the time of day.
fn capture(device: Device, file: File, now: Instant) -> Device {
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let running = now.since(Instant::ZERO);
    let epoch = today.unwrap_or_default().saturating_sub(running);
    let config = device::pcapng::CaptureConfig::default().epoch(epoch);
    device::pcapng::wrap_with(device, file, config).0
}

pub(crate) fn parse(text: &str) -> Result<(IpAddr, u8), BuildError> {
    let bad = || BuildError::Address(text.to_owned());
    let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|&prefix| prefix <= longest).ok_or_else(bad)?;
    Ok((address, prefix))
}

/// Secret and seed, from the system unless a seed is given.
fn secrets(seed: Option<u64>) -> Result<([u8; 32], u64), BuildError> {
    let mut secret = [0; 32];
    match seed {
        Some(seed) => {
            for (index, part) in secret.chunks_exact_mut(8).enumerate() {
                part.copy_from_slice(&(seed ^ index as u64).to_le_bytes());
            }
            Ok((secret, seed))
        }
        None => {
            getrandom::fill(&mut secret).map_err(BuildError::Random)?;
            let seed = getrandom::u64().map_err(BuildError::Random)?;
            Ok((secret, seed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::total_of;

    #[test]
    fn what_the_system_says_of_its_memory() {
        let text = "MemTotal:        2048 kB\nMemFree:         1024 kB\n";
        assert_eq!(total_of(text), Some(2 << 20));
        assert_eq!(total_of("MemFree: 1 kB"), None);
        assert_eq!(total_of("MemTotal: some kB"), None);
    }
}
