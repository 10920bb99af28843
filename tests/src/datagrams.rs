//! Datagrams of one size, as fast as they go, on the kernel's sockets or on ours.
//!
//! Nothing holds a sender back but its own socket, so what counts is what arrives: the receiver
//! counts datagrams from the first one on, for a time that the sender exceeds.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use plimsoll::{Pool, QueueLoop, Slices, UdpTransmit};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags};
use serde_json::json;

use crate::peer::options::Options;
use crate::peer::workload::{cpu_seconds, say};

/// Datagrams in one call, at most: what Linux took before 6.10, and what our sockets take.
const MOST_SEGMENTS: usize = 64;
/// Bytes in one call, at most.
const MOST_BYTES: usize = 65_000;
/// Bytes that the kernel keeps for a receiver that stands for the network, which must not be what
/// limits the other side.
const DEEP: usize = 8 << 20;
/// A receiver waits for the next datagram no longer than this.
const SILENCE: Duration = Duration::from_millis(500);
/// And for the first one no longer than this.
const FIRST: Duration = Duration::from_secs(10);

/// How datagrams cross the socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// One in each call.
    Single,
    /// Many in each call, as segments of one.
    Trains,
    /// The same by reference, where the sockets have calls for that.
    Shared,
}

impl Calls {
    fn of(options: &Options) -> Result<Calls> {
        match options.text("calls").unwrap_or("single") {
            "single" => Ok(Calls::Single),
            "trains" => Ok(Calls::Trains),
            "shared" => Ok(Calls::Shared),
            other => bail!("--calls {other}: it is single, trains or shared"),
        }
    }
}

/// What one call sends.
struct Load {
    calls: Calls,
    data: Vec<u8>,
    /// Bytes of a datagram.
    size: usize,
    /// Datagrams in `data`.
    count: usize,
}

impl Load {
    fn of(options: &Options) -> Result<Load> {
        let calls = Calls::of(options)?;
        let size: usize = options.get("size", 1200)?;
        ensure!((1..=MOST_BYTES).contains(&size), "--size {size}: 1 to {MOST_BYTES} bytes");
        let count = match calls {
            Calls::Single => 1,
            Calls::Trains | Calls::Shared => MOST_SEGMENTS.min(MOST_BYTES / size),
        };
        Ok(Load { calls, data: vec![0x5a; size * count], size, count })
    }
}

/// A UDP socket that blocks.
pub(crate) trait Datagrams {
    /// Sends what one call takes, and returns how many datagrams that was.
    fn send(&mut self, to: SocketAddr) -> io::Result<usize>;

    /// Reads what one call gives, waiting as long as `patience`, and returns how many datagrams
    /// that was.
    fn receive(&mut self, patience: Duration) -> io::Result<usize>;
}

/// A socket of the kernel. `Single` is `sendto` and `recvfrom`; `Trains` is `UDP_SEGMENT`,
/// `recvmmsg` and `UDP_GRO`.
pub(crate) struct KernelSocket {
    socket: UdpSocket,
    trains: Option<UdpSocketState>,
    load: Load,
    buf: Vec<u8>,
}

impl KernelSocket {
    pub(crate) fn bind(address: SocketAddr, options: &Options) -> Result<KernelSocket> {
        let load = Load::of(options)?;
        let socket = UdpSocket::bind(address).context("binding a UDP socket")?;
        let trains = match load.calls {
            Calls::Single => None,
            _ => Some(UdpSocketState::new((&socket).into()).context("offloads")?),
        };
        Ok(KernelSocket { socket, trains, load, buf: vec![0; BATCH_SIZE << 16] })
    }

    /// Waits for a datagram, and returns its source.
    fn asked(&mut self) -> io::Result<SocketAddr> {
        if self.trains.is_some() {
            wait(&self.socket, PollFlags::IN, FIRST)?;
        }
        self.socket.recv_from(&mut self.buf).map(|(_, from)| from)
    }

    /// Gives it as large a receive buffer as root may have.
    pub(crate) fn deepen(&self) -> Result<()> {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&self.socket, DEEP)
            .context("SO_RCVBUFFORCE")
    }
}

