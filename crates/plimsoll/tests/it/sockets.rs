//! The sockets behave as std's do. Two stacks in this process, a link in memory, real threads.
//!
//! Nothing here asserts how long something takes. Timeouts are used only where they must come, or
//! are so long that they mean a failed test.
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{
    Connector, Keepalive, Options, PathMtuDiscovery, Stack, State, TcpListener, TcpStream,
};

const SHORT: Duration = Duration::from_millis(30);

fn stacks_over(link: LinkConfig) -> (Stack, Stack) {
    let (here, there) = memory_link::pair(link);
    let build = |device, number: u8| {
        Stack::builder()
            .device(device)
            .address(format!("192.0.2.{number}/24"))
            .address(format!("2001:db8::{number}/64"))
            .build()
            .unwrap()
    };
    (build(here, 1), build(there, 2))
}

fn stacks() -> (Stack, Stack) {
    stacks_over(LinkConfig::default())
}

/// A connection, both ends.
fn connected((client, server): &(Stack, Stack)) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(server, "192.0.2.2:0").unwrap();
    let near = TcpStream::connect(client, listener.local_addr().unwrap()).unwrap();
    let (far, address) = listener.accept().unwrap();
    assert_eq!(address, near.local_addr().unwrap());
    assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
    (near, far)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 % 251) as u8).collect()
}

#[test]
fn half_close_both_ways() {
    let stacks = stacks();
    let (mut near, mut far) = connected(&stacks);
    near.write_all(b"question").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    assert_eq!(text, "question");
    assert_eq!(kind(near.write(b"more")), ErrorKind::BrokenPipe);
    // The other direction is still open.
    let answer = bytes(300_000);
    let sender = {
        let answer = answer.clone();
        thread::spawn(move || far.write_all(&answer).unwrap())
    };
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got, answer);
    sender.join().unwrap();
    assert_eq!(near.read(&mut [0; 4]).unwrap(), 0);
}

#[test]
fn over_ipv6() {
    let (client, server) = stacks();
    let listener = TcpListener::bind(&server, "[2001:db8::2]:80").unwrap();
    let mut near = TcpStream::connect(&client, "[2001:db8::2]:80").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"six").unwrap();
    let mut word = [0; 3];
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"six");
}

#[test]
fn nobody_listens() {
    let (client, _server) = stacks();
    assert_eq!(kind(TcpStream::connect(&client, "192.0.2.2:9")), ErrorKind::ConnectionRefused);
    let address = "192.0.2.2:9".parse().unwrap();
    let long = Duration::from_secs(60);
    let result = TcpStream::connect_timeout(&client, &address, long);
    assert_eq!(kind(result), ErrorKind::ConnectionRefused);
}

#[test]
fn nobody_answers() {
    let (client, _server) = stacks();
    let silent = "192.0.2.77:9".parse().unwrap();
    let result = TcpStream::connect_timeout(&client, &silent, SHORT);
    assert_eq!(kind(result), ErrorKind::TimedOut);
    let result = TcpStream::connect_timeout(&client, &silent, Duration::ZERO);
    assert_eq!(kind(result), ErrorKind::InvalidInput);
}

#[test]
fn addresses_that_cannot_be() {
    let (client, server) = stacks();
    let (device, _peer) = memory_link::pair(LinkConfig::default());
    let only_v4 = Stack::builder().device(device).address("192.0.2.1/24").build().unwrap();
    let result = TcpStream::connect(&only_v4, "[2001:db8::2]:80");
    assert_eq!(kind(result), ErrorKind::NetworkUnreachable);
    assert_eq!(kind(TcpListener::bind(&server, "192.0.2.9:80")), ErrorKind::AddrNotAvailable);
    let _first = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    assert_eq!(kind(TcpListener::bind(&server, "192.0.2.2:80")), ErrorKind::AddrInUse);
    let connector = Connector::new(&client).local("192.0.2.9:0".parse().unwrap());
    let result = connector.connect("192.0.2.2:80".parse().unwrap());
    assert_eq!(kind(result), ErrorKind::AddrNotAvailable);
}

#[test]
fn a_port_is_free_again_after_its_listener() {
    let (client, server) = stacks();
    drop(TcpListener::bind(&server, "192.0.2.2:80").unwrap());
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    let _near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
    listener.accept().unwrap();
}

#[test]
fn reset_is_told_once() {
    let stacks = stacks();
    let (mut near, far) = connected(&stacks);
    far.set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!(kind(near.read(&mut [0; 4])), ErrorKind::ConnectionReset);
    assert_eq!(near.read(&mut [0; 4]).unwrap(), 0);
    assert_eq!(kind(near.write(b"x")), ErrorKind::BrokenPipe);
    assert!(near.take_error().unwrap().is_none());
}

