//! A loop that runs the applications between a batch and its acknowledgement.

use super::harness::*;
use crate::WaitKey;

/// The time and the thread of a request's answer. Both check for more before they answer.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// In the turn that follows the batch.
    InTurn,
    /// By a task, after the poll.
    ByTask,
    /// By a thread that blocks, after the poll.
    ByThread,
}

/// Requests of 4096 bytes, each answered with as many, in `rounds` rounds. Returns the packets of
/// the server and the ACKs among them.
fn transactions(rounds: u64, answers: Answer) -> (u64, u64) {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    pair.settle();
    let (woken, waker) = CountingWaker::new();
    let message = pattern(4096, 3);
    let packets = |pair: &Pair| pair.b.counter("IpOutRequests").unwrap();
    let (before, acks) = (packets(&pair), pair.counter("plimsoll.AcksSent").1);
    for round in 0..rounds {
        let waits = match answers {
            Answer::ByThread => server.wait_readable(WaitKey::of_thread(), &waker),
            Answer::InTurn | Answer::ByTask => server.poll_readable(&waker),
        };
        assert!(waits.is_pending());
        assert_eq!(client.write(pair.now, &message).unwrap(), message.len());
        let (stack, now) = (pair.b.clone(), pair.now);
        let mut answer = || {
            let mut request = Vec::new();
            drain(&server, now, &mut request);
            if !request.is_empty() {
                assert_eq!(woken.count() as u64, round + 1, "the reader was woken before");
                assert_eq!(server.write(now, &message).unwrap(), message.len());
            }
        };
        if answers == Answer::InTurn {
            stack.poll_with(now, 256, &mut answer).unwrap();
        } else {
            stack.poll(now, 256).unwrap();
            answer();
        }
        pair.settle();
        let mut response = Vec::new();
        drain(&client, pair.now, &mut response);
        assert!(response == message, "the answer arrived");
    }
    (packets(&pair) - before, pair.counter("plimsoll.AcksSent").1 - acks)
}

#[test]
fn an_answer_of_the_turn_carries_the_ack() {
    let (packets, acks) = transactions(100, Answer::InTurn);
    assert_eq!((packets, acks), (100, 0), "one packet for each transaction");
}

#[test]
fn an_answer_after_the_poll_follows_an_ack_of_a_thread_that_looked_for_more() {
    let (packets, acks) = transactions(100, Answer::ByThread);
    assert_eq!((packets, acks), (200, 100));
    let (packets, acks) = transactions(100, Answer::ByTask);
    assert_eq!((packets, acks), (101, 1), "of a task only until it has answered once");
}

#[test]
fn a_turn_that_only_reads_leaves_the_ack_to_the_end_of_the_batch() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    pair.settle();
    client.write(pair.now, &pattern(4096, 5)).unwrap();
    let acks = pair.counter("plimsoll.AcksSent").1;
    let (stack, now) = (pair.b.clone(), pair.now);
    let mut turn = || {
        drain(&server, now, &mut Vec::new());
        assert_eq!(stack.counter("plimsoll.AcksSent").unwrap(), acks, "not yet");
        assert!(stack.poll(now, 256).unwrap().busy, "somebody polls already");
    };
    stack.poll_with(now, 256, &mut turn).unwrap();
    assert_eq!(pair.counter("plimsoll.AcksSent").1, acks + 1, "once, at the end");
}
