//! Sockets for any address: one socket for all senders and destinations.

use std::sync::Arc;

use super::harness::*;
use crate::{SocketError, UdpFlowConfig, UdpSocket, UdpTransmit};

/// The next datagram: its sender, its destination, and its text.
fn next(pair: &Pair, socket: &UdpSocket) -> Result<(String, String, String), SocketError> {
    let mut buf = [0; 100];
    let read = socket.recv(pair.now, &mut buf)?;
    let info = read.info;
    let to = std::net::SocketAddr::new(info.to, info.to_port);
    let text = String::from_utf8_lossy(&buf[..read.len]).into_owned();
    Ok((info.from.to_string(), to.to_string(), text))
}

fn send(pair: &mut Pair, from: &Arc<UdpSocket>, to: &str, port: u16, data: &[u8]) {
    let how = UdpTransmit { to: Some(addr(to, port)), ..UdpTransmit::default() };
    from.send(pair.now, &how, &[data]).unwrap();
    pair.settle();
}

#[test]
fn one_socket_takes_what_is_for_anybody_and_answers_for_all() {
    let mut pair = Pair::new();
    let any = pair.b.bind_udp_any(0).unwrap();
    let dns = pair.b.bind_udp_any(53).unwrap();
    let bound = pair.b.bind_udp(addr(B4, 7)).unwrap();
    let client = pair.a.bind_udp(addr(A4, 1000)).unwrap();
    let client6 = pair.a.bind_udp(addr(A6, 1000)).unwrap();
    send(&mut pair, &client, "198.51.100.7", 9, b"one");
    send(&mut pair, &client, "198.51.100.8", 10, b"two");
    send(&mut pair, &client, "198.51.100.7", 53, b"who");
    send(&mut pair, &client, B4, 7, b"bound");
    send(&mut pair, &client, B4, 8, b"ours");
    send(&mut pair, &client6, "2001:db8:7::7", 9, b"six");
    let from = addr(A4, 1000).to_string();
    let told = |to: &str, text: &str| Ok((from.clone(), to.to_owned(), text.to_owned()));
    assert_eq!(next(&pair, &any), told("198.51.100.7:9", "one"));
    assert_eq!(next(&pair, &any), told("198.51.100.8:10", "two"));
    assert_eq!(next(&pair, &any), told(&addr(B4, 8).to_string(), "ours"));
    let six = next(&pair, &any).unwrap();
    assert_eq!((six.1.as_str(), six.2.as_str()), ("[2001:db8:7::7]:9", "six"));
    assert_eq!(next(&pair, &any), Err(SocketError::WouldBlock));
    assert_eq!(next(&pair, &dns), told("198.51.100.7:53", "who"));
    assert_eq!(next(&pair, &bound).unwrap().2, "bound");

    let how = UdpTransmit::default()
        .to(Some(client.local_addr()))
        .from(Some(ip("198.51.100.7")))
        .from_port(Some(9));
    any.send(pair.now, &how, &[b"answer"]).unwrap();
    let how = how.from(Some(ip("203.0.113.1"))).from_port(Some(53));
    dns.send(pair.now, &how, &[b"me"]).unwrap();
    pair.settle();
    assert_eq!(next(&pair, &client).unwrap().0, "198.51.100.7:9");
    assert_eq!(next(&pair, &client).unwrap().0, "203.0.113.1:53");
    // No datagram has left anything behind.
    assert_eq!(pair.b.tables.udp().flows().len(), 0);
}

#[test]
fn a_socket_for_every_port_must_say_which() {
    let pair = Pair::new();
    let any = pair.b.bind_udp_any(0).unwrap();
    let dns = pair.b.bind_udp_any(53).unwrap();
    let how = UdpTransmit::default().to(Some(addr(A4, 9))).from(Some(ip("198.51.100.7")));
    let refused = |socket: &UdpSocket, how: &UdpTransmit| {
        let sent = socket.send(pair.now, how, &[b"x"]);
        matches!(sent, Err(SocketError::Invalid(text)) if text.starts_with("from_port"))
    };
    assert!(refused(&any, &how));
    assert!(refused(&any, &how.from_port(Some(0))));
    assert!(refused(&dns, &how.from_port(Some(54))));
    assert_eq!(dns.send(pair.now, &how, &[b"x"]), Ok(1));
    assert_eq!(any.send(pair.now, &how.from_port(Some(54)), &[b"x"]), Ok(1));
    assert!(matches!(any.connect(pair.now, addr(A4, 9)), Err(SocketError::Invalid(_))));
    assert!(matches!(any.join_group(ip("224.0.0.251")), Err(SocketError::Invalid(_))));
}

#[test]
fn groups_and_broadcasts_are_for_any_address_as_well() {
    let mut pair = Pair::new();
    let client = pair.a.bind_udp(addr(A4, 1000)).unwrap();
    client.change_options(|options| options.broadcast = true).unwrap();
    send(&mut pair, &client, "224.0.0.251", 5353, b"unheard");
    let any = pair.b.bind_udp_any(0).unwrap();
    send(&mut pair, &client, "224.0.0.251", 5353, b"mdns");
    send(&mut pair, &client, "255.255.255.255", 67, b"dhcp");
    let heard = || next(&pair, &any).map(|(_, to, text)| format!("{to} {text}"));
    assert_eq!(heard().unwrap(), "224.0.0.251:5353 mdns");
    assert_eq!(heard().unwrap(), "255.255.255.255:67 dhcp");
    assert_eq!(heard(), Err(SocketError::WouldBlock));
}

#[test]
fn there_is_one_for_each_port_and_its_end_is_seen() {
    let mut pair = Pair::new();
    let any = pair.b.bind_udp_any(0).unwrap();
    assert_eq!(pair.b.bind_udp_any(0).err(), Some(SocketError::AddrInUse));
    let flows = pair.b.listen_udp_any(0, UdpFlowConfig::default());
    assert_eq!(flows.err(), Some(SocketError::AddrInUse));
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    client.connect(pair.now, addr("198.51.100.7", 9)).unwrap();
    drop(any);
    send(&mut pair, &client, "198.51.100.7", 9, b"nobody");
    let refused = SocketError::Connection(plimsoll_tcp::ConnectionError::Refused);
    assert_eq!(next(&pair, &client), Err(refused), "the port is unreachable");
    assert_eq!(pair.b.tables.udp().len(), 0);
    let flows = pair.b.listen_udp_any(0, UdpFlowConfig::default()).unwrap();
    assert_eq!(pair.b.bind_udp_any(0).err(), Some(SocketError::AddrInUse));
    drop(flows);
    assert!(pair.b.bind_udp_any(0).is_ok());
}
