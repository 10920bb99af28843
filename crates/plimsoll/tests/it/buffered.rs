//! Streams with a write buffer: when what is aside is handed over, that nothing is lost, and that
//! an idle one holds no memory.
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{
    BufferedStream, Connector, Options, Polled, Stack, StackBuilder, TcpListener, TcpStream,
};

const ROOM: usize = 4096;

fn builders() -> [StackBuilder; 2] {
    let (here, there) = memory_link::pair(LinkConfig::default());
    [(here, 1), (there, 2)].map(|(device, number)| {
        Stack::builder().device(device).address(format!("192.0.2.{number}/24"))
    })
}

/// A connection between two stacks with threads, with a buffer at one end.
fn connected() -> (BufferedStream, TcpStream) {
    let [client, server] = builders().map(|builder| builder.build().unwrap());
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let near = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let (far, _) = listener.accept().unwrap();
    (near.with_write_buffer(ROOM), far)
}

/// A connection between two stacks that this thread runs, neither end of which blocks.
struct Pair {
    client: Stack,
    server: Stack,
    near: BufferedStream,
    far: TcpStream,
}

impl Pair {
    fn new(options: Options) -> Pair {
        let [client, server] = builders().map(|builder| builder.build_without_thread().unwrap());
        let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
        listener.set_nonblocking(true).unwrap();
        let connector = Connector::new(&client).options(options);
        let near = connector.start(listener.local_addr().unwrap()).unwrap();
        while client.poll().worked | server.poll().worked {}
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        Pair { client, server, near: near.with_write_buffer(ROOM), far }
    }

    fn pump(&self) {
        while self.client.poll().worked | self.server.poll().worked {}
    }

