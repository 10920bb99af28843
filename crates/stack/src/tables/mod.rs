//! The tables of a stack: connections, listeners, TIME-WAIT, UDP sockets, ports, and fragmented
//! datagrams.
//!
//! # Locks
//!
//! Every table has its own lock, and all of them are leaves: a thread that holds one takes no other
//! lock, owns no socket and calls no foreign code. A lookup's result is cloned and used after the
//! lock was released.

pub(crate) mod connections;
pub(crate) mod listeners;
pub(crate) mod orphans;
pub(crate) mod ports;
pub(crate) mod reassembly;
pub(crate) mod time_wait;
pub(crate) mod udp;
pub(crate) mod udp_flows;

use plimsoll_tcp::Instant;

use crate::events::Spans;
use crate::sockets::unhandled::HookPlace;
use crate::sync::timed::{Timed, TimedGuard};
use crate::tables::connections::ConnectionTable;
use crate::tables::listeners::ListenerTable;
use crate::tables::orphans::Orphans;
use crate::tables::ports::{DatagramPorts, PortAllocator};
use crate::tables::reassembly::Reassembler;
use crate::tables::time_wait::TimeWaitTable;
use crate::tables::udp::UdpTable;

/// The tables of a stack.
pub(crate) struct Tables {
    connections: ConnectionTable,
    listeners: ListenerTable,
    time_wait: Timed<TimeWaitTable>,
    ports: PortAllocator,
    reassembler: Timed<Reassembler>,
    orphans: Orphans,
    udp: UdpTable,
    datagram_ports: DatagramPorts,
    spans: Spans,
    unhandled: HookPlace,
}

impl Tables {
    /// Empty tables whose hashes no outsider can predict.
    pub(crate) fn new(table_key: [u8; 16]) -> Tables {
        Tables {
            connections: ConnectionTable::new(table_key),
            listeners: ListenerTable::default(),
            time_wait: Timed::new(TimeWaitTable::new(table_key)),
            ports: PortAllocator::new(),
            reassembler: Timed::default(),
            orphans: Orphans::default(),
            udp: UdpTable::new(table_key),
            datagram_ports: DatagramPorts::default(),
            spans: Spans::default(),
            unhandled: HookPlace::default(),
        }
    }

    /// Open connections, by four-tuple and by place.
    pub(crate) fn connections(&self) -> &ConnectionTable {
        &self.connections
    }

    /// Listeners, by address and port.
    pub(crate) fn listeners(&self) -> &ListenerTable {
        &self.listeners
    }

    /// Connections in TIME-WAIT.
    pub(crate) fn time_wait(&self) -> TimedGuard<'_, TimeWaitTable> {
        self.time_wait.lock()
    }

    /// Connections in TIME-WAIT, if there are any; the lock is not taken otherwise.
    pub(crate) fn any_time_wait(&self) -> Option<TimedGuard<'_, TimeWaitTable>> {
        if self.time_wait.is_empty() { None } else { Some(self.time_wait()) }
    }

    /// When a connection in TIME-WAIT may have ended.
    pub(crate) fn time_wait_ends(&self) -> Option<Instant> {
        self.time_wait.next()
    }

    /// Where the search for a free port begins.
    pub(crate) fn ports(&self) -> &PortAllocator {
        &self.ports
    }

    /// Fragments of datagrams that are not whole yet.
    pub(crate) fn reassembler(&self) -> TimedGuard<'_, Reassembler> {
        self.reassembler.lock()
    }

    /// When the oldest fragment came that others of its datagram are missing to.
    pub(crate) fn reassembles_since(&self) -> Option<Instant> {
        self.reassembler.next()
    }

    /// UDP sockets.
    pub(crate) fn udp(&self) -> &UdpTable {
        &self.udp
    }

    /// Where the search for a free port of UDP begins.
    pub(crate) fn datagram_ports(&self) -> &DatagramPorts {
        &self.datagram_ports
    }

    /// The spans of connections, of the feature `tracing`.
    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The hook for packets that no socket accepts.
    pub(crate) fn unhandled(&self) -> &HookPlace {
        &self.unhandled
    }

    /// Connections that no application holds.
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.orphans
    }
}
