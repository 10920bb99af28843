//! Futures that are dropped at every point at which they wait: what they registered is gone, what
//! they had not handed out is still there, and the sockets work as before.
//!
//! The stacks have no thread. Between two polls of a future the test lets one of the stacks work
//! once, so that every run comes by the same points.
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use plimsoll::device::channel::{Channel, ChannelConfig};
use plimsoll::device::{self, memory_link};
use plimsoll::gate::GateConfig;
use plimsoll::net::{GatedListener, TcpListener, TcpStream};
use plimsoll::{Connector, Stack};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

const ADDRESS: &str = "192.0.2.2:7";
/// More polls than any of the futures needs.
const MANY: usize = 200;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    client: Stack,
    server: Stack,
    turn: RefCell<bool>,
    wakes: Arc<Wakes>,
}

impl World {
    fn new() -> World {
        let (here, there) = memory_link::pair(Default::default());
        let stack = |device, address: &str| {
            let builder = Stack::builder().device(device).address(address).seed(1);
            builder.build_without_thread().unwrap()
        };
        let (client, server) = (stack(here, "192.0.2.1/24"), stack(there, "192.0.2.2/24"));
        World { client, server, turn: RefCell::default(), wakes: Arc::default() }
    }

    /// Lets the stacks work, one of them, once.
    fn step(&self) {
        let mut turn = self.turn.borrow_mut();
        *turn = !*turn;
        if *turn { &self.client } else { &self.server }.poll();
    }

    /// Polls `future` up to `polls` times; after each poll comes `between`, with how many there
    /// were before.
    fn drive<F: Future>(
        &self,
        polls: usize,
        future: F,
        mut between: impl FnMut(usize),
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let waker = Waker::from(self.wakes.clone());
        let mut context = Context::from_waker(&waker);
        for done in 0..polls {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            between(done);
            self.step();
        }
        None
    }

    fn finish<F: Future>(&self, future: F) -> F::Output {
        self.drive(MANY, future, |_| ()).expect("it is ready in the end")
    }

    /// How many of the wakers that futures were polled with are kept somewhere.
    fn registered(&self) -> usize {
        Arc::strong_count(&self.wakes) - 1
    }

    fn listen(&self) -> TcpListener {
        self.finish(TcpListener::bind_on(&self.server, ADDRESS)).unwrap()
    }

    fn connect(&self) -> TcpStream {
        self.finish(TcpStream::connect_on(&self.client, ADDRESS)).unwrap()
    }

    /// Two ends of a connection.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let listener = self.listen();
        let near = self.connect();
        let (far, peer) = self.finish(listener.accept()).unwrap();
        assert_eq!(peer, near.local_addr().unwrap());
        (near, far)
    }

    /// Both ends send something, and receive it.
    fn works(&self, near: &mut TcpStream, far: &mut TcpStream) {
        let mut heard = [0; 4];
        self.finish(near.write_all(b"ping")).unwrap();
        self.finish(far.read_exact(&mut heard)).unwrap();
        assert_eq!(&heard, b"ping");
        self.finish(far.write_all(b"pong")).unwrap();
        self.finish(near.read_exact(&mut heard)).unwrap();
        assert_eq!(&heard, b"pong");
    }
}

/// Runs `case` with 0, 1, 2 .. polls until it says that its future was ready.
fn at_every_point(case: impl Fn(&World, usize) -> bool) {
    for polls in 0..MANY {
        let world = World::new();
        if case(&world, polls) {
            // The first poll has to find nothing.
            assert!(polls > 1, "the future never waited");
            return;
        }
    }
    panic!("the future was not ready after {MANY} polls");
}

#[test]
fn connecting() {
    at_every_point(|world, polls| {
        let listener = world.listen();
        let connecting = TcpStream::connect_on(&world.client, ADDRESS);
        let connected = world.drive(polls, connecting, |_| ());
        let done = connected.is_some();
        drop(connected);
        assert_eq!(world.registered(), 0);
        // The listener's end of the attempt is over, and the next attempt is served.
        let mut near = world.connect();
        let mut far = loop {
            let (far, peer) = world.finish(listener.accept()).unwrap();
            if peer == near.local_addr().unwrap() {
                break far;
            }
        };
        world.works(&mut near, &mut far);
        let open = |stack: &Stack| {
            let sockets = stack.sockets();
            sockets.iter().filter(|one| one.state == Some(plimsoll::State::Established)).count()
        };
        assert_eq!(open(&world.client), 1, "after {polls} polls");
        done
    });
}

