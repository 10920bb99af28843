//! Tests of the channel device by itself, without a stack.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};

use plimsoll_buf::Pool;

use super::*;
use crate::kick::Kick;
use crate::packet::ChecksumState;
use crate::packet::tests::{Completions, charged, mark, marked, super_segment};

const NOW: Instant = Instant::ZERO;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn waker() -> (Arc<Count>, Waker) {
    let count = Arc::<Count>::default();
    (count.clone(), Waker::from(count))
}

fn small(to_caller: usize, to_stack: usize) -> (Device, Channel) {
    channel(ChannelConfig { to_caller, to_stack, ..ChannelConfig::default() }).unwrap()
}

fn send(device: &mut Device, marks: impl IntoIterator<Item = u8>) -> TxProgress {
    let pool = Pool::new();
    let mut queue: VecDeque<Packet> = marks.into_iter().map(|at| marked(&pool, at)).collect();
    device.tx.transmit(NOW, &mut queue).unwrap()
}

fn receive(device: &mut Device, max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    device.rx.receive(NOW, &Pool::new(), &mut out, max).unwrap();
    out.iter().map(mark).collect()
}

#[test]
fn packets_keep_their_order_and_complete_when_the_caller_takes_them() {
    let (mut device, mut channel) = small(8, 8);
    let (pool, done) = (Pool::new(), Completions::new());
    let mut queue: VecDeque<Packet> =
        (1..=3).map(|n| charged(marked(&pool, n), &done, u64::from(n))).collect();
    assert_eq!(device.tx.transmit(NOW, &mut queue).unwrap(), TxProgress::done(3));
    assert_eq!(done.take(), [], "nobody has taken them");
    assert_eq!(mark(&channel.try_recv().unwrap()), 1);
    assert_eq!(done.take(), [1]);
    let mut rest = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(channel.receiver().poll_recv_many(&mut cx, &mut rest, 9), Poll::Ready(2));
    assert_eq!(rest.iter().map(mark).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(done.take(), [2, 3], "although the caller still has the packets");
    assert_eq!(channel.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(device.tx.stats().packets, 3);
    for n in 1..=3 {
        channel.try_send(marked(&pool, n)).unwrap();
    }
    assert_eq!(receive(&mut device, 2), [1, 2]);
    assert_eq!(receive(&mut device, 2), [3]);
    assert_eq!(device.rx.stats().packets, 3);
}

#[test]
fn a_full_queue_stops_the_stack_until_half_of_it_is_taken() {
    let (mut device, mut channel) = small(4, 4);
    let kick = Kick::new().unwrap();
    device.wait.install(&kick);
    let pool = Pool::new();
    let mut queue: VecDeque<Packet> = (0..6).map(|n| marked(&pool, n)).collect();
    let progress = device.tx.transmit(NOW, &mut queue).unwrap();
    assert_eq!((progress.packets, progress.status), (4, TxStatus::Busy));
    assert_eq!(queue.len(), 2, "nothing is dropped");
    assert_eq!(device.tx.next_event(), None);
    kick.announce(None);
    channel.try_recv().unwrap();
    assert_eq!((kick.wakes(), device.tx.next_event()), (0, None), "one place is not worth it");
    channel.try_recv().unwrap();
    assert_eq!((kick.wakes(), device.tx.next_event()), (1, Some(Instant::ZERO)));
    assert_eq!(device.tx.transmit(NOW, &mut queue).unwrap(), TxProgress::done(2));
    let marks: Vec<u8> =
        std::iter::from_fn(|| channel.try_recv().ok()).map(|packet| mark(&packet)).collect();
    assert_eq!(marks, [2, 3, 4, 5]);
}

#[test]
fn a_full_queue_makes_the_caller_wait_until_half_of_it_is_taken() {
    let (mut device, mut channel) = small(4, 4);
    let pool = Pool::new();
    let (count, waker) = waker();
    let mut cx = Context::from_waker(&waker);
    for n in 0..4 {
        assert!(channel.poll_ready(&mut cx).is_ready());
        channel.try_send(marked(&pool, n)).unwrap();
    }
    let Err(SendError::Full(back)) = channel.try_send(marked(&pool, 9)) else { panic!() };
    assert_eq!(mark(&back), 9, "the packet comes back");
    assert!(channel.poll_ready(&mut cx).is_pending());
    assert_eq!(receive(&mut device, 1), [0]);
    assert_eq!(count.get(), 0);
    assert_eq!(receive(&mut device, 1), [1]);
    assert_eq!(count.get(), 1, "woken once");
    assert_eq!(receive(&mut device, 9), [2, 3]);
    assert_eq!(count.get(), 1, "and not again");
    assert!(channel.poll_ready(&mut cx).is_ready());
    let mut many: VecDeque<Packet> = (0..6).map(|n| marked(&pool, n)).collect();
    let sent = channel.sender().poll_send_many(&mut cx, &mut many);
    assert_eq!((sent, many.len()), (Poll::Ready(Ok(4)), 2));
    assert!(channel.sender().poll_send_many(&mut cx, &mut many).is_pending());
    assert_eq!(many.len(), 2, "what was not sent stays with the caller");
}

#[test]
fn the_caller_is_woken_once_for_a_batch_and_never_for_nothing() {
    let (mut device, mut channel) = small(8, 8);
    let (count, waker) = waker();
    let mut cx = Context::from_waker(&waker);
    assert!(channel.poll_recv(&mut cx).is_pending());
    assert!(channel.poll_recv(&mut cx).is_pending());
    send(&mut device, []);
    device.tx.poll_completions(NOW).unwrap();
    assert_eq!(count.get(), 0, "nothing has come");
    send(&mut device, [1, 2, 3]);
    send(&mut device, [4]);
    assert_eq!(count.get(), 1);
    for _ in 0..4 {
        assert!(channel.poll_recv(&mut cx).is_ready());
    }
    assert!(channel.poll_recv(&mut cx).is_pending());
    assert_eq!(count.get(), 1);
    send(&mut device, [5]);
    assert_eq!(count.get(), 2);
}

#[test]
fn a_future_that_is_dropped_leaves_neither_a_waker_nor_a_hole() {
    let (mut device, mut channel) = small(8, 1);
    let pool = Pool::new();
    let (count, waker) = waker();
    let mut cx = Context::from_waker(&waker);
    let held = Arc::strong_count(&count);
    {
        let mut recv = channel.recv();
        assert!(std::pin::Pin::new(&mut recv).poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&count), held + 1);
    }
    assert_eq!(Arc::strong_count(&count), held);
    channel.try_send(marked(&pool, 1)).unwrap();
    {
        let mut sending = channel.send(marked(&pool, 2));
        assert!(std::pin::Pin::new(&mut sending).poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&count), held + 1);
    }
    assert_eq!(Arc::strong_count(&count), held);
    send(&mut device, [7]);
    assert_eq!(count.get(), 0, "nobody waits");
    assert_eq!(mark(&channel.try_recv().unwrap()), 7);
    assert_eq!(receive(&mut device, 9), [1], "what was not sent does not arrive");
}

