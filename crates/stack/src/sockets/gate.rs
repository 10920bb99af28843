//! SYNs that wait for the application's decision.
//!
//! # Theory of operation
//!
//! A SYN for a gated listener opens no connection and is not answered. It waits here until the
//! application decides, the peer gives up, or its time is over. A retransmitted SYN joins the
//! waiting one: its newest timestamp is kept, so that the answer echoes that one, and so is the
//! window. The data of the first SYN stays with it. A SYN with another sequence number is another
//! attempt and ends the first.
//!
//! With `verify_source` a SYN is not stored here. Its cookie opens a connection, and an attempt
//! without a SYN represents that connection here until the application has decided, so that the
//! same limits apply. If its time is over, or the listener ends, the connection is reset.
//!
//! Everything is limited: the number of attempts, the number per source, and the time. A SYN beyond
//! that is dropped, and the peer retransmits it. Maps are ordered ones, since a peer chooses the
//! keys.
//!
//! # Locks
//!
//! The listener's lock guards the gate. Each attempt has its own lock below that, a leaf, which its
//! `Incoming` takes as well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use plimsoll_tcp::{Duration, Instant, Segment};
use plimsoll_wire::SeqNum;

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};
use crate::sync::lock;

/// The gate of a listener: SYNs wait for the application's decision before they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateConfig {
    /// Attempts that wait for a decision, at most; 1024 unless set. A SYN beyond it is dropped, and
    /// so is a cookie that comes back.
    pub waiting: usize,
    /// The largest number of these from one address; 128 unless set. Further ones are dropped. A
    /// gate whose peers are all one guest has no use for it: `usize::MAX` is no bound.
    pub per_source: usize,
    /// How long an attempt waits, from its first SYN or its cookie's return on; 60 s unless set.
    /// Then it is forgotten without an answer, and a SYN that the peer sends after that is a new
    /// attempt. A peer that was verified is reset.
    pub wait: Duration,
    /// Admits only peers with a verified source: a SYN is answered with a cookie, and the attempt
    /// waits once the cookie has come back. The peer then regards the connection as open, so a
    /// rejection resets it. Off unless set.
    pub verify_source: bool,
}

plimsoll_tcp::setters!(GateConfig {
    waiting: usize,
    per_source: usize,
    wait: Duration,
    verify_source: bool,
});

impl Default for GateConfig {
    fn default() -> GateConfig {
        let wait = Duration::from_secs(60);
        GateConfig { waiting: 1024, per_source: 128, wait, verify_source: false }
    }
}

impl GateConfig {
    /// Refuses a gate that admits no peer.
    pub(crate) fn check(&self) -> Result<(), SocketError> {
        let none = |what| Err(SocketError::Invalid(what));
        match self {
            GateConfig { waiting: 0, .. } => none("gate.waiting is 0: no attempt could ever wait"),
            GateConfig { per_source: 0, .. } => {
                none("gate.per_source is 0: no attempt could ever wait")
            }
            GateConfig { wait, .. } if wait.is_zero() => {
                none("gate.wait is 0: every attempt would end before it is asked for")
            }
            _ => Ok(()),
        }
    }
}

/// The reason why a waiting attempt has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The peer has reset it.
    Reset,
    /// An error of the path has ended it (ICMP).
    Unreachable,
    /// The peer has begun another attempt from the same address and port.
    NewAttempt,
    /// The application did not decide within [`GateConfig::wait`].
    TimedOut,
    /// The listener or the stack has ended.
    Closed,
}

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cancelled::Reset => "the peer has reset the attempt to connect",
            Cancelled::Unreachable => "the peer cannot be reached any more",
            Cancelled::NewAttempt => "the peer has begun another attempt to connect",
            Cancelled::TimedOut => {
                "the application did not decide in time whether to accept the connection"
            }
            Cancelled::Closed => "the listener has ended",
        })
    }
}

/// A SYN that waits.
pub(crate) struct Attempt {
    key: FlowKey,
    /// The queue on which it arrived.
    home: u8,
    /// The least initial sequence number of the answer, if the SYN takes the place of a TIME-WAIT.
    least_iss: Option<SeqNum>,
    serial: u64,
    until: Instant,
    /// The headers of the SYN, if the listener keeps them.
    headers: Option<Box<[u8]>>,
    state: Mutex<AttemptState>,
}

struct AttemptState {
    /// None if its cookie has opened a connection, which the tables have.
    syn: Option<Segment>,
    /// SYNs that have come.
    syns: u32,
    end: Option<Cancelled>,
    wakers: WakerSet,
}

