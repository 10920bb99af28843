//! Attributes of routes, and a socket's options for the MTU of its path.

use plimsoll_tcp::{
    CongestionAlgorithm, Duration, Options, PathMtuDiscovery, RouteMetrics, SetOption,
};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::protocol;

use super::harness::*;
use super::icmp::{Bare, icmp4, v4};
use crate::{GateConfig, ListenConfig, ListenOn, RouteConfig, SocketError, Stack, UdpTransmit};

fn add(stack: &Stack, metrics: RouteMetrics) {
    let route = RouteConfig { prefix: ip(B4), prefix_len: 32, interface: 0, metrics };
    stack.add_route(route).unwrap();
}

#[test]
fn a_connection_has_the_attributes_of_its_route() {
    let mut pair = Pair::new();
    let metrics = RouteMetrics::default()
        .congestion(Some(CongestionAlgorithm::NewReno))
        .initcwnd(Some(3))
        .advmss(Some(1000));
    add(&pair.a, metrics);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    assert_eq!(client.options().route, metrics);
    assert_eq!(client.options().congestion, Some(CongestionAlgorithm::NewReno));
    assert_eq!(client.info(pair.now).snd_cwnd, 3);
    // Timestamps take 12 bytes of each segment.
    assert_eq!(server.mss(), 1000 - 12, "what we announced");
    assert_eq!(server.options().route, RouteMetrics::default(), "the peer's route is its own");
}

#[test]
fn open_connections_follow_the_mtu_of_their_route() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    let mtu = |pair: &Pair| client.info(pair.now).pmtu;
    let before = mtu(&pair);
    add(&pair.a, RouteMetrics::default().mtu(Some(900)));
    assert_eq!(mtu(&pair), 900);
    add(&pair.a, RouteMetrics::default().mtu(Some(1200)));
    assert_eq!(mtu(&pair), 1200);
    let metrics = RouteMetrics::default();
    let route = RouteConfig { prefix: ip(B4), prefix_len: 32, interface: 0, metrics };
    pair.a.remove_route(route).unwrap();
    assert_eq!(mtu(&pair), before);
    add(&pair.a, RouteMetrics::default().mtu(Some(u16::MAX)));
    assert_eq!(mtu(&pair), before, "no more than the interface carries");
}

#[test]
fn a_route_without_mtu_takes_the_place_of_a_wider_one_with_it() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    let mtu = || client.info(pair.now).pmtu;
    let before = mtu();
    // The interface's own prefix is wider still.
    let wide = |metrics| RouteConfig { prefix: ip(B4), prefix_len: 25, interface: 0, metrics };
    pair.a.add_route(wide(RouteMetrics::default().mtu(Some(900)))).unwrap();
    assert_eq!(mtu(), 900);
    add(&pair.a, RouteMetrics::default().initcwnd(Some(4)));
    assert_eq!(mtu(), before);
    pair.a.add_route(wide(RouteMetrics::default())).unwrap();
    assert_eq!(mtu(), before);
}

/// The SYN of a connection to `B4`, and its MTU after a message with 600.
fn told_600(bare: &mut Bare, options: Options) -> (Vec<u8>, u16) {
    let socket = bare.a.connect(bare.now, addr(B4, 80), None, options).unwrap();
    let syn = bare.take().remove(0);
    let message = Icmpv4Repr::Unreachable {
        code: icmpv4::CODE_FRAGMENTATION_NEEDED,
        next_hop_mtu: 600,
        packet: &syn[..28],
    };
    let _ = bare.exchange(&v4(protocol::ICMP, &icmp4(&message)));
    let mtu = socket.info(bare.now).pmtu as u16;
    (syn, mtu)
}

/// Whether "don't fragment" is set.
fn whole(packet: &[u8]) -> bool {
    packet[6] & 0x40 != 0
}

#[test]
fn what_may_be_fragmented_pays_no_heed_to_routers() {
    use PathMtuDiscovery::{DontFragment, Fragment, Never, Probe};
    for (discovery, heeds) in
        [(Fragment, true), (DontFragment, true), (Probe, true), (Never, false)]
    {
        let mut bare = Bare::new(&[]);
        let options = Options::default().path_mtu_discovery(discovery);
        let (syn, mtu) = told_600(&mut bare, options);
        assert_eq!((whole(&syn), mtu == 600), (heeds, heeds), "{discovery:?}: {mtu}");
    }
}

