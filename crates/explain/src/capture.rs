//! Frames of a capture, one after the other, in a buffer of bounded size.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow};
use pcap_parser::{
    Block, Linktype, OptionCode, PcapBlockOwned, PcapError, PcapNGOption, create_reader,
};

use crate::front;

/// Bytes of the buffer at first.
const BUFFER: usize = 1 << 20;

/// Bytes beyond which one record of a capture is no longer believed.
const LARGEST_RECORD: usize = 16 << 20;

/// Bytes that a frame has at most: a super-segment of IPv6 with its headers is rarely longer, and
/// what captures programs keep is no more.
const LONGEST_FRAME: u32 = 262_144;

/// Interfaces of one section that are remembered.
const MOST_INTERFACES: usize = 4096;

/// The option of a packet that holds its direction.
const EPB_FLAGS: OptionCode = OptionCode(2);

/// The option of a section that holds the name of the program that wrote it.
const SHB_USERAPPL: OptionCode = OptionCode(4);

/// What Plimsoll calls itself there.
const PLIMSOLL: &[u8] = b"plimsoll";

const NANOS: u64 = 1_000_000_000;

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Its place in the capture; the first is 1.
    pub(crate) number: u64,
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    /// The link type, by its number in the registry of pcap.
    pub(crate) link: i32,
    /// What was captured of it.
    pub(crate) data: &'a [u8],
    /// Bytes that it had.
    pub(crate) len: usize,
    /// Whether whoever captured had sent it, rather than received, if that is known.
    pub(crate) sent: Option<bool>,
    /// Whether Plimsoll captured it.
    pub(crate) by_plimsoll: bool,
    /// What the file says of it beside.
    pub(crate) options: &'a [PcapNGOption<'a>],
}

/// What an interface of a pcapng section, or the header of a pcap file, says of its frames.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: i32,
    /// Units of the time stamps per second.
    per_second: u64,
    /// Seconds to be added.
    offset: i64,
}

/// How a capture ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Whether it is a pcapng file.
    pub(crate) ng: bool,
    /// Frames in it.
    pub(crate) frames: u64,
    /// Of these, frames of interfaces that are not described.
    pub(crate) unknown: u64,
    /// Why the rest could not be read.
    pub(crate) note: Option<String>,
}

/// Calls `each` for every frame of `input`.
///
/// # Errors
/// If `input` is not a capture or cannot be read. A capture that is cut off or goes bad in its
/// middle is no error: what follows is left out, and [`Ended::note`] says so.
pub(crate) fn read(
    input: impl Read + Send,
    mut each: impl FnMut(Frame<'_>) -> Result<()>,
) -> Result<Ended> {
    let failure = Failure::default();
    let input = Noting { input: front::open(input)?, failure: failure.clone() };
    let mut reader = create_reader(BUFFER, input).map_err(|error| match error {
        PcapError::ReadError => failure.error(),
        _ => anyhow!("this is not a capture: its header is broken"),
    })?;
    let mut state = State::default();
    let mut room = BUFFER;
    loop {
        match reader.next() {
            Ok((len, block)) => {
                state.block(&block, &mut each)?;
                reader.consume(len);
                continue;
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {}
            Err(PcapError::UnexpectedEof) => {
                state.ended.note = Some(state.cut_off(reader.data()));
                break;
            }
            Err(PcapError::ReadError) => return Err(failure.error()),
            Err(_) => {
                state.ended.note = Some(state.broken());
                break;
            }
        }
        let before = reader.data().len();
        if reader.refill().is_err() {
            return Err(failure.error());
        }
        // The parser asks for more room as soon as a record claims to be long, but a claim may be
        // broken: the buffer grows when it is full.
        if reader.data().len() == before && !reader.reader_exhausted() {
            room *= 2;
            if room > LARGEST_RECORD || !reader.grow(room) {
                state.ended.note = Some(state.broken());
                break;
            }
        }
    }
    Ok(state.ended)
}

/// Why the input could not be read: the parser does not tell.
#[derive(Clone, Default)]
struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    fn error(&self) -> anyhow::Error {
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let message = "the capture cannot be read to its end";
        error.map_or_else(|| anyhow!(message), |error| anyhow!(error).context(message))
    }
}

/// Reads on after an interruption, and notes a failure: the parser does neither.
struct Noting<R> {
    input: R,
    failure: Failure,
}

impl<R: Read> Read for Noting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buf) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    let mut failure = self.failure.0.lock().unwrap_or_else(PoisonError::into_inner);
                    *failure = Some(error);
                    return Err(kind.into());
                }
                Ok(len) => return Ok(len),
            }
        }
    }
}

#[derive(Default)]
struct State {
    interfaces: Vec<Interface>,
    /// The byte order of the section.
    big_endian: bool,
    /// Whether Plimsoll wrote the section.
    by_plimsoll: bool,
    /// Bytes that are kept of a packet at most, if the file says so.
    snaplen: Option<u32>,
    /// The time of the last frame, for frames without one.
    last_time: u64,
    ended: Ended,
}

impl State {
    fn broken(&self) -> String {
        format!("the capture is broken behind packet {}; the rest is left out", self.ended.frames)
    }

