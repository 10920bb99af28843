//! Writes captures in the formats that exist. The fuzz target uses it too.

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) ng: bool,
    pub(crate) big_endian: bool,
    pub(crate) nanos: bool,
    /// The link type.
    pub(crate) link: u32,
    /// Bytes that are kept of a frame.
    pub(crate) snaplen: usize,
}

impl Writer {
    fn u16(self, file: &mut Vec<u8>, value: u16) {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        file.extend(bytes);
    }

    fn words(self, file: &mut Vec<u8>, words: &[u32]) {
        for value in words {
            let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            file.extend(bytes);
        }
    }

    /// What comes before the frames.
    pub(crate) fn header(self, file: &mut Vec<u8>) {
        if !self.ng {
            self.words(file, &[if self.nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }]);
            self.u16(file, 2);
            self.u16(file, 4);
            return self.words(file, &[0, 0, 262_144, self.link]);
        }
        self.words(file, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d]);
        self.u16(file, 1);
        self.u16(file, 0);
        self.words(file, &[u32::MAX, u32::MAX, 28, 1, 32]);
        self.u16(file, self.link as u16);
        self.u16(file, 0);
        self.words(file, &[0]);
        // The resolution of stamps: 10^-9 or 10^-6.
        self.u16(file, 9);
        self.u16(file, 1);
        file.extend([if self.nanos { 9 } else { 6 }, 0, 0, 0]);
        self.words(file, &[0, 32]);
    }

    /// A frame at `time`, in nanoseconds since 1970, which claims to have had `len` bytes.
    pub(crate) fn frame(self, file: &mut Vec<u8>, time: u64, len: u32, data: &[u8]) {
        let kept = &data[..data.len().min(self.snaplen)];
        let kept_len = kept.len() as u32;
        let unit = if self.nanos { 1 } else { 1000 };
        let (stamp, per_second) = (time / unit, 1_000_000_000 / unit);
        if !self.ng {
            let (seconds, rest) = (stamp / per_second, stamp % per_second);
            self.words(file, &[seconds as u32, rest as u32, kept_len, len]);
            return file.extend_from_slice(kept);
        }
        let padded = kept.len().next_multiple_of(4);
        let block = 32 + padded as u32;
        self.words(file, &[6, block, 0, (stamp >> 32) as u32, stamp as u32, kept_len, len]);
        file.extend_from_slice(kept);
        file.resize(file.len() + padded - kept.len(), 0);
        self.words(file, &[block]);
    }
}
