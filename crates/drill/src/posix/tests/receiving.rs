//! Reading: flags, pointers, blocking.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, ControlMessage, Dest, Errno, Out, ReceiveVia};

fn into(fd: i32, via: ReceiveVia, buffers: Vec<Dest>, flags: i32) -> Call {
    Call::Receive { via, fd, buffers, flags, control_len: 0 }
}

#[test]
fn peek_and_waitall() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!(w.write(A, client, b"abcdef"), Ok(6));
    let peek = receive(server, 4, MSG_PEEK);
    assert_eq!(data(w.full(B, peek.clone())), Ok(b"abcd".to_vec()));
    assert_eq!(data(w.full(B, peek)), Ok(b"abcd".to_vec()), "they stay");
    let (all, _) = w.sleeps(B, receive(server, 10, MSG_WAITALL));
    assert_eq!(w.write(A, client, b"gh"), Ok(2));
    let (all, _) = sleeping(w.resume(B, all));
    assert_eq!(w.write(A, client, b"ijkl"), Ok(4));
    assert_eq!(data(done(w.resume(B, all))), Ok(b"abcdefghij".to_vec()));
    let (all, _) = w.sleeps(B, receive(server, 10, MSG_WAITALL));
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(data(done(w.resume(B, all))), Ok(b"kl".to_vec()), "the end comes first");
}

#[test]
fn trunc_throws_away() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!(w.write(A, client, b"abcdef"), Ok(6));
    let call = into(server, ReceiveVia::Recv, vec![Dest::Null(4)], MSG_TRUNC);
    assert_eq!(w.call(B, call), Ok(4), "no byte is written, so the pointer does not matter");
    assert_eq!(w.read(B, server, 9), Ok(b"ef".to_vec()));
}

#[test]
fn bad_pointers() {
    let mut w = World::new();
    let (client, server) = w.open();
    let null = |via, flags| into(server, via, vec![Dest::Null(10)], flags);
    assert_eq!(w.call(B, null(ReceiveVia::Recv, MSG_DONTWAIT)), Err(Errno::EAGAIN));
    assert_eq!(w.write(A, client, b"abcdef"), Ok(6));
    for via in [ReceiveVia::Read, ReceiveVia::Recv, ReceiveVia::Recvfrom, ReceiveVia::Recvmsg] {
        assert_eq!(w.call(B, null(via, 0)), Err(Errno::EFAULT), "{via:?}");
    }
    let some = vec![Dest::Room(2), Dest::Null(0), Dest::Room(1), Dest::Null(5), Dest::Room(9)];
    assert_eq!(w.call(B, into(server, ReceiveVia::Readv, some, 0)), Ok(3), "what fits before it");
    assert_eq!(w.read(B, server, 9), Ok(b"def".to_vec()));
}

#[test]
fn no_room() {
    let mut w = World::new();
    let (client, server) = w.open();
    let none = |via| into(server, via, vec![Dest::Room(0)], MSG_DONTWAIT);
    assert_eq!(w.call(B, none(ReceiveVia::Read)), Ok(0));
    assert_eq!(w.call(B, none(ReceiveVia::Recv)), Err(Errno::EAGAIN));
    assert_eq!(w.write(A, client, b"x"), Ok(1));
    assert_eq!(w.call(B, none(ReceiveVia::Recv)), Ok(0));
    assert_eq!(w.read(B, server, 9), Ok(b"x".to_vec()));
}

#[test]
fn urgent_data() {
    let mut w = World::new();
    let (client, server) = w.open();
    let urgent = |flags| receive(server, 5, MSG_OOB | flags);
    assert_eq!(w.call(B, urgent(0)), Err(Errno::EINVAL), "there is none");
    assert_eq!(w.call(A, send(client, b"ab!", MSG_OOB)), Ok(3));
    assert_eq!(data(w.full(B, urgent(MSG_PEEK))), Ok(b"!".to_vec()));
    let reply = w.full(B, urgent(0));
    assert!(matches!(reply.out, Out::Received { msg_flags: MSG_OOB, .. }));
    assert_eq!(data(reply), Ok(b"!".to_vec()));
    assert_eq!(w.call(B, urgent(0)), Err(Errno::EINVAL), "it was taken");
    assert_eq!(w.write(A, client, b"cd"), Ok(2));
    assert_eq!(w.read(B, server, 9), Ok(b"ab".to_vec()), "a read stops at the mark");
    assert_eq!(
        w.full(B, Call::Ioctl { fd: server, request: SIOCATMARK, arg: Some(0) }).out,
        Out::Int(1)
    );
    assert_eq!(w.read(B, server, 9), Ok(b"cd".to_vec()));
    assert_eq!(w.set(B, server, (SOL_SOCKET, SO_OOBINLINE), 1), Ok(0));
    assert_eq!(w.call(B, urgent(0)), Err(Errno::EINVAL));
}

