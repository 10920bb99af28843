//! The policies of a stack: settings, memory, learnt properties of peers and paths, secrets, limits
//! on answers to strangers.
//!
//! Settings are read as a snapshot without a lock. The caches have their own locks, which are
//! leaves: a thread that holds one takes no other.

pub(crate) mod budget;
pub(crate) mod icmp_limits;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod pmtu;
pub(crate) mod proven_peers;
pub(crate) mod secrets;
pub(crate) mod shared_options;
pub(crate) mod syn_cookie;
pub(crate) mod sysctl;
pub(crate) mod udp_memory;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use plimsoll_tcp::{Instant, LearntMtu};

use crate::policies::icmp_limits::IcmpLimits;
use crate::policies::memory::MemoryAccount;
use crate::policies::metrics::Metrics;
use crate::policies::pmtu::PmtuCache;
use crate::policies::proven_peers::ProvenPeers;
use crate::policies::secrets::Secrets;
use crate::policies::shared_options::SharedOptions;
use crate::policies::sysctl::SysctlTable;
use crate::policies::udp_memory::UdpMemory;
use crate::pollers::completion::Completions;
use crate::sync::lock;

/// The rules of a stack.
pub(crate) struct Policies {
    sysctl: SysctlTable,
    secrets: Secrets,
    memory: MemoryAccount,
    pmtu: Mutex<PmtuCache>,
    metrics: Mutex<Metrics>,
    proven_peers: ProvenPeers,
    icmp_limits: IcmpLimits,
    shared_options: SharedOptions,
    /// Connections of all listeners whose handshake is not complete, and attempts at gates.
    half_open: Arc<AtomicUsize>,
    /// A key of TCP_MD5SIG was set on some socket.
    md5_in_use: AtomicBool,
    /// Some listener keeps the headers of SYNs.
    saves_syns: AtomicBool,
    /// A path MTU was learnt.
    pmtu_in_use: AtomicBool,
    udp_memory: UdpMemory,
    /// Datagrams that have left in fragments.
    fragmented: AtomicU32,
}

impl Policies {
    /// The policies of a new stack. `completions` gets the connections that waited for memory.
    pub(crate) fn new(
        sysctl: SysctlTable,
        secrets: Secrets,
        completions: Arc<Completions>,
    ) -> Policies {
        let proven_peers = ProvenPeers::new(*secrets.table_key());
        Policies {
            sysctl,
            secrets,
            memory: MemoryAccount::new(completions),
            pmtu: Mutex::default(),
            metrics: Mutex::default(),
            proven_peers,
            icmp_limits: IcmpLimits::default(),
            shared_options: SharedOptions::default(),
            half_open: Arc::default(),
            md5_in_use: AtomicBool::new(false),
            saves_syns: AtomicBool::new(false),
            pmtu_in_use: AtomicBool::new(false),
            udp_memory: UdpMemory::default(),
            fragmented: AtomicU32::new(0),
        }
    }

    /// The settings.
    pub(crate) fn sysctl(&self) -> &SysctlTable {
        &self.sysctl
    }

    /// The secrets of sequence numbers, ports, cookies and hashes.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Options that many connections have in common.
    pub(crate) fn shared_options(&self) -> &SharedOptions {
        &self.shared_options
    }

    /// The memory account of all connections' queues.
    pub(crate) fn memory(&self) -> &MemoryAccount {
        &self.memory
    }

    /// The memory account of all UDP sockets' receive queues.
    pub(crate) fn udp_memory(&self) -> &UdpMemory {
        &self.udp_memory
    }

    /// The identification of the fragments of one more datagram from `src` to `dst`. Other hosts
    /// cannot predict it, and it repeats as late as possible.
    pub(crate) fn fragment_ident(&self, src: IpAddr, dst: IpAddr) -> u32 {
        let count = self.fragmented.fetch_add(1, Ordering::Relaxed);
        self.secrets.fragment_ident(src, dst).wrapping_add(count)
    }

    /// The learnt path MTU to `remote`, if it is still valid. The lock is not taken until one was
    /// learnt.
    pub(crate) fn learnt_mtu(&self, remote: IpAddr, now: Instant) -> Option<LearntMtu> {
        if self.pmtu_in_use.load(Ordering::Relaxed) { self.pmtu().get(remote, now) } else { None }
    }

    /// The cache of learnt path MTUs, to add one.
    pub(crate) fn learn_mtu(&self) -> MutexGuard<'_, PmtuCache> {
        self.pmtu_in_use.store(true, Ordering::Relaxed);
        self.pmtu()
    }

    fn pmtu(&self) -> MutexGuard<'_, PmtuCache> {
        lock(&self.pmtu)
    }

    /// The metrics of peers.
    pub(crate) fn metrics(&self) -> MutexGuard<'_, Metrics> {
        lock(&self.metrics)
    }

    /// Peers with a proven address.
    pub(crate) fn proven_peers(&self) -> &ProvenPeers {
        &self.proven_peers
    }

    /// How often strangers are answered.
    pub(crate) fn icmp_limits(&self) -> &IcmpLimits {
        &self.icmp_limits
    }

    /// How many connections of all listeners are half open, attempts at gates included. Listeners
    /// keep it.
    pub(crate) fn half_open(&self) -> &Arc<AtomicUsize> {
        &self.half_open
    }

    /// Some listener keeps the headers of SYNs from now on.
    pub(crate) fn save_syns(&self) {
        self.saves_syns.store(true, Ordering::Relaxed);
    }

    /// Whether some listener keeps, or has kept, the headers of SYNs.
    pub(crate) fn saves_syns(&self) -> bool {
        self.saves_syns.load(Ordering::Relaxed)
    }

    /// A key of TCP_MD5SIG is set on some socket from now on.
    pub(crate) fn use_md5(&self) {
        self.md5_in_use.store(true, Ordering::Relaxed);
    }

    /// Whether a key of TCP_MD5SIG was set on some socket.
    pub(crate) fn md5_in_use(&self) -> bool {
        self.md5_in_use.load(Ordering::Relaxed)
    }
}
