//! Writers that wait: for completions, for memory, for each other's rings. Real threads on both
//! sides of a link in memory, whose rings and limits are so small that almost every packet waits.
//! Every byte arrives, whatever the settings.
//!
//! Nothing here asserts how long something takes. The timeouts mean a failed test.
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Connector, Options, Stack, TcpListener, TcpStream};

/// Longer than any wait that ends.
const FOREVER: Duration = Duration::from_secs(60);

fn stacks(link: LinkConfig, sysctls: &[(&str, &str)]) -> (Stack, Stack) {
    let (here, there) = memory_link::pair(link);
    let build = |device, address: &str| {
        let mut builder = Stack::builder().device(device).address(address);
        for &(name, value) in sysctls {
            builder = builder.sysctl(name, value);
        }
        builder.build().unwrap()
    };
    (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"))
}

fn byte(at: u64, flow: usize) -> u8 {
    (at * 31 % 251) as u8 ^ flow as u8
}

/// Writes `total` bytes in writes of many sizes.
fn write_all(stream: &mut TcpStream, flow: usize, total: u64, largest: usize) {
    stream.set_write_timeout(Some(FOREVER)).unwrap();
    let (mut at, mut size) = (0, 1 + flow * 37);
    while at < total {
        size = (size * 7 + 11) % largest + 1;
        let end = total.min(at + size as u64);
        let data: Vec<u8> = (at..end).map(|at| byte(at, flow)).collect();
        stream.write_all(&data).unwrap();
        at = end;
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end of the stream and compares. Returns how many bytes came.
fn read_all(stream: &mut TcpStream, flow: usize) -> u64 {
    stream.set_read_timeout(Some(FOREVER)).unwrap();
    let (mut at, mut buf) = (0, vec![0; 10_000]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return at,
            Ok(count) => {
                for &got in &buf[..count] {
                    assert_eq!(got, byte(at, flow), "byte {at} of flow {flow}");
                    at += 1;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("flow {flow} stops after {at} bytes: {error}"),
        }
    }
}

struct Load {
    flows: usize,
    total: u64,
    largest: usize,
    options: Options,
}

impl Default for Load {
    fn default() -> Load {
        Load { flows: 3, total: 300_000, largest: 300, options: Options::default() }
    }
}

/// Each flow has a writer and a reader on both sides, so that data, ACKs and completions cross.
fn run(link: LinkConfig, sysctls: &[(&str, &str)], load: &Load) -> (Stack, Stack) {
    let (client, server) = stacks(link, sysctls);
    let listener = TcpListener::bind(&server, "192.0.2.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connector = Connector::new(&client).options(load.options.clone());
    let arrived = AtomicU64::new(0);
    for flow in 0..load.flows {
        let near = connector.connect(address).unwrap();
        let (far, _) = listener.accept().unwrap();
        let arrived = &arrived;
        thread::scope(|scope| {
            for stream in [near, far] {
                let mut reader = stream.try_clone().unwrap();
                scope.spawn(move || {
                    arrived.fetch_add(read_all(&mut reader, flow), Ordering::Relaxed);
                });
                let mut writer = stream;
                scope.spawn(move || write_all(&mut writer, flow, load.total, load.largest));
            }
        });
    }
    assert_eq!(arrived.into_inner(), 2 * load.flows as u64 * load.total);
    (client, server)
}

fn tiny_ring() -> LinkConfig {
    LinkConfig::default().rate(Some(2_000_000_000)).tx_ring(1)
}

fn counter(stack: &Stack, name: &str) -> u64 {
    stack.counters().into_iter().find(|&(other, _)| other == name).unwrap().1
}

#[test]
fn automatic_corking_over_a_ring_of_one() {
    let (client, _server) = run(tiny_ring(), &[], &Load::default());
    assert!(counter(&client, "TcpExtTCPAutoCorking") > 0);
}

#[test]
fn without_automatic_corking() {
    let (client, _server) =
        run(tiny_ring(), &[("net.ipv4.tcp_autocorking", "0")], &Load::default());
    assert_eq!(counter(&client, "TcpExtTCPAutoCorking"), 0);
}

#[test]
fn no_delay() {
    let options = Options::default().nodelay(true);
    run(tiny_ring(), &[], &Load { options, ..Load::default() });
}

#[test]
fn small_queues_of_next_to_nothing() {
    let load = Load { total: 2_000_000, largest: 60_000, ..Load::default() };
    run(tiny_ring(), &[("net.ipv4.tcp_limit_output_bytes", "1")], &load);
}

#[test]
fn a_send_buffer_of_next_to_nothing() {
    let options = Options::default().sndbuf(Some(4096));
    run(tiny_ring(), &[], &Load { options, largest: 20_000, ..Load::default() });
}

#[test]
fn a_link_that_completes_when_the_peer_takes() {
    let link = LinkConfig::default().queue_limit(1);
    let limit = [("net.ipv4.tcp_limit_output_bytes", "1")];
    run(link, &limit, &Load { total: 1_000_000, largest: 4000, ..Load::default() });
}

#[test]
fn without_offloads_every_segment_completes_by_itself() {
    let link = tiny_ring().offloads(false);
    run(link, &[], &Load { largest: 5000, ..Load::default() });
}

#[test]
fn fair_queueing_over_a_ring_of_one() {
    let load = Load { total: 500_000, largest: 10_000, ..Load::default() };
    let fq = ("net.core.default_qdisc", "fq");
    let (client, _server) = run(tiny_ring(), &[fq], &load);
    assert!(client.core().completions()[0].1);
    run(tiny_ring(), &[fq, ("net.ipv4.tcp_limit_output_bytes", "1")], &load);
    run(LinkConfig::default().queue_limit(1), &[fq], &load);
}

#[test]
fn a_link_that_loses() {
    let link = tiny_ring().loss(0.002);
    run(link, &[], &Load { flows: 2, largest: 3000, ..Load::default() });
}

/// All flows at once, and the stacks end while connections close.
#[test]
fn many_flows_at_once() {
    let (client, server) = stacks(tiny_ring(), &[]);
    let listener = TcpListener::bind(&server, "192.0.2.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        for flow in 0..16 {
            let mut near = TcpStream::connect(&client, address).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            scope.spawn(move || write_all(&mut near, flow, 100_000, 200));
            scope.spawn(move || assert_eq!(read_all(&mut far, flow), 100_000));
        }
    });
    client.drain(FOREVER);
}