#[test]
fn a_peek_that_tells_of_a_reset_takes_it() {
    let stacks = stacks();
    let (mut near, far) = connected(&stacks);
    far.set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!(kind(near.peek(&mut [0; 4])), ErrorKind::ConnectionReset);
    assert_eq!(near.peek(&mut [0; 4]).unwrap(), 0);
    assert_eq!(near.read(&mut [0; 4]).unwrap(), 0);
}

#[test]
fn a_reset_behind_a_partial_success_is_told_by_the_next_call() {
    let reset = |far: TcpStream| {
        far.set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
    };
    let stacks = stacks();
    // A vectored read whose first part is filled by all that has arrived.
    let (near, mut far) = connected(&stacks);
    far.write_all(b"data").unwrap();
    while near.readable_bytes() < 4 {
        near.peek(&mut [0; 4]).unwrap();
    }
    reset(far);
    while near.info().state != State::Closed {
        thread::yield_now();
    }
    let (mut first, mut second) = ([0; 4], [0; 4]);
    let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!((&near).read_vectored(&mut parts).unwrap(), 4);
    assert_eq!(kind((&near).read(&mut [0; 4])), ErrorKind::ConnectionReset);
    assert_eq!((&near).read(&mut [0; 4]).unwrap(), 0);
    assert_eq!(kind(near.peer_addr()), ErrorKind::NotConnected);
    // A blocked write of which a part was taken.
    let (near, far) = connected(&stacks);
    near.set_send_buffer_size(10_000).unwrap();
    let writer = thread::spawn(move || {
        let written = (&near).write(&vec![7; 64 << 20]);
        (near, written)
    });
    far.peek(&mut [0; 1]).unwrap();
    reset(far);
    let (near, written) = writer.join().unwrap();
    assert!(written.unwrap() > 0);
    assert_eq!(kind((&near).write(b"x")), ErrorKind::ConnectionReset);
    assert_eq!(kind((&near).write(b"x")), ErrorKind::BrokenPipe);
}

#[test]
fn dropping_unread_data_resets() {
    let stacks = stacks();
    let (mut near, far) = connected(&stacks);
    near.write_all(b"never read").unwrap();
    let mut first = [0; 1];
    far.peek(&mut first).unwrap();
    drop(far);
    assert_eq!(kind(near.read(&mut [0; 4])), ErrorKind::ConnectionReset);
}

#[test]
fn dropping_delivers_what_was_written() {
    let stacks = stacks();
    let (mut near, mut far) = connected(&stacks);
    let data = bytes(1_000_000);
    let writer = {
        let data = data.clone();
        thread::spawn(move || {
            near.write_all(&data).unwrap();
            drop(near);
        })
    };
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert_eq!(got, data);
    writer.join().unwrap();
}

#[test]
fn non_blocking() {
    let (client, server) = stacks();
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(kind(listener.accept()), ErrorKind::WouldBlock);
    let mut near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
    listener.set_nonblocking(false).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    assert_eq!(kind(near.read(&mut [0; 4])), ErrorKind::WouldBlock);
    assert_eq!(kind(near.peek(&mut [0; 4])), ErrorKind::WouldBlock);
    // The peer does not read, so the buffers of both sides fill up.
    let data = bytes(65_536);
    let mut written = 0;
    let error = loop {
        match near.write(&data) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
        assert!(written < 1 << 30);
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // A blocking reader gets all of it.
    near.set_nonblocking(false).unwrap();
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        got.len()
    });
    near.write_all(b"the end").unwrap();
    drop(near);
    assert_eq!(reader.join().unwrap(), written + 7);
}

