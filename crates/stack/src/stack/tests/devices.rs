//! Devices that fail, panic, take their time, and are replaced: the effect on the rest.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use plimsoll_buf::Pool;
use plimsoll_tcp::{ConnectionError, Duration, Instant, Options, State};

use super::harness::*;
use crate::device::memory_link::{self, LinkConfig};
use crate::device::{Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress};
use crate::limits::DRAIN_PACKETS;
use crate::packet::Packet;
use crate::sync::lock;
use crate::{InterfaceConfig, Listener, SocketError, Stack, StackConfig, StackError, TcpSocket};

/// The behaviour of a device at its next calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Fault {
    ReceiveFails = 1,
    ReceivePanics,
    TransmitFails,
    TransmitPanics,
    StatsPanic,
}

const FAULTS: [Fault; 4] =
    [Fault::ReceiveFails, Fault::ReceivePanics, Fault::TransmitFails, Fault::TransmitPanics];

/// The channels by which a call reports that it has begun, and waits.
type Gate = (Sender<()>, Receiver<()>);

/// The commands of a test to a device.
#[derive(Clone, Default)]
struct Remote {
    fault: Arc<AtomicU8>,
    /// Calls of `transmit` so far.
    calls: Arc<AtomicUsize>,
    /// The next `transmit` says that it has begun, and then waits.
    gate: Arc<Mutex<Option<Gate>>>,
}

impl Remote {
    fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    fn check(&self, fails: Fault, panics: Fault) -> Result<(), DeviceError> {
        let fault = self.fault.load(Ordering::Relaxed);
        assert!(fault != panics as u8, "the driver is in pieces");
        match fault == fails as u8 {
            true => Err(DeviceError::Gone("somebody pulled the cable".to_owned())),
            false => Ok(()),
        }
    }
}

struct Half<T>(T, Remote);

impl DeviceTx for Half<Box<dyn DeviceTx>> {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.1.calls.fetch_add(1, Ordering::Relaxed);
        let gate = lock(&self.1.gate).take();
        if let Some((entered, go_on)) = gate {
            entered.send(()).unwrap();
            go_on.recv_timeout(StdDuration::from_secs(20)).expect("the poller did not wait for us");
        }
        self.1.check(Fault::TransmitFails, Fault::TransmitPanics)?;
        self.0.transmit(now, queue)
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        self.0.poll_completions(now)
    }

    fn next_event(&self) -> Option<Instant> {
        self.0.next_event()
    }

    fn stats(&self) -> DeviceStats {
        assert!(self.1.fault.load(Ordering::Relaxed) != Fault::StatsPanic as u8, "no figures");
        self.0.stats()
    }
}

impl DeviceRx for Half<Box<dyn DeviceRx>> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        self.1.check(Fault::ReceiveFails, Fault::ReceivePanics)?;
        self.0.receive(now, pool, out, max)
    }

    fn next_event(&self) -> Option<Instant> {
        self.0.next_event()
    }

    fn stats(&self) -> DeviceStats {
        assert!(self.1.fault.load(Ordering::Relaxed) != Fault::StatsPanic as u8, "no figures");
        self.0.stats()
    }
}

/// Two ends of a cable, the first of which follows the test's commands.
fn cable(link: LinkConfig) -> (Device, Device, Remote) {
    let remote = Remote::default();
    let (left, right) = memory_link::pair(link);
    let tx = Box::new(Half(left.tx, remote.clone()));
    let rx = Box::new(Half(left.rx, remote.clone()));
    (Device { tx, rx, wait: left.wait }, right, remote)
}

const NEAR: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
const FAR: [&str; 2] = ["192.0.2.2", "198.51.100.2"];

/// `a` has two interfaces, with a stack behind each.
struct Star {
    a: Arc<Stack>,
    far: [Arc<Stack>; 2],
    remotes: [Remote; 2],
    now: Instant,
}

fn host(devices: Vec<(Device, &str)>) -> Arc<Stack> {
    let interfaces = devices.into_iter().map(|(device, address)| {
        let addresses = vec![(ip(address), 24)];
        InterfaceConfig { device, addresses, mtu: None }
    });
    let config = StackConfig { interfaces: interfaces.collect(), ..StackConfig::default() };
    Stack::new(config).unwrap()
}

