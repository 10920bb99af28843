//! Sends of a protocol that expects loss: cut into trains, and lost where they cannot leave.

use std::sync::Arc;

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{PathMtuDiscovery, SocketError, UdpSocket, UdpTransmit};

/// The longest send of quinn, with the longest packets of a jumbo frame.
static TRAIN: [u8; 10 * 8952] = [7; 10 * 8952];

/// Two sockets that are joined by a link for jumbo frames, one each way.
fn jumbo(link: LinkConfig, theirs: &str) -> (Pair, Arc<UdpSocket>, Arc<UdpSocket>, UdpTransmit) {
    let pair = Pair::with(LinkConfig { mtu: 9000, ..link }, &[]);
    let server = pair.b.bind_udp(addr(theirs, 9)).unwrap();
    server.change_options(|options| options.rcvbuf = 1 << 20).unwrap();
    let client = pair.a.bind_udp("[::]:0".parse().unwrap()).unwrap();
    let discovery = PathMtuDiscovery::Probe;
    client.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
    let how = UdpTransmit::default().to(Some(addr(theirs, 9))).segment_size(Some(8952));
    (pair, server, client, how)
}

/// The lengths of the datagrams that wait.
fn lengths(pair: &Pair, socket: &UdpSocket) -> Vec<usize> {
    let mut buf = vec![0; 65_535];
    std::iter::from_fn(|| socket.recv(pair.now, &mut buf).ok().map(|read| read.len)).collect()
}

#[test]
fn a_train_above_one_datagram_s_length_leaves_as_several() {
    for (offloads, theirs) in [(true, B4), (true, B6), (false, B4)] {
        let link = LinkConfig { offloads, ..LinkConfig::default() };
        let (mut pair, server, client, how) = jumbo(link, theirs);
        // One send takes as much as one datagram, as with the kernel's UDP_SEGMENT.
        let refused = client.send(pair.now, &how, &[&TRAIN]);
        assert_eq!(refused, Err(SocketError::MessageTooLong));
        assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN[..9 * 8952 + 5]), Ok(()));
        pair.settle();
        let mut expected = vec![8952; 9];
        expected.push(5);
        assert_eq!(lengths(&pair, &server), expected);
        // No more than 64 datagrams leave at once.
        let how = how.segment_size(Some(100));
        assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN[..7050]), Ok(()));
        // Without a length it is one datagram, also one without any byte.
        for len in [0, 1000] {
            let how = how.segment_size(None);
            assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN[..len]), Ok(()));
        }
        pair.settle();
        let mut expected = vec![100; 70];
        expected.extend([50, 0, 1000]);
        assert_eq!(lengths(&pair, &server), expected);
        assert_eq!(pair.counter("plimsoll.UdpSendsLost"), (0, 0));
        let name = if ip(theirs).is_ipv4() { "UdpOutDatagrams" } else { "Udp6OutDatagrams" };
        assert_eq!(pair.counter(name).0, 10 + 71 + 2);
    }
}

#[test]
fn a_send_queue_takes_all_trains_or_none() {
    let link = LinkConfig { rate: Some(1_000_000), ..LinkConfig::default() };
    let (mut pair, server, client, how) = jumbo(link, B4);
    client.change_options(|options| options.sndbuf = 10_000).unwrap();
    assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN), Ok(()));
    let blocked = client.send_or_lose(pair.now, &how, &TRAIN);
    assert_eq!(blocked, Err(SocketError::WouldBlock));
    pair.run(Duration::from_secs(2));
    assert_eq!(lengths(&pair, &server), [8952; 10]);
    assert_eq!(pair.counter("plimsoll.UdpSendsLost").0, 0);
}

#[test]
fn what_cannot_leave_is_lost_and_counted() {
    let link = LinkConfig { rate: Some(1_000_000), ..LinkConfig::default() };
    let (mut pair, server, client, how) = jumbo(link, B4);
    // Datagrams that no packet carries, and one that the path does not.
    let long = how.segment_size(Some(9000));
    assert_eq!(client.send_or_lose(pair.now, &long, &TRAIN[..27_000]), Ok(()));
    assert_eq!(client.send_or_lose(pair.now, &how.segment_size(None), &TRAIN[..9000]), Ok(()));
    assert_eq!(pair.counter("plimsoll.UdpSendsLost").0, 3 + 1);
    pair.settle();
    assert!(lengths(&pair, &server).is_empty());
}

/// A link whose queue has taken `most` datagrams, or as many as it takes, and how many that is.
fn filled(most: usize) -> (Pair, Arc<UdpSocket>, Arc<UdpSocket>, UdpTransmit, usize) {
    let link = LinkConfig { rate: Some(1_000_000), tx_ring: 16, ..LinkConfig::default() };
    let (pair, server, client, how) = jumbo(link, B4);
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 8").unwrap();
    client.change_options(|options| options.sndbuf = 1 << 20).unwrap();
    let single = how.segment_size(None);
    let sends = |_: &usize| client.send(pair.now, &single, &[&TRAIN[..1000]]).is_ok();
    let sent = (0..most).take_while(sends).count();
    (pair, server, client, how, sent)
}

#[test]
fn trains_that_the_interface_refuses_after_the_first_are_lost() {
    let (.., most) = filled(100);
    assert!(most < 100, "the queue gets full");
    let (mut pair, server, client, how, sent) = filled(most - 1);
    assert_eq!(sent, most - 1, "there is place for one packet more");
    assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN), Ok(()));
    assert_eq!(pair.counter("plimsoll.UdpSendsLost").0, 3, "the second train");
    assert_eq!(client.send_or_lose(pair.now, &how, &TRAIN), Err(SocketError::WouldBlock));
    assert_eq!(pair.counter("plimsoll.UdpSendsLost").0, 3, "nothing was sent");
    pair.run(Duration::from_secs(2));
    let mut expected = vec![1000; sent];
    expected.extend([8952; 7]);
    assert_eq!(lengths(&pair, &server), expected);
}
