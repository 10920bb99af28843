//! The TUN device against the host kernel, in a network namespace of its own.
//!
//! Needs root, `unshare` and `ip`. Plain `cargo test` lists the tests as ignored; `cargo xtask
//! test` runs them where it can. Each test starts this program once more in a fresh namespace,
//! which ends with it, so that the host's interfaces are never touched.
//!
//! Bulk tests use a *reflector*: it exchanges the addresses of every packet that the kernel sends
//! to 192.0.2.2 and hands it back, so that the kernel's own TCP talks to itself through the device,
//! in both directions. Exchanging addresses leaves every checksum as it was.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_buf::Pool;
use plimsoll_stack::Instant;
use plimsoll_stack::device::tun::{self, FdConfig, Offloads, TunConfig};
use plimsoll_stack::device::{Device, DeviceError, DeviceStats, TxStatus};
use plimsoll_stack::kick::Kick;
use plimsoll_stack::offload::{Layout, checksum};
use plimsoll_stack::packet::{ChecksumState, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const NAME: &str = "tun0";
const INSIDE: &str = "PLIMSOLL_TEST_NAMESPACE";
const NOW: Instant = Instant::ZERO;

/// Runs `body` in a fresh network namespace. `name` is the name of the calling test.
fn isolated(name: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let me = std::env::current_exe().unwrap();
    let out = Command::new("unshare")
        .arg("--net")
        .arg(me)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    // What it says is printed here, where the harness keeps it: a second "test ... ok" on standard
    // output would be counted as a second test.
    print!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} failed in its namespace");
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {args}");
}

fn config(offloads: Offloads) -> TunConfig {
    TunConfig::default().name(NAME).offloads(offloads).up(true)
}

/// A device that is up, with addresses on the kernel's side.
fn open(config: TunConfig) -> Device {
    let device = tun::open(config).unwrap();
    ip("address add 192.0.2.1/24 dev tun0");
    ip("address add 2001:db8::1/64 dev tun0 nodad");
    device
}

fn receive(device: &mut Device, pool: &Pool) -> Result<Vec<Packet>, DeviceError> {
    let mut out = Vec::new();
    device.rx.receive(NOW, pool, &mut out, 64)?;
    Ok(out)
}

/// Waits until the device can be read, or for ten seconds.
fn wait(device: &Device) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(device.wait.fd().unwrap(), PollFlags::IN)];
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "nothing within ten seconds");
    fds[0].revents()
}

/// Waits for a packet from the kernel for which `wanted` holds.
fn await_packet(device: &mut Device, wanted: impl Fn(&Packet) -> bool) -> Packet {
    let pool = Pool::new();
    loop {
        if let Some(found) = receive(device, &pool).unwrap().into_iter().find(&wanted) {
            return found;
        }
        wait(device);
    }
}

fn is_protocol(packet: &Packet, version: u8, protocol: u8) -> bool {
    Layout::of(packet.headers())
        .is_some_and(|layout| layout.version == version && layout.protocol == protocol)
}

/// Sends one packet and says what became of it.
fn send(device: &mut Device, packet: Packet) -> Result<DeviceStats, DeviceError> {
    let before = device.tx.stats();
    let mut queue = VecDeque::from([packet]);
    let progress = device.tx.transmit(NOW, &mut queue)?;
    assert_eq!(progress.status, TxStatus::Done);
    let after = device.tx.stats();
    let mut difference = DeviceStats::default();
    difference.packets = after.packets - before.packets;
    difference.errors = after.errors - before.errors;
    Ok(difference)
}

/// Exchanges the addresses of a packet.
fn reflect(packet: &mut Packet) -> bool {
    let Some(layout) = Layout::of(packet.headers()) else { return false };
    let Some(data_at) = layout.tcp_data_at(packet.headers()) else { return false };
    if !packet.pull_headers(data_at) {
        return false;
    }
    let (from, len) = if layout.version == 4 { (12, 4) } else { (8, 16) };
    let (source, target) = packet.head[from..from + 2 * len].split_at_mut(len);
    source.swap_with_slice(target);
    true
}

