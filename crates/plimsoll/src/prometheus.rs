//! Figures of stacks for [Prometheus](https://prometheus.io), in the OpenMetrics text format.
//!
//! [`StackCollector`] is registered in a registry of the crate [`prometheus_client`] next to the
//! program's own metrics, and reads the stack whenever the registry is encoded; [`page`] does both
//! for a program that has no other metrics. Nothing is counted for it in between.
//!
//! # Names
//!
//! They are stable: one that changes is a change that breaks programs.
//!
//! A counter of [`CounterInfo`] is `plimsoll_`, the name that `nstat` prints in snake case, and
//! `_total`: `TcpOutSegs` is `plimsoll_tcp_out_segs_total`. Octets are called bytes
//! (`plimsoll_ip_ext_in_bytes_total`), and microseconds are seconds
//! (`plimsoll_busy_poll_seconds_total`). The text of help begins with the name that `nstat` has.
//!
//! The others, with their labels:
//!
//! - `plimsoll_connections` (`state`): connections in each state, by the names of `ss`;
//!   `plimsoll_orphans`: those that no application holds;
//! - `plimsoll_memory_bytes`, `plimsoll_memory_peak_bytes`, `plimsoll_memory_pooled_bytes`,
//!   `plimsoll_memory_limit_bytes`: what queues bind, the most that it was, free buffers, the limit
//!   of `net.ipv4.tcp_mem`; `plimsoll_memory_pressure`: 1 while memory is short;
//! - `plimsoll_udp_sockets`, `plimsoll_udp_flows`: UDP sockets, and those among them that are flows
//!   to any address; `plimsoll_udp_memory_bytes`, `plimsoll_udp_memory_limit_bytes`: what their
//!   receive queues hold, and the limit of `net.ipv4.udp_mem`;
//! - `plimsoll_accept_queue`, `plimsoll_accept_queue_limit` (`listener`): connections that wait to
//!   be accepted, and how many may;
//! - `plimsoll_interface_up`, `plimsoll_interface_mtu_bytes` (`interface`, `index`): whether it
//!   works, and its MTU;
//! - `plimsoll_interface_transmit_packets_total`, the same with `bytes`, `wire_segments`,
//!   `dropped` and `errors`, and all of these with `receive` (`interface`, `index`): what the
//!   halves of the device have counted; a super-segment is one packet;
//! - `plimsoll_qdisc_packets_total`, `plimsoll_qdisc_dropped_total`, `plimsoll_qdisc_backlog`,
//!   `plimsoll_qdisc_backlog_bytes` (`interface`, `index`, `kind`): packets given out and refused
//!   by the queueing discipline, and what it holds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use plimsoll_stack::{
    CounterInfo, CounterValue, InterfaceMetrics, ListenerMetrics, Metrics, Stack as Core,
    UdpMetrics,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::stack::Stack;

/// The media type of [`page`], for the header `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures of one stack as a page for Prometheus to fetch.
///
/// ```
/// let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// let page = plimsoll::prometheus::page(&stack);
/// assert!(page.contains("\nplimsoll_connections{state=\"established\"} 0\n"));
/// assert!(page.contains("\nplimsoll_tcp_out_segs_total 0\n"));
/// assert!(page.ends_with("# EOF\n"));
/// # Ok::<(), plimsoll::BuildError>(())
/// ```
pub fn page(stack: &Stack) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StackCollector::new(stack)));
    let mut page = String::new();
    // Only the writer could fail, and a string takes everything.
    let _ = prometheus_client::encoding::text::encode(&mut page, &registry);
    page
}

/// Reports the figures of a stack to a registry of [`prometheus_client`]. It does not keep the
/// stack alive; once the stack's last handle and socket are dropped, it reports nothing. Of several
/// stacks in one registry each needs a label:
///
/// ```
/// use plimsoll::prometheus::StackCollector;
/// use prometheus_client::registry::Registry;
///
/// let [inner, outer] =
///     [(); 2].map(|()| plimsoll::Stack::builder().loopback_only().build().expect("it can be"));
/// let mut registry = Registry::default();
/// for (name, stack) in [("inner", &inner), ("outer", &outer)] {
///     registry
///         .sub_registry_with_label(("stack".into(), name.into()))
///         .register_collector(Box::new(StackCollector::new(stack)));
/// }
/// # let mut page = String::new();
/// # prometheus_client::encoding::text::encode(&mut page, &registry)?;
/// # assert!(page.contains("plimsoll_orphans{stack=\"outer\"} 0"), "{page}");
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Debug)]
pub struct StackCollector {
    core: Weak<Core>,
    /// The names of counters and their texts of help, by the names of `nstat`.
    names: BTreeMap<&'static str, Name>,
}

impl StackCollector {
    /// For `stack`.
    pub fn new(stack: &Stack) -> StackCollector {
        let names = CounterInfo::all().iter().map(|info| (info.name, Name::of(info))).collect();
        StackCollector { core: Arc::downgrade(stack.core()), names }
    }
}

