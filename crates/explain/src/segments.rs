//! The segments of a capture one by one, for those who draw them.

use std::borrow::Cow;
use std::io::Read;
use std::net::SocketAddr;

use anyhow::Result;
use pcap_parser::{OptionCode, PcapNGOption};
pub use plimsoll_wire::tcp::TcpFlags;

use crate::capture;
use crate::packet::{self, Packet, Segment};

/// A TCP segment of a capture, or a super-segment.
#[derive(Debug)]
pub struct CapturedSegment<'a> {
    /// Its place in the capture; the first packet is 1.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Where it comes from.
    pub src: SocketAddr,
    /// Where it goes.
    pub dst: SocketAddr,
    /// Whether whoever captured had sent it, rather than received; `None` if the capture does not
    /// say.
    pub sent: Option<bool>,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// Its flags.
    pub flags: TcpFlags,
    /// Bytes of payload, by the lengths in the headers.
    pub len: u32,
    /// The option MSS, which only a SYN has.
    pub mss: Option<u16>,
    /// Whether it has timestamps, which take 12 bytes of every segment.
    pub timestamps: bool,
    options: &'a [PcapNGOption<'a>],
}

impl CapturedSegment<'_> {
    /// What the capture says about the packet, comment by comment.
    pub fn comments(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let comments = self.options.iter().filter(|option| option.code == OptionCode::Comment);
        comments.map(|option| {
            let text = option.value.get(..usize::from(option.len)).unwrap_or(&option.value);
            String::from_utf8_lossy(text)
        })
    }
}

/// Calls `each` for every TCP segment of a capture, in its order. What else the capture holds, and
/// what is broken in it, is passed over. The memory that this takes does not grow with the capture.
///
/// # Errors
/// If `input` cannot be read or is not a capture.
pub fn segments(input: impl Read + Send, mut each: impl FnMut(&CapturedSegment<'_>)) -> Result<()> {
    capture::read(input, |frame| {
        if let Ok(Packet::Tcp(segment)) = packet::read(&frame) {
            let Segment { number, time, src, dst, flags, len, mss, timestamps, .. } = segment;
            let (seq, ack) = (segment.seq.0, segment.ack.0);
            let (sent, options) = (frame.sent, frame.options);
            each(&CapturedSegment {
                number,
                time,
                src,
                dst,
                sent,
                seq,
                ack,
                flags,
                len,
                mss,
                timestamps: timestamps.is_some(),
                options,
            });
        }
        Ok(())
    })?;
    Ok(())
}
