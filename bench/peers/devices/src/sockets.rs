//! The kernel's own sockets, beside which the devices stand.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::echo::{DISCARD, ECHO, Sink};
use crate::failure::{Endless, Failure, Named};
use crate::sys;

/// `UDP_GRO`: datagrams that arrived together are read together.
const UDP_GRO: libc::c_int = 104;

/// Bytes that a socket keeps, like those of the other ways.
const DEEP: libc::c_int = 8 << 20;

/// One thread answers, and one counts.
pub(crate) fn answer(address: IpAddr, limit: Duration) -> Endless {
    let bind = |port| UdpSocket::bind(SocketAddr::new(address, port));
    let echo = bind(ECHO).named("binding the socket of the echo")?;
    let sink = bind(DISCARD).named("binding the socket of the sink")?;
    sys::set_option(&sink, libc::SOL_UDP, UDP_GRO, &1).named("UDP_GRO")?;
    for socket in [&echo, &sink] {
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &DEEP)
            .named("SO_RCVBUFFORCE")?;
    }
    thread::spawn(move || count(&sink, limit));
    crate::ready()?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (count, from) = echo.recv_from(&mut buffer).named("recvfrom")?;
        echo.send_to(&buffer[..count], from).named("sendto")?;
    }
}

fn count(socket: &UdpSocket, limit: Duration) -> Result<(), Failure> {
    let (mut sink, mut buffer) = (Sink::new(limit), vec![0; 1 << 16]);
    loop {
        sink.count(socket.recv(&mut buffer).named("recv")?);
    }
}