    /// What to say of a file that ends inside of a record, of which `rest` is there. A length that
    /// cannot be right is no sign of an early end, but of a broken record.
    fn cut_off(&self, rest: &[u8]) -> String {
        let word = |at: usize| {
            let bytes = *rest.get(at..)?.first_chunk::<4>()?;
            Some(if self.big_endian {
                u32::from_be_bytes(bytes)
            } else {
                u32::from_le_bytes(bytes)
            })
        };
        let claim = if self.ended.ng { word(4) } else { word(8) };
        let bound = self.snaplen.unwrap_or(LONGEST_FRAME).max(LONGEST_FRAME);
        let bound = if self.ended.ng { bound } else { self.snaplen.unwrap_or(bound) };
        let more_than_there_was = !self.ended.ng && word(8) > word(12);
        // Where a record claims so much that others fit into it, its length is wrong.
        let too_long = claim.is_some_and(|claim| claim > bound);
        if too_long || more_than_there_was || rest.len() > LONGEST_FRAME as usize {
            return self.broken();
        }
        "the capture is cut off in its last packet".into()
    }

    fn block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        each: &mut impl FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.big_endian = header.is_bigendian();
                let per_second = if header.is_nanosecond_precision() { NANOS } else { 1_000_000 };
                // 0 stands for no bound in files of some programs.
                self.snaplen = Some(header.snaplen).filter(|&snaplen| snaplen > 0);
                // The upper bits of the field hold the length of a frame check sequence.
                let link = header.network.0 & 0x0fff_ffff;
                self.interfaces = vec![Interface { link, per_second, offset: 0 }];
                Ok(())
            }
            PcapBlockOwned::Legacy(block) => {
                let Some(&interface) = self.interfaces.first() else { return Ok(()) };
                let stamp = u64::from(block.ts_sec)
                    .saturating_mul(interface.per_second)
                    .saturating_add(u64::from(block.ts_usec));
                self.frame(interface, Some(stamp), (block.data, block.origlen), &[], each)
            }
            PcapBlockOwned::NG(block) => self.ng_block(block, each),
        }
    }

    fn ng_block(
        &mut self,
        block: &Block<'_>,
        each: &mut impl FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        self.ended.ng = true;
        match block {
            Block::SectionHeader(header) => {
                self.interfaces.clear();
                self.big_endian = header.big_endian();
                self.by_plimsoll = header.options.iter().any(|option| {
                    option.code == SHB_USERAPPL && option.value.starts_with(PLIMSOLL)
                });
            }
            Block::InterfaceDescription(block) if self.interfaces.len() < MOST_INTERFACES => {
                let Linktype(link) = block.linktype;
                let per_second = per_second(block.if_tsresol);
                // The parser takes this option for little-endian.
                let offset = block.if_tsoffset;
                let offset = if self.big_endian { offset.swap_bytes() } else { offset };
                self.interfaces.push(Interface { link, per_second, offset });
            }
            Block::EnhancedPacket(block) => {
                let kept = block.data.get(..block.caplen as usize).unwrap_or(block.data);
                let stamp = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                match self.interfaces.get(block.if_id as usize) {
                    Some(&interface) => {
                        let (data, options) = ((kept, block.origlen), &block.options);
                        return self.frame(interface, Some(stamp), data, options, each);
                    }
                    None => self.unknown(),
                }
            }
            Block::SimplePacket(block) => {
                let kept = block.data.get(..block.origlen as usize).unwrap_or(block.data);
                match self.interfaces.first() {
                    Some(&interface) => {
                        return self.frame(interface, None, (kept, block.origlen), &[], each);
                    }
                    None => self.unknown(),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The direction in the flags of a packet.
    fn sent(&self, options: &[PcapNGOption<'_>]) -> Option<bool> {
        let flags = options.iter().find(|option| option.code == EPB_FLAGS)?;
        let lowest = if self.big_endian { 3 } else { 0 };
        match flags.value.get(lowest)? & 3 {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        }
    }

    /// A frame of an interface that the capture does not describe.
    fn unknown(&mut self) {
        self.ended.frames += 1;
        self.ended.unknown += 1;
    }

    fn frame(
        &mut self,
        interface: Interface,
        stamp: Option<u64>,
        (data, len): (&[u8], u32),
        options: &[PcapNGOption<'_>],
        each: &mut impl FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        self.ended.frames += 1;
        if let Some(stamp) = stamp {
            self.last_time = nanos(stamp, interface.per_second, interface.offset);
        }
        let len = (len as usize).max(data.len());
        let (number, time, link) = (self.ended.frames, self.last_time, interface.link);
        let (sent, by_plimsoll) = (self.sent(options), self.by_plimsoll);
        each(Frame { number, time, link, data, len, sent, by_plimsoll, options })
    }
}

/// Units per second by the option `if_tsresol`: a power of 10, or with the highest bit of 2.
fn per_second(resolution: u8) -> u64 {
    let power = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 != 0 { 2 } else { 10 };
    base.checked_pow(power).unwrap_or(NANOS)
}

/// A time stamp in nanoseconds since 1970; 0 and the end of time for what lies beyond.
fn nanos(stamp: u64, per_second: u64, offset: i64) -> u64 {
    let nanos = i128::from(stamp) * i128::from(NANOS) / i128::from(per_second)
        + i128::from(offset) * i128::from(NANOS);
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}
