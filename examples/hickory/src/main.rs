//! Resolves names with [hickory](hickory_resolver), whose queries use the stack's sockets, not the
//! host's. A name server on the same stack serves one name, so the example needs no other host.
//!
//! ```sh
//! cargo run -p plimsoll-example-hickory
//! ```
//!
//! Queries use UDP, and TCP if the answer is too long for UDP.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::{
    DnsTcpStream, DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime,
};
use plimsoll::net::{self, TcpListener, UdpSocket};
use plimsoll::{Connector, Resolve, Resolving, Stack};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53));
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection of hickory's on our sockets.
struct Tcp(plimsoll::TcpStream);

impl DnsTcpStream for Tcp {
    type Time = TokioTime;
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        AsyncRead::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.0), cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_close(Pin::new(&mut self.0), cx)
    }
}

/// A socket of hickory's for datagrams.
struct Udp(UdpSocket);

impl DnsUdpSocket for Udp {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buf = ReadBuf::new(buf);
        let from = ready!(self.0.poll_recv_from(cx, &mut buf))?;
        Poll::Ready(Ok((buf.filled().len(), from)))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(cx, data, target)
    }
}

/// Where hickory gets its sockets: from the default stack of the process. It does not keep the
/// stack itself, which keeps the resolver.
#[derive(Clone, Default)]
struct OurSockets(TokioHandle);

impl RuntimeProvider for OurSockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> TokioHandle {
        self.0.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Tcp>>>> {
        Box::pin(async move {
            let mut connector = Connector::new(&net::current()?);
            if let Some(local) = local {
                connector = connector.local(local);
            }
            let opening = connector.connect_async(server);
            tokio::time::timeout(patience.unwrap_or(PATIENCE), opening).await?.map(Tcp)
        })
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        _server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Udp>>>> {
        Box::pin(async move { UdpSocket::bind(local).await.map(Udp) })
    }
}

/// Asks hickory.
struct Hickory(Resolver<OurSockets>);

impl Hickory {
    fn new(server: IpAddr) -> anyhow::Result<Hickory> {
        let servers = vec![NameServerConfig::udp_and_tcp(server)];
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        Ok(Hickory(Resolver::builder_with_config(config, OurSockets::default()).build()?))
    }
}

impl fmt::Debug for Hickory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hickory").finish_non_exhaustive()
    }
}

impl Resolve for Hickory {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let found = self.0.lookup_ip(name).await.map_err(io::Error::other)?;
            Ok(found.iter().collect())
        })
    }
}

/// The longest question that is answered.
const LONGEST: usize = 512;

/// Answers a question for an IPv4 address with 127.0.0.1 (RFC 1035, section 4.1). `None` if it is
/// no question.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    /// A response; recursion is available.
    const RESPONSE: [u8; 2] = [0x81, 0x80];
    const TYPE_A: [u8; 2] = [0, 1];
    // The name of the one question ends with an empty label; type and class follow.
    let end = 13 + query.get(12..)?.iter().position(|&byte| byte == 0)?;
    let question = query.get(12..end + 4)?;
    let is_known = query.get(end..end + 2)? == TYPE_A;
    let mut reply = query.get(..2)?.to_vec();
    reply.extend(RESPONSE);
    reply.extend([0, 1, 0, u8::from(is_known), 0, 0, 0, 0]);
    reply.extend(question);
    if is_known {
        // The name of the question, A, IN, a minute, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(reply)
}

/// Answers datagrams.
async fn serve_udp(socket: UdpSocket) -> io::Result<()> {
    let mut query = [0; LONGEST];
    loop {
        let (len, from) = socket.recv_from(&mut query).await?;
        if let Some(reply) = answer(&query[..len]) {
            socket.send_to(&reply, from).await?;
        }
    }
}

/// Answers on connections, where two bytes of length come first (section 4.2.2).
async fn serve_tcp(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        net::spawn(async move {
            while let Ok(len) = stream.read_u16().await {
                let mut query = vec![0; usize::from(len)];
                stream.read_exact(&mut query).await?;
                let Some(reply) = answer(&query) else { break };
                stream.write_u16(reply.len() as u16).await?;
                stream.write_all(&reply).await?;
            }
            io::Result::Ok(())
        })?;
    }
}

/// Connects to a name on a stack that asks hickory. Returns the address that it was.
async fn connect_to_a_name() -> anyhow::Result<SocketAddr> {
    let resolver = Arc::new(Hickory::new(SERVER)?);
    let stack = Stack::builder().loopback_only().resolver(resolver).build()?;
    net::set_default(Some(&stack));
    net::spawn(serve_udp(UdpSocket::bind((SERVER, 53)).await?))?;
    net::spawn(serve_tcp(TcpListener::bind((SERVER, 53)).await?))?;

    let _listener = TcpListener::bind("127.0.0.1:80").await?;
    let stream = net::TcpStream::connect("server.example:80").await?;
    Ok(stream.peer_addr()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    println!("server.example:80 is {}", connect_to_a_name().await?);
    Ok(())
}

#[tokio::test]
async fn a_name_is_looked_up_over_our_sockets() -> anyhow::Result<()> {
    assert_eq!(connect_to_a_name().await?, SocketAddr::from(([127, 0, 0, 1], 80)));
    let stack = net::current()?;
    let asked = stack.core().counter("UdpInDatagrams");
    assert!(asked >= Some(2), "a question and its answer: {asked:?}");
    Ok(())
}
