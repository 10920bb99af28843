//! Why the command waited (`--explain`), for each destination.
//!
//! # Theory of operation
//!
//! The gateway is between the command and the network, so it sees when the command's data comes,
//! when the host's socket takes it, and when the answer is there. An [`observer`] has the times
//! of one connection, and reads the kernel's figures of the host's socket
//! ([`tcp_info`](crate::tcp_info)) with each piece of data. It thus compares two moments, and
//! decides which of the sides was waited for between them:
//!
//! | cause | evidence |
//! |---|---|
//! | repeated SYN | the kernel retransmitted before the dial had succeeded |
//! | Nagle and delayed ACK | the command's next write came right after the stack's delayed ACK |
//! | windows | a side took no data, and its window limited the sender all that time |
//! | loss | nothing came, and the kernel has retransmitted or has data behind a hole |
//! | slow server | none of these, and the answer took longer than a round trip |
//! | slow name server | a query had no answer |
//! | connections one by one | a dial began when an earlier connection had ended |
//!
//! A wait has one cause. Waits of one cause may overlap, in parallel connections or lookups, and
//! their time counts once ([`waits`]). Time in which the command has asked for nothing is not lost.
//! The [`report`] leaves out causes that cost little ([`cause`]).
//!
//! Everything is bounded: destinations, lookups, and waits that are kept apart. Without `--explain`
//! there is no [`Reasons`], and connections have no observer.
//!
//! It does not see: pauses within an answer, which a program may intend; data that the command has
//! received and not read; the lower rate after a loss, only the time in which data was missing;
//! and datagrams, except lookups.

mod cause;
mod observer;
mod report;
mod waits;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use observer::Observer;

use cause::Cause;
use waits::Waits;

use crate::names::Names;
use crate::tcp_info::Sample;

/// Destinations that are kept apart, at most.
const MAX_DESTINATIONS: usize = 1024;
/// Queries whose answer is awaited, at most.
const MAX_QUERIES: usize = 1024;
/// A lookup that takes less is none that a server is slow with.
const SLOW_LOOKUP: Duration = Duration::from_millis(100);

/// A destination of the command.
#[derive(Default)]
struct Destination {
    /// As the command has looked it up.
    name: Option<String>,
    /// Connections that have opened or failed, or lookups.
    connections: u64,
    /// Connections of which no side has ended.
    active: u64,
    up: u64,
    down: u64,
    /// The shortest round trip; zero if none was measured.
    rtt: Duration,
    waits: [Waits; Cause::ALL.len()],
}

/// A query without an answer.
struct Query {
    to: SocketAddr,
    first: Instant,
    latest: Instant,
}

#[derive(Default)]
struct Book {
    destinations: HashMap<SocketAddr, Destination>,
    /// By the token of the flow or connection and the query's number.
    queries: HashMap<(usize, [u8; 2]), Query>,
    /// Connections to destinations beyond the limit.
    left_out: u64,
}

/// The waits for all destinations.
pub(crate) struct Reasons {
    begun: Instant,
    has_figures: bool,
    book: Mutex<Book>,
}

impl Book {
    /// The entry of a destination, unless there are too many.
    fn destination(&mut self, to: SocketAddr) -> Option<&mut Destination> {
        let is_full = self.destinations.len() >= MAX_DESTINATIONS;
        if is_full && !self.destinations.contains_key(&to) {
            self.left_out += 1;
            return None;
        }
        Some(self.destinations.entry(to).or_default())
    }

    fn record(&mut self, to: SocketAddr, cause: Cause, (from, until): (Instant, Instant)) {
        if let Some(destination) = self.destination(to) {
            destination.waits[cause as usize].add(from, until);
        }
    }
}

impl Reasons {
    pub(crate) fn new() -> Reasons {
        let has_figures = Sample::is_available();
        if !has_figures {
            crate::note("this kernel has no figures of losses and windows (TCP_INFO of Linux 5.4)");
        }
        Reasons { begun: Instant::now(), has_figures, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, host: &TcpStream) -> Sample {
        let sample = self.has_figures.then(|| Sample::read(host)).flatten();
        sample.unwrap_or_default()
    }

    /// A query of the command goes to the host's name server. `to` is the gateway's.
    pub(crate) fn asked(&self, to: SocketAddr, token: usize, query: &[u8]) {
        let Some(&id) = query.first_chunk::<2>() else { return };
        let (now, mut book) = (Instant::now(), self.book());
        if let Some(query) = book.queries.get_mut(&(token, id)) {
            query.latest = now;
            return;
        }
        if book.queries.len() < MAX_QUERIES {
            book.queries.insert((token, id), Query { to, first: now, latest: now });
        }
        if let Some(destination) = book.destination(to) {
            destination.connections += 1;
            destination.up += query.len() as u64;
        }
    }

    /// An answer has come.
    pub(crate) fn answered(&self, token: usize, answer: &[u8]) {
        let Some(&id) = answer.first_chunk::<2>() else { return };
        let mut book = self.book();
        let Some(Query { to, first, .. }) = book.queries.remove(&(token, id)) else { return };
        let now = Instant::now();
        if now - first >= SLOW_LOOKUP {
            book.record(to, Cause::SlowNames, (first, now));
        }
        if let Some(destination) = book.destination(to) {
            destination.down += answer.len() as u64;
        }
    }

    /// The report, once the command has ended.
    pub(crate) fn report(&self, names: &Names) -> String {
        let (mut book, now) = (self.book(), Instant::now());
        // A query without an answer was waited for until it was repeated, at least.
        for (_, Query { to, first, latest }) in std::mem::take(&mut book.queries) {
            if latest > first {
                book.record(to, Cause::SlowNames, (first, latest));
            }
        }
        for (to, destination) in &mut book.destinations {
            if names.serves(*to) {
                destination.name = Some("name server".to_owned());
            }
        }
        report::text(&book, now - self.begun)
    }
}

#[cfg(test)]
mod tests;