#[test]
fn connecting_without_a_runtime() {
    at_every_point(|world, polls| {
        let listener = world.listen();
        let connector = Connector::new(&world.client);
        let connecting = connector.connect_async(ADDRESS.parse().unwrap());
        let done = world.drive(polls, connecting, |_| ()).is_some();
        assert_eq!(world.registered(), 0);
        let near = world.connect();
        loop {
            let (_far, peer) = world.finish(listener.get_ref().accept_async()).unwrap();
            if peer == near.local_addr().unwrap() {
                return done;
            }
        }
    });
}

#[test]
fn accepting() {
    at_every_point(|world, polls| {
        let listener = world.listen();
        let connector = Connector::new(&world.client);
        let mut near = None;
        let accepted = world.drive(polls, listener.accept(), |done| {
            if done == 0 {
                near = Some(connector.start(ADDRESS.parse().unwrap()).unwrap());
            }
        });
        assert_eq!(world.registered(), 0);
        let Some(near) = near else { return accepted.is_some() };
        let done = accepted.is_some();
        let (mut far, _) = accepted.unwrap_or_else(|| world.finish(listener.accept())).unwrap();
        world.works(&mut TcpStream::from(near), &mut far);
        done
    });
}

/// A future that waits for input, on a stream that gets some after the first poll. It takes out at
/// most what it returns.
fn waiting_for_input(read: impl AsyncFn(&mut TcpStream) -> io::Result<Vec<u8>>, kept: usize) {
    at_every_point(|world, polls| {
        let (mut near, mut far) = world.pair();
        // An accepted stream is taken for readable until a read has found nothing.
        assert!(far.try_read(&mut [0; 1]).is_err());
        let taken = world.drive(polls, read(&mut far), |done| {
            if done == 0 {
                assert_eq!(near.try_write(b"ahoy").unwrap(), 4);
            }
        });
        let done = taken.is_some();
        assert!(world.registered() <= kept, "{} after {polls} polls", world.registered());
        let mut heard = taken.transpose().unwrap().unwrap_or_default();
        if polls > 0 {
            let mut rest = vec![0; 4 - heard.len()];
            world.finish(far.read_exact(&mut rest)).unwrap();
            heard.append(&mut rest);
            assert_eq!(heard, b"ahoy", "nothing is lost and nothing comes twice");
        }
        world.works(&mut near, &mut far);
        done
    });
}

#[test]
fn reading() {
    // The trait cannot see that its caller gives up: the last waker stays.
    waiting_for_input(
        async |stream| {
            let mut buf = vec![0; 3];
            let count = stream.read(&mut buf).await?;
            buf.truncate(count);
            Ok(buf)
        },
        1,
    );
}

#[test]
fn peeking_and_waiting_to_read() {
    waiting_for_input(async |stream| stream.peek(&mut [0; 3]).await.map(|_| vec![]), 0);
    waiting_for_input(async |stream| stream.readable().await.map(|()| vec![]), 0);
    let urgent = Interest::READABLE | Interest::PRIORITY | Interest::ERROR;
    waiting_for_input(async |stream| stream.ready(urgent).await.map(|_| vec![]), 0);
    let take = async |stream: &mut TcpStream| {
        let mut byte = [0; 1];
        let below = stream.get_ref();
        below.set_nonblocking(true)?;
        let read = || io::Read::read(&mut &*below, &mut byte);
        stream.async_io(Interest::READABLE, read).await?;
        Ok(byte.to_vec())
    };
    waiting_for_input(take, 0);
}

