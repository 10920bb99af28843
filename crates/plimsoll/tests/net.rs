//! The sockets of `plimsoll::net`: which stack they take, and what tokio's own tests do not look
//! at.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::gate::{Cancelled, GateConfig, Reject};
use plimsoll::net::{self, Driver, GatedListener, TcpListener, TcpSocket, TcpStream};
use plimsoll::{Connector, Options, Stack};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

fn loopback() -> Stack {
    Stack::builder().loopback_only().build().unwrap()
}

/// A stack that works only while the test waits, so that none of its timers comes in between.
fn loopback_in_turn() -> Stack {
    let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
    tokio::spawn(Driver::new(&stack).unwrap());
    stack
}

fn counter(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|(known, _)| *known == name).unwrap().1
}

async fn pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect_on(stack, listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// The default of the process is set here only.
#[tokio::test]
async fn the_nearest_stack_is_taken() {
    let [task, thread, process] = [loopback(), loopback(), loopback()];
    let is = |stack: &Stack| {
        let found = net::current().unwrap();
        std::sync::Arc::ptr_eq(found.core(), stack.core())
    };
    let none = TcpListener::bind("127.0.0.1:0").await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert!(none.to_string().contains("set_default"), "{none}");
    assert!(TcpStream::connect("127.0.0.1:1").await.is_err());
    assert!(TcpSocket::new_v4().is_err());

    assert!(net::set_default(Some(&process)).is_none());
    assert!(is(&process));
    {
        let _entered = net::enter(&thread);
        assert!(is(&thread));
        let inside = net::scope(&task, async {
            assert!(is(&task));
            tokio::task::yield_now().await;
            assert!(is(&task));
            let spawned = task.clone();
            let found = net::spawn(async move {
                tokio::task::yield_now().await;
                std::sync::Arc::ptr_eq(net::current().unwrap().core(), spawned.core())
            });
            found.unwrap().await.unwrap()
        });
        assert!(inside.await, "what it spawns has its stack");
        assert!(is(&thread), "the scope has ended");
    }
    assert!(is(&process));
    let elsewhere = std::thread::spawn(|| net::current().is_ok()).join().unwrap();
    assert!(elsewhere);

    // A listener of one stack is not known to another.
    let listener = net::scope(&task, TcpListener::bind("127.0.0.1:0")).await.unwrap();
    let address = listener.local_addr().unwrap();
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(net::scope(&task, TcpStream::connect(address)).await.is_ok());
    assert!(net::set_default(None).is_some());
}

#[test]
fn a_stack_without_a_device_says_so() {
    let (device, _peer) = memory_link::pair(Default::default());
    let both = Stack::builder().loopback_only().device(device).build().unwrap_err();
    assert!(both.to_string().starts_with("loopback_only: "), "{both}");
    let neither = Stack::builder().build().unwrap_err();
    assert!(neither.to_string().starts_with("device: "), "{neither}");
}

#[tokio::test]
async fn a_flush_lets_go_what_a_cork_holds_and_waits_for_nothing() {
    let stack = loopback_in_turn();
    let (mut near, mut far) = pair(&stack).await;
    near.get_ref().set_cork(true).unwrap();
    near.write_all(b"ahoy").await.unwrap();
    assert_eq!(near.get_ref().info().notsent_bytes, 4, "the cork holds it");
    near.flush().await.unwrap();
    assert_eq!(near.get_ref().info().notsent_bytes, 0, "it has left");
    assert!(near.get_ref().cork().unwrap(), "the cork stays");
    let mut heard = [0; 4];
    far.read_exact(&mut heard).await.unwrap();
    near.write_all(b"ahoy").await.unwrap();
    assert_eq!(near.get_ref().info().notsent_bytes, 4, "and holds the next");
    near.get_ref().set_cork(false).unwrap();
    far.read_exact(&mut heard).await.unwrap();

    let more = plimsoll::WriteFlags { more: true, ..Default::default() };
    near.get_ref().write_with(&[IoSlice::new(b"ahoy")], more).unwrap();
    assert_eq!(near.get_ref().info().notsent_bytes, 4, "more is to follow");
    near.flush().await.unwrap();
    far.read_exact(&mut heard).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_begins_with_a_cork_is_flushed_too() {
    let stack = loopback_in_turn();
    let options = Options::default().cork(true);
    let address = "127.0.0.1:7".parse().unwrap();
    let listener = plimsoll::TcpListener::bind_with(&stack, address, 1, options.clone()).unwrap();
    let connector = Connector::new(&stack).options(options);
    let mut near = TcpStream::from(connector.connect_async(address).await.unwrap());
    let mut far = TcpStream::from(listener.accept_async().await.unwrap().0);
    let mut heard = [0; 4];
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut near, &mut far];
        ends[from].write_all(b"ahoy").await.unwrap();
        ends[from].flush().await.unwrap();
        assert_eq!(ends[from].get_ref().info().notsent_bytes, 0);
        ends[to].read_exact(&mut heard).await.unwrap();
    }
}

