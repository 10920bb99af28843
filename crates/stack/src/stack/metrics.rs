//! The figures of a stack: [`Stack::metrics`].

use crate::interfaces::interface::Interface;
use crate::metrics::{
    ConnectionCounts, CounterGroup, CounterValue, InterfaceMetrics, ListenerMetrics, Metrics,
    UdpMetrics,
};
use crate::snmp::place;
use crate::sockets::summary::SocketSummary;
use crate::stack::Stack;

impl Stack {
    /// All figures of the stack as they are now.
    pub fn metrics(&self) -> Metrics {
        let counters = self.counters().into_iter();
        Metrics {
            counters: counters
                .map(|(name, value)| CounterValue { group: CounterGroup::of(name), name, value })
                .collect(),
            connections: self.connection_counts(),
            memory: self.memory(),
            udp: UdpMetrics {
                sockets: self.tables.udp().len(),
                flows: self.tables.udp().flows().len(),
                memory: self.udp_memory(),
            },
            listeners: self.tables.listeners().summaries().iter().map(listener).collect(),
            interfaces: self.interfaces.iter().map(|each| self.interface_metrics(each)).collect(),
        }
    }

    fn connection_counts(&self) -> ConnectionCounts {
        let states = self.pollers.snmp().states();
        let orphans = self.tables.orphans().count() as u64;
        let time_wait = self.time_wait_count() as u64;
        ConnectionCounts::gather(|state| states[place(state)], time_wait, orphans)
    }

    fn interface_metrics(&self, interface: &Interface) -> InterfaceMetrics {
        let (tx, rx) = interface.stats(self.kick_of(interface));
        let (qdisc, qdisc_stats, fq) = interface.tx().qdisc();
        let (name, up, mtu) = (interface.name(), interface.is_up(), interface.mtu());
        InterfaceMetrics { name, up, mtu, tx, rx, qdisc, qdisc_stats, fq }
    }
}

fn listener(of: &SocketSummary) -> ListenerMetrics {
    ListenerMetrics { local: of.local, accept_queue: of.recv_queue, backlog: of.send_queue }
}