impl Collector for StackCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        let metrics = core.metrics();
        for counter in &metrics.counters {
            if let Some(name) = self.names.get(counter.name) {
                name.encode(counter, &mut encoder)?;
            }
        }
        let mut page = Page { encoder };
        page.connections(&metrics)?;
        page.udp(&metrics.udp)?;
        page.listeners(&metrics.listeners)?;
        page.interfaces(&metrics.interfaces)?;
        page.qdiscs(&metrics.interfaces)
    }
}

/// A counter's name in the exposition.
#[derive(Debug)]
struct Name {
    /// Without the unit and `_total`.
    stem: String,
    unit: Option<Unit>,
    help: String,
}

impl Name {
    fn of(info: &CounterInfo) -> Name {
        let full = snake_case(info.name.trim_start_matches("plimsoll."));
        let (stem, unit) = if let Some(stem) = full.strip_suffix("_octets") {
            (stem, Some(Unit::Bytes))
        } else if let Some(stem) = full.strip_suffix("_micros") {
            (stem, Some(Unit::Seconds))
        } else {
            (full.as_str(), None)
        };
        let help = format!("{}: {}", info.name, info.doc);
        Name { stem: format!("plimsoll_{stem}"), unit, help }
    }

    fn encode(&self, counter: &CounterValue, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (unit, kind) = (self.unit.as_ref(), MetricType::Counter);
        let metric = encoder.encode_descriptor(&self.stem, &self.help, unit, kind)?;
        match self.unit {
            Some(Unit::Seconds) => ConstCounter::new(counter.value as f64 / 1e6).encode(metric),
            _ => ConstCounter::new(counter.value).encode(metric),
        }
    }
}

/// A name of `nstat` in snake case. A run of capitals is one word, with an `s` behind it too.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 8);
    for (at, &letter) in letters.iter().enumerate() {
        let capital = |at: usize| letters.get(at).is_some_and(char::is_ascii_uppercase);
        let before_capital = at > 0 && capital(at - 1);
        let plural = letters.get(at + 1) == Some(&'s')
            && !letters.get(at + 2).is_some_and(char::is_ascii_lowercase);
        let begins_word = letters.get(at + 1).is_some_and(char::is_ascii_lowercase) && !plural;
        if at > 0 && capital(at) && (!before_capital || begins_word) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Where figures go that are no counters of `nstat`.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// Labels and a value of each member of a family.
type Family<'a, const LABELS: usize> = Vec<([(&'static str, String); LABELS], u64)>;