impl Star {
    fn new() -> Star {
        let (near0, far0, remote0) = cable(LinkConfig::default());
        let (near1, far1, remote1) = cable(LinkConfig::default());
        Star {
            a: host(vec![(near0, NEAR[0]), (near1, NEAR[1])]),
            far: [host(vec![(far0, FAR[0])]), host(vec![(far1, FAR[1])])],
            remotes: [remote0, remote1],
            now: Instant::from_millis(1000),
        }
    }

    fn settle(&self) {
        for _ in 0..10_000 {
            let all = [&self.a, &self.far[0], &self.far[1]];
            if !all.map(|stack| stack.poll(self.now, 256).unwrap().worked).contains(&true) {
                return;
            }
        }
        panic!("the stacks never come to rest");
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.settle();
            let all = [&self.a, &self.far[0], &self.far[1]];
            match all.iter().filter_map(|stack| stack.next_deadline()).min() {
                Some(at) if at < until => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = until;
        self.settle();
    }

    /// A connection from one stack to another, both ends.
    fn open(
        &self,
        from: &Arc<Stack>,
        to: (&Arc<Stack>, SocketAddr),
    ) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
        let listener = to.0.listen(to.1, 16, Options::default()).unwrap();
        self.open_to(from, &listener, to.1)
    }

    fn open_to(
        &self,
        from: &Arc<Stack>,
        listener: &Listener,
        to: SocketAddr,
    ) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
        let client = from.connect(self.now, to, None, Options::default()).unwrap();
        self.settle();
        (client, listener.accept(self.now).unwrap().expect("it is open").0)
    }

    /// Whether bytes arrive.
    fn passes(&self, (from, to): &(Arc<TcpSocket>, Arc<TcpSocket>)) -> bool {
        let data = pattern(20_000, 3);
        let (mut at, mut read) = (0, Vec::new());
        for _ in 0..100 {
            feed(from, self.now, &data, &mut at);
            self.settle();
            drain(to, self.now, &mut read);
        }
        read == data
    }

    /// The first device does this from now on, and comes to do it.
    fn fault(&self, fault: Fault, over: &TcpSocket) {
        self.remotes[0].set(fault);
        // A writer gets the error if its packet is sent at once.
        let _ = over.write(self.now, b"into the void");
        self.settle();
    }
}

const DOWN: SocketError = SocketError::Connection(ConnectionError::DeviceGone);

#[test]
fn one_device_fails_and_the_rest_goes_on() {
    for fault in FAULTS {
        let star = Star::new();
        let over = star.open(&star.a, (&star.far[0], addr(FAR[0], 80)));
        let beside = star.open(&star.a, (&star.far[1], addr(FAR[1], 80)));
        let within = star.open(&star.a, (&star.a, addr("127.0.0.1", 80)));
        let listen = |at| star.a.listen(at, 16, Options::default()).unwrap();
        let anywhere = listen(addr("0.0.0.0", 81));
        let (here, there) = (listen(addr(NEAR[0], 82)), listen(addr(NEAR[1], 83)));
        let (woken, waker) = CountingWaker::new();
        assert!(over.0.poll_readable(&waker).is_pending());
        assert!(here.poll_acceptable(&waker).is_pending());
        star.fault(fault, &over.0);

        assert_eq!(over.0.read(star.now, &mut [0; 8]), Err(DOWN), "{fault:?}");
        assert_eq!((over.0.state(), woken.count()), (State::Closed, 2), "{fault:?}");
        assert_eq!(here.accept(star.now).err(), Some(SocketError::NetworkDown), "{fault:?}");
        assert!(star.passes(&beside) && star.passes(&within), "{fault:?}");
        star.open_to(&star.far[1], &anywhere, addr(NEAR[1], 81));
        star.open_to(&star.far[1], &there, addr(NEAR[1], 83));
        star.open(&star.a, (&star.far[1], addr(FAR[1], 84)));

        let again = star.a.connect(star.now, addr(FAR[0], 80), None, Options::default());
        assert_eq!(again.err(), Some(SocketError::NetworkDown), "{fault:?}");
        let again = star.a.listen(addr(NEAR[0], 90), 16, Options::default());
        assert_eq!(again.err(), Some(SocketError::NetworkDown), "{fault:?}");
        let all = star.a.interfaces();
        assert!(all[1].error.is_none() && all[2].error.is_none(), "{fault:?}");
        let Some(StackError::DeviceGone { name, reason }) = &all[0].error else {
            panic!("{fault:?}: it is up");
        };
        assert_eq!(*name, all[0].name);
        assert!(reason.contains("cable") || reason.contains("in pieces"), "{reason}");
        // The poller does not look at it any more.
        star.settle();
        assert!(star.a.next_deadline().is_none_or(|at| at > star.now), "{fault:?}");
    }
}

