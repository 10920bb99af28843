//! The cost of peers that do not read, while memory is short.

use std::sync::Arc;

use plimsoll_tcp::{Duration, SetOption};

use super::harness::*;
use crate::{Listener, TcpSocket};

/// Opens `count` connections whose client reads nothing; `b` has written all that it may.
fn hogs(
    pair: &mut Pair,
    listener: &Listener,
    count: usize,
) -> Vec<(Arc<TcpSocket>, Arc<TcpSocket>)> {
    let data = vec![7; 1 << 20];
    let open = |pair: &mut Pair| {
        let (client, server) = pair.open(B4, listener);
        server.set_option(pair.now, SetOption::SndBuf(1 << 20));
        feed(&server, pair.now, &data, &mut 0);
        (client, server)
    };
    let hogs: Vec<_> = (0..count).map(|_| open(pair)).collect();
    for _ in 0..20 {
        pair.run(Duration::from_millis(500));
        for (_, server) in &hogs {
            feed(server, pair.now, &data, &mut 0);
        }
    }
    hogs
}

/// The cost of a bystander's transfer of `len` bytes: segments, packets, polls, sockets visited.
fn bystander(pair: &mut Pair, listener: &Listener, len: usize) -> [u64; 4] {
    let (client, server) = pair.open(B4, listener);
    let names = ["TcpOutSegs", "IpOutRequests", "plimsoll.Polls"];
    let before = names.map(|name| pair.counter(name).1);
    let visited = pair.b.pollers.visited();
    let (data, mut at, mut got) = (pattern(len, 1), 0, Vec::new());
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        feed(&server, pair.now, &data, &mut at);
        drain(&client, pair.now, &mut got);
        got.len() == len
    });
    assert!(done, "{} of {len}", got.len());
    let after = names.map(|name| pair.counter(name).1);
    let visited = pair.b.pollers.visited() - visited;
    [after[0] - before[0], after[1] - before[1], after[2] - before[2], visited]
}

#[test]
fn a_bystander_does_not_pay_for_peers_that_read_nothing() {
    const LEN: usize = 8 << 20;
    let run = |count, mem: &str| {
        let mut pair = Pair::with(Default::default(), &[("net.core.somaxconn", "4096")]);
        pair.b.set_sysctl(pair.now, "net.ipv4.tcp_mem", mem).unwrap();
        let listener = pair.listen(B4, 4096);
        let _hogs = hogs(&mut pair, &listener, count);
        assert_eq!(pair.b.memory().pressure, count > 0);
        let cost = bystander(&mut pair, &listener, LEN);
        println!("{count}: {cost:?}");
        cost
    };
    let alone = run(0, "12288 16384 24576");
    let among = run(300, "12288 16384 24576");
    let [_, packets, polls, visited] = among;
    // Buffers are small under pressure, but no smaller than a share.
    assert!(packets <= 5 * alone[1], "{alone:?} {among:?}");
    assert!(polls <= 4 * alone[2], "{alone:?} {among:?}");
    assert_eq!(visited, 0, "nobody asks those who wait, as nothing changes for them");
}
