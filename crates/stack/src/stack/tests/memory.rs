//! The memory of connections.

use plimsoll_tcp::{Connection, Duration};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::sockets::endpoint::{Endpoint, Inner};

/// Connections that are open at once.
const COUNT: usize = 10_000;

#[test]
fn ten_thousand_idle_connections() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.core.somaxconn", "20000")]);
    let listener = pair.listen(B4, COUNT);
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    while clients.len() < COUNT {
        clients.extend((0..500).map(|_| pair.connect(B4)));
        pair.settle();
        while let Some((socket, _)) = listener.accept(pair.now).unwrap() {
            servers.push(socket);
        }
    }
    assert_eq!(servers.len(), COUNT);
    // Every connection has carried something.
    for (client, server) in clients.iter().zip(&servers) {
        client.write(pair.now, b"ping").unwrap();
        server.write(pair.now, b"pong").unwrap();
    }
    pair.settle();
    let mut got = Vec::new();
    for socket in clients.iter().chain(&servers) {
        drain(socket, pair.now, &mut got);
    }
    assert_eq!(got.len(), 8 * COUNT);
    pair.run(Duration::from_secs(1));
    for stack in [&pair.a, &pair.b] {
        let memory = stack.connection_memory();
        assert_eq!(memory.connections, COUNT);
        let each = memory.bytes / COUNT;
        println!("bytes per idle connection: {each}");
        println!(
            "  engine {}, inner {}, endpoint {}",
            size_of::<Connection>(),
            size_of::<Inner>(),
            size_of::<Endpoint>()
        );
        assert!(each < 4096, "{each} bytes per idle connection");
    }
    assert_eq!(pair.a.pool().stats().in_use_bytes, 0, "idle connections hold no buffers");
    drop((clients, servers));
    pair.run(Duration::from_secs(61));
    assert_eq!(pair.a.connection_memory().connections, 0);
}