#[test]
fn a_non_blocking_connect_that_is_refused() {
    let (client, _server) = stacks();
    let stream = Connector::new(&client).start("192.0.2.2:9".parse().unwrap()).unwrap();
    let ready = plimsoll::ReadyQueue::new(&client);
    let waker = ready.waker(0);
    let error = loop {
        match stream.poll_connected(&waker) {
            std::task::Poll::Ready(result) => break result.unwrap_err(),
            std::task::Poll::Pending => thread::yield_now(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(kind(stream.shutdown(Shutdown::Both)), ErrorKind::NotConnected);
}

#[test]
fn timeouts() {
    let stacks = stacks();
    let (mut near, _far) = connected(&stacks);
    assert_eq!(near.read_timeout().unwrap(), None);
    near.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(near.read_timeout().unwrap(), Some(SHORT));
    assert_eq!(kind(near.read(&mut [0; 4])), ErrorKind::WouldBlock);
    assert_eq!(kind(near.set_read_timeout(Some(Duration::ZERO))), ErrorKind::InvalidInput);
    assert_eq!(kind(near.set_write_timeout(Some(Duration::ZERO))), ErrorKind::InvalidInput);
    near.set_write_timeout(Some(SHORT)).unwrap();
    let data = bytes(65_536);
    let mut written = 0;
    let error = loop {
        match near.write(&data) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
        assert!(written < 1 << 30);
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    near.set_read_timeout(None).unwrap();
    assert_eq!(near.read_timeout().unwrap(), None);
}

#[test]
fn shutting_the_read_side_wakes_the_reader() {
    let stacks = stacks();
    let (near, _far) = connected(&stacks);
    let clone = near.try_clone().unwrap();
    let reader = thread::spawn(move || (&clone).read(&mut [0; 4]));
    near.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 0);
    assert_eq!((&near).read(&mut [0; 4]).unwrap(), 0);
}

#[test]
fn peek_leaves_the_bytes() {
    let stacks = stacks();
    let (mut near, mut far) = connected(&stacks);
    near.write_all(b"abc").unwrap();
    let mut word = [0; 3];
    while far.peek(&mut word).unwrap() < 3 {}
    assert_eq!(&word, b"abc");
    let mut again = [0; 3];
    far.read_exact(&mut again).unwrap();
    assert_eq!(&again, b"abc");
}

#[test]
fn vectored() {
    let stacks = stacks();
    let (mut near, mut far) = connected(&stacks);
    let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
    assert_eq!(near.write_vectored(&parts).unwrap(), 6);
    near.shutdown(Shutdown::Write).unwrap();
    let (mut first, mut second) = ([0; 2], [0; 9]);
    let mut got = Vec::new();
    loop {
        let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        let count = far.read_vectored(&mut bufs).unwrap();
        if count == 0 {
            break;
        }
        got.extend_from_slice(&first[..count.min(2)]);
        got.extend_from_slice(&second[..count.saturating_sub(2)]);
    }
    assert_eq!(got, b"onetwo");
}

#[test]
fn empty_buffers_never_block() {
    let stacks = stacks();
    let (mut near, _far) = connected(&stacks);
    assert_eq!(near.read(&mut []).unwrap(), 0);
    assert_eq!(near.write(&[]).unwrap(), 0);
}

#[test]
fn urgent_data() {
    let stacks = stacks();
    let (near, mut far) = connected(&stacks);
    assert_eq!(kind(far.read_urgent()), ErrorKind::InvalidInput);
    near.send_urgent(b"ab!").unwrap();
    let mut word = [0; 2];
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ab");
    // The byte may come behind the others.
    let urgent = loop {
        match far.read_urgent() {
            Ok(byte) => break byte,
            Err(_) => thread::yield_now(),
        }
    };
    assert_eq!(urgent, b'!');
}

#[test]
fn options() {
    let stacks = stacks();
    let (near, _far) = connected(&stacks);
    assert!(!near.nodelay().unwrap());
    near.set_nodelay(true).unwrap();
    assert!(near.try_clone().unwrap().nodelay().unwrap());
    near.set_keepalive(Some(
        Keepalive::default().idle(Duration::from_secs(5)).interval(Duration::from_secs(1)).count(3),
    ))
    .unwrap();
    assert!(near.options().keepalive);
    assert_eq!(near.options().keep_cnt, Some(3));
    let none = Keepalive::default().count(0);
    assert_eq!(kind(near.set_keepalive(Some(none))), ErrorKind::InvalidInput);
    near.set_send_buffer_size(100_000).unwrap();
    assert!(near.send_buffer_size().unwrap() >= 100_000);
    near.set_congestion("reno").unwrap();
    assert_eq!(kind(near.set_congestion("vegas")), ErrorKind::NotFound);
    assert_eq!(kind(near.set_linger(Some(Duration::from_secs(1)))), ErrorKind::InvalidInput);
    near.set_user_timeout(Some(Duration::from_secs(9))).unwrap();
    assert_eq!(near.options().user_timeout, Some(Duration::from_secs(9)));
    near.set_window_clamp(Some(1152)).unwrap();
    assert_eq!(near.window_clamp().unwrap(), Some(1152));
    assert_eq!(kind(near.set_window_clamp(Some(1151))), ErrorKind::InvalidInput);
    near.set_window_clamp(None).unwrap();
    near.set_path_mtu_discovery(PathMtuDiscovery::Never).unwrap();
    assert_eq!(near.path_mtu_discovery().unwrap(), PathMtuDiscovery::Never);
    assert_eq!(near.take_saved_syn(), None, "it opened");
    near.set_rto_min(Some(Duration::from_millis(20))).unwrap();
    near.set_rto_max(Some(Duration::from_secs(2))).unwrap();
    let bounds = (near.options().rto_min, near.options().rto_max);
    assert_eq!(bounds, (Some(Duration::from_millis(20)), Some(Duration::from_secs(2))));
    for time in [Duration::ZERO, Duration::from_secs(121)] {
        assert_eq!(kind(near.set_rto_min(Some(time))), ErrorKind::InvalidInput);
        assert_eq!(kind(near.set_rto_max(Some(time))), ErrorKind::InvalidInput);
    }
    near.set_half_close_timeout(Some(Duration::from_secs(8))).unwrap();
    assert_eq!(near.options().half_close_timeout, Some(Duration::from_secs(8)));
}

#[test]
fn a_full_accept_queue_holds_new_connections_off() {
    let (client, server) = stacks();
    let address: SocketAddr = "192.0.2.2:80".parse().unwrap();
    let listener = TcpListener::bind_with(&server, address, 1, Options::default()).unwrap();
    // As on Linux the queue holds one more than the backlog.
    let _queued: Vec<TcpStream> =
        (0..2).map(|_| TcpStream::connect(&client, address).unwrap()).collect();
    let late = TcpStream::connect_timeout(&client, &address, SHORT);
    // The handshake of one more may look complete to the client, as on Linux; its ACK was dropped.
    if let Err(error) = late {
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    let accepted: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
    assert_eq!(accepted.len(), 2);
    let _fourth = TcpStream::connect(&client, address).unwrap();
    listener.accept().unwrap();
    let count = |name| server.counters().iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    assert!(count("TcpExtListenDrops").unwrap() > 0);
}

#[test]
fn dropping_a_listener_resets_what_waits() {
    let (client, server) = stacks();
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    let mut near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
    // The client may be established before the connection reaches the listener.
    let (_, near2) = (listener.accept().unwrap(), TcpStream::connect(&client, "192.0.2.2:80"));
    drop(listener);
    let mut near2 = near2.unwrap();
    let first = near2.read(&mut [0; 4]).unwrap_err();
    assert_eq!(first.kind(), ErrorKind::ConnectionReset);
    assert_eq!(near.read(&mut [0; 4]).unwrap(), 0);
}

#[test]
fn many_threads() {
    let (client, server) = stacks();
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let flows = 16;
    let echo = thread::spawn(move || {
        let workers: Vec<_> = listener
            .incoming()
            .take(flows)
            .map(|stream| {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut buf = vec![0; 4096];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            count => stream.write_all(&buf[..count]).unwrap(),
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let data = Arc::new(bytes(100_000));
    let clients: Vec<_> = (0..flows)
        .map(|_| {
            let (client, data) = (client.clone(), data.clone());
            thread::spawn(move || {
                let stream = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
                let writer = {
                    let (mut stream, data) = (stream.try_clone().unwrap(), data.clone());
                    thread::spawn(move || {
                        data.chunks(777).for_each(|part| stream.write_all(part).unwrap());
                        stream.shutdown(Shutdown::Write).unwrap();
                    })
                };
                let mut got = Vec::new();
                (&stream).read_to_end(&mut got).unwrap();
                assert!(got == *data);
                writer.join().unwrap();
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    echo.join().unwrap();
}

#[test]
fn a_bad_link_changes_nothing_but_the_time() {
    let link = LinkConfig::default().loss(0.02).reorder(0.02).duplicate(0.01).seed(7);
    let stacks = stacks_over(link);
    let (mut near, mut far) = connected(&stacks);
    let data = bytes(500_000);
    let writer = {
        let data = data.clone();
        thread::spawn(move || near.write_all(&data).unwrap())
    };
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert!(got == data);
    writer.join().unwrap();
}

#[test]
fn sockets_keep_their_stack_alive() {
    let stacks = stacks();
    let (mut near, mut far) = connected(&stacks);
    drop(stacks);
    near.write_all(b"still here").unwrap();
    let mut word = [0; 10];
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"still here");
}

#[test]
fn draining_waits_for_the_last_byte() {
    let (client, server) = stacks();
    let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
    let mut near = TcpStream::connect(&client, "192.0.2.2:80").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"last words").unwrap();
    drop(near);
    client.drain(Duration::from_millis(200));
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last words");
}
