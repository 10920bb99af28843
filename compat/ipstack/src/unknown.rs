//! [`IpStackUnknownTransport`]: packets that are neither TCP nor UDP.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use etherparse::IpNumber;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::arrival::Other;
use crate::network_packet::{NetworkPacket, Way};

/// By what the program's own packets reach the device.
#[derive(Clone, Debug)]
pub(crate) struct RawSender {
    packets: mpsc::Sender<Vec<u8>>,
    /// Identification of the next fragments (RFC 6864).
    ident: Arc<AtomicU32>,
    mtu: usize,
}

impl RawSender {
    /// A sender into `packets`, of packets of at most `mtu` bytes.
    pub(crate) fn new(packets: mpsc::Sender<Vec<u8>>, mtu: u16) -> RawSender {
        RawSender { packets, ident: Arc::default(), mtu: usize::from(mtu) }
    }
}

/// A packet of a protocol that is neither TCP nor UDP, and the way back to its sender.
///
/// ```
/// use ipstack::{IpNumber, IpStackUnknownTransport};
///
/// /// Answers an ICMP echo request (RFC 792).
/// fn answer(request: &IpStackUnknownTransport) -> std::io::Result<()> {
///     let mut reply = request.payload().to_vec();
///     let is_icmp = request.ip_protocol() == IpNumber::ICMP;
///     if is_icmp && reply.first() == Some(&8) && reply.len() >= 8 {
///         reply[0] = 0;
///         // One word of the sum is less by 0x0800.
///         let sum = u32::from(u16::from_be_bytes([reply[2], reply[3]])) + 0x0800;
///         let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
///         reply[2..4].copy_from_slice(&sum.to_be_bytes());
///         request.send(reply)?;
///     }
///     Ok(())
/// }
/// ```
pub struct IpStackUnknownTransport {
    /// Of an answer.
    way: Way,
    payload: Vec<u8>,
    sender: RawSender,
}

impl IpStackUnknownTransport {
    /// The packet that `other` describes.
    pub(crate) fn new(packet: &[u8], other: Other, sender: RawSender) -> IpStackUnknownTransport {
        let way = Way { src: other.dst, dst: other.src, protocol: other.protocol };
        IpStackUnknownTransport { way, payload: packet[other.payload].to_vec(), sender }
    }

    /// The sender of the packet.
    pub fn src_addr(&self) -> IpAddr {
        self.way.dst
    }

    /// To whom.
    pub fn dst_addr(&self) -> IpAddr {
        self.way.src
    }

    /// The bytes behind the IP header and its extensions.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The protocol of the payload.
    pub fn ip_protocol(&self) -> IpNumber {
        self.way.protocol
    }

    /// Sends `payload` to the sender, from the address that the packet was sent to. Checksums in it
    /// are the caller's. If it is longer than the MTU it leaves in IP fragments.
    ///
    /// # Errors
    /// `InvalidInput` if IP cannot carry it, `WouldBlock` if the device does not keep up (the
    /// packet, or the rest of its fragments, was not sent), `BrokenPipe` if the stack has ended.
    pub fn send(&self, payload: Vec<u8>) -> io::Result<()> {
        let ident = self.sender.ident.fetch_add(1, Ordering::Relaxed);
        for packet in self.way.packets(&payload, self.sender.mtu, ident)? {
            self.sender.packets.try_send(packet).map_err(|error| match error {
                TrySendError::Full(_) => {
                    io::Error::new(ErrorKind::WouldBlock, "the device does not keep up")
                }
                TrySendError::Closed(_) => {
                    io::Error::new(ErrorKind::BrokenPipe, "the stack has ended")
                }
            })?;
        }
        Ok(())
    }

    /// The packet that would carry the front of `payload` back to the sender. Its bytes are removed
    /// from `payload`: all of it, or as much as fits the MTU.
    ///
    /// # Errors
    /// `InvalidInput` if IP cannot carry it.
    pub fn create_rev_packet(&self, payload: &mut Vec<u8>) -> io::Result<NetworkPacket> {
        let room = self.sender.mtu.saturating_sub(self.way.header_len());
        let rest = payload.split_off(room.min(payload.len()));
        let front = std::mem::replace(payload, rest);
        self.way.packet(&front)
    }
}

impl fmt::Debug for IpStackUnknownTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("IpStackUnknownTransport");
        out.field("src", &self.src_addr()).field("dst", &self.dst_addr());
        out.field("protocol", &self.ip_protocol()).field("bytes", &self.payload.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(mtu: u16, queue: usize) -> (IpStackUnknownTransport, mpsc::Receiver<Vec<u8>>) {
        let (sender, packets) = mpsc::channel(queue);
        let (src, dst) = ([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
        let other = Other { src, dst, protocol: IpNumber::ICMP, payload: 1..3 };
        let sender = RawSender::new(sender, mtu);
        (IpStackUnknownTransport::new(&[0, 8, 9, 0], other, sender), packets)
    }

    #[test]
    fn an_answer_goes_back() {
        let (unknown, mut packets) = unknown(1500, 4);
        assert_eq!(unknown.payload(), [8, 9]);
        unknown.send(vec![0, 1]).unwrap();
        let packet = packets.try_recv().unwrap();
        assert_eq!(&packet[12..], [198, 51, 100, 7, 192, 0, 2, 1, 0, 1]);
    }

    #[test]
    fn a_full_queue_is_told() {
        let (unknown, packets) = unknown(1500, 1);
        unknown.send(vec![1]).unwrap();
        assert_eq!(unknown.send(vec![2]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(packets);
        assert_eq!(unknown.send(vec![3]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_packet_takes_what_fits() {
        let (unknown, _packets) = unknown(1500, 1);
        let mut payload = vec![5; 2000];
        let packet = unknown.create_rev_packet(&mut payload).unwrap();
        assert_eq!((packet.to_bytes().unwrap().len(), payload.len()), (1500, 520));
        assert_eq!(packet.dst_addr().ip(), unknown.src_addr());
    }
}
