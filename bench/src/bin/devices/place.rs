//! Where a measurement happens: network namespaces, and what the kernel's sockets do in them.
//!
//! A namespace belongs to a child that only waits for the end of its input. So it is gone when the
//! child is ended, and also when this program is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use super::packet::{HOST, OUR_PORT, OURS, PORT};
use super::sys;

/// The interfaces of the kernel's side, and of ours.
pub(crate) const HOST_DEVICE: &str = "dev0";
pub(crate) const OUR_DEVICE: &str = "dev1";

/// Their addresses on Ethernet.
pub(crate) const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The processors of our thread, and of all that the kernel's side does by threads.
pub(crate) const OUR_PROCESSOR: usize = 0;
pub(crate) const HOST_PROCESSOR: usize = 1;

/// Bytes of a datagram of the kernel's, and of as many as one call sends.
pub(crate) const PAYLOAD: usize = 1472;
const TRAIN: usize = 44 * PAYLOAD;

/// Bytes of a socket's queue: what is sent in one round fits.
const QUEUE: u32 = 64 << 20;

/// How long nothing may come.
const SILENCE: Duration = Duration::from_millis(500);

/// Keeps this thread on a processor, if there are several.
pub(crate) fn stay_on(processor: usize) -> Result<()> {
    if thread::available_parallelism().map_or(1, usize::from) <= processor {
        return Ok(());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).context("sched_setaffinity")
}

/// A network namespace without IPv6, whose neighbours and routers say nothing.
pub(crate) struct Namespace {
    child: Child,
}