/// Reflects TCP packets until `stop` is set and the kick rings.
fn reflector(mut device: Device, stop: &AtomicBool, kick: &Kick) -> Device {
    let pool = Pool::new();
    let (mut queue, mut out) = (VecDeque::new(), Vec::new());
    while !stop.load(Ordering::Acquire) {
        device.rx.receive(NOW, &pool, &mut out, 64).unwrap();
        queue.extend(out.drain(..).filter_map(|mut packet| reflect(&mut packet).then_some(packet)));
        if !queue.is_empty() {
            assert_eq!(device.tx.transmit(NOW, &mut queue).unwrap().status, TxStatus::Done);
            continue;
        }
        kick.announce(None);
        if !stop.load(Ordering::Acquire) {
            let mut fds = [
                PollFd::from_borrowed_fd(device.wait.fd().unwrap(), PollFlags::IN),
                PollFd::from_borrowed_fd(kick.fd(), PollFlags::IN),
            ];
            poll(&mut fds, None).unwrap();
        }
        kick.awake(false);
    }
    device
}

/// Sends `len` bytes from the kernel to itself through the device, and compares them.
fn transfer(device: Device, local: IpAddr, remote: IpAddr, len: usize) -> Device {
    let stop = AtomicBool::new(false);
    let kick = Kick::new().unwrap();
    thread::scope(|scope| {
        let reflector = scope.spawn(|| reflector(device, &stop, &kick));
        let listener = TcpListener::bind((local, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut buf = vec![0; 1 << 20];
            let mut at = 0_usize;
            loop {
                let n = stream.read(&mut buf).unwrap();
                if n == 0 {
                    return at;
                }
                assert!(buf[..n].iter().enumerate().all(|(i, &b)| b == pattern(at + i)));
                at += n;
            }
        });
        let target = SocketAddr::new(remote, port);
        let mut client = TcpStream::connect_timeout(&target, Duration::from_secs(10)).unwrap();
        let mut at = 0;
        let mut buf = vec![0; 256 << 10];
        while at < len {
            let n = buf.len().min(len - at);
            for (i, byte) in buf[..n].iter_mut().enumerate() {
                *byte = pattern(at + i);
            }
            client.write_all(&buf[..n]).unwrap();
            at += n;
        }
        drop(client);
        assert_eq!(server.join().unwrap(), len);
        stop.store(true, Ordering::Release);
        kick.kick();
        reflector.join().unwrap()
    })
}

fn pattern(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 17)) as u8
}

