//! The TCP header (RFC 9293, section 3.1) and its options.
//!
//! Options are read as Linux reads them. Unknown ones are skipped, and so is an option whose length
//! is wrong for its kind. An option that reaches beyond the header ends the list; those before it
//! are kept (RFC 9293, MUST-7: an implementation must handle illegal option lengths). MSS, window
//! scale, SACK-permitted and Fast Open count only on a segment with SYN, SACK blocks only on one
//! without.
//!
//! Options are written in Linux's layout, padded to words with NOPs: MD5, MSS, then timestamps,
//! whose padding the SACK-permitted option takes if there is one, then Accurate ECN, then window
//! scale, then SACK blocks, then Fast Open.

mod acc_ecn;

use core::fmt;

use arrayvec::ArrayVec;

use crate::bytes::{be16, be32, put16, put32};
use crate::{SeqNum, WireError};
pub use acc_ecn::{AccEcnCounters, AccEcnOption, AccEcnOrder};

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest TCP header.
pub const MAX_HEADER_LEN: usize = 60;
/// SACK blocks that fit into one header (without other options).
pub const MAX_SACK_BLOCKS: usize = 4;
/// Bytes of an MD5 signature (RFC 2385).
pub const MD5_DIGEST_LEN: usize = 16;
/// Offset of the digest in the options that [`TcpRepr::emit`] writes, if there is one.
pub const MD5_DIGEST_AT: usize = 4;
/// Bytes that the MD5 option takes, padding included.
pub const MD5_OPTION_LEN: usize = MD5_DIGEST_AT + MD5_DIGEST_LEN;
/// Offset of the checksum.
pub const CHECKSUM_OFFSET: usize = 16;

const MAX_OPTIONS_LEN: usize = MAX_HEADER_LEN - HEADER_LEN;

/// Bytes of timestamps, with the padding before them.
const TIMESTAMPS_PADDED: usize = 12;

/// Option kinds (IANA).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const MD5: u8 = 19;
    pub(super) const FAST_OPEN: u8 = 34;
    /// Experiments (RFC 6994); the first bytes of the body say which.
    pub(super) const EXPERIMENT: u8 = 254;
}

/// Which experiment Fast Open was before it had its own kind.
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// Option lengths, kind and length bytes included.
mod len {
    pub(super) const MSS: u8 = 4;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 2;
    pub(super) const TIMESTAMPS: u8 = 10;
    pub(super) const MD5: u8 = 18;
}

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x002);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x004);
    /// Push function.
    pub const PSH: TcpFlags = TcpFlags(0x008);
    /// The acknowledgement number is significant.
    pub const ACK: TcpFlags = TcpFlags(0x010);
    /// The urgent pointer is significant.
    pub const URG: TcpFlags = TcpFlags(0x020);
    /// ECN echo (RFC 3168).
    pub const ECE: TcpFlags = TcpFlags(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: TcpFlags = TcpFlags(0x080);
    /// Accurate ECN (RFC 9768).
    pub const AE: TcpFlags = TcpFlags(0x100);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
        let mut separator = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl core::ops::BitOr for TcpFlags {
    type Output = TcpFlags;
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: TcpFlags) {
        self.0 |= other.0;
    }
}

/// The timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub val: u32,
    /// TSecr: the echoed clock of the peer; meaningful if ACK is set.
    pub ecr: u32,
}

/// One block of the SACK option (RFC 2018): bytes from `left` up to but not including `right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub left: SeqNum,
    /// The sequence number just behind the block.
    pub right: SeqNum,
}

/// A Fast Open cookie (RFC 7413): empty, or 4 to 16 bytes, always an even number.
#[derive(Clone, Copy, Default)]
pub struct FastOpenCookie {
    bytes: [u8; FastOpenCookie::MAX_LEN],
    len: u8,
}

impl FastOpenCookie {
    /// Bytes of the longest cookie.
    pub const MAX_LEN: usize = 16;

