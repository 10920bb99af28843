//! Sends for a protocol that expects loss, as QUIC does: datagrams that cannot leave are lost and
//! counted.

use std::sync::Arc;

use plimsoll_tcp::Instant;

use crate::error::SocketError;
use crate::limits::{MAX_DATAGRAM_V4, MAX_UDP_SEGMENTS};
use crate::snmp::IpCounter;
use crate::sockets::udp::UdpEndpoint;
use crate::stack::Stack;
use crate::stack::udp::output::{Admission, Payload, UdpTransmit};

impl Stack {
    /// Sends `data`, cut into as many trains as it needs: all that one send takes is one datagram's
    /// length. All are admitted together, so that a full send queue refuses all or none.
    ///
    /// # Errors
    /// `WouldBlock` or `NetworkDown` if the first train cannot leave for now; nothing was sent
    /// then.
    pub(crate) fn send_udp_or_lose(
        &self,
        now: Instant,
        endpoint: &Arc<UdpEndpoint>,
        how: &UdpTransmit,
        data: &[u8],
    ) -> Result<(), SocketError> {
        let size = how.segment_size.unwrap_or(data.len()).max(1);
        let longest = (MAX_DATAGRAM_V4 / size).clamp(1, MAX_UDP_SEGMENTS) * size;
        let (first, rest) = data.split_at(longest.min(data.len()));
        let mut lost = 0;
        let mut send = |train: &[u8], admission| {
            let sent = self.send_udp_as(now, endpoint, how, Payload::Parts(&[train]), admission);
            if sent.is_err() {
                lost += train.len().div_ceil(size).max(1);
            }
            sent
        };
        let sent = send(first, Admission::BySendQueue);
        if let Err(error @ (SocketError::WouldBlock | SocketError::NetworkDown)) = sent {
            return Err(error);
        }
        for train in rest.chunks(longest) {
            let _counted = send(train, Admission::Granted);
        }
        if lost > 0 {
            let shard = self.pollers.snmp().shard();
            shard.add(IpCounter::UdpSendsLost, lost as u64);
        }
        Ok(())
    }
}
