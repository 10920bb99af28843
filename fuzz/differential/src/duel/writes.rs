//! Reads and writes of the application.

use plimsoll_buf::Slice;

use super::{Duel, Outcome};
use crate::engine::{Known, Opt, WriteFlags};
use crate::peer::pattern;

impl Duel<'_> {
    /// The application writes.
    pub(super) fn write(&mut self, len: u32, parts: u8, flags: WriteFlags) -> Outcome<()> {
        if self.sides[1].is_deferred() {
            return self.write_first(len, flags);
        }
        self.count_write(flags);
        let data = pattern(self.written, len as usize);
        let size = (len as usize).div_ceil(usize::from(parts.max(1))).max(1);
        let pieces: Vec<&[u8]> = data.chunks(size).collect();
        let taken = self.both("write", |side, at| side.write(at, &pieces, flags))?;
        self.written(taken)
    }

    /// As [`write`](Self::write), by reference.
    pub(super) fn write_shared(&mut self, len: u32, parts: u8, flags: WriteFlags) -> Outcome<()> {
        if self.sides[1].is_deferred() {
            return self.write_first(len, flags);
        }
        self.count_write(flags);
        self.reach.hit("writes", "shared");
        let data = pattern(self.written, len as usize).to_vec();
        let size = (len as usize).div_ceil(usize::from(parts.max(1))).max(1);
        let whole = Slice::from_owner(data);
        let apart = parts.is_multiple_of(5);
        let pieces: Vec<Slice> = (0..len as usize)
            .step_by(size)
            .map(|start| whole.range(start, (start + size).min(len as usize)))
            // What lies in different buffers cannot be merged.
            .map(|piece| if apart { Slice::from_owner(piece.to_vec()) } else { piece })
            .collect();
        let taken = self.both("write_shared", |side, at| side.write_shared(at, &pieces, flags))?;
        self.written(taken)
    }

    fn written(&mut self, taken: Result<usize, String>) -> Outcome<()> {
        match taken {
            Ok(count) => self.written += count as u64,
            Err(error) => self.count_error("write errors", Some(error)),
        }
        self.flush()
    }

    fn count_write(&mut self, flags: WriteFlags) {
        let named = [
            (true, "all"),
            (flags.more, "MSG_MORE"),
            (flags.eor, "MSG_EOR"),
            (flags.urgent, "MSG_OOB"),
            (flags.zerocopy, "MSG_ZEROCOPY"),
        ];
        for (is, name) in named {
            if is {
                self.reach.hit("writes", name);
            }
        }
    }

    /// The first write of an open with Fast Open.
    fn write_first(&mut self, len: u32, flags: WriteFlags) -> Outcome<()> {
        let peer = self.setup.peer;
        let known = Known {
            option: self.peer.cookie(),
            data: peer.cookie > 0,
            mss: peer.mss.filter(|_| peer.cookie == 1),
            probing: peer.sack,
        };
        let data = pattern(0, len as usize);
        let taken =
            self.both("begin_fast_open", |side, at| side.begin_fast_open(at, &known, data))?;
        self.written += taken as u64;
        self.zerocopy_syn = flags.zerocopy;
        self.flush()
    }

    /// Many small writes, as a thread does them: what automatic corking holds is only added to.
    pub(super) fn write_small(&mut self, count: u8, len: u16) -> Outcome<()> {
        for _ in 0..count {
            if self.sides[1].is_deferred() {
                return self.write_first(len.into(), WriteFlags::default());
            }
            let data = pattern(self.written, len.into());
            let will_complete = self.setup.completions && !self.queued.is_empty();
            if will_complete && self.both("write_corked", |side, _| side.write_corked(data))? {
                self.reach.hit("writes", "behind a cork");
                self.written += u64::from(len);
                continue;
            }
            self.write(len.into(), 1, WriteFlags::default())?;
        }
        Ok(())
    }

    /// Many writes that ask for reports, of which nobody takes any.
    pub(super) fn write_reported(&mut self, count: u16) -> Outcome<()> {
        self.both("set_option", |side, at| side.set_option(at, Opt::ZeroCopy, 1))?;
        let flags = WriteFlags { zerocopy: true, ..WriteFlags::default() };
        (0..count).try_for_each(|_| self.write(1, 1, flags))
    }

    /// The application reads.
    pub(super) fn read(&mut self, len: u32) -> Outcome<()> {
        // No buffer needs to be larger than what there is to read.
        let readable = (self.readable() + 1).min(len as usize);
        let (result, _) = self.both("read", |side, at| {
            let mut out = vec![0; readable];
            let result = side.read(at, &mut out);
            (result, out)
        })?;
        self.count_error("read errors", result.err());
        Ok(())
    }

    pub(super) fn count_error(&mut self, kind: &'static str, error: Option<String>) {
        if let Some(error) = error {
            self.reach.hit_named(kind, error);
        }
    }

    fn readable(&self) -> usize {
        let at = crate::engine::FIGURES.iter().position(|name| *name == "readable");
        at.map_or(0, |at| self.figures[1][at] as usize)
    }
}
