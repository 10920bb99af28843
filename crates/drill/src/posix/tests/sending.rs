//! Writing: space, pointers, errors, the error queue, data in the SYN.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, Errno, Out, SendVia, Source};

fn from(fd: i32, buffers: Vec<Source>) -> Call {
    let via = SendVia::Sendmsg;
    Call::Send { via, fd, buffers, flags: MSG_DONTWAIT, to: None, control: Vec::new() }
}

#[test]
fn a_writer_sleeps_until_a_third_is_free() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!(w.set(A, client, (SOL_SOCKET, SO_SNDBUF), 20_000), Ok(0));
    assert_eq!(w.get(A, client, (SOL_SOCKET, SO_SNDBUF)), Ok(40_000));
    assert_eq!(w.set(B, server, (SOL_SOCKET, SO_RCVBUF), 20_000), Ok(0));
    let (mut write, _) = w.sleeps(A, send(client, &[5; 500_000], 0));
    let mut read = 0;
    let sent = loop {
        match w.resume(A, write) {
            crate::posix::Progress::Done(reply) => break reply.result,
            crate::posix::Progress::Blocked { pending, .. } => write = pending,
        }
        read += w.read(B, server, 1 << 20).map_or(0, |data| data.len());
        w.run(Duration::from_millis(50));
    };
    assert_eq!(sent, Ok(500_000));
    for _ in 0..100 {
        w.run(Duration::from_millis(50));
        read += w.read(B, server, 1 << 20).map_or(0, |data| data.len());
    }
    assert_eq!(read, 500_000);
}

#[test]
fn partial_writes() {
    let mut w = World::new();
    let (client, _) = w.open();
    w.nonblocking(A, client);
    let now = w.now;
    let write = |w: &mut World| match w.a.call(now, send(client, &[1; 10_000_000], 0)) {
        crate::posix::Progress::Done(reply) => reply.result,
        crate::posix::Progress::Blocked { .. } => panic!("it sleeps"),
    };
    let first = write(&mut w);
    assert!((1000..5_000_000).contains(&first.unwrap()), "{first:?}");
    assert_eq!(write(&mut w), Err(Errno::EAGAIN));
}

#[test]
fn bad_pointers() {
    let mut w = World::new();
    let (client, server) = w.open();
    let bytes = |text: &[u8]| Source::Bytes(text.to_vec());
    assert_eq!(w.call(A, from(client, vec![Source::Null(5)])), Err(Errno::EFAULT));
    let mixed = vec![Source::Null(0), bytes(b"ab"), Source::Null(3), bytes(b"cd")];
    let call = Call::Send {
        via: SendVia::Writev,
        fd: client,
        buffers: mixed,
        flags: 0,
        to: None,
        control: Vec::new(),
    };
    assert_eq!(w.call(A, call), Ok(2), "what came before it");
    assert_eq!(w.read(B, server, 9), Ok(b"ab".to_vec()));
    let fresh = w.socket(A, AF_INET);
    assert_eq!(w.call(A, from(fresh, vec![Source::Null(5)])), Err(Errno::EPIPE));
    assert_eq!(w.call(A, from(fresh, vec![])), Err(Errno::EPIPE));
    assert_eq!(w.call(A, from(client, vec![])), Ok(0));
    assert_eq!(w.call(A, from(99, vec![])), Err(Errno::EBADF));
}

#[test]
fn while_the_connection_opens() {
    let mut w = World::new();
    w.listener(B4);
    let fd = w.socket(A, AF_INET);
    w.nonblocking(A, fd);
    let now = w.now;
    let call = |w: &mut World, call: Call| match w.a.call(now, call) {
        crate::posix::Progress::Done(reply) => reply.result,
        crate::posix::Progress::Blocked { .. } => panic!("it sleeps"),
    };
    let connect = Call::Connect { fd, addr: addr(B4, 80) };
    assert_eq!(call(&mut w, connect), Err(Errno::EINPROGRESS));
    assert_eq!(call(&mut w, send(fd, b"x", 0)), Err(Errno::EAGAIN));
    assert_eq!(call(&mut w, receive(fd, 1, 0)), Err(Errno::EAGAIN));
    assert_eq!(call(&mut w, Call::Getpeername { fd }), Err(Errno::ENOTCONN));
    assert_eq!(call(&mut w, Call::Shutdown { fd, how: SHUT_RDWR }), Ok(0));
    assert_eq!(w.get(A, fd, (SOL_SOCKET, SO_ERROR)), Ok(Errno::ECONNRESET.0));
    assert_eq!(call(&mut w, receive(fd, 1, 0)), Err(Errno::ENOTCONN));
}

