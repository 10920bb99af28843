//! Complaints of users of such stacks, and bad input.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io;

use futures_util::{SinkExt, StreamExt};
use plimsoll_compat::testing::{self, Facade};
use watfaq_netstack::{NetStack, Packet, UdpPacket};

fn facade() -> Facade {
    let (stack, tcp, udp) = NetStack::new();
    let (sink, stream) = stack.split();
    let (read, write) = udp.split();
    let datagrams = futures_util::stream::unfold(read, |mut read| async move {
        let it = read.recv().await?;
        Some(((it.data().to_vec(), it.local_addr, it.remote_addr), read))
    });
    let answers = futures_util::sink::unfold(write, |mut write, message| async move {
        write.send(UdpPacket::from(message)).await?;
        io::Result::Ok(write)
    });
    Facade {
        to_stack: Box::pin(sink.with(|packet: Vec<u8>| async { Ok(Packet::new(packet)) })),
        from_stack: Box::pin(stream.map(|packet| packet.expect("a packet").data().to_vec())),
        tcp: Box::pin(tcp.map(|stream| {
            let (client, destination) = (stream.local_addr(), stream.remote_addr());
            (Box::new(stream) as Box<dyn testing::Io>, client, destination)
        })),
        datagrams: Box::pin(datagrams),
        answers: Box::pin(answers),
    }
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

#[tokio::test]
async fn a_stream_is_there_with_its_syn_and_its_answer() {
    let mut facade = facade();
    let syn = testing::segment([192, 0, 2, 1], [198, 51, 100, 7], (1000, 80), 2, b"");
    facade.to_stack.send(syn).await.unwrap();
    let answer = testing::soon("the SYN-ACK", facade.from_stack.next()).await.unwrap();
    assert_eq!((answer[9], answer[33]), (6, 0x12), "SYN and ACK");
    let (_, client, destination) = testing::soon("the stream", facade.tcp.next()).await.unwrap();
    assert_eq!(client.to_string(), "192.0.2.1:1000");
    assert_eq!(destination.to_string(), "198.51.100.7:80");
}

#[tokio::test]
async fn what_cannot_be_sent_says_why() {
    let mut facade = facade();
    let refused = facade.to_stack.send(vec![0x45; 19]).await.unwrap_err();
    assert_eq!(refused.to_string(), "packet: 19 bytes, where 20 are needed");
    let mut long = testing::echo_request("198.51.100.7", 8);
    long.resize(65_536, 0);
    let refused = facade.to_stack.send(long).await.unwrap_err();
    assert_eq!(refused.to_string(), "packet: 65536 bytes, more than 65535");
    assert!(facade.to_stack.send(Vec::new()).await.is_ok());
    let (_, _, udp) = NetStack::new();
    let (_, mut write) = udp.split();
    let [v4, v6] = ["198.51.100.7:9", "[2001:db8::1]:9"].map(|text| text.parse().unwrap());
    let refused = write.send((vec![1], v6, v4).into()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(refused.to_string().ends_with("different families"), "{refused}");
    assert!(write.send((vec![1; 65_508], v4, v4).into()).await.is_err());
}