#[test]
fn timeouts() {
    let mut w = World::new();
    let (client, server) = w.open();
    let mut value = 2i64.to_ne_bytes().to_vec();
    value.extend_from_slice(&0i64.to_ne_bytes());
    let (level, name) = (SOL_SOCKET, SO_RCVTIMEO);
    let call = Call::Setsockopt { fd: server, level, name, value: Some(value), len: 16 };
    assert_eq!(w.call(B, call), Ok(0));
    let (read, deadline) = w.sleeps(B, receive(server, 5, 0));
    assert_eq!(deadline, Some(w.now + Duration::from_secs(2)));
    w.run(Duration::from_secs(1));
    let (read, again) = sleeping(w.resume(B, read));
    assert_eq!(again, deadline, "the time counts from the beginning");
    w.run(Duration::from_secs(1));
    assert_eq!(done(w.resume(B, read)).result, Err(Errno::EAGAIN));
    assert_eq!(w.write(A, client, b"ab"), Ok(2));
    let (read, _) = w.sleeps(B, receive(server, 5, MSG_WAITALL));
    w.run(Duration::from_secs(2));
    assert_eq!(data(done(w.resume(B, read))), Ok(b"ab".to_vec()), "what came so far");
}

#[test]
fn a_reset_is_told_once() {
    let mut w = World::new();
    let (client, server) = w.open();
    let mut value = 1i32.to_ne_bytes().to_vec();
    value.extend_from_slice(&0i32.to_ne_bytes());
    let (level, name) = (SOL_SOCKET, SO_LINGER);
    let call = Call::Setsockopt { fd: client, level, name, value: Some(value), len: 8 };
    assert_eq!(w.call(A, call), Ok(0));
    let (read, _) = w.sleeps(B, receive(server, 5, 0));
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(done(w.resume(B, read)).result, Err(Errno::ECONNRESET));
    assert_eq!(w.read(B, server, 5), Ok(Vec::new()));
    assert_eq!(w.write(B, server, b"x"), Err(Errno::EPIPE));
    assert_eq!(w.get(B, server, (SOL_SOCKET, SO_ERROR)), Ok(0));
}

#[test]
fn what_is_left_comes_with_the_data() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!(w.set(B, server, (SOL_TCP, TCP_INQ), 1), Ok(0));
    assert_eq!(w.write(A, client, &[0; 100]), Ok(100));
    let inq = |reply: crate::posix::Reply| match reply.out {
        Out::Received { control, msg_flags, .. } => (control, msg_flags),
        other => panic!("{other:?}"),
    };
    let message = |left: i32| {
        vec![ControlMessage { level: SOL_TCP, kind: TCP_CM_INQ, data: left.to_ne_bytes().to_vec() }]
    };
    assert_eq!(inq(w.full(B, receive(server, 60, 0))), (message(40), 0));
    let call = into(server, ReceiveVia::Recvmsg, vec![Dest::Room(10)], 0);
    assert_eq!(inq(w.full(B, call)), (Vec::new(), MSG_CTRUNC), "no room for it");
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(inq(w.full(B, receive(server, 60, 0))), (message(1), 0), "the end is to be read");
}

#[test]
fn queue_lengths() {
    let mut w = World::new();
    let (client, server) = w.open();
    let ioctl = |fd, request| Call::Ioctl { fd, request, arg: Some(-1) };
    assert_eq!(w.write(A, client, &[0; 100]), Ok(100));
    assert_eq!(w.full(B, ioctl(server, SIOCINQ)).out, Out::Int(100));
    assert_eq!(w.full(A, ioctl(client, SIOCOUTQ)).out, Out::Int(0));
    assert_eq!(w.full(A, ioctl(client, SIOCOUTQNSD)).out, Out::Int(0));
    let null = Call::Ioctl { fd: server, request: SIOCINQ, arg: None };
    assert_eq!(w.call(B, null), Err(Errno::EFAULT));
    assert_eq!(w.call(B, ioctl(server, 0x1234)), Err(Errno::ENOTTY));
    // b's listener is descriptor 3.
    assert_eq!(w.call(B, ioctl(3, SIOCINQ)), Err(Errno::EINVAL));
    assert_eq!(w.call(B, ioctl(99, SIOCINQ)), Err(Errno::EBADF));
    assert_eq!(w.call(B, Call::Ioctl { fd: server, request: FIONBIO, arg: Some(1) }), Ok(0));
    let flags = Call::Fcntl { fd: server, cmd: F_GETFL, arg: 0 };
    assert_eq!(w.call(B, flags), Ok(i64::from(O_RDWR | O_NONBLOCK)));
}
