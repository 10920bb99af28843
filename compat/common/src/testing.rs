//! Complaints of users of such stacks, as tests that a facade runs on itself.
//!
//! A [`Facade`] is the stack under test, whatever its types are. A [`Client`] is a Plimsoll stack
//! whose packets go to the facade, as those of a device would. Each function is one complaint and
//! panics if it is justified. The rows of the complaints are those of `docs/testing.md`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "these are tests")]

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use plimsoll::device::channel::{ChannelReceiver, ChannelSender};
use plimsoll::device::fault::FaultConfig;
use plimsoll::net::{TcpStream, UdpSocket};
use plimsoll::{Stack, device};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::task::JoinHandle;

use crate::flattened;

/// The time after which a test is stuck.
const STUCK: Duration = Duration::from_secs(60);

/// A datagram: its bytes, who has sent it, and to where.
pub type Message = (Vec<u8>, SocketAddr, SocketAddr);

/// A sink of anything.
pub type BoxSink<T> = Pin<Box<dyn Sink<T, Error = io::Error> + Send>>;

/// A stream of anything.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// A TCP stream of a facade.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that a facade has handed out, the client's address, and the destination.
pub type Accepted = (Box<dyn Io>, SocketAddr, SocketAddr);

/// A stack with the API of another project. Its MTU is 1500 at most.
#[allow(missing_debug_implementations, reason = "its parts have none")]
pub struct Facade {
    /// Takes the packets of clients.
    pub to_stack: BoxSink<Vec<u8>>,
    /// Gives the packets for clients.
    pub from_stack: BoxStream<Vec<u8>>,
    /// Gives connections.
    pub tcp: BoxStream<Accepted>,
    /// Gives datagrams.
    pub datagrams: BoxStream<Message>,
    /// Sends datagrams.
    pub answers: BoxSink<Message>,
}

/// A host with a stack of our own, the neighbour of a facade.
#[derive(Debug)]
pub struct Client {
    stack: Stack,
    carriers: [JoinHandle<()>; 2],
}

impl Client {
    /// The client's addresses.
    pub const V4: &str = "192.0.2.1";
    /// As [`V4`](Self::V4).
    pub const V6: &str = "2001:db8::1";

    /// A client whose packets go to and come from these ends.
    pub fn of(to: BoxSink<Vec<u8>>, from: BoxStream<Vec<u8>>) -> Client {
        Client::with_loss(to, from, 0.0)
    }

    /// As [`of`](Self::of), on a way that loses packets, this part of them.
    pub fn with_loss(to: BoxSink<Vec<u8>>, from: BoxStream<Vec<u8>>, loss: f64) -> Client {
        let (interface, channel) = device::channel(Default::default()).unwrap();
        let fault = FaultConfig::default().loss(loss).seed(7);
        let stack = Stack::builder()
            .device(interface)
            .address(format!("{}/24", Client::V4))
            .address(format!("{}/64", Client::V6))
            .fault(fault)
            .build()
            .unwrap();
        let (sender, receiver) = channel.split();
        let carriers = [tokio::spawn(there(receiver, to)), tokio::spawn(back(from, sender))];
        Client { stack, carriers }
    }

    /// Connects to an address and port.
    ///
    /// # Errors
    /// As the facade answers.
    pub async fn connect(&self, to: &str) -> io::Result<TcpStream> {
        let to: SocketAddr = to.parse().unwrap();
        TcpStream::connect_on(&self.stack, to).await
    }

    /// A socket that is bound to one of its addresses and connected.
    pub async fn datagrams(&self, to: &str) -> UdpSocket {
        let to: SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { Client::V4 } else { Client::V6 };
        let from = SocketAddr::new(from.parse().unwrap(), 0);
        let socket = UdpSocket::bind_on(&self.stack, from).await.unwrap();
        socket.connect(to).await.unwrap();
        socket
    }

    /// Ends what carries its packets, as if its device had been unplugged.
    pub fn unplug(&self) {
        self.carriers.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.unplug();
    }
}

async fn there(mut from: ChannelReceiver, mut to: BoxSink<Vec<u8>>) {
    while let Some(packet) = from.recv().await {
        if to.send(flattened(&packet)).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: BoxStream<Vec<u8>>, mut to: ChannelSender) {
    while let Some(packet) = from.next().await {
        if to.send(packet).await.is_err() {
            return;
        }
    }
}

/// Waits, and takes it for stuck if it lasts too long.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(STUCK, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it is stuck"),
    }
}

/// Sends back whatever comes, on every connection.
pub async fn echo(mut tcp: BoxStream<Accepted>) {
    while let Some((stream, ..)) = tcp.next().await {
        tokio::spawn(async move {
            let (mut from, mut to) = split(stream);
            if copy(&mut from, &mut to).await.is_ok() {
                let _ = to.shutdown().await;
            }
        });
    }
}

