//! Several softirq threads over a TUN device with as many queues, with the host's kernel as the
//! peer, in a network namespace of its own.
//!
//! Needs root, `unshare`, `ip` and `/dev/net/tun`. Plain `cargo test` lists the tests that need
//! them as ignored; `cargo xtask test` runs them where it can. Each of them starts this program
//! once more in a fresh namespace, which ends with it.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::device::tun::{self, Steering, TunConfig};
use plimsoll::{Stack, TcpListener, TcpStream};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::namespace::{ip, isolated};

const FLOWS: usize = 20;
const BYTES: usize = 1 << 20;

/// A stack with `queues` threads over a device with as many queues. The kernel is 192.0.2.1.
fn stack(queues: usize) -> Stack {
    stack_with(queues, Steering::Flow)
}

fn stack_with(queues: usize, steering: Steering) -> Stack {
    let config = TunConfig::default().name("tun0").up(true).steering(steering);
    let mut devices = tun::open_queues(config, queues).unwrap().into_iter();
    ip("address add 192.0.2.1/24 dev tun0");
    ip("address add 2001:db8::1/64 dev tun0 nodad");
    Stack::builder()
        .device(devices.next().unwrap())
        .more_queues(devices)
        .address("192.0.2.2/24")
        .address("2001:db8::2/64")
        .queues(queues)
        .build()
        .unwrap()
}

/// The bytes that flow `seed` carries.
fn pattern(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at ^ (at >> 8) ^ (at >> 16) ^ (seed * 37)) as u8).collect()
}

/// Sends the number of the flow and its bytes, and reads the same bytes back.
fn ask(mut reader: impl Read + Send, mut writer: impl Write, end: impl FnOnce(), seed: usize) {
    let data = pattern(seed);
    thread::scope(|scope| {
        let data = &data;
        let back = scope.spawn(move || {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).unwrap();
            assert!(back == *data, "flow {seed} comes back byte for byte");
        });
        writer.write_all(data).unwrap();
        end();
        back.join().unwrap();
    });
}

fn echo(mut stream: impl Read + Write) {
    let mut buf = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buf).unwrap() {
            0 => return,
            count => stream.write_all(&buf[..count]).unwrap(),
        }
    }
}

/// Half of the flows are opened by the kernel, half by us.
fn twenty_flows(stack: &Stack) {
    let ours = TcpListener::bind(stack, "192.0.2.2:80").unwrap();
    let theirs = std::net::TcpListener::bind("[::]:80").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let accept = || ours.accept().unwrap().0;
            let each: Vec<_> =
                (0..FLOWS / 2).map(|_| accept()).map(|s| scope.spawn(move || echo(s))).collect();
            each.into_iter().for_each(|thread| thread.join().unwrap());
        });
        scope.spawn(|| {
            for _ in 0..FLOWS / 2 {
                let (stream, _) = theirs.accept().unwrap();
                scope.spawn(move || echo(stream));
            }
        });
        for seed in 0..FLOWS / 2 {
            scope.spawn(move || {
                let target: SocketAddr = "192.0.2.2:80".parse().unwrap();
                let limit = Duration::from_secs(20);
                let stream = std::net::TcpStream::connect_timeout(&target, limit).unwrap();
                stream.set_read_timeout(Some(limit)).unwrap();
                ask(&stream, &stream, || stream.shutdown(Shutdown::Write).unwrap(), seed);
            });
            scope.spawn(move || {
                let target = ["192.0.2.1:80", "[2001:db8::1]:80"][seed % 2];
                let stream = TcpStream::connect(stack, target).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let end = || stream.shutdown(Shutdown::Write).unwrap();
                ask(&stream, &stream, end, FLOWS + seed);
            });
        }
    });
}

