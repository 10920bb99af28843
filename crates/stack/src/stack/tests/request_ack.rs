//! The answer to a request carries its ACK.

use super::harness::*;
use crate::WaitKey;
use crate::device::memory_link::LinkConfig;
use plimsoll_tcp::Duration;

/// How the server goes about a request.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    /// Reads it once and answers.
    Answers,
    /// A task that looks for more before it answers.
    LooksForMore,
    /// The same, for a task that waits for readiness along with others, each under a key.
    AwaitsReadiness,
    /// A thread that blocks, so a further read means that it has no answer.
    SleepsAgain,
    /// Takes two milliseconds.
    Slow,
}

/// Pure ACKs of the server for 50 requests of 4096 bytes, answered with as many.
fn acks(server_is: Server, sysctls: &[(&str, &str)]) -> u64 {
    let mut pair = Pair::with(LinkConfig::default(), sysctls);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    pair.settle();
    let (_, waker) = CountingWaker::new();
    let message = pattern(4096, 3);
    let mut buf = [0; 4096];
    let mut before = 0;
    for round in 0..60 {
        if round == 10 {
            before = pair.counter("plimsoll.AcksSent").1;
        }
        let waits = match server_is {
            Server::AwaitsReadiness => {
                assert!(server.wait_exceptional(WaitKey::for_notification(), &waker).is_pending());
                server.wait_readable(WaitKey::new(), &waker)
            }
            Server::SleepsAgain => server.wait_readable(WaitKey::of_thread(), &waker),
            _ => server.poll_readable(&waker),
        };
        assert!(waits.is_pending());
        assert_eq!(client.write(pair.now, &message).unwrap(), message.len());
        pair.settle();
        assert_eq!(server.read(pair.now, &mut buf).unwrap(), message.len());
        match server_is {
            Server::Answers => {}
            Server::LooksForMore | Server::AwaitsReadiness | Server::SleepsAgain => {
                assert!(server.read(pair.now, &mut buf).is_err());
            }
            Server::Slow => pair.run(Duration::from_millis(2)),
        }
        assert_eq!(server.write(pair.now, &message).unwrap(), message.len());
        pair.settle();
        let mut response = Vec::new();
        drain(&client, pair.now, &mut response);
        assert!(response == message, "the answer arrived");
        pair.settle();
    }
    pair.counter("plimsoll.AcksSent").1 - before
}

#[test]
fn an_answer_carries_the_ack_of_the_request() {
    assert_eq!(acks(Server::Answers, &[]), 0);
    assert_eq!(acks(Server::LooksForMore, &[]), 0);
    assert_eq!(acks(Server::AwaitsReadiness, &[]), 0);
}

#[test]
fn it_does_not_if_the_reader_sleeps_again_or_is_slow() {
    assert_eq!(acks(Server::SleepsAgain, &[]), 50);
    assert_eq!(acks(Server::Slow, &[]), 50);
}

#[test]
fn it_does_not_without_interactive_mode() {
    assert_eq!(acks(Server::Answers, &[("plimsoll.tcp_pingpong", "0")]), 50);
}

#[test]
fn a_request_of_several_segments_is_acknowledged_at_once_as_on_linux() {
    assert_eq!(acks(Server::Answers, &[("plimsoll.tcp_pingpong", "2")]), 50);
}
