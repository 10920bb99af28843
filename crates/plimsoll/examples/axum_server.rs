//! A web server of axum, reached over TUN.
//!
//! ```sh
//! cargo build -p plimsoll --features axum --example axum_server
//! sudo ip tuntap add dev plimsoll0 mode tun user "$USER"
//! sudo ip addr add 192.0.2.1/24 dev plimsoll0
//! sudo ip link set plimsoll0 up
//! target/debug/examples/axum_server plimsoll0 &
//! curl http://192.0.2.2/
//! ```

use axum::Router;
use axum::routing::get;
use plimsoll::Stack;
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::net::{self, TcpListener};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "plimsoll0".into());
    let device = tun::open(TunConfig::default().name(name))?;
    let stack = Stack::builder().device(device).address("192.0.2.2/24").build()?;
    net::set_default(Some(&stack));

    let listener = TcpListener::bind("192.0.2.2:80").await?;
    let routes = Router::new().route("/", get(async || "Hello, World!\n"));
    axum::serve(listener, routes).await?;
    Ok(())
}
