//! Settings under Linux's names, read and changed at run time.
//!
//! The values are one immutable snapshot; a change makes a new one and swaps it in. Readers on the
//! hot path have a copy per thread ([`SettingsCache`]), which they renew when a count of changes
//! has moved: reading costs one load.

mod entries;
mod value;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use plimsoll_tcp::{Config, Duration};
use portable_atomic::AtomicU64;

use crate::limits::MAX_CONNECTIONS;
use crate::policies::memory::QUANTUM;
use crate::qdisc::Kind;
use crate::sockets::backlog::Rule as BacklogRule;
use crate::sockets::fast_open::FastOpenKeys;
use crate::sync::lock;

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The engine's settings.
    pub(crate) tcp: Config,
    /// First and last ephemeral port.
    pub(crate) ip_local_port_range: (u16, u16),
    /// TTL of IPv4 packets.
    pub(crate) ip_default_ttl: u8,
    /// Hop limit of IPv6 packets.
    pub(crate) hop_limit: u8,
    /// Upper bound of a listener's backlog.
    pub(crate) somaxconn: u32,
    /// The queueing discipline of interfaces that were given no other. Its parameters are taken
    /// from the interface.
    pub(crate) default_qdisc: Kind,
    /// Connections; a further one is refused.
    pub(crate) max_connections: u32,
    /// Half-open connections; a further one is refused, or gets a cookie.
    pub(crate) max_half_open: u32,
    /// Connections without an application; a further one is reset.
    pub(crate) tcp_max_orphans: u32,
    /// Entries in TIME-WAIT; a further one ends at once.
    pub(crate) tcp_max_tw_buckets: u32,
    /// Whether a connect may take the place of a TIME-WAIT: never, always, only on loopback.
    pub(crate) tcp_tw_reuse: u8,
    /// Fast Open: 1 connect with it, 2 listen with it, 4 connect without cookies; further bits for
    /// listeners.
    pub(crate) tcp_fastopen: u32,
    /// SYN cookies: 0 never, 1 while the SYN queue is full, 2 always.
    pub(crate) tcp_syncookies: u8,
    /// The keys of Fast Open cookies; without any, one that follows from the secret.
    pub(crate) tcp_fastopen_key: Option<FastOpenKeys>,
    /// The first pause of Fast Open after something swallowed it; zero: none.
    pub(crate) tcp_fastopen_blackhole_timeout: Duration,
    /// Counts how often that was written, since writing it ends the pause.
    pub(crate) tcp_fastopen_blackhole_generation: u32,
    /// The poller processes every packet and then wakes the thread that waits in a read. Otherwise
    /// that thread processes the packets itself.
    pub(crate) tcp_low_latency: bool,
    /// A pure ACK enters an empty prequeue, too.
    pub(crate) prequeue_pure_ack: bool,
    /// How much a backlog may hold.
    pub(crate) tcp_backlog_limit: BacklogRule,
    /// Coalesce segments of one flow that arrive in one batch.
    pub(crate) gro: bool,
    /// Microseconds that a blocking read polls the devices before it sleeps.
    pub(crate) busy_read: u32,
    /// Memory of all connections, in pages of 4096 bytes: below the first there is no pressure,
    /// above the second there is, the third is the limit.
    pub(crate) tcp_mem: [u64; 3],
    /// Memory of the receive queues of all UDP sockets, in pages; the third is the limit.
    pub(crate) udp_mem: [u64; 3],
    /// SO_RCVBUF of a new UDP socket, in bytes.
    pub(crate) rmem_default: u32,
    /// The most that it may be set to.
    pub(crate) rmem_max: u32,
    /// SO_SNDBUF of a new UDP socket, in bytes.
    pub(crate) wmem_default: u32,
    /// The most that it may be set to.
    pub(crate) wmem_max: u32,
    /// Answer no echo requests.
    pub(crate) icmp_echo_ignore_all: bool,
    /// Least time between two limited ICMP messages to one host, in the long run; zero is none.
    pub(crate) icmp_ratelimit: Duration,
    /// The same for ICMPv6.
    pub(crate) icmp6_ratelimit: Duration,
    /// The types of ICMP messages that are limited, as a set of bits.
    pub(crate) icmp_ratemask: u32,
    /// The hosts of any address are one hop behind the stack.
    pub(crate) any_address_hop: bool,
    /// Echo requests to addresses that are not ours are answered.
    pub(crate) icmp_echo_any: bool,
    /// ICMP errors (and stray resets) per second, over all peers.
    pub(crate) icmp_msgs_per_sec: u32,
    /// How many of them may come in one burst.
    pub(crate) icmp_msgs_burst: u32,
    /// The least path MTU that is accepted (IPv4).
    pub(crate) min_pmtu: u16,
    /// How long a reassembly waits for its fragments.
    pub(crate) ipfrag_time: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tcp: Config::default(),
            ip_local_port_range: (32_768, 60_999),
            ip_default_ttl: 64,
            hop_limit: 64,
            somaxconn: 4096,
            default_qdisc: Kind::PFIFO,
            max_connections: MAX_CONNECTIONS as u32,
            max_half_open: MAX_CONNECTIONS as u32,
            tcp_max_orphans: 16_384,
            tcp_max_tw_buckets: 65_536,
            tcp_tw_reuse: 1,
            tcp_fastopen: 1,
            tcp_syncookies: 1,
            tcp_fastopen_key: None,
            tcp_fastopen_blackhole_timeout: Duration::ZERO,
            tcp_fastopen_blackhole_generation: 0,
            tcp_low_latency: true,
            prequeue_pure_ack: false,
            tcp_backlog_limit: BacklogRule::Twice,
            gro: true,
            busy_read: 0,
            tcp_mem: [196_608, 262_144, 393_216],
            udp_mem: [393_216, 524_288, 786_432],
            rmem_default: 212_992,
            rmem_max: 4_194_304,
            wmem_default: 212_992,
            wmem_max: 4_194_304,
            icmp_echo_ignore_all: false,
            icmp_ratelimit: Duration::from_secs(1),
            icmp6_ratelimit: Duration::from_secs(1),
            icmp_ratemask: 6168,
            any_address_hop: true,
            icmp_echo_any: true,
            icmp_msgs_per_sec: 10_000,
            icmp_msgs_burst: 50,
            min_pmtu: 552,
            ipfrag_time: Duration::from_secs(30),
        }
    }
}

