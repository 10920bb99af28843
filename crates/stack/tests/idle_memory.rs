//! What an idle connection keeps on the heap: two stacks, one thread, a memory link, virtual time.
//!
//! This test has a process of its own. Small values share regions of memory with those of all other
//! stacks of the process, and a region counts for whoever opens it: beside other tests the figure
//! would depend on which of them came first.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use common::{A, B, settle, stack};
use plimsoll_stack::device::memory_link::{self, LinkConfig};
use plimsoll_stack::{Duration, Instant, TcpSocket};
use plimsoll_tcp::Options;

/// Connections that are opened, used once and left alone: so many that the last region of small
/// values, which is hardly ever full, is not much of an end.
const IDLE: usize = 4000;

/// Most bytes on the heap of one end of an idle connection, tables and regions included.
const IDLE_BYTES: usize = 1800;

#[test]
fn an_idle_connection_is_two_allocations_per_end() {
    let (left, right) = memory_link::pair(LinkConfig::default());
    let most = IDLE.to_string();
    let somaxconn = &[("net.core.somaxconn", &most[..])];
    let stacks = [stack(left, A, somaxconn), stack(right, B, somaxconn)];
    let mut now = Instant::from_millis(1000);
    let to = SocketAddr::new(IpAddr::V4(B), 80);
    let listener = stacks[1].listen(to, IDLE, Options::default()).expect("a listener");
    let mut sockets = Vec::with_capacity(2 * IDLE);
    let mut open_and_use = |count: usize| {
        let first = sockets.len();
        for _ in 0..count {
            sockets.push(stacks[0].connect(now, to, None, Options::default()).expect("a socket"));
        }
        settle(&stacks, now);
        while let Some((server, _)) = listener.accept(now).expect("the listener is open") {
            sockets.push(server);
        }
        assert_eq!(sockets.len(), first + 2 * count, "each was accepted");
        let opened: &[Arc<TcpSocket>] = &sockets[first..];
        opened.iter().for_each(|socket| assert_eq!(socket.write(now, b"!"), Ok(1)));
        settle(&stacks, now);
        opened.iter().for_each(|socket| assert_eq!(socket.read(now, &mut [0; 8]), Ok(1)));
        // The last ACKs leave, the connections rest, and then the stacks do.
        for _ in 0..40 {
            now += Duration::from_millis(100);
            settle(&stacks, now);
        }
    };
    // What stays with the stacks comes first.
    open_and_use(1);
    let seen = allocation_counter::measure(|| open_and_use(IDLE - 1));
    let ends = 2 * (IDLE as i64 - 1);
    let own = (2 * ends)..(2 * ends + ends / 2);
    // Beside the connection and the handle to it, the tables grow.
    assert!(own.contains(&seen.count_current), "{} of {ends} ends", seen.count_current);
    let each = seen.bytes_current / ends;
    assert!(each <= IDLE_BYTES as i64, "{each} bytes of an end");
}
