//! Workloads on threads: every socket has a blocking thread, every stack a softirq thread.
//!
//! Threads stay alive until the run has been measured, so that what they cost can still be read.
//! After a failure they are left behind; their sockets have timeouts, so they end by themselves.
//! A [`Network`] that can end all calls at once has its threads end before the failure is told.
//! What fails first, on whichever side, is what the run fails with: a thread tells it before it
//! closes its socket, which the other side may take for the end of a stream.

use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;

use super::blocking::{Count, answer, exchange, receive, receive_into, send};
use super::measure::{Asking, Measured, Snapshot};
use super::network::{Network, Socket};
use super::{Kind, remedy};
use crate::event_loop::SCRATCH_BYTES;
use crate::experiment::pin::OnCpu;
use crate::requester::new_histogram;
use crate::usage::Usage;

/// How long a socket of a bounded run may do nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a bounded run may take to connect, and to end beyond the time that it is to run.
const ALL: Duration = Duration::from_secs(60);

/// What a run is, whatever its sockets are.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// What flows.
    pub(crate) kind: Kind,
    /// Connections at once.
    pub(crate) flows: u32,
    /// What a reader of bulk data reads at once.
    pub(crate) read_bytes: usize,
    /// How many buffers of that size it fills in turn.
    pub(crate) read_buffers: usize,
    /// A sender of bulk data copies nothing.
    pub(crate) shared: bool,
    /// A sender of bulk data puts what it writes into a buffer of so many bytes.
    pub(crate) write_buffer: Option<usize>,
    /// How long it runs, unless the flows end by themselves.
    pub(crate) length: Duration,
    /// If set, only `length` after so much time is measured.
    pub(crate) warm_up: Option<Duration>,
    /// The run ends in bounded time, and so does every call on a socket.
    pub(crate) bounded: bool,
    /// The processors of the client's threads and of the server's.
    pub(crate) cpus: Option<[usize; 2]>,
    /// A thread that answers gives its processor away once before it does.
    pub(crate) gives_way: bool,
}

impl Terms {
    /// How long it runs; `None` if the flows end by themselves.
    fn limit(&self) -> Option<Duration> {
        self.kind.is_endless().then_some(self.length)
    }

    /// As [`Workload::on_cpu`](super::Workload::on_cpu).
    fn on_cpu(&self, side: usize) -> anyhow::Result<Option<OnCpu>> {
        self.cpus.map(|cpus| OnCpu::enter(cpus[side])).transpose()
    }
}

/// What all threads of a run share.
struct Run<N> {
    terms: Terms,
    network: N,
    gate: Mutex<Gate>,
    changed: Condvar,
    /// The time is over.
    over: AtomicBool,
    /// Latencies count now.
    measuring: AtomicBool,
    /// Bytes that have arrived, and transactions that have completed.
    moved: Count,
    transactions: Count,
}

/// Where threads meet.
#[derive(Default)]
struct Gate {
    connected: u32,
    deadline: Option<Option<Instant>>,
    finished: u32,
    measured: bool,
    error: Option<String>,
    latencies: Option<Histogram<u64>>,
    asking: Option<Asking>,
}

/// One thread's count of itself: it begins and ends between two transactions.
#[derive(Default)]
struct Own {
    begun: Option<Usage>,
    transactions: u64,
    done: Option<Asking>,
}

impl Own {
    /// Looks whether everything is measured just now. What looking costs is not counted.
    fn at(&mut self, measuring: bool) {
        match self.begun {
            None if measuring && self.done.is_none() => self.begun = Some(Usage::begin_thread()),
            Some(_) if !measuring => self.end(),
            _ => {}
        }
    }

    fn end(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let usage = Usage::of_thread().since(begun);
        self.done = Some(Asking { transactions: self.transactions, usage });
    }
}

