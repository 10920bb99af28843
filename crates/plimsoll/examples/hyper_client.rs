//! A client of hyper fetches a page over a link in memory, from a server of axum.
//!
//! `cargo run -p plimsoll --features axum --example hyper_client`

use axum::Router;
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll::Stack;
use plimsoll::device::memory_link;
use plimsoll::net::{TcpListener, TcpStream};

const ADDRESS: &str = "192.0.2.2:80";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = memory_link::pair(Default::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build()?;
    let server = Stack::builder().device(there).address("192.0.2.2/24").build()?;

    let listener = TcpListener::bind_on(&server, ADDRESS).await?;
    let routes = Router::new().route("/", get(async || "Hello, World!\n"));
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let stream = TcpStream::connect_on(&client, ADDRESS).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/").header("host", ADDRESS).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    println!("{}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    print!("{}", String::from_utf8_lossy(&body));
    Ok(())
}
