//! TIME-WAIT without a connection: the few numbers that are kept for 2 MSL, and the effect of
//! segments on them (RFC 9293, section 3.10.7.4; RFC 6191; RFC 1337).

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr, Timestamps};

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::handshake::TimestampState;
use crate::segment::{Ecn, Segment};
use crate::signature::{Md5Key, room_for_digest};
use crate::time::{Instant, Nanos};

/// The least distance between the end of an old connection and the beginning of a new one in its
/// place (as on Linux).
const REUSE_GAP: u32 = 65_535 + 2;

/// The state of a connection in TIME-WAIT.
#[derive(Clone, Debug)]
pub struct TimeWait {
    local_port: u16,
    remote_port: u16,
    /// SND.NXT.
    snd_nxt: SeqNum,
    /// RCV.NXT.
    rcv_nxt: SeqNum,
    /// The window field of our ACKs.
    window: u16,
    ts: TimestampState,
    expires: Instant,
    last_ack: Option<Instant>,
    md5_key: Option<Md5Key>,
    /// IP_TOS or IPV6_TCLASS of the socket that was.
    tos: u8,
    /// ACK, and with Accurate ECN the last count of marks.
    flags: TcpFlags,
    ecn: Ecn,
}

/// The action for a segment that matched a [`TimeWait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeWaitAction {
    /// Drop the segment.
    Ignore,
    /// Answer with this header (no data), and drop the segment.
    Ack(TcpRepr),
    /// A new connection may take the place (RFC 6191): give the SYN to the listener. The ISS of the
    /// new connection must be `iss` or later.
    Reuse {
        /// Just after everything that the old connection can have sent.
        iss: SeqNum,
    },
    /// The entry has ended.
    Ended,
}

impl TimeWait {
    /// The key that signs segments of the connection, if there is one.
    pub fn md5_key(&self) -> Option<&Md5Key> {
        self.md5_key.as_ref()
    }

    /// IP_TOS or IPV6_TCLASS of the former socket, for our answers.
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// The ECN codepoint of our answers.
    pub fn ecn(&self) -> Ecn {
        self.ecn
    }

    /// The time at which the entry expires.
    pub fn expires(&self) -> Instant {
        self.expires
    }

    /// Whether a local connect may reuse the entry at `now` (Linux: `tcp_tw_reuse`): after a
    /// second, the timestamps distinguish old segments from new ones.
    pub fn may_connect_again(&self, now: Instant) -> Option<SeqNum> {
        let old_enough = now.nanos_since(self.ts.recent_at) > Nanos::from_secs(1);
        (self.ts.enabled && old_enough).then(|| self.snd_nxt + REUSE_GAP)
    }

    /// Processes a segment for the old connection. `listens` is whether a listener would accept a
    /// SYN; without one, the entry stays, and the SYN is answered like an old one.
    pub fn handle_segment(&mut self, cx: &Context, seg: &Segment, listens: bool) -> TimeWaitAction {
        let flags = seg.repr.flags;
        let stamps = seg.repr.options.timestamps;
        let paws_rejects = self.ts.paws_rejects(cx.now, stamps);
        let end = seg.repr.seq + seg.seq_len();
        let in_order = seg.repr.seq == self.rcv_nxt && end == seg.repr.seq;
        if flags.contains(TcpFlags::RST) {
            return self.on_rst(cx, paws_rejects || seg.repr.seq != self.rcv_nxt);
        }
        if flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK) {
            if listens && !paws_rejects && self.is_newer(seg) {
                cx.counters.bump(Counter::TimeWaitRecycled);
                return TimeWaitAction::Reuse { iss: self.snd_nxt + REUSE_GAP };
            }
            return self.ack(cx, paws_rejects);
        }
        if !paws_rejects && in_order && !flags.contains(TcpFlags::SYN) {
            // The ACK of a simultaneous close, or a duplicate.
            self.remember(cx, stamps);
            return TimeWaitAction::Ignore;
        }
        if !paws_rejects && flags.contains(TcpFlags::FIN) && end == self.rcv_nxt {
            // Our last ACK was lost: 2 MSL begin again.
            self.expires = cx.now + Nanos::from(cx.config.tcp_fin_timeout);
            self.remember(cx, stamps);
        }
        // With or without an ACK bit, as on Linux.
        self.ack(cx, paws_rejects)
    }

    /// RFC 6191: timestamps decide if both have them, otherwise sequence numbers.
    fn is_newer(&self, seg: &Segment) -> bool {
        let stamps = seg.repr.options.timestamps.filter(|_| self.ts.enabled);
        let newer_stamp =
            stamps.is_some_and(|stamps| (stamps.val.wrapping_sub(self.ts.recent) as i32) > 0);
        newer_stamp || seg.repr.seq > self.rcv_nxt
    }

    /// RFC 1337: a reset does not end TIME-WAIT, if so set.
    fn on_rst(&mut self, cx: &Context, foreign: bool) -> TimeWaitAction {
        if foreign || cx.config.tcp_rfc1337 {
            return TimeWaitAction::Ignore;
        }
        self.expires = cx.now;
        TimeWaitAction::Ended
    }

    fn remember(&mut self, cx: &Context, stamps: Option<Timestamps>) {
        if let Some(stamps) = stamps.filter(|_| self.ts.enabled) {
            self.ts.remember(cx.now, stamps);
        }
    }

    /// The ACK of TIME-WAIT, rate-limited.
    fn ack(&mut self, cx: &Context, paws_rejects: bool) -> TimeWaitAction {
        if paws_rejects {
            cx.counters.bump(Counter::PawsEstab);
        }
        let interval = Nanos::from(cx.config.tcp_invalid_ratelimit);
        if self.last_ack.is_some_and(|last| cx.now.nanos_since(last) < interval) {
            return TimeWaitAction::Ignore;
        }
        self.last_ack = Some(cx.now);
        TimeWaitAction::Ack(TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options: TcpOptions {
                timestamps: self.ts.option(cx.now),
                md5: room_for_digest(self.md5_key()),
                ..TcpOptions::default()
            },
        })
    }
}

impl Connection {
    /// The state that the owner keeps in place of a connection in TIME-WAIT.
    pub fn time_wait(&self) -> TimeWait {
        let expires = self.timers.deadline(crate::timer::Timer::TimeWait);
        let (ecn, bits) = self.ecn.last_marks();
        TimeWait {
            local_port: self.local_port,
            remote_port: self.remote_port,
            snd_nxt: self.snd.nxt(),
            rcv_nxt: self.rcv.nxt(),
            window: self.rcv.promised(),
            ts: self.ts,
            expires: expires.unwrap_or(Instant::ZERO),
            last_ack: None,
            md5_key: self.md5_key().cloned(),
            tos: self.options.tos,
            flags: TcpFlags::ACK | bits,
            ecn,
        }
    }
}

#[cfg(test)]
mod tests;
