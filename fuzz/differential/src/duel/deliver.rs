//! Segments that arrive at both connections, and what completes below them.

use super::{Duel, Outcome, show};
use crate::engine::{How, Segment};
use crate::script::{Arrive, BelowStep, Opening};

impl Duel<'_> {
    /// A segment arrives at both.
    pub(super) fn deliver(&mut self, segment: &Segment) -> Outcome<()> {
        if !self.opened {
            return Ok(());
        }
        self.reach.segments += 1;
        self.say(|duel| format!("  < {}", show::segment(segment, &duel.peer)));
        let batched = self.batch > 0 && self.config_defers;
        let may = self.take_segment(segment, batched)?;
        if self.batch == 0 {
            return self.flush();
        }
        self.batch -= 1;
        if !may || self.batch == 0 {
            return self.flush();
        }
        self.waits = true;
        Ok(())
    }

    /// Both take a segment. Returns whether its ACK may wait.
    fn take_segment(&mut self, segment: &Segment, batched: bool) -> Outcome<bool> {
        self.both("segment", |side, at| side.segment(at, segment, batched)).map(|(_, may)| may)
    }

    pub(super) fn deliver_all(&mut self, segments: &[Segment]) -> Outcome<()> {
        segments.iter().try_for_each(|segment| self.deliver(segment))
    }

    /// The batch ends.
    pub(super) fn finish_batch(&mut self) -> Outcome<()> {
        self.batch = 0;
        if self.waits { self.flush() } else { Ok(()) }
    }

    /// The peer does what is its turn in the handshake.
    pub(super) fn handshake(&mut self) -> Outcome<()> {
        let opening = self.setup.opening;
        if !self.opened {
            return self.passive_open(opening);
        }
        let state = self.sides[1].state();
        let deferred = self.sides[1].is_deferred();
        let segment = match (opening, state) {
            (_, Some("SYN-SENT")) if deferred => return Ok(()),
            (Opening::Simultaneous, Some("SYN-SENT")) => self.peer.syn(self.now, false),
            (Opening::Simultaneous, Some("SYN-RECEIVED")) => self.peer.syn_ack(self.now, false),
            (_, Some("SYN-SENT")) => self.peer.syn_ack(self.now, opening == Opening::FastOpen),
            (_, Some("SYN-RECEIVED")) => self.peer.plain_ack(self.now),
            _ => return Ok(()),
        };
        self.deliver(&segment)
    }

    fn passive_open(&mut self, opening: Opening) -> Outcome<()> {
        match opening {
            Opening::Passive => {
                let syn = self.peer.syn(self.now, false);
                self.say(|duel| format!("  < {}", show::segment(&syn, &duel.peer)));
                self.open(&How::Accept(syn))
            }
            Opening::FastOpenPassive => {
                let syn = self.peer.syn(self.now, true);
                self.say(|duel| format!("  < {}", show::segment(&syn, &duel.peer)));
                let early = self.setup.peer.cookie > 0 && !self.setup.peer.refuses_syn_data;
                let answer = self.peer.cookie().filter(|option| !option.cookie.is_empty());
                if !early {
                    // The data of the SYN comes again.
                    self.peer.nxt = plimsoll_wire::SeqNum(self.setup.peer.iss) + 1;
                }
                self.open(&How::AcceptFastOpen(syn, answer, early))
            }
            Opening::Cookie => {
                let iss = plimsoll_wire::SeqNum(self.setup.iss);
                let ack = self.peer.cookie_ack(self.now, iss, self.setup.ts_offset);
                self.open(&How::AcceptCookie(ack.clone(), (self.setup.iss % 4) as u8))?;
                self.deliver(&ack)
            }
            _ => Ok(()),
        }
    }

    /// What travels arrives at the peer.
    pub(super) fn arrive(&mut self, step: &Arrive) -> Outcome<()> {
        if step.completes {
            self.below_step(BelowStep::Complete(u8::MAX))?;
        }
        let most = if step.count == 0 { usize::MAX } else { step.count.into() };
        let mut arriving: Vec<_> = {
            let count = most.min(self.peer.wire.len());
            self.peer.wire.drain(..count).collect()
        };
        if step.reordered > 1 {
            arriving.chunks_mut(step.reordered.into()).for_each(<[_]>::reverse);
        }
        let mut unacked = 0_u32;
        let mut acks = 0;
        for (index, &segment) in arriving.iter().enumerate() {
            if step.lost >> (index % 32) & 1 != 0 {
                continue;
            }
            let marked = step.marked > 0 && index % usize::from(step.marked) == 0;
            let mut at_once = self.peer.arrive(segment, marked);
            if step.twice >> (index % 16) & 1 != 0 {
                at_once |= self.peer.arrive(segment, marked);
            }
            unacked += 1;
            let due = step.every > 0 && unacked >= step.every.into();
            if due || (at_once && step.every > 0) {
                unacked = 0;
                self.acknowledge(step, acks)?;
                acks += 1;
            }
        }
        if unacked > 0 { self.acknowledge(step, acks) } else { Ok(()) }
    }

    fn acknowledge(&mut self, step: &Arrive, number: u32) -> Outcome<()> {
        let ack = self.peer.plain_ack(self.now);
        if step.acks_lost >> (number % 16) & 1 != 0 {
            return Ok(());
        }
        self.deliver(&ack)?;
        if step.gap > 0 { self.pass(u64::from(step.gap) * 1000) } else { Ok(()) }
    }

    /// Something happens below.
    pub(super) fn below_step(&mut self, step: BelowStep) -> Outcome<()> {
        match step {
            BelowStep::Complete(count) => self.complete(count.into()),
            BelowStep::Drop(which) => {
                let count = self.queued.len();
                if count > 0 {
                    let queued = &mut self.queued[usize::from(which) % count];
                    queued.packet = None;
                    self.reach.hit("below", "dropped");
                }
                Ok(())
            }
            BelowStep::Memory(pressure, room) => {
                self.below.pressure = pressure;
                self.below.room = room;
                self.reach.hit("below", "memory");
                if self.both("awaits_memory", |side, _| side.awaits_memory())? {
                    self.reach.hit("below", "memory was awaited");
                    self.both("memory", |side, at| side.memory(at))?;
                }
                self.flush()
            }
            BelowStep::Spurious => {
                self.both("completion", |side, at| side.completion(at))?;
                self.flush()
            }
        }
    }

    /// The first `count` packets that have departed complete.
    fn complete(&mut self, count: usize) -> Outcome<()> {
        let mut any = false;
        for _ in 0..count {
            let departed = |departure| !self.below.keeps_departures || departure <= self.now;
            let Some(queued) = self.queued.pop_front_if(|queued| departed(queued.departure)) else {
                break;
            };
            self.below.bytes -= queued.len;
            self.below.completed = queued.serial;
            if let Some(packet) = queued.packet {
                self.peer.on_wire(&packet);
            }
            any = true;
        }
        if !any {
            return Ok(());
        }
        self.reach.hit("below", "completed");
        if self.both("awaits_completion", |side, _| side.awaits_completion())? {
            self.reach.hit("below", "completion was awaited");
            self.both("completion", |side, at| side.completion(at))?;
        }
        self.flush()
    }

    /// Where nothing tells of completions, what was held until its departure goes on by itself.
    pub(super) fn depart(&mut self) -> Outcome<()> {
        if self.setup.completions || self.queued.is_empty() {
            return Ok(());
        }
        self.complete(usize::MAX)
    }
}