impl Page<'_> {
    fn gauge(
        &mut self,
        (name, help): (&str, &str),
        unit: Option<Unit>,
        value: usize,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        ConstGauge::new(value as u64).encode(metric)
    }

    fn gauges<const LABELS: usize>(
        &mut self,
        (name, help): (&str, &str),
        unit: Option<Unit>,
        family: Family<'_, LABELS>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in family {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters<const LABELS: usize>(
        &mut self,
        (name, help): (&str, &str),
        unit: Option<Unit>,
        family: Family<'_, LABELS>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in family {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn connections(&mut self, metrics: &Metrics) -> fmt::Result {
        let states = metrics.connections.by_state();
        let states = states.map(|(state, count)| ([("state", state.to_owned())], count));
        self.gauges(("plimsoll_connections", "Connections in each state."), None, states.into())?;
        let orphans = ("plimsoll_orphans", "Connections that no application holds.");
        self.gauge(orphans, None, metrics.connections.orphans as usize)?;
        let memory = &metrics.memory;
        let bytes = [
            (("plimsoll_memory", "Memory that the queues of all connections bind."), memory.bytes),
            (("plimsoll_memory_peak", "The most memory that queues have bound."), memory.peak),
            (("plimsoll_memory_pooled", "Free buffers that are kept."), memory.pooled),
            (("plimsoll_memory_limit", "The limit of net.ipv4.tcp_mem."), memory.thresholds[2]),
        ];
        for (name, value) in bytes {
            self.gauge(name, Some(Unit::Bytes), value)?;
        }
        let pressure = ("plimsoll_memory_pressure", "Whether memory is short.");
        self.gauge(pressure, None, usize::from(memory.pressure))
    }

    fn udp(&mut self, udp: &UdpMetrics) -> fmt::Result {
        self.gauge(("plimsoll_udp_sockets", "UDP sockets."), None, udp.sockets)?;
        self.gauge(("plimsoll_udp_flows", "UDP flows to any address."), None, udp.flows)?;
        let name = ("plimsoll_udp_memory", "What the receive queues of UDP sockets hold.");
        self.gauge(name, Some(Unit::Bytes), udp.memory.bytes)?;
        let name = ("plimsoll_udp_memory_limit", "The limit of net.ipv4.udp_mem.");
        self.gauge(name, Some(Unit::Bytes), udp.memory.limit)
    }

    fn listeners(&mut self, listeners: &[ListenerMetrics]) -> fmt::Result {
        // Several listeners may have one address, but a label set may appear only once.
        let mut by_address = BTreeMap::new();
        for listener in listeners {
            let (queue, limit) = by_address.entry(listener.local).or_insert((0, 0));
            *queue += listener.accept_queue as u64;
            *limit += listener.backlog as u64;
        }
        let family = |value: fn(&(u64, u64)) -> u64| -> Family<'_, 1> {
            let of = by_address.iter();
            of.map(|(at, both)| ([("listener", at.to_string())], value(both))).collect()
        };
        let name = ("plimsoll_accept_queue", "Connections that wait to be accepted.");
        self.gauges(name, None, family(|both| both.0))?;
        let name = ("plimsoll_accept_queue_limit", "Connections that may wait to be accepted.");
        self.gauges(name, None, family(|both| both.1))
    }

    fn interfaces(&mut self, interfaces: &[InterfaceMetrics]) -> fmt::Result {
        let family = |value: &dyn Fn(&InterfaceMetrics) -> u64| -> Family<'_, 2> {
            let of = interfaces.iter().enumerate();
            of.map(|(index, each)| (place(index, each), value(each))).collect()
        };
        let up = ("plimsoll_interface_up", "Whether the interface works.");
        self.gauges(up, None, family(&|each| u64::from(each.up)))?;
        let mtu = ("plimsoll_interface_mtu", "The longest IP packet.");
        self.gauges(mtu, Some(Unit::Bytes), family(&|each| u64::from(each.mtu)))?;
        for (half, did) in [("transmit", "sent"), ("receive", "received")] {
            let stats =
                |each: &InterfaceMetrics| if half == "transmit" { each.tx } else { each.rx };
            let stem = format!("plimsoll_interface_{half}");
            let help = format!("IP packets {did}; a super-segment is one.");
            let name = format!("{stem}_packets");
            self.counters((&name, &help), None, family(&|each| stats(each).packets))?;
            let help = format!("Bytes of IP packets {did}.");
            self.counters((&stem, &help), Some(Unit::Bytes), family(&|each| stats(each).bytes))?;
            let (name, help) = (format!("{stem}_wire_segments"), format!("Wire segments {did}."));
            self.counters((&name, &help), None, family(&|each| stats(each).wire_segments))?;
            let name = format!("{stem}_dropped");
            let help = "Packets dropped for lack of room, or on purpose.";
            self.counters((&name, help), None, family(&|each| stats(each).dropped))?;
            let (name, help) = (format!("{stem}_errors"), "Packets that the device refused.");
            self.counters((&name, help), None, family(&|each| stats(each).errors))?;
        }
        Ok(())
    }

    fn qdiscs(&mut self, interfaces: &[InterfaceMetrics]) -> fmt::Result {
        let family = |value: fn(&InterfaceMetrics) -> u64| -> Family<'_, 3> {
            let of = interfaces.iter().enumerate();
            of.map(|(index, each)| {
                let [name, index] = place(index, each);
                ([name, index, ("kind", each.qdisc.name().to_owned())], value(each))
            })
            .collect()
        };
        let name = ("plimsoll_qdisc_packets", "Packets that the queueing discipline gave out.");
        self.counters(name, None, family(|each| each.qdisc_stats.dequeued))?;
        let name = ("plimsoll_qdisc_dropped", "Packets that it refused.");
        self.counters(name, None, family(|each| each.qdisc_stats.dropped))?;
        let name = ("plimsoll_qdisc_backlog", "Packets that the queueing discipline holds.");
        self.gauges(name, None, family(|each| each.qdisc_stats.len as u64))?;
        self.gauges(name, Some(Unit::Bytes), family(|each| each.qdisc_stats.bytes as u64))
    }
}

/// The labels of an interface: names need not differ, places do.
fn place(index: usize, interface: &InterfaceMetrics) -> [(&'static str, String); 2] {
    [("interface", interface.name.clone()), ("index", index.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_by_rule_and_differ() {
        let snake = [
            ("TcpOutSegs", "tcp_out_segs"),
            ("TcpExtTCPTimeouts", "tcp_ext_tcp_timeouts"),
            ("TcpExtDelayedACKs", "tcp_ext_delayed_acks"),
            ("TcpExtTCPHPHits", "tcp_ext_tcphp_hits"),
            ("TcpExtTCPSpuriousRTOs", "tcp_ext_tcp_spurious_rtos"),
            ("Ip6ReasmOKs", "ip6_reasm_oks"),
            ("TcpExtTW", "tcp_ext_tw"),
        ];
        for (name, expected) in snake {
            assert_eq!(snake_case(name), expected);
        }
        let all = CounterInfo::all();
        let stems: std::collections::BTreeSet<_> =
            all.iter().map(|info| Name::of(info).stem).collect();
        // Packets and bytes of IP differ in the unit alone.
        assert_eq!(stems.len(), all.len(), "every counter has a name of its own");
    }
}
