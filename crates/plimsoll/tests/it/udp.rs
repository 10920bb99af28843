//! UDP sockets as std's are used: blocking, with timeouts, shared between threads, and in futures.
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link;
use plimsoll::{
    PathMtuDiscovery, Slices, Stack, UdpFlowConfig, UdpListener, UdpSocket, UdpTransmit,
};

/// Two stacks that are joined by a link.
fn pair() -> (Stack, Stack) {
    let (here, there) = memory_link::pair(Default::default());
    let build = |device, address: &str, v6: &str| {
        Stack::builder().device(device).address(address).address(v6).build().unwrap()
    };
    let here = build(here, "192.0.2.1/24", "2001:db8::1/64");
    (here, build(there, "192.0.2.2/24", "2001:db8::2/64"))
}

#[test]
fn threads_talk() {
    for address in ["192.0.2.2:7", "[2001:db8::2]:7"] {
        let (here, there) = pair();
        let server = UdpSocket::bind(&there, address).unwrap();
        let clone = server.try_clone().unwrap();
        let echo = thread::spawn(move || -> io::Result<()> {
            let mut buf = [0; 2000];
            for _ in 0..100 {
                let (len, from) = clone.recv_from(&mut buf)?;
                assert_eq!(clone.send_to(&buf[..len], from)?, len);
            }
            Ok(())
        });
        let client = UdpSocket::bind(&here, "[::]:0").unwrap();
        client.connect(address).unwrap();
        assert_eq!(client.peer_addr().unwrap(), address.parse().unwrap());
        let mut buf = [0; 2000];
        for round in 0..100_u8 {
            let data = vec![round; 13 * usize::from(round)];
            assert_eq!(client.send(&data).unwrap(), data.len());
            assert_eq!(client.recv(&mut buf).unwrap(), data.len());
            assert_eq!(buf[..data.len()], data);
        }
        echo.join().unwrap().unwrap();
        assert_eq!(server.local_addr().unwrap(), address.parse().unwrap());
    }
}