    /// The cookie with these bytes, if there can be such a cookie.
    pub fn new(cookie: &[u8]) -> Option<FastOpenCookie> {
        let allowed = matches!(cookie.len(), 0 | 4..=16) && cookie.len().is_multiple_of(2);
        if !allowed {
            return None;
        }
        let mut bytes = [0; FastOpenCookie::MAX_LEN];
        bytes[..cookie.len()].copy_from_slice(cookie);
        Some(FastOpenCookie { bytes, len: cookie.len() as u8 })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it has no bytes: a request for a cookie.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl PartialEq for FastOpenCookie {
    fn eq(&self, other: &FastOpenCookie) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for FastOpenCookie {}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The Fast Open option (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenOption {
    /// The cookie; an empty one asks for a cookie.
    pub cookie: FastOpenCookie,
    /// Kind 254 with the magic 0xF989, which the option had while it was an experiment.
    pub experimental: bool,
}

impl FastOpenOption {
    /// Bytes that are before the cookie.
    const fn base_len(self) -> usize {
        if self.experimental { 4 } else { 2 }
    }

    /// Bytes of the option, padding included.
    const fn padded_len(self) -> usize {
        (self.base_len() + self.cookie.len as usize).next_multiple_of(4)
    }
}

/// The options that only a SYN carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Maximum segment size (RFC 9293).
    pub mss: Option<u16>,
    /// Window scale shift (RFC 7323), as received (it may exceed 14).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018).
    pub sack_permitted: bool,
    /// Fast Open (RFC 7413). Left out when it finds no room next to the others.
    pub fast_open: Option<FastOpenOption>,
}

impl SynOptions {
    const NONE: SynOptions =
        SynOptions { mss: None, window_scale: None, sack_permitted: false, fast_open: None };
}

/// The blocks of the SACK option, the newest first (RFC 2018, section 4).
pub type SackBlocks = ArrayVec<SackBlock, MAX_SACK_BLOCKS>;

/// The options of a SYN, or those of any other segment: never both, so they share their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SynOrSack {
    /// Not a SYN: SACK blocks, often none.
    Sack(SackBlocks),
    /// A SYN.
    Syn(SynOptions),
}

impl Default for SynOrSack {
    fn default() -> SynOrSack {
        SynOrSack::Sack(SackBlocks::new())
    }
}

/// The options that Plimsoll supports. Unknown ones are skipped when parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Timestamps (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// The MD5 signature (RFC 2385).
    pub md5: Option<[u8; MD5_DIGEST_LEN]>,
    /// Accurate ECN (RFC 9768). Left out when it finds no space next to the others.
    pub acc_ecn: Option<AccEcnOption>,
    /// The options that depend on whether the segment is a SYN.
    pub syn_or_sack: SynOrSack,
}

/// A TCP header in parsed form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNum,
    /// SEG.ACK; meaningful if [`TcpFlags::ACK`] is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as on the wire, unscaled.
    pub window: u16,
    /// SEG.UP; meaningful if [`TcpFlags::URG`] is set.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
}

impl TcpRepr {
    /// Parses the header at the front of `data` and returns it with its length in bytes, options
    /// included. The checksum is not looked at; see [`checksum::verify`](crate::checksum::verify).
    ///
    /// # Errors
    /// If `data` is shorter than the header or the data offset is below five words.
    #[inline]
    pub fn parse(data: &[u8]) -> Result<(TcpRepr, usize), WireError> {
        let fixed = data.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(WireError::BadLength);
        }
        let options = data.get(HEADER_LEN..header_len).ok_or(WireError::Truncated)?;
        let mut repr = TcpRepr {
            src_port: be16(fixed, 0),
            dst_port: be16(fixed, 2),
            seq: SeqNum(be32(fixed, 4)),
            ack: SeqNum(be32(fixed, 8)),
            flags: TcpFlags(u16::from(fixed[12] & 1) << 8 | u16::from(fixed[13])),
            window: be16(fixed, 14),
            urgent: be16(fixed, 18),
            options: TcpOptions::default(),
        };
        let syn = repr.flags.contains(TcpFlags::SYN);
        if syn {
            repr.options.syn_or_sack = SynOrSack::Syn(SynOptions::NONE);
        }
        match options {
            [] => {}
            // The options of almost every segment.
            [kind::NOP, kind::NOP, kind::TIMESTAMPS, len::TIMESTAMPS, times @ ..]
                if times.len() == 8 =>
            {
                repr.options.timestamps = Some(read_timestamps(times));
            }
            _ => repr.options.read(options),
        }
        Ok((repr, header_len))
    }

    /// Length of the header that [`emit`](Self::emit) writes, in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header with a checksum field of zero to the front of `out` and returns its
    /// length.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len).
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let header_len = self.header_len();
        let out = &mut out[..header_len];
        let (fixed, options) = out.split_at_mut(HEADER_LEN);
        put16(fixed, 0, self.src_port);
        put16(fixed, 2, self.dst_port);
        put32(fixed, 4, self.seq.0);
        put32(fixed, 8, self.ack.0);
        fixed[12] = (header_len as u8 / 4) << 4 | (self.flags.0 >> 8) as u8 & 1;
        fixed[13] = self.flags.0 as u8;
        put16(fixed, 14, self.window);
        put16(fixed, CHECKSUM_OFFSET, 0);
        put16(fixed, 18, self.urgent);
        self.options.write(options);
        header_len
    }
}