fn bulk(offloads: Offloads, mtu: u16, len: usize) -> (DeviceStats, DeviceStats) {
    let mut device = open(config(offloads).mtu(Some(mtu)));
    for (local, remote) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        device = transfer(device, local.parse().unwrap(), remote.parse().unwrap(), len);
    }
    (device.rx.stats(), device.tx.stats())
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_descriptor_that_was_passed_is_the_device() {
    isolated("a_descriptor_that_was_passed_is_the_device", || {
        for offloads in [Offloads::Auto, Offloads::Off] {
            let opened = tun::open(config(offloads)).unwrap();
            let fd = opened.wait.fd().unwrap().try_clone_to_owned().unwrap();
            let (name, mtu) = (opened.tx.caps().name.clone(), opened.tx.caps().mtu);
            let whole = opened.tx.caps().tso4;
            drop(opened);
            let mut device = tun::from_fd(fd, FdConfig::default()).unwrap();
            let caps = device.tx.caps();
            assert_eq!((&caps.name, caps.mtu, caps.tso4), (&name, mtu, whole));
            ip("address add 192.0.2.1/24 dev tun0");
            let ping = thread::spawn(|| {
                let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
                socket.send_to(b"ahoy", "192.0.2.2:9").unwrap();
            });
            let packet = await_packet(&mut device, |packet| is_protocol(packet, 4, 17));
            assert!(packet.to_vec().ends_with(b"ahoy"));
            ping.join().unwrap();
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn super_segments_pass_whole_both_ways() {
    isolated("super_segments_pass_whole_both_ways", || {
        let (rx, tx) = bulk(Offloads::Required, 1500, 64 << 20);
        eprintln!("received {rx:?}\nsent {tx:?}");
        assert!(rx.bytes / rx.super_segments.max(1) > 4 * 1500);
        assert!(rx.wire_segments > 4 * rx.packets);
        assert_eq!((tx.super_segments, tx.errors, tx.software_gso), (rx.super_segments, 0, 0));
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn other_mtus_carry_data_too() {
    isolated("other_mtus_carry_data_too", || {
        for mtu in [1280, 9000] {
            let (rx, tx) = bulk(Offloads::Auto, mtu, 8 << 20);
            assert!(rx.super_segments > 0);
            assert_eq!(tx.errors, 0);
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn without_offloads_every_packet_is_a_wire_segment() {
    isolated("without_offloads_every_packet_is_a_wire_segment", || {
        let (rx, tx) = bulk(Offloads::Off, 1500, 8 << 20);
        assert_eq!((rx.super_segments, tx.super_segments, tx.errors), (0, 0, 0));
        assert!(rx.packets > (16 << 20) / 1500);
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_syn_arrives_with_a_partial_checksum() {
    isolated("a_syn_arrives_with_a_partial_checksum", || {
        let mut device = open(config(Offloads::Auto));
        let client = thread::spawn(|| {
            let target = "192.0.2.9:80".parse().unwrap();
            TcpStream::connect_timeout(&target, Duration::from_millis(300)).unwrap_err()
        });
        let mut packet = await_packet(&mut device, |packet| is_protocol(packet, 4, 6));
        assert_eq!(packet.csum, ChecksumState::Partial);
        assert!(checksum::fill(&mut packet));
        packet.csum = ChecksumState::Unverified;
        assert!(checksum::verify(&packet), "our checksum is not the one the kernel left to us");
        assert_eq!(client.join().unwrap().kind(), ErrorKind::TimedOut);
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn without_offloads_checksums_arrive_complete() {
    isolated("without_offloads_checksums_arrive_complete", || {
        let mut device = open(config(Offloads::Off));
        let caps = device.tx.caps();
        assert!(!caps.tso4 && !caps.tso6 && !caps.tx_checksum);
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.send_to(b"hello", "192.0.2.9:9").unwrap();
        let packet = await_packet(&mut device, |packet| is_protocol(packet, 4, 17));
        assert_eq!(packet.csum, ChecksumState::Unverified);
        assert!(checksum::verify(&packet));
    });
}

/// A datagram from 192.0.2.9 that the kernel delivers to `socket`.
fn datagram(device: &mut Device, socket: &UdpSocket) -> Packet {
    socket.send_to(b"hello", "192.0.2.9:9").unwrap();
    let mut packet = await_packet(device, |packet| is_protocol(packet, 4, 17));
    assert!(packet.pull_headers(28));
    let (source, target) = packet.head[12..20].split_at_mut(4);
    source.swap_with_slice(target);
    let (source, target) = packet.head[20..24].split_at_mut(2);
    source.swap_with_slice(target);
    packet
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn an_interface_that_is_down_drops_until_it_is_up_again() {
    isolated("an_interface_that_is_down_drops_until_it_is_up_again", || {
        let mut device = open(config(Offloads::Auto));
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let packet = datagram(&mut device, &socket);
        ip("link set tun0 down");
        let stats = send(&mut device, packet.share()).unwrap();
        assert_eq!((stats.packets, stats.errors), (0, 1));
        assert_eq!(receive(&mut device, &Pool::new()).unwrap().len(), 0);
        assert!(device.tx.caps().tso4 && device.tx.caps().tx_checksum);
        ip("link set tun0 up");
        let stats = send(&mut device, packet).unwrap();
        assert_eq!((stats.packets, stats.errors), (1, 0));
        let mut buf = [0; 16];
        assert_eq!(socket.recv(&mut buf).unwrap(), 5);
        assert_eq!(&buf[..5], b"hello");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_deleted_interface_wakes_the_poller_and_is_gone() {
    isolated("a_deleted_interface_wakes_the_poller_and_is_gone", || {
        let mut device = open(config(Offloads::Auto));
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        let packet = datagram(&mut device, &socket);
        // What the kernel has to say of its own (router solicitations) is taken out first.
        ip("link set tun0 down");
        while !receive(&mut device, &Pool::new()).unwrap().is_empty() {}
        let killer = thread::spawn(|| ip("link delete tun0"));
        wait(&device);
        killer.join().unwrap();
        let error = receive(&mut device, &Pool::new()).unwrap_err();
        assert!(matches!(error, DeviceError::Gone(_)), "{error}");
        let error = send(&mut device, packet).unwrap_err();
        assert!(matches!(error, DeviceError::Gone(_)), "{error}");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_second_process_is_told_that_the_device_is_taken() {
    isolated("a_second_process_is_told_that_the_device_is_taken", || {
        let _first = open(config(Offloads::Auto));
        let error = tun::open(config(Offloads::Auto)).unwrap_err();
        assert!(error.to_string().contains("another process has it"), "{error}");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn an_interface_that_is_no_tun_device_is_refused() {
    isolated("an_interface_that_is_no_tun_device_is_refused", || {
        let config = TunConfig::default().name("lo");
        let error = tun::open(config).unwrap_err();
        assert!(error.to_string().contains("no TUN device"), "{error}");
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn persistent_devices_are_attached_to() {
    isolated("persistent_devices_are_attached_to", || {
        for kind in ["", "vnet_hdr", "multi_queue"] {
            ip(&format!("tuntap add dev tun0 mode tun {kind}"));
            ip("link set tun0 mtu 1400 up");
            let device = open(config(Offloads::Required));
            let caps = device.tx.caps();
            assert_eq!((caps.mtu, caps.name.as_str()), (1400, NAME));
            assert!(caps.tso4 && caps.tso6 && caps.tx_checksum);
            let (local, remote) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
            drop(transfer(device, local, remote, 1 << 20));
            ip("link delete tun0");
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_new_device_lasts_as_long_as_it_is_open() {
    isolated("a_new_device_lasts_as_long_as_it_is_open", || {
        let device = tun::open(TunConfig::default().mtu(Some(1280))).unwrap();
        let name = device.tx.caps().name.clone();
        assert_eq!((name.as_str(), device.tx.caps().mtu), ("plimsoll0", 1280));
        assert_eq!(tun::mtu(&name).unwrap(), 1280);
        tun::set_mtu(&name, 1500).unwrap();
        assert_eq!(tun::mtu(&name).unwrap(), 1500);
        tun::bring_up(&name).unwrap();
        assert!(tun::set_mtu(&name, 10).unwrap_err().to_string().contains("ip link set"));
        drop(device);
        assert!(tun::mtu(&name).is_err());
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_queue_is_lengthened_unless_somebody_chose_its_length() {
    isolated("the_queue_is_lengthened_unless_somebody_chose_its_length", || {
        let device = open(config(Offloads::Auto));
        assert_eq!(tun::queue_len(NAME).unwrap(), 8192);
        drop(device);
        ip("tuntap add dev tun0 mode tun");
        ip("link set tun0 txqueuelen 700");
        let _device = open(config(Offloads::Auto));
        assert_eq!(tun::queue_len(NAME).unwrap(), 700);
        assert!(tun::queue_len("none").is_err());
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn several_queues_share_an_interface() {
    isolated("several_queues_share_an_interface", || {
        let mut queues = tun::open_queues(config(Offloads::Required), 3).unwrap();
        ip("address add 192.0.2.1/24 dev tun0");
        assert!(queues.iter().all(|queue| queue.tx.caps().name == NAME));
        // The kernel answers by the queue by which a flow came.
        let socket = UdpSocket::bind("192.0.2.1:9").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send_to(b"hello", "192.0.2.9:9").unwrap();
        let pool = Pool::new();
        let mut first = loop {
            let found = queues.iter_mut().find_map(|queue| {
                let all = receive(queue, &pool).unwrap();
                all.into_iter().find(|packet| is_protocol(packet, 4, 17))
            });
            if let Some(packet) = found {
                break packet;
            }
            thread::yield_now();
        };
        assert!(first.pull_headers(28));
        let (source, target) = first.head[12..20].split_at_mut(4);
        source.swap_with_slice(target);
        for queue in &mut queues {
            assert_eq!(send(queue, first.share()).unwrap().packets, 1);
            socket.recv(&mut [0; 16]).unwrap();
            socket.send_to(b"again", "192.0.2.9:9").unwrap();
            await_packet(queue, |packet| is_protocol(packet, 4, 17));
        }
        drop(queues);
        ip("tuntap add dev tun0 mode tun");
        let error = tun::open_queues(config(Offloads::Auto), 2).unwrap_err();
        assert!(error.to_string().contains("multi_queue"), "{error}");
    });
}
