//! An echo over a link in memory. One thread runs two stacks and their applications: each stack is
//! a task of the runtime.
//!
//! `cargo run -p plimsoll --features tokio --example echo`

use plimsoll::Stack;
use plimsoll::device::memory_link;
use plimsoll::net::{self, Driver, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ADDRESS: &str = "192.0.2.2:7";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = memory_link::pair(Default::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build_without_thread()?;
    let server = Stack::builder().device(there).address("192.0.2.2/24").build_without_thread()?;
    tokio::spawn(Driver::new(&client)?);
    tokio::spawn(Driver::new(&server)?);

    // The server's part of the program has no reference to a stack; it runs in the stack's scope.
    let listener = net::scope(&server, TcpListener::bind(ADDRESS)).await?;
    tokio::spawn(async move {
        while let Ok((mut stream, peer)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let copied = tokio::io::copy(&mut from, &mut to).await;
                println!("{peer}: {copied:?}");
            });
        }
    });

    let mut stream = TcpStream::connect_on(&client, ADDRESS).await?;
    for word in ["ahoy", "load line"] {
        stream.write_all(word.as_bytes()).await?;
        let mut heard = vec![0; word.len()];
        stream.read_exact(&mut heard).await?;
        println!("said {word:?}, heard {:?}", String::from_utf8_lossy(&heard));
    }
    stream.shutdown().await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