#[test]
fn a_read_ends_at_its_timeout_or_at_once() {
    let (here, _there) = pair();
    let socket = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    assert!(socket.set_read_timeout(Some(Duration::ZERO)).is_err());
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(socket.read_timeout().unwrap(), Some(Duration::from_millis(20)));
    let mut buf = [0; 9];
    assert_eq!(socket.recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    socket.set_read_timeout(None).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.peek_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    // As std's: a destination is required.
    assert_eq!(socket.send(b"x").unwrap_err().raw_os_error(), Some(89));
    let long = socket.send_to(&[0; 65_508], "192.0.2.2:9").unwrap_err();
    assert_eq!(long.raw_os_error(), Some(90));
}

#[test]
fn a_closed_port_is_connection_refused() {
    let (here, _there) = pair();
    let socket = UdpSocket::bind(&here, "0.0.0.0:0").unwrap();
    socket.connect("192.0.2.2:9").unwrap();
    socket.send(b"anybody?").unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(socket.take_error().unwrap().is_none());
}

#[test]
fn options_are_what_was_set() {
    let (here, _there) = pair();
    let socket = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    assert_eq!((socket.ttl().unwrap(), socket.multicast_ttl_v4().unwrap()), (64, 1));
    socket.set_ttl(40).unwrap();
    socket.set_multicast_ttl_v4(3).unwrap();
    socket.set_tos(0xb8).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_multicast_loop_v6(false).unwrap();
    socket.set_path_mtu_discovery(PathMtuDiscovery::Probe).unwrap();
    socket.set_recv_buffer_size(100_000).unwrap();
    socket.set_send_buffer_size(1 << 30).unwrap();
    assert_eq!((socket.ttl().unwrap(), socket.multicast_ttl_v4().unwrap()), (40, 3));
    assert_eq!((socket.tos().unwrap(), socket.broadcast().unwrap()), (0xb8, true));
    assert!(!socket.multicast_loop_v4().unwrap());
    assert_eq!(socket.path_mtu_discovery(), PathMtuDiscovery::Probe);
    assert_eq!((socket.recv_buffer_size(), socket.send_buffer_size()), (100_000, 4 << 20));
    assert!(socket.set_ttl(0).is_err() && socket.set_tos(256).is_err());
    let group = Ipv4Addr::new(239, 0, 0, 1);
    socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).unwrap();
    let again = socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
    let elsewhere = socket.leave_multicast_v4(&group, &Ipv4Addr::new(198, 51, 100, 1));
    assert_eq!(elsewhere.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    socket.leave_multicast_v4(&group, &Ipv4Addr::new(192, 0, 2, 1)).unwrap();
}

#[test]
fn trains_go_by_reference() {
    let (here, there) = pair();
    let server = UdpSocket::bind(&there, "192.0.2.2:7").unwrap();
    let client = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    let data: Slices = plimsoll::Slice::from_owner(vec![7_u8; 30_000]).into();
    let to = Some(server.local_addr().unwrap());
    let how = UdpTransmit::default().to(to).segment_size(Some(1000));
    assert_eq!(client.send_shared(&how, &data).unwrap(), 30_000);
    let (train, read) = server.recv_shared().unwrap();
    assert_eq!((train.len(), read.stride), (30_000, 1000));
    assert_eq!(train.as_ptr(), data.parts()[0].as_ptr(), "nobody has copied it");
    let stats = there.counters();
    assert!(stats.contains(&("UdpInDatagrams", 30)));
}

#[test]
fn a_thread_that_sends_too_fast_waits_and_loses_nothing() {
    let link = memory_link::LinkConfig::default().rate(Some(20_000_000));
    let (here, there) = memory_link::pair(link);
    let here = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let there = Stack::builder().device(there).address("192.0.2.2/24").build().unwrap();
    let server = UdpSocket::bind(&there, "192.0.2.2:7").unwrap();
    server.set_recv_buffer_size(4 << 20).unwrap();
    let client = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    client.set_send_buffer_size(10_000).unwrap();
    client.connect("192.0.2.2:7").unwrap();
    let sender = thread::spawn(move || {
        for number in 0..300_u32 {
            let mut data = [0; 1200];
            data[..4].copy_from_slice(&number.to_be_bytes());
            client.send(&data).unwrap();
        }
    });
    let mut buf = [0; 2000];
    for number in 0..300_u32 {
        assert_eq!(server.recv(&mut buf).unwrap(), 1200);
        assert_eq!(buf[..4], number.to_be_bytes());
    }
    sender.join().unwrap();
}

#[test]
fn futures_wait_beside_one_another() {
    let stack = Stack::builder().loopback_only().build().unwrap();
    let socket = UdpSocket::bind(&stack, "127.0.0.1:0").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = [0; 9];
    assert!(socket.poll_recv_msg(&mut cx, &mut buf).is_pending());
    let mut waiting = socket.readable();
    assert!(waiting.poll_ready(Waker::noop()).is_pending());
    let how = UdpTransmit::default().to(Some(socket.local_addr().unwrap()));
    let Poll::Ready(Ok(4)) = socket.poll_send_msg(&mut cx, &how, &[b"self"]) else {
        panic!("there is space");
    };
    assert_eq!(socket.recv(&mut buf).unwrap(), 4);
    assert_eq!(socket.writable().poll_ready(Waker::noop()), Poll::Ready(()));
}

#[test]
fn one_socket_for_any_address() {
    let (here, there) = pair();
    let any = UdpSocket::bind_any(&there).unwrap();
    assert_eq!(UdpSocket::bind_any(&there).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(UdpListener::bind_any(&there).unwrap_err().kind(), ErrorKind::AddrInUse);
    let dns = UdpSocket::bind_any_port(&there, 53).unwrap();
    let mut buf = [0; 9];
    for (to, socket) in [("198.51.100.1:9", &any), ("[2001:db8:5::1]:53", &dns)] {
        let client = UdpSocket::bind(&here, "[::]:0").unwrap();
        let to: SocketAddr = to.parse().unwrap();
        client.send_to(b"echo", to).unwrap();
        let info = socket.recv_msg(&mut buf).unwrap().info;
        assert_eq!((info.to, info.to_port), (to.ip(), to.port()));
        let how = UdpTransmit::default().to(Some(info.from)).from(Some(to.ip()));
        socket.send_msg(&how.from_port(Some(to.port())), &[&buf[..4]]).unwrap();
        assert_eq!(client.recv_from(&mut buf).unwrap(), (4, to));
    }
    let how = UdpTransmit::default().to(Some("192.0.2.1:9".parse().unwrap()));
    let refused = any.send_msg(&how, &[b"x"]).unwrap_err();
    assert!(refused.to_string().starts_with("from_port"), "{refused}");
}

#[test]
fn flows_to_any_address() {
    let (here, there) = pair();
    let listener = UdpListener::bind_any(&there).unwrap();
    assert_eq!(UdpListener::bind_any(&there).unwrap_err().kind(), ErrorKind::AddrInUse);
    let echo = thread::spawn(move || -> io::Result<()> {
        for _ in 0..3 {
            let flow = listener.accept()?;
            let mut buf = [0; 100];
            let len = flow.recv(&mut buf)?;
            flow.send(&buf[..len])?;
        }
        listener.set_nonblocking(true)?;
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(listener.poll_accept(&mut cx).is_pending());
        let mut accepting = pin!(listener.accept_async());
        assert!(accepting.as_mut().poll(&mut cx).is_pending());
        Ok(())
    });
    for there in ["198.51.100.1:53", "[2001:db8:5::1]:443", "192.0.2.2:9"] {
        let client = UdpSocket::bind(&here, "[::]:0").unwrap();
        let there: SocketAddr = there.parse().unwrap();
        client.send_to(b"echo", there).unwrap();
        let mut buf = [0; 9];
        assert_eq!(client.recv_from(&mut buf).unwrap(), (4, there));
    }
    echo.join().unwrap().unwrap();
    let bad = UdpFlowConfig::default().backlog(0);
    let refused = UdpListener::bind_any_with(&there, 0, bad).unwrap_err();
    assert!(refused.to_string().contains("backlog"), "{refused}");
    let socket = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    assert!(socket.idle_timeout().is_none());
    assert!(socket.set_idle_timeout(Duration::from_secs(1)).is_err());
}
