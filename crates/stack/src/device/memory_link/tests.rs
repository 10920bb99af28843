//! The link on virtual time.
#![cfg(not(loom))] // Links stand on hand-overs that loom lets exist in its models only.

use std::sync::Arc;

use super::*;
use crate::kick::Kick;
use crate::packet::tests::{Completions, charged, mark, marked, super_segment};

fn millis(n: u64) -> Instant {
    Instant::from_millis(n)
}

/// Both ends of a link, and the state that a test needs.
struct Bench {
    a: Device,
    b: Device,
    pool: Pool,
    queue: VecDeque<Packet>,
    done: Arc<Completions>,
}

impl Bench {
    fn new(config: LinkConfig) -> Bench {
        let (a, b) = pair(config);
        Bench { a, b, pool: Pool::new(), queue: VecDeque::new(), done: Completions::new() }
    }

    /// Queues packets with these marks, charged with the mark as serial number.
    fn queue(&mut self, marks: impl IntoIterator<Item = u8>) {
        for n in marks {
            let packet = charged(marked(&self.pool, n), &self.done, u64::from(n));
            self.queue.push_back(packet);
        }
    }

    fn send(&mut self, now: Instant) -> TxProgress {
        self.a.tx.transmit(now, &mut self.queue).unwrap()
    }

    fn take(&mut self, now: Instant, max: usize) -> Vec<Packet> {
        let mut out = Vec::new();
        let count = self.b.rx.receive(now, &self.pool, &mut out, max).unwrap();
        assert_eq!(count, out.len());
        out
    }

    fn marks(&mut self, now: Instant) -> Vec<u8> {
        self.take(now, usize::MAX).iter().map(mark).collect()
    }
}

/// 1 Mbit/s: a marked packet of 152 bytes takes 1216 microseconds.
fn slow() -> LinkConfig {
    LinkConfig { rate: Some(1_000_000), tx_ring: 3, ..LinkConfig::default() }
}

const PACKET_TIME: u64 = 1_216_000;

#[test]
fn by_reference_a_packet_completes_when_the_peer_takes_it() {
    let mut bench = Bench::new(LinkConfig::default());
    bench.queue([1, 2]);
    assert_eq!(bench.send(millis(1)), TxProgress::done(2));
    assert_eq!(bench.done.take(), []);
    assert_eq!(bench.b.rx.next_event(), Some(Instant::ZERO));
    assert_eq!(bench.take(millis(1), 1).len(), 1);
    assert_eq!(bench.done.take(), [1]);
    assert_eq!(bench.marks(millis(1)), [2]);
    assert_eq!(bench.done.take(), [2]);
    assert_eq!(bench.b.rx.next_event(), None);
}

#[test]
fn payload_is_shared_and_super_segments_stay_whole() {
    let mut bench = Bench::new(LinkConfig::default());
    let packet = super_segment(&bench.pool, 4, 1448, 40);
    let bytes = packet.payload.parts()[0].as_ptr();
    bench.queue.push_back(packet);
    bench.send(millis(0));
    let got = bench.take(millis(0), 8);
    assert_eq!(got[0].payload.parts()[0].as_ptr(), bytes);
    assert_eq!(got[0].gso.map(|gso| gso.segs), Some(40));
    assert_eq!(got[0].csum, ChecksumState::Partial);
    assert_eq!(bench.b.rx.stats().wire_segments, 40);
}

#[test]
fn a_full_queue_stops_the_sender_and_drops_nothing() {
    let mut bench = Bench::new(LinkConfig { queue_limit: 4, ..LinkConfig::default() });
    let kick = Kick::new().unwrap();
    bench.a.wait.install(&kick);
    bench.queue(0..10);
    let progress = bench.send(millis(0));
    assert_eq!((progress.packets, progress.status), (4, TxStatus::Busy));
    kick.announce(None);
    assert_eq!(bench.take(millis(0), 2).len(), 2);
    assert_eq!(kick.wakes(), 1, "the sender is told that there is room");
    kick.awake(true);
    let progress = bench.send(millis(0));
    assert_eq!((progress.packets, progress.status), (2, TxStatus::Busy));
    assert_eq!(bench.marks(millis(0)), [2, 3, 4, 5]);
    assert_eq!(bench.send(millis(0)), TxProgress::done(4));
    assert_eq!(bench.marks(millis(0)), [6, 7, 8, 9]);
    assert_eq!(bench.done.take(), (0..10).collect::<Vec<u64>>());
}

#[test]
fn the_receiver_is_kicked_once_per_batch_and_only_if_it_sleeps() {
    let mut bench = Bench::new(LinkConfig::default());
    let kick = Kick::new().unwrap();
    bench.b.wait.install(&kick);
    bench.queue(0..5);
    bench.send(millis(0));
    assert_eq!(kick.wakes(), 0);
    kick.announce(None);
    bench.queue(0..5);
    bench.send(millis(0));
    assert_eq!(kick.wakes(), 1);
}

