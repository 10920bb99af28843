//! The host's kernel as the peer of a stack: its sockets, in a network namespace of their own,
//! behind a TUN device.
//!
//! # Theory of operation
//!
//! A thread moves into a new network namespace, makes a TUN device there, gives the kernel's end an
//! address and listens. Threads that it starts are in the same namespace: they serve one connection
//! each. Nothing has a name outside, so when the last of these threads and the device have gone,
//! the kernel takes the namespace down, however the process ended.
//!
//! It needs root, and the program `ip`. Nothing of the host is changed.

use std::io::PipeWriter;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll::device::{self, Device};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::UnshareFlags;

use crate::event_loop::SCRATCH_BYTES;
use crate::experiment::pin::{OnCpu, Setting};
use crate::host::namespace;
use crate::workload::Kind;
use crate::workload::blocking::{Count, answer, receive, send};

/// The kernel's address.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The stack's address, with its prefix.
pub const OURS: &str = "192.0.2.2/24";

const PORT: u16 = 5001;
const DEVICE: &str = "plim0";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long a socket may do nothing before its thread ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// The congestion control of the kernel's sockets, whatever the host prefers; ours by default, too.
const CONGESTION_CONTROL: &str = "cubic";

/// Why the kernel cannot be a peer here; `None` if it can.
pub fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, to make a network namespace and a TUN device".into());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("this machine has no /dev/net/tun".into());
    }
    match Command::new("ip").arg("-V").output() {
        Ok(_) => None,
        Err(error) => Some(format!("the program ip cannot be run: {error}")),
    }
}

/// What the threads of a peer share.
#[derive(Default)]
struct Shared {
    received: Count,
    /// Who sends ends now.
    over: AtomicBool,
    /// To end them when the run is over.
    streams: Mutex<Vec<TcpStream>>,
}

/// A server on the kernel's sockets. It ends when this is dropped.
pub struct Peer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
}

impl Peer {
    /// Starts a server of the workload `kind` whose threads run on the processor `cpu`, in a
    /// namespace with `settings`. Returns it with the device that leads to it.
    ///
    /// # Errors
    /// If the namespace, the device or the socket cannot be had, or a setting.
    pub fn start(kind: Kind, cpu: usize, settings: &[Setting]) -> anyhow::Result<(Peer, Device)> {
        let shared = Arc::new(Shared::default());
        let (stopped, stop) = std::io::pipe().context("cannot make a pipe")?;
        let (tell, told) = mpsc::channel();
        let (in_thread, settings) = (shared.clone(), settings.to_vec());
        let body = move || {
            let ready = match Namespace::enter(cpu, &settings) {
                Ok(namespace) => namespace,
                Err(error) => return drop(tell.send(Err(error))),
            };
            serve(ready, kind, &in_thread, &stopped, tell);
        };
        let thread = std::thread::Builder::new().name("kernel-accept".into()).spawn(body);
        let thread = thread.context("cannot start a thread")?;
        let peer = Peer { shared, thread: Some(thread), stop: Some(stop) };
        let device = told.recv().context("the kernel's thread has ended")??;
        Ok((peer, device))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddrV4::new(KERNEL, PORT).into()
    }

    /// Payload bytes that it has read so far.
    pub fn received(&self) -> u64 {
        self.shared.received.get()
    }

    /// Ends the stream of whoever sends without a limit.
    pub fn finish(&self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let mut streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.drain(..) {
            // One that has ended already is no loss.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(streams);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

/// What was set up in the namespace of a thread.
struct Namespace {
    device: Device,
    listener: TcpListener,
    _on: OnCpu,
}

impl Namespace {
    /// Moves the calling thread into a new one.
    fn enter(cpu: usize, settings: &[Setting]) -> anyhow::Result<Namespace> {
        let on = OnCpu::enter(cpu)?;
        // This flag leaves the descriptors shared, which is what the deprecation is about.
        #[allow(deprecated)]
        rustix::thread::unshare(UnshareFlags::NEWNET).context("cannot make a network namespace")?;
        for (name, value) in settings {
            namespace::set(name, value)?;
        }
        let config = device::tun::TunConfig::default()
            .name(DEVICE)
            .offloads(device::tun::Offloads::Auto)
            .mtu(Some(1500))
            .up(true);
        let device = device::tun::open(config).context("cannot make a TUN device")?;
        let address = format!("{KERNEL}/24");
        // A child is in the namespace of the thread that starts it.
        let out = Command::new("ip").args(["addr", "add", &address, "dev", DEVICE]).output();
        let out = out.context("cannot run ip")?;
        if !out.status.success() {
            bail!("ip addr add: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        let listener = TcpListener::bind((KERNEL, PORT)).context("the kernel cannot listen")?;
        // An event loop opens all of its connections at once.
        rustix::net::listen(&listener, BACKLOG).context("the kernel cannot listen")?;
        rustix::net::sockopt::set_tcp_congestion(&listener, CONGESTION_CONTROL)
            .context("TCP_CONGESTION")?;
        listener.set_nonblocking(true).context("O_NONBLOCK")?;
        Ok(Namespace { device, listener, _on: on })
    }
}

/// Accepts until the pipe is closed, then waits for the threads of all connections.
fn serve(
    ready: Namespace,
    kind: Kind,
    shared: &Arc<Shared>,
    stopped: &std::io::PipeReader,
    tell: Sender<anyhow::Result<Device>>,
) {
    let Namespace { device, listener, _on } = ready;
    if tell.send(Ok(device)).is_err() {
        return;
    }
    let mut threads = Vec::new();
    loop {
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut fds, None).is_err() || !fds[1].revents().is_empty() {
            break;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        if let Ok(clone) = stream.try_clone() {
            shared.streams.lock().unwrap_or_else(PoisonError::into_inner).push(clone);
        }
        let shared = shared.clone();
        let name = format!("kernel-{}", threads.len());
        let body = move || {
            // What goes wrong here shows at the client.
            let _ = serve_one(&stream, kind, &shared);
            // There is another handle of it, so closing this one would not end it.
            let _ = stream.shutdown(Shutdown::Both);
        };
        threads.extend(std::thread::Builder::new().name(name).spawn(body));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn serve_one(stream: &TcpStream, kind: Kind, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut scratch = vec![0; SCRATCH_BYTES];
    match kind {
        Kind::Send { .. } => receive(stream, &mut scratch, |count| shared.received.add(count)),
        Kind::Rr { sizes, .. } => answer(stream, &mut scratch, sizes, u64::MAX, || ()),
        Kind::Receive { message, bytes } => {
            let over = || shared.over.load(Ordering::Relaxed);
            send(stream, &mut scratch, message, bytes, over)?;
            stream.shutdown(Shutdown::Write)?;
            receive(stream, &mut scratch, |_| ())
        }
    }
}

#[cfg(test)]
mod tests;
