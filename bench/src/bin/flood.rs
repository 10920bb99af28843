//! `flood [RATE] [SECONDS] [LIMIT]`: a flood of SYNs on a link in memory, beside a bystander.
//!
//! A server stack and a client stack are joined by a link. A third party puts SYNs from random
//! sources into the client's end of it, RATE a second by the clock; they share the queue with what
//! the client sends, and what finds it full is lost. The answers to them are taken off the link and
//! counted. Meanwhile the client downloads, the server's pacing limiting it to LIMIT megabytes a
//! second, and connects anew every 100 ms. All is measured for SECONDS without the flood, then for
//! SECONDS with it, and printed as one line of JSON.
//!
//! It uses the public interface only, so that it can be built with older versions of the stack.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll::device::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress, memory_link,
};
use plimsoll::{Stack, TcpListener, TcpStream};
use plimsoll_buf::Pool;
use plimsoll_stack::packet::{ChecksumState, Head, Packet};
use serde_json::json;

const CLIENT: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const FLOODED: u16 = 80;
const BULK: u16 = 81;

/// Time between two batches of SYNs.
const BATCH: Duration = Duration::from_micros(100);

/// Time between two connects, and the time after which one has failed.
const CONNECT_EVERY: Duration = Duration::from_millis(100);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: f64| -> Result<f64> {
        words.get(at).map_or(Ok(default), |word| word.parse().context("a number"))
    };
    let rate = number(0, 1e6)?;
    let seconds = Duration::from_secs_f64(number(1, 5.0)?);
    let limit = number(2, 64.0)?;
    ensure!(rate > 0.0 && limit > 0.0, "RATE and LIMIT are more than 0");
    let world = World::new((limit * 1e6) as u64)?;
    let before = world.observe(seconds, None)?;
    let during = world.observe(seconds, Some(rate))?;
    world.done.store(true, Ordering::Relaxed);
    println!("{}", json!({ "before": before, "during": during }));
    Ok(())
}

/// The stacks, and what the bystander has seen.
struct World {
    client: Stack,
    end: Arc<SharedTx>,
    answers: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    _server: Stack,
}

impl World {
    fn new(limit: u64) -> Result<World> {
        let (here, there) = memory_link::pair(Default::default());
        let answers = Arc::new(AtomicU64::new(0));
        let (there, end) = share(there, answers.clone());
        let server = Stack::builder().device(here).address("192.0.2.1/24");
        let server = server.sysctl("net.ipv4.tcp_syncookies", "1").name("server").build()?;
        let client = Stack::builder().device(there).address("192.0.2.2/24").name("client");
        let client = client.build()?;
        let done = Arc::new(AtomicBool::new(false));
        accept(&server)?;
        bulk(&server, limit)?;
        let received = Arc::new(AtomicU64::new(0));
        download(&client, received.clone(), done.clone())?;
        Ok(World { client, end, answers, received, done, _server: server })
    }

    /// What a bystander gets for some time, with a flood of `rate` SYNs a second or without.
    fn observe(&self, time: Duration, rate: Option<f64>) -> Result<serde_json::Value> {
        let received = self.received.load(Ordering::Relaxed);
        let answers = self.answers.load(Ordering::Relaxed);
        let start = Instant::now();
        // A connect may take longer than the flood. What happens after the flood does not count.
        let flood = move || {
            let (offered, refused) = match rate {
                Some(rate) => self.end.flood(rate, time),
                None => {
                    thread::sleep(time);
                    (0, 0)
                }
            };
            let received = self.received.load(Ordering::Relaxed) - received;
            let answered = self.answers.load(Ordering::Relaxed) - answers;
            let elapsed = start.elapsed().as_secs_f64();
            [offered, refused, answered, received].map(|count| count as f64 / elapsed)
        };
        let (rates, connects) = thread::scope(|scope| {
            let flood = scope.spawn(flood);
            let connects = connect_often(&self.client, time);
            (flood.join().expect("the flood does not panic"), connects)
        });
        let [offered, refused, answered, received] = rates;
        let (tried, failed, longest) = connects;
        Ok(json!({
            "syns_offered_per_s": offered,
            "syns_refused_by_link_per_s": refused,
            "syns_answered_per_s": answered,
            "bystander_bytes_per_s": received,
            "connects": tried,
            "connects_failed": failed,
            "longest_connect_s": longest.as_secs_f64(),
        }))
    }
}

/// Takes connections on the flooded port and drops them.
fn accept(server: &Stack) -> Result<()> {
    let listener = TcpListener::bind(server, (std::net::Ipv4Addr::from(SERVER), FLOODED))?;
    thread::spawn(move || listener.incoming().for_each(drop));
    Ok(())
}

/// Sends without end to every peer that connects to the other port.
fn bulk(server: &Stack, limit: u64) -> Result<()> {
    let listener = TcpListener::bind(server, (std::net::Ipv4Addr::from(SERVER), BULK))?;
    thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_max_pacing_rate(Some(limit))?;
        let block = vec![0x5a; 65536];
        loop {
            stream.write_all(&block)?;
        }
    });
    Ok(())
}

