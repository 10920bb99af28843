//! The report of a shutdown, and its effect on peers.
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::net::{self, Driver};
use plimsoll::{Connector, Stack, TcpListener, TcpStream};

/// Longer than anything takes that does not hang.
const GUARD: Duration = Duration::from_secs(60);

/// A client's stack and a server's, both run by the test.
struct World {
    client: Stack,
    server: Stack,
    listener: TcpListener,
}

impl World {
    fn new() -> World {
        let (here, there) = memory_link::pair(Default::default());
        let build = |device, address: &str| {
            Stack::builder().device(device).address(address).build_without_thread().unwrap()
        };
        let (client, server) = (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"));
        let listener = TcpListener::bind(&server, "192.0.2.2:80").unwrap();
        listener.set_nonblocking(true).unwrap();
        World { client, server, listener }
    }

    fn run(&self) {
        while self.client.poll().worked | self.server.poll().worked {}
    }

    fn open(&self) -> (TcpStream, TcpStream) {
        let near = Connector::new(&self.client).start("192.0.2.2:80".parse().unwrap()).unwrap();
        self.run();
        let (far, _) = self.listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        (near, far)
    }
}

#[test]
fn what_is_not_acknowledged_in_time_is_reset_and_counted() {
    let world = World::new();
    let ((mut closed, far), (open, mut other)) = (world.open(), world.open());
    (&open).write_all(&[1; 300]).unwrap();
    closed.write_all(&[2; 1000]).unwrap();
    drop(closed);
    // The server's stack is not polled meanwhile, so it acknowledges nothing.
    let client = world.client.clone();
    let report = client.shutdown(Duration::from_millis(20));
    assert!(!report.is_delivered());
    assert_eq!((report.delivered, report.failed, report.cut_off, report.open), (0, 0, 1, 1));
    assert_eq!(report.unacknowledged_bytes, 1300);
    let error = (&open).read(&mut [0; 8]).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), {
        (ErrorKind::NetworkDown, "the stack was shut down")
    });
    // The peers get a reset.
    while world.server.poll().worked {}
    let reads = std::iter::repeat_with(|| other.read(&mut [0; 4096]));
    let error = reads.take(10).find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // This one had said that it was done before it was reset.
    assert_eq!(far.take_error().unwrap().unwrap().kind(), ErrorKind::BrokenPipe);
    assert_eq!(world.server.metrics().connections.close_wait, 0);
}

#[test]
fn what_was_delivered_is_counted() {
    let world = World::new();
    let (mut near, far) = world.open();
    near.write_all(b"last words").unwrap();
    drop(near);
    let World { client, server, .. } = world;
    let peer = std::thread::spawn(move || {
        far.set_nonblocking(false).unwrap();
        let mut text = String::new();
        (&far).read_to_string(&mut text).unwrap();
        text
    });
    let polled = server;
    let (stop, stopped) = mpsc::channel::<()>();
    let runner = std::thread::spawn(move || {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            let now = polled.poll();
            if !now.worked {
                let soon = polled.now() + Duration::from_millis(10);
                polled.wait(Some(soon), || false).unwrap();
            }
        }
    });
    let report = client.shutdown(GUARD);
    assert!(report.is_delivered());
    assert_eq!((report.delivered, report.cut_off, report.open), (1, 0, 0));
    assert_eq!(report.unacknowledged_bytes, 0);
    assert_eq!(peer.join().unwrap(), "last words");
    drop(stop);
    runner.join().unwrap();
}

#[test]
fn a_task_shuts_down_a_stack_that_a_driver_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
        let driver = tokio::spawn(Driver::new(&stack).unwrap());
        let listener = net::TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = net::TcpStream::connect_on(&stack, address).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut near, b"unread").await.unwrap();
        // A future that is dropped has ended nothing.
        let ended = tokio::time::timeout(Duration::ZERO, stack.drained()).await;
        assert!(ended.is_ok(), "nothing was closed yet");
        drop(near);
        let given_up = net::shutdown(stack.clone(), GUARD);
        let waited = tokio::time::timeout(Duration::from_millis(10), given_up).await;
        assert!(waited.is_err() && stack.error().is_none(), "the peer is open still");
        let report = net::shutdown(stack, Duration::from_millis(10)).await;
        // The closed stream is acknowledged, and waits for the peer's end, which does not come.
        assert_eq!((report.cut_off, report.open, report.unacknowledged_bytes), (1, 1, 0));
        assert!(far.get_ref().take_error().unwrap().is_some());
        assert_eq!(driver.await.unwrap(), Ok(()), "it ends with the stack");
    });
}
