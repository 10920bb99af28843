//! Many connections that say little: peers who do not read, and peers who do not finish.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use serde_json::json;

use super::super::options::Options;
use super::super::workload::say;
use super::many_descriptors;

/// How long it may take until all have connected.
const BUILD_UP: Duration = Duration::from_secs(50);

/// `crowd ADDRESS --kind KIND --count N --seconds S`, where the kind is
/// - `closed`: ask for the file `large`, and never read,
/// - `silent`: connect, and never read what comes,
/// - `drip`: send a header that never ends, one byte a second.
///
/// The time counts from when all have connected, or no more could in [`BUILD_UP`].
pub(crate) fn crowd(options: &Options) -> Result<()> {
    many_descriptors()?;
    let count: usize = options.get("count", 100)?;
    let time = options.seconds("seconds", 5.0)?;
    let kind = options.text("kind").unwrap_or("silent");
    let first: &[u8] = match kind {
        "closed" => b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
        "silent" => b"",
        "drip" => b"GET /small HTTP/1.1\r\nHost: x\r\nX: ",
        other => bail!("no crowd is called `{other}`"),
    };
    let begun = Instant::now();
    let mut peers = Vec::new();
    for _ in 0..count {
        if begun.elapsed() > BUILD_UP {
            break;
        }
        let Ok(mut stream) = join(options.address()) else { continue };
        if stream.write_all(first).is_ok() {
            peers.push(stream);
        }
    }
    say(&json!({ "ready": true, "peers": peers.len() }).to_string())?;
    let start = Instant::now();
    while start.elapsed() < time {
        if kind == "drip" {
            // A full socket or a closed one: the others go on.
            peers.iter_mut().for_each(|peer| drop(peer.write(b"a")));
        }
        thread::sleep(Duration::from_secs(1).min(time.saturating_sub(start.elapsed())));
    }
    say(&json!({ "peers": peers.len() }).to_string())
}

/// Connects with the smallest receive buffer, which must be set before the SYN.
fn join(address: SocketAddr) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, 2048)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(Duration::from_secs(2)))?;
    connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}
