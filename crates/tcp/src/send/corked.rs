//! Writes behind one that automatic corking holds.
//!
//! A thread that writes a little at a time does little else than this. Nothing has to be asked as
//! long as the packet stays below its goal: what lies below the connection has not completed, so
//! the answer is the same as for the write before.

use super::{Fin, memory};
use crate::connection::Connection;
use crate::limits::MAX_SUPER_SEGMENT;
use crate::output::Hold;
use crate::send::write::WriteFlags;
use crate::state::State;

impl Connection {
    /// Takes all of `data` if that changes nothing but that more waits: the write before it is held
    /// by [`Hold::Autocork`], and the packet stays below its goal. No time passes in it, and there
    /// is nothing to poll after it. Otherwise takes nothing and returns `false`;
    /// [`write`](Self::write) knows what to do then.
    ///
    /// To be called only if something is still below the connection, of which
    /// [`Input::Completion`](crate::Input::Completion) will tell.
    pub fn write_corked(&mut self, data: &[u8]) -> bool {
        if self.last_hold != Some(Hold::Autocork) || self.snd.raw {
            return false;
        }
        let open = matches!(self.state, State::Established | State::CloseWait);
        if !open
            || self.error.is_some()
            || self.snd.fin != Fin::None
            || self.snd.scoreboard.is_empty()
        {
            return false;
        }
        let mss = self.snd.effective_mss();
        let goal = memory::unit_goal(mss, self.snd.max_wnd, MAX_SUPER_SEGMENT as u32) as usize;
        let grows = self.snd.units.count() == 1
            && self.snd.units.back().is_some_and(|unit| unit.takes_more())
            && self.snd.queue.len() + data.len() < goal;
        if !grows || data.is_empty() {
            return false;
        }
        self.debug_invariants();
        let unacked = self.snd.rtx.bytes();
        self.snd.queue.append(&self.pool, data, unacked);
        let end = self.snd.write_end();
        if let Some(last) = self.snd.units.back_mut() {
            last.end = end;
        }
        self.mark_write(WriteFlags::default(), None, true);
        self.writes = self.writes.saturating_add(1);
        self.debug_invariants();
        true
    }
}