impl TcpOptions {
    /// Those of a SYN.
    pub fn of_syn(syn: SynOptions) -> TcpOptions {
        TcpOptions { syn_or_sack: SynOrSack::Syn(syn), ..TcpOptions::default() }
    }

    /// The options that only a SYN carries; empty for any other segment.
    #[inline]
    pub fn syn(&self) -> &SynOptions {
        match &self.syn_or_sack {
            SynOrSack::Sack(_) => &SynOptions::NONE,
            SynOrSack::Syn(syn) => syn,
        }
    }

    /// The same, to be changed. SACK blocks go.
    pub fn syn_mut(&mut self) -> &mut SynOptions {
        if let SynOrSack::Sack(_) = self.syn_or_sack {
            self.syn_or_sack = SynOrSack::Syn(SynOptions::NONE);
        }
        match &mut self.syn_or_sack {
            SynOrSack::Syn(syn) => syn,
            SynOrSack::Sack(_) => unreachable!("it was made one of a SYN"),
        }
    }

    /// The SACK blocks; a SYN has none.
    #[inline]
    pub fn sack(&self) -> &[SackBlock] {
        match &self.syn_or_sack {
            SynOrSack::Sack(blocks) => blocks,
            SynOrSack::Syn(_) => &[],
        }
    }

    /// The SACK blocks, to be changed. Options that only a SYN carries are removed.
    pub fn sack_mut(&mut self) -> &mut SackBlocks {
        if let SynOrSack::Syn(_) = self.syn_or_sack {
            self.syn_or_sack = SynOrSack::default();
        }
        match &mut self.syn_or_sack {
            SynOrSack::Sack(blocks) => blocks,
            SynOrSack::Syn(_) => unreachable!("it was made one with blocks"),
        }
    }

