//! socket, bind, listen, accept, connect, shutdown, close.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, Errno, Out};

#[test]
fn a_connection_from_end_to_end() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!((client, server), (3, 4));
    assert_eq!(w.write(A, client, b"hello"), Ok(5));
    assert_eq!(w.read(B, server, 100), Ok(b"hello".to_vec()));
    assert_eq!(w.read(B, server, 100), Err(Errno::EAGAIN));
    let (read, deadline) = w.sleeps(B, receive(server, 100, 0));
    assert_eq!(deadline, None);
    let (read, _) = sleeping(w.resume(B, read));
    assert_eq!(w.write(A, client, b"again"), Ok(5));
    assert_eq!(data(done(w.resume(B, read))), Ok(b"again".to_vec()));
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(w.call(A, Call::Close { fd: client }), Err(Errno::EBADF));
    assert_eq!(w.read(B, server, 100), Ok(Vec::new()));
    assert_eq!(w.socket(A, AF_INET), 3, "the lowest free number");
}

#[test]
fn arguments_of_socket() {
    let cases = [
        ((AF_INET, SOCK_STREAM, 0), Ok(3)),
        ((AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP), Ok(3)),
        ((AF_INET, 2, 0), Err(Errno::ESOCKTNOSUPPORT)),
        ((AF_INET, 2, IPPROTO_TCP), Err(Errno::EPROTONOSUPPORT)),
        ((AF_INET, SOCK_STREAM, 300), Err(Errno::EINVAL)),
        ((AF_INET, SOCK_STREAM, 17), Err(Errno::EPROTONOSUPPORT)),
        ((AF_INET, SOCK_STREAM, -1), Err(Errno::EINVAL)),
        ((AF_INET, SOCK_STREAM | 0x10, 0), Err(Errno::EINVAL)),
        ((1, SOCK_STREAM, 0), Err(Errno::EAFNOSUPPORT)),
    ];
    for ((domain, kind, protocol), result) in cases {
        let mut w = World::new();
        let call = Call::Socket { domain, kind, protocol };
        assert_eq!(w.call(A, call), result, "{domain} {kind} {protocol}");
    }
}

#[test]
fn connect_tells_how_it_went_once() {
    let mut w = World::new();
    let connect = |fd| Call::Connect { fd, addr: addr(B4, 80) };
    let fd = w.socket(A, AF_INET);
    w.nonblocking(A, fd);
    let now = w.now;
    let call = |w: &mut World| match w.a.call(now, connect(fd)) {
        crate::posix::Progress::Done(reply) => reply.result,
        _ => panic!("it sleeps"),
    };
    // Nobody listens.
    assert_eq!(call(&mut w), Err(Errno::EINPROGRESS));
    assert_eq!(call(&mut w), Err(Errno::EALREADY));
    w.settle();
    assert_eq!(call(&mut w), Err(Errno::ECONNREFUSED));
    w.listener(B4);
    assert_eq!(call(&mut w), Err(Errno::EINPROGRESS), "the socket is as new");
    w.settle();
    assert_eq!(call(&mut w), Ok(0));
    assert_eq!(call(&mut w), Err(Errno::EISCONN));
    assert_eq!(w.call(A, Call::Connect { fd, addr: None }), Ok(0), "AF_UNSPEC lets go");
    assert_eq!(w.call(A, Call::Getpeername { fd }), Err(Errno::ENOTCONN));
    assert_eq!(w.call(A, Call::Connect { fd, addr: addr(B6, 80) }), Err(Errno::EAFNOSUPPORT));
    let refused = w.socket(A, AF_INET);
    w.nonblocking(A, refused);
    let call = Call::Connect { fd: refused, addr: addr(B4, 81) };
    assert_eq!(w.call(A, call), Err(Errno::EINPROGRESS));
    assert_eq!(w.get(A, refused, (SOL_SOCKET, SO_ERROR)), Ok(Errno::ECONNREFUSED.0));
    assert_eq!(w.get(A, refused, (SOL_SOCKET, SO_ERROR)), Ok(0));
}