/// The reason why a setting was not read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// There is no setting of that name.
    #[error("{name}: no such setting{}", hint(.suggestion))]
    Unknown {
        /// The requested name.
        name: String,
        /// A name that looks like it.
        suggestion: Option<&'static str>,
    },
    /// The value is not allowed.
    #[error("{name}: `{value}` is not allowed; give {allowed}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The allowed values.
        allowed: String,
    },
}

/// The description of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SysctlInfo {
    /// The name.
    pub name: &'static str,
    /// Its effect, in one sentence with its unit.
    pub doc: &'static str,
    /// The value that a new stack has, as text.
    pub default: String,
    /// The allowed values, in words.
    pub allowed: String,
    /// The socket option that overrides it; empty if there is none.
    pub socket: &'static str,
    /// The difference from Linux's setting of that name, or Linux's equivalent of a setting that
    /// only this stack has; empty if there is none.
    pub linux: &'static str,
}

impl SysctlInfo {
    /// All settings, by name.
    pub fn all() -> Vec<SysctlInfo> {
        let mut all: Vec<SysctlInfo> = entries::ENTRIES.iter().map(SysctlInfo::of).collect();
        all.sort_unstable_by_key(|info| info.name);
        all
    }

    fn of(entry: &entries::Entry) -> SysctlInfo {
        let mut settings = Settings::default();
        let default = (entry.get)(&settings);
        // No setting accepts this value, and the refusal lists the allowed ones.
        let allowed = (entry.set)(&mut settings, "?").err().unwrap_or_default();
        let (socket, linux) = (entry.socket, entry.linux);
        SysctlInfo { name: entry.name, doc: entry.doc, default, allowed, socket, linux }
    }
}

