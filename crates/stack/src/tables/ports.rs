//! Ephemeral ports: RFC 6056, algorithm 4 (double hash).
//!
//! The search begins at a keyed hash of the addresses and the peer's port, plus one of a table of
//! counters. No host off the path can predict the hash. With the counters, connections to one peer
//! take consecutive ports, and reuse a port as late as possible.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::flow::FlowKey;
use crate::policies::secrets::Secrets;

/// Counters in the table.
const COUNTERS: usize = 256;

pub(crate) struct PortAllocator {
    counters: [AtomicU32; COUNTERS],
}

impl PortAllocator {
    pub(crate) fn new() -> PortAllocator {
        PortAllocator { counters: [const { AtomicU32::new(0) }; COUNTERS] }
    }

    /// Every port of `range` (both ends included) once, in the order in which they are to be tried
    /// for a connection like `key`. The counter moves on with each port that is looked at.
    pub(crate) fn candidates(
        &self,
        secrets: &Secrets,
        key: &FlowKey,
        range: (u16, u16),
    ) -> impl Iterator<Item = u16> + '_ {
        let (low, high) = range;
        let count = u32::from(high.saturating_sub(low)) + 1;
        let offset = secrets.port_offset(key);
        let counter = &self.counters[secrets.port_counter(key) as usize % COUNTERS];
        (0..count).map(move |_| {
            let step = counter.fetch_add(1, Ordering::Relaxed);
            let place = offset.wrapping_add(step) % count;
            // `place` is below the size of the range, which fits.
            low + place as u16
        })
    }
}

/// Ports for datagrams: RFC 6056, algorithm 1, with a keyed hash of a count for the random number.
/// The start of a search reveals nothing about earlier ones, since a port that can be guessed is
/// half of a forged answer (RFC 5452, section 4.5).
#[derive(Default)]
pub(crate) struct DatagramPorts {
    searches: AtomicU32,
}

impl DatagramPorts {
    /// Every port of `range` (both ends included) once, in the order in which they are to be tried.
    pub(crate) fn candidates(
        &self,
        secrets: &Secrets,
        range: (u16, u16),
    ) -> impl Iterator<Item = u16> + use<> {
        let (low, high) = range;
        let count = u32::from(high.saturating_sub(low)) + 1;
        let first = secrets.datagram_port(self.searches.fetch_add(1, Ordering::Relaxed)) % count;
        // Each is below the size of the range, which fits.
        (0..count).map(move |step| low + ((first + step) % count) as u16)
    }
}

/// Ports of one page of [`PortUse`].
const PAGE: usize = 256;

/// How many connections have each local port. Pages come with their first connection and stay.
pub(crate) struct PortUse {
    pages: Box<[OnceLock<Box<[AtomicU32; PAGE]>>]>,
}

impl Default for PortUse {
    fn default() -> PortUse {
        PortUse { pages: (0..65_536 / PAGE).map(|_| OnceLock::new()).collect() }
    }
}

impl PortUse {
    fn count_of(&self, port: u16) -> &AtomicU32 {
        let page = self.pages[usize::from(port) / PAGE]
            .get_or_init(|| Box::new([const { AtomicU32::new(0) }; PAGE]));
        &page[usize::from(port) % PAGE]
    }

    /// One connection more has the port.
    pub(crate) fn add(&self, port: u16) {
        self.count_of(port).fetch_add(1, Ordering::Relaxed);
    }

    /// Removes one connection's use of the port.
    pub(crate) fn remove(&self, port: u16) {
        self.count_of(port).fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a connection uses it.
    pub(crate) fn is_used(&self, port: u16) -> bool {
        let page = self.pages[usize::from(port) / PAGE].get();
        page.is_some_and(|page| page[usize::from(port) % PAGE].load(Ordering::Relaxed) > 0)
    }

    /// Bytes of memory that the pages take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.get().is_some()).count();
        pages * PAGE * size_of::<AtomicU32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_port_once_and_then_again() {
        let secrets = Secrets::new([7; 32], 0);
        let ports = PortAllocator::new();
        let ip = "192.0.2.1".parse().unwrap();
        let key = FlowKey { local: ip, remote: ip, local_port: 0, remote_port: 80 };
        let first: Vec<u16> = ports.candidates(&secrets, &key, (100, 199)).take(60).collect();
        let second: Vec<u16> = ports.candidates(&secrets, &key, (100, 199)).take(40).collect();
        let all: BTreeSet<u16> = first.iter().chain(&second).copied().collect();
        assert_eq!(all.len(), 100, "a port comes back only when all others were used");
        assert!(all.iter().all(|port| (100..200).contains(port)));
    }

    #[test]
    fn ports_of_datagrams_do_not_follow_one_another() {
        let (secrets, ports) = (Secrets::new([7; 32], 0), DatagramPorts::default());
        let all: BTreeSet<u16> = ports.candidates(&secrets, (100, 199)).collect();
        assert_eq!(all.len(), 100);
        let next = || ports.candidates(&secrets, (1, 65_535)).next();
        let firsts: BTreeSet<u16> = std::iter::repeat_with(next).take(50).flatten().collect();
        let near = firsts.iter().filter(|&&port| firsts.contains(&(port.wrapping_add(1)))).count();
        assert!(firsts.len() > 45 && near < 5, "{firsts:?}");
    }

    #[test]
    fn one_port_is_a_range() {
        let secrets = Secrets::new([7; 32], 0);
        let ports = PortAllocator::new();
        let ip = "192.0.2.1".parse().unwrap();
        let key = FlowKey { local: ip, remote: ip, local_port: 0, remote_port: 80 };
        assert_eq!(ports.candidates(&secrets, &key, (5, 5)).collect::<Vec<_>>(), [5]);
    }
}
