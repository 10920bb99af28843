//! The kernel of this machine as what a script runs on: the oracle.
//!
//! A [`KernelHost`] puts the thread that makes it into a network namespace of its own, with a TUN
//! device in it. Packets of the script are written into the device; what leaves is seen by a
//! packet socket, which sees super-segments whole. The clock is the real one. Nothing has a name
//! outside: when the host is dropped, or the thread or the process ends in any way, the kernel
//! takes the namespace down.

mod commands;
mod sleeper;
mod sys;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command as Program;
use std::rc::Rc;

use crate::posix::{Call, Out, Reply};
use plimsoll_tcp::{Duration, Instant};

use crate::host::{Captured, Host, HostError, Network, Started};
use crate::shell::Command;
use sleeper::Sleeper;

/// The name of the device, which the scripts' shell lines know.
const DEVICE: &str = "tun0";
const DEVICE_C: &std::ffi::CStr = c"tun0";

/// How late the kernel and this process may be, beside what a script tolerates.
const SLACK: Duration = Duration::from_millis(1);
/// A sleep ends so long before its time; the rest is spent looking at the clock.
const SPIN: Duration = Duration::from_micros(30);

/// With this flag a call never sleeps.
const MSG_DONTWAIT: i32 = 0x40;
/// With this flag the kernel sends from the caller's memory.
const MSG_ZEROCOPY: i32 = 0x400_0000;

/// `setsockopt(fd, SOL_SOCKET, SO_LINGER, ...)`, and the bytes of its `struct linger`.
const SOL_SOCKET: i32 = 1;
const SO_LINGER: i32 = 13;
const LINGER_LEN: i32 = 8;

/// `getsockopt(fd, SOL_TCP, TCP_INFO, ...)`.
const SOL_TCP: i32 = 6;
const TCP_INFO: i32 = 11;
/// More than the structure has in any kernel.
const TCP_INFO_ROOM: i32 = 1024;

/// This machine's kernel, in a network namespace of its own.
pub struct KernelHost {
    network: Network,
    start: Duration,
    tun: File,
    packets: sys::PacketSocket,
    captured: VecDeque<Captured>,
    sleeper: Sleeper,
    /// What scripts have opened and not closed.
    open: Vec<i32>,
    /// Calls whose bytes the kernel may still read.
    lent: Vec<Call>,
    _namespace: Namespace,
    /// The namespace belongs to the thread.
    _thread: PhantomData<Rc<()>>,
}

/// The calling thread is in a new network namespace until this is dropped.
struct Namespace {
    before: File,
}

impl Namespace {
    fn enter() -> Result<Namespace, HostError> {
        let before = File::open("/proc/thread-self/ns/net").map_err(broken("the old namespace"))?;
        sys::new_network_namespace().map_err(broken("a network namespace"))?;
        sys::exact_wake_ups();
        Ok(Namespace { before })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        sys::usual_wake_ups();
        // If it fails, the thread stays where it harms nobody.
        let _ = sys::enter_network_namespace(&self.before);
    }
}

/// Words around an error of the system.
fn broken(what: &str) -> impl FnOnce(std::io::Error) -> HostError + '_ {
    move |error| HostError(format!("{what}: {error}"))
}

/// Nobody but root can make a namespace.
fn refuse_unless(is_root: bool) -> Result<(), HostError> {
    let why = "scripts run on the kernel only as root: they need a network namespace";
    if is_root { Ok(()) } else { Err(HostError(why.into())) }
}

impl KernelHost {
    /// Sets up a namespace and a device, with the calling thread inside.
    ///
    /// # Errors
    /// If this process is not root, or the machine lacks something.
    pub fn new(network: Network) -> Result<KernelHost, HostError> {
        refuse_unless(sys::is_root())?;
        let namespace = Namespace::enter()?;
        let tun = sys::tun(DEVICE_C).map_err(broken("a TUN device"))?;
        set_up(&network)?;
        let packets = sys::PacketSocket::new(DEVICE_C).map_err(broken("a packet socket"))?;
        let sleeper = Sleeper::new().map_err(broken("a second thread"))?;
        Ok(KernelHost {
            network,
            start: sys::now(),
            tun,
            packets,
            captured: VecDeque::new(),
            sleeper,
            open: Vec::new(),
            lent: Vec::new(),
            _namespace: namespace,
            _thread: PhantomData,
        })
    }