#[test]
fn the_caller_sees_the_end_after_what_was_sent_before() {
    let (mut device, mut channel) = small(8, 8);
    let (count, waker) = waker();
    send(&mut device, [1]);
    drop(device);
    assert_eq!(mark(&channel.try_recv().unwrap()), 1);
    assert_eq!(channel.try_recv().unwrap_err(), TryRecvError::Closed(ChannelClosed));
    let mut cx = Context::from_waker(&waker);
    assert!(matches!(channel.poll_recv(&mut cx), Poll::Ready(None)));
    assert!(matches!(channel.poll_ready(&mut cx), Poll::Ready(Err(ChannelClosed))));
    assert!(matches!(channel.try_send(vec![0; 20]), Err(SendError::Closed(_))));
    assert!(channel.receiver().has_ended());
    let (device, mut channel) = small(1, 1);
    channel.try_send(vec![0; 20]).unwrap();
    assert!(channel.poll_recv(&mut cx).is_pending() && channel.poll_ready(&mut cx).is_pending());
    drop(device);
    assert_eq!(count.get(), 2, "both waits end");
}

#[test]
fn the_stack_is_told_why_after_what_was_sent_before() {
    for half in 0..4 {
        let (mut device, mut channel) = small(8, 8);
        let kick = Kick::new().unwrap();
        device.wait.install(&kick);
        let (pool, done) = (Pool::new(), Completions::new());
        channel.try_send(marked(&pool, 3)).unwrap();
        let mut queue = VecDeque::from([charged(marked(&pool, 1), &done, 1)]);
        device.tx.transmit(NOW, &mut queue).unwrap();
        kick.announce(None);
        let (mut kept, reason) = (None, ["the caller has ended the channel", "the tunnel is shut"]);
        let reason = match half {
            0 => {
                drop(channel);
                reason[0]
            }
            1 => {
                kept = Some(channel.split().1);
                reason[0]
            }
            2 => {
                drop(channel.split().1);
                reason[0]
            }
            _ => {
                channel.close(reason[1]);
                reason[1]
            }
        };
        assert_eq!(kick.wakes(), 1, "the poller comes to see it");
        assert_eq!(device.rx.next_event(), Some(Instant::ZERO));
        assert_eq!(receive(&mut device, 9), [3]);
        let error = device.rx.receive(NOW, &pool, &mut Vec::new(), 9).unwrap_err();
        assert_eq!(error.to_string(), reason);
        let error = device.tx.transmit(NOW, &mut queue).unwrap_err();
        assert_eq!(error.to_string(), reason);
        match kept {
            // A half that was kept sees the end as well.
            Some(mut receiver) => {
                receiver.try_recv().unwrap();
                assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Closed(ChannelClosed));
            }
            None => assert_eq!(done.take(), [1], "nothing is below a cut"),
        }
    }
}

