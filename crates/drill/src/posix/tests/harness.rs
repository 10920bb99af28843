//! Two processes on two stacks that a link joins, and the time.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_stack::device::Device;
use plimsoll_stack::device::memory_link::{self, LinkConfig};
use plimsoll_stack::{InterfaceConfig, Stack, StackConfig};
use plimsoll_tcp::{Duration, Instant};

use crate::posix::numbers::*;
use crate::posix::{
    Call, Dest, Errno, Out, Pending, Process, Progress, ReceiveVia, Reply, SendVia, Source,
};

pub(super) const A4: &str = "192.0.2.1";
pub(super) const B4: &str = "192.0.2.2";
pub(super) const A6: &str = "2001:db8::1";
pub(super) const B6: &str = "2001:db8::2";

fn stack(device: Device, v4: &str, v6: &str) -> Arc<Stack> {
    let addresses = vec![(v4.parse().unwrap(), 24), (v6.parse().unwrap(), 64)];
    let interface = InterfaceConfig { device, addresses, mtu: None };
    let config = StackConfig { interfaces: vec![interface], seed: 7, ..StackConfig::default() };
    Stack::new(config).unwrap()
}

/// The two processes.
pub(super) struct World {
    pub(super) a: Process,
    pub(super) b: Process,
    pub(super) now: Instant,
}

/// Which of the two makes a call.
#[derive(Clone, Copy)]
pub(super) enum Side {
    A,
    B,
}
pub(super) use Side::{A, B};

impl World {
    pub(super) fn new() -> World {
        let (left, right) = memory_link::pair(LinkConfig::default());
        World {
            a: Process::new(stack(left, A4, A6)),
            b: Process::new(stack(right, B4, B6)),
            now: Instant::from_millis(1000),
        }
    }

    pub(super) fn side(&mut self, side: Side) -> &mut Process {
        match side {
            A => &mut self.a,
            B => &mut self.b,
        }
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let a = self.a.stack.poll(self.now, 256).unwrap();
            let b = self.b.stack.poll(self.now, 256).unwrap();
            if !a.worked && !b.worked {
                return;
            }
        }
        panic!("the stacks never come to rest");
    }

    /// Lets `time` pass.
    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        loop {
            let now = self.now;
            let next = [&self.a, &self.b].map(|p| p.stack.poll(now, 256).unwrap().next);
            match next.into_iter().flatten().min() {
                Some(at) if at < until => self.now = self.now.max(at),
                _ => break,
            }
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    /// A call that may sleep; it is told when it does.
    pub(super) fn start(&mut self, side: Side, call: Call) -> Progress<Pending> {
        let now = self.now;
        let progress = self.side(side).call(now, call);
        self.settle();
        progress
    }

    pub(super) fn resume(&mut self, side: Side, pending: Pending) -> Progress<Pending> {
        let now = self.now;
        let progress = self.side(side).resume(now, pending);
        self.settle();
        progress
    }

    /// A call that must return at once.
    pub(super) fn full(&mut self, side: Side, call: Call) -> Reply {
        match self.start(side, call.clone()) {
            Progress::Done(reply) => reply,
            Progress::Blocked { .. } => panic!("{call:?} sleeps"),
        }
    }

    pub(super) fn call(&mut self, side: Side, call: Call) -> Result<i64, Errno> {
        self.full(side, call).result
    }

    /// A call that must sleep.
    pub(super) fn sleeps(&mut self, side: Side, call: Call) -> (Pending, Option<Instant>) {
        sleeping(self.start(side, call))
    }

    /// A call that must succeed and gives a descriptor.
    pub(super) fn fd(&mut self, side: Side, call: Call) -> i32 {
        i32::try_from(self.call(side, call).unwrap()).unwrap()
    }

    pub(super) fn socket(&mut self, side: Side, domain: i32) -> i32 {
        self.fd(side, Call::Socket { domain, kind: SOCK_STREAM, protocol: IPPROTO_TCP })
    }

    /// A listener of `b` on port 80.
    pub(super) fn listener(&mut self, ip: &str) -> i32 {
        let domain = if ip.contains(':') { AF_INET6 } else { AF_INET };
        let fd = self.socket(B, domain);
        assert_eq!(self.call(B, Call::Bind { fd, addr: addr(ip, 80) }), Ok(0));
        assert_eq!(self.call(B, Call::Listen { fd, backlog: 5 }), Ok(0));
        fd
    }

    /// An open connection: `a`'s descriptor, `b`'s.
    pub(super) fn open(&mut self) -> (i32, i32) {
        let listener = self.listener(B4);
        let fd = self.socket(A, AF_INET);
        let (connect, _) = self.sleeps(A, Call::Connect { fd, addr: addr(B4, 80) });
        assert_eq!(done(self.resume(A, connect)).result, Ok(0));
        (fd, self.fd(B, Call::Accept { fd: listener, flags: 0 }))
    }

    pub(super) fn nonblocking(&mut self, side: Side, fd: i32) {
        let arg = i64::from(O_RDWR | O_NONBLOCK);
        assert_eq!(self.call(side, Call::Fcntl { fd, cmd: F_SETFL, arg }), Ok(0));
    }

    pub(super) fn write(&mut self, side: Side, fd: i32, bytes: &[u8]) -> Result<i64, Errno> {
        self.call(side, send(fd, bytes, 0))
    }

    /// Reads once without sleeping.
    pub(super) fn read(&mut self, side: Side, fd: i32, room: usize) -> Result<Vec<u8>, Errno> {
        data(self.full(side, receive(fd, room, MSG_DONTWAIT)))
    }

    pub(super) fn set(
        &mut self,
        side: Side,
        fd: i32,
        (level, name): (i32, i32),
        value: i32,
    ) -> Result<i64, Errno> {
        let value = Some(value.to_ne_bytes().to_vec());
        self.call(side, Call::Setsockopt { fd, level, name, value, len: 4 })
    }

    pub(super) fn get(&mut self, side: Side, fd: i32, option: (i32, i32)) -> Result<i32, Errno> {
        let (level, name) = option;
        let reply = self.full(side, Call::Getsockopt { fd, level, name, len: 4, null: false });
        reply.result?;
        match reply.out {
            Out::Option { value, len: 4 } => Ok(i32::from_ne_bytes(value.try_into().unwrap())),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn addr(ip: &str, port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(ip.parse().unwrap(), port))
}

pub(super) fn send(fd: i32, bytes: &[u8], flags: i32) -> Call {
    Call::Send {
        via: SendVia::Send,
        fd,
        buffers: vec![Source::Bytes(bytes.to_vec())],
        flags,
        to: None,
        control: Vec::new(),
    }
}

pub(super) fn receive(fd: i32, room: usize, flags: i32) -> Call {
    let buffers = vec![Dest::Room(room)];
    Call::Receive { via: ReceiveVia::Recvmsg, fd, buffers, flags, control_len: 256 }
}

pub(super) fn data(reply: Reply) -> Result<Vec<u8>, Errno> {
    let count = reply.result?;
    match reply.out {
        Out::Received { data, .. } => {
            assert_eq!(count as usize, data.len());
            Ok(data)
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn done(progress: Progress<Pending>) -> Reply {
    match progress {
        Progress::Done(reply) => reply,
        Progress::Blocked { pending, .. } => panic!("{pending:?} sleeps"),
    }
}

pub(super) fn sleeping(progress: Progress<Pending>) -> (Pending, Option<Instant>) {
    match progress {
        Progress::Done(reply) => panic!("it does not sleep: {reply:?}"),
        Progress::Blocked { pending, deadline } => (pending, deadline),
    }
}