#[test]
fn bind_and_listen() {
    let mut w = World::new();
    let fd = w.socket(B, AF_INET);
    let bind = |fd, ip, port| Call::Bind { fd, addr: addr(ip, port) };
    assert_eq!(w.call(B, Call::Bind { fd, addr: None }), Err(Errno::EFAULT));
    assert_eq!(w.call(B, bind(fd, B6, 80)), Err(Errno::EAFNOSUPPORT));
    assert_eq!(w.call(B, bind(fd, "192.0.2.77", 80)), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(w.call(B, bind(fd, B4, 80)), Ok(0));
    assert_eq!(w.call(B, bind(fd, B4, 80)), Err(Errno::EINVAL), "bound already");
    assert_eq!(w.call(B, Call::Accept { fd, flags: 0 }), Err(Errno::EINVAL));
    let other = w.socket(B, AF_INET);
    assert_eq!(w.call(B, bind(other, "0.0.0.0", 80)), Err(Errno::EADDRINUSE));
    for socket in [fd, other] {
        assert_eq!(w.set(B, socket, (SOL_SOCKET, SO_REUSEADDR), 1), Ok(0));
    }
    assert_eq!(w.call(B, bind(other, "0.0.0.0", 80)), Ok(0), "nobody listens yet");
    assert_eq!(w.call(B, Call::Listen { fd, backlog: 1 }), Ok(0));
    let listen = Call::Listen { fd: other, backlog: 1 };
    assert_eq!(w.call(B, listen), Err(Errno::EADDRINUSE));
    assert_eq!(w.call(B, Call::Listen { fd, backlog: -1 }), Ok(0), "again is allowed");
    assert_eq!(w.call(B, Call::Connect { fd, addr: addr(A4, 1) }), Err(Errno::EISCONN));
    assert_eq!(w.call(B, receive(fd, 1, 0)), Err(Errno::ENOTCONN));
    assert_eq!(w.call(B, send(fd, b"x", 0)), Err(Errno::EPIPE));
    assert_eq!(w.get(B, fd, (SOL_SOCKET, SO_ACCEPTCONN)), Ok(1));
    let free = w.socket(B, AF_INET);
    assert_eq!(w.call(B, bind(free, B4, 0)), Ok(0));
    let Out::Address(name) = w.full(B, Call::Getsockname { fd: free }).out else { panic!() };
    assert!((32_768..61_000).contains(&name.port()), "{name}");
}

#[test]
fn mapped_addresses() {
    let mut w = World::new();
    let listener = w.listener("::");
    let fd = w.socket(A, AF_INET6);
    let mapped = format!("::ffff:{B4}");
    let (connect, _) = w.sleeps(A, Call::Connect { fd, addr: addr(&mapped, 80) });
    assert_eq!(done(w.resume(A, connect)).result, Ok(0));
    let reply = w.full(B, Call::Accept { fd: listener, flags: SOCK_NONBLOCK });
    let Out::Address(peer) = reply.out else { panic!() };
    assert_eq!(peer.ip().to_string(), format!("::ffff:{A4}"));
    let server = i32::try_from(reply.result.unwrap()).unwrap();
    let name = w.full(B, Call::Getsockname { fd: server }).out;
    assert_eq!(name, Out::Address(addr(&mapped, 80).unwrap()));
    let name = w.full(A, Call::Getpeername { fd }).out;
    assert_eq!(name, Out::Address(addr(&mapped, 80).unwrap()));
    let only = w.socket(A, AF_INET6);
    let short = Call::Connect { fd: only, addr: addr(B4, 80) };
    assert_eq!(w.call(A, short), Err(Errno::EINVAL), "an IPv4 address is too short");
    assert_eq!(w.set(A, only, (SOL_IPV6, IPV6_V6ONLY), 1), Ok(0));
    let call = Call::Connect { fd: only, addr: addr(&mapped, 80) };
    assert_eq!(w.call(A, call), Err(Errno::ENETUNREACH));
    let call = Call::Bind { fd: only, addr: addr("::ffff:192.0.2.1", 80) };
    assert_eq!(w.call(A, call), Err(Errno::EINVAL));
}

#[test]
fn shutdown() {
    let mut w = World::new();
    let (client, server) = w.open();
    assert_eq!(w.call(A, Call::Shutdown { fd: client, how: 7 }), Err(Errno::EINVAL));
    assert_eq!(w.call(A, Call::Shutdown { fd: client, how: SHUT_WR }), Ok(0));
    assert_eq!(w.write(A, client, b"x"), Err(Errno::EPIPE));
    assert_eq!(w.read(B, server, 10), Ok(Vec::new()));
    assert_eq!(w.write(B, server, b"still"), Ok(5));
    assert_eq!(w.call(A, Call::Shutdown { fd: client, how: SHUT_RD }), Ok(0));
    assert_eq!(w.read(A, client, 10), Ok(b"still".to_vec()));
    assert_eq!(w.read(A, client, 10), Ok(Vec::new()));
    let fresh = w.socket(A, AF_INET);
    let call = Call::Shutdown { fd: fresh, how: SHUT_RDWR };
    assert_eq!(w.call(A, call), Err(Errno::ENOTCONN));
}

#[test]
fn lingering_close() {
    let mut w = World::new();
    let (client, server) = w.open();
    let linger = |seconds: i32| {
        let mut value = 1i32.to_ne_bytes().to_vec();
        value.extend_from_slice(&seconds.to_ne_bytes());
        Some(value)
    };
    let option = |fd, seconds| Call::Setsockopt {
        fd,
        level: SOL_SOCKET,
        name: SO_LINGER,
        value: linger(seconds),
        len: 8,
    };
    assert_eq!(w.call(A, option(client, 3)), Ok(0));
    let (close, deadline) = w.sleeps(A, Call::Close { fd: client });
    assert_eq!(deadline, Some(w.now + Duration::from_secs(3)));
    w.run(Duration::from_millis(300));
    assert_eq!(done(w.resume(A, close)).result, Ok(0), "the FIN is acknowledged");
    assert_eq!(w.call(B, option(server, 0)), Ok(0));
    assert_eq!(w.call(B, Call::Close { fd: server }), Ok(0));
    assert_eq!(w.b.stack.counter("TcpOutRsts"), Some(1), "no time at all is a reset");
}

#[test]
fn an_ipv6_only_socket_leaves_ipv4_to_others() {
    let mut w = World::new();
    let fd = w.socket(B, AF_INET6);
    assert_eq!(w.set(B, fd, (SOL_IPV6, IPV6_V6ONLY), 1), Ok(0));
    assert_eq!(w.call(B, Call::Bind { fd, addr: addr("::", 80) }), Ok(0));
    assert_eq!(w.set(B, fd, (SOL_IPV6, IPV6_V6ONLY), 0), Err(Errno::EINVAL), "bound already");
    assert_eq!(w.call(B, Call::Listen { fd, backlog: 5 }), Ok(0));
    let connect = |w: &mut World, domain, ip| {
        let fd = w.socket(A, domain);
        let (connect, _) = w.sleeps(A, Call::Connect { fd, addr: addr(ip, 80) });
        done(w.resume(A, connect)).result
    };
    assert_eq!(connect(&mut w, AF_INET6, B6), Ok(0));
    assert_eq!(connect(&mut w, AF_INET, B4), Err(Errno::ECONNREFUSED));
    w.listener("0.0.0.0");
    assert_eq!(connect(&mut w, AF_INET, B4), Ok(0));
}
