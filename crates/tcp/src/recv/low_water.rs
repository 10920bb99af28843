//! The low-water mark of a reader (SO_RCVLOWAT): the number of bytes that must have arrived before
//! it continues.
//!
//! A mark above the buffer size would never be reached, so a mark is capped by the largest possible
//! buffer, and the buffer grows until the mark fits twice: the peer then still has room to send
//! full segments when the mark is reached. A buffer that SO_RCVBUF has fixed does not grow; a
//! reader waits for at most half of it.

use crate::config::{Config, Options};
use crate::limits::MAX_BUFFER;
use crate::recv::{RecvSide, data_share};

/// The value stored for a mark of `bytes`: no more than the buffer may become.
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

impl RecvSide {
    /// SO_RCVLOWAT was set: stores it with its cap, and makes room for it. Returns whether the
    /// buffer has grown.
    pub(crate) fn make_room_for_mark(&mut self, config: &Config, options: &mut Options) -> bool {
        options.rcvlowat = capped(config, options, options.rcvlowat);
        let least = least_buffer(config, options);
        let grows = least > self.buf_limit;
        self.buf_limit = self.buf_limit.max(least);
        grows
    }

    /// Whether a reader that waits for data may continue: as many bytes as SO_RCVLOWAT can be read,
    /// or as many as the buffer holds, since waiting for more would last for ever. While memory is
    /// short, any data suffices.
    pub(crate) fn is_readable(&self, options: &Options) -> bool {
        let low = (options.rcvlowat as usize).min(self.buf_limit / 2).max(1);
        let count = self.readable(options.oobinline);
        count >= low || (count > 0 && (self.is_full() || self.is_pressed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recv::test_harness::Alone;

    #[test]
    fn a_full_buffer_is_readable_whatever_the_mark_says() {
        let options = Options { rcvlowat: 32_768, ..Options::default() };
        let mut alone = Alone::new(Config::default(), options);
        // Half of it is 400 bytes, and the rest is less than a segment.
        alone.rcv.set_buffer(800);
        alone.recv(1, 301);
        assert!(!alone.rcv.is_readable(&alone.options), "the peer may still use what it was told");
        alone.rcv.adv = alone.rcv.nxt;
        assert!(alone.rcv.is_readable(&alone.options), "nothing more would arrive");
    }

    #[test]
    fn a_mark_above_the_buffer_makes_room_unless_the_buffer_is_fixed() {
        let config = Config::default();
        for (rcvbuf, grows) in [(None, true), (Some(10_000), false)] {
            let mut options = Options { rcvbuf, rcvlowat: 1 << 20, ..Options::default() };
            let mut rcv = RecvSide::new(&config, &Options { rcvlowat: 1, ..options.clone() }, 1000);
            let before = rcv.buffer();
            assert_eq!(rcv.make_room_for_mark(&config, &mut options), grows);
            assert_eq!(rcv.buffer() > before, grows);
            assert_eq!(options.rcvlowat, rcvbuf.map_or(1 << 20, |bytes| bytes as u32));
        }
    }
}