#[test]
fn with_a_rate_completions_follow_the_clock() {
    let mut bench = Bench::new(slow());
    bench.queue(1..=2);
    assert_eq!(bench.send(millis(10)), TxProgress::done(2));
    let first = Instant::from_nanos(10_000_000 + PACKET_TIME);
    assert_eq!(bench.a.tx.next_event(), Some(first));
    assert_eq!(bench.a.tx.poll_completions(millis(11)).unwrap(), 0);
    assert_eq!(bench.marks(millis(11)), []);
    assert_eq!(bench.b.rx.next_event(), Some(first));
    assert_eq!(bench.a.tx.poll_completions(first).unwrap(), 1);
    assert_eq!(bench.done.take(), [1]);
    assert_eq!(bench.marks(first), [1]);
    // The second begins where the first ended, however late the poll is.
    let second = Instant::from_nanos(10_000_000 + 2 * PACKET_TIME);
    assert_eq!(bench.a.tx.next_event(), Some(second));
    assert_eq!(bench.a.tx.poll_completions(millis(99)).unwrap(), 1);
    assert_eq!(bench.done.take(), [2]);
    assert_eq!(bench.a.tx.next_event(), None);
}

#[test]
fn a_full_ring_stops_the_queue() {
    let mut bench = Bench::new(slow());
    bench.queue(0..5);
    let progress = bench.send(millis(0));
    assert_eq!((progress.packets, progress.status), (3, TxStatus::Busy));
    assert_eq!(bench.queue.len(), 2);
    let event = bench.a.tx.next_event().unwrap();
    assert_eq!(bench.send(event).packets, 1);
    assert_eq!(bench.a.tx.stats().dropped, 0);
}

#[test]
fn delay_comes_behind_the_last_bit() {
    let config = LinkConfig { delay: Duration::from_millis(5), ..slow() };
    let mut bench = Bench::new(config);
    bench.queue([1]);
    bench.send(millis(0));
    let arrives = Instant::from_nanos(5_000_000 + PACKET_TIME);
    assert_eq!(bench.b.rx.next_event(), Some(arrives));
    assert_eq!(bench.marks(Instant::from_nanos(arrives.as_nanos() - 1)), []);
    assert_eq!(bench.marks(arrives), [1]);
}

#[test]
fn a_super_segment_takes_the_time_of_all_its_headers() {
    let mut bench = Bench::new(LinkConfig { rate: Some(1_000_000_000), ..LinkConfig::default() });
    let packet = super_segment(&bench.pool, 4, 1000, 10);
    let bits = (packet.payload.len() + 10 * 52) as u64 * 8;
    bench.queue.push_back(packet);
    bench.send(millis(0));
    assert_eq!(bench.a.tx.next_event(), Some(Instant::from_nanos(bits)));
}

#[test]
fn packets_beyond_the_queue_limit_are_dropped_on_arrival() {
    let config =
        LinkConfig { delay: Duration::from_millis(1), queue_limit: 3, ..LinkConfig::default() };
    let mut bench = Bench::new(config);
    bench.queue(0..3);
    bench.send(millis(0));
    bench.queue(3..8);
    bench.send(millis(1));
    // Only the first three have arrived; those in flight do not count.
    assert_eq!(bench.take(millis(1), 1).len(), 1);
    assert_eq!(bench.marks(millis(2)), [1, 2, 3]);
    assert_eq!(bench.b.rx.stats().dropped, 4);
    assert_eq!(bench.done.take().len(), 8);
}

#[test]
fn a_packet_to_be_reordered_is_overtaken_and_not_lost() {
    let mut bench = Bench::new(LinkConfig { reorder: 0.3, seed: 5, ..LinkConfig::default() });
    bench.queue(0..50);
    bench.send(millis(1));
    let at_once = bench.marks(millis(1));
    let late = bench.marks(millis(2));
    assert_eq!(bench.a.tx.stats().reordered as usize, late.len());
    assert!(!late.is_empty() && at_once.len() + late.len() == 50);
    assert!(at_once.is_sorted() && late.is_sorted());
}

#[test]
fn without_offloads_the_receiver_must_verify() {
    let mut bench = Bench::new(LinkConfig { offloads: false, ..LinkConfig::default() });
    let caps = bench.a.tx.caps();
    assert!(!caps.tso4 && !caps.tso6 && !caps.tx_checksum);
    bench.queue([1]);
    crate::offload::checksum::fill(bench.queue.front_mut().unwrap());
    bench.send(millis(0));
    let got = bench.take(millis(0), 1);
    assert_eq!(got[0].csum, ChecksumState::Unverified);
    assert!(crate::offload::checksum::verify(&got[0]));
}