/// A future that waits for space, on a stream whose peer reads after the first poll. It returns how
/// much it has written.
fn waiting_for_space(write: impl AsyncFn(&mut TcpStream) -> io::Result<usize>, kept: usize) {
    at_every_point(|world, polls| {
        let (mut near, mut far) = world.pair();
        let mut written = 0;
        while let Ok(count) = near.try_write(&[7; 10_000]) {
            written += count;
        }
        let mut read = 0;
        let mut drain = |far: &mut TcpStream| {
            let mut buf = vec![0; 65_536];
            while let Ok(count) = far.try_read(&mut buf) {
                assert!(buf[..count].iter().all(|&byte| byte == 7));
                read += count;
            }
            read
        };
        let wrote = world.drive(polls, write(&mut near), |_| {
            drain(&mut far);
        });
        let done = wrote.is_some();
        assert!(world.registered() <= kept, "{} after {polls} polls", world.registered());
        written += wrote.transpose().unwrap().unwrap_or(0);
        for _ in 0..MANY {
            world.step();
            if drain(&mut far) == written {
                break;
            }
        }
        assert_eq!(drain(&mut far), written, "what was taken arrives, and no more");
        world.works(&mut near, &mut far);
        done
    });
}

#[test]
fn writing() {
    waiting_for_space(async |stream| stream.write(&[7; 5000]).await, 1);
}

#[test]
fn waiting_to_write() {
    waiting_for_space(async |stream| stream.writable().await.map(|()| 0), 0);
    let both = Interest::WRITABLE | Interest::READABLE;
    waiting_for_space(async |stream| stream.ready(both).await.map(|_| 0), 0);
}

#[test]
fn shutting_down() {
    for polls in 0..2 {
        let world = World::new();
        let (mut near, mut far) = world.pair();
        let shut = world.drive(polls, near.shutdown(), |_| ());
        assert_eq!(shut.is_some(), polls > 0, "it never waits");
        assert_eq!(world.registered(), 0);
        if shut.is_none() {
            world.works(&mut near, &mut far);
        }
        world.finish(near.shutdown()).unwrap();
        let mut rest = Vec::new();
        world.finish(far.read_to_end(&mut rest)).unwrap();
        assert_eq!(rest, b"");
        // The other direction goes on.
        world.finish(far.write_all(b"pong")).unwrap();
        let mut heard = [0; 4];
        world.finish(near.read_exact(&mut heard)).unwrap();
        assert_eq!(&heard, b"pong");
    }
}