/// Bytes that are the same every time and not regular.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// Sends `len` bytes to an echo, and compares the hash of what comes back.
pub async fn bulk_through(client: &Client, len: usize) {
    let stream = soon("connect", client.connect("198.51.100.7:80")).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let data = bytes(len);
    let sent = Sha256::digest(&data);
    let writer = tokio::spawn(async move {
        to.write_all(&data).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    soon("bulk", from.read_to_end(&mut got)).await.unwrap();
    writer.await.unwrap();
    assert_eq!(got.len(), len);
    assert!(Sha256::digest(&got) == sent, "what comes back differs");
}

/// Complaint 1: the client's FIN is not forwarded, and places leak.
pub async fn half_close(facade: Facade) {
    let client = Client::of(facade.to_stack, facade.from_stack);
    let mut tcp = facade.tcp;
    for _ in 0..300 {
        let server = async {
            let (mut stream, ..) = tcp.next().await.expect("a connection");
            let mut request = String::new();
            stream.read_to_string(&mut request).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            stream.shutdown().await.unwrap();
            request
        };
        let visit = async {
            let mut stream = client.connect("198.51.100.7:80").await.unwrap();
            stream.write_all(b"request").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let both = async { tokio::join!(server, visit) };
        assert_eq!(soon("half-close", both).await, ("request".into(), "answer".into()));
    }
}

/// Complaint 2: large transfers stick or are corrupted; also with 1 % loss.
pub async fn bulk(facade: Facade, loss: f64) {
    let len = if loss > 0.0 { 1 << 20 } else { 8 << 20 };
    let client = Client::with_loss(facade.to_stack, facade.from_stack, loss);
    tokio::spawn(echo(facade.tcp));
    bulk_through(&client, len).await;
}

/// A waker that counts how often it is woken.
#[derive(Debug, Default)]
pub struct Counting(AtomicUsize);

impl Counting {
    /// How often.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Complaint 5, first half: a stack with nothing to do wakes people.
pub async fn idle_wakes_nobody(mut facade: Facade) {
    let counting = Arc::new(Counting::default());
    let waker = Waker::from(counting.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(facade.from_stack.as_mut().poll_next(&mut cx).is_pending());
    assert!(facade.tcp.as_mut().poll_next(&mut cx).is_pending());
    assert!(facade.datagrams.as_mut().poll_next(&mut cx).is_pending());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counting.count(), 0);
}

/// Complaint 5, second half: the end of the device is not seen.
pub async fn end_of_the_device(mut facade: Facade) {
    let (sender, mut packets) = tokio::sync::mpsc::channel(16);
    let mut to_stack = facade.to_stack;
    let (close, closing) = tokio::sync::oneshot::channel();
    let pump = tokio::spawn(async move {
        tokio::pin!(closing);
        loop {
            tokio::select! {
                packet = packets.recv() => match packet {
                    Some(packet) => to_stack.send(packet).await.unwrap(),
                    None => break,
                },
                _ = &mut closing => break,
            }
        }
        to_stack.close().await.unwrap();
        let after = to_stack.send(echo_request("198.51.100.7", 8)).await;
        assert_eq!(after.map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    });
    let (over, ended) = tokio::sync::oneshot::channel();
    let mut from_stack = facade.from_stack;
    let out = futures_util::stream::poll_fn(move |cx| from_stack.as_mut().poll_next(cx));
    let out = out.chain(futures_util::stream::once(async move {
        let _ = over.send(());
        Vec::new()
    }));
    let to = Box::pin(futures_util::sink::unfold(sender, |sender, packet| async move {
        sender.send(packet).await.map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
        Ok(sender)
    }));
    let client =
        Client::of(to, Box::pin(out.filter(|packet| std::future::ready(!packet.is_empty()))));
    let server = async {
        let (mut stream, ..) = facade.tcp.next().await.expect("a connection");
        let mut first = [0];
        stream.read_exact(&mut first).await.unwrap();
        stream
    };
    let visit = async {
        let mut stream = client.connect("198.51.100.7:80").await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream
    };
    let (mut stream, _visitor) = soon("connect", async { tokio::join!(server, visit) }).await;
    close.send(()).unwrap();
    soon("close", pump).await.unwrap();
    let read = soon("the stream", stream.read(&mut [0])).await;
    assert!(read.is_err(), "{read:?}");
    soon("the packets", ended).await.unwrap();
    assert!(soon("the listener", facade.tcp.next()).await.is_none());
    assert!(soon("the datagrams", facade.datagrams.next()).await.is_none());
}

/// Complaint 6: a wake-up is missing. Each message waits for the one before.
pub async fn turns(facade: Facade) {
    let client = Client::of(facade.to_stack, facade.from_stack);
    tokio::spawn(echo(facade.tcp));
    let mut stream = soon("connect", client.connect("198.51.100.7:80")).await.unwrap();
    for turn in 0..2000_u32 {
        let sent = turn.to_be_bytes();
        let mut got = [0; 4];
        soon("a turn", async {
            stream.write_all(&sent).await.unwrap();
            stream.read_exact(&mut got).await.unwrap();
        })
        .await;
        assert_eq!(got, sent);
    }
}

/// Complaint 7: packets of others end the process. Afterwards the stack still serves.
pub async fn any_bytes(mut facade: Facade) {
    let valid = [
        echo_request("198.51.100.7", 64),
        datagram([192, 0, 2, 1], [198, 51, 100, 7], (1000, 53), b"question"),
        segment([192, 0, 2, 1], [198, 51, 100, 7], (1000, 80), 2, b""),
        segment([192, 0, 2, 1], [198, 51, 100, 7], (1000, 80), 0x3f, b"all flags"),
    ];
    let noise = bytes(400_000);
    let mut at = 0;
    let mut take = |len: usize| {
        at = (at + len) % (noise.len() - 2000);
        noise[at..at + len].to_vec()
    };
    for round in 0..4000_usize {
        let packet = match round % 3 {
            0 => take(round % 1600),
            1 => {
                // The version is one that is looked at.
                let mut packet = take(20 + round % 80);
                packet[0] = if round % 2 == 0 { 0x45 } else { 0x60 };
                (packet[2], packet[3]) = (0, packet.len() as u8);
                packet
            }
            _ => {
                let mut packet = valid[round % valid.len()].clone();
                let places = take(4);
                let len = packet.len();
                packet[usize::from(places[0]) % len] ^= places[1];
                packet.truncate(len - usize::from(places[2] % 4));
                packet
            }
        };
        // Bytes that are not a packet may be an error.
        let _ = soon("noise", facade.to_stack.send(packet)).await;
        if round % 16 == 0 {
            while let Some(Some(_)) = now(facade.from_stack.next()).await {}
        }
    }
    let client = Client::of(facade.to_stack, facade.from_stack);
    tokio::spawn(echo(facade.tcp));
    let mut stream = soon("connect", client.connect("198.51.100.8:80")).await.unwrap();
    let mut got = [0; 4];
    stream.write_all(b"ahoy").await.unwrap();
    soon("echo", stream.read_exact(&mut got)).await.unwrap();
    assert_eq!(&got, b"ahoy");
}

/// The output of a future, if it is ready after the other tasks have run.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_millis(1), future).await.ok()
}

/// Complaint 8: many connections at once, and some are reset.
pub async fn parallel_connects(facade: Facade) {
    let client = Arc::new(Client::of(facade.to_stack, facade.from_stack));
    tokio::spawn(echo(facade.tcp));
    let visits: Vec<_> = (0..500_u32)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut stream = client.connect("198.51.100.7:80").await?;
                stream.write_all(&number.to_be_bytes()).await?;
                let mut got = [0; 4];
                stream.read_exact(&mut got).await?;
                io::Result::Ok(u32::from_be_bytes(got) == number)
            })
        })
        .collect();
    for visit in visits {
        assert!(soon("a connection", visit).await.unwrap().unwrap());
    }
}