/// Runs the workload.
///
/// # Errors
/// If a thread cannot be started or a connection fails.
pub(crate) fn run<N: Network>(terms: Terms, network: N) -> anyhow::Result<Measured> {
    let run = Arc::new(Run {
        measuring: AtomicBool::new(terms.warm_up.is_none()),
        terms,
        network,
        gate: Mutex::default(),
        changed: Condvar::new(),
        over: AtomicBool::new(false),
        moved: Count::default(),
        transactions: Count::default(),
    });
    let mut threads = Vec::new();
    let measured = start(&run, &mut threads).and_then(|()| run.measure());
    if let Err(error) = &measured {
        run.fail(error.to_string());
    }
    // Without a window the process ends soon, and servers may wait for a connection for ever.
    let will_end = measured.is_ok() && run.windowed();
    if run.network.end() || will_end {
        for thread in threads {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
    measured
}

/// Starts the threads of all flows, each side on its processor.
fn start<N: Network>(run: &Arc<Run<N>>, threads: &mut Vec<JoinHandle<()>>) -> anyhow::Result<()> {
    if run.network.serves() {
        let _on = run.terms.on_cpu(1)?;
        for index in 0..run.terms.flows {
            let run = run.clone();
            threads.push(spawn(format!("server-{index}"), move || run.serve())?);
        }
    }
    let _on = run.terms.on_cpu(0)?;
    for index in 0..run.terms.flows {
        let run = run.clone();
        threads.push(spawn(format!("client-{index}"), move || run.ask())?);
    }
    Ok(())
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body).context("cannot start a thread")
}

/// Tells of it if its thread panics, so that nobody waits for it.
struct Alarm<'a, N: Network>(&'a Run<N>);

impl<N: Network> Drop for Alarm<'_, N> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread of the workload has panicked".into());
        }
    }
}

impl<N: Network> Run<N> {
    /// Waits for all connections, and measures.
    fn measure(&self) -> anyhow::Result<Measured> {
        self.wait_within(ALL, "connecting", |gate| gate.connected == self.terms.flows)?;
        match self.terms.warm_up {
            Some(warm_up) => self.window(warm_up),
            None => self.whole(),
        }
    }

    /// Measures from the first byte until everything has arrived.
    fn whole(&self) -> anyhow::Result<Measured> {
        let counters = || self.network.counters();
        let before = Snapshot::begin(counters);
        let start = Instant::now();
        let deadline = self.terms.limit().and_then(|length| start.checked_add(length));
        self.change(|gate| gate.deadline = Some(deadline));
        self.finished(self.terms.limit().unwrap_or_default())?;
        let elapsed = start.elapsed();
        let after = Snapshot::take(counters);
        self.change(|gate| gate.measured = true);
        let moved = (self.moved.get(), self.transactions.get());
        Ok(self.measured(&before, &after, elapsed, moved))
    }

