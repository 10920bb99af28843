//! The low-water mark of a reader (SO_RCVLOWAT): how many bytes must be there before it goes on.
//!
//! A mark above what the buffer lets arrive would be waited for in vain, so a mark is capped by the
//! largest buffer there may be, and the buffer grows until the mark fits twice: the peer then still
//! has room to send full segments when the mark is reached. A buffer that SO_RCVBUF has fixed does
//! not grow; half of it is what a reader waits for at most.

use crate::config::{Config, Options};
use crate::connection::{Connection, Context};
use crate::event::Events;
use crate::recv::window::{MAX_BUFFER, data_share};

/// The mark that is kept of `bytes`: no more than the buffer may become.
fn capped(config: &Config, options: &Options, bytes: u32) -> u32 {
    let most = options.rcvbuf.unwrap_or_else(|| data_share(config.tcp_rmem[2]));
    u32::try_from(most).unwrap_or(u32::MAX).min(bytes)
}

/// The least buffer for the mark of `options`; 0 if SO_RCVBUF has fixed it.
pub(crate) fn least_buffer(config: &Config, options: &Options) -> usize {
    if options.rcvbuf.is_some() || options.rcvlowat <= 1 {
        return 0;
    }
    let mark = capped(config, options, options.rcvlowat) as usize;
    (2 * mark).min(data_share(config.tcp_rmem[2])).min(MAX_BUFFER)
}

impl Connection {
    /// SO_RCVLOWAT was set: what of it is kept, room for it, and whether it is reached.
    pub(crate) fn apply_low_water(&mut self, cx: &Context) {
        self.options.rcvlowat = capped(cx.config, &self.options, self.options.rcvlowat);
        let least = least_buffer(cx.config, &self.options);
        if least > self.rcv.buf_limit {
            self.rcv.buf_limit = least;
            // The peer may have filled what it knew of; nothing would tell it otherwise.
            self.after_read();
        }
        if self.is_readable() {
            self.events.insert(Events::READABLE);
        }
    }

    /// Whether a reader that waits for data may go on: as many bytes as SO_RCVLOWAT asks for can be
    /// read, or as many as the buffer lets arrive, since waiting for more would last for ever. Any
    /// will do while memory is short.
    pub fn is_readable(&self) -> bool {
        let low = (self.options.rcvlowat as usize).min(self.rcv.buf_limit / 2).max(1);
        let count = self.readable();
        count >= low || (count > 0 && (self.rcv.is_full() || self.rcv.is_pressed()))
    }
}
