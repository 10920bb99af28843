//! Packets that no socket accepts, and packets that the program writes itself, through the API.
use std::future::Future;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use plimsoll::device::memory_link;
use plimsoll::{
    Disposition, RawTransmit, Slice, Stack, UdpSocket, UnhandledConfig, UnhandledKind,
    UnhandledPackets,
};

/// Two stacks that are joined by a link; the second takes any address.
fn pair() -> (Stack, Stack) {
    let (here, there) = memory_link::pair(Default::default());
    let here = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let there = Stack::builder().device(there).address("192.0.2.2/24").any_address();
    (here, there.build().unwrap())
}

/// A packet of IPv4 to 198.51.100.7, whose header checksum the stack fills in.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = 20 + payload.len() as u8;
    let mut bytes = vec![0x45, 0, 0, len, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    bytes.extend([192, 0, 2, 1, 198, 51, 100, 7]);
    bytes.extend(payload);
    bytes
}

/// An echo request without data. The checksum is that of type 8, identifier and number 0.
const PING: [u8; 8] = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];

#[test]
fn a_blocked_reader_is_woken() {
    let (here, there) = pair();
    let packets = UnhandledPackets::bind(&there, UnhandledConfig::default()).unwrap();
    let reader = thread::spawn(move || packets.recv().map(|packet| packet.to_vec()));
    here.send_raw(&packet(99, b"ahoy")).unwrap();
    let got = reader.join().unwrap().unwrap();
    assert_eq!(got[20..], *b"ahoy");
    // The reader took the receiver along.
    assert!(UnhandledPackets::bind(&there, UnhandledConfig::default()).is_ok());
}

#[test]
fn without_a_packet_it_would_block_and_one_receiver_is_all() {
    let (_here, there) = pair();
    let packets = UnhandledPackets::bind(&there, UnhandledConfig::default()).unwrap();
    assert_eq!(packets.try_recv().unwrap_err().kind(), ErrorKind::WouldBlock);
    packets.set_nonblocking(true).unwrap();
    assert_eq!(packets.recv().unwrap_err().kind(), ErrorKind::WouldBlock);
    let second = UnhandledPackets::bind(&there, UnhandledConfig::all());
    assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
    let hook = there.on_unhandled(UnhandledConfig::all(), |_| Disposition::Taken);
    assert_eq!(hook.unwrap_err().kind(), ErrorKind::AddrInUse);
    let refused = UnhandledPackets::bind(&there, UnhandledConfig::default().rcvbuf(0));
    assert_eq!(refused.unwrap_err().to_string(), "rcvbuf: it must be 1 at least");
}

struct Counting(AtomicUsize, thread::Thread);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

#[test]
fn futures_wait_side_by_side_and_leave_nothing_behind() {
    let (here, there) = pair();
    let packets = UnhandledPackets::bind(&there, UnhandledConfig::default()).unwrap();
    let counting = Arc::new(Counting(AtomicUsize::new(0), thread::current()));
    let gone = Arc::new(Counting(AtomicUsize::new(0), thread::current()));
    let (waker, other) = (Waker::from(counting.clone()), Waker::from(gone.clone()));
    let (mut cx, mut other) = (Context::from_waker(&waker), Context::from_waker(&other));
    let mut first = pin!(packets.recv_async());
    assert!(first.as_mut().poll(&mut cx).is_pending());
    // One that is dropped is not woken.
    drop(Box::pin(packets.recv_async()).as_mut().poll(&mut other));
    assert!(packets.poll_recv(&mut cx).is_pending());
    here.send_raw(&packet(99, b"one")).unwrap();
    let got = loop {
        match first.as_mut().poll(&mut cx) {
            Poll::Ready(got) => break got.unwrap(),
            Poll::Pending => thread::park(),
        }
    };
    assert_eq!(got.to_vec()[20..], *b"one");
    assert!(counting.0.load(Ordering::SeqCst) >= 1);
    assert_eq!(gone.0.load(Ordering::SeqCst), 0);
}

/// A proxy of pings takes the request, pings the host, and answers in its place.
#[test]
fn a_program_answers_pings_in_the_place_of_hosts() {
    let (here, there) = pair();
    let replies = UnhandledPackets::bind(&here, UnhandledConfig::default()).unwrap();
    let config = UnhandledConfig::default().echo_requests(true);
    let pings = UnhandledPackets::bind(&there, config).unwrap();
    here.send_raw(&packet(1, &PING)).unwrap();
    let ping = pings.recv().unwrap();
    assert_eq!(ping.kind(), UnhandledKind::EchoRequest);
    assert_eq!(ping.destination(), Some(IpAddr::from([198, 51, 100, 7])));
    let mut reply = ping.to_vec();
    reply[12..20].rotate_left(4);
    // The type goes from 8 to 0, the checksum up by as much.
    (reply[20], reply[22]) = (0, 0xff);
    let how = RawTransmit::default().interface(Some(ping.interface()));
    there.send_raw_with(&how, Slice::from_owner(reply).into()).unwrap();
    let got = replies.recv().unwrap();
    assert_eq!(got.kind(), UnhandledKind::Icmp { message: 0, code: 0 });
    assert_eq!(got.source(), Some(IpAddr::from([198, 51, 100, 7])));
    // Or it leaves that to the stack, which answers as the host.
    here.send_raw(&packet(1, &PING)).unwrap();
    pings.refuse(&pings.recv().unwrap());
    assert_eq!(replies.recv().unwrap().to_vec()[20..22], [0, 0]);
}

#[test]
fn a_function_sees_what_the_stack_refuses() {
    let (here, there) = pair();
    let (sender, seen) = mpsc::channel();
    let config = UnhandledConfig::default().datagrams(true);
    let hook = there.on_unhandled(config, move |packet| {
        sender.send(packet.kind()).unwrap();
        Disposition::Default
    });
    let socket = UdpSocket::bind(&here, "192.0.2.1:0").unwrap();
    socket.connect("198.51.100.7:9").unwrap();
    socket.send(b"who?").unwrap();
    assert_eq!(seen.recv().unwrap(), UnhandledKind::Datagram);
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(hook);
    assert!(seen.recv().is_err(), "the function was dropped");
}

#[test]
fn the_end_of_the_stack_ends_the_wait() {
    let (_here, there) = pair();
    let packets = UnhandledPackets::bind(&there, UnhandledConfig::default()).unwrap();
    let reader = thread::spawn(move || packets.recv().map(|packet| packet.kind()));
    there.shutdown(std::time::Duration::from_secs(1));
    assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::NetworkDown);
}