#[test]
fn another_route_serves_when_one_is_down() {
    let mut config = StackConfig::default();
    let (near0, _far0, remote) = cable(LinkConfig::default());
    let (near1, mut far1, _) = cable(LinkConfig::default());
    for (device, address) in [(near0, NEAR[0]), (near1, NEAR[1])] {
        let addresses = vec![(ip(address), 24)];
        config.interfaces.push(InterfaceConfig { device, addresses, mtu: None });
    }
    let route = |interface| crate::RouteConfig {
        prefix: ip("0.0.0.0"),
        prefix_len: 0,
        interface,
        metrics: crate::RouteMetrics::default(),
    };
    config.routes = vec![route(0), route(1)];
    let stack = Stack::new(config).unwrap();
    let now = Instant::from_millis(1);
    remote.set(Fault::ReceiveFails);
    stack.poll(now, 64).unwrap();
    let to = addr("203.0.113.9", 80);
    let _client = stack.connect(now, to, None, Options::default()).unwrap();
    stack.poll(now, 64).unwrap();
    let mut out = Vec::new();
    far1.rx.receive(now, stack.pool(), &mut out, 64).unwrap();
    assert_eq!(out.len(), 1, "the SYN leaves by the other interface");
    assert_eq!(out[0].to_vec()[12..16], [198, 51, 100, 1]);
}

#[test]
fn the_only_device_ends_the_stack() {
    for fault in FAULTS {
        let (near, far, remote) = cable(LinkConfig::default());
        let (a, b) = (host(vec![(near, NEAR[0])]), host(vec![(far, FAR[0])]));
        let mut pair = Pair { a, b, now: Instant::from_millis(1) };
        let listener = pair.listen(FAR[0], 16);
        let (client, _server) = pair.open(FAR[0], &listener);
        remote.set(fault);
        let _ = client.write(pair.now, b"x");
        let error = pair.a.poll(pair.now, 64).unwrap_err();
        assert!(matches!(&error, StackError::DeviceGone { .. }), "{error}");
        assert_eq!(client.read(pair.now, &mut [0; 8]), Err(DOWN));
        let (other, _far, _) = cable(LinkConfig::default());
        assert_eq!(pair.a.replace_device(pair.now, 0, other), Err(error));
    }
}

/// A stack that waits for its next device ends nothing with the one that failed.
#[test]
fn connections_and_listeners_wait_for_the_next_device() {
    for fault in FAULTS {
        let (near, far, remote) = cable(LinkConfig::default());
        let addresses = vec![(ip(NEAR[0]), 24)];
        let config = StackConfig {
            interfaces: vec![InterfaceConfig { device: near, addresses, mtu: None }],
            wait_for_devices: true,
            ..StackConfig::default()
        };
        let (a, b) = (Stack::new(config).unwrap(), host(vec![(far, FAR[0])]));
        let mut pair = Pair { a, b, now: Instant::from_millis(1) };
        let listener = pair.listen(FAR[0], 16);
        let own = pair.a.listen(addr(NEAR[0], 90), 16, Options::default()).unwrap();
        let (client, server) = pair.open(FAR[0], &listener);
        remote.set(fault);
        client.write(pair.now, b"while it fails").unwrap();
        for _ in 0..20 {
            pair.a.poll(pair.now, 64).unwrap();
            pair.now += Duration::from_millis(100);
        }
        let error = pair.a.interfaces()[0].error.clone();
        assert!(matches!(error, Some(StackError::DeviceGone { .. })), "{fault:?}: {error:?}");
        client.write(pair.now, b", and while there is none").unwrap();
        let early = pair.a.connect(pair.now, addr(FAR[0], 80), None, Options::default()).unwrap();
        pair.a.poll(pair.now, 64).unwrap();
        let (near, far, _remote) = cable(LinkConfig { mtu: 1400, ..LinkConfig::default() });
        pair.b.replace_device(pair.now, 0, far).unwrap();
        pair.a.replace_device(pair.now, 0, near).unwrap();
        let status = &pair.a.interfaces()[0];
        assert_eq!((status.mtu, &status.error), (1400, &None), "{fault:?}");
        let all = b"while it fails, and while there is none";
        let came = pair.run_until(Duration::from_secs(20), |_| {
            server.readable_bytes() == all.len() && early.state() == State::Established
        });
        assert!(came, "{fault:?}");
        let back = pair.b.connect(pair.now, addr(NEAR[0], 90), None, Options::default()).unwrap();
        let accepted = pair.run_until(Duration::from_secs(5), |_| own.queue_lengths().0 == 1);
        assert!(accepted, "{fault:?}: {:?}", back.state());
    }
}

