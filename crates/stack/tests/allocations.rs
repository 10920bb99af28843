//! The stack does not allocate per write, per packet or per read once it is warm: two stacks, one
//! thread, a memory link, virtual time.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use common::{A, B, settle, stack};
use plimsoll_stack::device::memory_link::{self, LinkConfig};
use plimsoll_stack::{Duration, Instant, Stack, TcpSocket};
use plimsoll_tcp::{Options, State};

struct World {
    stacks: [Arc<Stack>; 2],
    sockets: [Arc<TcpSocket>; 2],
    now: Instant,
    /// How far the time moves if nothing is due.
    step: Duration,
}

impl World {
    fn open(link: LinkConfig) -> World {
        World::open_with(link, &[])
    }

    fn open_with(link: LinkConfig, sysctls: &[(&str, &str)]) -> World {
        let step = link.delay.max(Duration::from_micros(100));
        let (left, right) = memory_link::pair(link);
        let stacks = [stack(left, A, sysctls), stack(right, B, sysctls)];
        let mut now = Instant::from_millis(1000);
        let to = SocketAddr::new(IpAddr::V4(B), 80);
        let listener = stacks[1].listen(to, 16, Options::default()).expect("a listener");
        let client = stacks[0].connect(now, to, None, Options::default()).expect("a socket");
        for _ in 0..100 {
            settle(&stacks, now);
            let accepted = listener.accept(now).expect("the listener is open");
            if let Some((server, _)) = accepted {
                assert_eq!(client.state(), State::Established);
                return World { stacks, sockets: [client, server], now, step };
            }
            now += step;
        }
        panic!("the connection never opens");
    }

    fn tick(&mut self) {
        settle(&self.stacks, self.now);
        self.now += self.step;
        settle(&self.stacks, self.now);
    }

    /// Socket `from` writes `data` in pieces of at most `piece` bytes; the other one reads it all.
    fn send(&mut self, from: usize, data: &[u8], piece: usize, out: &mut [u8]) {
        let (mut written, mut read) = (0, 0);
        while read < data.len() {
            while written < data.len() {
                let end = data.len().min(written + piece);
                match self.sockets[from].write(self.now, &data[written..end]) {
                    Ok(count) => written += count,
                    Err(_) => break,
                }
            }
            self.tick();
            while let Ok(count) = self.sockets[1 - from].read(self.now, out) {
                assert!(count > 0, "the stream has ended");
                read += count;
            }
        }
    }

    /// `round` allocates nothing after some repetitions.
    #[track_caller]
    fn assert_no_allocations(&mut self, mut round: impl FnMut(&mut World)) {
        for _ in 0..600 {
            round(self);
        }
        let before = self.segments();
        let seen = allocation_counter::measure(|| {
            for _ in 0..100 {
                round(self);
            }
        });
        let segments = self.segments() - before;
        assert!(segments >= 100, "only {segments} segments");
        assert_eq!(seen.count_total, 0, "{seen:?} for {segments} segments");
    }

    fn segments(&self) -> u64 {
        let sent = |stack: &Arc<Stack>| stack.counter("TcpOutSegs").expect("a counter");
        self.stacks.iter().map(sent).sum()
    }
}

#[test]
fn bulk_in_super_segments() {
    let mut world = World::open(LinkConfig::default());
    let (data, mut out) = (vec![7; 300_000], vec![0; 65_536]);
    world.assert_no_allocations(|world| world.send(0, &data, 65_536, &mut out));
}

/// A link at a rate, without offloads.
fn serialising() -> LinkConfig {
    LinkConfig::default().rate(Some(100_000_000)).delay(Duration::from_millis(1)).offloads(false)
}

#[test]
fn bulk_on_a_serialising_link_without_offloads() {
    bulk(World::open(serialising()));
}

#[test]
fn bulk_that_fair_queueing_paces() {
    let fq = &[("net.core.default_qdisc", "fq")];
    bulk(World::open_with(serialising(), fq));
    let world = World::open_with(serialising().offloads(true), fq);
    let stack = world.stacks[0].clone();
    bulk(world);
    let waits = stack.qdiscs()[0].fq.map(|fq| fq.throttled_events);
    assert!(waits.is_some_and(|waits| waits > 10), "{waits:?}");
}

fn bulk(mut world: World) {
    let (data, mut out) = (vec![7; 100_000], vec![0; 65_536]);
    // The pipe never runs dry: each round ends when the bytes of the round before have come.
    let (mut written, mut read) = (0, 0);
    world.assert_no_allocations(|world| {
        let goal = read + data.len();
        while read < goal {
            while written < goal + data.len() {
                match world.sockets[0].write(world.now, &data) {
                    Ok(count) => written += count,
                    Err(_) => break,
                }
            }
            world.tick();
            while let Ok(count) = world.sockets[1].read(world.now, &mut out) {
                read += count;
            }
        }
    });
}

#[test]
fn small_writes() {
    let mut world = World::open(LinkConfig::default());
    // Not more packets than an idle connection keeps room for: see the engine's test of a burst.
    let (data, mut out) = (vec![7; 128 * 64], vec![0; 65_536]);
    world.assert_no_allocations(|world| world.send(0, &data, 128, &mut out));
}

/// The pipe never runs dry, so that writes wait for completions, by themselves and in the engine.
fn corked_writes(sysctls: &[(&str, &str)]) {
    let link = LinkConfig::default()
        .rate(Some(1_000_000_000))
        .delay(Duration::from_micros(100))
        .tx_ring(4);
    let mut world = World::open_with(link, sysctls);
    let (data, mut out) = ([7; 128], vec![0; 65_536]);
    let (mut written, mut corked, mut read) = (0, 0, 0);
    world.assert_no_allocations(|world| {
        let goal = read + 20_000;
        while read < goal {
            while written < goal + 20_000 {
                if world.sockets[0].write_corked(&data) {
                    (written, corked) = (written + data.len(), corked + 1);
                    continue;
                }
                match world.sockets[0].write(world.now, &data) {
                    Ok(count) => written += count,
                    Err(_) => break,
                }
            }
            world.tick();
            while let Ok(count) = world.sockets[1].read(world.now, &mut out) {
                read += count;
            }
        }
    });
    assert!(corked * data.len() > read / 4, "only {corked} writes were corked");
    assert!(world.stacks[0].counter("TcpExtTCPAutoCorking").expect("a counter") > 100);
}

#[test]
fn writes_that_wait_for_completions() {
    corked_writes(&[]);
}

#[test]
fn writes_that_wait_for_completions_with_fair_queueing() {
    corked_writes(&[("net.core.default_qdisc", "fq")]);
}

#[test]
fn small_queues() {
    let limit = ("net.ipv4.tcp_limit_output_bytes", "1");
    corked_writes(&[limit]);
    let link = LinkConfig::default().rate(Some(1_000_000_000)).tx_ring(2);
    let mut world = World::open_with(link, &[limit]);
    let (data, mut out) = (vec![7; 100_000], vec![0; 65_536]);
    world.assert_no_allocations(|world| world.send(0, &data, 65_536, &mut out));
}

#[test]
fn requests_and_responses() {
    let mut world = World::open(LinkConfig::default());
    let mut out = vec![0; 65_536];
    world.assert_no_allocations(|world| {
        world.send(0, &[1], 1, &mut out);
        world.send(1, &[2; 4096], 4096, &mut out);
    });
}
