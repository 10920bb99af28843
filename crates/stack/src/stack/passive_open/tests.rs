//! Listeners that answer with cookies, over a link.

use std::net::Shutdown;
use std::sync::Arc;

use plimsoll_buf::Slices;
use plimsoll_tcp::{Duration, Ecn, Segment, State};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::policies::budget::BudgetShare;
use crate::pollers::poll_state::PollState;
use crate::stack::tests::harness::*;
use crate::stack::work::Work;
use crate::{Budget, Listener, Refusal, TcpSocket};

const COOKIES: &str = "net.ipv4.tcp_syncookies";

fn always(sysctls: &[(&str, &str)]) -> Pair {
    let pair = Pair::with(LinkConfig::default(), sysctls);
    pair.b.sysctl().set(COOKIES, "2").unwrap();
    pair
}

fn count(pair: &Pair, name: &str) -> u64 {
    pair.counter(name).1
}

fn exchange(pair: &mut Pair, client: &TcpSocket, listener: &Listener) -> Arc<TcpSocket> {
    assert_eq!(client.write(pair.now, b"question"), Ok(8));
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    let mut read = [0; 20];
    assert_eq!(server.read(pair.now, &mut read), Ok(8));
    assert_eq!(server.write(pair.now, b"answer"), Ok(6));
    pair.settle();
    assert_eq!(client.read(pair.now, &mut read), Ok(6));
    server
}

#[test]
fn a_cookie_opens_what_a_syn_would_have() {
    for (stamps, sack) in [("1", true), ("0", false)] {
        for ip in [B4, B6] {
            let mut pair = always(&[("net.ipv4.tcp_timestamps", stamps)]);
            let listener = pair.listen(ip, 4);
            let client = pair.connect(ip);
            pair.b.poll(pair.now, 64).unwrap();
            assert_eq!(pair.b.connection_memory().connections, 0, "nothing is remembered");
            pair.run(Duration::from_millis(1));
            assert_eq!(client.state(), State::Established);
            let server = exchange(&mut pair, &client, &listener);
            let info = server.info(pair.now);
            assert_eq!((info.sack, info.timestamps, info.window_scaling), (sack, sack, sack));
            let counters = ["Sent", "Recv", "Failed"]
                .map(|end| count(&pair, &format!("TcpExtSyncookies{end}")));
            assert_eq!(counters, [1, 1, 0]);
            assert_eq!(count(&pair, "TcpExtTCPReqQFullDoCookies"), 1);
        }
    }
}

#[test]
fn cookies_help_out_while_the_queue_is_full() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 2);
    let clients: Vec<_> = (0..5).map(|_| pair.connect(B4)).collect();
    pair.b.poll(pair.now, 64).unwrap();
    assert_eq!(pair.b.connection_memory().connections, 3);
    assert_eq!(count(&pair, "TcpExtSyncookiesSent"), 2);
    let mut servers = Vec::new();
    for _ in 0..20 {
        pair.run(Duration::from_millis(100));
        while let Some((server, _)) = listener.accept(pair.now).unwrap() {
            servers.push(server);
        }
        for client in &clients {
            let _ = client.write(pair.now, b"x");
        }
    }
    // The ACKs of two cookies met a full accept queue; data came later and brought them again.
    assert_eq!(servers.len(), 5);
    assert!(clients.iter().all(|client| client.state() == State::Established));
}

/// The ACK that brings a cookie meets a full accept queue; behind it come data and a FIN, which
/// bring none. The peer takes its connection for open and must not be reset.
#[test]
fn what_follows_a_cookie_without_room_is_dropped_as_it_was() {
    let mut pair = always(&[]);
    let listener = pair.listen(B4, 0);
    let clients: Vec<_> = (0..2).map(|_| pair.connect(B4)).collect();
    pair.settle();
    assert_eq!(count(&pair, "TcpExtListenOverflows"), 1);
    for client in &clients {
        client.write(pair.now, b"question").unwrap();
        client.shutdown(pair.now, Shutdown::Write).unwrap();
    }
    pair.run(Duration::from_millis(500));
    assert!(count(&pair, "TcpExtSyncookiesFailed") >= 1, "a FIN is no cookie");
    assert!(clients.iter().all(|client| client.state() != State::Closed));
    let mut served = 0;
    let all = pair.run_until(Duration::from_secs(20), |pair| {
        while let Some((server, _)) = listener.accept(pair.now).unwrap() {
            let mut data = Vec::new();
            drain(&server, pair.now, &mut data);
            assert_eq!(data, b"question");
            served += 1;
        }
        served == 2
    });
    assert!(all, "both are served");
}

#[test]
fn an_old_cookie_is_reset() {
    let mut pair = always(&[]);
    let listener = pair.listen(B4, 4);
    let client = pair.connect(B4);
    // The answer is on its way for too long. The SYN of another client keeps the listener looking.
    pair.b.poll(pair.now, 64).unwrap();
    pair.now += Duration::from_secs(125);
    let other = pair.connect(B4);
    pair.a.poll(pair.now, 64).unwrap();
    assert_eq!(client.state(), State::Established);
    pair.settle();
    assert_eq!(client.state(), State::Closed, "reset");
    assert_eq!(other.state(), State::Established);
    assert!(listener.accept(pair.now).unwrap().is_some(), "that is the other one");
    assert!(listener.accept(pair.now).unwrap().is_none());
    assert_eq!(count(&pair, "TcpExtSyncookiesFailed"), 1);
}

#[test]
fn nobody_looks_for_cookies_unless_some_were_sent() {
    let mut pair = always(&[]);
    let _listener = pair.listen(B4, 4);
    let client = pair.connect(B4);
    pair.b.poll(pair.now, 64).unwrap();
    pair.b.sysctl().set(COOKIES, "0").unwrap();
    pair.settle();
    assert_eq!(client.state(), State::Closed, "reset");
    assert_eq!(count(&pair, "TcpExtSyncookiesFailed"), 0);
}

/// Another thread takes the last place between the admission of a SYN and its connection. The peer
/// gets the same answer as if that place had been taken before.
#[test]
fn a_place_that_is_lost_after_the_admission_is_refused_as_a_spent_budget() {
    for (refusal, heard) in [(Refusal::Drop, false), (Refusal::Reset, true)] {
        let pair = Pair::new();
        let listener = pair.listen(B4, 4);
        listener.set_refusal(refusal);
        listener.set_budget(Budget::default().connections(Some(1))).unwrap();
        let last = BudgetShare::take(listener.inner().budget()).expect("a place");
        let key = FlowKey { local: ip(B4), remote: ip(A4), local_port: 80, remote_port: 40_000 };
        let repr = TcpRepr {
            src_port: key.remote_port,
            dst_port: key.local_port,
            seq: SeqNum(5),
            flags: TcpFlags::SYN,
            window: 1000,
            ..TcpRepr::default()
        };
        let syn = Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct };
        let mut work = Work::begin(&pair.b, pair.now);
        let mut state = PollState::default();
        let inner = listener.inner_arc();
        let back = pair.b.remember(&mut work, &mut state, inner, &key, syn, SeqNum(7));
        work.finish();
        assert_eq!(back.is_some(), heard, "{refusal:?}");
        assert_eq!(count(&pair, "plimsoll.BudgetConnections"), 1);
        assert_eq!(count(&pair, "TcpExtListenDrops"), 1);
        assert_eq!(listener.budget_use().half_open, 0);
        drop(last);
    }
}
