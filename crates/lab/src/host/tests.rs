//! The host's own TCP.

use std::time::Duration;

use super::*;
use crate::workload::RequestResponse;

const BRIEF: Plan = Plan {
    flows: None,
    pairs: 1,
    again: 0,
    headlines: false,
    until: None,
    length: Duration::from_millis(50),
    warm_up: Duration::from_millis(20),
    captures: None,
    kernel: true,
};

const SIZES: RequestResponse = RequestResponse { request: 4096, response: 4096 };

/// A run in which something happened. On a busy machine a short one may see nothing.
fn measure(stage: &Stage, kind: Kind, flows: u32) -> Measured {
    for factor in [1, 10, 100] {
        let plan = Plan { length: BRIEF.length * factor, ..BRIEF };
        let measured = stage.measure(&plan, kind, flows).unwrap();
        if measured.bytes > 0 || measured.transactions > 0 {
            return measured;
        }
    }
    panic!("nothing happens");
}

/// What a run must not change: the namespace, the devices in it, and the settings used here.
fn state() -> Vec<String> {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let devices = devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let mut state: Vec<String> = devices.map(|name| name.trim().to_owned()).collect();
    state.push(namespace.display().to_string());
    for name in ["net.ipv4.tcp_autocorking", "net.ipv4.tcp_backlog_ack_defer"] {
        state.extend(namespace::get(name));
    }
    state
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn transactions_have_figures() {
    let before = state();
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let stage = Stage { cpus: [0, 1], ..Stage::default() };
    let measured = measure(&stage, kind, 3);
    let figures = measured.figures(&kind);
    let packets = figures.packets_per_transaction.unwrap();
    // A request and perhaps some ACKs; one that was under way at either end counts in part.
    assert!((0.9..=4.0).contains(&packets), "{packets}");
    assert!(figures.octets_per_packet.unwrap() > 1000.0);
    assert!(figures.latency_us.is_some() && figures.cpu_seconds.is_some());
    assert_eq!(figures.backlog_drops, Some(0));
    assert_eq!(figures.super_segments, None, "the kernel does not tell");
    assert!(figures.counters["TcpExtTCPOrigDataSent"] >= measured.transactions);
    assert!(measured.asking().unwrap().transactions > 0);
    assert_eq!(state(), before);
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn bulk_data_both_ways() {
    let big = Buffers { sndbuf: Some(4 << 20), rcvbuf: Some(4 << 20) };
    let endless = u64::MAX;
    for (kind, shared) in [
        (Kind::Send { message: 128, bytes: endless }, false),
        (Kind::Receive { message: 256 << 10, bytes: endless }, false),
        (Kind::Receive { message: 256 << 10, bytes: endless }, true),
    ] {
        let stage = Stage { shared, quickack: true, client: big, server: big, ..Stage::default() };
        let measured = measure(&stage, kind, 2);
        let figures = measured.figures(&kind);
        assert!(figures.throughput_bits_per_s.unwrap() > 0.0);
        assert!(figures.acks_per_gigabyte.unwrap() > 0.0);
    }
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_stream_with_an_end_is_counted_from_beginning_to_end() {
    let bytes = 100 * 5793;
    let kind = Kind::Send { message: 5793, bytes };
    let stage = Stage { client: Buffers { sndbuf: Some(7240), rcvbuf: None }, ..Stage::default() };
    let measured = stage.measure(&BRIEF, kind, 1).unwrap();
    assert_eq!(measured.bytes, bytes);
    let segments = measured.client_counters()["TcpExtTCPOrigDataSent"];
    assert!(segments >= bytes.div_ceil(1448), "{segments}");
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn settings_are_those_of_the_new_namespaces() {
    let before = state();
    let name = "net.ipv4.tcp_autocorking";
    let other = if namespace::get(name).unwrap() == "0" { "1" } else { "0" };
    assert!(has(name).unwrap() && !has("net.ipv4.no_such_setting").unwrap());
    let settings = [(name, other)];
    let pair = Pair::new(&Stage { settings: &settings, ..Stage::default() }).unwrap();
    for namespace in [&pair.client, &pair.server] {
        assert_eq!(namespace.inside(|| namespace::get(name)).unwrap(), other);
    }
    assert_eq!(state(), before);
    // Where setting up fails, nothing is left either.
    let settings = [("net.ipv4.no_such_setting", "1")];
    assert!(Pair::new(&Stage { settings: &settings, ..Stage::default() }).is_err());
    assert_eq!(state(), before);
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_run_that_fails_ends_all_its_threads_and_sockets() {
    let before = state();
    let pair = Pair::new(&Stage::default()).unwrap();
    let inside =
        pair.client.inside(|| Ok(std::fs::read_link("/proc/thread-self/ns/net")?)).unwrap();
    let listener = pair.server.inside(|| Buffers::default().listen(SERVER, PORT)).unwrap();
    let counters = [pair.client.counters().unwrap(), pair.server.counters().unwrap()];
    // Nobody listens there.
    let nowhere = SocketAddrV4::new(SERVER, PORT + 1);
    let network = Network::new(nowhere, Buffers::default(), listener, counters);
    let kind = Kind::Rr { sizes: SIZES, transactions: u64::MAX, reconnect: false };
    let terms = terms(&Stage::default(), &BRIEF, kind, 2);
    let Err(error) = pair.client.inside(|| threads::run(terms, network)) else {
        panic!("it should fail");
    };
    assert!(format!("{error:#}").contains("failed"), "{error:#}");
    // Threads are in the namespace of who started them, and these all have ended: but one that has
    // been joined is still seen for a moment.
    let is_inside = |task: &std::fs::DirEntry| {
        std::fs::read_link(task.path().join("ns/net")).is_ok_and(|namespace| namespace == inside)
    };
    let count =
        || std::fs::read_dir("/proc/self/task").unwrap().flatten().filter(is_inside).count();
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while count() > 0 {
        assert!(std::time::Instant::now() < deadline, "{} threads are left", count());
        std::thread::yield_now();
    }
    assert_eq!(state(), before);
}
