//! Workloads on threads: every socket has a blocking thread, every stack a softirq thread.
//!
//! Threads stay alive until the run has been measured, so that what they cost can still be read.
//! After a failure they are left behind; the process is about to end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use plimsoll::{Connector, TcpListener, TcpStream};

use super::measure::{Measured, Snapshot};
use super::{Kind, Workload};
use crate::event_loop::SCRATCH_BYTES;
use crate::requester::new_histogram;
use crate::workload::RequestResponse;

/// What all threads of a run share.
struct Run {
    kind: Kind,
    remote: std::net::SocketAddr,
    connector: Connector,
    gate: Mutex<Gate>,
    changed: Condvar,
    moved: AtomicU64,
    transactions: AtomicU64,
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
}

/// Runs the workload.
pub(super) fn run(workload: &Workload) -> anyhow::Result<Measured> {
    let options = workload.options.clone();
    let run = Arc::new(Run {
        kind: workload.kind,
        remote: workload.remote,
        connector: Connector::new(&workload.client).options(options),
        gate: Mutex::default(),
        changed: Condvar::new(),
        moved: AtomicU64::new(0),
        transactions: AtomicU64::new(0),
    });
    let flows = workload.flows;
    if let Some(server) = &workload.server {
        let listener = workload.listener(server)?;
        for index in 0..flows {
            let (listener, run) = (listener.try_clone()?, run.clone());
            spawn(format!("server-{index}"), move || run.serve(&listener))?;
        }
    }
    for index in 0..flows {
        let run = run.clone();
        spawn(format!("client-{index}"), move || run.ask())?;
    }
    run.wait(|gate| gate.connected == flows)?;
    let before = Snapshot::take(workload);
    let start = Instant::now();
    let deadline = workload.limit().and_then(|length| start.checked_add(length));
    run.change(|gate| gate.deadline = Some(deadline));
    run.wait(|gate| gate.finished == flows)?;
    let elapsed = start.elapsed();
    let after = Snapshot::take(workload);
    run.change(|gate| gate.measured = true);
    let latencies = run.lock().latencies.take().unwrap_or_else(new_histogram);
    let moved = (run.moved.load(Ordering::Relaxed), run.transactions.load(Ordering::Relaxed));
    Ok(Measured::between(&before, &after, elapsed, moved, latencies))
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?;
    Ok(())
}

impl Run {
    fn lock(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Gate)) {
        change(&mut self.lock());
        self.changed.notify_all();
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

    /// The client's side of one flow.
    fn ask(&self) {
        let mut latencies = new_histogram();
        if let Err(error) = self.try_ask(&mut latencies) {
            let remote = self.remote;
            let message = format!("the connection to {remote} failed: {error}");
            self.change(|gate| gate.error = Some(message));
            return;
        }
        self.change(|gate| {
            gate.finished += 1;
            match &mut gate.latencies {
                // Histograms with the same digits can always be added.
                Some(all) => all.add(&latencies).unwrap_or_default(),
                none => *none = Some(latencies),
            }
        });
        // Until here the thread's context switches can be read.
        let _ = self.wait(|gate| gate.measured);
    }

    fn try_ask(&self, latencies: &mut Histogram<u64>) -> io::Result<()> {
        let reconnect = matches!(self.kind, Kind::Rr { reconnect: true, .. });
        let stream = if reconnect { None } else { Some(self.connector.connect(self.remote)?) };
        self.change(|gate| gate.connected += 1);
        if self.wait(|gate| gate.deadline.is_some()).is_err() {
            return Ok(());
        }
        let deadline = self.lock().deadline.flatten();
        let mut scratch = vec![0; SCRATCH_BYTES];
        match (self.kind, stream) {
            (Kind::Send { message, bytes }, Some(stream)) => {
                let sent = send(&stream, &mut scratch, message, bytes, deadline)?;
                self.moved.fetch_add(sent, Ordering::Relaxed);
                receive(&stream, &mut scratch)?;
            }
            (Kind::Receive { .. }, Some(stream)) => {
                let received = receive(&stream, &mut scratch)?;
                self.moved.fetch_add(received, Ordering::Relaxed);
            }
            (Kind::Rr { sizes, transactions, .. }, stream) => {
                let over = |done| {
                    done == transactions || deadline.is_some_and(|end| Instant::now() >= end)
                };
                let mut done = 0;
                while !over(done) {
                    let started = Instant::now();
                    match &stream {
                        Some(stream) => exchange(stream, &mut scratch, sizes)?,
                        None => {
                            let stream = self.connector.connect(self.remote)?;
                            exchange(&stream, &mut scratch, sizes)?;
                            receive(&stream, &mut scratch)?;
                        }
                    }
                    let nanos = started.elapsed().as_nanos() as u64;
                    // A histogram that grows by itself takes every value.
                    let _ = latencies.record(nanos.max(1));
                    done += 1;
                }
                self.transactions.fetch_add(done, Ordering::Relaxed);
            }
            (_, None) => {}
        }
        Ok(())
    }

    /// The server's side: one connection, or one after the other.
    fn serve(&self, listener: &TcpListener) {
        let reconnect = matches!(self.kind, Kind::Rr { reconnect: true, .. });
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            // What goes wrong here shows at the client.
            let Ok((stream, _)) = listener.accept() else { return };
            let _ = self.serve_one(&stream, &mut scratch);
            if !reconnect {
                break;
            }
        }
        let _ = self.wait(|gate| gate.measured);
    }

    fn serve_one(&self, stream: &TcpStream, scratch: &mut Vec<u8>) -> io::Result<()> {
        match self.kind {
            Kind::Send { .. } => receive(stream, scratch).map(drop),
            Kind::Receive { message, bytes } => {
                if self.wait(|gate| gate.deadline.is_some()).is_err() {
                    return Ok(());
                }
                let deadline = self.lock().deadline.flatten();
                send(stream, scratch, message, bytes, deadline)?;
                receive(stream, scratch).map(drop)
            }
            Kind::Rr { sizes, reconnect, .. } => {
                let RequestResponse { request, response } = sizes;
                scratch.resize(request.max(response), 0);
                let mut stream = stream;
                loop {
                    match stream.read_exact(&mut scratch[..request]) {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return Ok(());
                        }
                        other => other?,
                    }
                    stream.write_all(&scratch[..response])?;
                    if reconnect {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Writes `bytes` bytes, or until the deadline, and ends the direction.
fn send(
    mut stream: &TcpStream,
    scratch: &mut Vec<u8>,
    message: usize,
    bytes: u64,
    deadline: Option<Instant>,
) -> io::Result<u64> {
    scratch.resize(message.max(scratch.len()), 0);
    let mut sent = 0;
    while sent < bytes && deadline.is_none_or(|end| Instant::now() < end) {
        let want = (bytes - sent).min(message as u64) as usize;
        stream.write_all(&scratch[..want])?;
        sent += want as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Reads to the end of the stream.
fn receive(mut stream: &TcpStream, scratch: &mut [u8]) -> io::Result<u64> {
    let mut received = 0;
    loop {
        match stream.read(scratch)? {
            0 => return Ok(received),
            count => received += count as u64,
        }
    }
}

fn exchange(
    mut stream: &TcpStream,
    scratch: &mut Vec<u8>,
    sizes: RequestResponse,
) -> io::Result<()> {
    scratch.resize(sizes.request.max(sizes.response).max(scratch.len()), 0);
    stream.write_all(&scratch[..sizes.request])?;
    stream.read_exact(&mut scratch[..sizes.response])
}
