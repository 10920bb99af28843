//! The stack: its parts, its construction, and the calls that open sockets.
//!
//! The loop is in `poll.rs`, the frame of each call of the engine in `work.rs`.

pub(crate) mod addresses;
pub(crate) mod backlog;
pub(crate) mod budgets;
pub(crate) mod busy_poll;
pub(crate) mod ending;
pub(crate) mod fast_connect;
pub(crate) mod fast_open;
pub(crate) mod gated;
pub(crate) mod gro;
pub(crate) mod home;
pub(crate) mod interface_health;
pub(crate) mod ip;
pub(crate) mod life;
pub(crate) mod listener;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod orphans;
pub(crate) mod panics;
pub(crate) mod passive_open;
pub(crate) mod path_reports;
pub(crate) mod peer_metrics;
pub(crate) mod poll;
pub(crate) mod prequeue;
pub(crate) mod queues;
pub(crate) mod raw;
pub(crate) mod sending;
pub(crate) mod shutdown;
pub(crate) mod socket;
pub(crate) mod stray_rst;
pub(crate) mod summaries;
pub(crate) mod tcp_input;
pub(crate) mod udp;
pub(crate) mod unhandled;
pub(crate) mod wait;
pub(crate) mod work;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_buf::Pool;
use plimsoll_tcp::{
    Connection, ConnectionError, Context, Counter, Instant, OpenParams, Options, SetOption,
};

use crate::device::Device;
use crate::error::{SocketError, StackError};
use crate::flow::FlowKey;
use crate::flow::is_unicast;
use crate::interfaces::Interfaces;
use crate::interfaces::interface::InterfaceConfig;
use crate::interfaces::route::RouteConfig;
use crate::policies::Policies;
use crate::policies::budget::{BudgetAccount, check_flow};
use crate::policies::secrets::Secrets;
use crate::policies::sysctl::{Settings, SysctlError, SysctlTable};
use crate::pollers::Pollers;
use crate::pollers::coarse_timers::CoarseTimers;
use crate::pollers::waiter::Waiter;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::ListenerInner;
use crate::sockets::endpoint::Way;
use crate::sockets::endpoint::{Endpoint, Origin, Stage};
use crate::sockets::fast_open::default_queue;
use crate::sockets::gate::GateConfig;
use crate::sockets::listening::{Accounts, Scope};
use crate::sockets::summary::SocketSummary;
use crate::stack::listener::{ListenConfig, Listener};
use crate::stack::socket::TcpSocket;
use crate::stack::work::Work;
use crate::sync::socket_lock::{REFUSED, SETTLE};
use crate::tables::Tables;
use crate::tables::connections::InsertError;

/// The settings that decide whether data waits.
const HOLDING: [&str; 8] = [
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_tso_win_divisor",
    "plimsoll.tcp_tso_defer",
    "plimsoll.tcp_tso_tail",
];

/// The configuration of a stack.
#[derive(Default)]
pub struct StackConfig {
    /// The interfaces: devices with their local addresses.
    pub interfaces: Vec<InterfaceConfig>,
    /// Further queues of the interfaces' devices: the interface's position, and the queue as its
    /// own device.
    pub more_queues: Vec<(usize, Device)>,
    /// Number of threads that poll; 0 counts as 1. The queues of a device are distributed over
    /// them.
    pub pollers: usize,
    /// Routes in addition to those that the interfaces' prefixes imply.
    pub routes: Vec<RouteConfig>,
    /// Settings that differ from the defaults, by Linux's names.
    pub sysctls: Vec<(String, String)>,
    /// The secret from which initial sequence numbers, ports, timestamps and table hashes are
    /// derived. Use the system's random numbers, unless a run is to be repeated.
    pub secret: [u8; 32],
    /// Seed of random choices that need not be secret.
    pub seed: u64,
    /// Bytes of memory of the machine, from which the default of `net.ipv4.tcp_mem` is computed as
    /// on Linux. Without it, the default is that of a machine with 16 GiB.
    pub memory: Option<u64>,
    /// An interface whose device fails waits for the next one ([`Stack::replace_device`]):
    /// connections and listeners stay, and packets sent meanwhile are lost. If false, its
    /// connections and listeners end, and the stack ends with its last device.
    pub wait_for_devices: bool,
    /// Delays timers, for comparisons; without it they fire when they are due.
    pub coarse_timers: Option<Arc<dyn CoarseTimers>>,
}