fn counter(stack: &Stack, name: &str) -> u64 {
    stack.counters().into_iter().find(|&(known, _)| known == name).unwrap().1
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn two_queues_carry_twenty_flows_with_the_kernel() {
    isolated("queues::two_queues_carry_twenty_flows_with_the_kernel", || {
        let stack = stack(2);
        twenty_flows(&stack);
        let stats = stack.core().device_stats();
        let received = |name: &str| stats.iter().find(|each| each.0 == name).unwrap().2.bytes;
        assert!(received("tun0") > 0 && received("tun0#1") > 0, "both queues carry: {stats:?}");
        let (misses, all) = (counter(&stack, "plimsoll.QueueMisses"), counter(&stack, "TcpInSegs"));
        eprintln!("{misses} of {all} segments came elsewhere");
        assert!(misses < all / 20, "flows stay at home: {misses} of {all}");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn queues_by_processor_carry_as_well() {
    isolated("queues::queues_by_processor_carry_as_well", || {
        let stack = stack_with(2, Steering::Processor);
        twenty_flows(&stack);
        let (misses, all) = (counter(&stack, "plimsoll.QueueMisses"), counter(&stack, "TcpInSegs"));
        let moves = counter(&stack, "plimsoll.QueueMoves");
        eprintln!("{misses} of {all} segments came elsewhere, {moves} moves");
    });
}

/// Processors of this thread that queues 0 and 1 of two are for.
fn processors() -> Option<[usize; 2]> {
    let usable = sched_getaffinity(None).unwrap();
    let of = |queue| (queue..CpuSet::MAX_CPU).step_by(2).find(|&cpu| usable.is_set(cpu));
    Some([of(0)?, of(1)?])
}

fn stay_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_connection_follows_the_processor_of_its_peer() {
    isolated("queues::a_connection_follows_the_processor_of_its_peer", || {
        let Some(processors) = processors() else {
            return eprintln!("one processor: there is nothing to follow");
        };
        let stack = stack_with(2, Steering::Processor);
        let listener = TcpListener::bind(&stack, "192.0.2.2:80").unwrap();
        stay_on(processors[0]);
        let mut theirs = std::net::TcpStream::connect("192.0.2.2:80").unwrap();
        let (mut ours, _) = listener.accept().unwrap();
        for queue in [0, 1, 0] {
            stay_on(processors[queue]);
            // It stays for 10 ms at least where it is.
            thread::sleep(Duration::from_millis(30));
            for _ in 0..3 {
                theirs.write_all(b"question").unwrap();
                ours.read_exact(&mut [0; 8]).unwrap();
                ours.write_all(b"answer").unwrap();
                theirs.read_exact(&mut [0; 6]).unwrap();
            }
            assert_eq!(ours.queue(), queue);
        }
        assert_eq!(counter(&stack, "plimsoll.QueueMoves"), 2);
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn one_queue_does_as_well() {
    isolated("queues::one_queue_does_as_well", || {
        let stack = stack(1);
        twenty_flows(&stack);
        assert_eq!(counter(&stack, "plimsoll.QueueMisses"), 0);
    });
}

#[test]
fn more_threads_than_queues_do_no_harm() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let build = |device, address: &str, queues| {
        Stack::builder().device(device).address(address).queues(queues).build().unwrap()
    };
    let (client, server) = (build(here, "192.0.2.1/24", 3), build(there, "192.0.2.2/24", 1));
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    let flow = || {
        let near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
        let (far, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || echo(far));
            ask(&near, &near, || near.shutdown(Shutdown::Write).unwrap(), 7);
        });
    };
    (0..4).for_each(|_| flow());
    assert_eq!(client.core().queue_count(), 3);
    // Connections that are on their way to their end are waited for by all threads together.
    assert!(client.drain(Duration::from_secs(600)));
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_stack_without_a_thread_polls_all_queues_of_its_devices() {
    isolated("queues::a_stack_without_a_thread_polls_all_queues_of_its_devices", || {
        let config = TunConfig::default().name("tun0").up(true);
        let mut devices = tun::open_queues(config, 2).unwrap().into_iter();
        ip("address add 192.0.2.1/24 dev tun0");
        let stack = Stack::builder()
            .device(devices.next().unwrap())
            .more_queues(devices)
            .address("192.0.2.2/24")
            .queues(2)
            .build_without_thread()
            .unwrap();
        assert_eq!(stack.queue_count(), 2);
        let listener = TcpListener::bind(&stack, "192.0.2.2:80").unwrap();
        listener.set_nonblocking(true).unwrap();
        let peers: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| std::net::TcpStream::connect("192.0.2.2:80").unwrap()))
            .collect();
        let mut accepted = Vec::new();
        while accepted.len() < peers.len() {
            let polled = stack.poll();
            match listener.accept() {
                Ok((stream, _)) => accepted.push(stream),
                Err(_) if polled.worked => {}
                Err(_) => stack.wait(polled.next, || false).unwrap(),
            }
        }
        peers.into_iter().for_each(|peer| drop(peer.join().unwrap()));
    });
}
