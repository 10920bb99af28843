//! poll and epoll.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, EpollEvent, Errno, Out, PollFd};

fn poll(fds: &[(i32, u32)], timeout_ms: i32) -> Call {
    let entry = |&(fd, events): &(i32, u32)| PollFd { fd, events: events as i16, revents: -1 };
    Call::Poll { fds: fds.iter().map(entry).collect(), timeout_ms }
}

fn told(reply: crate::posix::Reply) -> (i64, Vec<u32>) {
    let Out::Poll(fds) = reply.out else { panic!() };
    (reply.result.unwrap(), fds.iter().map(|entry| u32::from(entry.revents as u16)).collect())
}

const ALL: u32 = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;

#[test]
fn masks_over_the_life_of_a_connection() {
    let mut w = World::new();
    let fresh = w.socket(A, AF_INET);
    let now = |w: &mut World, side, fd| told(w.full(side, poll(&[(fd, ALL)], 0))).1[0];
    assert_eq!(now(&mut w, A, fresh), EPOLLOUT | EPOLLHUP);
    let (client, server) = w.open();
    assert_eq!(now(&mut w, B, 3), 0, "the listener");
    assert_eq!(now(&mut w, B, server), EPOLLOUT);
    assert_eq!(w.write(A, client, b"x"), Ok(1));
    assert_eq!(now(&mut w, B, server), EPOLLOUT | EPOLLIN);
    assert_eq!(w.call(A, send(client, b"!", MSG_OOB)), Ok(1));
    assert_eq!(now(&mut w, B, server), EPOLLOUT | EPOLLIN | EPOLLPRI);
    assert_eq!(w.call(A, Call::Shutdown { fd: client, how: SHUT_WR }), Ok(0));
    assert_eq!(now(&mut w, B, server), ALL);
    assert_eq!(w.call(B, Call::Shutdown { fd: server, how: SHUT_WR }), Ok(0));
    assert_eq!(now(&mut w, B, server), ALL | EPOLLHUP);
    let refused = w.socket(A, AF_INET);
    w.nonblocking(A, refused);
    let call = Call::Connect { fd: refused, addr: addr(B4, 81) };
    assert_eq!(w.call(A, call), Err(Errno::EINPROGRESS));
    let all = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    assert_eq!(now(&mut w, A, refused), all);
}

#[test]
fn poll_sleeps_and_gives_up() {
    let mut w = World::new();
    let (client, server) = w.open();
    let fds = [(server, EPOLLIN), (-5, EPOLLIN), (99, EPOLLIN)];
    assert_eq!(told(w.full(B, poll(&fds, -1))), (1, vec![0, 0, EPOLLNVAL]));
    let (call, deadline) = w.sleeps(B, poll(&fds[..2], 300));
    assert_eq!(deadline, Some(w.now + Duration::from_millis(300)));
    let (call, _) = sleeping(w.resume(B, call));
    w.run(Duration::from_millis(300));
    assert_eq!(told(done(w.resume(B, call))), (0, vec![0, 0]));
    let (call, deadline) = w.sleeps(B, poll(&fds[..1], -1));
    assert_eq!(deadline, None);
    assert_eq!(w.write(A, client, b"x"), Ok(1));
    assert_eq!(told(done(w.resume(B, call))), (1, vec![EPOLLIN]));
}

fn ctl(epfd: i32, op: i32, fd: i32, events: u32) -> Call {
    let event = Some(EpollEvent { events, data: 7 });
    Call::EpollCtl { epfd, op, fd, event }
}

fn epoll(w: &mut World, side: Side) -> i32 {
    w.fd(side, Call::EpollCreate { size: None, flags: 0 })
}

fn events(w: &mut World, side: Side, epfd: i32) -> Vec<u32> {
    let reply = w.full(side, Call::EpollWait { epfd, max_events: 5, timeout_ms: 0 });
    let Out::Epoll(events) = reply.out else { panic!() };
    assert_eq!(reply.result, Ok(events.len() as i64));
    events.iter().map(|event| event.events).collect()
}