#[tokio::test]
async fn a_drop_with_unread_data_resets_and_one_without_does_not() {
    let stack = loopback();
    let (near, mut far) = pair(&stack).await;
    drop(near);
    assert_eq!(far.read(&mut [0; 4]).await.unwrap(), 0, "the end of the stream");

    let (near, mut far) = pair(&stack).await;
    far.write_all(b"ahoy").await.unwrap();
    near.readable().await.unwrap();
    drop(near);
    let lost = far.read(&mut [0; 4]).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn errors_urgent_data_and_the_end_are_waited_for_apart_from_data() {
    let stack = loopback();
    let wait = |stream: TcpStream| {
        let (started, begun) = tokio::sync::oneshot::channel();
        let waiter = tokio::spawn(async move {
            started.send(()).unwrap();
            let ready = stream.ready(Interest::ERROR | Interest::PRIORITY).await.unwrap();
            (stream, ready)
        });
        (begun, waiter)
    };
    let (mut near, far) = pair(&stack).await;
    let (begun, waiter) = wait(far);
    begun.await.unwrap();
    near.write_all(b"data").await.unwrap();
    near.get_ref().send_urgent(b"!").unwrap();
    let (far, ready) = waiter.await.unwrap();
    assert!(ready.is_priority() && !ready.is_readable(), "{ready:?}");
    assert_eq!(far.get_ref().read_urgent().unwrap(), b'!');

    let (begun, waiter) = wait(far);
    begun.await.unwrap();
    near.set_zero_linger().unwrap();
    drop(near);
    let (far, ready) = waiter.await.unwrap();
    assert!(ready.is_error(), "{ready:?}");
    let told = far.take_error().unwrap().unwrap();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
    // The connection has ended, and has no error left to report.
    let ready = far.ready(Interest::ERROR).await.unwrap();
    assert!(ready.is_error(), "{ready:?}");
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let stack = loopback();
    let (near, far) = pair(&stack).await;
    let (mut near_reads, near_writes) = near.into_split();
    let (mut far_reads, mut far_writes) = far.into_split();
    drop(near_writes);
    assert_eq!(far_reads.read(&mut [0; 4]).await.unwrap(), 0);
    far_writes.write_all(b"still here").await.unwrap();
    drop(far_writes);
    let mut heard = String::new();
    near_reads.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "still here");
}

#[tokio::test]
async fn a_busy_stream_lets_other_tasks_run() {
    let stack = loopback();
    let (mut near, mut far) = pair(&stack).await;
    let data = vec![7; 20_000];
    near.write_all(&data).await.unwrap();
    while far.get_ref().readable_bytes() < data.len() {
        tokio::task::yield_now().await;
    }
    // Everything is there, so that the reads never wait for the stack.
    let reads = async {
        for _ in 0..data.len() {
            far.read_exact(&mut [0; 1]).await.unwrap();
        }
        "reads"
    };
    let first = tokio::select! {
        biased;
        first = reads => first,
        () = tokio::task::yield_now() => "another task",
    };
    assert_eq!(first, "another task");
}

