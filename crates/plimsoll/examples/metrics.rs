//! A web server on Plimsoll's sockets that exposes the stack's metrics to Prometheus.
//!
//! ```sh
//! cargo run --example metrics --features axum,prometheus -- plimsoll0 &
//! ip address add 192.0.2.1/24 dev plimsoll0 && ip link set plimsoll0 up
//! curl http://192.0.2.2/metrics
//! ```

use axum::Router;
use axum::http::header;
use axum::routing::get;
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::net::{self, TcpListener};
use plimsoll::{Stack, prometheus};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or("plimsoll0".into());
    let device = tun::open(TunConfig::default().name(name))?;
    let stack = Stack::builder().device(device).address("192.0.2.2/24").build()?;
    net::set_default(Some(&stack));

    let listener = TcpListener::bind("192.0.2.2:80").await?;
    let page = async move || {
        let metrics = stack.metrics();
        println!("{} connections are established", metrics.connections.established);
        ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::page(&stack))
    };
    axum::serve(listener, Router::new().route("/metrics", get(page))).await?;
    Ok(())
}
