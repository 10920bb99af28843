//! The reset for a segment that fits no connection (RFC 9293, section 3.10.7.1).
//!
//! Nothing is ever sent in answer to a reset, nor to or from an address that is not one host's.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr};

use crate::flow::FlowKey;
use crate::flow::is_unicast;

/// The header of the reset that answers `repr`, which has `payload_len` bytes of data, or `None` if
/// there must be none.
pub(crate) fn answer(key: &FlowKey, repr: &TcpRepr, payload_len: usize) -> Option<TcpRepr> {
    if repr.flags.contains(TcpFlags::RST) || !is_unicast(key.local) || !is_unicast(key.remote) {
        return None;
    }
    let (seq, ack, flags) = if repr.flags.contains(TcpFlags::ACK) {
        (repr.ack, SeqNum(0), TcpFlags::RST)
    } else {
        let control = u32::from(repr.flags.contains(TcpFlags::SYN))
            + u32::from(repr.flags.contains(TcpFlags::FIN));
        // A packet is far shorter than the sequence space.
        let seq_len = payload_len as u32 + control;
        (SeqNum(0), repr.seq + seq_len, TcpFlags::RST | TcpFlags::ACK)
    };
    Some(TcpRepr {
        src_port: repr.dst_port,
        dst_port: repr.src_port,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        options: TcpOptions::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FlowKey {
        let local = "192.0.2.1".parse().unwrap();
        let remote = "192.0.2.2".parse().unwrap();
        FlowKey { local, remote, local_port: 80, remote_port: 5 }
    }

    fn segment(flags: TcpFlags) -> TcpRepr {
        let (seq, ack) = (SeqNum(100), SeqNum(900));
        TcpRepr { src_port: 5, dst_port: 80, seq, ack, flags, ..TcpRepr::default() }
    }

    #[test]
    fn takes_its_sequence_number_from_the_ack() {
        let rst = answer(&key(), &segment(TcpFlags::ACK), 3).unwrap();
        assert_eq!((rst.seq, rst.flags), (SeqNum(900), TcpFlags::RST));
        assert_eq!((rst.src_port, rst.dst_port), (80, 5));
    }

    #[test]
    fn acknowledges_what_had_no_ack() {
        let rst = answer(&key(), &segment(TcpFlags::SYN), 3).unwrap();
        assert_eq!((rst.seq, rst.ack), (SeqNum(0), SeqNum(104)));
        assert_eq!(rst.flags, TcpFlags::RST | TcpFlags::ACK);
    }

    #[test]
    fn never_answers_a_reset_or_a_group() {
        assert_eq!(answer(&key(), &segment(TcpFlags::RST), 0), None);
        let group = FlowKey { local: "224.0.0.1".parse().unwrap(), ..key() };
        assert_eq!(answer(&group, &segment(TcpFlags::SYN), 0), None);
    }
}
