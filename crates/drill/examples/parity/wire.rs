//! The packets of the receiver, and what is read of the sender's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use plimsoll_drill::host::Network;
use plimsoll_drill::lang::ast::IpInfo;
use plimsoll_drill::packet::build::{self, TcpFields};
use plimsoll_drill::packet::flag;
use plimsoll_drill::packet::live::{self, Body};
use plimsoll_drill::packet::options::RawOption;

use crate::pattern::{Pattern, SEGMENT};
use crate::receiver::Ack;

/// Addresses of the sender under test, and of the receiver.
pub(crate) const SENDER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 8080);
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 40000);

/// The receiver's window scale: windows count units of 8 bytes, of which segments are whole
/// numbers.
const SCALE: u8 = 3;
/// What the option takes in each segment, padding included.
const TIMESTAMP_ROOM: u32 = 12;
const NOP: u8 = 1;

/// The network around the sender.
pub(crate) fn network() -> Network {
    Network {
        local: SENDER.ip(),
        prefix: 24,
        gateway: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
        remote: RECEIVER.ip(),
        mtu: 1500,
        inbound_mss: None,
        mapped: false,
    }
}

/// A segment of the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) seq: u32,
    pub(crate) len: u32,
    pub(crate) syn: bool,
    pub(crate) reset: bool,
    pub(crate) tsval: Option<u32>,
}

/// Reads a packet that has left; `None` if it does not belong to the connection.
pub(crate) fn read(packet: &[u8]) -> Option<Seen> {
    let live = live::parse(packet)?;
    let Body::Tcp(segment) = live.body else { return None };
    if (live.src, live.dst) != (SENDER, RECEIVER) {
        return None;
    }
    Some(Seen {
        seq: segment.seq,
        len: segment.len,
        syn: segment.has(flag::SYN),
        reset: segment.has(flag::RST),
        tsval: segment.options.iter().find_map(RawOption::timestamps).map(|(val, _)| val),
    })
}

fn packet(tcp: &TcpFields<'_>) -> Vec<u8> {
    // Nothing here is longer than a packet can be.
    build::tcp(RECEIVER, SENDER, &IpInfo::default(), tcp).unwrap_or_default()
}

fn option(kind: u8, body: &[u8]) -> RawOption {
    let mut bytes = vec![kind, (body.len() + 2) as u8];
    bytes.extend_from_slice(body);
    RawOption { kind, bytes }
}

fn timestamps(val: u32, ecr: u32) -> RawOption {
    option(8, &[val.to_be_bytes(), ecr.to_be_bytes()].concat())
}

/// With NOPs in front, so that all options together are whole words.
fn padded(mut options: Vec<RawOption>) -> Vec<RawOption> {
    let len: usize = options.iter().map(|option| option.bytes.len()).sum();
    for _ in len..len.next_multiple_of(4) {
        options.insert(0, RawOption { kind: NOP, bytes: vec![NOP] });
    }
    options
}

/// The SYN that opens the connection, at `ms`.
pub(crate) fn syn(pattern: &Pattern, ms: u32) -> Vec<u8> {
    let mss = if pattern.timestamps { SEGMENT + TIMESTAMP_ROOM } else { SEGMENT };
    let mut options = vec![option(2, &(mss as u16).to_be_bytes()), option(3, &[SCALE])];
    if pattern.sack {
        options.push(option(4, &[]));
    }
    if pattern.timestamps {
        options.push(timestamps(ms, 0));
    }
    let options = padded(options);
    packet(&TcpFields { flags: flag::SYN, window: 60000, options: &options, ..<_>::default() })
}

/// An ACK; `first` is the sequence number of the first byte of data, `ms` the receiver's clock.
pub(crate) fn ack(pattern: &Pattern, first: u32, ack: &Ack, ms: u32) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(echo) = ack.echo {
        options.push(timestamps(ms, echo));
    }
    if !ack.blocks.is_empty() {
        let edges = ack.blocks.iter().flat_map(|&(left, right)| [left, right]);
        let body: Vec<u8> = edges.flat_map(|edge| first.wrapping_add(edge).to_be_bytes()).collect();
        options.push(option(5, &body));
    }
    let options = padded(options);
    packet(&TcpFields {
        seq: 1,
        ack: first.wrapping_add(ack.ack),
        flags: flag::ACK,
        window: ((pattern.window * SEGMENT) >> SCALE) as u16,
        options: &options,
        ..<_>::default()
    })
}
