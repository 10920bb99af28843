//! Connections: a few numbers each.

use std::error::Error;
use std::time::Instant;

use peer_common::{HEADER, Job, MARK};

use crate::segment::{Ends, MSS, Segment};

/// What is sent at once in bulk: as many whole segments as a packet of IPv4 holds.
pub(crate) const BULK: usize = 44 * MSS;

/// The kernel that sends bulk may have few packets in flight before it has got so many bytes. Then
/// each is acknowledged, and later every other one.
const SLOW_START: u64 = 4 << 20;

/// A connection.
#[derive(Default)]
pub(crate) struct Flow {
    pub(crate) ends: Ends,
    snd_una: u32,
    pub(crate) snd_nxt: u32,
    pub(crate) rcv_nxt: u32,
    /// The client's window, and its shift, if it has offered one.
    window: u32,
    pub(crate) shift: Option<u8>,
    header: Vec<u8>,
    /// None before the header is whole.
    job: Option<Job>,
    /// Bytes of requests that are not answered, or all that were discarded.
    waiting: u64,
    /// Packets that are not acknowledged.
    pub(crate) unacked: u32,
    /// When bulk ends that is sent; none if there is no more of it.
    until: Option<Instant>,
}

/// What is due after a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// An acknowledgement.
    Ack,
    /// So many answers of so many bytes.
    Answers(u64, usize),
}

/// What leaves next of bulk that is sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, before the client has opened its window further, or for good.
    Nothing,
    /// So many bytes.
    Block(usize),
    /// The end of our direction.
    End,
}

impl Flow {
    /// Of a SYN.
    pub(crate) fn begin(segment: &Segment<'_>) -> Flow {
        Flow {
            ends: segment.ends,
            rcv_nxt: segment.seq.wrapping_add(1),
            shift: segment.shift(),
            ..Flow::default()
        }
    }

    /// Takes the acknowledgement and the window of a segment.
    pub(crate) fn acknowledged(&mut self, segment: &Segment<'_>) {
        self.snd_una = segment.ack;
        self.window = u32::from(segment.window) << self.shift.unwrap_or(0);
    }

    /// Takes what has come in order.
    pub(crate) fn take(&mut self, mut payload: &[u8]) -> Result<Due, Box<dyn Error>> {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(payload.len() as u32);
        if self.job.is_none() {
            let rest = HEADER - self.header.len();
            let (header, behind) = payload.split_at(rest.min(payload.len()));
            self.header.extend_from_slice(header);
            payload = behind;
            let Ok(header) = <&[u8; HEADER]>::try_from(self.header.as_slice()) else {
                return Ok(Due::Ack);
            };
            let job = Job::parse(header)?;
            if let Job::Send { time, .. } = job {
                self.until = Some(Instant::now() + time);
            }
            self.job = Some(job);
        }
        self.waiting += payload.len() as u64;
        Ok(match self.job {
            Some(Job::Answer { size }) if self.waiting >= size as u64 => {
                let answers = self.waiting / size as u64;
                self.waiting %= size as u64;
                Due::Answers(answers, size)
            }
            Some(Job::Discard) if payload.last() == Some(&MARK) => Due::Answers(1, 1),
            Some(Job::Discard) if payload.len() >= BULK && self.waiting > SLOW_START => {
                self.unacked += 1;
                if self.unacked < 2 { Due::Nothing } else { Due::Ack }
            }
            _ => Due::Ack,
        })
    }

    /// Whether the end of our direction waits for the end of bulk, and not for the client's.
    pub(crate) fn sends_bulk(&self) -> bool {
        matches!(self.job, Some(Job::Send { .. }))
    }

    /// Takes the next step of bulk.
    pub(crate) fn next(&mut self) -> Next {
        let Some(until) = self.until else { return Next::Nothing };
        if Instant::now() >= until {
            self.until = None;
            return Next::End;
        }
        let flight = self.snd_nxt.wrapping_sub(self.snd_una);
        match self.window.saturating_sub(flight) as usize {
            0 => Next::Nothing,
            room => Next::Block(room.min(BULK)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_across_segments() {
        let mut flow = Flow::default();
        assert_eq!(flow.take(b"a\0\0\0\x04").unwrap(), Due::Ack);
        assert_eq!(flow.take(b"\0\0\0\0xxxxyyyyz").unwrap(), Due::Answers(2, 4));
        assert_eq!((flow.waiting, flow.rcv_nxt), (1, 18));
        assert_eq!(flow.take(b"zzz").unwrap(), Due::Answers(1, 4));
        assert!(Flow::default().take(b"GET / HTT").is_err());
    }

    #[test]
    fn every_other_packet_of_bulk_is_acknowledged() {
        let mut flow = Flow::default();
        assert_eq!(flow.take(b"d\0\0\0\0\0\0\0\0").unwrap(), Due::Ack);
        let packet = vec![0; BULK];
        while flow.waiting <= SLOW_START - BULK as u64 {
            assert_eq!(flow.take(&packet).unwrap(), Due::Ack);
        }
        assert_eq!(flow.take(&packet).unwrap(), Due::Nothing);
        assert_eq!(flow.take(&packet).unwrap(), Due::Ack);
        flow.unacked = 0;
        assert_eq!(flow.take(b"short").unwrap(), Due::Ack);
        assert_eq!(flow.take(&[0, MARK]).unwrap(), Due::Answers(1, 1));
    }

    #[test]
    fn bulk_keeps_to_the_window_and_ends() {
        let mut flow = Flow::default();
        assert_eq!(flow.take(b"s\0\0\0\x80\0\0\xff\xff").unwrap(), Due::Ack);
        assert!(flow.sends_bulk());
        flow.window = 100_000;
        assert_eq!(flow.next(), Next::Block(BULK));
        flow.snd_nxt = BULK as u32;
        assert_eq!(flow.next(), Next::Block(100_000 - BULK));
        flow.snd_nxt = 200_000;
        assert_eq!(flow.next(), Next::Nothing, "a window that has shrunk");
        flow.until = Some(Instant::now());
        assert_eq!((flow.next(), flow.next()), (Next::End, Next::Nothing));
    }
}
