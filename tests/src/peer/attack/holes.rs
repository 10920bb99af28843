//! Connections whose data comes as single bytes with holes between them.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, send, socket, sockopt,
};
use serde_json::json;

use super::super::options::Options;
use super::super::workload::say;
use super::spray::{Part, ipv4, segment};

/// How long it may take until all have connected.
const BUILD_UP: Duration = Duration::from_secs(50);

/// `holes ADDRESS --count N --bytes M --seconds S`: on each of N connections, M single bytes, every
/// other of a stretch. The kernel opens the connections; the bytes come from a raw socket. The
/// namespace must have timestamps off, since the raw segments have none. The time counts from when
/// all was sent.
pub(crate) fn holes(options: &Options) -> Result<()> {
    let to = options.address();
    let count: usize = options.get("count", 20)?;
    let bytes: u32 = options.get("bytes", 2000)?;
    let time = options.seconds("seconds", 5.0)?;
    let IpAddr::V4(host) = to.ip() else { bail!("the holes are IPv4") };
    let listen = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP))?;
    let second = Some(Duration::from_secs(1));
    sockopt::set_socket_timeout(&listen, sockopt::Timeout::Recv, second)?;
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
    rustix::net::connect(&raw, &SocketAddr::new(to.ip(), 0))?;
    let start = Instant::now();
    let mut peers = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
        let numbers = first_numbers(&listen, stream.local_addr()?.port(), start + BUILD_UP)?;
        peers.push((stream, numbers));
    }
    let mut sent = 0_u64;
    for (stream, (seq, ack)) in &peers {
        let local = stream.local_addr()?;
        let IpAddr::V4(own) = local.ip() else { bail!("the connection is IPv4") };
        for n in 0..bytes {
            let seq = seq.wrapping_add(2 * n + 1);
            let part = Part { seq, ack: *ack, flags: 0x10, options: &[], data: b"x" };
            let ports = (local.port(), to.port());
            let body = segment(own.octets(), host.octets(), ports, part);
            let packet = ipv4(own.octets(), host.octets(), 6, 0, &body);
            sent += u64::from(send(&raw, &packet, SendFlags::empty()).is_ok());
        }
    }
    say(&json!({ "ready": true, "peers": peers.len() }).to_string())?;
    thread::sleep(time);
    say(&json!({ "connections": peers.len(), "sent": sent }).to_string())
}

/// What the SYN-ACK to a port of ours says: our next number and what we acknowledge.
fn first_numbers(socket: impl rustix::fd::AsFd, port: u16, limit: Instant) -> Result<(u32, u32)> {
    let mut room = [0; 2048];
    loop {
        ensure!(Instant::now() < limit, "no SYN-ACK to port {port} was seen");
        let (length, _) = recv(&socket, &mut room, RecvFlags::empty()).context("reading")?;
        let header = usize::from(room[0] & 15) * 4;
        let Some(tcp) = room[..length].get(header..header + 20) else { continue };
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        if tcp[13] & 0x12 == 0x12 && tcp[2..4] == port.to_be_bytes() {
            return Ok((word(8), word(4).wrapping_add(1)));
        }
    }
}
