//! A stack that runs as a task of the runtime that uses its sockets.
use std::future::Future;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::net::{Driver, DriverTimer, TcpListener, TcpStream, TokioClock};
use plimsoll::{Stack, StackBuilder, StackError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;

use crate::namespace::{ip, isolated};

fn loopback() -> Stack {
    Stack::builder().loopback_only().build_without_thread().unwrap()
}

/// Two stacks of one runtime, and their drivers.
fn joined(change: impl Fn(StackBuilder) -> StackBuilder) -> [(Stack, Driver); 2] {
    let (here, there) = memory_link::pair(Default::default());
    [(here, "192.0.2.1/24"), (there, "192.0.2.2/24")].map(|(device, address)| {
        let builder = change(Stack::builder().device(device).address(address));
        let stack = builder.build_without_thread().unwrap();
        let driver = Driver::new(&stack).unwrap();
        (stack, driver)
    })
}

/// Echoes until the peer ends.
async fn echo(listener: TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await.unwrap();
    to.shutdown().await.unwrap();
}

/// Sends `len` bytes to an echo and reads them back.
async fn there_and_back(stream: TcpStream, len: usize) {
    let data: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
    let (mut from, mut to) = stream.into_split();
    let sent = data.clone();
    let sender = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    assert!(heard == data, "{} of {len} bytes", heard.len());
    sender.await.unwrap();
}

#[test]
fn one_thread_runs_two_stacks_and_their_applications() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let [(client, one), (server, other)] = joined(|builder| builder);
        tokio::spawn(one);
        tokio::spawn(other);
        let listener = TcpListener::bind_on(&server, "192.0.2.2:7").await.unwrap();
        let echo = tokio::spawn(echo(listener));
        let stream = TcpStream::connect_on(&client, "192.0.2.2:7").await.unwrap();
        there_and_back(stream, 3_000_000).await;
        echo.await.unwrap();
    });
}

#[test]
fn several_threads_do_as_well() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    runtime.block_on(async {
        let [(client, one), (server, other)] = joined(|builder| builder);
        tokio::spawn(one);
        tokio::spawn(other);
        let listener = TcpListener::bind_on(&server, "192.0.2.2:7").await.unwrap();
        let echo = tokio::spawn(echo(listener));
        let connect = async move { TcpStream::connect_on(&client, "192.0.2.2:7").await.unwrap() };
        let stream = tokio::spawn(connect).await.unwrap();
        there_and_back(stream, 3_000_000).await;
        echo.await.unwrap();
    });
}

#[test]
fn it_ends_when_the_last_handle_is_gone() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let stack = loopback();
        let driver = tokio::spawn(Driver::new(&stack).unwrap());
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        drop(stack);
        tokio::task::yield_now().await;
        assert!(!driver.is_finished(), "a listener is a handle");
        drop(listener);
        assert_eq!(driver.await.unwrap(), Ok(()));
    });
}

#[test]
fn a_stack_has_one_driver() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let _in_runtime = runtime.enter();
    let stack = loopback();
    let driver = Driver::new(&stack).unwrap();
    let refused = Driver::new(&stack).unwrap_err();
    assert!(matches!(refused, StackError::AlreadyWaited { queue: 0 }), "{refused}");
    assert!(stack.wait(None, || true).is_err());
    drop(driver);
    assert!(Driver::new(&stack).is_ok(), "the next one takes over");
    let with_threads = Stack::builder().loopback_only().build().unwrap();
    assert!(Driver::new(&with_threads).is_err());
}

#[test]
fn a_driver_that_has_slept_hands_over_to_a_loop() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let stack = loopback();
    let _in_runtime = runtime.enter();
    let mut driver = Box::pin(Driver::new(&stack).unwrap());
    let mut context = Context::from_waker(Waker::noop());
    assert!(driver.as_mut().poll(&mut context).is_pending());
    drop(driver);
    // The waker of the driver is gone; a kick now wakes the loop's own thread.
    let (kicker, awake) = (stack.kicker(), Arc::new(AtomicBool::new(false)));
    let done = awake.clone();
    let thread = std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            kicker.kick();
            std::thread::yield_now();
        }
    });
    stack.wait(None, || false).unwrap();
    awake.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

#[test]
fn what_the_stack_ends_with_is_told() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let stack = loopback();
        let driver = tokio::spawn(Driver::new(&stack).unwrap());
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        stack.core().end(stack.now(), StackError::ShutDown);
        assert_eq!(driver.await.unwrap(), Err(StackError::ShutDown));
        assert!(listener.accept().await.is_err());
    });
}

#[test]
fn stopped_time_jumps() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(TokioClock::new());
        let [(client, one), (server, other)] = joined(|builder| builder.clock(clock.clone()));
        tokio::spawn(one.timer(DriverTimer::Runtime));
        tokio::spawn(other.timer(DriverTimer::Runtime));
        let listener = TcpListener::bind_on(&server, "192.0.2.2:7").await.unwrap();
        let mut near = TcpStream::connect_on(&client, "192.0.2.2:7").await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"ahoy").await.unwrap();
        let mut heard = [0; 4];
        far.read_exact(&mut heard).await.unwrap();
        let before = tokio::time::Instant::now();
        assert!(before.elapsed() < Duration::from_millis(1), "nothing had to be waited for");
        // The other stack has no such address, and is silent.
        let failed = TcpStream::connect_on(&client, "192.0.2.99:7").await.unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut);
        let waited = before.elapsed();
        assert!(waited > Duration::from_secs(60), "the SYN was sent again for {waited:?}");
        // Open connections stay open.
        far.write_all(b"pong").await.unwrap();
        near.read_exact(&mut heard).await.unwrap();
    });
}

/// The kernel sends to an echo on this stack and reads it back.
fn kernel_talks() {
    let data: Vec<u8> = (0..3_000_000).map(|at| (at / 7) as u8).collect();
    let mut stream = std::net::TcpStream::connect("192.0.2.2:7").unwrap();
    let mut reading = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let heard = scope.spawn(move || {
            let mut heard = Vec::new();
            reading.read_to_end(&mut heard).unwrap();
            heard
        });
        stream.write_all(&data).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(heard.join().unwrap() == data, "it comes back byte for byte");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_runtime_tells_when_a_device_is_readable() {
    isolated("driver::the_runtime_tells_when_a_device_is_readable", || {
        let config = TunConfig::default().name("tun0").up(true);
        let device = tun::open(config).unwrap();
        ip("address add 192.0.2.1/24 dev tun0");
        let builder = Stack::builder().device(device).address("192.0.2.2/24");
        let stack = builder.build_without_thread().unwrap();
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let driver = tokio::spawn(Driver::new(&stack).unwrap());
            let listener = TcpListener::bind_on(&stack, "192.0.2.2:7").await.unwrap();
            let kernel = tokio::task::spawn_blocking(kernel_talks);
            echo(listener).await;
            kernel.await.unwrap();
            drop(stack);
            // The connection ends by itself; the driver ends with the last handle.
            assert_eq!(driver.await.unwrap(), Ok(()));
        });
    });
}
