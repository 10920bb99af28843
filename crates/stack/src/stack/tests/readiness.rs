//! The readiness that a poller reads, the error queue, and the figures of socket options.

use plimsoll_tcp::{Duration, ErrorReport, SetOption, WriteFlags};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::sockets::endpoint::Edges;

const LONG: Duration = Duration::from_millis(500);

#[test]
fn edges_of_input() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let before = server.readiness();
    assert!(before.writable && !before.readable);
    client.write(pair.now, b"one").unwrap();
    pair.run(LONG);
    let first = server.readiness();
    assert!(first.readable && !first.read_closed);
    assert_ne!(first.edges.input, before.edges.input);
    // More data is a new edge, though nothing was read; a read is none.
    client.write(pair.now, b"two").unwrap();
    pair.run(LONG);
    let second = server.readiness();
    assert_ne!(second.edges.input, first.edges.input);
    let mut buf = [0; 2];
    server.read(pair.now, &mut buf).unwrap();
    assert_eq!((server.readable_bytes(), server.inq_hint()), (4, 4));
    assert_eq!(server.readiness().edges, second.edges);
    // With the FIN there is one more to come.
    client.shutdown(pair.now, std::net::Shutdown::Write).unwrap();
    pair.run(LONG);
    assert_eq!((server.readable_bytes(), server.inq_hint()), (4, 5));
    let ended = server.readiness();
    assert!(ended.read_closed && !ended.hung_up);
    assert_ne!(ended.edges.input, second.edges.input);
    assert!(client.is_drained());
}

#[test]
fn edges_of_output_come_to_those_who_met_a_full_buffer() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.set_option(pair.now, SetOption::SndBuf(5000));
    assert_eq!(client.sndbuf(), 10_000);
    server.set_option(pair.now, SetOption::RcvBuf(4000));
    assert_eq!(server.rcvbuf(), 8000);
    client.write(pair.now, &[0; 1000]).unwrap();
    pair.run(LONG);
    let idle = client.readiness().edges;
    assert_eq!(idle.output, 1, "the connection opened");
    let mut sent = 0;
    while let Ok(count) = client.write(pair.now, &[0; 50_000]) {
        sent += count;
        pair.run(LONG);
    }
    assert!(sent > 0 && client.unsent_len() > 0 && !client.is_drained());
    let full = client.readiness();
    assert!(!full.writable);
    let mut buf = vec![0; 100_000];
    for _ in 0..200 {
        let _ = server.read(pair.now, &mut buf);
        pair.run(LONG);
    }
    assert!(client.is_drained() && client.readiness().writable);
    assert_eq!(client.readiness().edges.output, full.edges.output + 1, "one edge");
}

#[test]
fn reports_wake_a_poller() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    client.set_option(pair.now, SetOption::ZeroCopy(true));
    let flags = WriteFlags { zerocopy: true, ..WriteFlags::default() };
    assert_eq!(client.write_with(pair.now, &[b"ab", b"", b"cd"], flags), Ok(4));
    pair.run(LONG);
    let seen = client.readiness();
    assert!(seen.report && !seen.error);
    assert_eq!(seen.edges, Edges { output: 1, error: 1, input: 0 });
    let report = ErrorReport::ZeroCopy { first: 0, last: 0, copied: true };
    assert_eq!((client.take_report(), client.take_report()), (Some(report), None));
    assert!(!client.readiness().report);
}

#[test]
fn figures_of_options() {
    let mut pair =
        Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_rmem", "4096 50000 6000000")]);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    assert_eq!(server.rcvbuf(), 50_000);
    assert_eq!(client.mss(), server.mss());
    client.write(pair.now, &[0; 100]).unwrap();
    pair.run(LONG);
    let info = server.info(pair.now);
    assert!(info.last_data_recv >= Duration::from_millis(400), "{:?}", info.last_data_recv);
    assert_eq!(client.info(pair.now).delivered, 2, "the SYN counts too");
}
