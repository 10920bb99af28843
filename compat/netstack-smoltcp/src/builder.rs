//! [`StackBuilder`].

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use plimsoll::device;
use plimsoll::device::channel::ChannelConfig;

use crate::filter::{IpFilter, IpFilters};
use crate::runner::Runner;
use crate::shared::Shared;
use crate::stack::Stack;
use crate::tcp::TcpListener;
use crate::udp::UdpSocket;

/// The cost of a datagram in a queue in addition to its bytes.
const DATAGRAM_OVERHEAD: usize = 128;

/// The bounds of a buffer in bytes, for `net.core.rmem_max`, `tcp_rmem` and `tcp_wmem`.
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 2048..=1 << 30;

/// The configuration of a stack. Each protocol is off unless enabled.
///
/// ```
/// use netstack_smoltcp::StackBuilder;
/// let (_stack, runner, udp, tcp) = StackBuilder::default().enable_udp(true).build()?;
/// assert!(runner.is_none() && udp.is_some() && tcp.is_none());
/// let refused = StackBuilder::default().enable_tcp(true).mtu(70_000).build().unwrap_err();
/// assert_eq!(refused.to_string(), "mtu: 70000 is not between 576 and 65535");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StackBuilder {
    udp: bool,
    tcp: bool,
    icmp: bool,
    to_caller: Option<usize>,
    datagrams: Option<usize>,
    to_stack: Option<usize>,
    receive_buffer: Option<u32>,
    send_buffer: Option<u32>,
    filters: IpFilters<'static>,
    mtu: usize,
}

impl Default for StackBuilder {
    fn default() -> StackBuilder {
        StackBuilder {
            udp: false,
            tcp: false,
            icmp: false,
            to_caller: None,
            datagrams: None,
            to_stack: None,
            receive_buffer: None,
            send_buffer: None,
            filters: IpFilters::default(),
            mtu: 1500,
        }
    }
}

impl StackBuilder {
    /// Takes datagrams of UDP. Unless set, their ports are unreachable.
    pub fn enable_udp(mut self, enable: bool) -> StackBuilder {
        self.udp = enable;
        self
    }

    /// Takes connections. Unless set, they are reset.
    pub fn enable_tcp(mut self, enable: bool) -> StackBuilder {
        self.tcp = enable;
        self
    }

    /// Answers echo requests (ping) to any address; it needs TCP to be enabled as well.
    pub fn enable_icmp(mut self, enable: bool) -> StackBuilder {
        self.icmp = enable;
        self
    }

    /// How many packets of the stack wait to be taken, at most; 512 unless set. Then the stack
    /// waits.
    pub fn stack_buffer_size(mut self, size: usize) -> StackBuilder {
        self.to_caller = Some(size);
        self
    }

    /// How many datagrams as long as the MTU wait to be read, at most; shorter ones may be more.
    /// Further ones are dropped. 212992 bytes unless set.
    pub fn udp_buffer_size(mut self, size: usize) -> StackBuilder {
        self.datagrams = Some(size);
        self
    }

    /// How many packets wait for the stack, at most, of all protocols; 512 unless set. Then the
    /// sink is not ready.
    pub fn tcp_buffer_size(mut self, size: usize) -> StackBuilder {
        self.to_stack = Some(size);
        self
    }

    /// The most that the receive buffer of a connection grows to, in bytes, 2048 to 2^30; 32 MiB
    /// unless set. A connection has what its path needs, and at rest nothing.
    pub fn tcp_recv_buffer_size(mut self, size: u32) -> StackBuilder {
        self.receive_buffer = Some(size);
        self
    }

    /// The most that the send buffer of a connection grows to, in bytes, 2048 to 2^30; 4 MiB unless
    /// set.
    pub fn tcp_send_buffer_size(mut self, size: u32) -> StackBuilder {
        self.send_buffer = Some(size);
        self
    }

    /// Packets must pass these filters, in place of those that were set before.
    pub fn set_ip_filters(mut self, filters: IpFilters<'static>) -> StackBuilder {
        self.filters = filters;
        self
    }

    /// Packets must pass this filter as well.
    pub fn add_ip_filter(mut self, filter: IpFilter<'static>) -> StackBuilder {
        self.filters.add(filter);
        self
    }

    /// Packets must pass this function as well.
    pub fn add_ip_filter_fn<F>(mut self, filter: F) -> StackBuilder
    where
        F: Fn(&IpAddr, &IpAddr) -> bool + Send + Sync + 'static,
    {
        self.filters.add_fn(filter);
        self
    }