fn wait(socket: &UdpSocket, events: PollFlags, patience: Duration) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), events)];
    let patience = patience.try_into().map_err(|_| ErrorKind::InvalidInput)?;
    match rustix::event::poll(&mut fds, Some(&patience))? {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

impl Datagrams for KernelSocket {
    fn send(&mut self, to: SocketAddr) -> io::Result<usize> {
        let Load { data, size, count, .. } = &self.load;
        let Some(state) = &self.trains else {
            return self.socket.send_to(data, to).map(|_| 1);
        };
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: data,
            segment_size: Some(*size),
            src_ip: None,
        };
        loop {
            match state.try_send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.socket, PollFlags::OUT, FIRST)?;
                }
                done => return done.map(|()| *count),
            }
        }
    }

    fn receive(&mut self, patience: Duration) -> io::Result<usize> {
        let Some(state) = &self.trains else {
            if self.socket.read_timeout()? != Some(patience) {
                self.socket.set_read_timeout(Some(patience))?;
            }
            return self.socket.recv_from(&mut self.buf).map(|_| 1);
        };
        let mut slots = self.buf.chunks_mut(1 << 16);
        let mut bufs: [_; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        loop {
            match state.recv((&self.socket).into(), &mut bufs, &mut metas) {
                Ok(count) => {
                    let of = |meta: &RecvMeta| meta.len.div_ceil(meta.stride.max(1)).max(1);
                    return Ok(metas[..count].iter().map(of).sum());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            wait(&self.socket, PollFlags::IN, patience)?;
        }
    }
}

/// A socket of ours.
pub(crate) struct OurSocket {
    socket: plimsoll::UdpSocket,
    load: Load,
    shared: Slices,
    buf: Vec<u8>,
    /// Runs the stack, if it has no thread.
    runner: Option<QueueLoop>,
}

impl OurSocket {
    pub(crate) fn bind(
        stack: &plimsoll::Stack,
        address: SocketAddr,
        options: &Options,
    ) -> Result<OurSocket> {
        let load = Load::of(options)?;
        let socket = plimsoll::UdpSocket::bind(stack, address).context("binding a UDP socket")?;
        let shared = Pool::new().copy_from(&load.data).into();
        Ok(OurSocket { socket, load, shared, buf: vec![0; 1 << 16], runner: None })
    }

    /// Runs the stack, which has no thread, whenever there is nothing to read.
    pub(crate) fn runs(mut self) -> Result<OurSocket> {
        self.socket.set_nonblocking(true)?;
        self.runner = Some(self.socket.stack().queue(0).context("the loop of the stack")?);
        Ok(self)
    }

    /// Reads once, and returns how many datagrams that was.
    fn read(&mut self) -> io::Result<usize> {
        let train = match self.load.calls {
            Calls::Single => return self.socket.recv_from(&mut self.buf).map(|_| 1),
            Calls::Trains => self.socket.recv_train(&mut self.buf)?,
            Calls::Shared => self.socket.recv_shared()?.1,
        };
        Ok(train.len.div_ceil(train.stride.max(1)).max(1))
    }
}

impl Datagrams for OurSocket {
    fn send(&mut self, to: SocketAddr) -> io::Result<usize> {
        let Load { calls, data, size, count } = &self.load;
        let how = UdpTransmit::default().to(Some(to)).segment_size(Some(*size));
        match calls {
            Calls::Single => self.socket.send_to(data, to)?,
            Calls::Trains => self.socket.send_msg(&how, &[data])?,
            Calls::Shared => self.socket.send_shared(&how, &self.shared)?,
        };
        Ok(*count)
    }

    fn receive(&mut self, patience: Duration) -> io::Result<usize> {
        if self.socket.read_timeout()? != Some(patience) {
            self.socket.set_read_timeout(Some(patience))?;
        }
        let mut deadline = None;
        loop {
            match self.read() {
                Err(error) if is_silence(&error) => {}
                done => return done,
            }
            let Some(runner) = &mut self.runner else { return Err(ErrorKind::TimedOut.into()) };
            let polled = runner.poll();
            if let Some(error) = polled.ended {
                return Err(io::Error::other(error));
            }
            if polled.worked {
                continue;
            }
            let now = runner.stack().now();
            let deadline = *deadline.get_or_insert(now + patience);
            if now >= deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            let until = polled.next.map_or(deadline, |next| next.min(deadline));
            runner.wait(Some(until), || false).map_err(io::Error::other)?;
        }
    }
}

/// Sends for some time, and reports how much.
pub(crate) fn send(socket: &mut impl Datagrams, options: &Options) -> Result<()> {
    send_to(socket, options.address(), options)
}

/// Sends for some time to the source of the first datagram that arrives.
pub(crate) fn answer(socket: &mut KernelSocket, options: &Options) -> Result<()> {
    say("ready")?;
    let from = socket.asked().context("waiting for a datagram")?;
    send_to(socket, from, options)
}

/// Sends one datagram, and receives for some time what comes back.
pub(crate) fn ask(socket: &mut impl Datagrams, options: &Options) -> Result<()> {
    socket.send(options.address()).context("asking")?;
    receive(socket, options)
}

fn send_to(socket: &mut impl Datagrams, to: SocketAddr, options: &Options) -> Result<()> {
    let limit = options.seconds("seconds", 2.0)?;
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut datagrams = 0;
    while start.elapsed() < limit {
        // Looking at the clock for every datagram would weigh upon small ones.
        for _ in 0..32 {
            datagrams += socket.send(to).context("sending")? as u64;
        }
    }
    report(datagrams, start.elapsed(), cpu_seconds() - cpu)
}

/// Receives for some time after the first datagram, and reports how much.
pub(crate) fn receive(socket: &mut impl Datagrams, options: &Options) -> Result<()> {
    let limit = options.seconds("seconds", 2.0)?;
    say("ready")?;
    socket.receive(FIRST).context("waiting for the first datagram")?;
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut datagrams = 0;
    let mut silent = false;
    while start.elapsed() < limit && !silent {
        for _ in 0..32 {
            match socket.receive(SILENCE) {
                Ok(count) => datagrams += count as u64,
                Err(error) if is_silence(&error) => {
                    silent = true;
                    break;
                }
                Err(error) => return Err(error).context("receiving"),
            }
        }
    }
    ensure!(!silent, "the sender has stopped before the time was over");
    report(datagrams, start.elapsed(), cpu_seconds() - cpu)
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn report(datagrams: u64, took: Duration, cpu: f64) -> Result<()> {
    let seconds = took.as_secs_f64();
    say(&json!({ "datagrams": datagrams, "seconds": seconds, "cpu_seconds": cpu }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_count_what_crosses_them() {
        let stack = plimsoll::Stack::builder().loopback_only().build().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        for (calls, count) in [("single", 1), ("trains", 64), ("shared", 64)] {
            let words = ["127.0.0.1:9", "--calls", calls, "--size", "100"];
            let options = Options::parse(&words.map(str::to_owned)).unwrap();
            let mut kernel = KernelSocket::bind(any, &options).unwrap();
            let to = kernel.socket.local_addr().unwrap();
            crosses(&mut KernelSocket::bind(any, &options).unwrap(), &mut kernel, to, count);
            let mut ours = OurSocket::bind(&stack, any, &options).unwrap();
            let to = ours.socket.local_addr().unwrap();
            crosses(&mut OurSocket::bind(&stack, any, &options).unwrap(), &mut ours, to, count);
        }
    }

    fn crosses(from: &mut impl Datagrams, into: &mut impl Datagrams, to: SocketAddr, most: usize) {
        assert_eq!(from.send(to).unwrap(), most);
        let mut count = 0;
        while count < most {
            count += into.receive(FIRST).unwrap();
        }
        assert_eq!(count, most);
        let nothing = into.receive(Duration::from_millis(1));
        assert!(is_silence(&nothing.unwrap_err()));
    }
}
