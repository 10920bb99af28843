//! Listeners with Fast Open.

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, Errno, Out};

const QUEUE: (i32, i32) = (SOL_TCP, TCP_FASTOPEN);

fn set_key(w: &mut World, fd: i32, key: &[u8]) -> Result<i64, Errno> {
    let (value, len) = (Some(key.to_vec()), key.len() as i32);
    w.call(B, Call::Setsockopt { fd, level: SOL_TCP, name: TCP_FASTOPEN_KEY, value, len })
}

fn key(w: &mut World, fd: i32, len: i32) -> Vec<u8> {
    let call = Call::Getsockopt { fd, level: SOL_TCP, name: TCP_FASTOPEN_KEY, len, null: false };
    match w.full(B, call).out {
        Out::Option { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

fn sysctl(w: &mut World, side: Side, name: &str, value: &str) {
    w.side(side).stack.sysctl().set(name, value).unwrap();
}

#[test]
fn queue_length_and_keys() {
    let mut w = World::new();
    let fd = w.socket(B, AF_INET);
    assert_eq!(w.get(B, fd, QUEUE), Ok(0));
    assert_eq!(w.set(B, fd, QUEUE, -1), Err(Errno::EINVAL));
    assert_eq!(w.set(B, fd, QUEUE, 100_000), Ok(0));
    assert_eq!(w.get(B, fd, QUEUE), Ok(4096), "somaxconn");
    assert_eq!(w.set(B, fd, QUEUE, 3), Ok(0));
    for len in [0, 3, 15, 17, 31, 33] {
        assert_eq!(set_key(&mut w, fd, &vec![1; len]), Err(Errno::EINVAL), "{len}");
    }
    assert_eq!(key(&mut w, fd, 32), [0_u8; 0]);
    sysctl(&mut w, B, "net.ipv4.tcp_fastopen_key", "1-2-3-4");
    assert_eq!(key(&mut w, fd, 4), [1, 0, 0, 0], "of all sockets");
    let own: Vec<u8> = (0..32).collect();
    assert_eq!(set_key(&mut w, fd, &own), Ok(0));
    assert_eq!(key(&mut w, fd, 32), own);
    assert_eq!(w.call(B, Call::Bind { fd, addr: addr(B4, 80) }), Ok(0));
    assert_eq!(w.call(B, Call::Listen { fd, backlog: 5 }), Ok(0));
    assert_eq!(w.get(B, fd, QUEUE), Ok(3));
    let (client, server) = {
        let fd = w.socket(A, AF_INET);
        let (connect, _) = w.sleeps(A, Call::Connect { fd, addr: addr(B4, 80) });
        assert_eq!(done(w.resume(A, connect)).result, Ok(0));
        (fd, w.fd(B, Call::Accept { fd: 3, flags: 0 }))
    };
    assert_eq!(w.set(B, server, QUEUE, 1), Err(Errno::EINVAL));
    assert_eq!(w.write(A, client, b"x"), Ok(1));
}

#[test]
fn data_of_the_syn_is_there_when_accept_returns() {
    let mut w = World::new();
    sysctl(&mut w, A, "net.ipv4.tcp_fastopen", "5");
    sysctl(&mut w, B, "net.ipv4.tcp_fastopen", "0x202");
    let listener = w.listener(B4);
    assert_eq!(w.set(B, listener, QUEUE, 1), Ok(0));
    let client = w.socket(A, AF_INET);
    let mut sendto = send(client, b"request", MSG_FASTOPEN | MSG_DONTWAIT);
    if let Call::Send { to, .. } = &mut sendto {
        *to = addr(B4, 80);
    }
    assert_eq!(w.call(A, sendto), Ok(7));
    let server = w.fd(B, Call::Accept { fd: listener, flags: 0 });
    assert_eq!(w.read(B, server, 100), Ok(b"request".to_vec()));
    assert_eq!(w.write(B, server, b"response"), Ok(8));
    assert_eq!(w.read(A, client, 100), Ok(b"response".to_vec()));
}
