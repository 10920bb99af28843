//! Channel devices under a running stack: threads, the traits of others, and the end.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use futures_core::Stream;
use futures_sink::Sink;
use plimsoll::device::channel::{
    Channel, ChannelConfig, ChannelOffloads, ChannelReceiver, ChannelSender,
};
use plimsoll::gate::{GateConfig, GatedListener, Reject, Unreachable};
use plimsoll::{Packet, Stack, TcpListener, TcpStream, device};

const FAR: &str = "198.51.100.7:443";

/// Carries packets from one channel into another until either ends.
type Carry = fn(ChannelReceiver, ChannelSender);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// A guest and a proxy whose channels `carry` joins, on two threads.
fn joined(
    offloads: ChannelOffloads,
    carry: fn(ChannelReceiver, ChannelSender),
) -> (Stack, Stack, [JoinHandle<()>; 2]) {
    let config = ChannelConfig::default().offloads(offloads).to_caller(64).to_stack(64);
    let (guest, channel) = device::channel(config.clone()).unwrap();
    let (to_guest, from_guest) = channel.split();
    let (proxy, channel) = device::channel(config).unwrap();
    let (to_proxy, from_proxy) = channel.split();
    let carriers = [
        thread::spawn(move || carry(from_guest, to_proxy)),
        thread::spawn(move || carry(from_proxy, to_guest)),
    ];
    let guest = Stack::builder().device(guest).address("192.0.2.1/24").build().unwrap();
    let proxy = Stack::builder().device(proxy).any_address().build().unwrap();
    (guest, proxy, carriers)
}

fn by_values(mut from: ChannelReceiver, mut to: ChannelSender) {
    block_on(async {
        let mut batch = Vec::new();
        while from.recv_many(&mut batch, 32).await > 0 {
            for packet in batch.drain(..) {
                if to.send(packet).await.is_err() {
                    return;
                }
            }
        }
    });
}

fn by_stream_and_sink(mut from: ChannelReceiver, mut to: ChannelSender) {
    block_on(async {
        while let Some(packet) = poll_fn(|cx| Pin::new(&mut from).poll_next(cx)).await {
            if poll_fn(|cx| Sink::poll_ready(Pin::new(&mut to), cx)).await.is_err() {
                return;
            }
            Sink::start_send(Pin::new(&mut to), packet).unwrap();
        }
    });
}

fn by_tokio_s_traits(mut from: ChannelReceiver, mut to: ChannelSender) {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    block_on(async {
        let mut bytes = [0; 1500];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            poll_fn(|cx| Pin::new(&mut from).poll_read(cx, &mut buf)).await.unwrap();
            let packet = buf.filled();
            if packet.is_empty() {
                return;
            }
            if poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut to), cx, packet)).await.is_err() {
                return;
            }
        }
    });
}

fn by_futures_io(mut from: ChannelReceiver, mut to: ChannelSender) {
    use futures_io::{AsyncRead, AsyncWrite};
    block_on(async {
        let mut bytes = [0; 1500];
        loop {
            let read = poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut from), cx, &mut bytes));
            let len = read.await.unwrap();
            if len == 0 {
                return;
            }
            let packet = &bytes[..len];
            if poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut to), cx, packet)).await.is_err() {
                return;
            }
        }
    });
}

/// Echoes one connection, each direction to its end.
fn echo_once(listener: GatedListener) -> JoinHandle<io::Result<u64>> {
    thread::spawn(move || {
        let stream = listener.incoming().wait()?.accept().wait()?;
        let copied = io::copy(&mut &stream, &mut &stream)?;
        stream.shutdown(Shutdown::Write)?;
        Ok(copied)
    })
}

fn there_and_back(guest: &Stack, len: usize) {
    let stream = TcpStream::connect(guest, FAR).unwrap();
    let data: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&data).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        (&stream).read_to_end(&mut got).unwrap();
        assert!(got == data, "every byte, and then the end");
    });
}

#[test]
fn every_way_to_carry_packets_carries_them() {
    let ways: [(ChannelOffloads, Carry); 6] = [
        (ChannelOffloads::None, by_values),
        (ChannelOffloads::Segmentation, by_values),
        (ChannelOffloads::Checksum, by_stream_and_sink),
        (ChannelOffloads::None, by_tokio_s_traits),
        (ChannelOffloads::Segmentation, by_tokio_s_traits),
        (ChannelOffloads::Segmentation, by_futures_io),
    ];
    for (offloads, carry) in ways {
        let (guest, proxy, carriers) = joined(offloads, carry);
        let listener = GatedListener::bind_any(&proxy, GateConfig::default()).unwrap();
        let echo = echo_once(listener);
        there_and_back(&guest, 300_000);
        assert_eq!(echo.join().unwrap().unwrap(), 300_000);
        drop((guest, proxy));
        for carrier in carriers {
            carrier.join().expect("the end of a stack ends who carries for it");
        }
    }
}

#[test]
fn half_closes_go_through_and_leave_nothing() {
    let (guest, proxy, _carriers) = joined(ChannelOffloads::None, by_values);
    let listener = TcpListener::bind_any(&proxy).unwrap();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(&guest, FAR).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        stream.write_all(b"question").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut question = String::new();
        served.read_to_string(&mut question).unwrap();
        served.write_all(b"answer").unwrap();
        drop(served);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    }
    // The side that closes first waits in TIME-WAIT, and there are no connections.
    assert!(proxy.drain(std::time::Duration::from_secs(60)));
    let open = |stack: &Stack| stack.core().connection_memory().connections;
    assert_eq!(open(&proxy), 0);
    assert!(guest.drain(std::time::Duration::from_secs(60)));
    assert_eq!(open(&guest), 0);
}

