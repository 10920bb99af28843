//! A transparent proxy for everything that is routed into a TUN device.
//!
//! ```sh
//! cargo build -p plimsoll --features tokio --example tun_proxy
//! sudo target/debug/examples/tun_proxy &
//! sudo ip netns add inside                            # the programs that shall use the proxy
//! sudo ip link set plimsoll0 netns inside
//! sudo ip -n inside address add 192.0.2.2/24 dev plimsoll0
//! sudo ip -n inside link set plimsoll0 up
//! sudo ip -n inside route add default dev plimsoll0
//!
//! sudo ip address add 198.51.100.7/32 dev lo          # a server that the host reaches
//! python3 -m http.server --bind 198.51.100.7 8000 &
//! sudo ip netns exec inside curl http://198.51.100.7:8000/
//! ```
//!
//! It needs root, or a device that root has created
//! (`ip tuntap add dev plimsoll0 mode tun user $USER`). The proxy dials through the host's sockets.
//! The network namespace keeps these connections apart from those of the device. Without one, a
//! connection that the host routes into the device again is proxied again, without end: route only
//! destinations that the proxy reaches in another way. A test runs `main`.

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
