//! The first bytes of the input: what they are, before the parser sees them.
//!
//! A pipe gives what its writer has written so far, which may be less than the header that the
//! parser wants to see at once; and the parser only says that something is no capture, not what it
//! is instead.

use std::io::{Chain, Cursor, Read};

use anyhow::{Context, Result, bail};

/// Bytes of the header of a pcap file.
const PCAP_HEADER: usize = 24;

/// Bytes at the start of a pcapng file that tell how long its first block is.
const BLOCK_START: usize = 12;

/// Bytes beyond which the first block is not believed. It holds a comment and a few names.
const LONGEST_BLOCK: usize = 1 << 19;

/// The first word of a pcapng file, in any byte order.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The first words of pcap files: stamps in microseconds or nanoseconds, in both byte orders.
const PCAP: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    // With longer records, as some old distributions of Linux wrote them.
    [0x34, 0xcd, 0xb2, 0xa1],
];

/// Compressed files by their first bytes, and what prints what is in them.
const COMPRESSED: [(&[u8], &str, &str); 6] = [
    (&[0x1f, 0x8b], "gzip", "gzip -dc"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd -dc"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];

/// Captures in formats that are not read here, by their first bytes.
const OTHERS: [(&[u8], &str); 4] = [
    (b"snoop\0", "snoop"),
    (b"GMBU", "Network Monitor"),
    (b"RTSS", "Network Monitor"),
    (&[0xa1, 0xb2, 0xcd, 0x34], "modified pcap, big-endian"),
];

/// The input with its header in one piece.
pub(crate) type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// Reads the header of a capture from `input`, and gives back the whole of it.
///
/// # Errors
/// If `input` cannot be read, or is not a capture: the message says what it seems to be.
pub(crate) fn open<R: Read>(mut input: R) -> Result<Whole<R>> {
    let mut front = Vec::new();
    fill(&mut input, &mut front, 4)?;
    let rest = if front == PCAPNG {
        fill(&mut input, &mut front, BLOCK_START)?;
        front.get(4..BLOCK_START).and_then(block_len)
    } else if PCAP.iter().any(|magic| front == magic) {
        Some(PCAP_HEADER)
    } else {
        fill(&mut input, &mut front, 64)?;
        bail!("{}", what_else(&front));
    };
    let Some(len) = rest else {
        if front.len() < BLOCK_START {
            bail!("the capture is cut off in its header");
        }
        bail!("this is not a capture: it begins like pcapng, but goes on otherwise");
    };
    fill(&mut input, &mut front, len)?;
    if front.len() < len {
        bail!("the capture is cut off in its header");
    }
    Ok(Cursor::new(front).chain(input))
}

/// The length of the first block, of which these are the length and the mark of the byte order.
fn block_len(bytes: &[u8]) -> Option<usize> {
    let (len, order) = (bytes.first_chunk::<4>()?, bytes.last_chunk::<4>()?);
    let len = match order {
        [0x1a, 0x2b, 0x3c, 0x4d] => u32::from_be_bytes(*len),
        [0x4d, 0x3c, 0x2b, 0x1a] => u32::from_le_bytes(*len),
        _ => return None,
    };
    let len = len as usize;
    (len.is_multiple_of(4) && (28..=LONGEST_BLOCK).contains(&len)).then_some(len)
}

/// Reads until `front` has `len` bytes or the input ends.
fn fill(input: &mut impl Read, front: &mut Vec<u8>, len: usize) -> Result<()> {
    let wanted = len.saturating_sub(front.len()) as u64;
    input.take(wanted).read_to_end(front).context("it cannot be read")?;
    Ok(())
}

/// A message for what begins like this and is no capture.
fn what_else(front: &[u8]) -> String {
    if front.is_empty() {
        return "it is empty".into();
    }
    if let Some((_, name, tool)) = COMPRESSED.iter().find(|(magic, ..)| front.starts_with(magic)) {
        return format!(
            "it is compressed with {name}: say `{tool} FILE | plimsoll explain -` instead"
        );
    }
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| front.starts_with(magic)) {
        return format!(
            "it is a capture in the format of {name}, which is not read here: \
             `editcap -F pcapng FILE NEW` makes one that is"
        );
    }
    if front.len() < 4 && PCAP.iter().chain([&PCAPNG]).any(|magic| magic.starts_with(front)) {
        return "the capture is cut off in its header".into();
    }
    let is_text = |&byte: &u8| byte >= b' ' && byte != 0x7f || byte.is_ascii_whitespace();
    if front.iter().all(is_text) {
        return "this is not a capture but text; tcpdump writes a capture with -w".into();
    }
    "this is not a capture: it begins neither as pcap nor as pcapng".into()
}
