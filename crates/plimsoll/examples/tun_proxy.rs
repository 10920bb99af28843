//! A transparent proxy for everything that is routed into a TUN device.
//!
//! ```sh
//! cargo build -p plimsoll --features tokio --example tun_proxy
//! sudo target/debug/examples/tun_proxy &
//! sudo ip address add 192.0.2.1/24 dev plimsoll0
//! sudo ip route add 198.51.100.0/24 dev plimsoll0
//! curl http://198.51.100.7/
//! ```
//!
//! It needs root, or a device that root has created
//! (`ip tuntap add dev plimsoll0 mode tun user $USER`). The proxy dials through the host's sockets.
//! If the host routes that connection into the device again, it loops: route only destinations that
//! the proxy reaches in another way, or run it in a network namespace. A test runs `main`.

use plimsoll::Stack;
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::gate::{GateConfig, Reject};
use plimsoll::net::GatedListener;
use tokio::{io::copy_bidirectional, net::TcpStream};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = tun::open(TunConfig::default().name("plimsoll0").up(true))?;
    let stack = Stack::builder().device(device).any_address().build()?;
    let listener = GatedListener::bind_any_on(&stack, GateConfig::default())?;
    loop {
        let incoming = listener.incoming().await?; // a SYN, not answered yet
        tokio::spawn(async move {
            match TcpStream::connect(incoming.destination()).await {
                Ok(mut upstream) => {
                    let mut client = incoming.accept().await?; // answers with a SYN-ACK
                    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
                }
                Err(error) => {
                    incoming.reject(Reject::for_dial_error(&error)); // a reset, or ICMP
                    Ok(())
                }
            }
        });
    }
}
