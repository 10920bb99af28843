//! A transparent proxy whose packets come over a channel: what a VPN client, a sandbox or a virtual
//! machine hands over takes the place of `guest` here.
//!
//! ```sh
//! cargo run --release -p plimsoll --example channel_proxy
//! ```
//!
//! It needs no privilege and ends by itself. A guest with a stack of its own opens connections to
//! addresses that nobody here has; the proxy dials the host's loopback in their place, and refuses
//! what it cannot reach before the guest takes the connection for open.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::Duration;

use plimsoll::device::channel::{ChannelConfig, ChannelOffloads, ChannelReceiver, ChannelSender};
use plimsoll::device::{self, Device};
use plimsoll::gate::{GateConfig, GatedListener, Incoming, Reject, Unreachable};
use plimsoll::{Stack, TcpStream};

/// Dials what the guest wants, and answers the guest accordingly.
fn serve(incoming: Incoming, dial: impl Fn(SocketAddr) -> SocketAddr) -> io::Result<()> {
    let to = dial(incoming.destination());
    let upstream = match std::net::TcpStream::connect_timeout(&to, Duration::from_secs(10)) {
        Ok(upstream) => upstream,
        Err(error) => {
            incoming.reject(match error.kind() {
                io::ErrorKind::ConnectionRefused => Reject::Rst,
                _ => Reject::Icmp(Unreachable::Host),
            });
            return Ok(());
        }
    };
    let stream = incoming.accept().wait()?;
    relay(&stream, &upstream)
}

/// Carries bytes both ways. The end of one direction is passed on and leaves the other open.
fn relay(stream: &TcpStream, upstream: &std::net::TcpStream) -> io::Result<()> {
    thread::scope(|scope| {
        let up = scope.spawn(|| {
            io::copy(&mut &*stream, &mut &*upstream)?;
            upstream.shutdown(Shutdown::Write)
        });
        io::copy(&mut &*upstream, &mut &*stream)?;
        stream.shutdown(Shutdown::Write)?;
        up.join().expect("copying does not panic")
    })
}

/// Carries packets from one channel into another until either of them ends.
fn carry(mut from: ChannelReceiver, mut to: ChannelSender) {
    while let Some(packet) = from.blocking_recv() {
        if to.blocking_send(packet).is_err() {
            return;
        }
    }
}

/// Two devices, and threads that carry packets between their channels.
fn bridge() -> Result<(Device, Device), device::DeviceError> {
    // Whole super-segments travel: both ends cut and complete them only if they must.
    let offloads = ChannelOffloads::Segmentation;
    let config = |name: &str| ChannelConfig { name: name.into(), offloads, ..Default::default() };
    let (guest, channel) = device::channel(config("guest"))?;
    let (to_guest, from_guest) = channel.split();
    let (proxy, channel) = device::channel(config("proxy"))?;
    let (to_proxy, from_proxy) = channel.split();
    thread::spawn(|| carry(from_guest, to_proxy));
    thread::spawn(|| carry(from_proxy, to_guest));
    Ok((guest, proxy))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (guest, proxy) = bridge()?;
    let guest = Stack::builder().device(guest).address("10.0.0.2/24").build()?;
    let proxy = Stack::builder().device(proxy).any_address().build()?;

    // The service that the guest will reach under another address.
    let service = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = service.local_addr()?.port();
    thread::spawn(move || {
        for stream in service.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });

    let listener = GatedListener::bind_any(&proxy, GateConfig::default())?;
    thread::spawn(move || {
        while let Ok(incoming) = listener.incoming().wait() {
            println!("{} wants {}", incoming.peer(), incoming.destination());
            thread::spawn(move || {
                serve(incoming, |wanted| SocketAddr::new([127, 0, 0, 1].into(), wanted.port()))
            });
        }
    });

    let mut stream = TcpStream::connect(&guest, ("198.51.100.7", port))?;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let mut writer = stream.try_clone()?;
    let data = sent.clone();
    let writing = thread::spawn(move || -> io::Result<()> {
        writer.write_all(&data)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    writing.join().expect("writing does not panic")?;
    assert!(got == sent, "every byte comes back");
    println!("{} bytes there and back", got.len());

    let refused = TcpStream::connect(&guest, "198.51.100.7:1").expect_err("nobody is there");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    println!("198.51.100.7:1 is refused, as it would be without a proxy: {refused}");
    Ok(())
}