/// Reads and counts until the end.
fn download(client: &Stack, count: Arc<AtomicU64>, done: Arc<AtomicBool>) -> Result<()> {
    let mut stream = TcpStream::connect(client, (std::net::Ipv4Addr::from(SERVER), BULK))?;
    thread::spawn(move || {
        let mut room = vec![0; 256 * 1024];
        while let Ok(taken @ 1..) = stream.read(&mut room) {
            count.fetch_add(taken as u64, Ordering::Relaxed);
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    Ok(())
}

/// Connects every now and then; returns how often, how often in vain, and the longest time.
fn connect_often(client: &Stack, time: Duration) -> (u32, u32, Duration) {
    let (mut tried, mut failed, mut longest) = (0, 0, Duration::ZERO);
    let address = (std::net::Ipv4Addr::from(SERVER), FLOODED).into();
    let start = Instant::now();
    while start.elapsed() < time {
        let began = Instant::now();
        tried += 1;
        if TcpStream::connect_timeout(client, &address, CONNECT_LIMIT).is_err() {
            failed += 1;
        }
        longest = longest.max(began.elapsed());
        thread::sleep(CONNECT_EVERY.saturating_sub(began.elapsed()));
    }
    (tried, failed, longest)
}

/// Lets somebody else than the stack send through the end of a link as well.
fn share(device: Device, answers: Arc<AtomicU64>) -> (Device, Arc<SharedTx>) {
    let caps = device.tx.caps().clone();
    let shared = Arc::new(SharedTx(Mutex::new(device.tx)));
    let tx = Box::new(Tx { caps, shared: shared.clone() });
    let rx = Box::new(Rx { inner: device.rx, answers });
    (Device { tx, rx, wait: device.wait }, shared)
}

/// The sending half that the client and the flood share.
struct SharedTx(Mutex<Box<dyn DeviceTx>>);

impl SharedTx {
    fn with<R>(&self, work: impl FnOnce(&mut dyn DeviceTx) -> R) -> R {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut())
    }

    /// Offers SYNs at a rate; returns how many, and how many the link had no room for.
    fn flood(&self, rate: f64, time: Duration) -> (u64, u64) {
        let (mut offered, mut refused, mut state) = (0_u64, 0_u64, 1_u64);
        let start = Instant::now();
        let mut queue = VecDeque::new();
        while start.elapsed() < time {
            let due = (start.elapsed().as_secs_f64() * rate) as u64;
            while offered < due {
                let count = (due - offered).min(64);
                queue.extend((0..count).map(|_| syn(&mut state)));
                offered += count;
                // An error is that the link has gone, which it does at the end only.
                let _ = self.with(|tx| tx.transmit(plimsoll::now(), &mut queue));
                refused += queue.len() as u64;
                queue.clear();
            }
            // The clock, not this sleep, decides how many follow.
            thread::sleep(BATCH);
        }
        (offered, refused)
    }
}

struct Tx {
    caps: Caps,
    shared: Arc<SharedTx>,
}

impl DeviceTx for Tx {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn transmit(
        &mut self,
        now: plimsoll::Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.shared.with(|tx| tx.transmit(now, queue))
    }

    fn poll_completions(&mut self, now: plimsoll::Instant) -> Result<usize, DeviceError> {
        self.shared.with(|tx| tx.poll_completions(now))
    }

    fn next_event(&self) -> Option<plimsoll::Instant> {
        self.shared.with(|tx| tx.next_event())
    }

    fn stats(&self) -> DeviceStats {
        self.shared.with(|tx| tx.stats())
    }
}

/// The receiving half, which takes away what is for others than the client.
struct Rx {
    inner: Box<dyn DeviceRx>,
    answers: Arc<AtomicU64>,
}

impl DeviceRx for Rx {
    fn receive(
        &mut self,
        now: plimsoll::Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let before = out.len();
        loop {
            let count = self.inner.receive(now, pool, out, max)?;
            let mut at = 0;
            out.retain(|packet| {
                at += 1;
                at <= before || packet.headers().get(16..20) == Some(CLIENT.as_slice())
            });
            let kept = out.len() - before;
            self.answers.fetch_add((count - kept) as u64, Ordering::Relaxed);
            // A batch of answers alone must not look like an empty link.
            if kept > 0 || count == 0 {
                return Ok(kept);
            }
        }
    }

    fn next_event(&self) -> Option<plimsoll::Instant> {
        self.inner.next_event()
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

/// A SYN from a random address and port of the subnet.
fn syn(state: &mut u64) -> Packet {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let random = (*state >> 24).to_be_bytes();
    let source = [192, 0, 2, 3 + random[3] % 250];
    let mut ip = [0_u8; 20];
    ip[..10].copy_from_slice(&[0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6]);
    ip[12..16].copy_from_slice(&source);
    ip[16..20].copy_from_slice(&SERVER);
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    let mut tcp = [0_u8; 24];
    tcp[..2].copy_from_slice(&[random[4] | 4, random[5]]);
    tcp[2..4].copy_from_slice(&FLOODED.to_be_bytes());
    tcp[4..8].copy_from_slice(&random[4..8]);
    // Data offset 6, SYN, window 65535; then the option MSS 1460.
    tcp[12..16].copy_from_slice(&[0x60, 0x02, 0xff, 0xff]);
    tcp[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    let mut head = Head::new();
    head.extend(ip.into_iter().chain(tcp));
    Packet { head, csum: ChecksumState::Verified, ..Packet::new() }
}