/// A message to `bare` that `packet` was too long for a link of `next_hop_mtu` bytes.
fn too_long(bare: &mut Bare, packet: &[u8], next_hop_mtu: u16) -> Vec<Vec<u8>> {
    let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
    let packet = &packet[..28];
    let message = Icmpv4Repr::Unreachable { code, next_hop_mtu, packet };
    bare.exchange(&v4(protocol::ICMP, &icmp4(&message)))
}

/// The SYN that leaves again after such a message.
fn again(bare: &mut Bare, syn: &[u8], next_hop_mtu: u16) -> Vec<u8> {
    assert!(too_long(bare, syn, next_hop_mtu).is_empty());
    bare.now += Duration::from_millis(1001);
    bare.take().remove(0)
}

/// Linux locks the MTU at `min_pmtu` if a router names less, or nothing.
#[test]
fn what_is_told_below_the_least_mtu_locks_it() {
    use PathMtuDiscovery::{DontFragment, Fragment};
    for (told, locks) in [(300, true), (0, true), (551, true), (552, false)] {
        for (discovery, df) in [(Fragment, !locks), (DontFragment, true)] {
            let mut bare = Bare::new(&[]);
            let options = Options::default().path_mtu_discovery(discovery);
            let open = |bare: &mut Bare, port| {
                let to = addr(B4, port);
                let socket = bare.a.connect(bare.now, to, None, options.clone()).unwrap();
                (bare.take().remove(0), socket)
            };
            let (syn, first) = open(&mut bare, 80);
            assert!(whole(&syn));
            assert_eq!(whole(&again(&mut bare, &syn, told)), df, "{told}");
            let (syn, second) = open(&mut bare, 81);
            assert_eq!(whole(&syn), df, "{told}: of a connection that opens later");
            for socket in [first, second] {
                assert_eq!(socket.info(bare.now).pmtu, 552, "{told}");
            }
            bare.now += Duration::from_secs(600);
            bare.take();
            assert!(whole(&open(&mut bare, 82).0), "{told}: ten minutes later");
        }
    }
}

#[test]
fn datagrams_and_messages_follow_a_locked_mtu() {
    use PathMtuDiscovery::{DontFragment, Fragment, Never, Probe};
    for (told, df) in [(300, false), (0, false), (552, true)] {
        let mut bare = Bare::new(&[]);
        let socket = bare.a.bind_udp(addr(A4, 0)).unwrap();
        let send = |bare: &mut Bare, discovery, len| {
            socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
            let to = UdpTransmit::default().to(Some(addr(B4, 9)));
            socket.send(bare.now, &to, &[&[1; 1400][..len]])?;
            let sent = bare.take();
            Ok(sent.iter().map(|packet| (packet.len(), whole(packet))).collect::<Vec<_>>())
        };
        let long = SocketError::MessageTooLong;
        assert_eq!(send(&mut bare, Fragment, 528), Ok(vec![(556, true)]));
        socket.send(bare.now, &UdpTransmit::default().to(Some(addr(B4, 9))), &[&[1; 528]]).unwrap();
        let packet = bare.take().remove(0);
        too_long(&mut bare, &packet, told);
        assert_eq!(send(&mut bare, Fragment, 524), Ok(vec![(552, df)]), "{told}");
        assert_eq!(send(&mut bare, Fragment, 528), Ok(vec![(548, false), (28, false)]), "{told}");
        assert_eq!(send(&mut bare, DontFragment, 524), Ok(vec![(552, true)]), "{told}");
        assert_eq!(send(&mut bare, DontFragment, 528), Err(long), "{told}");
        assert_eq!(send(&mut bare, Probe, 528), Ok(vec![(556, true)]), "{told}");
        assert_eq!(send(&mut bare, Never, 524), Ok(vec![(552, false)]), "{told}");
        let request = Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: &[7; 400] };
        let reply = bare.exchange(&v4(protocol::ICMP, &icmp4(&request)));
        assert_eq!((reply[0].len(), whole(&reply[0])), (428, df), "{told}: an echo reply");
        // It expires. Reports that come meanwhile do not extend it if the MTU is locked.
        bare.now += Duration::from_secs(599);
        if !df {
            too_long(&mut bare, &packet, 300);
        }
        bare.now += Duration::from_secs(1);
        assert_eq!(send(&mut bare, Fragment, 528), Ok(vec![(556, true)]), "{told}");
    }
}