#[test]
fn a_failed_device_is_replaced() {
    for fault in FAULTS {
        let star = Star::new();
        let over = star.open(&star.a, (&star.far[0], addr(FAR[0], 80)));
        star.fault(fault, &over.0);
        let (near, far, _remote) = cable(LinkConfig { mtu: 1400, ..LinkConfig::default() });
        star.far[0].replace_device(star.now, 0, far).unwrap();
        star.a.replace_device(star.now, 0, near).unwrap();
        let status = &star.a.interfaces()[0];
        assert_eq!((status.mtu, &status.error), (1400, &None), "{fault:?}");
        assert_eq!(over.0.read(star.now, &mut [0; 8]), Err(DOWN), "what was failed stays so");
        let fresh = star.open(&star.a, (&star.far[0], addr(FAR[0], 81)));
        assert!(star.passes(&fresh), "{fault:?}");
        star.a.listen(addr(NEAR[0], 90), 16, Options::default()).unwrap();
    }
}

#[test]
fn connections_outlive_a_device_that_works_and_is_replaced() {
    let mut star = Star::new();
    let over = star.open(&star.a, (&star.far[0], addr(FAR[0], 80)));
    let data = pattern(100_000, 9);
    let (mut at, mut read) = (0, Vec::new());
    feed(&over.0, star.now, &data[..30_000], &mut at);
    // Packets on the cable now are lost with it.
    star.a.poll(star.now, 64).unwrap();
    let (near, far, _remote) = cable(LinkConfig { mtu: 1300, ..LinkConfig::default() });
    star.far[0].replace_device(star.now, 0, far).unwrap();
    star.a.replace_device(star.now, 0, near).unwrap();
    for _ in 0..200 {
        feed(&over.0, star.now, &data, &mut at);
        star.run(Duration::from_millis(100));
        drain(&over.1, star.now, &mut read);
    }
    assert!(read == data, "{} of {} bytes", read.len(), data.len());
    let longest = over.0.info(star.now).snd_mss;
    assert!(longest <= 1300 - 40, "segments of {longest} bytes");
}

/// The old device had no room for the packets on their way into it, and nothing else is queued.
#[test]
fn what_a_busy_device_had_no_room_for_leaves_by_the_next() {
    let (near, far, _remote) = cable(LinkConfig { queue_limit: 1, ..LinkConfig::default() });
    let (a, b) = (host(vec![(near, NEAR[0])]), host(vec![(far, FAR[0])]));
    let mut pair = Pair { a, b, now: Instant::from_millis(1) };
    let listener = pair.listen(FAR[0], 16);
    let open = [pair.open(FAR[0], &listener), pair.open(FAR[0], &listener)];
    for (client, _) in &open {
        assert_eq!(client.write(pair.now, b"data").unwrap(), 4);
    }
    assert!(pair.a.interfaces.get(0).tx().is_busy());
    let watcher = pair.a.bind_udp(addr(NEAR[0], 9)).unwrap();
    assert!(watcher.devices().any(|(_, full)| full), "who watches waits until it is writable");
    assert_eq!(pair.a.qdiscs()[0].stats.len, 0, "all is on its way into the device");
    let (near, far, _remote) = cable(LinkConfig::default());
    pair.b.replace_device(pair.now, 0, far).unwrap();
    pair.a.replace_device(pair.now, 0, near).unwrap();
    assert_eq!(pair.a.next_deadline(), Some(Instant::ZERO), "there is something to do");
    let arrived = pair.run_until(Duration::from_secs(5), |_| {
        open.iter().all(|(_, server)| server.readable_bytes() == 4)
    });
    assert!(arrived, "what was on the old cable is sent again, and what was not leaves");
}