impl Attempt {
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }

    pub(crate) fn home(&self) -> u8 {
        self.home
    }

    pub(crate) fn least_iss(&self) -> Option<SeqNum> {
        self.least_iss
    }

    /// The headers of the SYN, if the listener keeps them.
    pub(crate) fn headers(&self) -> Option<Box<[u8]>> {
        self.headers.clone()
    }

    /// Runs `look` on the SYN, updated by its retransmissions, if it waits.
    pub(crate) fn syn<T>(&self, look: impl FnOnce(&Segment) -> T) -> Option<T> {
        lock(&self.state).syn.as_ref().map(look)
    }

    /// How many SYNs have come.
    pub(crate) fn syns(&self) -> u32 {
        lock(&self.state).syns
    }

    /// Whether a connection waits rather than a SYN.
    fn is_open(&self) -> bool {
        lock(&self.state).syn.is_none()
    }

    /// The reason why it has ended by itself, if it has.
    pub(crate) fn cancelled(&self) -> Option<Cancelled> {
        lock(&self.state).end
    }

    /// As [`cancelled`](Self::cancelled); if it has not, `waker` waits under `key`. Returns a waker
    /// to be dropped without a lock as well.
    pub(crate) fn register(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
    ) -> (Option<Cancelled>, Option<Waker>) {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let end = state.end;
        let left = state.wakers.answer(end.is_some(), Interest::Read, key, &mut waker);
        drop(state);
        (end, left.or(waker))
    }

    /// Takes the waker out that waits under `key`.
    pub(crate) fn cancel_wait(&self, key: WaitKey) -> Option<Waker> {
        lock(&self.state).wakers.cancel(Interest::Read, key)
    }

    /// The peer has sent its SYN again.
    fn repeat(&self, syn: &Segment) {
        let mut state = lock(&self.state);
        state.syns = state.syns.saturating_add(1);
        let Some(first) = &mut state.syn else { return };
        if let Some(times) = syn.repr.options.timestamps {
            first.repr.options.timestamps = Some(times);
        }
        first.repr.window = syn.repr.window;
    }

    fn finish(&self, end: Cancelled, wakers: &mut WakeList) {
        let mut state = lock(&self.state);
        state.end = Some(end);
        state.wakers.take(Interest::Read, wakers);
    }
}

/// A SYN that arrives at a gate.
pub(crate) struct Asked<'a> {
    pub(crate) key: &'a FlowKey,
    /// The queue on which it arrived.
    pub(crate) home: u8,
    pub(crate) syn: &'a Segment,
    /// Its headers, if the listener keeps them.
    pub(crate) headers: Option<&'a [u8]>,
    /// The least initial sequence number of the answer, if it takes the place of a TIME-WAIT.
    pub(crate) least_iss: Option<SeqNum>,
    /// The budgets have a place for another attempt.
    pub(crate) has_place: bool,
}

/// The outcome of a SYN, or of a cookie that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It waits, until that time at the latest.
    Waits(Instant),
    /// It is known.
    Joined,
    /// There is no place for it.
    Full,
}

/// How many attempts wait at all gates of a stack. While none does, no time of a gate is to be
/// waited for. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptCount(Arc<AtomicUsize>);