    /// The bytes that have arrived and were not read.
    fn arrived(&mut self) -> Vec<u8> {
        let mut all = vec![0; 1 << 20];
        let mut count = 0;
        loop {
            match self.far.read(&mut all[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        all.truncate(count);
        all
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 % 251) as u8).collect()
}

fn read_all(mut stream: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn what_is_written_stays_aside_until_it_is_flushed() {
    let (mut near, mut far) = connected();
    near.write_all(b"one").unwrap();
    let both = [IoSlice::new(b", "), IoSlice::new(b"two")];
    assert_eq!(near.write_vectored(&both).unwrap(), 5);
    assert_eq!(near.buffered(), 8);
    assert_eq!(near.get_ref().info().bytes_sent, 0);
    near.flush().unwrap();
    assert_eq!(near.buffered(), 0);
    let mut read = [0; 8];
    far.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"one, two");
    near.flush().unwrap();
}

#[test]
fn all_sizes_arrive_in_order() {
    let (mut near, far) = connected();
    let all = read_all(far);
    let sent = bytes(1_000_000);
    let (mut at, mut size) = (0, 1);
    while at < sent.len() {
        size = (size * 7 + 11) % (2 * ROOM) + 1;
        let end = sent.len().min(at + size);
        if size % 5 == 0 {
            let (head, tail) = sent[at..end].split_at((end - at) / 3);
            let parts = [IoSlice::new(&[]), IoSlice::new(head), IoSlice::new(tail)];
            at += near.write_vectored(&parts).unwrap();
        } else {
            near.write_all(&sent[at..end]).unwrap();
            at = end;
        }
        if size % 11 == 0 {
            near.flush().unwrap();
        }
    }
    near.shutdown(Shutdown::Write).unwrap();
    assert!(all.join().unwrap() == sent);
}

#[test]
fn a_full_buffer_is_handed_over_and_the_next_one_begins() {
    let mut pair = Pair::new(Options::default());
    for half in bytes(ROOM).chunks(ROOM / 2) {
        pair.near.write_all(half).unwrap();
    }
    assert_eq!(pair.near.buffered(), ROOM, "it is full, but nothing came for which it has no room");
    pair.near.write_all(&bytes(100)).unwrap();
    assert_eq!(pair.near.buffered(), 100);
    assert!(pair.near.get_ref().unacknowledged_bytes() == ROOM);
    pair.near.write_all(&bytes(2 * ROOM)).unwrap();
    assert_eq!(pair.near.buffered(), 0, "what no buffer holds goes directly");
    pair.pump();
    assert!(pair.arrived() == [bytes(ROOM), bytes(100), bytes(2 * ROOM)].concat());
}

#[test]
fn a_buffer_of_any_size_is_one_that_there_is() {
    let mut pair = Pair::new(Options::default().sndbuf(Some(1 << 20)));
    for (asked, size) in [(0, 512), (513, 4096), (1 << 20, 262_144)] {
        pair.near = pair.near.into_inner().unwrap().with_write_buffer(asked);
        let sent = bytes(size - 1);
        pair.near.write_all(&sent).unwrap();
        assert_eq!(pair.near.buffered(), size - 1, "{asked}");
        pair.near.write_all(b"12").unwrap();
        assert_eq!(pair.near.buffered(), 1, "{asked}");
        pair.near.flush().unwrap();
        pair.near.write_all(&bytes(size)).unwrap();
        assert_eq!(pair.near.buffered(), 0, "{asked}");
        let mut all = Vec::new();
        while all.len() < 2 * size + 1 {
            pair.pump();
            all.extend(pair.arrived());
        }
        assert!(all == [&sent[..], b"12", &bytes(size)].concat(), "{asked}");
    }
}

#[test]
fn a_read_that_finds_nothing_hands_over() {
    let (mut near, mut far) = connected();
    let server = thread::spawn(move || {
        let mut word = [0; 4];
        far.read_exact(&mut word).unwrap();
        far.write_all(&word).unwrap();
        far
    });
    near.write_all(b"ping").unwrap();
    let mut word = [0; 4];
    near.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ping");
    // Bytes that are there already are read without a handover.
    let mut far = server.join().unwrap();
    far.write_all(b"more").unwrap();
    while near.get_ref().readable_bytes() < 4 {
        thread::yield_now();
    }
    near.write_all(b"aside").unwrap();
    near.read_exact(&mut word).unwrap();
    assert_eq!(near.buffered(), 5);
    // One that does not block finds nothing either, and says so.
    near.get_ref().set_nonblocking(true).unwrap();
    assert_eq!(near.read(&mut word).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(near.buffered(), 0);
}

#[test]
fn a_drop_and_a_shutdown_lose_nothing() {
    let (mut near, far) = connected();
    let all = read_all(far);
    near.write_all(b"last words").unwrap();
    drop(near);
    assert_eq!(all.join().unwrap(), b"last words");

    let (mut near, far) = connected();
    let all = read_all(far);
    near.write_all(b"last words").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(all.join().unwrap(), b"last words");
    assert_eq!(near.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);

    let (mut near, far) = connected();
    let all = read_all(far);
    near.write_all(b"last ").unwrap();
    let mut near = near.into_inner().unwrap();
    near.write_all(b"words").unwrap();
    drop(near);
    assert_eq!(all.join().unwrap(), b"last words");

    let (mut near, far) = connected();
    let all = read_all(far);
    let panicked = thread::spawn(move || {
        near.write_all(b"last words").unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(all.join().unwrap(), b"last words");
}

#[test]
fn errors_arrive_at_the_flush() {
    let (mut near, far) = connected();
    near.write_all(b"lost").unwrap();
    far.set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    while !near.get_ref().poll_readable(Waker::noop()) {
        thread::yield_now();
    }
    near.write_all(b"lost").unwrap();
    assert_eq!(near.flush().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(near.buffered(), 0, "it is gone");
    assert_eq!(near.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn what_the_end_of_a_turn_met_is_told_by_the_flush() {
    let Pair { client, server, mut near, far } = Pair::new(Options::default());
    near.write_all(b"lost").unwrap();
    far.set_linger(Some(Duration::ZERO)).unwrap();
    thread::scope(|scope| {
        // Not on the thread whose turn would end by that.
        scope.spawn(|| {
            drop(far);
            while client.poll().worked | server.poll().worked {}
        });
    });
    client.poll();
    assert_eq!(near.buffered(), 0, "the turn has ended");
    assert_eq!(near.flush().unwrap_err().kind(), ErrorKind::ConnectionReset);
    near.flush().unwrap();
}

/// Loops that never flush: what each does after it has written.
#[test]
fn a_loop_hands_over_when_its_turn_ends() {
    type End = fn(&Stack);
    let ends: [End; 2] = [
        |stack| {
            let _: Polled = stack.poll();
        },
        |stack| stack.wait(Some(stack.now()), || true).unwrap(),
    ];
    for end in ends {
        let mut pair = Pair::new(Options::default());
        pair.near.write_all(b"aside").unwrap();
        assert_eq!(pair.near.buffered(), 5);
        end(&pair.client);
        assert_eq!(pair.near.buffered(), 0);
        pair.pump();
        assert_eq!(pair.arrived(), b"aside");
    }
    // In a turn, with what is written along with the acknowledgement.
    let mut pair = Pair::new(Options::default());
    (&pair.far).write_all(b"question").unwrap();
    let mut answered = false;
    let near = &mut pair.near;
    while !answered {
        pair.server.poll();
        pair.client.poll_with(|| {
            let mut word = [0; 8];
            if near.read(&mut word).is_ok() {
                near.write_all(b"an").unwrap();
                near.write_all(b"swer").unwrap();
                answered = true;
            }
        });
    }
    assert_eq!(pair.near.buffered(), 0, "the turn has ended");
    pair.pump();
    assert_eq!(pair.arrived(), b"answer");
}

#[test]
fn the_loop_of_a_queue_hands_over_as_well() {
    let mut pair = Pair::new(Options::default());
    let mut queue = pair.client.queue(0).unwrap();
    let mut word = *b"0";
    let mut after = |pair: &mut Pair, end: &mut dyn FnMut()| {
        word[0] += 1;
        pair.near.write_all(&word).unwrap();
        end();
        assert_eq!(pair.near.buffered(), 0);
    };
    after(&mut pair, &mut || {
        queue.poll();
    });
    after(&mut pair, &mut || {
        queue.poll_with(|| ());
    });
    after(&mut pair, &mut || queue.wait(None, || true).unwrap());
    #[cfg(unix)]
    after(&mut pair, &mut || drop(queue.prepare_wait(|| true).unwrap()));
    let pump =
        |queue: &mut plimsoll::QueueLoop| while queue.poll().worked | pair.server.poll().worked {};
    pump(&mut queue);
    assert_eq!(pair.arrived(), if cfg!(unix) { &b"1234"[..] } else { b"123" });
}

#[test]
fn a_stream_that_leaves_the_loop_keeps_its_order() {
    let mut pair = Pair::new(Options::default());
    pair.near.write_all(b"one, ").unwrap();
    let Pair { client, server, near, far } = pair;
    let mut near = thread::spawn(move || {
        let mut near = near;
        near.write_all(b"two, ").unwrap();
        near
    })
    .join()
    .unwrap();
    client.poll();
    assert_eq!(near.buffered(), 10, "it is the loop's no more");
    near.write_all(b"three").unwrap();
    client.poll();
    assert_eq!(near.buffered(), 0, "it is the loop's again");
    let mut pair = Pair { client, server, near, far };
    pair.pump();
    assert_eq!(pair.arrived(), b"one, two, three");
}

#[test]
fn what_was_put_aside_before_the_first_turn_leaves_at_its_end() {
    let pair = Pair::new(Options::default());
    thread::spawn(move || {
        let mut pair = pair;
        pair.near.write_all(b"early").unwrap();
        pair.pump();
        assert_eq!(pair.near.buffered(), 0);
        assert_eq!(pair.arrived(), b"early");
    })
    .join()
    .unwrap();
}

#[test]
fn a_buffer_that_goes_to_and_fro_is_handed_over_by_who_wrote_last() {
    let mut pair = Pair::new(Options::default());
    for _ in 0..100 {
        pair.near.write_all(b"here ").unwrap();
        let Pair { client, server, mut near, far } = pair;
        near = thread::spawn(move || {
            near.write_all(b"there ").unwrap();
            near
        })
        .join()
        .unwrap();
        near.write_all(b"here again, ").unwrap();
        client.poll();
        assert_eq!(near.buffered(), 0);
        pair = Pair { client, server, near, far };
    }
    pair.pump();
    assert_eq!(pair.arrived(), b"here there here again, ".repeat(100));
}

#[test]
fn a_budget_that_leaves_less_than_a_buffer_has_nothing_put_aside() {
    let mut pair = Pair::new(Options::default());
    pair.near = pair.near.into_inner().unwrap().with_write_buffer(256 << 10);
    pair.near.get_ref().set_memory_budget(Some(64 << 10)).unwrap();
    pair.near.write_all(b"directly").unwrap();
    assert_eq!(pair.near.buffered(), 0);
    pair.near.get_ref().set_memory_budget(Some(1 << 20)).unwrap();
    pair.pump();
    pair.near.write_all(b", aside").unwrap();
    assert_eq!(pair.near.buffered(), 7);
    pair.pump();
    assert_eq!(pair.arrived(), b"directly, aside");
}

#[test]
fn parts_that_are_longer_than_memory_together_are_written_in_part() {
    let (mut near, far) = connected();
    let all = read_all(far);
    near.write_all(b"first").unwrap();
    let long = vec![7; 1 << 20];
    let parts = vec![IoSlice::new(&long); 8192];
    let count = near.write_vectored(&parts).unwrap();
    assert!((1..=long.len()).contains(&count), "{count}");
    drop(near);
    assert_eq!(all.join().unwrap().len(), 5 + count);
}

#[test]
fn without_space_a_write_waits_and_nothing_is_lost() {
    let mut pair = Pair::new(Options::default().sndbuf(Some(8 << 10)));
    let mut sent = Vec::new();
    let piece = bytes(100);
    let refused = loop {
        match pair.near.write(&piece) {
            Ok(count) => sent.extend_from_slice(&piece[..count]),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let unacked = pair.near.get_ref().unacknowledged_bytes();
    assert_eq!(unacked + pair.near.buffered(), sent.len());
    pair.pump();
    let mut all = pair.arrived();
    // There is space again. The peer does not read what follows, but all is taken by the drop.
    while let Ok(count) = pair.near.write(&piece) {
        sent.extend_from_slice(&piece[..count]);
    }
    let Pair { client, server, near, far } = pair;
    drop(near);
    let rest = thread::spawn(move || {
        far.set_nonblocking(false).unwrap();
        let mut rest = Vec::new();
        (&far).read_to_end(&mut rest).unwrap();
        rest
    });
    while !rest.is_finished() {
        client.poll();
        server.poll();
    }
    all.extend(rest.join().unwrap());
    assert!(all == sent);
}

#[test]
fn what_is_aside_counts_and_an_idle_stream_holds_nothing() {
    let mut pair = Pair::new(Options::default());
    let none = pair.client.memory().bytes;
    pair.near.write_all(b"aside").unwrap();
    assert!(pair.client.memory().bytes >= none + ROOM);
    pair.pump();
    assert_eq!(pair.near.buffered(), 0);
    assert_eq!(pair.arrived(), b"aside");
    pair.pump();
    let memory = pair.client.memory();
    assert_eq!((memory.bytes, memory.holders), (none, 0));
    assert_eq!(pair.client.core().pool().stats().in_use_bytes, 0);
}

#[test]
fn while_memory_is_short_nothing_is_put_aside() {
    let mut pair = Pair::new(Options::default());
    pair.client.set_sysctl("net.ipv4.tcp_mem", "1 1 4096").unwrap();
    let hoarder = TcpListener::bind(&pair.server, "192.0.2.2:8").unwrap();
    let other = Connector::new(&pair.client).start(hoarder.local_addr().unwrap()).unwrap();
    pair.pump();
    (&other).write_all(&bytes(20_000)).unwrap();
    assert!(pair.client.memory().pressure);
    pair.near.write_all(b"directly").unwrap();
    assert_eq!(pair.near.buffered(), 0);
    pair.pump();
    assert_eq!(pair.arrived(), b"directly");
}

#[test]
fn futures_of_ones_own() {
    let (mut near, mut far) = connected();
    let mut context = Context::from_waker(Waker::noop());
    let cx = &mut context;
    assert!(matches!(near.poll_write(cx, b"one"), Poll::Ready(Ok(3))));
    let parts = [IoSlice::new(b", "), IoSlice::new(b"two")];
    assert!(matches!(near.poll_write_vectored(cx, &parts), Poll::Ready(Ok(5))));
    assert_eq!(near.buffered(), 8);
    let mut word = [0; 8];
    assert!(near.poll_read(cx, &mut word).is_pending());
    assert_eq!(near.buffered(), 0);
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"one, two");
    assert!(matches!(near.poll_write(cx, b"three"), Poll::Ready(Ok(5))));
    assert!(near.poll_flush(cx).is_ready());
    assert!(matches!(near.poll_write(cx, b"!"), Poll::Ready(Ok(1))));
    assert!(matches!(near.poll_shutdown(cx), Poll::Ready(Ok(()))));
    assert_eq!(read_all(far).join().unwrap(), b"three!");
}

#[cfg(feature = "futures-io")]
#[test]
fn the_traits_of_futures_io() {
    use futures_io::{AsyncRead, AsyncWrite};
    use std::pin::Pin;

    let (mut near, mut far) = connected();
    let mut context = Context::from_waker(Waker::noop());
    let cx = &mut context;
    assert!(matches!(AsyncWrite::poll_write(Pin::new(&mut near), cx, b"one"), Poll::Ready(Ok(3))));
    let mut word = [0; 3];
    assert!(AsyncRead::poll_read(Pin::new(&mut near), cx, &mut word).is_pending());
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"one");
    assert!(matches!(AsyncWrite::poll_write(Pin::new(&mut near), cx, b"two"), Poll::Ready(Ok(3))));
    assert!(AsyncWrite::poll_flush(Pin::new(&mut near), cx).is_ready());
    assert!(matches!(AsyncWrite::poll_write(Pin::new(&mut near), cx, b"!"), Poll::Ready(Ok(1))));
    assert!(AsyncWrite::poll_close(Pin::new(&mut near), cx).is_ready());
    assert_eq!(read_all(far).join().unwrap(), b"two!");
}

#[cfg(feature = "tokio")]
mod tokio_traits {
    use plimsoll::Stack;
    use plimsoll::net::{Driver, TcpListener, TcpStream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Both ends on a stack that a task of the runtime runs.
    async fn pair() -> (TcpStream, TcpStream) {
        let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
        tokio::spawn(Driver::new(&stack).unwrap());
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (near, far)
    }

    #[tokio::test]
    async fn a_stream_flushes_and_shuts_down() {
        let (near, mut far) = pair().await;
        let mut near = near.with_write_buffer(super::ROOM);
        near.write_all(b"one").await.unwrap();
        assert_eq!(near.buffered(), 3);
        near.flush().await.unwrap();
        let mut word = [0; 3];
        far.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"one");
        near.write_all(b"two").await.unwrap();
        near.shutdown().await.unwrap();
        let mut rest = String::new();
        far.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "two");
    }

    #[tokio::test]
    async fn a_read_that_is_pending_hands_over() {
        let (near, mut far) = pair().await;
        let mut near = near.with_write_buffer(super::ROOM);
        let server = tokio::spawn(async move {
            let mut word = [0; 4];
            far.read_exact(&mut word).await.unwrap();
            far.write_all(&word).await.unwrap();
        });
        near.write_all(b"ping").await.unwrap();
        let mut word = [0; 4];
        near.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"ping");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_half_may_have_one_and_its_drop_loses_nothing() {
        let (near, mut far) = pair().await;
        let (reader, writer) = near.into_split();
        let mut writer = writer.with_write_buffer(super::ROOM);
        for _ in 0..1000 {
            writer.write_all(b"0123456789").await.unwrap();
        }
        drop(writer);
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "0123456789".repeat(1000));
        drop(reader);
    }

    #[tokio::test]
    async fn without_space_it_is_pending_until_there_is_some() {
        let (near, mut far) = pair().await;
        let mut near = near.with_write_buffer(super::ROOM);
        let sender = tokio::spawn(async move {
            for _ in 0..100_000 {
                near.write_all(&[7; 100]).await.unwrap();
            }
            near.shutdown().await.unwrap();
        });
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), 10_000_000);
        assert!(all.iter().all(|&byte| byte == 7));
        sender.await.unwrap();
    }
}
