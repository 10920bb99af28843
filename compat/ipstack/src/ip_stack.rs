//! [`IpStack`]: what a program makes, and accepts from.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll::device::{self, channel::ChannelConfig};
use plimsoll::gate::{GateConfig, GatedListener};
use plimsoll::net::Driver;
use plimsoll::{ListenConfig, ListenOn, Stack, UdpListener};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;

use crate::carrier::{Carrier, End, Ends};
use crate::config::{IpStackConfig, Plan};
use crate::error::{IpStackError, Result};
use crate::stream::IpStackStream;
use crate::tcp::IpStackTcpStream;
use crate::udp::IpStackUdpStream;
use crate::unknown::RawSender;

/// SYNs that wait to be accepted, at most. They may all be of one client.
const SYNS: usize = 4096;

/// Bytes that a stream takes ahead of what its window lets leave, about. With more, a program that
/// reads faster than its client would fill every send buffer; at 10 Gbit/s it is 200 us.
const NOT_SENT: u32 = 256 * 1024;

/// Packets of other protocols that wait to be accepted, and the program's own that wait for the
/// device, at most.
const PACKETS: usize = 256;

/// A TCP/IP stack on a device, for any address.
///
/// Dropping it ends the stack and drops the device; the streams that it has given fail from then
/// on. See [the crate](crate) for an example.
pub struct IpStack {
    inner: Inner,
}

enum Inner {
    Running(Running),
    /// The text says which field of the configuration cannot be honoured, and why.
    Refused(String),
}

struct Running {
    tcp: GatedListener,
    tcp_timeout: Duration,
    udp: UdpListener,
    /// The packets that are neither.
    packets: mpsc::Receiver<IpStackStream>,
    /// Which of the three is asked first, so that none is passed over for ever.
    first: usize,
    end: Arc<End>,
    /// The task ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl IpStack {
    /// A stack that reads its packets from `device` and writes them there. Each read gives one
    /// packet, and each write takes one.
    ///
    /// [`accept`](Self::accept) returns the errors of `config`.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and on one without the drivers of I/O and time.
    pub fn new<Device>(config: IpStackConfig, device: Device) -> IpStack
    where
        Device: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let started = config.plan().and_then(|plan| start(plan, device));
        IpStack { inner: started.map_or_else(Inner::Refused, Inner::Running) }
    }

    /// Waits for the next stream or packet. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`IpStackError::IoError`] of the kind `InvalidInput` if the configuration cannot be
    /// honoured, and of other kinds if the device has failed; [`IpStackError::AcceptError`] if the
    /// device has come to its end.
    pub async fn accept(&mut self) -> Result<IpStackStream, IpStackError> {
        match &mut self.inner {
            Inner::Running(running) => poll_fn(|cx| running.poll_accept(cx)).await,
            Inner::Refused(why) => {
                Err(io::Error::new(ErrorKind::InvalidInput, why.as_str()).into())
            }
        }
    }
}

/// Builds the stack, and spawns the task that runs it.
fn start<D>(plan: Plan, device: D) -> std::result::Result<Running, String>
where
    D: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = ChannelConfig::with_mtu(plan.mtu).name("ipstack");
    let (interface, channel) = device::channel(config).map_err(|error| error.to_string())?;
    let mut builder = Stack::builder().device(interface).any_address();
    for (name, value) in plan.sysctls {
        builder = builder.sysctl(name, value);
    }
    let stack = builder.build_without_thread().map_err(|error| error.to_string())?;
    let timeout = Some(plan.tcp_timeout);
    let mut options = plan.options.user_timeout(timeout).notsent_lowat(Some(NOT_SENT));
    options.half_close_timeout = options.half_close_timeout.or(timeout);
    let gate = GateConfig::default().waiting(SYNS).per_source(SYNS);
    let listen = ListenConfig::default().options(options).gate(Some(gate));
    let tcp = GatedListener::bind_with_config(&stack, ListenOn::Everything, listen)
        .map_err(|error| error.to_string())?;
    let udp = UdpListener::bind_any_with(&stack, 0, plan.udp)
        .map_err(|error| format!("udp_timeout: {error}"))?;
    let driver = Driver::new(&stack).map_err(|error| error.to_string())?;
    let (raw_sender, raw) = mpsc::channel(PACKETS);
    let (to_program, packets) = mpsc::channel(PACKETS);
    let (running, stop) = oneshot::channel();
    let end = Arc::new(End::default());
    let ends = Ends { to_program, raw, raw_sender: RawSender::new(raw_sender, plan.mtu), stop };
    let carrier = Carrier::new(device, plan.packet_information, channel, driver, ends, end.clone());
    // The carrier ends its poll by itself. Were it limited by the runtime, its device would say in
    // the midst of a batch that it is not ready.
    tokio::spawn(unconstrained(carrier));
    let (tcp_timeout, first) = (plan.tcp_timeout, 0);
    Ok(Running { tcp, tcp_timeout, udp, packets, first, end, _running: running })
}

impl Running {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<IpStackStream>> {
        for step in 0..3 {
            let source = (self.first + step) % 3;
            let found = match source {
                0 => self.poll_tcp(cx),
                1 => self.poll_udp(cx),
                _ => self.poll_packets(cx),
            };
            if let Poll::Ready(found) = found {
                self.first = (source + 1) % 3;
                return Poll::Ready(found.map_err(|error| self.end.error(error)));
            }
        }
        Poll::Pending
    }

    fn poll_tcp(&mut self, cx: &mut Context<'_>) -> Poll<Result<IpStackStream>> {
        loop {
            let Poll::Ready(incoming) = self.tcp.poll_incoming(cx.waker()) else {
                return Poll::Pending;
            };
            let incoming = incoming?;
            // A client that has given up needs no stream.
            if incoming.is_cancelled().is_none() {
                let stream = IpStackTcpStream::accept(incoming, self.tcp_timeout);
                return Poll::Ready(Ok(IpStackStream::Tcp(stream)));
            }
        }
    }

    fn poll_udp(&mut self, cx: &mut Context<'_>) -> Poll<Result<IpStackStream>> {
        loop {
            let Poll::Ready(flow) = self.udp.poll_accept(cx) else { return Poll::Pending };
            // A flow may have ended while it waited.
            if let Ok(stream) = IpStackUdpStream::new(flow?) {
                return Poll::Ready(Ok(IpStackStream::Udp(stream)));
            }
        }
    }

    fn poll_packets(&mut self, cx: &mut Context<'_>) -> Poll<Result<IpStackStream>> {
        self.packets.poll_recv(cx).map(|packet| packet.ok_or(IpStackError::AcceptError))
    }
}

impl fmt::Debug for IpStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Running(_) => f.debug_struct("IpStack").finish_non_exhaustive(),
            Inner::Refused(why) => f.debug_tuple("IpStack").field(why).finish(),
        }
    }
}
