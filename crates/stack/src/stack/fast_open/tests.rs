//! Keys, cookies, and listeners with Fast Open.

use std::sync::Arc;

use plimsoll_tcp::{ConnectionError, Options, State};

use super::*;
use crate::device::memory_link::LinkConfig;
use crate::sockets::fast_open::FastOpenQueue;
use crate::stack::tests::harness::*;
use crate::{Listener, SocketError, TcpSocket};
use plimsoll_tcp::{Duration, Instant};

const KEY: &str = "00010203-04050607-08090a0b-0c0d0e0f";
const OTHER: &str = "cafebabe-00000000-ffffffff-00000001";
const SETTING: &str = "net.ipv4.tcp_fastopen";
const KEYS: &str = "net.ipv4.tcp_fastopen_key";

fn bytes(text: &str) -> Vec<u8> {
    FastOpenKeys::parse(text).unwrap().to_bytes()
}

#[test]
fn keys_as_text_and_as_bytes() {
    assert_eq!(bytes(KEY)[..5], [3, 2, 1, 0, 7]);
    let both = format!("{KEY},{OTHER}");
    for text in [KEY, &both] {
        let keys = FastOpenKeys::parse(text).unwrap();
        assert_eq!(keys.to_string(), text);
        assert_eq!(FastOpenKeys::from_bytes(&keys.to_bytes()), Some(keys));
    }
    let short = FastOpenKeys::parse("1-2-3-4").unwrap();
    assert_eq!(short.to_string(), "00000001-00000002-00000003-00000004");
    let wrong = ["", "1-2-3", "1-2-3-4-5", "1-2-3-g", "1-2-3-100000000", "1-2-3-4,", "1-2-3-4,5"];
    for text in wrong {
        assert_eq!(FastOpenKeys::parse(text), None, "{text}");
    }
    assert_eq!(FastOpenKeys::parse(&format!("{both},{KEY}")), None);
    for len in [0, 3, 15, 17, 31, 33, 48] {
        assert_eq!(FastOpenKeys::from_bytes(&[0; 48][..len]), None, "{len}");
    }
}

#[test]
fn cookies_are_those_of_another_implementation() {
    // Computed by a SipHash of our own in another language, over the bytes of both addresses.
    let keys = FastOpenKeys::parse(KEY).unwrap();
    let of = |remote, local| format!("{:?}", keys.cookie(ip(remote), ip(local)));
    assert_eq!(of("192.0.2.1", "192.0.2.2"), "89f2f63efa6ccaab");
    assert_eq!(of("2001:db8::1", "2001:db8::2"), "ae64f46bd5763c98");
}

#[test]
fn places_are_bounded_and_a_reset_holds_one() {
    let mut queue = FastOpenQueue::default();
    let at = |secs: u64| Instant::from_millis(1000 * secs);
    assert_eq!(queue.check(at(0)), Ok(false), "off");
    queue.set_limit(2);
    for _ in 0..2 {
        assert_eq!(queue.check(at(0)), Ok(true));
        queue.begin();
    }
    assert_eq!(queue.check(at(0)), Err(()));
    queue.end(at(10), true);
    assert_eq!(queue.check(at(69)), Err(()));
    assert_eq!(queue.check(at(70)), Ok(true));
    queue.begin();
    assert_eq!(queue.check(at(70)), Err(()));
    queue.end(at(70), false);
    assert_eq!(queue.check(at(70)), Ok(true));
}

fn pair(bits: &str) -> Pair {
    let pair = Pair::with(LinkConfig::default(), &[(SETTING, "1"), (KEYS, KEY)]);
    pair.b.sysctl().set(SETTING, bits).unwrap();
    pair
}

fn connect(pair: &Pair, data: &[u8]) -> (Arc<TcpSocket>, usize) {
    pair.a.connect_with_data(pair.now, addr(B4, 80), None, Options::default(), &[data]).unwrap()
}

/// Connects once, so that `a` has a cookie.
fn learn(pair: &mut Pair, listener: &Listener) {
    let (client, taken) = connect(pair, b"once");
    assert_eq!(taken, 0);
    pair.settle();
    assert_eq!(client.state(), State::Established);
    drop(listener.accept(pair.now).unwrap().unwrap());
    drop(client);
    pair.settle();
}

fn read(pair: &Pair, socket: &TcpSocket) -> Result<Vec<u8>, SocketError> {
    let mut out = [0; 100];
    socket.read(pair.now, &mut out).map(|len| out[..len].to_vec())
}

