//! TCP options as bytes, and the other way round.

use crate::lang::ast::{AccEcnField, Spanned, TcpOption};

const EOL: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
const MD5: u8 = 19;
const FAST_OPEN: u8 = 34;
const ACC_ECN_0: u8 = 172;
const ACC_ECN_1: u8 = 174;
const EXPERIMENT: u8 = 254;
/// What says that an experimental option is fast open (RFC 7413, appendix).
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// One option of a header, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawOption {
    /// Its kind.
    pub kind: u8,
    /// All its bytes, kind and length included.
    pub bytes: Vec<u8>,
}

impl RawOption {
    fn new(kind: u8, body: &[u8]) -> RawOption {
        let mut bytes = vec![kind, (body.len() + 2) as u8];
        bytes.extend_from_slice(body);
        RawOption { kind, bytes }
    }

    /// The value and the echo of a timestamp option.
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        match self.bytes.as_slice() {
            [TIMESTAMP, 10, rest @ ..] if rest.len() == 8 => {
                Some((be32(&rest[..4]), be32(&rest[4..])))
            }
            _ => None,
        }
    }

    /// Replaces value and echo of a timestamp option.
    pub fn set_timestamps(&mut self, val: u32, ecr: u32) {
        if self.timestamps().is_some() {
            self.bytes[2..6].copy_from_slice(&val.to_be_bytes());
            self.bytes[6..10].copy_from_slice(&ecr.to_be_bytes());
        }
    }

    /// Adds `offset` to every sequence number of a SACK option.
    pub fn shift_sack(&mut self, offset: u32) {
        if self.kind != SACK {
            return;
        }
        for edge in self.bytes.get_mut(2..).unwrap_or_default().chunks_exact_mut(4) {
            let value = be32(edge).wrapping_add(offset);
            edge.copy_from_slice(&value.to_be_bytes());
        }
    }
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// What the script writes, as bytes. The text of an error says what cannot be.
pub fn encode(options: &[Spanned<TcpOption>]) -> Result<Vec<RawOption>, String> {
    let list: Vec<RawOption> = options.iter().map(|option| encode_one(&option.node)).collect();
    let len: usize = list.iter().map(|option| option.bytes.len()).sum();
    if len > 40 {
        return Err(format!("{len} bytes of TCP options are more than the 40 that fit"));
    }
    if !len.is_multiple_of(4) {
        return Err(format!("{len} bytes of TCP options are not a multiple of 4; pad with nop"));
    }
    Ok(list)
}

fn encode_one(option: &TcpOption) -> RawOption {
    match option {
        TcpOption::Nop => RawOption { kind: NOP, bytes: vec![NOP] },
        TcpOption::Eol => RawOption { kind: EOL, bytes: vec![EOL] },
        TcpOption::Mss(mss) => RawOption::new(MSS, &mss.to_be_bytes()),
        TcpOption::WindowScale(shift) => RawOption::new(WINDOW_SCALE, &[*shift]),
        TcpOption::SackPermitted => RawOption::new(SACK_PERMITTED, &[]),
        TcpOption::Sack(blocks) => {
            let edges = blocks.iter().flat_map(|&(left, right)| [left, right]);
            let body: Vec<u8> = edges.flat_map(u32::to_be_bytes).collect();
            RawOption::new(SACK, &body)
        }
        TcpOption::Timestamp { val, ecr } => {
            RawOption::new(TIMESTAMP, &[val.to_be_bytes(), ecr.to_be_bytes()].concat())
        }
        TcpOption::Md5(digest) => RawOption::new(MD5, digest),
        TcpOption::FastOpen(cookie) => RawOption::new(FAST_OPEN, cookie),
        TcpOption::FastOpenExperimental(cookie) => {
            RawOption::new(EXPERIMENT, &[&FAST_OPEN_MAGIC, cookie.as_slice()].concat())
        }
        TcpOption::AccEcn(counters) => {
            let second = counters.first().is_some_and(|&(field, _)| field == AccEcnField::Ect1);
            let bytes = counters.iter().flat_map(|&(_, value)| value.to_be_bytes()[1..].to_vec());
            let body: Vec<u8> = bytes.collect();
            RawOption::new(if second { ACC_ECN_1 } else { ACC_ECN_0 }, &body)
        }
    }
}

/// Takes the option bytes of a header apart. What is cut short is one option of kind and bytes as
/// they are.
pub fn split(bytes: &[u8]) -> Vec<RawOption> {
    let mut rest = bytes;
    let mut list = Vec::new();
    while let [kind, ..] = *rest {
        let len = match rest {
            [EOL | NOP, ..] => 1,
            [_, len, ..] => usize::from(*len).clamp(2, rest.len()),
            _ => rest.len(),
        };
        list.push(RawOption { kind, bytes: rest[..len].to_vec() });
        rest = &rest[len..];
        if kind == EOL {
            break;
        }
    }
    list
}

/// An option as a script writes it.
pub fn show(option: &RawOption) -> String {
    let body = option.bytes.get(2..).unwrap_or_default();
    match (option.kind, body) {
        (NOP, _) => "nop".to_owned(),
        (EOL, _) => "eol".to_owned(),
        (MSS, &[high, low]) => format!("mss {}", u16::from_be_bytes([high, low])),
        (WINDOW_SCALE, &[shift]) => format!("wscale {shift}"),
        (SACK_PERMITTED, []) => "sackOK".to_owned(),
        (SACK, blocks) if blocks.len().is_multiple_of(8) => {
            let blocks = blocks.chunks_exact(8);
            let blocks =
                blocks.map(|block| format!(" {}:{}", be32(&block[..4]), be32(&block[4..])));
            format!("sack{}", blocks.collect::<String>())
        }
        (TIMESTAMP, times) if times.len() == 8 => {
            format!("TS val {} ecr {}", be32(&times[..4]), be32(&times[4..]))
        }
        (MD5, digest) => format!("md5 {}", hex(digest)),
        (FAST_OPEN, []) => "FO".to_owned(),
        (FAST_OPEN, cookie) => format!("FO {}", hex(cookie)),
        (EXPERIMENT, [0xf9, 0x89]) => "FOEXP".to_owned(),
        (EXPERIMENT, [0xf9, 0x89, cookie @ ..]) => format!("FOEXP {}", hex(cookie)),
        (ACC_ECN_0, counters) => acc_ecn(["e0b", "ceb", "e1b"], counters),
        (ACC_ECN_1, counters) => acc_ecn(["e1b", "ceb", "e0b"], counters),
        (kind, body) => format!("kind {kind} {}", hex(body)),
    }
}

fn acc_ecn(names: [&str; 3], counters: &[u8]) -> String {
    let values = counters.chunks_exact(3).map(be32);
    let shown = names.iter().zip(values).map(|(name, value)| format!(" {name} {value}"));
    format!("ECN{}", shown.collect::<String>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A list of options as a script writes it.
pub fn show_all(options: &[RawOption]) -> String {
    options.iter().map(show).collect::<Vec<_>>().join(",")
}