impl Namespace {
    fn new() -> Result<Namespace> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting unshare")?;
        let mut line = String::new();
        let out = child.stdout.take().context("standard output is piped")?;
        BufReader::new(out).read_line(&mut line).context("waiting for a namespace")?;
        let namespace = Namespace { child };
        ensure!(line == "ready\n", "no network namespace can be made; it needs root");
        namespace.enter()?;
        fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").context("without IPv6")?;
        Ok(namespace)
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has this thread, and what it starts, be in the namespace.
    fn enter(&self) -> Result<()> {
        enter(self.id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn enter(id: u32) -> Result<()> {
    let namespace = File::open(format!("/proc/{id}/ns/net")).context("opening a namespace")?;
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), kind).context("setns")
}

/// Runs `ip WORDS` in this thread's namespace.
fn ip(words: &str) -> Result<()> {
    let out = Command::new("ip").args(words.split_whitespace()).output().context("starting ip")?;
    if !out.status.success() {
        bail!("ip {words}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// The kernel's side, and ours if that is one of the kernel's interfaces.
pub(crate) struct Place {
    host: Namespace,
    ours: Option<Namespace>,
}

impl Place {
    /// For a TUN device, which the caller then makes. This thread is in the kernel's namespace.
    pub(crate) fn for_tun() -> Result<Place> {
        Ok(Place { host: Namespace::new()?, ours: None })
    }

    /// The TUN device is there: gives it its address.
    pub(crate) fn set_up_tun(&self, threaded: bool) -> Result<()> {
        let [a, b, c, d] = HOST;
        if threaded {
            // It stands in a file of /sys, which shows the namespace of whoever has mounted it.
            let line = format!(
                "mount -t sysfs none /sys && echo 1 > /sys/class/net/{HOST_DEVICE}/threaded"
            );
            let status = Command::new("unshare").args(["--mount", "sh", "-c", &line]).status();
            ensure!(status.context("starting unshare")?.success(), "no thread for NAPI");
        }
        ip(&format!("addr add {a}.{b}.{c}.{d}/24 dev {HOST_DEVICE}"))?;
        ip(&format!("link set {HOST_DEVICE} txqueuelen 4096 up"))
    }

    /// A veth pair. This thread is in the namespace of our end.
    pub(crate) fn for_veth() -> Result<Place> {
        let ours = Namespace::new()?;
        let host = Namespace::new()?;
        let (host_mac, our_mac) = (mac(HOST_MAC), mac(OUR_MAC));
        ip(&format!(
            "link add {HOST_DEVICE} address {host_mac} type veth \
             peer name {OUR_DEVICE} address {our_mac} netns {}",
            ours.id()
        ))?;
        let [a, b, c, d] = HOST;
        ip(&format!("addr add {a}.{b}.{c}.{d}/24 dev {HOST_DEVICE}"))?;
        ip(&format!("link set {HOST_DEVICE} up"))?;
        let [a, b, c, d] = OURS;
        ip(&format!("neigh add {a}.{b}.{c}.{d} lladdr {our_mac} dev {HOST_DEVICE} nud permanent"))?;
        ours.enter()?;
        ip(&format!("link set {OUR_DEVICE} up"))?;
        Ok(Place { host, ours: Some(ours) })
    }

    /// Starts something of the kernel's sockets.
    pub(crate) fn start(&self, task: Task) -> Result<Helper> {
        debug_assert!(self.ours.is_none() || self.host.id() != 0, "both namespaces are there");
        let (orders, told) = channel();
        let (done, results) = channel();
        let id = self.host.id();
        thread::spawn(move || {
            let socket =
                stay_on(HOST_PROCESSOR).and_then(|()| enter(id)).and_then(|()| task.open());
            match socket {
                Ok(socket) => {
                    let _ = done.send(Ok(0));
                    task.serve(&socket, &told, &done);
                }
                Err(error) => drop(done.send(Err(error))),
            }
        });
        let helper = Helper { orders, results };
        helper.result().map(|_| helper)
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// What the kernel's side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Takes datagrams.
    Drain,
    /// Sends datagrams, or as many at once as one packet holds.
    Send { trains: bool },
    /// Sends each back.
    Return { busy_poll: bool },
}

/// Something of the kernel's side that waits for orders.
pub(crate) struct Helper {
    orders: Sender<usize>,
    results: Receiver<Result<usize>>,
}

impl Helper {
    /// Has it do its work with so many packets.
    pub(crate) fn order(&self, count: usize) -> Result<()> {
        self.orders.send(count).context("the kernel's side has ended")
    }

    /// How many packets there were.
    pub(crate) fn result(&self) -> Result<usize> {
        self.results.recv().context("the kernel's side has ended")?
    }
}

impl Task {
    fn open(self) -> Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::from(HOST), PORT)).context("a socket")?;
        socket.connect((Ipv4Addr::from(OURS), OUR_PORT)).context("connecting")?;
        socket.set_read_timeout(Some(SILENCE)).context("SO_RCVTIMEO")?;
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            sys::set_option(&socket, libc::SOL_SOCKET, option, &[QUEUE])?;
        }
        if self == (Task::Return { busy_poll: true }) {
            // Microseconds for which a read looks at the device before it sleeps.
            const LONG: u32 = 200;
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &[LONG])?;
        }
        if self == (Task::Send { trains: true }) {
            sys::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, &[PAYLOAD as u32])?;
        }
        Ok(socket)
    }

    /// Does its work for each order, until nobody gives any.
    fn serve(self, socket: &UdpSocket, orders: &Receiver<usize>, done: &Sender<Result<usize>>) {
        let mut block = vec![0x5a; 64 * 1024];
        while let Ok(count) = orders.recv() {
            if done.send(self.work(socket, count, &mut block)).is_err() {
                return;
            }
        }
    }

    fn work(self, socket: &UdpSocket, count: usize, block: &mut [u8]) -> Result<usize> {
        for n in 0..count {
            let result = match self {
                Task::Drain => socket.recv(block),
                Task::Send { trains } => {
                    socket.send(&block[..if trains { TRAIN } else { PAYLOAD }])
                }
                Task::Return { .. } => {
                    socket.recv(block).and_then(|len| socket.send(&block[..len]))
                }
            };
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(n),
                other => drop(other.context("a datagram of the kernel's side")?),
            }
        }
        Ok(count)
    }
}