#[test]
fn a_route_that_is_shorter_than_the_least_mtu_is_locked_as_it_is() {
    let mut bare = Bare::new(&[]);
    add(&bare.a, RouteMetrics::default().mtu(Some(400)));
    let open = |bare: &mut Bare, port| {
        let socket = bare.a.connect(bare.now, addr(B4, port), None, Options::default()).unwrap();
        (bare.take().remove(0), socket)
    };
    let (syn, first) = open(&mut bare, 80);
    too_long(&mut bare, &syn, 300);
    let (syn, second) = open(&mut bare, 81);
    assert!(!whole(&syn));
    assert_eq!([first, second].map(|socket| socket.info(bare.now).pmtu), [400, 400]);
}

/// As on Linux, the MSS of a route is announced, whatever routers report.
#[test]
fn what_routers_tell_does_not_lower_the_mss_of_a_route() {
    for (advmss, expected) in [(Some(1000), [1000, 1000]), (None, [1460, 560])] {
        let mut bare = Bare::new(&[]);
        add(&bare.a, RouteMetrics::default().advmss(advmss));
        let options = Options::default();
        let _client = bare.a.connect(bare.now, addr(B4, 80), None, options.clone()).unwrap();
        let syn = bare.take().remove(0);
        let again = again(&mut bare, &syn, 600);
        assert_eq!([&syn, &again].map(|syn| mss(syn)), expected);
        let _next = bare.a.connect(bare.now, addr(B4, 81), None, options).unwrap();
        assert_eq!(mss(&bare.take()[0]), expected[1], "of a connection that opens later");
    }
}

/// The MSS option of a SYN, which is its first.
fn mss(syn: &[u8]) -> u16 {
    assert_eq!(syn[40..42], [2, 4]);
    u16::from_be_bytes([syn[42], syn[43]])
}

#[test]
fn a_locked_mtu_is_not_learnt() {
    for (discovery, df) in [(PathMtuDiscovery::Fragment, false), (PathMtuDiscovery::Probe, true)] {
        let mut bare = Bare::new(&[]);
        add(&bare.a, RouteMetrics::default().mtu(Some(1000)).mtu_lock(true));
        let options = Options::default().path_mtu_discovery(discovery);
        let (syn, mtu) = told_600(&mut bare, options.clone());
        assert_eq!((whole(&syn), mtu), (df, 1000), "{discovery:?}");
        let next = bare.a.connect(bare.now, addr(B4, 81), None, options).unwrap();
        assert_eq!(next.info(bare.now).pmtu, 1000);
    }
}

#[test]
fn a_lock_after_the_open_leaves_a_connection_as_it_was() {
    for locked_at_open in [false, true] {
        let mut bare = Bare::new(&[]);
        let metrics = RouteMetrics::default().mtu(Some(1000));
        add(&bare.a, metrics.mtu_lock(locked_at_open));
        let socket = bare.a.connect(bare.now, addr(B4, 80), None, Options::default()).unwrap();
        add(&bare.a, metrics.mtu_lock(!locked_at_open));
        let syn = bare.take().remove(0);
        assert_eq!(whole(&syn), !locked_at_open);
        let message = Icmpv4Repr::Unreachable {
            code: icmpv4::CODE_FRAGMENTATION_NEEDED,
            next_hop_mtu: 600,
            packet: &syn[..28],
        };
        let _ = bare.exchange(&v4(protocol::ICMP, &icmp4(&message)));
        let mtu = if locked_at_open { 1000 } else { 600 };
        assert_eq!(socket.info(bare.now).pmtu, mtu, "locked at the open: {locked_at_open}");
    }
}