#[test]
fn loopback_and_places_without_an_interface_take_no_device() {
    let star = Star::new();
    for index in [2, 9] {
        let (near, _far, _) = cable(LinkConfig::default());
        let error = star.a.replace_device(star.now, index, near).unwrap_err();
        assert!(error.to_string().contains(&format!("interfaces[{index}]")), "{error}");
    }
}

/// A late error of a device that was replaced meanwhile has no effect.
#[test]
fn the_old_device_does_not_bring_down_the_new_one() {
    let star = Star::new();
    let interface = star.a.interfaces.get(0);
    let epoch = interface.epoch();
    let (near, _far, _) = cable(LinkConfig::default());
    star.a.replace_device(star.now, 0, near).unwrap();
    let error = StackError::DeviceGone { name: "old".to_owned(), reason: "late".to_owned() };
    assert!(!interface.fail(epoch, error.clone()) && interface.is_up());
    assert!(interface.fail(interface.epoch(), error) && !interface.is_up());
}

/// The device in its place fails before it is known to be there.
#[test]
fn a_replacement_that_fails_at_once_stays_down() {
    for down in [false, true] {
        let star = Star::new();
        let interface = star.a.interfaces.get(0);
        let error = |reason: &str| {
            let (name, reason) = ("cable".to_owned(), reason.to_owned());
            StackError::DeviceGone { name, reason }
        };
        if down {
            assert!(interface.fail(interface.epoch(), error("old")));
        }
        let (near, _far, remote) = cable(LinkConfig::default());
        let Device { tx, rx, wait } = near;
        // Its statistics are read when it is put in.
        let fails = Fails { tx, epoch: interface.epoch() + 1, stack: star.a.clone() };
        let near = Device { tx: Box::new(fails), rx, wait };
        star.a.replace_device(star.now, 0, near).unwrap();
        assert!(!interface.is_up(), "down before: {down}");
        assert_eq!(interface.status(Vec::new()).error, Some(error("new")));
        drop(remote);
        let (near, _far, _remote) = cable(LinkConfig::default());
        star.a.replace_device(star.now, 0, near).unwrap();
        assert!(interface.is_up() && interface.status(Vec::new()).error.is_none());
    }
}

/// A device whose failure is found by another thread while it is put in.
struct Fails {
    tx: Box<dyn DeviceTx>,
    epoch: u32,
    stack: Arc<Stack>,
}

impl DeviceTx for Fails {
    fn caps(&self) -> &Caps {
        self.tx.caps()
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.tx.transmit(now, queue)
    }

    fn stats(&self) -> DeviceStats {
        let error = StackError::DeviceGone { name: "cable".to_owned(), reason: "new".to_owned() };
        self.stack.interfaces.get(0).fail(self.epoch, error);
        self.tx.stats()
    }
}

#[test]
fn the_last_of_several_devices_ends_the_stack() {
    let star = Star::new();
    let within = star.open(&star.a, (&star.a, addr("127.0.0.1", 80)));
    star.remotes[0].set(Fault::ReceiveFails);
    star.settle();
    assert!(star.passes(&within));
    star.remotes[1].set(Fault::ReceivePanics);
    let error = star.a.poll(star.now, 64).unwrap_err();
    assert!(matches!(&error, StackError::DeviceGone { .. }), "{error}");
    assert_eq!(within.0.read(star.now, &mut [0; 8]), Err(DOWN));
}

/// The thread that fails the devices reads the table before the SYN's connection is in it.
#[test]
fn a_connection_from_a_peer_behind_a_failed_device_is_not_kept() {
    let star = Star::new();
    let _listener = star.a.listen(addr("0.0.0.0", 80), 16, Options::default()).unwrap();
    let interface = star.a.interfaces.get(0);
    let error = StackError::DeviceGone { name: "cable".to_owned(), reason: "gone".to_owned() };
    assert!(interface.fail(interface.epoch(), error));
    let key = crate::flow::FlowKey {
        local: ip(FAR[0]),
        remote: ip(NEAR[1]),
        local_port: 1024,
        remote_port: 80,
    };
    let syn = plimsoll_wire::tcp::TcpRepr {
        src_port: 1024,
        dst_port: 80,
        seq: plimsoll_wire::SeqNum(1),
        ack: plimsoll_wire::SeqNum(0),
        flags: plimsoll_wire::tcp::TcpFlags::SYN,
        window: 1000,
        urgent: 0,
        options: plimsoll_wire::tcp::TcpOptions::default(),
    };
    let mut work = crate::stack::work::Work::begin(&star.far[1], star.now);
    work.send_segment(&key, &syn, None, 0);
    work.finish();
    star.settle();
    assert_eq!(star.a.counter("TcpPassiveOpens"), Some(1));
    assert_eq!(star.a.connection_memory().connections, 0);
}

