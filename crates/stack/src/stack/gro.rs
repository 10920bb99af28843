//! Segments of a batch are merged (`offload/gro.rs`) before a connection gets them.

use plimsoll_tcp::Segment;

use crate::flow::FlowKey;
use crate::offload::gro::train_unit;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::work::Work;

impl Stack {
    /// Takes a segment that has been checked, and passes on the segments that cannot wait for more.
    /// `size` is the length of the wire segments of a super-segment, `tos` DSCP and ECN of the
    /// packet.
    #[inline]
    pub(crate) fn tcp_gro(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        key: &FlowKey,
        arrived: (Segment, u8),
        size: Option<u16>,
    ) {
        let begins = || train_unit(&arrived.0, size).is_some();
        if !work.settings.gro || (state.gro.is_empty() && !begins()) {
            return self.tcp_demux(work, state, key, arrived);
        }
        let (mut segment, tos) = arrived;
        if let Some(at) = state.gro.find(key) {
            let appended = state.gro.append(at, segment);
            if appended.is_ok() {
                work.count(IpCounter::GroMerged);
            }
            if let Ok(true) = appended {
                return;
            }
            let (_, held, held_tos) = state.gro.take(at).into_parts();
            self.tcp_demux(work, state, key, (held, held_tos));
            match appended {
                Ok(_) => return,
                Err(back) => segment = back,
            }
        }
        let Some(unit) = train_unit(&segment, size) else {
            return self.tcp_demux(work, state, key, (segment, tos));
        };
        if state.gro.is_full()
            && let Some(oldest) = state.gro.take_oldest()
        {
            let (key, segment, tos) = oldest.into_parts();
            self.tcp_demux(work, state, &key, (segment, tos));
        }
        state.gro.hold(*key, (segment, tos), unit);
    }

    /// Passes on all that is held: the batch has ended.
    #[inline]
    pub(crate) fn flush_gro(&self, work: &mut Work<'_>, state: &mut PollState) {
        while let Some(held) = state.gro.take_oldest() {
            let (key, segment, tos) = held.into_parts();
            self.tcp_demux(work, state, &key, (segment, tos));
        }
    }
}
