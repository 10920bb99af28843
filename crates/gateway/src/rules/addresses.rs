//! The addresses of names that were looked up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Addresses whose names are kept. One more replaces the one that would end first.
const MOST: usize = 8192;
/// Names of one address. One more replaces the oldest.
const MOST_NAMES: usize = 16;
/// For how long a name is kept, whatever its record says.
const KEPT: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(86_400));

/// A name of an address, and until when it is kept.
struct Known {
    name: String,
    until: Instant,
}

/// The names by which addresses were found.
#[derive(Default)]
pub(crate) struct Addresses(HashMap<IpAddr, Vec<Known>>);

fn last(names: &[Known]) -> Option<Instant> {
    names.iter().map(|known| known.until).max()
}

impl Addresses {
    /// Keeps a name of an address, for the time of its record or ten minutes if that is longer.
    pub(crate) fn keep(&mut self, ip: IpAddr, name: &str, ttl: Duration, now: Instant) {
        let until = now + ttl.clamp(KEPT.0, KEPT.1);
        if self.0.len() >= MOST && !self.0.contains_key(&ip) {
            self.0.retain(|_, names| last(names).is_some_and(|until| until > now));
            let first = self.0.iter().min_by_key(|(_, names)| last(names)).map(|(&ip, _)| ip);
            first.filter(|_| self.0.len() >= MOST).and_then(|ip| self.0.remove(&ip));
        }
        let names = self.0.entry(ip).or_default();
        let kept = names.iter().position(|known| known.name == name);
        let until = kept.map_or(until, |place| until.max(names.remove(place).until));
        if names.len() >= MOST_NAMES {
            names.remove(0);
        }
        names.push(Known { name: name.to_owned(), until });
    }

    /// The latest name of an address that `wanted` accepts.
    pub(crate) fn find(
        &self,
        ip: IpAddr,
        now: Instant,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Option<String> {
        let mut names = self.0.get(&ip)?.iter().rev().filter(|known| known.until > now);
        names.find(|known| wanted(&known.name)).map(|known| known.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_ten_minutes_or_longer_in_bounded_memory() {
        let (mut addresses, now) = (Addresses::default(), Instant::now());
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let second = Duration::from_secs(1);
        addresses.keep(ip, "a.example", 5 * second, now);
        addresses.keep(ip, "b.example", 900 * second, now);
        let at = |seconds| addresses.find(ip, now + seconds * second, |_| true);
        assert_eq!(at(599).as_deref(), Some("b.example"));
        assert_eq!(at(899).as_deref(), Some("b.example"));
        assert_eq!(at(900), None);
        let a = |seconds| addresses.find(ip, now + seconds * second, |name| name == "a.example");
        assert!(a(599).is_some() && a(600).is_none());
        // A second record does not shorten the time of the first.
        addresses.keep(ip, "b.example", second, now);
        assert!(addresses.find(ip, now + 800 * second, |_| true).is_some());
        for number in 0..2 * MOST as u32 {
            let ip = std::net::Ipv4Addr::from(0xc612_0000 + number).into();
            addresses.keep(ip, "c.example", second, now);
        }
        assert_eq!(addresses.0.len(), MOST);
        for number in 0..100 {
            addresses.keep(ip, &format!("{number}.example"), second, now);
        }
        assert_eq!(addresses.0[&ip].len(), MOST_NAMES);
    }
}