#[test]
fn parallel_connects_are_all_answered_as_the_far_side_would() {
    let (guest, proxy, _carriers) = joined(ChannelOffloads::None, by_values);
    let gate = GateConfig::default().per_source(512);
    let listener = GatedListener::bind_any(&proxy, gate).unwrap();
    let serve = thread::spawn(move || -> io::Result<()> {
        for _ in 0..200 {
            let incoming = listener.incoming().wait()?;
            match incoming.destination().port() % 4 {
                0 => drop(incoming.accept().wait()?),
                1 => incoming.reject(Reject::Rst),
                2 => incoming.reject(Reject::Icmp(Unreachable::Host)),
                _ => drop(incoming),
            }
        }
        Ok(())
    });
    thread::scope(|scope| {
        for port in 1000..1200 {
            let guest = &guest;
            scope.spawn(move || {
                let outcome = TcpStream::connect(guest, ("198.51.100.7", port));
                let kind = outcome.map(drop).map_err(|error| error.kind());
                let expected = match port % 4 {
                    0 => Ok(()),
                    2 => Err(ErrorKind::HostUnreachable),
                    _ => Err(ErrorKind::ConnectionRefused),
                };
                assert_eq!(kind, expected, "{port}");
            });
        }
    });
    serve.join().unwrap().unwrap();
}

#[test]
fn what_waits_at_the_gate_hears_of_its_end_and_leaves_nothing_when_dropped() {
    let (guest, proxy, _carriers) = joined(ChannelOffloads::None, by_values);
    let zero = GateConfig::default().waiting(0);
    let error = GatedListener::bind_any(&proxy, zero).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("gate.waiting is 0"), "{error}");
    let listener = GatedListener::bind_any(&proxy, GateConfig::default()).unwrap();
    let unpark = Arc::new(Unpark(thread::current()));
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    let before = Arc::strong_count(&unpark);
    assert!(pin!(listener.incoming()).poll(&mut cx).is_pending());
    assert_eq!(Arc::strong_count(&unpark), before, "the future is gone, and so is its waker");
    let connect = thread::spawn(move || {
        let outcome = TcpStream::connect(&guest, FAR);
        (guest, outcome.map(drop).map_err(|error| error.kind()))
    });
    let incoming = block_on(listener.incoming()).unwrap();
    assert_eq!(incoming.destination(), FAR.parse().unwrap());
    assert!(incoming.options().mss.is_some());
    assert!(pin!(incoming.cancelled()).poll(&mut cx).is_pending());
    assert_eq!(Arc::strong_count(&unpark), before);
    // A connection whose `accept` future is dropped is reset, before or after its other end has
    // seen it open.
    drop(incoming.accept());
    let (guest, outcome) = connect.join().unwrap();
    let reset = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
    assert!(outcome.is_ok() || outcome.is_err_and(|kind| reset.contains(&kind)), "{outcome:?}");
    let connect = thread::spawn(move || TcpStream::connect(&guest, FAR).is_ok());
    let incoming = listener.incoming().wait().unwrap();
    drop(listener);
    assert_eq!(incoming.cancelled().wait(), plimsoll::gate::Cancelled::Closed);
    let gone = incoming.accept().wait().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::ConnectionAborted);
    drop(proxy);
    drop(connect);
}

#[test]
fn a_channel_that_ends_in_the_middle_ends_every_call_with_its_reason() {
    let (device, channel) = device::channel(ChannelConfig::default()).unwrap();
    let stack = Stack::builder().device(device).address("192.0.2.1/24").build().unwrap();
    let listener = TcpListener::bind(&stack, "192.0.2.1:7").unwrap();
    let client = stack.clone();
    let calls = [
        thread::spawn(move || listener.accept().map(drop).unwrap_err()),
        thread::spawn(move || TcpStream::connect(&client, "192.0.2.9:7").map(drop).unwrap_err()),
    ];
    let mut channel: Channel = channel;
    // The SYN: now a connect waits.
    assert!(channel.blocking_recv().is_some());
    channel.close("the tunnel was shut");
    for call in calls {
        let error = call.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert!(error.to_string().contains("the tunnel was shut"), "{error}");
    }
    assert!(stack.error().unwrap().to_string().contains("the tunnel was shut"));
}

#[test]
fn the_end_of_the_writing_half_takes_the_interface_down() {
    use tokio::io::AsyncWrite;
    let (device, mut channel) = device::channel(ChannelConfig::default()).unwrap();
    let stack = Stack::builder().device(device).address("192.0.2.1/24").build().unwrap();
    let waiting = stack.clone();
    let listener = TcpListener::bind(&waiting, "192.0.2.1:7").unwrap();
    block_on(poll_fn(|cx| AsyncWrite::poll_shutdown(Pin::new(&mut channel), cx))).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::NetworkDown);
    assert!(channel.blocking_recv().is_none());
    assert!(channel.try_send(Packet::from(vec![0; 20])).is_ok() || stack.error().is_some());
}