#[test]
fn one_that_was_woken_and_dropped_takes_nothing_from_the_others() {
    let world = World::new();
    let listener = world.listen();
    let waker = Waker::from(world.wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut first = Box::pin(listener.accept());
    let mut second = Box::pin(listener.accept());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let before = world.wakes.0.load(Ordering::Relaxed);
    let _near = world.connect();
    (0..10).for_each(|_| world.step());
    // Connecting has woken the same waker, so at least that often.
    assert!(world.wakes.0.load(Ordering::Relaxed) >= before + 2, "both were woken");
    drop(first);
    assert!(second.as_mut().poll(&mut context).is_ready());
}

#[test]
fn halves_wait_in_both_directions() {
    let world = World::new();
    let (near, mut far) = world.pair();
    while near.try_write(&[7; 10_000]).is_ok() {}
    let (mut reading, writing) = near.into_split();
    let waker = Waker::from(world.wakes.clone());
    let mut context = Context::from_waker(&waker);
    {
        let mut buf = [0; 4];
        let mut read = pin!(reading.read(&mut buf));
        let mut write = pin!(writing.writable());
        assert!(read.as_mut().poll(&mut context).is_pending());
        assert!(write.as_mut().poll(&mut context).is_pending());
        drop(waker);
    }
    assert_eq!(world.registered(), 1, "the waker of `poll_read` stays");
    world.finish(far.write_all(b"pong")).unwrap();
    let mut heard = [0; 4];
    world.finish(reading.read_exact(&mut heard)).unwrap();
    assert_eq!(&heard, b"pong");
    let stream = reading.reunite(writing).unwrap();
    drop(stream);
    assert_eq!(world.registered(), 0);
}

fn gate(world: &World) -> GatedListener {
    GatedListener::bind_any_on(&world.server, GateConfig::default()).unwrap()
}

#[test]
fn asking_at_the_gate() {
    at_every_point(|world, polls| {
        let listener = gate(world);
        let connector = Connector::new(&world.client);
        let mut near = None;
        let asked = world.drive(polls, listener.incoming(), |done| {
            if done == 0 {
                near = Some(connector.start(ADDRESS.parse().unwrap()).unwrap());
            }
        });
        assert_eq!(world.registered(), 0);
        let Some(near) = near else { return asked.is_some() };
        let done = asked.is_some();
        let incoming = asked.unwrap_or_else(|| world.finish(listener.incoming())).unwrap();
        let mut far = world.finish(incoming.accept()).unwrap();
        world.works(&mut TcpStream::from(near), &mut far);
        done
    });
}

#[test]
fn accepting_at_the_gate() {
    at_every_point(|world, polls| {
        let listener = gate(world);
        let near = Connector::new(&world.client).start(ADDRESS.parse().unwrap()).unwrap();
        let incoming = world.finish(listener.incoming()).unwrap();
        let accepted = world.drive(polls, incoming.accept(), |_| ());
        assert_eq!(world.registered(), 0);
        let done = accepted.is_some();
        if let Some(far) = accepted {
            world.works(&mut TcpStream::from(near), &mut far.unwrap());
        } else {
            // A dropped accept resets the connection, whether it was answered or not.
            (0..MANY).for_each(|_| world.step());
            assert_eq!(world.server.budget_use().connections, 0, "after {polls} polls");
            assert_eq!(world.client.budget_use().connections, 0, "after {polls} polls");
        }
        // The gate is as good as before.
        let next = Connector::new(&world.client).start(ADDRESS.parse().unwrap()).unwrap();
        let incoming = world.finish(listener.incoming()).unwrap();
        let mut far = world.finish(incoming.accept()).unwrap();
        world.works(&mut TcpStream::from(next), &mut far);
        done
    });
}

#[test]
fn waiting_for_the_end_of_an_attempt() {
    at_every_point(|world, polls| {
        let mut listener = Some(gate(world));
        let _near = Connector::new(&world.client).start(ADDRESS.parse().unwrap()).unwrap();
        let incoming = world.finish(listener.as_ref().unwrap().incoming()).unwrap();
        let ended = world.drive(polls, incoming.cancelled(), |_| drop(listener.take()));
        assert_eq!(world.registered(), 0);
        let done = ended.is_some();
        if polls > 0 {
            let ended = ended.unwrap_or_else(|| world.finish(incoming.cancelled()));
            assert_eq!(ended, plimsoll::gate::Cancelled::Closed);
        }
        done
    });
}

/// A channel, and a stack without a thread that it belongs to.
fn channel(config: ChannelConfig) -> (Stack, Channel) {
    let (device, end) = device::channel(config).unwrap();
    let builder = Stack::builder().device(device).address("192.0.2.1/24").seed(1);
    (builder.build_without_thread().unwrap(), end)
}

#[test]
fn receiving_packets() {
    at_every_point(|world, polls| {
        let (stack, mut end) = channel(ChannelConfig::default());
        let mut opening = None;
        let packet = world.drive(polls, end.recv(), |done| match done {
            0 => opening = Some(Connector::new(&stack).start(ADDRESS.parse().unwrap()).unwrap()),
            _ => drop(stack.poll()),
        });
        assert_eq!(world.registered(), 0);
        let done = packet.is_some();
        if opening.is_some() {
            let packet = packet.unwrap_or_else(|| world.finish(end.recv()));
            assert_eq!(packet.unwrap().headers()[0], 0x45, "the SYN is lost to nobody");
            assert!(end.try_recv().is_err(), "there was one");
        }
        done
    });
}

#[test]
fn sending_packets() {
    at_every_point(|world, polls| {
        let (stack, mut end) = channel(ChannelConfig::default().to_stack(1));
        end.try_send(vec![0x45; 40]).unwrap();
        let sent = world.drive(polls, end.send(vec![0x45; 40]), |_| drop(stack.poll()));
        assert_eq!(world.registered(), 0);
        let done = sent.is_some();
        (0..3).for_each(|_| drop(stack.poll()));
        let counters = stack.counters();
        let received = counters.iter().find(|(name, _)| *name == "IpInReceives").unwrap().1;
        assert_eq!(received, 1 + u64::from(done), "it was sent or it was not");
        done
    });
}
