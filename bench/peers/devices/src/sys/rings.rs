//! AF_PACKET with rings (packet_mmap): the kernel puts frames into memory of ours, and with version
//! 2 takes answers from there as well.
//!
//! Version 3 hands frames over in blocks: one that is not full comes when its time is up, which is
//! a millisecond at the least.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{tpacket_hdr_v1, tpacket_req, tpacket_req3, tpacket2_hdr, tpacket3_hdr};
use peer_common::tun::VNET_HEADER;

use super::map::Map;
use super::packet::{bind, open, send};
use super::{kick, set_option, wait_readable};
use crate::echo::{Echo, Fate};
use crate::failure::{Endless, Failure, Named};

/// The layout of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A frame for each packet, to receive and to send.
    V2,
    /// Blocks, to receive. Answers are sent by a call for each.
    V3,
}

/// `PACKET_RX_RING`, `PACKET_VERSION` and `PACKET_TX_RING`.
const RX_RING: libc::c_int = 5;
const VERSION: libc::c_int = 10;
const TX_RING: libc::c_int = 13;

/// Bytes of a block, which takes the largest packet, and how many there are. In version 2 a block
/// is one frame.
const BLOCK: usize = 128 * 1024;
const BLOCKS: usize = 64;

/// Who has a frame or a block: `TP_STATUS_KERNEL` (and `TP_STATUS_AVAILABLE`), `TP_STATUS_USER`,
/// `TP_STATUS_SEND_REQUEST`.
const KERNEL: u32 = 0;
const USER: u32 = 1;
const SEND_REQUEST: u32 = 1;

/// Where the kernel looks for a packet that is to be sent: behind the header, as aligned.
const TX_OFFSET: usize = size_of::<tpacket2_hdr>().next_multiple_of(16);

/// Where a block's own header begins.
const BLOCK_HEADER: usize = 8;

/// Answers by rings.
pub(crate) fn answer(device: &str, version: Version, echo: Echo) -> Endless {
    let socket = open()?;
    let number: libc::c_int = match version {
        Version::V2 => 1,
        Version::V3 => 2,
    };
    set_option(&socket, libc::SOL_PACKET, VERSION, &number).named("PACKET_VERSION")?;
    match version {
        Version::V2 => frames(&socket, device, echo),
        Version::V3 => blocks(&socket, device, echo),
    }
}

/// A status that the kernel changes.
fn status(map: &Map, offset: usize) -> &AtomicU32 {
    // SAFETY: it is within the mapping and aligned (`at`), and both sides access it as one word.
    unsafe { AtomicU32::from_ptr(map.at(offset, size_of::<u32>())) }
}

/// Reads a header in a place that the kernel has handed over.
fn header<T: Copy>(map: &Map, offset: usize) -> T {
    let place: *const T = map.at(offset, size_of::<T>());
    // SAFETY: it is within the mapping and aligned (`at`), and any bytes are a value of these
    // structures, which are numbers. The kernel has written them before the status.
    unsafe { place.read() }
}

fn frames(socket: &OwnedFd, device: &str, mut echo: Echo) -> Endless {
    let ring = tpacket_req {
        tp_block_size: BLOCK as u32,
        tp_block_nr: BLOCKS as u32,
        tp_frame_size: BLOCK as u32,
        tp_frame_nr: BLOCKS as u32,
    };
    set_option(socket, libc::SOL_PACKET, RX_RING, &ring).named("PACKET_RX_RING")?;
    set_option(socket, libc::SOL_PACKET, TX_RING, &ring).named("PACKET_TX_RING")?;
    let mut map = Map::of(socket, 2 * BLOCK * BLOCKS, 0).named("mapping the rings")?;
    bind(socket, device)?;
    crate::ready()?;
    let (mut next, mut free, mut queued) = (0, 0, false);
    loop {
        let at = next * BLOCK;
        if status(&map, at).load(Ordering::Acquire) & USER == 0 {
            // All that has come is worked on: one call sends all answers.
            if std::mem::take(&mut queued) {
                kick(socket).named("send")?;
            } else {
                wait_readable(socket.as_fd()).named("poll")?;
            }
            continue;
        }
        let head: tpacket2_hdr = header(&map, at);
        let begin = at + usize::from(head.tp_mac) - VNET_HEADER;
        let length = VNET_HEADER + head.tp_snaplen as usize;
        // SAFETY: the kernel has handed the frame over, and gets it back below.
        let packet = unsafe { map.bytes(begin, length) };
        if echo.take(&mut packet[VNET_HEADER..], head.tp_len as usize) == Fate::Sent {
            let to = (BLOCKS + free) * BLOCK;
            if status(&map, to).load(Ordering::Acquire) == KERNEL {
                put(&mut map, begin, length, to);
                free = (free + 1) % BLOCKS;
                queued = true;
            }
        }
        status(&map, at).store(KERNEL, Ordering::Release);
        next = (next + 1) % BLOCKS;
    }
}

/// Copies a packet into a frame that is to be sent.
fn put(map: &mut Map, from: usize, length: usize, to: usize) {
    let source: *const u8 = map.at(from, length);
    let target: *mut u8 = map.at(to + TX_OFFSET, length);
    // SAFETY: both are within the mapping (`at`), in different frames, and both frames are ours.
    unsafe { source.copy_to_nonoverlapping(target, length) };
    let place: *mut u32 = map.at(to + offset_of!(tpacket2_hdr, tp_len), size_of::<u32>());
    // SAFETY: it is within the mapping and aligned (`at`), and the frame is ours.
    unsafe { place.write(length as u32) };
    status(map, to).store(SEND_REQUEST, Ordering::Release);
}

fn blocks(socket: &OwnedFd, device: &str, mut echo: Echo) -> Endless {
    let ring = tpacket_req3 {
        tp_block_size: BLOCK as u32,
        tp_block_nr: BLOCKS as u32,
        tp_frame_size: BLOCK as u32,
        tp_frame_nr: BLOCKS as u32,
        tp_retire_blk_tov: 1,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set_option(socket, libc::SOL_PACKET, RX_RING, &ring).named("PACKET_RX_RING")?;
    let mut map = Map::of(socket, BLOCK * BLOCKS, 0).named("mapping the ring")?;
    bind(socket, device)?;
    crate::ready()?;
    let mut next = 0;
    loop {
        let at = next * BLOCK;
        let state = at + BLOCK_HEADER + offset_of!(tpacket_hdr_v1, block_status);
        while status(&map, state).load(Ordering::Acquire) & USER == 0 {
            wait_readable(socket.as_fd()).named("poll")?;
        }
        block(socket, &mut map, at, &mut echo)?;
        status(&map, state).store(KERNEL, Ordering::Release);
        next = (next + 1) % BLOCKS;
    }
}

/// Works on all packets of a block.
fn block(socket: &OwnedFd, map: &mut Map, at: usize, echo: &mut Echo) -> Result<(), Failure> {
    let block: tpacket_hdr_v1 = header(map, at + BLOCK_HEADER);
    let mut place = at + block.offset_to_first_pkt as usize;
    for _ in 0..block.num_pkts {
        let head: tpacket3_hdr = header(map, place);
        let begin = place + usize::from(head.tp_mac) - VNET_HEADER;
        // SAFETY: the kernel has handed the block over, and gets it back from the caller.
        let packet = unsafe { map.bytes(begin, VNET_HEADER + head.tp_snaplen as usize) };
        if echo.take(&mut packet[VNET_HEADER..], head.tp_len as usize) == Fate::Sent {
            send(socket, packet).named("send")?;
        }
        place += head.tp_next_offset as usize;
    }
    Ok(())
}