#[test]
fn a_request_is_answered_in_one_round_trip() {
    let mut pair = pair("0x402");
    let listener = pair.listen(B4, 16);
    learn(&mut pair, &listener);
    assert_eq!(pair.counter("TcpExtTCPFastOpenCookieReqd"), (0, 1));
    let (client, taken) = connect(&pair, b"question");
    assert_eq!(taken, 8);
    // The SYN alone has arrived.
    pair.b.poll(pair.now, 64).unwrap();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    assert_eq!(server.state(), State::SynReceived);
    assert_eq!(read(&pair, &server).unwrap(), b"question");
    assert_eq!(server.write(pair.now, b"answer"), Ok(6));
    // The SYN-ACK and the answer behind it.
    pair.a.poll(pair.now, 64).unwrap();
    assert_eq!(read(&pair, &client).unwrap(), b"answer");
    pair.settle();
    assert_eq!(server.state(), State::Established);
    assert!(server.info(pair.now).options & 32 != 0);
    assert_eq!(pair.counter("TcpExtTCPFastOpenPassive"), (0, 1));
    assert_eq!(pair.counter("TcpExtTCPFastOpenActive"), (1, 0));
    assert_eq!(listener.inner().fast_open(|queue| queue.check(pair.now)), Ok(true));
}

#[test]
fn cookies_follow_the_keys() {
    let mut pair = pair("0x402");
    let listener = pair.listen(B4, 16);
    learn(&mut pair, &listener);
    // A new key; cookies of the old one are still valid, and a new one is sent.
    pair.b.sysctl().set(KEYS, &format!("{OTHER},{KEY}")).unwrap();
    let first = pair.a.peer_metrics()[0].cookie;
    let (_first, _) = connect(&pair, b"a");
    pair.settle();
    assert_eq!(pair.counter("TcpExtTCPFastOpenPassiveAltKey"), (0, 1));
    assert_ne!(pair.a.peer_metrics()[0].cookie, first);
    pair.b.sysctl().set(KEYS, OTHER).unwrap();
    let (_second, _) = connect(&pair, b"b");
    pair.settle();
    assert_eq!(pair.counter("TcpExtTCPFastOpenPassive"), (0, 2));
    // The listener's own key counts more.
    listener.set_fast_open_keys(FastOpenKeys::parse(KEY));
    let (_third, taken) = connect(&pair, b"c");
    pair.settle();
    assert_eq!((taken, pair.counter("TcpExtTCPFastOpenPassiveFail")), (1, (0, 1)));
    assert_eq!(pair.a.peer_metrics()[0].cookie, first);
    let mut heard = Vec::new();
    while let Some((server, _)) = listener.accept(pair.now).unwrap() {
        heard.push(read(&pair, &server).unwrap());
    }
    assert_eq!(heard, [b"a", b"b", b"c"]);
}

#[test]
fn who_takes_part() {
    // Bits, TCP_FASTOPEN_NO_COOKIE, TCP_FASTOPEN, and whether SYNs with data open at once.
    let cases = [
        ("0x1", true, 4, false),
        ("0x2", true, 0, false),
        ("0x2", false, 4, false),
        ("0x2", true, 4, true),
        ("0x202", false, 4, true),
        ("0x602", false, 0, true),
        ("0x402", true, 0, true),
    ];
    for (bits, no_cookie, queue, opens) in cases {
        let mut pair = pair(bits);
        pair.a.sysctl().set(SETTING, "5").unwrap();
        let options = Options::default().fastopen_no_cookie(no_cookie);
        let listener = pair.b.listen(addr(B4, 80), 16, options).unwrap();
        if queue > 0 {
            listener.set_fast_open_queue(queue);
            assert_eq!(listener.fast_open_queue(), queue);
        }
        let (_client, _) = connect(&pair, b"data");
        pair.b.poll(pair.now, 64).unwrap();
        let early = listener.accept(pair.now).unwrap();
        assert_eq!(early.is_some(), opens, "{bits} {no_cookie} {queue}");
        pair.settle();
        let server = early.or_else(|| listener.accept(pair.now).unwrap());
        assert_eq!(read(&pair, &server.unwrap().0).unwrap(), b"data");
    }
}

#[test]
fn the_queue_length_bounds_early_connections() {
    let mut pair = pair("0x202");
    pair.a.sysctl().set(SETTING, "5").unwrap();
    let listener = pair.listen(B4, 16);
    listener.set_fast_open_queue(2);
    let _clients: Vec<_> = (0..3).map(|_| connect(&pair, b"data")).collect();
    pair.b.poll(pair.now, 64).unwrap();
    assert_eq!(pair.counter("TcpExtTCPFastOpenListenOverflow"), (0, 1));
    assert_eq!(listener.queue_lengths().0, 2);
    pair.settle();
    assert_eq!(listener.queue_lengths().0, 3);
    let _more = connect(&pair, b"data");
    pair.settle();
    assert_eq!(pair.counter("TcpExtTCPFastOpenPassive"), (0, 3));
}

