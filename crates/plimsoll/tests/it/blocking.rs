//! Threads that block in reads: with the prequeue, and with spinning.
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::{Connector, Stack, TcpListener, TcpStream};

const SERVER: &str = "192.0.2.2:7";

fn counter(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|&&(known, _)| known == name).unwrap().1
}

fn pair(settings: &[(&str, &str)]) -> (Stack, Stack) {
    let (here, there) = memory_link::pair(Default::default());
    let mut client = Stack::builder().device(here).address("192.0.2.1/24");
    let mut server = Stack::builder().device(there).address("192.0.2.2/24");
    for &(name, value) in settings {
        client = client.sysctl(name, value);
        server = server.sysctl(name, value);
    }
    (client.build().unwrap(), server.build().unwrap())
}

/// Echoes what comes, one request at a time, on every connection.
fn echo(stack: &Stack, connections: usize) -> thread::JoinHandle<()> {
    let listener = TcpListener::bind(stack, SERVER).unwrap();
    thread::spawn(move || {
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut buf = [0; 8192];
                    while stream.read_exact(&mut buf).is_ok() {
                        stream.write_all(&buf).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    })
}

/// Requests and answers on several connections at a time.
fn talk(client: &Stack, server: &Stack, connections: usize, rounds: u8) {
    let echo = echo(server, connections);
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let mut stream = TcpStream::connect(client, SERVER).unwrap();
            thread::spawn(move || {
                for round in 0..rounds {
                    stream.write_all(&[round; 8192]).unwrap();
                    let mut answer = [0; 8192];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, [round; 8192]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    echo.join().unwrap();
}

#[test]
fn requests_and_answers_through_the_prequeue() {
    for pure_acks in ["0", "1"] {
        let knob = ("plimsoll.tcp_prequeue_pure_ack", pure_acks);
        let (client, server) = pair(&[("net.ipv4.tcp_low_latency", "0"), knob]);
        talk(&client, &server, 8, 100);
        assert!(counter(&client, "TcpExtTCPPrequeued") > 0, "readers have worked on what came");
    }
}

#[test]
fn requests_and_answers_with_spinning() {
    let (client, server) = pair(&[("net.core.busy_read", "50"), ("net.ipv4.tcp_low_latency", "0")]);
    talk(&client, &server, 4, 100);
    assert!(counter(&client, "plimsoll.BusyPolls") > 0);
}

#[test]
fn a_timeout_leaves_the_prequeue_in_order() {
    let (client, server) = pair(&[("net.ipv4.tcp_low_latency", "0")]);
    let listener = TcpListener::bind(&server, SERVER).unwrap();
    let stream = TcpStream::connect(&client, SERVER).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let sender = thread::spawn(move || {
        for at in 0..200_u8 {
            peer.write_all(&[at; 500]).unwrap();
            if at.is_multiple_of(16) {
                thread::sleep(Duration::from_millis(3));
            }
        }
        peer.shutdown(Shutdown::Write).unwrap();
    });
    let (mut got, mut buf) = (Vec::new(), [0; 700]);
    loop {
        match (&stream).read(&mut buf) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&buf[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    sender.join().unwrap();
    assert_eq!(got, (0..200_u8).flat_map(|at| [at; 500]).collect::<Vec<_>>());
}

/// A read on a stack that no other thread polls is answered all the same.
#[test]
fn a_spinning_read_needs_no_other_thread() {
    let (here, there) = memory_link::pair(Default::default());
    let client =
        Stack::builder().device(here).address("192.0.2.1/24").build_without_thread().unwrap();
    let server = Stack::builder().device(there).address("192.0.2.2/24").build().unwrap();
    let echo = echo(&server, 1);
    let mut stream = Connector::new(&client).start(SERVER.parse().unwrap()).unwrap();
    while stream.poll_connected(std::task::Waker::noop()).is_pending() {
        client.poll();
    }
    stream.set_nonblocking(false).unwrap();
    stream.set_busy_poll(Some(Duration::from_secs(600))).unwrap();
    stream.write_all(&[5; 8192]).unwrap();
    let mut answer = [0; 8192];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5; 8192]);
    assert!(counter(&client, "plimsoll.BusyPollHits") > 0);
    drop(stream);
    while !echo.is_finished() {
        client.poll();
    }
    echo.join().unwrap();
}
