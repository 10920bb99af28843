//! A stack in an epoll loop of the program's own: one thread serves sockets of the stack and
//! descriptors of the kernel.
//!
//! ```sh
//! cargo run --release -p plimsoll --example epoll_loop
//! ```
//!
//! It needs no privilege and ends by itself. A guest with a stack of its own talks to an echo over
//! a channel; with `device::tun::open` in place of the channel the kernel would do so. The loop
//! also serves a UDP socket of the kernel, which answers how much was echoed so far.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::thread;

use plimsoll::device::channel::{ChannelConfig, ChannelReceiver, ChannelSender};
use plimsoll::device::{self, Device};
use plimsoll::{PreparedWait, QueueLoop, ReadyQueue, Stack, TcpListener, TcpStream, Watch};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

/// The stack's descriptors in the epoll set. `QueueLoop::poll` finds out what made them ready.
const OF_THE_STACK: u64 = 0;
/// The program's own descriptor.
const QUESTIONS: u64 = 1;
/// The listener's token in the ready queue; those of streams follow.
const LISTENER: usize = 0;

/// An epoll set, and what of the stack is in it.
struct Epoll {
    set: OwnedFd,
    watches: Vec<Watch>,
}

impl Epoll {
    fn new(questions: &UdpSocket) -> io::Result<Epoll> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(QUESTIONS);
        epoll::add(&set, questions, data, epoll::EventFlags::IN)?;
        Ok(Epoll { set, watches: Vec::new() })
    }

    /// Sleeps until something is ready or the stack has a timer due. Returns whether a question
    /// came.
    fn sleep(&mut self, wait: &PreparedWait<'_>) -> io::Result<bool> {
        let watches: Vec<Watch> = wait.watches().collect();
        if watches != self.watches {
            for gone in &self.watches {
                epoll::delete(&self.set, gone)?;
            }
            for watch in &watches {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::OUT, watch.wants_write());
                epoll::add(&self.set, watch, epoll::EventData::new_u64(OF_THE_STACK), flags)?;
            }
            self.watches = watches;
        }
        let timeout = wait.timeout().map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.set, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events.iter().any(|event| event.data.u64() == QUESTIONS))
    }
}

/// A stream of the echo, and the bytes that it has read and not written yet.
struct Echo {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Echo {
    /// Goes on until the stream can do no more. Returns whether it has ended.
    fn go_on(&mut self, waker: &std::task::Waker, echoed: &mut usize) -> io::Result<bool> {
        let mut buf = [0; 16_384];
        loop {
            while !self.held.is_empty() {
                match self.stream.write(&self.held) {
                    Ok(count) => drop(self.held.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if !self.stream.poll_writable(waker) {
                            return Ok(false);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            match self.stream.read(&mut buf) {
                Ok(0) => return self.stream.shutdown(Shutdown::Write).map(|()| true),
                Ok(count) => {
                    *echoed += count;
                    self.held.extend_from_slice(&buf[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.stream.poll_readable(waker) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The sockets of the stack that the loop serves.
struct Service {
    ready: ReadyQueue,
    listener: TcpListener,
    streams: HashMap<usize, Echo>,
    next: usize,
    echoed: usize,
}

impl Service {
    /// Serves the sockets of the stack that are ready.
    fn turn(&mut self) -> io::Result<()> {
        let mut tokens = Vec::new();
        self.ready.take(&mut tokens);
        for token in tokens {
            if token == LISTENER {
                self.accept()?;
            } else {
                self.go_on(token)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        let waker = self.ready.waker(LISTENER);
        while self.listener.poll_acceptable(&waker) {
            let (stream, peer) = self.listener.accept()?;
            println!("{peer} is here");
            stream.set_nonblocking(true)?;
            self.next += 1;
            self.streams.insert(self.next, Echo { stream, held: Vec::new() });
            self.go_on(self.next)?;
        }
        Ok(())
    }

    fn go_on(&mut self, token: usize) -> io::Result<()> {
        let waker = self.ready.waker(token);
        let Some(echo) = self.streams.get_mut(&token) else { return Ok(()) };
        if echo.go_on(&waker, &mut self.echoed)? {
            self.streams.remove(&token);
        }
        Ok(())
    }
}

/// The loop. It ends when a question has come how much was echoed, and all of it was.
fn run(mut queue: QueueLoop, questions: &UdpSocket, expected: usize) -> io::Result<()> {
    let mut epoll = Epoll::new(questions)?;
    let ready = ReadyQueue::with_kicker(queue.kicker());
    let listener = TcpListener::bind(queue.stack(), "10.0.0.1:7")?;
    let mut service =
        Service { ready, listener, streams: HashMap::new(), next: LISTENER, echoed: 0 };
    service.accept()?;
    loop {
        let worked = queue.poll().worked;
        service.turn()?;
        if worked {
            continue;
        }
        let prepared =
            queue.prepare_wait(|| !service.ready.is_empty()).map_err(io::Error::other)?;
        let Some(wait) = prepared else { continue };
        if epoll.sleep(&wait)? {
            let mut question = [0; 64];
            let (_, from) = questions.recv_from(&mut question)?;
            questions.send_to(service.echoed.to_string().as_bytes(), from)?;
            if service.echoed == expected {
                return Ok(());
            }
        }
    }
}

/// Carries packets from one channel into another until either of them ends.
fn carry(mut from: ChannelReceiver, mut to: ChannelSender) {
    while let Some(packet) = from.blocking_recv() {
        if to.blocking_send(packet).is_err() {
            return;
        }
    }
}

/// Two devices, and threads that carry packets between their channels.
fn bridge() -> Result<(Device, Device), device::DeviceError> {
    let (guest, channel) = device::channel(ChannelConfig::default())?;
    let (to_guest, from_guest) = channel.split();
    let (host, channel) = device::channel(ChannelConfig::default())?;
    let (to_host, from_host) = channel.split();
    thread::spawn(|| carry(from_guest, to_host));
    thread::spawn(|| carry(from_host, to_guest));
    Ok((guest, host))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const WORD: &[u8] = b"ahoy ";
    const WORDS: usize = 100_000;

    let (guest, host) = bridge()?;
    let guest = Stack::builder().device(guest).address("10.0.0.2/24").build()?;
    let host = Stack::builder().device(host).address("10.0.0.1/24").build_without_thread()?;
    let questions = UdpSocket::bind("127.0.0.1:0")?;
    let ask = questions.local_addr()?;
    let queue = host.queue(0)?;
    let serving = thread::spawn(move || run(queue, &questions, WORD.len() * WORDS));

    let stream = TcpStream::connect(&guest, "10.0.0.1:7")?;
    let mut writer = stream.try_clone()?;
    let writing = thread::spawn(move || -> io::Result<()> {
        for _ in 0..WORDS {
            writer.write_all(WORD)?;
        }
        writer.shutdown(Shutdown::Write)
    });
    let mut heard = Vec::new();
    { stream }.read_to_end(&mut heard)?;
    writing.join().expect("writing does not panic")?;
    assert!(heard == WORD.repeat(WORDS), "every byte comes back");

    let me = UdpSocket::bind("127.0.0.1:0")?;
    me.send_to(b"how much?", ask)?;
    let mut answer = [0; 64];
    let len = me.recv(&mut answer)?;
    println!("{} bytes were echoed", String::from_utf8_lossy(&answer[..len]));
    serving.join().expect("serving does not panic")?;
    Ok(())
}
