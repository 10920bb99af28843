//! Hosts behind a router, on the kernel's sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use anyhow::{Context, Result};

use super::options::Options;
use super::workload::say;
use crate::dns;

/// Answers questions for names at `ADDRESS` and `--and ADDRESS`, and connections at port 80, until
/// it is ended.
pub(super) fn serve(options: &Options) -> Result<()> {
    let second: SocketAddr = options.text("and").context("--and")?.parse().context("--and")?;
    let listener = TcpListener::bind("[::]:80").context("listening")?;
    thread::spawn(move || listener.incoming().for_each(drop));
    let sockets = [options.address(), second].map(UdpSocket::bind);
    let servers = sockets.map(|socket| socket.map(|socket| thread::spawn(move || names(&socket))));
    say("ready")?;
    for server in servers {
        server.context("binding")?.join().expect("a server does not panic")?;
    }
    Ok(())
}

/// Answers questions for names at `ADDRESS` over UDP and TCP (RFC 7766), until it is ended.
pub(super) fn names_of(options: &Options) -> Result<()> {
    let listener = TcpListener::bind(options.address()).context("listening")?;
    let socket = UdpSocket::bind(options.address()).context("binding")?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that sends nonsense loses its connection.
            thread::spawn(move || while answer_one(&mut stream).is_ok() {});
        }
    });
    say("ready")?;
    names(&socket)
}

/// Answers one question of a connection.
fn answer_one(stream: &mut TcpStream) -> Result<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query)?;
    let answer = dns::answer(&query)?;
    let len = u16::try_from(answer.len()).context("an answer is short")?;
    stream.write_all(&[&len.to_be_bytes()[..], &answer].concat())?;
    Ok(())
}

/// Answers questions to the group of mDNS that arrive at the interface with this address.
pub(super) fn mdns(options: &Options) -> Result<()> {
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let interface: Ipv4Addr =
        options.text("interface").context("--interface")?.parse().context("--interface")?;
    let socket = UdpSocket::bind(options.address()).context("binding")?;
    socket.join_multicast_v4(&group, &interface).context("joining the group")?;
    say("ready")?;
    names(&socket)
}

/// Asks a group once (RFC 6762, section 5.1), and says who answers and what.
pub(super) fn mdns_ask(options: &Options) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("binding")?;
    socket.set_read_timeout(Some(options.seconds("seconds", 5.0)?)).context("a timeout")?;
    // One question: the address of "host.local".
    let mut query = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4];
    query.extend(b"host\x05local\0\0\x01\0\x01");
    socket.send_to(&query, options.address()).context("asking")?;
    let mut buf = [0; 2048];
    let (len, from) = socket.recv_from(&mut buf).context("waiting for an answer")?;
    let data = buf[..len].last_chunk::<4>().context("an answer without an address")?;
    say(&format!("{from} says {}", Ipv4Addr::from(*data)))
}

fn names(socket: &UdpSocket) -> Result<()> {
    let mut buf = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buf).context("receiving")?;
        socket.send_to(&dns::answer(&buf[..len])?, from).context("answering")?;
    }
}
