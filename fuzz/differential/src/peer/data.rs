//! What the peer sends beside acknowledgements.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use super::Peer;
use crate::engine::Segment;
use crate::script::{Data, Odd, Place};

fn near(base: SeqNum, distance: i32) -> SeqNum {
    base + distance as u32
}

impl Peer {
    /// The segment of this step.
    pub fn data(&mut self, now: u64, data: &Data) -> Segment {
        if data.acks_all {
            self.rcv_nxt = self.rcv_nxt.max(self.snd_max);
        }
        let seq = match data.place {
            Place::Next => self.nxt,
            Place::Gap(bytes) => self.nxt + u32::from(bytes),
            Place::Back(bytes) => self.nxt - u32::from(bytes),
            Place::Una => self.una,
            Place::BehindUna(bytes) => self.una + u32::from(bytes),
            Place::BeforeUna(bytes) => self.una - u32::from(bytes),
            Place::Edge(distance) => near(self.edge, distance.into()),
        };
        let mut repr = self.plain_ack(now).repr;
        repr.seq = seq;
        if data.psh {
            repr.flags |= TcpFlags::PSH;
        }
        if data.fin {
            repr.flags |= TcpFlags::FIN;
        }
        if let Some(urgent) = data.urgent {
            repr.flags |= TcpFlags::URG;
            repr.urgent = urgent;
        }
        let len = u32::from(data.len);
        let end = seq + len + u32::from(data.fin);
        self.nxt = self.nxt.max(end);
        let mut segment = self.segment(repr, len);
        segment.segs = u16::from(data.segs).clamp(1, data.len.max(1));
        segment.ecn = if data.ce { 3 } else { u8::from(self.asked_ecn && self.setup.ecn) * 2 };
        segment
    }

    /// Small segments with gaps between them.
    pub fn scatter(&mut self, now: u64, count: u16, gap: u8, len: u8) -> Vec<Segment> {
        let mut segments = Vec::new();
        for _ in 0..count {
            let mut repr = self.header(now);
            repr.seq = self.nxt + u32::from(gap);
            self.nxt = repr.seq + u32::from(len);
            segments.push(self.segment(repr, len.into()));
        }
        segments
    }

    /// The segment of a step that no honest peer takes.
    pub fn odd(&mut self, now: u64, odd: Odd) -> Segment {
        let una = self.una;
        let repr = self.plain_ack(now).repr;
        match odd {
            Odd::Rst(distance) => {
                let seq = near(una, distance);
                self.bare(TcpRepr { seq, flags: TcpFlags::RST, ..repr })
            }
            Odd::RstAck => {
                let flags = TcpFlags::RST | TcpFlags::ACK;
                self.bare(TcpRepr { seq: SeqNum(0), ack: self.snd_max, flags, ..repr })
            }
            Odd::Syn(distance) => {
                let mut segment = self.syn(now, false);
                segment.repr.seq = near(una, distance);
                segment
            }
            Odd::SynAck(distance) => {
                let mut segment = self.syn_ack(now, false);
                segment.repr.ack = near(segment.repr.ack, distance);
                segment
            }
            Odd::Fin(distance) => {
                let seq = near(self.nxt, distance.into());
                self.nxt = self.nxt.max(seq + 1);
                self.bare(TcpRepr { seq, flags: TcpFlags::FIN | TcpFlags::ACK, ..repr })
            }
            Odd::NoAck(len) => {
                let flags = TcpFlags::PSH;
                self.segment(TcpRepr { flags, ack: SeqNum(0), ..repr }, len.into())
            }
            Odd::Flags(flags, len) => {
                let flags = TcpFlags(flags);
                let len = if flags.contains(TcpFlags::SYN) { 0 } else { len };
                self.segment(TcpRepr { flags, ..repr }, len.into())
            }
            Odd::Probe => self.bare(TcpRepr { seq: una - 1, ..repr }),
            _ => self.stamped(repr, odd),
        }
    }

    /// Something is wrong with the timestamps.
    fn stamped(&mut self, mut repr: TcpRepr, odd: Odd) -> Segment {
        let mut len = 0;
        match (odd, &mut repr.options.timestamps) {
            (Odd::OldStamp(back, bytes), Some(stamps)) => {
                stamps.val = stamps.val.wrapping_sub(back.into());
                len = bytes;
            }
            (Odd::WrongEcho(distance), Some(stamps)) => {
                stamps.ecr = stamps.ecr.wrapping_sub(distance.into());
            }
            (Odd::NoStamp(bytes), stamps) => {
                *stamps = None;
                len = bytes;
            }
            _ => {}
        }
        self.nxt = self.nxt.max(repr.seq + u32::from(len));
        self.segment(repr, len.into())
    }

    fn bare(&self, repr: TcpRepr) -> Segment {
        self.segment(repr, 0)
    }
}