/// The flags and the ancillary messages of a read from the error queue.
fn report(w: &mut World, fd: i32) -> Result<(i32, Vec<crate::posix::ControlMessage>), Errno> {
    let reply = w.full(A, receive(fd, 0, MSG_ERRQUEUE));
    reply.result?;
    match reply.out {
        Out::Received { control, msg_flags, .. } => Ok((msg_flags, control)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn zero_copy_is_reported() {
    let mut w = World::new();
    let (client, _) = w.open();
    assert_eq!(w.call(A, send(client, b"no", MSG_ZEROCOPY)), Ok(2), "the option is off");
    assert_eq!(report(&mut w, client), Err(Errno::EAGAIN));
    assert_eq!(w.set(A, client, (SOL_SOCKET, SO_ZEROCOPY), 1), Ok(0));
    assert_eq!(w.call(A, send(client, b"one", MSG_ZEROCOPY)), Ok(3));
    assert_eq!(w.call(A, send(client, b"two", MSG_ZEROCOPY)), Ok(3));
    w.run(Duration::from_secs(1));
    let (flags, control) = report(&mut w, client).unwrap();
    assert_eq!(flags, MSG_ERRQUEUE);
    assert_eq!((control.len(), control[0].level, control[0].kind), (1, SOL_IP, IP_RECVERR));
    let mut expected = vec![0, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    expected.resize(32, 0);
    assert_eq!(control[0].data, expected);
    assert_eq!(report(&mut w, client), Err(Errno::EAGAIN));
}

#[test]
fn timestamps_are_reported() {
    let mut w = World::new();
    let (client, _) = w.open();
    let flags = SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID;
    assert_eq!(w.set(A, client, (SOL_SOCKET, SO_TIMESTAMPING), flags as i32), Ok(0));
    assert_eq!(w.write(A, client, &[0; 10]), Ok(10));
    w.run(Duration::from_millis(500));
    let (flags, control) = report(&mut w, client).unwrap();
    assert_eq!(flags, MSG_ERRQUEUE | MSG_TRUNC);
    assert_eq!((control[0].kind, control[0].data.len()), (SCM_TIMESTAMPING, 48));
    // ENOMSG, the origin, SCM_TSTAMP_ACK, the tenth byte.
    assert_eq!(control[1].data[..16], [42, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0]);
    let fresh = w.socket(A, AF_INET);
    let option = (SOL_SOCKET, SO_TIMESTAMPING);
    assert_eq!(w.set(A, fresh, option, SOF_TIMESTAMPING_OPT_ID as i32), Err(Errno::EINVAL));
}

#[test]
fn fast_open() {
    let mut w = World::new();
    let fast = |fd, bytes: &[u8], to| Call::Send {
        via: SendVia::Sendto,
        fd,
        buffers: vec![Source::Bytes(bytes.to_vec())],
        flags: MSG_FASTOPEN,
        to,
        control: Vec::new(),
    };
    w.listener(B4);
    let fd = w.socket(A, AF_INET);
    w.nonblocking(A, fd);
    assert_eq!(w.call(A, fast(fd, b"x", None)), Err(Errno::EOPNOTSUPP), "AF_UNSPEC");
    assert_eq!(w.call(A, fast(fd, b"x", addr(B4, 80))), Err(Errno::EINPROGRESS), "no cookie");
    assert_eq!(w.call(A, fast(fd, b"x", addr(B4, 80))), Ok(1), "it is open by now");
    assert_eq!(w.call(A, fast(fd, b"x", addr(B4, 80))), Err(Errno::EISCONN));
    w.a.stack.sysctl().set("net.ipv4.tcp_fastopen", "0").unwrap();
    let option = (SOL_TCP, TCP_FASTOPEN_CONNECT);
    let other = w.socket(A, AF_INET);
    assert_eq!(w.set(A, other, option, 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(w.call(A, fast(other, b"x", addr(B4, 80))), Err(Errno::EOPNOTSUPP));
    // Bit 4: no cookie is needed.
    w.a.stack.sysctl().set("net.ipv4.tcp_fastopen", "0x5").unwrap();
    assert_eq!(w.set(A, other, option, 1), Ok(0));
    let connect = Call::Connect { fd: other, addr: addr(B4, 80) };
    assert_eq!(w.call(A, connect.clone()), Ok(0), "the SYN waits");
    assert_eq!(w.call(A, connect), Err(Errno::EISCONN));
    let progress = w.start(A, send(other, b"hello", 0));
    let result = match progress {
        crate::posix::Progress::Done(reply) => reply.result,
        crate::posix::Progress::Blocked { pending, .. } => done(w.resume(A, pending)).result,
    };
    assert_eq!(result, Ok(5));
}
