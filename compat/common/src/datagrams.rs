//! Datagrams with both of their addresses.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use plimsoll::{Received, Slice, UdpSocket, UdpTransmit};

/// A datagram that has arrived.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The payload.
    pub data: Slice,
    /// The sender.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
}

/// Reads the datagrams of a socket for any address, one at a time.
#[derive(Debug)]
pub struct DatagramReader {
    socket: UdpSocket,
    /// Datagrams that were read together, of which some are left.
    train: Option<(Slice, Received)>,
}

impl DatagramReader {
    /// Reads from `socket`, which is made non-blocking.
    ///
    /// # Errors
    /// None at present.
    pub fn new(socket: UdpSocket) -> io::Result<DatagramReader> {
        socket.set_nonblocking(true)?;
        Ok(DatagramReader { socket, train: None })
    }

    /// Waits for the next datagram; `None` is the end of the stack.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Datagram>> {
        loop {
            if let Some(datagram) = self.next_of_train() {
                return Poll::Ready(Some(datagram));
            }
            match self.socket.recv_shared() {
                Ok(train) => self.train = Some(train),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if ready!(self.socket.poll_recv_ready(cx)).is_err() {
                        return Poll::Ready(None);
                    }
                }
                Err(_) => return Poll::Ready(None),
            }
        }
    }

    fn next_of_train(&mut self) -> Option<Datagram> {
        let (data, read) = self.train.as_mut()?;
        let len = if read.stride == 0 { data.len() } else { read.stride.min(data.len()) };
        let datagram = Datagram {
            data: data.split_to(len),
            from: read.info.from,
            to: SocketAddr::new(read.info.to, read.info.to_port),
        };
        if data.is_empty() {
            self.train = None;
        }
        Some(datagram)
    }
}

/// How a datagram is sent from one address to another.
pub fn transmit(from: SocketAddr, to: SocketAddr) -> UdpTransmit {
    UdpTransmit::default().to(Some(to)).from(Some(from.ip())).from_port(Some(from.port()))
}

/// Checks that a datagram can be sent from one address to another.
///
/// # Errors
/// `InvalidInput` if the addresses are of different families, a port is 0, or one of them is that
/// of no host.
pub fn check_datagram(from: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let bad = |what: &str| {
        let text = format!("a datagram from {from} to {to}: {what}");
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    };
    if from.is_ipv4() != to.is_ipv4() {
        return bad("the addresses are of different families");
    }
    if from.port() == 0 || to.port() == 0 {
        return bad("port 0 is nobody's");
    }
    let broadcast = |addr: SocketAddr| matches!(addr, SocketAddr::V4(v4) if v4.ip().is_broadcast());
    if from.ip().is_unspecified() || from.ip().is_multicast() || broadcast(from) {
        return bad("no host can have sent it");
    }
    if to.ip().is_unspecified() {
        return bad("it is for no host");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_make_no_sense_are_named() {
        let refused = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
            check_datagram(from, to).err().map(|error| error.to_string())
        };
        assert_eq!(refused("192.0.2.1:1", "198.51.100.7:2"), None);
        assert_eq!(refused("[2001:db8::1]:1", "[2001:db8::2]:2"), None);
        let text = refused("[::1]:1", "192.0.2.1:2").expect("it is refused");
        assert_eq!(
            text,
            "a datagram from [::1]:1 to 192.0.2.1:2: the addresses are of different families"
        );
        for (from, to) in [
            ("192.0.2.1:0", "198.51.100.7:2"),
            ("192.0.2.1:1", "198.51.100.7:0"),
            ("0.0.0.0:1", "198.51.100.7:2"),
            ("224.0.0.251:1", "198.51.100.7:2"),
            ("255.255.255.255:1", "198.51.100.7:2"),
            ("192.0.2.1:1", "0.0.0.0:2"),
        ] {
            assert!(refused(from, to).is_some(), "{from} to {to}");
        }
    }
}