    /// Measures between two moments while everything runs.
    fn window(&self, warm_up: Duration) -> anyhow::Result<Measured> {
        let counters = || self.network.counters();
        let moved = || {
            let bytes = self.network.arrived().unwrap_or_else(|| self.moved.get());
            (bytes, self.transactions.get())
        };
        self.change(|gate| gate.deadline = Some(None));
        self.pause(warm_up)?;
        let before = Snapshot::begin(counters);
        self.measuring.store(true, Ordering::Relaxed);
        let (start, first) = (Instant::now(), moved());
        self.pause(self.terms.length)?;
        let (elapsed, last) = (start.elapsed(), moved());
        let after = Snapshot::take(counters);
        self.measuring.store(false, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        self.network.finish();
        self.finished(Duration::ZERO)?;
        self.change(|gate| gate.measured = true);
        Ok(self.measured(&before, &after, elapsed, (last.0 - first.0, last.1 - first.1)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Gate)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Keeps the first error of all threads.
    fn fail(&self, message: String) {
        self.change(|gate| {
            gate.error.get_or_insert(message);
        });
    }

    /// Waits until all flows have ended, which they should after `time`.
    fn finished(&self, time: Duration) -> anyhow::Result<()> {
        let all = |gate: &Gate| gate.finished == self.terms.flows;
        self.wait_within(time.saturating_add(ALL), "the run", all)
    }

    /// Waits until `done` or an error; no longer than `time`, if the run is bounded.
    fn wait_within(
        &self,
        time: Duration,
        what: &str,
        done: impl Fn(&Gate) -> bool,
    ) -> anyhow::Result<()> {
        if !self.terms.bounded {
            return self.wait(done);
        }
        let waiting = |gate: &mut Gate| !done(gate) && gate.error.is_none();
        let (gate, waited) = self
            .changed
            .wait_timeout_while(self.lock(), time, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        match &gate.error {
            Some(error) => Err(anyhow!("{error}")),
            None if waited.timed_out() && !done(&gate) => {
                Err(anyhow!("{what} took more than {} s", time.as_secs()))
            }
            None => Ok(()),
        }
    }

    /// Waits until `done` or an error.
    fn wait(&self, done: impl Fn(&Gate) -> bool) -> anyhow::Result<()> {
        let waiting = |gate: &mut Gate| !done(gate) && gate.error.is_none();
        let gate = self.changed.wait_while(self.lock(), waiting);
        match &gate.unwrap_or_else(PoisonError::into_inner).error {
            Some(error) => Err(anyhow!("{error}")),
            None => Ok(()),
        }
    }

    /// Waits for `time`, or for an error.
    fn pause(&self, time: Duration) -> anyhow::Result<()> {
        let waiting = |gate: &mut Gate| gate.error.is_none();
        let (gate, _) = self
            .changed
            .wait_timeout_while(self.lock(), time, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        gate.error.as_ref().map_or(Ok(()), |error| Err(anyhow!("{error}")))
    }

    fn measured(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        elapsed: Duration,
        moved: (u64, u64),
    ) -> Measured {
        let (latencies, asking) = {
            let mut gate = self.lock();
            (gate.latencies.take(), gate.asking.take())
        };
        let latencies = latencies.unwrap_or_else(new_histogram);
        Measured::between(before, after, elapsed, moved, latencies).with_asking(asking)
    }

    /// The client's side of one flow.
    fn ask(&self) {
        let _alarm = Alarm(self);
        let (mut latencies, mut own) = (new_histogram(), Own::default());
        let asked = self.try_ask(&mut latencies, &mut own);
        let remote = self.network.remote();
        if let Err(error) = asked {
            let remedy = remedy(&error, self.terms.flows);
            return self.fail(format!("the connection to {remote} failed: {error}{remedy}"));
        }
        // Before, nobody had a reason to end it.
        let is_over = self.over.load(Ordering::Relaxed);
        if self.windowed() && self.terms.kind.is_endless() && !is_over {
            return self.fail(format!("the connection to {remote} ended before its time"));
        }
        self.change(|gate| {
            gate.finished += 1;
            match (&mut gate.asking, own.done) {
                (Some(all), Some(done)) => all.add(done),
                (none, done) => *none = done.or(*none),
            }
            match &mut gate.latencies {
                // Histograms with the same digits can always be added.
                Some(all) => all.add(&latencies).unwrap_or_default(),
                none => *none = Some(latencies),
            }
        });
        // Until here the thread's context switches can be read.
        let _ = self.wait(|gate| gate.measured);
    }

    fn connect(&self) -> io::Result<N::Stream> {
        let stream = self.network.connect()?;
        self.bound(&stream)?;
        Ok(stream)
    }

    /// Sees to it that a call on the stream ends, if the run is to.
    fn bound(&self, stream: &N::Stream) -> io::Result<()> {
        if self.terms.bounded { stream.bound(PATIENCE) } else { Ok(()) }
    }

    /// Whether only a part of the run is measured.
    fn windowed(&self) -> bool {
        self.terms.warm_up.is_some()
    }

    fn try_ask(&self, latencies: &mut Histogram<u64>, own: &mut Own) -> io::Result<()> {
        let reconnect = matches!(self.terms.kind, Kind::Rr { reconnect: true, .. });
        let stream = if reconnect { None } else { Some(self.connect()?) };
        self.change(|gate| gate.connected += 1);
        if self.wait(|gate| gate.deadline.is_some()).is_err() {
            return Ok(());
        }
        let mut scratch = vec![0; SCRATCH_BYTES];
        match (self.terms.kind, stream) {
            (Kind::Send { message, bytes }, Some(stream)) => {
                let sent = self.send(&stream, &mut scratch, (message, bytes))?;
                stream.shutdown(Shutdown::Write)?;
                if !self.windowed() {
                    self.moved.add(sent);
                }
                receive(stream.io(), &mut scratch, |_| ())?;
            }
            (Kind::Receive { .. }, Some(stream)) => {
                self.receive(&stream, |count| self.moved.add(count))?;
            }
            (Kind::Rr { transactions, .. }, stream) => {
                let counts = (latencies, own);
                self.ask_often(stream.as_ref(), &mut scratch, transactions, counts)?;
            }
            (_, None) => {}
        }
        Ok(())
    }

    fn ask_often(
        &self,
        stream: Option<&N::Stream>,
        scratch: &mut Vec<u8>,
        transactions: u64,
        (latencies, own): (&mut Histogram<u64>, &mut Own),
    ) -> io::Result<()> {
        let Kind::Rr { sizes, .. } = self.terms.kind else { return Ok(()) };
        let mut stop = self.stop();
        for _ in 0..transactions {
            if stop() {
                break;
            }
            own.at(self.measuring.load(Ordering::Relaxed));
            let started = Instant::now();
            match stream {
                Some(stream) => exchange(stream.io(), scratch, sizes)?,
                None => {
                    let stream = self.connect()?;
                    exchange(stream.io(), scratch, sizes)?;
                    receive(stream.io(), scratch, |_| ())?;
                }
            }
            self.transactions.add(1);
            own.transactions += u64::from(own.begun.is_some());
            if self.measuring.load(Ordering::Relaxed) {
                let nanos = started.elapsed().as_nanos() as u64;
                // A histogram that grows by itself takes every value.
                let _ = latencies.record(nanos.max(1));
            }
        }
        own.end();
        Ok(())
    }

    /// Whether the time is over. Looking at the clock would weigh upon small writes, so a run with
    /// a window looks at a flag.
    fn stop(&self) -> impl FnMut() -> bool + '_ {
        let deadline = self.lock().deadline.flatten();
        move || {
            self.over.load(Ordering::Relaxed) || deadline.is_some_and(|end| Instant::now() >= end)
        }
    }

    /// Reads bulk data to its end.
    fn receive(&self, stream: &N::Stream, on_read: impl FnMut(u64)) -> io::Result<()> {
        let mut buffers: Vec<Vec<u8>> =
            (0..self.terms.read_buffers.max(1)).map(|_| vec![0; self.terms.read_bytes]).collect();
        receive_into(stream.io(), &mut buffers, on_read)
    }

    /// The server's side: one connection, or one after the other.
    fn serve(&self) {
        let _alarm = Alarm(self);
        let reconnect = matches!(self.terms.kind, Kind::Rr { reconnect: true, .. });
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            let stream = match self.network.accept() {
                Ok(stream) => stream,
                Err(error) => return self.fail(format!("the server cannot accept: {error}")),
            };
            let served = self.bound(&stream).and_then(|()| self.serve_one(&stream, &mut scratch));
            if let Err(error) = served {
                return self.fail(format!("a connection of the server failed: {error}"));
            }
            if !reconnect {
                break;
            }
        }
        let _ = self.wait(|gate| gate.measured);
    }

    /// Writes `bytes` bytes, `message` at a time, or until it is to stop. Returns how many.
    fn send(
        &self,
        stream: &N::Stream,
        scratch: &mut Vec<u8>,
        (message, bytes): (usize, u64),
    ) -> io::Result<u64> {
        let Some(buffer) = self.terms.write_buffer else {
            if self.terms.shared {
                return stream.send_shared(message, bytes, self.stop());
            }
            return send(stream.io(), scratch, message, bytes, self.stop());
        };
        let mut buffered = stream.buffered(buffer)?;
        let sent = send(&mut buffered, scratch, message, bytes, self.stop())?;
        buffered.flush()?;
        Ok(sent)
    }

    fn serve_one(&self, stream: &N::Stream, scratch: &mut Vec<u8>) -> io::Result<()> {
        match self.terms.kind {
            Kind::Send { .. } => self.receive(stream, |count| {
                if self.windowed() {
                    self.moved.add(count);
                }
            }),
            Kind::Receive { message, bytes } => {
                if self.wait(|gate| gate.deadline.is_some()).is_err() {
                    return Ok(());
                }
                self.send(stream, scratch, (message, bytes))?;
                stream.shutdown(Shutdown::Write)?;
                receive(stream.io(), scratch, |_| ())
            }
            Kind::Rr { sizes, reconnect, .. } => {
                let times = if reconnect { 1 } else { u64::MAX };
                let first = || {
                    if self.terms.gives_way {
                        std::thread::yield_now();
                    }
                };
                answer(stream.io(), scratch, sizes, times, first)
            }
        }
    }
}

#[cfg(test)]
mod tests;
