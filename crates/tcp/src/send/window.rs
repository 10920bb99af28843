//! The peer's window as the sender uses it.

use plimsoll_wire::SeqNum;

use crate::send::Sender;

impl Sender {
    /// The right edge of the peer's window: SND.UNA + SND.WND.
    pub(crate) fn window_edge(&self) -> SeqNum {
        self.una + self.wnd
    }

    /// Bytes that the peer's window has left for new data. Zero if it shrank below SND.NXT.
    pub(crate) fn usable_window(&self) -> u32 {
        let edge = self.window_edge();
        if self.nxt < edge { edge.since(self.nxt) } else { 0 }
    }

    /// The sequence number of a segment without data that the peer will accept: SND.NXT, or the edge
    /// of a window that shrank below it.
    pub(crate) fn acceptable_seq(&self) -> SeqNum {
        let edge = self.window_edge();
        if self.una < edge { self.nxt.min(edge) } else { self.nxt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_shrank_leaves_nothing() {
        let mut snd = Sender::new(SeqNum(u32::MAX - 10), 1000);
        (snd.nxt, snd.wnd) = (snd.una + 500, 800);
        assert_eq!(snd.usable_window(), 300);
        assert_eq!(snd.acceptable_seq(), snd.nxt);
        snd.wnd = 200;
        assert_eq!(snd.usable_window(), 0);
        assert_eq!(snd.acceptable_seq(), snd.una + 200);
    }
}