#[test]
fn a_reset_after_accept_is_paid_for() {
    let mut pair = pair("0x202");
    pair.a.sysctl().set(SETTING, "5").unwrap();
    let listener = pair.listen(B4, 16);
    listener.set_fast_open_queue(1);
    for accepted in [false, true] {
        let (client, _) = connect(&pair, b"data");
        pair.b.poll(pair.now, 64).unwrap();
        let server = accepted.then(|| listener.accept(pair.now).unwrap().unwrap().0);
        client.abort(pair.now);
        pair.settle();
        let server = server.unwrap_or_else(|| listener.accept(pair.now).unwrap().unwrap().0);
        assert_eq!(server.state(), State::Closed);
        assert_eq!(read(&pair, &server).unwrap(), b"data");
        let reset = SocketError::Connection(ConnectionError::Reset);
        assert_eq!(read(&pair, &server), Err(reset));
    }
    let opens = |pair: &mut Pair| {
        let (_client, _) = connect(pair, b"data");
        pair.b.poll(pair.now, 64).unwrap();
        let early = listener.accept(pair.now).unwrap().is_some();
        pair.settle();
        let _late = listener.accept(pair.now).unwrap();
        early
    };
    assert!(!opens(&mut pair));
    pair.run(Duration::from_secs(61));
    assert!(opens(&mut pair));
}

#[test]
fn closing_the_listener_resets_what_opened_early() {
    let mut pair = pair("0x202");
    pair.a.sysctl().set(SETTING, "5").unwrap();
    let listener = pair.listen(B4, 16);
    listener.set_fast_open_queue(2);
    let clients = [connect(&pair, b"one").0, connect(&pair, b"two").0];
    pair.b.poll(pair.now, 64).unwrap();
    let (kept, _) = listener.accept(pair.now).unwrap().unwrap();
    listener.close(pair.now);
    pair.settle();
    assert_eq!(clients[1].take_error(), Some(ConnectionError::Reset));
    assert_eq!(kept.state(), State::Established);
    drop(kept);
    pair.settle();
}

/// One request and its answer, of some thousand bytes each, over a link that loses, doubles and
/// overtakes; the server answers as soon as it has anything. Returns whether it opened early.
fn exchange_over(seed: u64) -> bool {
    let link = LinkConfig {
        delay: Duration::from_millis(5),
        loss: 0.1,
        duplicate: 0.05,
        reorder: 0.1,
        reorder_delay: Duration::from_millis(3),
        seed,
        ..LinkConfig::default()
    };
    let mut pair = Pair::with(link, &[(SETTING, "0x607")]);
    let listener = pair.listen(B4, 4);
    let (request, response) = (pattern(5000, seed), pattern(9000, seed + 1));
    let (client, mut asked) = connect(&pair, &request);
    let (mut server, mut told) = (None::<Arc<TcpSocket>>, 0);
    let (mut at_server, mut at_client, mut shut) = (Vec::new(), Vec::new(), false);
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        if server.is_none() {
            server = listener.accept(pair.now).unwrap().map(|(socket, _)| socket);
        }
        if client.state() != State::SynSent && !shut {
            feed(&client, pair.now, &request, &mut asked);
            if asked == request.len() {
                client.shutdown(pair.now, std::net::Shutdown::Write).unwrap();
                shut = true;
            }
        }
        let Some(server) = &server else { return false };
        let heard = drain(server, pair.now, &mut at_server);
        if !at_server.is_empty() {
            feed(server, pair.now, &response, &mut told);
        }
        let _ = drain(&client, pair.now, &mut at_client);
        heard && at_client.len() == response.len()
    });
    assert!(done, "{seed}: {} and {}", at_server.len(), at_client.len());
    assert!(at_server == request && at_client == response, "{seed}");
    drop((client, server, listener));
    pair.run(Duration::from_secs(300));
    assert_eq!(pair.b.connection_memory().connections, 0, "{seed}");
    pair.counter("TcpExtTCPFastOpenPassive").1 > 0
}

#[test]
fn streams_arrive_whole_over_a_bad_link() {
    let early = (0..60).filter(|&seed| exchange_over(seed)).count();
    assert!(early > 40, "{early}");
}