    fn instant(&self, time: Duration) -> Instant {
        Instant::ZERO + time.saturating_sub(self.start)
    }

    /// Takes what has left off the packet socket.
    fn collect(&mut self) {
        while let Some(packet) = self.packets.next() {
            if source(&packet.bytes) == Some(self.network.local) {
                let at = self.instant(packet.at);
                self.captured.push_back(Captured { at, bytes: packet.bytes });
            }
        }
    }

    /// Remembers the descriptors that a call made or took away, and the bytes that it lent.
    fn note(&mut self, call: Call, reply: &Reply) {
        let Ok(value) = reply.result else { return };
        if matches!(call, Call::Send { flags, .. } if flags & MSG_ZEROCOPY != 0) {
            self.lent.push(call);
            return;
        }
        let value = i32::try_from(value).unwrap_or(-1);
        match (&call, &reply.out) {
            (Call::Close { fd }, _) => self.open.retain(|open| open != fd),
            (_, Out::Pipe(fds)) => self.open.extend(fds),
            (
                Call::Socket { .. }
                | Call::Accept { .. }
                | Call::EpollCreate { .. }
                | Call::Open { .. },
                _,
            ) => self.open.push(value),
            _ => {}
        }
    }
}

/// Gives the device its addresses and routes.
fn set_up(network: &Network) -> Result<(), HostError> {
    let family = if network.local.is_ipv4() { "-4" } else { "-6" };
    let whole = if network.remote.is_ipv4() { 32 } else { 128 };
    let (local, prefix) = (network.local, network.prefix);
    ip("link set lo up")?;
    ip(&format!("link set {DEVICE} up mtu {}", network.mtu))?;
    // Nobody else is there who could have the address.
    let at_once = if network.local.is_ipv6() { " nodad" } else { "" };
    ip(&format!("{family} addr add {local}/{prefix} dev {DEVICE}{at_once}"))?;
    let route = format!("{family} route add {}/{whole} dev {DEVICE}", network.remote);
    // An address of our own can be no gateway; the device is enough then.
    ip(&format!("{route} via {}", network.gateway)).or_else(|_| ip(&route))
}

/// Runs `ip` in the namespace of this thread.
fn ip(words: &str) -> Result<(), HostError> {
    run("ip", &words.split_whitespace().collect::<Vec<_>>())
}

/// Runs a program in the namespace of this thread.
fn run(program: &str, words: &[&str]) -> Result<(), HostError> {
    let line = || format!("{program} {}", words.join(" "));
    let out = Program::new(program).args(words).output().map_err(|e| {
        let what = line();
        HostError(format!("{what}: {e}"))
    })?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(HostError(format!("{}: {}", line(), said.trim())))
}

/// The source address of a packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?)),
        _ => None,
    }
}

/// Whether a packet is a TCP segment without IPv6 extension headers.
fn is_tcp(packet: &[u8]) -> bool {
    let at = if packet.first().is_some_and(|b| b >> 4 == 6) { 6 } else { 9 };
    packet.get(at) == Some(&6)
}

/// Whether a call may sleep, if its socket is a blocking one.
fn can_sleep(call: &Call) -> bool {
    if let Call::Receive { flags, .. } | Call::Send { flags, .. } = call
        && flags & MSG_DONTWAIT != 0
    {
        return false;
    }
    matches!(
        call,
        Call::Accept { .. }
            | Call::Connect { .. }
            | Call::Receive { .. }
            | Call::Send { .. }
            | Call::Poll { .. }
            | Call::EpollWait { .. }
            | Call::Splice { .. }
            | Call::Sendfile { .. }
            | Call::Close { .. }
    )
}

