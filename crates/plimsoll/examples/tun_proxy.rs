//! A transparent proxy for everything that is routed into a TUN device.
//!
//! ```sh
//! cargo build -p plimsoll --features tokio --example tun_proxy
//! sudo target/debug/examples/tun_proxy plimsoll0 &
//! sudo ip address add 192.0.2.1/24 dev plimsoll0
//! sudo ip route add 198.51.100.0/24 dev plimsoll0
//! curl http://198.51.100.7/
//! ```
//!
//! It needs root, or a device that root has made
//! (`ip tuntap add dev plimsoll0 mode tun user $USER`). Each connection is dialled by the host's
//! sockets before it is accepted. Where the host would route the destination into the device again,
//! it would go round in a circle: route into it only what the proxy reaches in another way, or run
//! it in a network namespace of its own.

use std::io;

use plimsoll::Stack;
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::gate::{GateConfig, Reject};
use plimsoll::net::{GatedListener, Incoming};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "plimsoll0".into());
    let device = tun::open(TunConfig::default().name(name).up(true))?;
    let stack = Stack::builder().device(device).any_address().build()?;
    let listener = GatedListener::bind_any_on(&stack, GateConfig::default())?;
    println!("{}: route into it what is to be proxied", stack.interfaces()[0].name);
    loop {
        let incoming = listener.incoming().await?;
        tokio::spawn(async move {
            let (peer, wanted) = (incoming.peer(), incoming.destination());
            let outcome = proxy(incoming).await;
            println!("{peer} to {wanted}: {outcome:?}");
        });
    }
}

/// Dials what is wanted, and then accepts or refuses. Carries bytes until both ways have ended.
async fn proxy(incoming: Incoming) -> io::Result<(u64, u64)> {
    let dialled = tokio::select! {
        dialled = TcpStream::connect(incoming.destination()) => dialled,
        cancelled = incoming.cancelled() => return Err(io::Error::other(format!("{cancelled:?}"))),
    };
    match dialled {
        Ok(mut upstream) => {
            let mut stream = incoming.accept().await?;
            copy_bidirectional(&mut stream, &mut upstream).await
        }
        Err(error) => {
            incoming.reject(Reject::for_dial_error(&error));
            Err(error)
        }
    }
}