#[test]
fn bytes_are_one_packet_each_cut_and_completed() {
    let (mut device, mut channel) = small(8, 8);
    let pool = Pool::new();
    let mut cx = Context::from_waker(Waker::noop());
    let packet = super_segment(&pool, 4, 500, 3);
    let mut queue = VecDeque::from([packet.share()]);
    device.tx.transmit(NOW, &mut queue).unwrap();
    let receiver = channel.receiver();
    let Poll::Ready(Err(error)) = receiver.poll_read_packet(&mut cx, &mut [0; 100]) else {
        panic!("it does not fit")
    };
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("shorter than the packet of 552"), "{error}");
    let mut lens = Vec::new();
    let mut buf = [0; 1500];
    while let Poll::Ready(Ok(len)) = receiver.poll_read_packet(&mut cx, &mut buf) {
        assert!(crate::offload::checksum::verify(&buf[..len].to_vec().into()));
        lens.push(len);
    }
    assert_eq!(lens, [552, 552, 551]);

    let bytes = marked(&pool, 7).to_vec();
    let parts = [std::io::IoSlice::new(&bytes[..9]), std::io::IoSlice::new(&bytes[9..])];
    let written = channel.sender().poll_write_packet(&mut cx, &parts);
    assert!(matches!(written, Poll::Ready(Ok(len)) if len == bytes.len()));
    let mut out = Vec::new();
    assert_eq!(device.rx.receive(NOW, &pool, &mut out, 9).unwrap(), 1, "two parts, one packet");
    assert_eq!(out[0].to_vec(), bytes);
}

#[test]
fn what_the_caller_says_of_a_packet_is_kept_as_far_as_it_makes_sense() {
    let (mut device, mut channel) = small(8, 8);
    let (pool, done) = (Pool::new(), Completions::new());
    let mut odd = charged(super_segment(&pool, 6, 1000, 5), &done, 1);
    odd.gso = Some(crate::packet::Gso { size: 1000, segs: 0 });
    channel.try_send(odd).unwrap();
    assert_eq!(done.take(), [1], "it is not below anybody here");
    let mut junk = Packet::from(vec![0xff; 3000]);
    junk.gso = Some(crate::packet::Gso { size: 0, segs: 9 });
    channel.try_send(junk).unwrap();
    for len in [0, 65_536] {
        assert!(matches!(channel.try_send(vec![0; len]), Err(SendError::Length(of)) if of == len));
    }
    let mut out = Vec::new();
    device.rx.receive(NOW, &pool, &mut out, 9).unwrap();
    let said: Vec<_> = out.iter().map(|packet| (packet.segs(), packet.csum)).collect();
    assert_eq!(said, [(5, ChecksumState::Partial), (1, ChecksumState::Unverified)]);
}

#[test]
fn a_configuration_without_sense_names_the_field() {
    let error = |config| channel(config).unwrap_err().to_string();
    let base = ChannelConfig::default;
    assert!(error(ChannelConfig { to_caller: 0, ..base() }).contains("to_caller: 0 packets"));
    assert!(error(ChannelConfig { to_stack: 0, ..base() }).contains("to_stack: 0 packets"));
    assert!(error(ChannelConfig::with_mtu(575)).contains("mtu: 575 is less than the 576"));
    let (_device, channel) = small(1, 1);
    assert!(channel.set_mtu(10).unwrap_err().to_string().contains("mtu: 10 is less"));
}

#[test]
fn a_change_of_the_mtu_is_told_once() {
    let (mut device, channel) = small(1, 1);
    assert_eq!(device.rx.take_event(), None);
    channel.set_mtu(1280).unwrap();
    assert_eq!(device.rx.next_event(), Some(Instant::ZERO));
    assert_eq!(device.rx.take_event(), Some(LinkEvent::Mtu(1280)));
    assert_eq!((device.rx.take_event(), device.rx.next_event()), (None, None));
    send(&mut device, [1]);
    assert_eq!(device.tx.caps().mtu, 1280);
}

#[test]
fn threads_pass_packets_both_ways() {
    let (mut device, channel) = small(4, 4);
    let (mut sender, mut receiver) = channel.split();
    let pool = Pool::new();
    let from = std::thread::spawn(move || {
        for n in 0..=200 {
            sender.blocking_send(marked(&pool, n)).unwrap();
        }
        // Dropped with the closure it would end the channel.
        sender
    });
    let to = std::thread::spawn(move || {
        let marks = (0..=200).map(|_| mark(&receiver.blocking_recv().unwrap()));
        (marks.collect::<Vec<u8>>(), receiver)
    });
    let mut there = Vec::new();
    let mut next = 0;
    while there.len() <= 200 || next <= 200 {
        there.extend(receive(&mut device, 3));
        let end = (next + 5).min(201);
        next += send(&mut device, next..end).packets as u8;
        std::thread::yield_now();
    }
    let all: Vec<u8> = (0..=200).collect();
    assert_eq!(there, all);
    assert_eq!(to.join().unwrap().0, all);
    from.join().unwrap();
}
