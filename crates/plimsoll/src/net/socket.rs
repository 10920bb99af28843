//! [`TcpSocket`]: options first, then a stream or a listener.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_stack::{ListenConfig, ListenOn, SocketError};
use plimsoll_tcp::Options;

use super::ambient;
use super::listener::TcpListener;
use super::stream::TcpStream;
use crate::options::tos_of;
use crate::stack::Stack;
use crate::stream::Connector;

/// The sizes to which Linux raises the smallest buffers that can be set.
const LEAST_SEND_BUFFER: usize = 4608;
const LEAST_RECV_BUFFER: usize = 2304;

/// A socket that is neither connected nor listens yet. It has the methods of
/// `tokio::net::TcpSocket`; see [the module](crate::net).
///
/// ```
/// use plimsoll::net::{self, TcpSocket};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
/// runtime.block_on(net::scope(&stack, async {
///     let socket = TcpSocket::new_v4()?;
///     socket.bind("127.0.0.1:0".parse().expect("a literal address"))?;
///     let listener = socket.listen(128)?;
///     let client = TcpSocket::new_v4()?;
///     client.set_nodelay(true)?;
///     let stream = client.connect(listener.local_addr()?).await?;
///     assert!(stream.nodelay()?);
///     Ok::<(), std::io::Error>(())
/// }))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpSocket {
    stack: Stack,
    /// The family's unspecified address.
    any: IpAddr,
    set: Mutex<Set>,
}

/// The options set so far.
#[derive(Default)]
struct Set {
    local: Option<SocketAddr>,
    options: Options,
    linger: Option<Duration>,
    reuse_addr: bool,
    reuse_port: bool,
}