    /// The longest IP packet in bytes, 576 to 65535; 1500 unless set.
    pub fn mtu(mut self, mtu: usize) -> StackBuilder {
        self.mtu = mtu;
        self
    }

    /// Makes the stack, and what runs it unless it is for UDP alone, and the sockets of the
    /// protocols that are enabled.
    ///
    /// # Errors
    /// `InvalidInput` if a setting cannot be honoured; the text begins with the name of its method.
    #[allow(clippy::type_complexity, reason = "the type is that of netstack-smoltcp")]
    pub fn build(
        self,
    ) -> io::Result<(Stack, Option<Runner>, Option<UdpSocket>, Option<TcpListener>)> {
        if self.icmp && !self.tcp {
            return Err(invalid("enable_icmp", "it needs enable_tcp, whose runner answers"));
        }
        let (interface, channel) = device::channel(self.channel()?).map_err(io::Error::other)?;
        let mut builder = plimsoll::Stack::builder().device(interface).any_address();
        for (name, value) in self.sysctls()? {
            builder = builder.sysctl(name, value);
        }
        let stack = match self.tcp {
            true => builder.build_without_thread(),
            false => builder.name("netstack").build(),
        };
        let shared = Shared::new(stack.map_err(io::Error::other)?);
        let receive_buffer = self.datagram_bytes()?;
        let tcp = self.tcp.then(|| TcpListener::new(&shared)).transpose()?;
        let udp = self.udp.then(|| UdpSocket::new(&shared, receive_buffer)).transpose()?;
        let runner = self.tcp.then(|| Runner::new(&shared)).transpose();
        let runner = runner.map_err(io::Error::other)?;
        Ok((Stack::new(channel, self.filters, shared), runner, udp, tcp))
    }

    fn channel(&self) -> io::Result<ChannelConfig> {
        let mtu = u16::try_from(self.mtu).ok().filter(|&mtu| mtu >= 576);
        let mtu = mtu.ok_or_else(|| {
            invalid("mtu", format_args!("{} is not between 576 and 65535", self.mtu))
        })?;
        let mut config = ChannelConfig::with_mtu(mtu).name("netstack");
        if let Some(packets) = self.to_caller {
            config = config.to_caller(at_least_one("stack_buffer_size", packets)?);
        }
        if let Some(packets) = self.to_stack {
            config = config.to_stack(at_least_one("tcp_buffer_size", packets)?);
        }
        Ok(config)
    }

    fn sysctls(&self) -> io::Result<Vec<(&'static str, String)>> {
        let mut sysctls = Vec::new();
        if !self.icmp {
            sysctls.push(("net.ipv4.icmp_echo_ignore_all", "1".to_owned()));
        }
        let sizes = [
            ("tcp_recv_buffer_size", "net.ipv4.tcp_rmem", self.receive_buffer, 131_072),
            ("tcp_send_buffer_size", "net.ipv4.tcp_wmem", self.send_buffer, 16_384),
        ];
        for (method, name, most, first) in sizes {
            let Some(most) = most else { continue };
            let most = within(method, most as usize)?;
            let (least, first) = (most.min(4096), most.min(first));
            sysctls.push((name, format!("{least} {first} {most}")));
        }
        if let Some(bytes) = self.datagram_bytes()? {
            sysctls.push(("net.core.rmem_max", bytes.to_string()));
        }
        Ok(sysctls)
    }

    /// Bytes of the receive buffer of UDP, if it was set.
    fn datagram_bytes(&self) -> io::Result<Option<usize>> {
        let Some(datagrams) = self.datagrams else { return Ok(None) };
        let datagrams = at_least_one("udp_buffer_size", datagrams)?;
        let bytes = datagrams.saturating_mul(self.mtu.saturating_add(DATAGRAM_OVERHEAD));
        within("udp_buffer_size", bytes.max(*BUFFER_BYTES.start())).map(Some)
    }
}

fn invalid(method: &str, what: impl Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("{method}: {what}"))
}

fn at_least_one(method: &str, size: usize) -> io::Result<usize> {
    match size {
        0 => Err(invalid(method, "a queue of 0 would let nothing through; give at least 1")),
        _ => Ok(size),
    }
}

fn within(method: &str, bytes: usize) -> io::Result<usize> {
    if BUFFER_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (BUFFER_BYTES.start(), BUFFER_BYTES.end());
    Err(invalid(method, format_args!("{bytes} bytes are not between {least} and {most}")))
}