    /// Bytes that the options take in a header, padding included: a multiple of 4, at most 40.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_common() {
            return if self.timestamps.is_some() { TIMESTAMPS_PADDED } else { 0 };
        }
        self.len_of_all()
    }

    /// Whether there is nothing but perhaps timestamps, as in almost every segment.
    #[inline]
    fn is_common(&self) -> bool {
        let blocks = match &self.syn_or_sack {
            SynOrSack::Sack(blocks) => blocks.len(),
            SynOrSack::Syn(_) => return false,
        };
        blocks == 0 && self.md5.is_none() && self.acc_ecn.is_none()
    }

    fn len_of_all(&self) -> usize {
        let len = self.len_without_acc_ecn();
        len + self
            .acc_ecn_that_fits(len)
            .map_or(0, |option| AccEcnOption::padded_len(option.present()))
    }

    /// Whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len_without_acc_ecn(&self) -> usize {
        let len = self.len_without_fast_open();
        len + self.fast_open_that_fits(len).map_or(0, FastOpenOption::padded_len)
    }

    /// The Accurate ECN option, if it finds space behind `len` bytes of other options.
    fn acc_ecn_that_fits(&self, len: usize) -> Option<&AccEcnOption> {
        let fits = |option: &&AccEcnOption| {
            len + AccEcnOption::padded_len(option.present()) <= MAX_OPTIONS_LEN
        };
        self.acc_ecn.as_ref().filter(fits)
    }

    fn len_without_fast_open(&self) -> usize {
        let fixed = self.len_without_sack();
        match self.sack_that_fits(fixed) {
            0 => fixed,
            blocks => fixed + 4 + 8 * blocks,
        }
    }

    /// The Fast Open option, if it finds room behind `len` bytes of other options.
    fn fast_open_that_fits(&self, len: usize) -> Option<FastOpenOption> {
        self.syn().fast_open.filter(|option| len + option.padded_len() <= MAX_OPTIONS_LEN)
    }

    fn len_without_sack(&self) -> usize {
        let syn = self.syn();
        let mss = if syn.mss.is_some() { 4 } else { 0 };
        let times = match (self.timestamps, syn.sack_permitted) {
            (Some(_), _) => TIMESTAMPS_PADDED,
            (None, true) => 4,
            (None, false) => 0,
        };
        let scale = if syn.window_scale.is_some() { 4 } else { 0 };
        let md5 = if self.md5.is_some() { MD5_OPTION_LEN } else { 0 };
        md5 + mss + times + scale
    }

    /// Leaves out the SACK blocks for which there is no place next to the other options, as writing
    /// does: with timestamps three fit, with MD5 two, with both none.
    pub fn fit_sack(&mut self) {
        let fit = self.sack_that_fits(self.len_without_sack());
        if let SynOrSack::Sack(blocks) = &mut self.syn_or_sack {
            blocks.truncate(fit);
        }
    }

    /// Leaves out every option for which there is no space, as [`emit`](TcpRepr::emit) does: SACK
    /// blocks, as [`fit_sack`](Self::fit_sack) does, then the Fast Open option, then that of
    /// Accurate ECN. Options that were received without padding may not fit with it.
    pub fn fit(&mut self) {
        self.fit_sack();
        let cookie = self.fast_open_that_fits(self.len_without_fast_open());
        if let SynOrSack::Syn(syn) = &mut self.syn_or_sack {
            syn.fast_open = cookie;
        }
        if self.acc_ecn_that_fits(self.len_without_acc_ecn()).is_none() {
            self.acc_ecn = None;
        }
    }

    /// How many SACK blocks find room behind `fixed` bytes of other options. The rest is left out.
    fn sack_that_fits(&self, fixed: usize) -> usize {
        self.sack().len().min((MAX_OPTIONS_LEN - fixed).saturating_sub(4) / 8)
    }

    /// Reads options until the end of `data`, an end-of-list option, or one that reaches too far.
    fn read(&mut self, data: &[u8]) {
        let mut rest = data;
        loop {
            let (kind, body) = match rest {
                [] | [kind::END, ..] => return,
                [kind::NOP, tail @ ..] => {
                    rest = tail;
                    continue;
                }
                [kind, len, ..] => {
                    let len = usize::from(*len);
                    if len < 2 || len > rest.len() {
                        return;
                    }
                    let (option, tail) = rest.split_at(len);
                    rest = tail;
                    (*kind, &option[2..])
                }
                [_] => return,
            };
            self.read_one(kind, body);
        }
    }

    fn read_one(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (kind::TIMESTAMPS, times) if times.len() == 8 => {
                self.timestamps = Some(read_timestamps(times));
            }
            (kind::MD5, digest) => {
                if let Ok(digest) = digest.try_into() {
                    self.md5 = Some(digest);
                }
            }
            (AccEcnOption::KIND_0 | AccEcnOption::KIND_1, counters) => {
                // The first one counts: a second one contradicts it or repeats it.
                self.acc_ecn = self.acc_ecn.or_else(|| AccEcnOption::read(kind, counters));
            }
            _ => match &mut self.syn_or_sack {
                SynOrSack::Syn(syn) => syn.read_one(kind, body),
                SynOrSack::Sack(blocks) if kind == kind::SACK => read_sack(body, blocks),
                SynOrSack::Sack(_) => {}
            },
        }
    }

    /// Fills `out`, which is [`len`](Self::len) bytes long.
    #[inline]
    fn write(&self, out: &mut [u8]) {
        if !self.is_common() {
            self.write_all(out);
        } else if let Some(Timestamps { val, ecr }) = self.timestamps {
            out[..4].copy_from_slice(&[kind::NOP, kind::NOP, kind::TIMESTAMPS, len::TIMESTAMPS]);
            put32(out, 4, val);
            put32(out, 8, ecr);
        }
    }

    fn write_all(&self, out: &mut [u8]) {
        let blocks = self.sack_that_fits(self.len_without_sack());
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(digest) = self.md5 {
            put(&[kind::NOP, kind::NOP, kind::MD5, len::MD5]);
            put(&digest);
        }
        let syn = self.syn();
        if let Some(mss) = syn.mss {
            put(&[kind::MSS, len::MSS]);
            put(&mss.to_be_bytes());
        }
        if let Some(Timestamps { val, ecr }) = self.timestamps {
            put(match syn.sack_permitted {
                true => &[kind::SACK_PERMITTED, len::SACK_PERMITTED],
                false => &[kind::NOP, kind::NOP],
            });
            put(&[kind::TIMESTAMPS, len::TIMESTAMPS]);
            put(&val.to_be_bytes());
            put(&ecr.to_be_bytes());
        }
        if let Some(option) = self.acc_ecn_that_fits(self.len_without_acc_ecn()) {
            let written = option.head().len() + option.body().len();
            put(&option.head());
            put(option.body());
            put(&[kind::NOP; 3][..AccEcnOption::padded_len(option.present()) - written]);
        }
        if syn.sack_permitted && self.timestamps.is_none() {
            put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, len::SACK_PERMITTED]);
        }
        if let Some(shift) = syn.window_scale {
            put(&[kind::NOP, kind::WINDOW_SCALE, len::WINDOW_SCALE, shift]);
        }
        if blocks > 0 {
            put(&[kind::NOP, kind::NOP, kind::SACK, 2 + 8 * blocks as u8]);
        }
        for block in &self.sack()[..blocks] {
            put(&block.left.0.to_be_bytes());
            put(&block.right.0.to_be_bytes());
        }
        if let Some(option) = self.fast_open_that_fits(self.len_without_fast_open()) {
            let cookie = option.cookie.as_bytes();
            let len = (option.base_len() + cookie.len()) as u8;
            if option.experimental {
                put(&[kind::EXPERIMENT, len]);
                put(&FAST_OPEN_MAGIC);
            } else {
                put(&[kind::FAST_OPEN, len]);
            }
            put(cookie);
            put(&[kind::NOP, kind::NOP, kind::NOP][..option.padded_len() - usize::from(len)]);
        }
    }
}

