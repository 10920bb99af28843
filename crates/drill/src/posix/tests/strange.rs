//! Calls of any kind, with arguments of any kind, in any order: nothing may panic.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{
    Call, Dest, EpollEvent, Pending, PollFd, Progress, ReceiveVia, SendVia, Source, SpliceEnd,
};

/// A generator of numbers that are random enough.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % sides
    }

    fn fd(&mut self) -> i32 {
        self.roll(14) as i32 - 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize]
    }

    fn size(&mut self) -> usize {
        self.pick(&[0, 1, 7, 1000, 70_000, usize::MAX])
    }

    fn int(&mut self) -> i32 {
        self.pick(&[0, 1, 2, 4, 10, 1000, -1, i32::MAX, i32::MIN])
    }

    fn flags(&mut self) -> i32 {
        let one = 1 << self.roll(31);
        one | self.pick(&[0, MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_OOB, MSG_FASTOPEN])
    }

    fn addr(&mut self) -> Option<std::net::SocketAddr> {
        let ip = self.pick(&[A4, B4, A6, B6, "::", "0.0.0.0", "::ffff:192.0.2.2", "224.0.0.1"]);
        addr(ip, self.pick(&[0, 80, 81])).filter(|_| self.roll(8) > 0)
    }

    fn end(&mut self) -> SpliceEnd {
        let offset = [Some(0), Some(i64::MAX), Some(-1), None, None, None];
        SpliceEnd { fd: self.fd(), offset: self.pick(&offset) }
    }

    fn transfer(&mut self) -> Call {
        let (fd, flags) = (self.fd(), self.flags());
        if self.roll(2) == 0 {
            let buffers = vec![Dest::Room(self.size()), Dest::Null(self.roll(2) as usize)];
            let via = self.pick(&[ReceiveVia::Read, ReceiveVia::Recv, ReceiveVia::Recvmsg]);
            return Call::Receive { via, fd, buffers, flags, control_len: self.size() };
        }
        let bytes = vec![3; self.size().min(200_000)];
        let buffers = vec![Source::Bytes(bytes), Source::Null(self.roll(3) as usize)];
        let via = self.pick(&[SendVia::Write, SendVia::Send, SendVia::Sendto]);
        Call::Send { via, fd, buffers, flags, to: self.addr(), control: Vec::new() }
    }

    fn option(&mut self) -> Call {
        let (fd, level) = (self.fd(), self.pick(&[SOL_SOCKET, SOL_TCP, SOL_IP, SOL_IPV6, 7]));
        let (name, len) = (self.roll(82) as i32, self.pick(&[-1, 0, 1, 3, 4, 8, 16, 400]));
        if self.roll(2) == 0 {
            return Call::Getsockopt { fd, level, name, len, null: self.roll(5) == 0 };
        }
        let mut value = self.int().to_ne_bytes().to_vec();
        value.resize(self.pick(&[0, 1, 4, 8, 16, 300]), self.roll(256) as u8);
        let value = Some(value).filter(|_| self.roll(8) > 0);
        Call::Setsockopt { fd, level, name, value, len }
    }

    fn wait(&mut self) -> Call {
        let (epfd, fd, op) = (self.fd(), self.fd(), self.roll(5) as i32);
        let event = EpollEvent { events: self.roll(1 << 32) as u32 & self.int() as u32, data: 1 };
        let timeout_ms = self.pick(&[-1, 0, 100]);
        match self.roll(4) {
            0 => Call::EpollCreate { size: None, flags: 0 },
            1 => Call::EpollCtl { epfd, op, fd, event: Some(event).filter(|_| op != 4) },
            2 => Call::EpollWait { epfd, max_events: self.int(), timeout_ms },
            _ => {
                let fds = vec![PollFd { fd, events: self.int() as i16, revents: 0 }];
                Call::Poll { fds, timeout_ms }
            }
        }
    }

    fn call(&mut self) -> Call {
        let fd = self.fd();
        match self.roll(30) {
            0 | 1 => {
                let domain = self.pick(&[AF_INET, AF_INET6, 1]);
                let kind = self.pick(&[1, 1, SOCK_STREAM | SOCK_NONBLOCK, 2]);
                Call::Socket { domain, kind, protocol: 0 }
            }
            2 => Call::Bind { fd, addr: self.addr() },
            3 => Call::Listen { fd, backlog: self.int() },
            4 | 5 => Call::Accept { fd, flags: self.pick(&[0, SOCK_NONBLOCK, 1]) },
            6 | 7 => Call::Connect { fd, addr: self.addr() },
            8 => Call::Getsockname { fd },
            9 => Call::Getpeername { fd },
            10 => Call::Fcntl { fd, cmd: self.roll(6) as i32, arg: i64::from(self.int()) },
            11 => {
                let request = self.pick(&[FIONREAD, SIOCOUTQ, SIOCOUTQNSD, FIONBIO, SIOCATMARK]);
                Call::Ioctl { fd, request, arg: Some(self.int()).filter(|&arg| arg != 10) }
            }
            12 => Call::Close { fd },
            13 => Call::Shutdown { fd, how: self.roll(4) as i32 },
            14 => Call::Pipe { flags: self.pick(&[0, O_NONBLOCK, 1]) },
            15 | 16 => {
                let (from, to) = (self.end(), self.end());
                Call::Splice { from, to, len: self.size(), flags: self.roll(17) as u32 }
            }
            17 => {
                let offset = self.end().offset;
                Call::Sendfile { out_fd: fd, in_fd: self.fd(), offset, count: self.size() }
            }
            18..22 => self.option(),
            22..25 => self.wait(),
            _ => self.transfer(),
        }
    }
}

#[test]
fn nothing_panics() {
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let mut w = World::new();
        // Somebody to talk to, so that more than errors happens.
        w.open();
        let mut asleep: Vec<(Side, Pending)> = Vec::new();
        for _ in 0..250 {
            let side = dice.pick(&[A, B]);
            let progress = match asleep.len() as u64 {
                len @ 1.. if dice.roll(3) == 0 => {
                    let (side, pending) = asleep.swap_remove(dice.roll(len) as usize);
                    (side, w.resume(side, pending))
                }
                _ => (side, w.start(side, dice.call())),
            };
            if let (side, Progress::Blocked { pending, .. }) = progress {
                asleep.push((side, pending));
            }
            if dice.roll(20) == 0 {
                w.run(Duration::from_millis(dice.pick(&[1, 50, 3000])));
            }
        }
    }
}