/// Complaint 14: fragments are dropped. Datagrams of 8,000 bytes go there and back, in both
/// versions.
pub async fn fragments(mut facade: Facade) {
    let client = Client::of(facade.to_stack, facade.from_stack);
    for to in ["198.51.100.7:9", "[2001:db8:7::7]:9"] {
        let socket = client.datagrams(to).await;
        let data = bytes(8000);
        socket.send(&data).await.unwrap();
        let (got, from, wanted) =
            soon("the datagram", facade.datagrams.next()).await.expect("it arrives");
        assert!(got == data, "{} bytes have arrived", got.len());
        assert_eq!((from, wanted), (socket.local_addr().unwrap(), to.parse().unwrap()));
        soon("the answer", facade.answers.send((got, wanted, from))).await.unwrap();
        let mut answer = vec![0; 9000];
        let len = soon("the answer", socket.recv(&mut answer)).await.unwrap();
        assert!(answer[..len] == data, "{len} bytes have come back");
    }
}

/// Complaint 15: no ping, and no port-unreachable when no socket takes datagrams.
pub async fn ping_and_closed_ports(mut facade: Facade) {
    facade.to_stack.send(echo_request("198.51.100.7", 64)).await.unwrap();
    let reply = soon("ping", facade.from_stack.next()).await.expect("a reply");
    assert_eq!((reply[9], reply[20], reply.len()), (1, 0, 28 + 64), "an echo reply");
    assert_eq!((&reply[12..16], &reply[16..20]), (&[198, 51, 100, 7][..], &[192, 0, 2, 1][..]));
    drop((facade.datagrams, facade.answers));
    let client = Client::of(facade.to_stack, facade.from_stack);
    let socket = client.datagrams("198.51.100.7:9").await;
    socket.send(b"anybody?").await.unwrap();
    let heard = soon("port unreachable", socket.recv(&mut [0; 9])).await;
    assert_eq!(heard.map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
}

/// The listener is dropped: who connects is refused, and what there is goes on.
pub async fn listener_dropped(mut facade: Facade) {
    let client = Client::of(facade.to_stack, facade.from_stack);
    let server = async {
        let (mut stream, ..) = facade.tcp.next().await.expect("a connection");
        stream.write_all(b"first").await.unwrap();
        stream
    };
    let visit = client.connect("198.51.100.7:80");
    let (mut stream, visitor) = soon("connect", async { tokio::join!(server, visit) }).await;
    let mut visitor = visitor.unwrap();
    drop(facade.tcp);
    let late = async {
        // The listener may be on its way out on another thread.
        loop {
            match client.connect("198.51.100.7:80").await {
                Err(error) => break error.kind(),
                Ok(stream) => drop(stream),
            }
        }
    };
    assert_eq!(soon("refused", late).await, ErrorKind::ConnectionRefused);
    stream.write_all(b" second").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    soon("the rest", visitor.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "first second");
}

/// The stack is dropped while a connection is open.
pub async fn stack_dropped(mut facade: Facade) {
    let client = Client::of(facade.to_stack, facade.from_stack);
    let server = async {
        let (mut stream, ..) = facade.tcp.next().await.expect("a connection");
        stream.write_all(b"first").await.unwrap();
        stream
    };
    let visit = client.connect("198.51.100.7:80");
    let (mut stream, _visitor) = soon("connect", async { tokio::join!(server, visit) }).await;
    client.unplug();
    assert!(soon("the stream", stream.read(&mut [0])).await.is_err());
    assert!(soon("the listener", facade.tcp.next()).await.is_none());
    assert!(soon("the datagrams", facade.datagrams.next()).await.is_none());
    let [from, to] = ["198.51.100.7:9", "192.0.2.1:9"].map(|text| text.parse().unwrap());
    let sent = soon("an answer", facade.answers.send((vec![1], from, to))).await;
    assert!(sent.is_err());
}

/// An IPv4 packet from the client with this payload.
fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(source);
    packet.extend(destination);
    let sum = checksum(&packet, 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// The internet checksum (RFC 1071) of `data`, with `initial` added.
fn checksum(data: &[u8], initial: u32) -> u16 {
    let words = data
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum = initial + words.sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An echo request of the client with `len` bytes of data.
pub fn echo_request(destination: &str, len: usize) -> Vec<u8> {
    let destination: std::net::Ipv4Addr = destination.parse().unwrap();
    let mut message = vec![8, 0, 0, 0, 0, 7, 0, 1];
    message.extend(bytes(len));
    let sum = checksum(&message, 0);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(1, [192, 0, 2, 1], destination.octets(), &message)
}

/// The sum of the pseudo-header of IPv4.
fn pseudo(protocol: u8, source: [u8; 4], destination: [u8; 4], len: usize) -> u32 {
    let words = [source, destination].concat();
    u32::from(!checksum(&words, u32::from(protocol) + len as u32))
}

/// A UDP datagram in an IPv4 packet.
pub fn datagram(
    source: [u8; 4],
    destination: [u8; 4],
    (from, to): (u16, u16),
    data: &[u8],
) -> Vec<u8> {
    let len = (8 + data.len()) as u16;
    let mut message: Vec<u8> = [from, to, len, 0].iter().flat_map(|it| it.to_be_bytes()).collect();
    message.extend(data);
    let sum = checksum(&message, pseudo(17, source, destination, message.len()));
    message[6..8].copy_from_slice(&sum.to_be_bytes());
    ipv4(17, source, destination, &message)
}

/// A TCP segment in an IPv4 packet, of sequence number 0.
pub fn segment(
    source: [u8; 4],
    destination: [u8; 4],
    (from, to): (u16, u16),
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let mut message: Vec<u8> = [from, to].iter().flat_map(|it| it.to_be_bytes()).collect();
    message.extend([0; 8]);
    message.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    message.extend(data);
    let sum = checksum(&message, pseudo(6, source, destination, message.len()));
    message[16..18].copy_from_slice(&sum.to_be_bytes());
    ipv4(6, source, destination, &message)
}