#[test]
fn level_and_edge() {
    let mut w = World::new();
    let (client, server) = w.open();
    let [level, edge, once] = [0; 3].map(|_| epoll(&mut w, B));
    let both = EPOLLIN | EPOLLOUT;
    assert_eq!(w.call(B, ctl(level, EPOLL_CTL_ADD, server, EPOLLIN)), Ok(0));
    assert_eq!(w.call(B, ctl(edge, EPOLL_CTL_ADD, server, both | EPOLLET)), Ok(0));
    assert_eq!(w.call(B, ctl(once, EPOLL_CTL_ADD, server, both | EPOLLONESHOT)), Ok(0));
    assert_eq!(events(&mut w, B, level), [0_u32; 0]);
    assert_eq!(events(&mut w, B, edge), [EPOLLOUT]);
    assert_eq!(events(&mut w, B, edge), [0_u32; 0]);
    assert_eq!(events(&mut w, B, once), [EPOLLOUT]);
    for _ in 0..2 {
        // Each arrival is an edge, although nothing was read.
        assert_eq!(w.write(A, client, b"abc"), Ok(3));
        assert_eq!(events(&mut w, B, edge), [both]);
        assert_eq!(events(&mut w, B, edge), [0_u32; 0]);
        assert_eq!(events(&mut w, B, level), [EPOLLIN]);
        assert_eq!(events(&mut w, B, level), [EPOLLIN]);
        assert_eq!(events(&mut w, B, once), [0_u32; 0]);
    }
    assert_eq!(w.read(B, server, 2), Ok(b"ab".to_vec()));
    assert_eq!(events(&mut w, B, edge), [0_u32; 0], "reading is none");
    assert_eq!(w.call(B, ctl(once, EPOLL_CTL_MOD, server, both | EPOLLONESHOT)), Ok(0));
    assert_eq!(events(&mut w, B, once), [both]);
    assert_eq!(w.call(A, Call::Close { fd: client }), Ok(0));
    assert_eq!(events(&mut w, B, edge), [both], "so is the end");
    assert_eq!(w.call(B, Call::Close { fd: server }), Ok(0));
    assert_eq!(events(&mut w, B, level), [0_u32; 0], "what is closed is forgotten");
}

#[test]
fn epoll_sleeps_on_a_listener_and_on_a_pipe() {
    let mut w = World::new();
    let listener = w.listener(B4);
    let epfd = epoll(&mut w, B);
    assert_eq!(w.call(B, ctl(epfd, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLET)), Ok(0));
    let wait = Call::EpollWait { epfd, max_events: 1, timeout_ms: -1 };
    let (call, _) = w.sleeps(B, wait.clone());
    let fd = w.socket(A, AF_INET);
    let _ = w.sleeps(A, Call::Connect { fd, addr: addr(B4, 80) });
    assert_eq!(done(w.resume(B, call)).result, Ok(1));
    let (call, _) = w.sleeps(B, wait);
    let Out::Pipe([read, write]) = w.full(B, Call::Pipe { flags: 0 }).out else { panic!() };
    assert_eq!(w.call(B, ctl(epfd, EPOLL_CTL_ADD, read, EPOLLIN)), Ok(0));
    let (call, _) = sleeping(w.resume(B, call));
    assert_eq!(w.call(B, Call::Close { fd: write }), Ok(0));
    let Out::Epoll(events) = done(w.resume(B, call)).out else { panic!() };
    assert_eq!(events, [EpollEvent { events: EPOLLHUP, data: 7 }]);
}

#[test]
fn arguments_of_epoll() {
    let mut w = World::new();
    let (client, _) = w.open();
    let create = |size, flags| Call::EpollCreate { size, flags };
    assert_eq!(w.call(A, create(Some(0), 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, create(None, 1)), Err(Errno::EINVAL));
    let epfd = epoll(&mut w, A);
    let null = Call::EpollCtl { epfd: 99, op: EPOLL_CTL_ADD, fd: 99, event: None };
    assert_eq!(w.call(A, null), Err(Errno::EFAULT));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, 99, 0)), Err(Errno::EBADF));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, epfd, 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, ctl(client, EPOLL_CTL_ADD, epfd, 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_MOD, client, 0)), Err(Errno::ENOENT));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_DEL, client, 0)), Err(Errno::ENOENT));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, client, EPOLLIN)), Ok(0));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, client, EPOLLIN)), Err(Errno::EEXIST));
    let exclusive = EPOLLIN | EPOLLEXCLUSIVE;
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_MOD, client, exclusive)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_DEL, client, 0)), Ok(0));
    let wrong = exclusive | EPOLLONESHOT;
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, client, wrong)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, ctl(epfd, EPOLL_CTL_ADD, client, exclusive)), Ok(0));
    assert_eq!(w.call(A, ctl(epfd, 9, client, 0)), Err(Errno::EINVAL));
    let wait = |epfd, max_events| Call::EpollWait { epfd, max_events, timeout_ms: 0 };
    assert_eq!(w.call(A, wait(epfd, 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, wait(client, 1)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, wait(99, 1)), Err(Errno::EBADF));
}
