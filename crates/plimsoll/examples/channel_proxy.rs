//! A transparent proxy whose packets come over a channel. In place of `guest` here there would be a
//! VPN client, a sandbox or a virtual machine.
//!
//! `cargo run -p plimsoll --features tokio --example channel_proxy`
//!
//! It needs no privilege and ends by itself. A guest with a stack of its own opens connections to
//! addresses that no host here has. The proxy dials the host's loopback in their place. If that
//! fails, it refuses the connection before the guest sees it open.

use std::io;

use plimsoll::device::channel::{ChannelReceiver, ChannelSender};
use plimsoll::gate::{GateConfig, Reject};
use plimsoll::net::{GatedListener, Incoming, TcpStream};
use plimsoll::{Stack, device};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (device, packets) = device::channel(Default::default())?;
    let stack = Stack::builder().device(device).any_address().build()?;
    let (to_stack, from_stack) = packets.split();
    let guest = guest(to_stack, from_stack)?;

    let listener = GatedListener::bind_any_on(&stack, GateConfig::default())?;
    tokio::spawn(async move {
        while let Ok(incoming) = listener.incoming().await {
            println!("{} wants {}", incoming.peer(), incoming.destination());
            tokio::spawn(proxy(incoming));
        }
    });
    visit(&guest).await
}

/// Dials what is wanted, and then accepts or refuses. Carries bytes until both ways have ended.
async fn proxy(incoming: Incoming) -> io::Result<()> {
    let port = incoming.destination().port();
    let dialled = tokio::select! {
        dialled = tokio::net::TcpStream::connect(("127.0.0.1", port)) => dialled,
        _ = incoming.cancelled() => return Ok(()), // the guest has given up
    };
    match dialled {
        Ok(mut upstream) => {
            let mut stream = incoming.accept().await?;
            copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
        }
        Err(error) => {
            incoming.reject(Reject::for_dial_error(&error));
            Ok(())
        }
    }
}

/// Another stack, whose packets go to the proxy. With bytes from elsewhere it would be
/// `to_stack.send(bytes.to_vec())`, and `from_stack.recv()`, whose packets have their bytes as
/// slices; both ends are also `AsyncRead` and `AsyncWrite`, of one packet each.
fn guest(
    to_stack: ChannelSender,
    from_stack: ChannelReceiver,
) -> Result<Stack, Box<dyn std::error::Error>> {
    let (device, packets) = device::channel(Default::default())?;
    let (to_guest, from_guest) = packets.split();
    tokio::spawn(carry(from_guest, to_stack));
    tokio::spawn(carry(from_stack, to_guest));
    Ok(Stack::builder().device(device).address("10.0.0.2/24").build()?)
}

/// Carries packets until either side ends.
async fn carry(mut from: ChannelReceiver, mut to: ChannelSender) {
    while let Some(packet) = from.recv().await {
        if to.send(packet).await.is_err() {
            return;
        }
    }
}

/// The guest: it reaches an echo under another address, and a port without a listener.
async fn visit(guest: &Stack) -> Result<(), Box<dyn std::error::Error>> {
    let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = echo.local_addr()?.port();
    tokio::spawn(async move {
        let (mut stream, _peer) = echo.accept().await?;
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await
    });

    let stream = TcpStream::connect_on(guest, ("198.51.100.7", port)).await?;
    let (mut from, mut to) = stream.into_split();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let data = sent.clone();
    tokio::spawn(async move {
        to.write_all(&data).await?;
        to.shutdown().await
    });
    let mut got = Vec::new();
    from.read_to_end(&mut got).await?;
    assert!(got == sent, "every byte comes back");
    println!("{} bytes there and back", got.len());

    let refused =
        TcpStream::connect_on(guest, "198.51.100.7:1").await.expect_err("nobody is there");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    println!("198.51.100.7:1 is refused, as it would be without a proxy: {refused}");
    Ok(())
}
