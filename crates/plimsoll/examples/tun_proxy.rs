//! A transparent proxy for everything that is routed into a TUN device.
//!
//! ```sh
//! sudo target/release/examples/tun_proxy plim0 &
//! sudo ip address add 10.9.0.1/24 dev plim0
//! sudo ip route add 198.51.100.0/24 dev plim0
//! curl http://198.51.100.7/
//! ```
//!
//! It needs root, or a device that root has made (`ip tuntap add dev plim0 mode tun user $USER`).
//! Each connection is dialled by the host's sockets before it is accepted. Where the host would
//! route the destination into the device again, it would go round in a circle: route into it only
//! what the proxy reaches in another way, or run it in a network namespace of its own.

use std::io;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use plimsoll::device::tun::{self, TunConfig};
use plimsoll::gate::{GateConfig, GatedListener, Incoming, Reject, Unreachable};
use plimsoll::{Stack, TcpStream};

fn serve(incoming: Incoming) -> io::Result<()> {
    let to = incoming.destination();
    match std::net::TcpStream::connect_timeout(&to, Duration::from_secs(10)) {
        Ok(upstream) => relay(&incoming.accept().wait()?, &upstream),
        Err(error) => {
            incoming.reject(match error.kind() {
                io::ErrorKind::ConnectionRefused => Reject::Rst,
                io::ErrorKind::NetworkUnreachable => Reject::Icmp(Unreachable::Network),
                _ => Reject::Icmp(Unreachable::Host),
            });
            Ok(())
        }
    }
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "plimsoll%d".to_owned());
    let device = tun::open(TunConfig { name, up: true, ..TunConfig::default() })?;
    let stack = Stack::builder().device(device).any_address().build()?;
    println!("{}: route into it what is to be proxied", stack.interfaces()[0].name);
    let listener = GatedListener::bind_any(&stack, GateConfig::default())?;
    loop {
        let incoming = listener.incoming().wait()?;
        println!("{} wants {}", incoming.peer(), incoming.destination());
        thread::spawn(move || {
            if let Err(error) = serve(incoming) {
                eprintln!("a connection has failed: {error}");
            }
        });
    }
}
