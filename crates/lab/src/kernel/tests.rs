//! The kernel as a peer.

use std::io::{Read, Write};

use plimsoll::{Stack, TcpStream as OurStream};

use super::*;
use crate::workload::RequestResponse;

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_kernel_answers_and_leaves_nothing_behind() {
    let before = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let sizes = RequestResponse { request: 3, response: 5 };
    let kind = Kind::Rr { sizes, transactions: u64::MAX, reconnect: false };
    let (peer, device) = Peer::start(kind, 0, &[]).unwrap();
    let stack = Stack::builder().device(device).address(OURS).build().unwrap();
    let mut stream = OurStream::connect(&stack, peer.address()).unwrap();
    stream.write_all(b"ask").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    // A peer that is dropped in the middle ends at once.
    drop(peer);
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
}