#[test]
fn a_device_that_panics_when_it_is_asked_for_figures_is_asked_in_vain() {
    let star = Star::new();
    let before = star.a.device_stats();
    star.remotes[0].set(Fault::StatsPanic);
    assert_eq!(star.a.device_stats(), before);
    star.settle();
    assert!(star.a.interfaces()[0].error.is_none());
}

/// An application's thread is in a system call. The poller continues. Packets that others queue
/// leave when the call has ended, by that thread or by the poller, which is woken.
#[test]
fn a_poller_does_not_wait_for_an_application_that_sends() {
    let star = Star::new();
    let slow = star.open(&star.a, (&star.far[0], addr(FAR[0], 80)));
    let other = star.open(&star.a, (&star.far[0], addr(FAR[0], 81)));
    let beside = star.open(&star.a, (&star.far[1], addr(FAR[1], 80)));
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *lock(&star.remotes[0].gate) = Some((entered, may_go_on));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| slow.0.write(star.now, b"slow").unwrap());
        has_entered.recv_timeout(StdDuration::from_secs(20)).unwrap();
        assert_eq!(other.0.write(star.now, b"other").unwrap(), 5);
        assert!(star.passes(&beside), "the poller is at work");
        assert_eq!(star.a.device_stats().len(), 3);
        assert!(!star.a.is_sending());
        // It finds nothing that it would have to look at again and again.
        assert!(star.a.next_deadline().is_none_or(|at| at > star.now));
        go_on.send(()).unwrap();
        assert_eq!(writer.join().unwrap(), 4);
    });
    let mut buf = [0; 8];
    star.far[0].poll(star.now, 64).unwrap();
    assert_eq!(slow.1.read(star.now, &mut buf), Ok(4));
    assert_eq!(other.1.read(star.now, &mut buf), Ok(5), "its holder saw that it was missed");
}

#[test]
fn who_drains_hands_over_to_the_poller() {
    let star = Star::new();
    let flows: Vec<_> = (0..DRAIN_PACKETS as u16 + 40)
        .map(|n| star.open(&star.a, (&star.far[0], addr(FAR[0], 1000 + n))))
        .collect();
    let sent = |star: &Star| star.a.device_stats()[0].1.packets;
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *lock(&star.remotes[0].gate) = Some((entered, may_go_on));
    let before = sent(&star);
    star.a.pollers.queue(0).waiter().handle().announce(None);
    let wakes = star.a.wait_handle().wakes();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| flows[0].0.write(star.now, b"x").unwrap());
        has_entered.recv_timeout(StdDuration::from_secs(20)).unwrap();
        for (client, _) in &flows[1..] {
            client.write(star.now, b"x").unwrap();
        }
        go_on.send(()).unwrap();
        writer.join().unwrap();
    });
    let left = sent(&star) - before;
    assert!(left <= DRAIN_PACKETS as u64, "{left} packets left by one application's thread");
    assert_eq!(star.a.wait_handle().wakes(), wakes + 1, "the poller is woken");
    star.a.pollers.queue(0).waiter().handle().awake(true);
    star.settle();
    assert_eq!(sent(&star) - before, flows.len() as u64);
}

/// A poll with nothing to do calls no sending half and not loopback.
#[test]
fn an_idle_poll_leaves_idle_devices_alone() {
    let star = Star::new();
    let beside = star.open(&star.a, (&star.far[1], addr(FAR[1], 80)));
    star.settle();
    let calls = star.remotes[1].calls.load(Ordering::Relaxed);
    for _ in 0..10 {
        assert!(!star.a.poll(star.now, 64).unwrap().worked);
    }
    assert_eq!(star.remotes[1].calls.load(Ordering::Relaxed), calls);
    assert!(star.passes(&beside));
}
