//! getsockopt and setsockopt. What a fresh socket answers was asked of Linux 6.18.

use super::harness::*;
use crate::posix::numbers::*;
use crate::posix::{Call, Errno, Out};

/// What setsockopt returned, or what getsockopt told.
type Told = Result<i32, Errno>;

/// The default, and what becomes of setting 1, -1 and 0: the result, then what is read back.
type Row = (&'static str, (i32, i32), Told, [Told; 3], i32);

const INVALID: Told = Err(Errno::EINVAL);
const UNKNOWN: Told = Err(Errno::ENOPROTOOPT);

#[test]
fn integers_of_a_fresh_socket() {
    let rows: &[Row] = &[
        ("SO_REUSEADDR", (SOL_SOCKET, SO_REUSEADDR), Ok(0), [Ok(0); 3], 1),
        ("SO_REUSEPORT", (SOL_SOCKET, SO_REUSEPORT), Ok(0), [Ok(0); 3], 1),
        ("SO_TYPE", (SOL_SOCKET, SO_TYPE), Ok(1), [UNKNOWN; 3], 1),
        ("SO_ERROR", (SOL_SOCKET, SO_ERROR), Ok(0), [UNKNOWN; 3], 0),
        ("SO_SNDBUF", (SOL_SOCKET, SO_SNDBUF), Ok(16_384), [Ok(0); 3], 4608),
        ("SO_RCVBUF", (SOL_SOCKET, SO_RCVBUF), Ok(131_072), [Ok(0); 3], 2304),
        ("SO_SNDBUFFORCE", (SOL_SOCKET, SO_SNDBUFFORCE), UNKNOWN, [Ok(0); 3], 0),
        ("SO_KEEPALIVE", (SOL_SOCKET, SO_KEEPALIVE), Ok(0), [Ok(0); 3], 1),
        ("SO_OOBINLINE", (SOL_SOCKET, SO_OOBINLINE), Ok(0), [Ok(0); 3], 1),
        ("SO_PRIORITY", (SOL_SOCKET, SO_PRIORITY), Ok(0), [Ok(0); 3], 1),
        ("SO_MARK", (SOL_SOCKET, SO_MARK), Ok(0), [Ok(0); 3], 1),
        ("SO_RCVLOWAT", (SOL_SOCKET, SO_RCVLOWAT), Ok(1), [Ok(0); 3], 1),
        ("SO_SNDLOWAT", (SOL_SOCKET, SO_SNDLOWAT), Ok(1), [UNKNOWN; 3], 1),
        ("SO_ACCEPTCONN", (SOL_SOCKET, SO_ACCEPTCONN), Ok(0), [UNKNOWN; 3], 0),
        ("SO_PROTOCOL", (SOL_SOCKET, SO_PROTOCOL), Ok(6), [UNKNOWN; 3], 6),
        ("SO_DOMAIN", (SOL_SOCKET, SO_DOMAIN), Ok(2), [UNKNOWN; 3], 2),
        ("SO_BUSY_POLL", (SOL_SOCKET, SO_BUSY_POLL), Ok(0), [Ok(0), INVALID, Ok(0)], 1),
        ("SO_ZEROCOPY", (SOL_SOCKET, SO_ZEROCOPY), Ok(0), [Ok(0), INVALID, Ok(0)], 1),
        ("TCP_NODELAY", (SOL_TCP, TCP_NODELAY), Ok(0), [Ok(0); 3], 1),
        ("TCP_MAXSEG", (SOL_TCP, TCP_MAXSEG), Ok(536), [INVALID, INVALID, Ok(0)], 536),
        ("TCP_CORK", (SOL_TCP, TCP_CORK), Ok(0), [Ok(0); 3], 1),
        ("TCP_KEEPIDLE", (SOL_TCP, TCP_KEEPIDLE), Ok(7200), [Ok(0), INVALID, INVALID], 1),
        ("TCP_KEEPINTVL", (SOL_TCP, TCP_KEEPINTVL), Ok(75), [Ok(0), INVALID, INVALID], 1),
        ("TCP_KEEPCNT", (SOL_TCP, TCP_KEEPCNT), Ok(9), [Ok(0), INVALID, INVALID], 1),
        ("TCP_SYNCNT", (SOL_TCP, TCP_SYNCNT), Ok(6), [Ok(0), INVALID, INVALID], 1),
        ("TCP_LINGER2", (SOL_TCP, TCP_LINGER2), Ok(60), [Ok(0); 3], 1),
        ("TCP_QUICKACK", (SOL_TCP, TCP_QUICKACK), Ok(1), [Ok(0); 3], 1),
        ("TCP_USER_TIMEOUT", (SOL_TCP, TCP_USER_TIMEOUT), Ok(0), [Ok(0), INVALID, Ok(0)], 1),
        ("TCP_RTO_MIN_US", (SOL_TCP, TCP_RTO_MIN_US), Ok(200_000), [Ok(0), INVALID, INVALID], 1),
        ("TCP_RTO_MAX_MS", (SOL_TCP, TCP_RTO_MAX_MS), Ok(120_000), [INVALID; 3], 120_000),
        ("TCP_NOTSENT_LOWAT", (SOL_TCP, TCP_NOTSENT_LOWAT), Ok(0), [Ok(0); 3], 1),
        ("TCP_INQ", (SOL_TCP, TCP_INQ), Ok(0), [Ok(0), INVALID, Ok(0)], 1),
        ("TCP_WINDOW_CLAMP", (SOL_TCP, TCP_WINDOW_CLAMP), Ok(0), [Ok(0), Ok(0), Ok(0)], 1152),
        ("TCP_SAVE_SYN", (SOL_TCP, TCP_SAVE_SYN), Ok(0), [Ok(0), INVALID, Ok(0)], 1),
        (
            "TCP_FASTOPEN_CONNECT",
            (SOL_TCP, TCP_FASTOPEN_CONNECT),
            Ok(0),
            [Ok(0), INVALID, Ok(0)],
            1,
        ),
        ("TCP 38", (SOL_TCP, 38), UNKNOWN, [UNKNOWN; 3], 0),
        ("IP_TOS", (SOL_IP, IP_TOS), Ok(0), [Ok(0); 3], 0),
        ("IP_TTL", (SOL_IP, IP_TTL), Ok(64), [Ok(0), Ok(0), INVALID], 1),
        ("IP_MTU_DISCOVER", (SOL_IP, IP_MTU_DISCOVER), Ok(1), [Ok(0), INVALID, Ok(0)], 1),
        ("IP_MTU", (SOL_IP, IP_MTU), Err(Errno::ENOTCONN), [UNKNOWN; 3], 0),
        ("IP_FREEBIND", (SOL_IP, IP_FREEBIND), Ok(0), [Ok(0); 3], 1),
        ("IP_RECVERR", (SOL_IP, IP_RECVERR), Ok(0), [Ok(0); 3], 1),
        ("IPV6_V6ONLY", (SOL_IPV6, IPV6_V6ONLY), UNKNOWN, [UNKNOWN; 3], 0),
    ];
    let mut w = World::new();
    for (name, option, default, results, one) in rows {
        for (value, result) in [1, -1, 0].into_iter().zip(results) {
            let fd = w.socket(A, AF_INET);
            assert_eq!(w.get(A, fd, *option), *default, "{name} by default");
            assert_eq!(w.set(A, fd, *option, value), result.map(i64::from), "{name} = {value}");
            if default.is_ok() && value == 1 {
                assert_eq!(w.get(A, fd, *option), Ok(*one), "{name} after 1");
            }
            assert_eq!(w.call(A, Call::Close { fd }), Ok(0));
        }
    }
}

fn set(fd: i32, option: (i32, i32), value: Option<Vec<u8>>, len: i32) -> Call {
    Call::Setsockopt { fd, level: option.0, name: option.1, value, len }
}

fn get(w: &mut World, fd: i32, option: (i32, i32), len: i32) -> Result<Vec<u8>, Errno> {
    let reply =
        w.full(A, Call::Getsockopt { fd, level: option.0, name: option.1, len, null: false });
    reply.result?;
    match reply.out {
        Out::Option { value, len } => {
            assert_eq!(value.len(), len as usize);
            Ok(value)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lengths() {
    let mut w = World::new();
    let fd = w.socket(A, AF_INET);
    let nodelay = (SOL_TCP, TCP_NODELAY);
    let one = || Some(vec![1, 0, 0, 0, 0]);
    let cases = [
        (nodelay, one(), 3, Err(Errno::EINVAL)),
        (nodelay, one(), 5, Ok(0)),
        (nodelay, None, 4, Err(Errno::EFAULT)),
        (nodelay, None, 0, Err(Errno::EINVAL)),
        (nodelay, one(), -1, Err(Errno::EINVAL)),
        ((SOL_TCP, 99), one(), 3, Err(Errno::EINVAL)),
        ((SOL_IP, IP_TOS), one(), 0, Ok(0)),
        ((SOL_IP, IP_TTL), one(), 0, Err(Errno::EINVAL)),
        ((SOL_IP, IP_TTL), one(), 1, Ok(0)),
        ((SOL_SOCKET, SO_LINGER), one(), 4, Err(Errno::EINVAL)),
        ((SOL_SOCKET, SO_RCVTIMEO), one(), 4, Err(Errno::EINVAL)),
        ((99, 1), one(), 4, Err(Errno::ENOPROTOOPT)),
    ];
    for (option, value, len, result) in cases {
        let call = set(fd, option, value.clone(), len);
        assert_eq!(w.call(A, call), result, "{option:?} {value:?} {len}");
    }
    assert_eq!(w.call(A, set(99, nodelay, one(), -1)), Err(Errno::EBADF));
    assert_eq!(get(&mut w, fd, nodelay, -1), Err(Errno::EINVAL));
    assert_eq!(get(&mut w, fd, nodelay, 2), Ok(vec![1, 0]), "cut to the room");
    assert_eq!(get(&mut w, fd, nodelay, 99), Ok(vec![1, 0, 0, 0]));
    assert_eq!(get(&mut w, fd, (SOL_IP, IP_TTL), 1), Ok(vec![1]), "a char");
    assert_eq!(get(&mut w, fd, (SOL_SOCKET, SO_LINGER), 99), Ok(vec![0; 8]));
    assert_eq!(get(&mut w, fd, (SOL_SOCKET, SO_RCVTIMEO), 99), Ok(vec![0; 16]));
    assert_eq!(get(&mut w, fd, (SOL_TCP, TCP_INFO), 999).map(|info| info.len()), Ok(280));
    assert_eq!(get(&mut w, fd, (SOL_TCP, TCP_INFO), 8), Ok(vec![7, 0, 0, 0, 0, 0, 0, 0]));
    let null = Call::Getsockopt { fd, level: SOL_TCP, name: TCP_NODELAY, len: 4, null: true };
    assert_eq!(w.call(A, null), Err(Errno::EFAULT));
}

#[test]
fn times_are_kept_in_ticks() {
    let mut w = World::new();
    let fd = w.socket(A, AF_INET);
    let option = (SOL_SOCKET, SO_SNDTIMEO);
    let time = |seconds: i64, micros: i64| {
        let mut bytes = seconds.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&micros.to_ne_bytes());
        bytes
    };
    for (set_to, result, read) in [
        (time(2, 500_001), Ok(0), time(2, 501_000)),
        (time(0, 1_000_000), Err(Errno::EDOM), time(2, 501_000)),
        (time(0, 0), Ok(0), time(0, 0)),
        (time(-1, 0), Ok(0), time(0, 0)),
    ] {
        assert_eq!(w.call(A, set(fd, option, Some(set_to), 16)), result);
        assert_eq!(get(&mut w, fd, option, 16), Ok(read));
    }
}

#[test]
fn the_name_of_the_algorithm() {
    let mut w = World::new();
    let fd = w.socket(A, AF_INET);
    let option = (SOL_TCP, TCP_CONGESTION);
    let name = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(w.call(A, set(fd, option, name("reno"), 4)), Ok(0));
    assert_eq!(get(&mut w, fd, option, 99).unwrap(), b"reno\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(w.call(A, set(fd, option, name("unheard"), 7)), Err(Errno::ENOENT));
    assert_eq!(w.call(A, set(fd, option, name(""), 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(A, set(fd, option, None, 4)), Err(Errno::EFAULT));
}

#[test]
fn bbr_tells_its_model_once_data_has_left() {
    let mut w = World::new();
    let (client, _server) = w.open();
    let (info, name) = ((SOL_TCP, TCP_CC_INFO), (SOL_TCP, TCP_CONGESTION));
    assert_eq!(get(&mut w, client, info, 99), Ok(Vec::new()), "CUBIC tells nothing");
    assert_eq!(w.call(A, set(client, name, Some(b"bbr".to_vec()), 3)), Ok(0));
    assert_eq!(w.write(A, client, b"data"), Ok(4));
    let told = get(&mut w, client, info, 99).unwrap();
    assert_eq!(told.len(), 20);
    let word = |at: usize| u32::from_ne_bytes(told[at..at + 4].try_into().unwrap());
    // Startup: 2.77 and 2, in units of 1/256.
    assert_eq!([word(12), word(16)], [709, 512]);
}

#[test]
fn what_a_listener_has_its_connections_get() {
    let mut w = World::new();
    let listener = w.listener(B4);
    assert_eq!(w.set(B, listener, (SOL_TCP, TCP_MAXSEG), 1100), Ok(0));
    assert_eq!(w.set(B, listener, (SOL_TCP, TCP_NODELAY), 1), Ok(0));
    assert_eq!(w.set(B, listener, (SOL_TCP, TCP_INQ), 1), Ok(0));
    let fd = w.socket(A, AF_INET);
    let _ = w.sleeps(A, Call::Connect { fd, addr: addr(B4, 80) });
    let server = w.fd(B, Call::Accept { fd: listener, flags: 0 });
    assert_eq!(w.get(B, server, (SOL_TCP, TCP_MAXSEG)), Ok(1088), "without the timestamps");
    assert_eq!(w.get(B, server, (SOL_TCP, TCP_NODELAY)), Ok(1));
    assert_eq!(w.get(B, server, (SOL_TCP, TCP_INQ)), Ok(1));
    assert_eq!(w.get(B, listener, (SOL_TCP, TCP_MAXSEG)), Ok(1100));
    assert_eq!(w.get(B, server, (SOL_IP, IP_MTU)), Ok(1500));
}

#[test]
fn the_pacing_rate_has_two_lengths() {
    let mut w = World::new();
    let fd = w.socket(A, AF_INET);
    let option = (SOL_SOCKET, SO_MAX_PACING_RATE);
    let unlimited = Ok(vec![255; 8]);
    assert_eq!(get(&mut w, fd, option, 8), unlimited);
    assert_eq!(get(&mut w, fd, option, 4), Ok(vec![255; 4]));
    // What is set, and what both forms tell.
    let long = |rate: u64| rate.to_ne_bytes().to_vec();
    let short = |rate: u32| rate.to_ne_bytes().to_vec();
    let cases = [
        (short(70_000), long(70_000), short(70_000)),
        (short(u32::MAX - 1), long(u64::from(u32::MAX) - 1), short(u32::MAX - 1)),
        (short(u32::MAX), long(u64::MAX), short(u32::MAX)),
        (long(1 << 40), long(1 << 40), short(u32::MAX)),
        (short(0), long(0), short(0)),
        (long(u64::MAX), long(u64::MAX), short(u32::MAX)),
    ];
    for (value, eight, four) in cases {
        let len = value.len() as i32;
        assert_eq!(w.call(A, set(fd, option, Some(value), len)), Ok(0));
        assert_eq!(get(&mut w, fd, option, 8), Ok(eight));
        assert_eq!(get(&mut w, fd, option, 4), Ok(four));
    }
}

#[test]
fn the_headers_of_a_syn_are_told_once() {
    let (saves, saved) = ((SOL_TCP, TCP_SAVE_SYN), (SOL_TCP, TCP_SAVED_SYN));
    let mut w = World::new();
    let listener = w.listener(B4);
    assert_eq!(w.set(B, listener, saves, 1), Ok(0));
    let fd = w.socket(A, AF_INET);
    let (connect, _) = w.sleeps(A, Call::Connect { fd, addr: addr(B4, 80) });
    assert_eq!(done(w.resume(A, connect)).result, Ok(0));
    let accepted = w.fd(B, Call::Accept { fd: listener, flags: 0 });
    let mut tell = |side, fd, len| {
        let (level, name) = saved;
        let reply = w.full(side, Call::Getsockopt { fd, level, name, len, null: false });
        match reply.out {
            Out::Option { value, len } => (reply.result, value, len),
            other => panic!("{other:?}"),
        }
    };
    // 20 bytes of IP, 20 of TCP and 20 of options: MSS, SACK, timestamps, window scale.
    assert_eq!(tell(B, accepted, 59), (Err(Errno::EINVAL), Vec::new(), 60));
    let (result, syn, len) = tell(B, accepted, 500);
    assert_eq!((result, syn.len(), len), (Ok(0), 60, 60));
    assert_eq!((syn[0], syn[9]), (0x45, 6), "IPv4, TCP");
    assert_eq!(syn[12..20], [192, 0, 2, 1, 192, 0, 2, 2]);
    assert_eq!((syn[22..24].to_vec(), syn[33] & 0x3f), (vec![0, 80], 0x02), "to port 80, a SYN");
    assert_eq!(syn[40..44], [2, 4, 5, 180], "an MSS of 1460");
    assert_eq!(tell(B, accepted, 500), (Ok(0), Vec::new(), 0));
    assert_eq!(tell(A, fd, 500), (Ok(0), Vec::new(), 0), "who opened has none");
}