fn hint(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// `tcp_mem` of a machine with `bytes` of memory, as Linux's `tcp_init_mem` computes it: pressure
/// begins at a sixteenth of the pages, the limit is one and a half of that.
fn tcp_mem_of(bytes: u64) -> [u64; 3] {
    let begins = (bytes / QUANTUM as u64 / 16).max(128);
    let ends = begins / 4 * 3;
    [ends, begins, 2 * ends]
}

/// One thread's copy of the settings, and the count of changes when it was taken.
#[derive(Debug, Default)]
pub(crate) struct SettingsCache(RefCell<Option<(u64, Rc<Settings>)>>);

/// All settings of a stack. The lock is a leaf.
pub struct SysctlTable {
    current: Mutex<Arc<Settings>>,
    /// `tcp_mem` of this machine.
    default_tcp_mem: [u64; 3],
    /// Counts the changes; written under the lock.
    changes: AtomicU64,
}

impl SysctlTable {
    /// The defaults of a machine with `memory` bytes, if that is known.
    pub(crate) fn new(memory: Option<u64>) -> SysctlTable {
        let mut settings = Settings::default();
        if let Some(bytes) = memory {
            settings.tcp_mem = tcp_mem_of(bytes);
            // UDP may use twice as much as TCP.
            settings.udp_mem = settings.tcp_mem.map(|pages| 2 * pages);
        }
        let default_tcp_mem = settings.tcp_mem;
        let current = Mutex::new(Arc::new(settings));
        SysctlTable { current, default_tcp_mem, changes: AtomicU64::new(0) }
    }

    /// The numbers of `tcp_mem` that a new stack on this machine has, in pages.
    pub(crate) fn default_tcp_mem(&self) -> [u64; 3] {
        self.default_tcp_mem
    }

    /// The settings as they are now.
    pub(crate) fn snapshot(&self) -> Arc<Settings> {
        lock(&self.current).clone()
    }

    /// The present settings, from `cache` if nothing has changed since it was filled.
    #[inline]
    pub(crate) fn cached(&self, cache: &SettingsCache) -> Rc<Settings> {
        // Read before the settings are: those in the cache are at least as new as their count.
        let changes = self.changes.load(Ordering::Acquire);
        let mut cache = cache.0.borrow_mut();
        match &*cache {
            Some((seen, settings)) if *seen == changes => settings.clone(),
            _ => {
                let settings = Rc::new(Settings::clone(&self.snapshot()));
                *cache = Some((changes, settings.clone()));
                settings
            }
        }
    }

    /// The value of the setting `name` as text, as `sysctl` prints it.
    ///
    /// # Errors
    /// If there is no such setting.
    pub fn get(&self, name: &str) -> Result<String, SysctlError> {
        Ok((entries::find(name)?.get)(&self.snapshot()))
    }

    /// Sets `name` to `value`. It takes effect with the engine's next call, for open connections as
    /// well, unless the description says that it is for new ones.
    ///
    /// # Errors
    /// If there is no such setting or it does not allow the value; nothing has changed then.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        let entry = entries::find(name)?;
        let mut current = lock(&self.current);
        let mut settings = Settings::clone(&current);
        (entry.set)(&mut settings, value.trim()).map_err(|allowed| SysctlError::Value {
            name: entry.name,
            value: value.to_owned(),
            allowed,
        })?;
        self.publish(&mut current, settings);
        Ok(())
    }

    /// Whether a stack would take `value` for the setting `name`, without one.
    ///
    /// # Errors
    /// If there is no such setting or it does not allow the value.
    pub fn check(name: &str, value: &str) -> Result<(), SysctlError> {
        SysctlTable::new(None).set(name, value)
    }

    /// Changes settings to values that are allowed, all at once.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut current = lock(&self.current);
        let mut settings = Settings::clone(&current);
        change(&mut settings);
        self.publish(&mut current, settings);
    }

    fn publish(&self, current: &mut Arc<Settings>, settings: Settings) {
        *current = Arc::new(settings);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// All settings with their values, by name.
    pub fn list(&self) -> Vec<(&'static str, String)> {
        let settings = self.snapshot();
        let mut list: Vec<_> =
            entries::ENTRIES.iter().map(|entry| (entry.name, (entry.get)(&settings))).collect();
        list.sort_unstable();
        list
    }

    /// The effect of the setting `name`, in one sentence.
    ///
    /// # Errors
    /// If there is no such setting.
    pub fn describe(&self, name: &str) -> Result<&'static str, SysctlError> {
        Ok(entries::find(name)?.doc)
    }
}

#[cfg(test)]
mod tests;
