//! Complaints of users of such stacks, and bad input.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::{SinkExt, StreamExt};
use netstack_smoltcp::{Runner, StackBuilder};
use plimsoll_compat::testing::{self, Client, Counting, Facade, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The facade of a builder, and what runs it.
fn parts(builder: StackBuilder) -> (Facade, Runner) {
    let builder = builder.enable_tcp(true).enable_udp(true).enable_icmp(true);
    let (stack, runner, udp, tcp) = builder.build().unwrap();
    let (sink, stream) = stack.split();
    let (datagrams, answers) = udp.unwrap().split();
    let facade = Facade {
        to_stack: Box::pin(sink),
        from_stack: Box::pin(stream.map(|packet| packet.expect("a packet"))),
        tcp: Box::pin(tcp.unwrap().map(|(stream, client, destination)| {
            assert_eq!((stream.local_addr(), stream.remote_addr()), (&client, &destination));
            (Box::new(stream) as Box<dyn testing::Io>, client, destination)
        })),
        datagrams: Box::pin(datagrams),
        answers: Box::pin(answers),
    };
    (facade, runner.unwrap())
}

fn facade_of(builder: StackBuilder) -> Facade {
    let (facade, runner) = parts(builder);
    tokio::spawn(runner);
    facade
}

fn facade() -> Facade {
    facade_of(StackBuilder::default())
}

#[tokio::test]
async fn the_end_of_one_direction_is_forwarded_and_nothing_leaks() {
    testing::half_close(facade()).await;
}

#[tokio::test]
async fn bulk_comes_back_as_it_was() {
    testing::bulk(facade(), 0.0).await;
    testing::bulk(facade(), 0.01).await;
}

#[tokio::test]
async fn a_stack_with_nothing_to_do_wakes_nobody() {
    testing::idle_wakes_nobody(facade()).await;
}

#[tokio::test]
async fn the_end_of_the_device_is_an_event() {
    testing::end_of_the_device(facade()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_missing() {
    testing::turns(facade()).await;
}

/// With queues of one packet every packet finds one full, and every wake-up counts.
#[tokio::test]
async fn queues_of_one_packet_are_enough() {
    let builder = StackBuilder::default().stack_buffer_size(1).tcp_buffer_size(1);
    let facade = facade_of(builder);
    let client = Client::of(facade.to_stack, facade.from_stack);
    tokio::spawn(testing::echo(facade.tcp));
    testing::bulk_through(&client, 1 << 20).await;
}

#[tokio::test]
async fn packets_of_any_bytes_do_no_harm() {
    testing::any_bytes(facade()).await;
}

#[tokio::test]
async fn parallel_connects_all_succeed() {
    testing::parallel_connects(facade()).await;
}

#[tokio::test]
async fn fragments_arrive() {
    testing::fragments(facade()).await;
}

#[tokio::test]
async fn pings_are_answered_and_closed_ports_unreachable() {
    testing::ping_and_closed_ports(facade()).await;
}

#[tokio::test]
async fn without_its_listener_a_stack_refuses_and_goes_on() {
    testing::listener_dropped(facade()).await;
}

#[tokio::test]
async fn what_is_open_hears_of_the_end_of_the_stack() {
    testing::stack_dropped(facade()).await;
}

/// The stream of a client whose upstream cannot be reached is dropped, and the client is refused.
#[tokio::test]
async fn who_is_not_served_is_refused() {
    let mut facade = facade();
    let client = Client::of(facade.to_stack, facade.from_stack);
    let refuse = async { drop(facade.tcp.next().await.expect("a connection")) };
    let visit = client.connect("198.51.100.7:80");
    let (visit, ()) = soon("refused", async { tokio::join!(visit, refuse) }).await;
    assert_eq!(visit.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// No packet is longer than the MTU, of TCP or of UDP, and all of it arrives.
#[tokio::test]
async fn packets_obey_the_mtu() {
    let mut facade = facade_of(StackBuilder::default().mtu(1280));
    let longest = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = longest.clone();
    let out = facade.from_stack.inspect(move |packet| {
        seen.fetch_max(packet.len(), std::sync::atomic::Ordering::Relaxed);
    });
    let client = Client::of(facade.to_stack, Box::pin(out));
    let socket = client.datagrams("198.51.100.7:9").await;
    socket.send(b"how much?").await.unwrap();
    let (_, from, to) = soon("datagram", facade.datagrams.next()).await.unwrap();
    facade.answers.send((vec![7; 4000], to, from)).await.unwrap();
    let mut answer = vec![0; 5000];
    assert_eq!(soon("answer", socket.recv(&mut answer)).await.unwrap(), 4000);
    tokio::spawn(testing::echo(facade.tcp));
    testing::bulk_through(&client, 100_000).await;
    assert_eq!(longest.load(std::sync::atomic::Ordering::Relaxed), 1280);
}

/// A stack for UDP alone runs by itself.
#[tokio::test]
async fn udp_alone_needs_no_runner() {
    let builder = StackBuilder::default().enable_udp(true).udp_buffer_size(4);
    let (mut stack, runner, udp, tcp) = builder.build().unwrap();
    assert!(runner.is_none() && tcp.is_none());
    let (mut read, mut write) = udp.unwrap().split();
    let question = testing::datagram([192, 0, 2, 1], [198, 51, 100, 7], (1000, 53), b"who?");
    stack.send(question).await.unwrap();
    let (data, from, to) = soon("the datagram", read.next()).await.unwrap();
    assert_eq!(data, b"who?");
    write.send((b"me".to_vec(), to, from)).await.unwrap();
    let packet = soon("the answer", stack.next()).await.unwrap().unwrap();
    assert_eq!(
        (&packet[12..20], &packet[28..]),
        (&[198, 51, 100, 7, 192, 0, 2, 1][..], &b"me"[..])
    );
    // TCP is not enabled: a SYN is reset.
    let syn = testing::segment([192, 0, 2, 1], [198, 51, 100, 7], (1000, 80), 2, b"");
    stack.send(syn).await.unwrap();
    let answer = soon("the reset", stack.next()).await.unwrap().unwrap();
    assert_eq!((answer[9], answer[33]), (6, 0x14), "RST and ACK");
    // ICMP is not enabled either: there is no reply, and the next answer is for the datagram behind
    // it.
    stack.send(testing::echo_request("198.51.100.7", 8)).await.unwrap();
    let question = testing::datagram([192, 0, 2, 1], [198, 51, 100, 7], (1000, 53), b"again");
    stack.send(question).await.unwrap();
    soon("the datagram", read.next()).await.unwrap();
    write.send((b"me".to_vec(), to, from)).await.unwrap();
    assert_eq!(soon("the answer", stack.next()).await.unwrap().unwrap()[9], 17);
}

/// The runner of a stack with an idle connection sleeps.
#[tokio::test]
async fn an_idle_runner_is_not_polled() {
    let (mut facade, runner) = parts(StackBuilder::default());
    let polls = Arc::new(Counting::default());
    let count = polls.clone();
    let mut runner = Box::pin(runner);
    tokio::spawn(std::future::poll_fn(move |cx| {
        Waker::from(count.clone()).wake();
        runner.as_mut().poll(cx)
    }));
    let client = Client::of(facade.to_stack, facade.from_stack);
    let server = async {
        let (mut stream, ..) = facade.tcp.next().await.expect("a connection");
        stream.read_exact(&mut [0]).await.unwrap();
        stream
    };
    let visit = async {
        let mut stream = client.connect("198.51.100.7:80").await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream
    };
    let _both = soon("connect", async { tokio::join!(server, visit) }).await;
    // A delayed ACK and what is given back after an idle time are few; a busy loop is thousands.
    let before = polls.count();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(polls.count() - before < 20, "{} polls", polls.count() - before);
}

#[tokio::test]
async fn dropping_the_runner_ends_everything() {
    let (mut facade, runner) = parts(StackBuilder::default());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(facade.tcp.as_mut().poll_next_unpin(&mut cx).is_pending());
    drop(runner);
    assert!(soon("the listener", facade.tcp.next()).await.is_none());
    assert!(soon("the packets", facade.from_stack.next()).await.is_none());
    assert!(soon("the datagrams", facade.datagrams.next()).await.is_none());
    let sent = facade.to_stack.send(testing::echo_request("198.51.100.7", 8)).await;
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn the_runner_is_over_when_the_stack_is_dropped() {
    let (stack, runner, ..) = StackBuilder::default().enable_tcp(true).build().unwrap();
    let running = tokio::spawn(runner.unwrap());
    drop(stack);
    soon("the runner", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn filters_keep_packets_out() {
    let builder = StackBuilder::default()
        .enable_udp(true)
        .set_ip_filters(netstack_smoltcp::IpFilters::with_non_broadcast())
        .add_ip_filter(Box::new(|_, destination| destination.to_string() != "198.51.100.8"))
        .add_ip_filter_fn(|_, destination| destination.to_string() != "198.51.100.9");
    let (mut stack, _, udp, _) = builder.build().unwrap();
    let (mut read, _write) = udp.unwrap().split();
    for last in [8, 9, 7] {
        let packet = testing::datagram([192, 0, 2, 1], [198, 51, 100, last], (1, 2), b"x");
        stack.send(packet).await.unwrap();
    }
    stack.send(testing::datagram([192, 0, 2, 1], [224, 0, 0, 251], (1, 2), b"x")).await.unwrap();
    let last = testing::datagram([192, 0, 2, 1], [198, 51, 100, 6], (1, 2), b"x");
    stack.send(last).await.unwrap();
    let mut next = async || soon("a datagram", read.next()).await.unwrap().2.to_string();
    assert_eq!((next().await, next().await), ("198.51.100.7:2".into(), "198.51.100.6:2".into()));
}

#[tokio::test]
async fn what_cannot_be_sent_says_why() {
    let mut facade = facade();
    let refused = facade.to_stack.send(vec![0x45; 19]).await.unwrap_err();
    assert_eq!(refused.to_string(), "packet: 19 bytes, where 20 are needed");
    assert!(facade.to_stack.send(Vec::new()).await.is_ok());
    let [v4, v6] = ["198.51.100.7:9", "[2001:db8::1]:9"].map(|text| text.parse().unwrap());
    let refused = facade.answers.send((vec![1], v6, v4)).await.unwrap_err();
    assert!(refused.to_string().ends_with("different families"), "{refused}");
    assert!(facade.answers.send((vec![1; 65_508], v4, v4)).await.is_err());
    // An error concerns one datagram.
    assert!(facade.answers.send((vec![1; 65_507], v4, v4)).await.is_ok());
}

#[test]
fn what_cannot_be_honoured_is_named() {
    let refused = |builder: StackBuilder| {
        let error: io::Error = builder.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string().split(':').next().unwrap().to_owned()
    };
    let tcp = || StackBuilder::default().enable_tcp(true);
    assert_eq!(refused(StackBuilder::default().enable_icmp(true)), "enable_icmp");
    assert_eq!(refused(tcp().mtu(575)), "mtu");
    assert_eq!(refused(tcp().mtu(65_536)), "mtu");
    assert_eq!(refused(tcp().stack_buffer_size(0)), "stack_buffer_size");
    assert_eq!(refused(tcp().udp_buffer_size(0)), "udp_buffer_size");
    assert_eq!(refused(tcp().tcp_buffer_size(0)), "tcp_buffer_size");
    assert_eq!(refused(tcp().tcp_recv_buffer_size(2047)), "tcp_recv_buffer_size");
    assert_eq!(refused(tcp().tcp_send_buffer_size(1 << 31)), "tcp_send_buffer_size");
    assert_eq!(refused(tcp().udp_buffer_size(usize::MAX)), "udp_buffer_size");
    for mtu in [576, 65_535] {
        assert!(tcp().mtu(mtu).tcp_recv_buffer_size(2048).udp_buffer_size(1024).build().is_ok());
    }
}

#[test]
fn the_parts_may_go_to_other_tasks() {
    // That it compiles is the test.
    fn may_go<T: Send + Unpin + 'static>(_: PhantomData<T>) {}
    may_go(PhantomData::<netstack_smoltcp::Stack>);
    may_go(PhantomData::<Runner>);
    may_go(PhantomData::<netstack_smoltcp::TcpListener>);
    may_go(PhantomData::<netstack_smoltcp::TcpStream>);
    may_go(PhantomData::<netstack_smoltcp::udp::ReadHalf>);
    may_go(PhantomData::<netstack_smoltcp::udp::WriteHalf>);
}