impl TcpSocket {
    /// A socket for IPv4.
    ///
    /// # Errors
    /// As [`current`](crate::net::current).
    pub fn new_v4() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new_v4_on(&ambient::current()?))
    }

    /// A socket for IPv6.
    ///
    /// # Errors
    /// As [`current`](crate::net::current).
    pub fn new_v6() -> io::Result<TcpSocket> {
        Ok(TcpSocket::new_v6_on(&ambient::current()?))
    }

    /// A socket of `stack` for IPv4.
    pub fn new_v4_on(stack: &Stack) -> TcpSocket {
        TcpSocket::new(stack, Ipv4Addr::UNSPECIFIED.into())
    }

    /// A socket of `stack` for IPv6.
    pub fn new_v6_on(stack: &Stack) -> TcpSocket {
        TcpSocket::new(stack, Ipv6Addr::UNSPECIFIED.into())
    }

    fn new(stack: &Stack, any: IpAddr) -> TcpSocket {
        TcpSocket { stack: stack.clone(), any, set: Mutex::default() }
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches keepalive on or off (SO_KEEPALIVE).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.set().options.keepalive = keepalive;
        Ok(())
    }

    /// Whether keepalive is on.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.set().options.keepalive)
    }

    /// Keeps SO_REUSEADDR. It makes no difference: connections in TIME-WAIT never keep a port from
    /// a listener here.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_reuseaddr(&self, reuseaddr: bool) -> io::Result<()> {
        self.set().reuse_addr = reuseaddr;
        Ok(())
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        Ok(self.set().reuse_addr)
    }

    /// Lets other listeners have the same address and port, if they were set so as well
    /// (SO_REUSEPORT). Each has its own accept queue, and a hash distributes connections; see
    /// [`ListenConfig::reuse_port`](crate::ListenConfig::reuse_port).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_reuseport(&self, reuseport: bool) -> io::Result<()> {
        self.set().reuse_port = reuseport;
        Ok(())
    }

    /// As it was set.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn reuseport(&self) -> io::Result<bool> {
        Ok(self.set().reuse_port)
    }

    /// Fixes the send buffer in bytes (SO_SNDBUF). As on Linux, it counts twice as much.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
        self.set().options.sndbuf = Some(size as usize);
        Ok(())
    }

    /// The send buffer in bytes: twice what was set.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        let set = self.set().options.sndbuf;
        Ok(self.buffer_size(set, LEAST_SEND_BUFFER, "net.ipv4.tcp_wmem"))
    }

    /// Fixes the receive buffer in bytes (SO_RCVBUF). As on Linux, it counts twice as much.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
        self.set().options.rcvbuf = Some(size as usize);
        Ok(())
    }

    /// The receive buffer in bytes: twice what was set.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        let set = self.set().options.rcvbuf;
        Ok(self.buffer_size(set, LEAST_RECV_BUFFER, "net.ipv4.tcp_rmem"))
    }

    /// A size as getsockopt returns it: twice what was `set`, or the second value of `setting`.
    fn buffer_size(&self, set: Option<usize>, least: usize, setting: &str) -> u32 {
        let default = || {
            let text = self.stack.sysctl(setting).unwrap_or_default();
            text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(least)
        };
        let size = set.map_or_else(default, |size| size.saturating_mul(2).max(least));
        u32::try_from(size).unwrap_or(u32::MAX)
    }

    /// As [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_linger(&self, dur: Option<Duration>) -> io::Result<()> {
        self.set().linger = dur;
        Ok(())
    }

    /// As [`TcpStream::set_zero_linger`].
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// The linger time.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.set().linger)
    }

    /// Switches Nagle's rule off (TCP_NODELAY).
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set().options.nodelay = nodelay;
        Ok(())
    }

    /// Whether Nagle's rule is off.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.set().options.nodelay)
    }

    /// Sets the class of packets (IP_TOS), 0 to 255 without the two bits of ECN.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.set().options.tos = tos_of(tos)?;
        Ok(())
    }

    /// The class of packets.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(u32::from(self.set().options.tos))
    }

    /// As [`tos_v4`](Self::tos_v4), by the name that tokio had for it.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    #[deprecated = "use tos_v4, as with tokio"]
    pub fn tos(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// As [`set_tos_v4`](Self::set_tos_v4), by the name that tokio had for it.
    ///
    /// # Errors
    /// As [`set_tos_v4`](Self::set_tos_v4).
    #[deprecated = "use set_tos_v4, as with tokio"]
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        self.set_tos_v4(tos)
    }

    /// As [`set_tos_v4`](Self::set_tos_v4), for IPv6 (IPV6_TCLASS).
    ///
    /// # Errors
    /// As [`set_tos_v4`](Self::set_tos_v4).
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.set_tos_v4(tclass)
    }

    /// The class of packets.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// The address that it was bound to. Port 0 is filled in when it connects or listens.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.set().local.unwrap_or(SocketAddr::new(self.any, 0)))
    }

    /// The error of the socket, which has none before it connects.
    ///
    /// # Errors
    /// None; the result is there because tokio's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// Chooses the address to listen on or to connect from. Whether its port is free turns out when
    /// the socket does so.
    ///
    /// # Errors
    /// `InvalidInput` if the address is of the other family, or the socket was bound before;
    /// `AddrNotAvailable` if it is not one of the stack.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.check_family(addr)?;
        let (ip, mut set) = (addr.ip(), self.set());
        if set.local.is_some() {
            let message = "the socket is bound to an address already";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        let loopback = ip.is_ipv4() && ip.is_loopback();
        if !ip.is_unspecified() && !loopback && !self.stack.core().addresses().contains(&ip) {
            return Err(SocketError::AddrNotAvailable.into());
        }
        set.local = Some(addr);
        Ok(())
    }

    /// Connects to `addr`.
    ///
    /// # Errors
    /// As [`std::net::TcpStream::connect`]; `InvalidInput` if the address is of the other family.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        self.check_family(addr)?;
        let set = self.set.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut connector = Connector::new(&self.stack).options(set.options);
        if let Some(local) = set.local {
            connector = connector.local(local);
        }
        let stream = connector.connect_async(addr).await?;
        stream.keep_linger(set.linger);
        Ok(TcpStream::connected(stream))
    }

    /// Listens, with at most `backlog` connections that wait to be accepted.
    ///
    /// # Errors
    /// As [`std::net::TcpListener::bind`].
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let local = self.local_addr()?;
        let set = self.set.into_inner().unwrap_or_else(PoisonError::into_inner);
        let config = ListenConfig::default().backlog(backlog as usize).options(set.options);
        let config = config.reuse_port(set.reuse_port);
        let on = ListenOn::Address(local);
        let listener = crate::TcpListener::bind_with_config(&self.stack, on, config)?;
        Ok(TcpListener::new(listener, set.linger))
    }

    fn check_family(&self, addr: SocketAddr) -> io::Result<()> {
        if addr.is_ipv4() == self.any.is_ipv4() {
            return Ok(());
        }
        let family = if self.any.is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!("{addr} is not an address of a socket for {family}");
        Err(io::Error::new(ErrorKind::InvalidInput, message))
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.set();
        let mut text = f.debug_struct("TcpSocket");
        text.field("local", &set.local).field("options", &set.options).finish_non_exhaustive()
    }
}