/// The outcome of one [`Stack::poll`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// The poll had work, and there may be more: poll again before sleeping.
    pub worked: bool,
    /// Another thread is polling; this call did nothing.
    pub busy: bool,
    /// The time of the next timer or device event, if there is one. A packet or an application call
    /// may come before.
    pub next: Option<Instant>,
}

/// The memory of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionMemory {
    /// Connections, in any state except TIME-WAIT and LISTEN.
    pub connections: usize,
    /// Bytes of all of them: their own size, the contents of their queues, and their share of the
    /// tables.
    pub bytes: usize,
}

/// Makes the connection of an active open.
pub(crate) type Opener = fn(&Context<'_>, OpenParams) -> Connection;

/// A TCP/IP stack. The crate's documentation describes how it works.
pub struct Stack {
    /// The connections and sockets by their addresses.
    tables: Tables,
    /// Where packets come and go.
    interfaces: Interfaces,
    /// The polling queues.
    pollers: Pollers,
    /// By which rules.
    policies: Policies,
}

impl Stack {
    /// Builds a stack. It does nothing until it is polled.
    ///
    /// # Errors
    /// If the configuration is wrong; the error names the field.
    pub fn new(config: StackConfig) -> Result<Arc<Stack>, StackError> {
        let sysctl = SysctlTable::new(config.memory);
        for (name, value) in &config.sysctls {
            sysctl.set(name, value)?;
        }
        let mut interfaces = Interfaces::build(
            config.interfaces,
            config.more_queues,
            &config.routes,
            config.pollers,
        )?;
        interfaces.wait_for_devices = config.wait_for_devices;
        let pollers = Pollers::build(config.pollers, &interfaces, config.coarse_timers)?;
        let secrets = Secrets::new(config.secret, config.seed);
        let tables = Tables::new(*secrets.table_key());
        let policies = Policies::new(sysctl, secrets, pollers.queue(0).completions().clone());
        Ok(Arc::new(Stack { tables, interfaces, pollers, policies }))
    }

    /// Begins to connect to `remote`. The socket is returned at once, in SYN-SENT.
    ///
    /// `local` may give a local address, a port, both, or (with an unspecified address and port
    /// zero) neither.
    ///
    /// # Errors
    /// If there is no route, the local address is not local or in use, or no port is left. If
    /// `remote` is a link-local address without a scope id and several interfaces have such
    /// addresses.
    pub fn connect(
        self: &Arc<Stack>,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        options: Options,
    ) -> Result<Arc<TcpSocket>, SocketError> {
        let key = self.flow_to(remote, local)?;
        self.connect_by(now, key, options, Connection::connect, |_, _| ())
    }

    /// Opens a connection, and lets `begin` work on it before anything leaves.
    pub(crate) fn connect_by(
        self: &Arc<Stack>,
        now: Instant,
        key: FlowKey,
        options: Options,
        opener: Opener,
        begin: impl FnOnce(&mut Work<'_>, &Arc<Endpoint>),
    ) -> Result<Arc<TcpSocket>, SocketError> {
        options.memory_budget.map_or(Ok(()), check_flow)?;
        let mut work = Work::begin(self, now);
        let opened = work.contain_making(|work| self.open(work, key, options, opener));
        let endpoint = opened.unwrap_or(Err(ConnectionError::Panicked.into()))?;
        work.move_to(endpoint.home());
        work.contain(&endpoint, |work| {
            begin(work, &endpoint);
            work.release(&endpoint, endpoint.own(), true);
        });
        work.finish();
        let interface = endpoint.interface();
        let socket = TcpSocket::new(self.clone(), endpoint);
        // A device that failed meanwhile may have notified the other connections before this one
        // existed.
        let up = self.check_up().and_then(|()| self.check_way(interface));
        up.inspect_err(|_| socket.abort(now))?;
        Ok(socket)
    }

    /// The addresses and ports of a connection from this stack to `remote`. The local port may be
    /// zero.
    pub(crate) fn flow_to(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<FlowKey, SocketError> {
        self.check_up()?;
        if remote.port() == 0 {
            return Err(SocketError::AddrNotAvailable);
        }
        if !is_unicast(remote.ip()) {
            return Err(SocketError::NetworkUnreachable);
        }
        let (own, peer) = self.interfaces.routes().place_both(local, remote)?;
        let (own, peer) = (own.map(|ip| ip.to_canonical()), peer.to_canonical());
        if self.interfaces.routes().is_cut_off(peer) {
            return Err(SocketError::NetworkDown);
        }
        Ok(FlowKey {
            local: self.choose_source(peer, own)?,
            remote: peer,
            local_port: local.map_or(0, |addr| addr.port()),
            remote_port: remote.port(),
        })
    }

    /// Inserts a connection in SYN-SENT; finds a port if `key` has none.
    fn open(
        &self,
        work: &mut Work<'_>,
        key: FlowKey,
        options: Options,
        opener: Opener,
    ) -> Result<Arc<Endpoint>, SocketError> {
        if key.local_port != 0 {
            if self.tables.listeners().has_bound(key.local, key.local_port) {
                return Err(SocketError::AddrInUse);
            }
            return self.try_open(work, key, &options, opener).map_err(|error| {
                work.count_full(error);
                error.into()
            });
        }
        let range = work.settings.ip_local_port_range;
        for port in self.tables.ports().candidates(self.policies.secrets(), &key, range) {
            let key = FlowKey { local_port: port, ..key };
            if self.tables.listeners().has_bound(key.local, port) {
                continue;
            }
            match self.try_open(work, key, &options, opener) {
                Ok(endpoint) => return Ok(endpoint),
                Err(InsertError::Taken) => {}
                Err(full) => {
                    work.count_full(full);
                    return Err(full.into());
                }
            }
        }
        Err(SocketError::AddrNotAvailable)
    }

    fn try_open(
        &self,
        work: &mut Work<'_>,
        key: FlowKey,
        options: &Options,
        opener: Opener,
    ) -> Result<Arc<Endpoint>, InsertError> {
        let reused = {
            let mut table = self.tables.time_wait();
            table.reuse_for_connect(&key, work.now, work.settings.tcp_tw_reuse)?
        };
        if reused.is_some() {
            work.tcp().bump(Counter::TimeWaitRecycled);
        }
        let iss = reused.unwrap_or_else(|| self.policies.secrets().isn(&key, work.now));
        if options.md5_key.is_some() {
            self.policies.use_md5();
        }
        let home = self.pollers.next_home();
        let params = self.open_params(&key, iss, options.clone(), home);
        let interface = self.interfaces.way(self.interfaces.between(key.local, key.remote), home);
        let label = work.flow_label(&key);
        let way = self.way_of(interface, label);
        let cx = work.context_idle();
        self.tables.connections().insert_within(work.most_connections(), key, |id| {
            let conn = opener(&cx, params);
            Endpoint::new(key, id, way, (Origin::default(), Stage::Owned), conn)
        })
    }

    /// The way of packets that leave by `interface`.
    fn way_of(&self, interface: u8, flow_label: u32) -> Way {
        let home = self.interfaces.get(interface).queue();
        Way::new(interface, flow_label, home, self.pollers.completions().clone())
    }

    /// The parameters of a connection with the identity `key`, which the queue `home` works for.
    pub(crate) fn open_params(
        &self,
        key: &FlowKey,
        iss: plimsoll_wire::SeqNum,
        mut options: Options,
        home: u8,
    ) -> OpenParams {
        options.route = self.interfaces.routes().metrics(key.remote);
        options.congestion = options.route.congestion.or(options.congestion);
        let interface = &self.interfaces.get(self.interfaces.between(key.local, key.remote));
        let ip_header_len = if key.local.is_ipv4() { 20 } else { 40 };
        OpenParams {
            local_port: key.local_port,
            remote_port: key.remote_port,
            iss,
            ts_offset: self.policies.secrets().ts_offset(key),
            seed: self.policies.secrets().connection_seed(key),
            mtu: self.known_path(key.remote, interface),
            ip_header_len,
            max_super_segment: interface.max_super_segment(),
            options: self.policies.shared_options().share(options),
            pool: self.pollers.pool(home).clone(),
        }
    }

    /// Begins to listen on `local`; port zero takes a free one.
    ///
    /// # Errors
    /// If the address is not local or in use.
    pub fn listen(
        self: &Arc<Stack>,
        local: SocketAddr,
        backlog: usize,
        options: Options,
    ) -> Result<Arc<Listener>, SocketError> {
        let config = ListenConfig { backlog, options, ..ListenConfig::default() };
        self.listen_at(local, Scope::Bound, &config)
    }

    /// As [`listen`](Self::listen); on `[::]`, IPv4 connections are refused (IPV6_V6ONLY).
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_only_v6(
        self: &Arc<Stack>,
        local: SocketAddr,
        backlog: usize,
        options: Options,
    ) -> Result<Arc<Listener>, SocketError> {
        let config = ListenConfig { backlog, options, ..ListenConfig::default() };
        self.listen_at(local, Scope::OnlyV6, &config)
    }

    /// Begins to listen; with a gate, the listener waits for a decision before it answers.
    pub(crate) fn listen_at(
        self: &Arc<Stack>,
        local: SocketAddr,
        scope: Scope,
        config: &ListenConfig,
    ) -> Result<Arc<Listener>, SocketError> {
        self.check_up()?;
        let ListenConfig { options, gate, .. } = config;
        gate.as_ref().map_or(Ok(()), GateConfig::check)?;
        let routes = self.interfaces.routes();
        let local = SocketAddr::new(routes.place_own(local, None)?, local.port());
        if !local.ip().is_unspecified() && !routes.may_be_ours(local.ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        drop(routes);
        self.check_address(local.ip())?;
        options.memory_budget.map_or(Ok(()), check_flow)?;
        if options.save_syn {
            self.policies.save_syns();
        }
        let settings = self.settings();
        let backlog = config.backlog.min(settings.somaxconn as usize);
        let make = |port| {
            let local = SocketAddr::new(local.ip(), port);
            let completions = self.pollers.queue(0).completions().clone();
            let accounts = Accounts {
                budget: Arc::new(BudgetAccount::new(completions)),
                half_open: self.policies.half_open().clone(),
            };
            let inner = ListenerInner::new(local, scope, backlog, options.clone(), accounts);
            let inner = match gate {
                Some(gate) => inner.gated(*gate, self.tables.listeners().attempts().clone()),
                None => inner,
            };
            let inner = if config.reuse_port { inner.sharing_port() } else { inner };
            let early = default_queue(settings.tcp_fastopen, backlog);
            inner.fast_open(|queue| queue.set_limit(early));
            Arc::new(inner)
        };
        if local.port() != 0 || scope == Scope::AnyAddress {
            let inner = self.tables.listeners().insert(make(local.port()))?;
            return self.listening(inner);
        }
        let any = FlowKey { local: local.ip(), remote: local.ip(), local_port: 0, remote_port: 0 };
        for port in self.tables.ports().candidates(
            self.policies.secrets(),
            &any,
            settings.ip_local_port_range,
        ) {
            if self.tables.connections().uses_port(port) {
                continue;
            }
            if let Ok(inner) = self.tables.listeners().insert_alone(make(port)) {
                return self.listening(inner);
            }
        }
        Err(SocketError::AddrInUse)
    }

    /// Ends a listener and resets its connections that were not accepted.
    pub(crate) fn close_listener(&self, now: Instant, inner: &Arc<ListenerInner>) {
        if !self.tables.listeners().remove(inner) {
            return;
        }
        let mut work = Work::begin(self, now);
        let mut children = inner.end(SocketError::Invalid("the listener is closed"), work.wakers());
        children.extend(self.tables.connections().children_of(inner));
        for child in children {
            work.leave(&child, REFUSED);
        }
        work.finish();
    }

    /// Whether packets can flow.
    pub(crate) fn check_up(&self) -> Result<(), SocketError> {
        match self.pollers.ended() {
            None => Ok(()),
            Some(_) => Err(SocketError::NetworkDown),
        }
    }

    /// Our address for packets to `remote`.
    fn choose_source(&self, remote: IpAddr, wanted: Option<IpAddr>) -> Result<IpAddr, SocketError> {
        match wanted.filter(|ip| !ip.is_unspecified()) {
            Some(ip) if ip.is_ipv4() != remote.is_ipv4() => {
                Err(SocketError::Invalid("the two addresses are of different families"))
            }
            Some(ip) if !self.interfaces.routes().may_be_ours(ip) => {
                Err(SocketError::AddrNotAvailable)
            }
            Some(ip) => Ok(ip),
            None if self.interfaces.routes().is_ours(remote) => Ok(remote),
            None => {
                self.interfaces.routes().source_for(remote).ok_or(SocketError::NetworkUnreachable)
            }
        }
    }

    /// The settings, to read and change.
    pub fn sysctl(&self) -> &SysctlTable {
        self.policies.sysctl()
    }

    /// Changes a setting. If it is one that may hold data back, every connection is settled again,
    /// so that no data waits for a condition of the old value.
    ///
    /// # Errors
    /// If there is no such setting, or it cannot have that value.
    pub fn set_sysctl(&self, now: Instant, name: &str, value: &str) -> Result<(), SysctlError> {
        self.policies.sysctl().set(name, value)?;
        if HOLDING.contains(&name) {
            self.settle_all(now);
        }
        Ok(())
    }

    /// Settles every connection again, after a change of a setting that may have held data back.
    pub(crate) fn settle_all(&self, now: Instant) {
        for endpoint in self.tables.connections().all() {
            let mut work = Work::begin_at(self, now, endpoint.home());
            work.leave(&endpoint, SETTLE);
            work.finish();
        }
    }

    /// All counters with their names, in `nstat`'s order.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.pollers.snmp().all()
    }

    /// One counter by its name, or `None` if there is no such counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.pollers.snmp().by_name(name)
    }

    /// The buffer pool of the first queue; every queue has its own.
    pub fn pool(&self) -> &Pool {
        self.pollers.pool(0)
    }

    /// The handle on which the poller sleeps.
    pub fn wait_handle(&self) -> &Waiter {
        self.pollers.queue(0).waiter()
    }

    /// The local addresses.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.interfaces.addresses()
    }

    /// All sockets: listeners first, then connections, then TIME-WAIT.
    pub fn sockets(&self) -> Vec<SocketSummary> {
        let settings = self.settings();
        let mut list = self.tables.listeners().summaries();
        for endpoint in self.tables.connections().all() {
            list.push(self.summary(&endpoint, &settings.tcp));
        }
        list.extend(self.tables.time_wait().summaries());
        list
    }

    /// A listener that is in the table. As for a connection, a device may have gone meanwhile.
    fn listening(
        self: &Arc<Stack>,
        inner: Arc<ListenerInner>,
    ) -> Result<Arc<Listener>, SocketError> {
        let ip = inner.local().ip();
        let listener = Listener::new(self.clone(), inner);
        self.check_up()?;
        self.check_address(ip)?;
        Ok(listener)
    }

    /// Memory that the open connections use now.
    pub fn connection_memory(&self) -> ConnectionMemory {
        let all = self.tables.connections().all();
        let own: usize = all.iter().map(|endpoint| self.bytes_of(endpoint)).sum();
        let shared = self.tables.connections().memory_bytes() + self.pollers.wheel_bytes();
        ConnectionMemory { connections: all.len(), bytes: own + shared }
    }

    /// Entries in TIME-WAIT.
    pub fn time_wait_count(&self) -> usize {
        self.tables.time_wait().len()
    }

    /// The settings as they are now, as the calling thread has them.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.policies.sysctl().cached(self.pollers.snmp().shard().settings())
    }

    /// Counts at IP, for parts without a [`Work`].
    pub(crate) fn count(&self, counter: IpCounter) {
        self.pollers.snmp().shard().bump(counter);
    }

    /// Changes an option on every open connection (used by tests and by tools).
    pub fn set_option_everywhere(&self, now: Instant, option: &SetOption) {
        for endpoint in self.tables.connections().all() {
            self.work_on(now, &endpoint, |inner, cx| inner.conn.set_option(cx, option.clone()));
        }
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