impl Host for KernelHost {
    fn now(&self) -> Instant {
        self.instant(sys::now())
    }

    fn begin(&mut self) {
        self.start = sys::now();
    }

    fn wait(&mut self, until: Instant) -> Result<(), HostError> {
        // Packets that nobody has looked at yet are no news.
        let before = self.captured.len();
        loop {
            self.collect();
            let left = until.since(self.now());
            let news = self.captured.len() > before || self.sleeper.has_returned();
            if left.is_zero() || news {
                return Ok(());
            }
            if left > SPIN {
                let fds = [self.packets.as_raw_fd(), self.sleeper.as_raw_fd()];
                sys::wait_readable(fds, left - SPIN).map_err(broken("waiting"))?;
            }
        }
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError> {
        let mut frame = vec![0u8; sys::VIRTIO_HEADER];
        if let Some(mss) = self.network.inbound_mss.filter(|_| is_tcp(packet)) {
            // The kernel may take the packet for one that was merged of segments of this size.
            frame[1] = if packet[0] >> 4 == 6 { 4 } else { 1 };
            frame[4..6].copy_from_slice(&mss.to_ne_bytes());
        }
        frame.extend_from_slice(packet);
        self.tun.write(&frame).map(drop).map_err(broken("writing a packet into the device"))
    }

    fn sniff(&mut self) -> Option<Captured> {
        self.collect();
        self.captured.pop_front()
    }

    fn complete(&mut self) {
        let mut room = [0; 1 << 16];
        // It does not block: an error says that nothing is there.
        while self.tun.read(&mut room).is_ok_and(|len| len > 0) {}
    }

    fn call(&mut self, call: Call, may_sleep: bool) -> Result<Started, HostError> {
        if !self.sleeper.is_busy() && (may_sleep || can_sleep(&call)) {
            let Some((call, _, reply)) = self.sleeper.start(call)? else {
                return Ok(Started::Sleeps);
            };
            self.note(call, &reply);
            return Ok(Started::Returned(reply));
        }
        if may_sleep {
            return Err(HostError("another call still sleeps".into()));
        }
        let reply = sys::perform(&call);
        self.note(call, &reply);
        Ok(Started::Returned(reply))
    }

    fn returned(&mut self) -> Option<(Instant, Reply)> {
        let (call, at, reply) = self.sleeper.take()?;
        self.note(call, &reply);
        Some((self.instant(at), reply))
    }

    fn command(&mut self, command: &Command) -> Result<(), HostError> {
        commands::apply(command)
    }

    fn shell(&mut self, text: &str, folder: Option<&Path>) -> Option<Result<(), HostError>> {
        Some(commands::shell(text, folder))
    }

    fn epoch(&self) -> Duration {
        self.start
    }

    fn tcp_info(&mut self, fd: i32) -> Result<Vec<u8>, HostError> {
        let (level, name, len) = (SOL_TCP, TCP_INFO, TCP_INFO_ROOM);
        let reply = sys::perform(&Call::Getsockopt { fd, level, name, len, null: false });
        match (reply.result, reply.out) {
            (Ok(_), Out::Option { value, .. }) => Ok(value),
            (Err(error), _) => Err(HostError(format!("TCP_INFO: {error}"))),
            _ => Err(HostError("TCP_INFO gave nothing".into())),
        }
    }

    fn slack(&self) -> Duration {
        SLACK
    }
}

impl Drop for KernelHost {
    fn drop(&mut self) {
        // A call that still sleeps on one of these keeps its thread; both end with the process.
        for fd in std::mem::take(&mut self.open) {
            sys::perform(&Call::Shutdown { fd, how: 2 });
            // Whatever SO_LINGER the script has set: close() does not wait for a peer that is gone.
            let off = vec![0; LINGER_LEN as usize];
            let value = Some(off);
            let (level, name, len) = (SOL_SOCKET, SO_LINGER, LINGER_LEN);
            sys::perform(&Call::Setsockopt { fd, level, name, value, len });
            sys::perform(&Call::Close { fd });
        }
    }
}

#[cfg(test)]
mod tests;
