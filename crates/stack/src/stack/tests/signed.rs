//! Connections whose segments are signed.

use plimsoll_tcp::{Duration, Md5Key, Options, State};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{Listener, Md5Keys, TcpSocket};

const LONG: Duration = Duration::from_millis(500);

fn key(text: &str) -> Option<Md5Key> {
    Md5Key::new(text.as_bytes())
}

fn keys(peer: &str, prefix: u8, key: Option<Md5Key>) -> Md5Keys {
    let mut keys = Md5Keys::default();
    keys.set(ip(peer), prefix, key);
    keys
}

fn connect(pair: &Pair, to: &str, md5_key: Option<Md5Key>) -> std::sync::Arc<TcpSocket> {
    let options = Options::default().md5_key(md5_key);
    pair.a.connect(pair.now, addr(to, 80), None, options).unwrap()
}

fn accept(pair: &Pair, listener: &Listener) -> Option<std::sync::Arc<TcpSocket>> {
    listener.accept(pair.now).unwrap().map(|(socket, _)| socket)
}

#[test]
fn both_have_the_key() {
    for (ip_a, ip_b) in [(A4, B4), (A6, B6)] {
        let mut pair = Pair::with(LinkConfig::default(), &[]);
        let listener = pair.listen(ip_b, 16);
        listener.set_md5_keys(keys(ip_a, if ip_a == A4 { 32 } else { 128 }, key("secret")));
        let client = connect(&pair, ip_b, key("secret"));
        pair.run(LONG);
        let server = accept(&pair, &listener).expect("it opens");
        let sent = pattern(300_000, 5);
        let (mut at, mut got) = (0, Vec::new());
        let done = pair.run_until(Duration::from_secs(60), |pair| {
            feed(&client, pair.now, &sent, &mut at);
            drain(&server, pair.now, &mut got);
            got.len() == sent.len()
        });
        assert!(done && got == sent, "every byte arrives");
        assert_eq!(pair.counter("plimsoll.SuperSegs"), (0, 0), "each segment has its digest");
        assert_eq!(client.info(pair.now).snd_mss % 4, 0);
        client.close(pair.now);
        server.close(pair.now);
        pair.run(LONG);
        assert_eq!(client.state(), State::TimeWait);
        for name in ["TcpExtTCPMD5NotFound", "TcpExtTCPMD5Unexpected", "TcpExtTCPMD5Failure"] {
            assert_eq!(pair.counter(name), (0, 0), "{name}");
        }
    }
}

#[test]
fn without_the_right_key_nothing_opens() {
    let table = [
        (None, key("secret"), "TcpExtTCPMD5NotFound"),
        (key("secret"), None, "TcpExtTCPMD5Unexpected"),
        (key("secrets"), key("secret"), "TcpExtTCPMD5Failure"),
    ];
    for (ours, theirs, counter) in table {
        let mut pair = Pair::with(LinkConfig::default(), &[]);
        let listener = pair.listen(B4, 16);
        listener.set_md5_keys(keys(A4, 32, theirs));
        let client = connect(&pair, B4, ours);
        pair.run(LONG);
        assert_eq!(client.state(), State::SynSent, "{counter}: nothing answers");
        assert!(accept(&pair, &listener).is_none());
        assert_eq!(pair.counter(counter), (0, 1), "{counter}");
    }
}

#[test]
fn resets_of_a_connection_are_signed() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    listener.set_md5_keys(keys(A4, 32, key("secret")));
    let client = connect(&pair, B4, key("secret"));
    pair.run(LONG);
    let server = accept(&pair, &listener).expect("it opens");
    client.abort(pair.now);
    pair.run(LONG);
    assert_eq!(pair.counter("TcpExtTCPMD5NotFound"), (0, 0));
    assert_eq!(server.state(), State::Closed, "an unsigned one would be dropped");
}

#[test]
fn cookies_and_the_resets_of_bad_ones_are_signed() {
    for late in [false, true] {
        let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_syncookies", "2")]);
        let listener = pair.listen(B4, 16);
        listener.set_md5_keys(keys(A4, 32, key("secret")));
        let client = connect(&pair, B4, key("secret"));
        pair.b.poll(pair.now, 64).unwrap();
        assert_eq!(pair.counter("TcpExtSyncookiesSent"), (0, 1));
        if late {
            // The cookie has expired when it comes back; the SYN that is retransmitted meanwhile
            // keeps the listener accepting cookies.
            pair.now += Duration::from_secs(125);
            pair.a.poll(pair.now, 64).unwrap();
        }
        pair.run(LONG);
        let opened = if late { (State::Closed, false) } else { (State::Established, true) };
        assert_eq!((client.state(), accept(&pair, &listener).is_some()), opened);
        assert_eq!(pair.counter("TcpExtTCPMD5NotFound"), (0, 0));
    }
}