impl AttemptCount {
    /// Whether no attempt waits.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Counts one more waiting attempt, until the returned value is dropped.
    fn add(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// An attempt that counts in an [`AttemptCount`].
struct Counted(AttemptCount);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The attempts that wait at one listener.
pub(crate) struct Gate {
    config: GateConfig,
    count: AttemptCount,
    by_flow: BTreeMap<FlowKey, Arc<Attempt>>,
    by_source: BTreeMap<IpAddr, usize>,
    /// By serial number. All wait for the same time, so that is the order in which they end.
    by_age: BTreeMap<u64, (Arc<Attempt>, Counted)>,
    /// Those that the application has not got yet, by serial number.
    untaken: BTreeMap<u64, Arc<Attempt>>,
    next_serial: u64,
    /// SYNs that wait or have waited.
    syns: u64,
    /// The listener has ended: nothing waits any more. A poller may have found it before.
    closed: bool,
}

impl Gate {
    /// An empty gate, whose attempts count in `count` while they wait.
    pub(crate) fn new(config: GateConfig, count: AttemptCount) -> Gate {
        Gate {
            config,
            count,
            by_flow: BTreeMap::new(),
            by_source: BTreeMap::new(),
            by_age: BTreeMap::new(),
            untaken: BTreeMap::new(),
            next_serial: 0,
            syns: 0,
            closed: false,
        }
    }

    /// A SYN has come.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        asked: &Asked<'_>,
        wakers: &mut WakeList,
    ) -> Arrival {
        let &Asked { key, home, syn, headers, least_iss, has_place } = asked;
        if let Some(there) = self.by_flow.get(key) {
            if there.syn(|first| first.repr.seq) == Some(syn.repr.seq) {
                there.repeat(syn);
                return Arrival::Joined;
            }
            let there = there.clone();
            self.end(&there, Cancelled::NewAttempt, wakers);
        }
        if !has_place {
            return Arrival::Full;
        }
        let Some(attempt) = self.insert(now, (key, home), Some((syn, headers)), least_iss) else {
            return Arrival::Full;
        };
        self.syns += 1;
        let until = attempt.until;
        self.untaken.insert(attempt.serial, attempt);
        Arrival::Waits(until)
    }

    /// A cookie has come back; its connection waits from now on. There is no attempt of this flow.
    pub(crate) fn verified(&mut self, now: Instant, key: &FlowKey, home: u8) -> Arrival {
        match self.insert(now, (key, home), None, None) {
            Some(attempt) => Arrival::Waits(attempt.until),
            None => Arrival::Full,
        }
    }

    /// Puts an attempt in, if there is a place. There is none once the listener has ended.
    fn insert(
        &mut self,
        now: Instant,
        (key, home): (&FlowKey, u8),
        syn: Option<(&Segment, Option<&[u8]>)>,
        least_iss: Option<SeqNum>,
    ) -> Option<Arc<Attempt>> {
        if self.closed {
            return None;
        }
        let of_source = self.by_source.get(&key.remote).copied().unwrap_or(0);
        if self.by_flow.len() >= self.config.waiting || of_source >= self.config.per_source {
            return None;
        }
        let headers = syn.and_then(|(_, headers)| headers).map(Box::from);
        let syn = syn.map(|(syn, _)| syn.clone());
        let state = AttemptState { syn, syns: 1, end: None, wakers: WakerSet::default() };
        let (serial, until) = (self.next_serial, now + self.config.wait);
        let state = Mutex::new(state);
        let key = *key;
        let attempt = Arc::new(Attempt { key, home, least_iss, serial, until, headers, state });
        self.next_serial += 1;
        self.by_flow.insert(key, attempt.clone());
        self.by_source.insert(key.remote, of_source + 1);
        self.by_age.insert(serial, (attempt.clone(), self.count.add()));
        Some(attempt)
    }

    /// The attempt that represents a flow's open connection, if it waits.
    pub(crate) fn open(&self, key: &FlowKey) -> Option<&Arc<Attempt>> {
        self.by_flow.get(key).filter(|attempt| attempt.is_open())
    }

    /// The connection of a flow has ended. If it waits for a decision, it does not any more.
    pub(crate) fn leave(&mut self, key: &FlowKey) {
        if let Some(attempt) = self.open(key).cloned() {
            self.remove(&attempt);
        }
    }

    /// The oldest attempt that the application has not got yet. It keeps waiting.
    pub(crate) fn take(&mut self) -> Option<Arc<Attempt>> {
        self.untaken.pop_first().map(|(_, attempt)| attempt)
    }

    /// SYNs that wait or have waited.
    pub(crate) fn arrivals(&self) -> u64 {
        self.syns
    }

    /// Whether there is one to take.
    pub(crate) fn has_untaken(&self) -> bool {
        !self.untaken.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.by_flow.len()
    }

    /// The application has decided. Returns whether the attempt still waited; it does not any more.
    pub(crate) fn decide(&mut self, attempt: &Attempt) -> bool {
        let waits = self.by_age.contains_key(&attempt.serial) && attempt.cancelled().is_none();
        if waits {
            self.remove(attempt);
        }
        waits
    }

    /// The peer resets with the sequence number `seq`, which must be the next one (RFC 5961).
    pub(crate) fn reset(&mut self, key: &FlowKey, seq: SeqNum, wakers: &mut WakeList) {
        let Some(attempt) = self.by_flow.get(key).cloned() else { return };
        if attempt.syn(|syn| syn.repr.seq + 1) == Some(seq) {
            self.end(&attempt, Cancelled::Reset, wakers);
        }
    }

    /// Ends the attempts whose time is over by `now`, and returns the next one's time. The flows of
    /// open connections that have waited are added to `open`: the caller ends them.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        wakers: &mut WakeList,
        open: &mut BTreeSet<FlowKey>,
    ) -> Option<Instant> {
        loop {
            let (_, (oldest, _)) = self.by_age.first_key_value()?;
            if oldest.until > now {
                return Some(oldest.until);
            }
            let oldest = oldest.clone();
            if oldest.is_open() {
                open.insert(oldest.key);
            }
            self.end(&oldest, Cancelled::TimedOut, wakers);
        }
    }

    /// The listener has ended, and so have all waiting attempts.
    pub(crate) fn close(&mut self, wakers: &mut WakeList) {
        while let Some((_, (attempt, _))) = self.by_age.pop_first() {
            attempt.finish(Cancelled::Closed, wakers);
        }
        *self = Gate { closed: true, ..Gate::new(self.config, self.count.clone()) };
    }

    fn end(&mut self, attempt: &Attempt, end: Cancelled, wakers: &mut WakeList) {
        self.remove(attempt);
        attempt.finish(end, wakers);
    }

    fn remove(&mut self, attempt: &Attempt) {
        self.by_flow.remove(&attempt.key);
        self.by_age.remove(&attempt.serial);
        self.untaken.remove(&attempt.serial);
        let source = attempt.key.remote;
        match self.by_source.get_mut(&source) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.by_source.remove(&source)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
