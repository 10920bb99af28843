//! Packets on their way into the stack and out of it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::{Context, Poll};

use plimsoll::Packet;
use plimsoll::device::channel::{ChannelSender, SendError};

/// The addresses in the IP header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
}

/// Reads the IP header of `packet`, as far as it says which bytes there have to be. The stack looks
/// at the rest.
///
/// # Errors
/// `InvalidInput` if it is no IP packet, has fewer bytes than it says, or more than 65,535; the
/// text says what is wrong.
pub fn header(packet: &[u8]) -> io::Result<Header> {
    let bad = |what: String| io::Error::new(ErrorKind::InvalidInput, format!("packet: {what}"));
    let short = |least: usize| bad(format!("{} bytes, where {least} are needed", packet.len()));
    if packet.len() > usize::from(u16::MAX) {
        return Err(bad(format!("{} bytes, more than 65535", packet.len())));
    }
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let fixed: &[u8; 20] = packet.first_chunk().ok_or_else(|| short(20))?;
            let header = usize::from(fixed[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            if header < 20 || total < header {
                return Err(bad(format!(
                    "an IPv4 header of {header} in a packet of {total} bytes"
                )));
            }
            if packet.len() < total {
                return Err(short(total));
            }
            let [source, destination] = [12, 16].map(|at| {
                Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]).into()
            });
            Ok(Header { source, destination })
        }
        Some(6) => {
            let fixed: &[u8; 40] = packet.first_chunk().ok_or_else(|| short(40))?;
            let total = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            if packet.len() < total {
                return Err(short(total));
            }
            let [source, destination] = [8, 24].map(|at| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&fixed[at..at + 16]);
                Ipv6Addr::from(octets).into()
            });
            Ok(Header { source, destination })
        }
        Some(version) => Err(bad(format!("IP version {version}, neither 4 nor 6"))),
        None => Err(short(20)),
    }
}

/// The way of packets into the stack, which may be closed.
#[derive(Debug)]
pub struct Inlet(Option<ChannelSender>);

impl Inlet {
    /// An open one.
    pub fn new(sender: ChannelSender) -> Inlet {
        Inlet(Some(sender))
    }

    /// Waits until there is room for a packet.
    ///
    /// # Errors
    /// `BrokenPipe` if it was closed or the stack has ended.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Some(sender) => sender.poll_ready(cx).map_err(io::Error::from),
            None => Poll::Ready(Err(closed())),
        }
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// `BrokenPipe` as [`poll_ready`](Self::poll_ready); `WouldBlock` if that was not asked first
    /// and there is no room; `InvalidInput` if the packet is longer than an IP packet can be.
    pub fn send(&mut self, packet: impl Into<Packet>) -> io::Result<()> {
        let sender = self.0.as_mut().ok_or_else(closed)?;
        sender.try_send(packet.into()).map_err(|error| match error {
            SendError::Full(_) => ErrorKind::WouldBlock.into(),
            SendError::Closed(_) => closed(),
            other => io::Error::new(ErrorKind::InvalidInput, other),
        })
    }

    /// Closes it. When the stack has processed the packets sent so far, its interface goes down,
    /// and tasks that wait for a packet are notified of the end.
    pub fn close(&mut self) {
        if let Some(sender) = self.0.take() {
            sender.close("its user has closed the sink of packets");
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the stack takes no packets any more")
}

/// The bytes of a packet of the stack.
pub fn flattened(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.len());
    packet.parts().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_packet_is_named() {
        let refused = |bytes: &[u8]| {
            let error = header(bytes).expect_err("it is no packet");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            error.to_string()
        };
        assert_eq!(refused(&[]), "packet: 0 bytes, where 20 are needed");
        assert_eq!(refused(&[0x45; 19]), "packet: 19 bytes, where 20 are needed");
        assert_eq!(refused(&[0x60; 39]), "packet: 39 bytes, where 40 are needed");
        assert_eq!(refused(&[0x55; 40]), "packet: IP version 5, neither 4 nor 6");
        let mut v4 = [0; 20];
        v4[0] = 0x45;
        v4[3] = 21;
        assert_eq!(refused(&v4), "packet: 20 bytes, where 21 are needed");
        v4[0] = 0x44;
        assert_eq!(refused(&v4), "packet: an IPv4 header of 16 in a packet of 21 bytes");
        (v4[0], v4[3]) = (0x46, 20);
        assert_eq!(refused(&v4), "packet: an IPv4 header of 24 in a packet of 20 bytes");
        let mut v6 = [0; 40];
        (v6[0], v6[5]) = (0x60, 1);
        assert_eq!(refused(&v6), "packet: 40 bytes, where 41 are needed");
    }

    #[test]
    fn addresses_of_both_versions() {
        let mut v4 = [0; 24];
        (v4[0], v4[3]) = (0x45, 20);
        v4[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
        let told = header(&v4).expect("padding is no harm");
        assert_eq!(told.source.to_string(), "192.0.2.1");
        assert_eq!(told.destination.to_string(), "198.51.100.7");
        let mut v6 = [0; 40];
        (v6[0], v6[23], v6[39]) = (0x60, 1, 2);
        let told = header(&v6).expect("a packet without a payload");
        assert_eq!(
            (told.source.to_string(), told.destination.to_string()),
            ("::1".into(), "::2".into())
        );
    }
}