#[tokio::test]
async fn options_are_those_of_the_connection() {
    let stack = loopback();
    let socket = TcpSocket::new_v4_on(&stack);
    socket.set_nodelay(true).unwrap();
    socket.set_keepalive(true).unwrap();
    socket.set_tos_v4(96).unwrap();
    socket.set_zero_linger().unwrap();
    let elsewhere = "192.0.2.9:0".parse().unwrap();
    assert_eq!(socket.bind(elsewhere).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    let six = "[::1]:0".parse().unwrap();
    assert_eq!(socket.bind(six).unwrap_err().kind(), ErrorKind::InvalidInput);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let listener = socket.listen(8).unwrap();
    let near = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    assert!(far.nodelay().unwrap());
    assert!(far.get_ref().keepalive().unwrap());
    assert_eq!(far.get_ref().tos().unwrap(), 96);
    assert_eq!(far.linger().unwrap(), Some(Duration::ZERO));
    assert_eq!((near.ttl().unwrap(), listener.ttl().unwrap()), (64, 64));
    near.set_ttl(7).unwrap();
    assert_eq!(near.ttl().unwrap(), 7);
    for wrong in [0, 256] {
        assert_eq!(near.set_ttl(wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(near.quickack().unwrap());
    near.set_quickack(false).unwrap();
    assert!(!near.quickack().unwrap());
    drop(near);
    let resets = counter(&stack, "TcpOutRsts");
    drop(far);
    while counter(&stack, "TcpOutRsts") == resets {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_gate_has_streams_of_this_module() {
    const FAR: &str = "198.51.100.7:443";
    let (here, there) = memory_link::pair(Default::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let proxy = Stack::builder().device(there).any_address().build().unwrap();
    let bound = net::scope(&proxy, async { GatedListener::bind_any(GateConfig::default()) });
    let listener = bound.await.unwrap();

    // A cancelled `incoming` takes no connection away.
    tokio::select! {
        biased;
        _ = listener.incoming() => panic!("nobody has connected"),
        () = tokio::task::yield_now() => {}
    }
    let accepted = async {
        let incoming = listener.incoming().await.unwrap();
        assert_eq!(incoming.destination(), FAR.parse().unwrap());
        assert!(incoming.options().mss.is_some());
        (incoming.peer(), incoming.accept().await.unwrap())
    };
    let (near, (peer, mut far)) = tokio::join!(TcpStream::connect_on(&client, FAR), accepted);
    let mut near = near.unwrap();
    assert_eq!(
        (near.local_addr().unwrap(), far.local_addr().unwrap()),
        (peer, FAR.parse().unwrap())
    );
    near.write_all(b"ahoy").await.unwrap();
    near.shutdown().await.unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "ahoy");

    let rejected = async { listener.incoming().await.unwrap().reject(Reject::Rst) };
    let (refused, ()) = tokio::join!(TcpStream::connect_on(&client, FAR), rejected);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // A connection whose `accept` future is never polled is reset, too.
    let forgotten = async { drop(listener.incoming().await.unwrap().accept()) };
    let (refused, ()) = tokio::join!(TcpStream::connect_on(&client, FAR), forgotten);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(listener.get_ref().waiting(), 0);

    // A waiting connection is notified of the end of its listener.
    let incoming = tokio::select! {
        connected = TcpStream::connect_on(&client, FAR) => panic!("who accepted {connected:?}?"),
        incoming = listener.incoming() => incoming.unwrap(),
    };
    drop(listener);
    assert_eq!(incoming.cancelled().await, Cancelled::Closed);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn axum_serves_on_a_listener() {
    let stack = loopback();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:80").await.unwrap();
    let routes = axum::Router::new().route("/", axum::routing::get(async || "Hello, World!"));
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut stream = TcpStream::connect_on(&stack, "127.0.0.1:80").await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nHello, World!"), "{answer}");
    server.abort();
}

#[cfg(feature = "futures-io")]
#[tokio::test]
async fn the_traits_of_futures_io() {
    use std::future::poll_fn;
    use std::pin::Pin;

    use futures_io::{AsyncRead, AsyncWrite};

    let stack = loopback();
    let (near, far) = pair(&stack).await;
    let (near, far) = (near.into_std().unwrap(), far.into_std().unwrap());
    let mut writing = &near;
    let parts = [IoSlice::new(b"a"), IoSlice::new(b"hoy")];
    let write = poll_fn(|cx| Pin::new(&mut writing).poll_write_vectored(cx, &parts));
    assert_eq!(write.await.unwrap(), 4);
    poll_fn(|cx| Pin::new(&mut writing).poll_flush(cx)).await.unwrap();
    poll_fn(|cx| Pin::new(&mut writing).poll_close(cx)).await.unwrap();
    let (mut reading, mut heard) = (far, Vec::new());
    loop {
        let mut buf = [0; 16];
        let count = poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut reading), cx, &mut buf));
        match count.await.unwrap() {
            0 => break,
            count => heard.extend_from_slice(&buf[..count]),
        }
    }
    assert_eq!(heard, b"ahoy");
}

#[tokio::test]
async fn sockets_share_a_port_if_all_say_so() {
    let stack = loopback();
    let listen = |port, share| {
        let socket = TcpSocket::new_v4_on(&stack);
        socket.set_reuseport(share)?;
        assert_eq!(socket.reuseport().unwrap(), share);
        socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], port)))?;
        socket.listen(64)
    };
    let first = listen(0, true).unwrap();
    let address = first.local_addr().unwrap();
    let second = listen(address.port(), true).unwrap();
    let alone = listen(address.port(), false).unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::AddrInUse);
    let mut streams = Vec::new();
    let mut accepted = [0, 0];
    for _ in 0..64 {
        streams.push(TcpStream::connect_on(&stack, address).await.unwrap());
        let at = tokio::select! {
            one = first.accept() => one.map(|_| 0).unwrap(),
            one = second.accept() => one.map(|_| 1).unwrap(),
        };
        accepted[at] += 1;
    }
    assert!(accepted[0] > 0 && accepted[1] > 0, "{accepted:?}");
    drop(first);
    streams.push(TcpStream::connect_on(&stack, address).await.unwrap());
    assert!(second.accept().await.is_ok());
}