/// The last SACK option counts; one of no blocks, or of a broken one, is as if it were not there.
fn read_sack(body: &[u8], blocks: &mut SackBlocks) {
    let (whole, rest) = body.as_chunks::<8>();
    if !whole.is_empty() && rest.is_empty() {
        *blocks = whole
            .iter()
            .take(MAX_SACK_BLOCKS)
            .map(|block| SackBlock { left: SeqNum(be32(block, 0)), right: SeqNum(be32(block, 4)) })
            .collect();
    }
}

impl SynOptions {
    fn read_one(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            // An MSS of zero says nothing.
            (kind::MSS, &[high, low]) if (high, low) != (0, 0) => {
                self.mss = Some(u16::from_be_bytes([high, low]));
            }
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::FAST_OPEN, cookie) => self.read_fast_open(cookie, false),
            (kind::EXPERIMENT, body) if body.starts_with(&FAST_OPEN_MAGIC) => {
                self.read_fast_open(&body[FAST_OPEN_MAGIC.len()..], true);
            }
            _ => {}
        }
    }

    /// The last option counts, also if there can be no such cookie; one of odd length is as if it
    /// were not there.
    fn read_fast_open(&mut self, cookie: &[u8], experimental: bool) {
        if cookie.len().is_multiple_of(2) {
            let cookie = FastOpenCookie::new(cookie);
            self.fast_open = cookie.map(|cookie| FastOpenOption { cookie, experimental });
        }
    }
}

#[inline]
fn read_timestamps(body: &[u8]) -> Timestamps {
    Timestamps { val: be32(body, 0), ecr: be32(body, 4) }
}

#[cfg(test)]
mod tests;