#[test]
fn when_one_end_has_gone_the_cable_is_cut() {
    let (mut a, b) = pair(LinkConfig { queue_limit: 2, ..LinkConfig::default() });
    let (pool, done) = (Pool::new(), Completions::new());
    let mut queue: VecDeque<_> = (1..=2).map(|n| charged(marked(&pool, n), &done, 1)).collect();
    a.tx.transmit(millis(0), &mut queue).unwrap();
    drop(b);
    assert_eq!(done.take().len(), 2, "what was under way is complete");
    for _ in 0..3 {
        queue.extend((1..=2).map(|n| charged(marked(&pool, n), &done, 1)));
        assert_eq!(a.tx.transmit(millis(0), &mut queue).unwrap(), TxProgress::done(2));
    }
    assert_eq!(done.take().len(), 6);
    assert_eq!(a.tx.stats().dropped, 6);
}

/// Everything that happens on a bad link in one run, as text.
fn run(seed: u64, polls_per_event: u64) -> Vec<(u64, u8, usize)> {
    let config = LinkConfig {
        rate: Some(10_000_000),
        delay: Duration::from_micros(300),
        loss: 0.1,
        reorder: 0.1,
        duplicate: 0.1,
        corrupt: 0.1,
        queue_limit: 20,
        seed,
        ..LinkConfig::default()
    };
    let mut bench = Bench::new(config);
    bench.queue(0..200);
    let mut now = Instant::ZERO;
    let mut seen = Vec::new();
    loop {
        bench.send(now);
        for packet in bench.take(now, usize::MAX) {
            seen.push((now.as_nanos(), mark(&packet), packet.len()));
        }
        let Some(next) = earlier(bench.a.tx.next_event(), bench.b.rx.next_event()) else {
            assert!(bench.queue.is_empty());
            return seen;
        };
        for _ in 1..polls_per_event {
            bench.a.tx.poll_completions(now).unwrap();
            assert_eq!(bench.take(now, 10).len(), 0);
        }
        now = next;
    }
}

#[test]
fn a_seed_gives_one_run() {
    let first = run(42, 1);
    assert!(first.len() > 150);
    assert_eq!(first, run(42, 1));
    assert_eq!(first, run(42, 3), "polling more often changes nothing");
    assert_ne!(first, run(43, 1));
}

#[test]
fn two_threads_pass_everything_in_order() {
    const COUNT: u32 = 20_000;
    let (mut a, mut b) = pair(LinkConfig { queue_limit: 16, ..LinkConfig::default() });
    let pool = Pool::new();
    let (room, work) = (Kick::new().unwrap(), Kick::new().unwrap());
    a.wait.install(&room);
    b.wait.install(&work);
    let sleep = |kick: &Kick| {
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(kick.fd(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        kick.awake(true);
    };
    let sender_pool = pool.clone();
    let sender = std::thread::spawn(move || {
        let mut queue = VecDeque::new();
        for n in 0..COUNT {
            let payload = sender_pool.copy_from(&n.to_be_bytes()).into();
            queue.push_back(Packet { payload, ..Packet::default() });
            while a.tx.transmit(millis(0), &mut queue).unwrap().status == TxStatus::Busy {
                room.announce(None);
                if a.tx.transmit(millis(0), &mut queue).unwrap().status == TxStatus::Busy {
                    sleep(&room);
                } else {
                    room.awake(false);
                    break;
                }
            }
        }
        a
    });
    let mut out = Vec::new();
    while out.len() < COUNT as usize {
        if b.rx.receive(millis(0), &pool, &mut out, 64).unwrap() > 0 {
            continue;
        }
        work.announce(None);
        if b.rx.receive(millis(0), &pool, &mut out, 64).unwrap() == 0 {
            sleep(&work);
        } else {
            work.awake(false);
        }
    }
    drop(sender.join().unwrap());
    for (n, packet) in out.iter().enumerate() {
        assert_eq!(packet.to_vec(), (n as u32).to_be_bytes());
    }
}

#[test]
fn what_is_no_probability_is_named() {
    let config = LinkConfig::default().reorder(1.01);
    let said = "link.reorder: 1.01 is no probability from 0 to 1";
    assert_eq!(config.check().unwrap_err().to_string(), said);
    assert_eq!(LinkConfig::default().check(), Ok(()));
    let made = std::panic::catch_unwind(|| pair_of(LinkConfig::default(), config));
    let thrown = made.map(drop).expect_err("such a link is not made");
    assert_eq!(thrown.downcast_ref::<String>().map(String::as_str), Some(said));
}