#[test]
fn datagrams_follow_the_mtu_of_their_route() {
    use PathMtuDiscovery::{DontFragment, Fragment, Never, Probe};
    // Whether a packet that leaves whole says "don't fragment"; `None` if a longer one is refused.
    for (lock, discovery, df) in [
        (false, Fragment, Some(true)),
        (true, Fragment, Some(false)),
        (true, Never, Some(false)),
        (true, DontFragment, None),
        (false, DontFragment, None),
        (true, Probe, None),
    ] {
        let mut bare = Bare::new(&[]);
        add(&bare.a, RouteMetrics::default().mtu(Some(1000)).mtu_lock(lock));
        let socket = bare.a.bind_udp(addr(A4, 0)).unwrap();
        socket.connect(bare.now, addr(B4, 9)).unwrap();
        socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
        let send = |len| socket.send(bare.now, &UdpTransmit::default(), &[&vec![0; len][..]]);
        assert_eq!(send(972), Ok(972));
        let long = send(973);
        assert_eq!(long.is_ok(), df.is_some(), "{lock} {discovery:?}: {long:?}");
        let sent = bare.take();
        assert_eq!(sent.len(), if df.is_some() { 3 } else { 1 }, "{lock} {discovery:?}");
        assert!(sent.iter().all(|packet| packet.len() <= 1000));
        assert_eq!(whole(&sent[0]), df.unwrap_or(true), "{lock} {discovery:?}");
    }
}

#[test]
fn a_locked_mtu_is_not_learnt_from_datagrams() {
    for lock in [false, true] {
        let mut bare = Bare::new(&[]);
        add(&bare.a, RouteMetrics::default().mtu(Some(1000)).mtu_lock(lock));
        let socket = bare.a.bind_udp(addr(A4, 0)).unwrap();
        socket.connect(bare.now, addr(B4, 9)).unwrap();
        let discovery = PathMtuDiscovery::DontFragment;
        socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
        let send = |bare: &Bare| {
            let how = UdpTransmit::default();
            socket.send(bare.now, &how, &[&[0; 900]])
        };
        assert_eq!(send(&bare), Ok(900));
        let sent = bare.take().remove(0);
        let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
        let message = Icmpv4Repr::Unreachable { code, next_hop_mtu: 600, packet: &sent[..100] };
        let _ = bare.exchange(&v4(protocol::ICMP, &icmp4(&message)));
        let too_long = SocketError::MessageTooLong;
        assert_eq!(socket.take_error(), (!lock).then_some(too_long), "lock: {lock}");
        assert_eq!(send(&bare), if lock { Ok(900) } else { Err(too_long) }, "lock: {lock}");
    }
}

#[test]
fn the_headers_of_a_syn_are_kept_for_who_accepts() {
    let mut pair = Pair::new();
    let options = Options::default().save_syn(true);
    let config = ListenConfig { options, ..ListenConfig::default() };
    let listener = pair.b.listen_with(ListenOn::Address(addr(B4, 80)), config).unwrap();
    let (client, server) = pair.open(B4, &listener);
    let syn = server.take_saved_syn().expect("it was kept");
    assert_eq!(syn.len(), 60);
    assert_eq!(syn[20..22], client.local_addr().port().to_be_bytes());
    assert_eq!((server.take_saved_syn(), client.take_saved_syn()), (None, None));
    listener.change_options(|options| options.save_syn = false);
    let (_, server) = pair.open(B4, &listener);
    assert_eq!(server.take_saved_syn(), None, "not any more");
}

#[test]
fn a_socket_changes_its_mind_on_an_open_connection() {
    let mut bare = Bare::new(&[]);
    let socket = bare.a.connect(bare.now, addr(B4, 80), None, Options::default()).unwrap();
    assert!(whole(&bare.take()[0]));
    let never = SetOption::PathMtuDiscovery(PathMtuDiscovery::Never);
    socket.set_option(bare.now, never);
    bare.now += Duration::from_millis(1001);
    assert!(!whole(&bare.take()[0]), "the SYN leaves again");
}

#[test]
fn a_gate_keeps_the_headers_of_a_syn_until_it_is_accepted() {
    let mut pair = Pair::new();
    let options = Options::default().save_syn(true);
    let gate = Some(GateConfig::default());
    let listener = pair.b.listen_on(ListenOn::Everything, 64, options, gate).unwrap();
    let client = pair.connect(B4);
    pair.settle();
    let incoming = listener.take_incoming(pair.now).unwrap().expect("an attempt waits");
    let server = incoming.accept(pair.now).unwrap();
    pair.settle();
    let syn = server.take_saved_syn().expect("it was kept");
    assert_eq!((syn.len(), &syn[20..22]), (60, &client.local_addr().port().to_be_bytes()[..]));
}
