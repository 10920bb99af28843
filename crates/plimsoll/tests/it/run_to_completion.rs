//! Stacks that the caller's own loop runs, without any thread.
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{BuildError, Connector, ReadyQueue, Stack, TcpListener, TcpStream};

fn stacks() -> (Stack, Stack) {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let build = |device, address| {
        Stack::builder().device(device).address(address).build_without_thread().unwrap()
    };
    (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"))
}

#[test]
fn one_thread_runs_both_ends() {
    let (client, server) = stacks();
    let ready = ReadyQueue::new(&client);
    let (near_waker, far_waker) = (ready.waker(1), ready.waker(2));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let near = Connector::new(&client).start(listener.local_addr().unwrap()).unwrap();
    let pump = || while client.poll().worked | server.poll().worked {};
    assert!(near.poll_connected(&near_waker).is_pending());
    pump();
    let mut tokens = Vec::new();
    ready.take(&mut tokens);
    assert_eq!(tokens, [1]);
    assert!(matches!(near.poll_connected(&near_waker), Poll::Ready(Ok(()))));
    let (far, _) = listener.accept().unwrap();
    far.set_nonblocking(true).unwrap();
    assert!(!far.poll_readable(&far_waker));
    (&near).write_all(b"hello").unwrap();
    pump();
    tokens.clear();
    ready.take(&mut tokens);
    assert_eq!(tokens, [2]);
    let mut word = [0; 9];
    assert_eq!((&far).read(&mut word).unwrap(), 5);
    assert_eq!((&far).read(&mut word).unwrap_err().kind(), ErrorKind::WouldBlock);
    near.shutdown(Shutdown::Write).unwrap();
    pump();
    assert_eq!((&far).read(&mut word).unwrap(), 0);
}

/// Runs a stack on a thread until dropped.
struct Runner {
    stack: Stack,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Runner {
    fn new(stack: &Stack) -> Runner {
        let (stack, stop) = (stack.clone(), Arc::new(AtomicBool::new(false)));
        let (inner, flag) = (stack.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while !flag.load(Ordering::SeqCst) {
                let polled = inner.poll();
                if !polled.worked {
                    inner.wait(polled.next, || flag.load(Ordering::SeqCst)).unwrap();
                }
            }
        });
        Runner { stack, stop, thread: Some(thread) }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.stack.kick();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn blocking_sockets_beside_a_loop() {
    let (client, server) = stacks();
    let _runners = (Runner::new(&client), Runner::new(&server));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
    });
    let mut stream = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    stream.write_all(b"from another thread").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from another thread");
    echo.join().unwrap();
}

#[test]
fn a_wake_up_from_another_thread_ends_a_wait() {
    let (client, _server) = stacks();
    let ready = ReadyQueue::new(&client);
    let waker = ready.waker(5);
    let (sender, receiver) = mpsc::channel();
    let other = thread::spawn(move || {
        receiver.recv().unwrap();
        waker.wake();
    });
    sender.send(()).unwrap();
    while ready.is_empty() {
        client.wait(None, || !ready.is_empty()).unwrap();
    }
    let mut tokens = Vec::new();
    ready.take(&mut tokens);
    assert_eq!(tokens, [5]);
    other.join().unwrap();
}

#[test]
fn a_wait_ends_at_its_time() {
    let (client, _server) = stacks();
    let until = plimsoll::now() + Duration::from_millis(20);
    while plimsoll::now() < until {
        client.wait(Some(until), || false).unwrap();
    }
}

#[test]
fn build_errors_name_the_field() {
    let device = || memory_link::pair(LinkConfig::default()).0;
    let message = |result: Result<Stack, BuildError>| result.unwrap_err().to_string();
    assert!(message(Stack::builder().build()).starts_with("device:"));
    assert!(message(Stack::builder().mtu(1500).build()).starts_with("mtu:"));
    let builder = Stack::builder().device(device()).address("192.0.2.1");
    assert!(message(builder.build()).contains("192.0.2.1/24"));
    let builder = Stack::builder().device(device()).address("192.0.2.1/33");
    assert!(message(builder.build()).starts_with("address:"));
    let builder = Stack::builder().device(device()).address("192.0.2.1/24").sysctl("net.x", "1");
    assert!(message(builder.build()).contains("net.x"));
    let builder = Stack::builder().device(device()).address("192.0.2.1/24").pcap("/none/x.pcapng");
    assert!(message(builder.build()).contains("/none/x.pcapng"));
}
