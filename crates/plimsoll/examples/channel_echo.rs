//! An echo over channel devices: two stacks whose packets the program carries itself, as a tunnel
//! does that encrypts them on the way. Each stack is a task of the runtime.
//!
//! `cargo run -p plimsoll --features tokio --example channel_echo`

use plimsoll::Stack;
use plimsoll::device::channel::{ChannelConfig, ChannelReceiver, ChannelSender};
use plimsoll::device::{self, Device};
use plimsoll::net::{Driver, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn std::error::Error>;

fn stack(device: Device, address: &str) -> Result<Stack, Failure> {
    let stack = Stack::builder().device(device).address(address).build_without_thread()?;
    tokio::spawn(Driver::new(&stack)?);
    Ok(stack)
}

/// Carries packets one way until one of the stacks has ended. A full queue makes it wait.
async fn carry(mut from: ChannelReceiver, mut to: ChannelSender) {
    while let Some(packet) = from.recv().await {
        if to.send(packet).await.is_err() {
            return;
        }
    }
}

async fn echo(listener: TcpListener) -> std::io::Result<()> {
    let (mut stream, _peer) = listener.accept().await?;
    let (mut reads, mut writes) = stream.split();
    tokio::io::copy(&mut reads, &mut writes).await?;
    writes.shutdown().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let (here, near) = device::channel(ChannelConfig::with_mtu(1420))?;
    let (there, far) = device::channel(ChannelConfig::with_mtu(1420))?;
    let (client, server) = (stack(here, "192.0.2.1/24")?, stack(there, "192.0.2.2/24")?);
    let (to_near, from_near) = near.split();
    let (to_far, from_far) = far.split();
    tokio::spawn(carry(from_near, to_far));
    tokio::spawn(carry(from_far, to_near));

    let listener = TcpListener::bind_on(&server, "192.0.2.2:7").await?;
    tokio::spawn(echo(listener));
    let mut stream = TcpStream::connect_on(&client, "192.0.2.2:7").await?;
    stream.write_all(b"ahoy").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("{answer}");
    Ok(())
}
