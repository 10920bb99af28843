//! One thread over TUN that does next to nothing: what the device and the kernels on either side of
//! it leave to any stack that has one thread.
//!
//! It does what a client asks for ([`Job`](peer_common::Job)), by a read and a write of the device
//! for each packet. Requests and answers of several segments are one packet, which the kernel cuts;
//! bulk is read and acknowledged, or sent from one block as far as the window of the client goes,
//! whatever the size of a write is meant to be. It verifies and copies nothing, sends nothing twice
//! and has no timers: a packet that is lost ends the measurement. IPv4 only. It is of no use for
//! anything else.

mod flow;
mod segment;

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};

use peer_common::tun::{self, VNET_HEADER};
use peer_common::{Args, SCRATCH};

use flow::{Due, Flow, Next};
use segment::{FIN, IP, PSH, RST, SYN, Segment, TCP, send};

/// Answers a segment of a connection.
fn answer(
    device: &mut File,
    flow: &mut Flow,
    segment: &Segment<'_>,
    block: &[u8],
) -> Result<(), Box<dyn Error>> {
    flow.acknowledged(segment);
    let fin = segment.flags & FIN;
    if segment.payload.is_empty() && fin == 0 {
        return Ok(());
    }
    let mut due = Due::Ack;
    if segment.seq == flow.rcv_nxt {
        if !segment.payload.is_empty() {
            due = flow.take(segment.payload)?;
        }
        flow.rcv_nxt = flow.rcv_nxt.wrapping_add(u32::from(fin != 0));
    }
    if let Due::Answers(count, size) = due {
        let size = size.min(65536 - IP - TCP - 1);
        for _ in 0..count {
            send(device, flow, PSH, &block[..size])?;
        }
    }
    if due == Due::Ack || fin != 0 {
        send(device, flow, if flow.sends_bulk() { 0 } else { fin }, &[])?;
    }
    Ok(())
}

/// Sends bulk as far as the window goes, and its end.
fn send_bulk(device: &mut File, flow: &mut Flow, block: &[u8]) -> io::Result<()> {
    loop {
        match flow.next() {
            Next::Nothing => return Ok(()),
            Next::Block(size) => send(device, flow, 0, &block[..size])?,
            Next::End => send(device, flow, FIN, &[])?,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::of_program()?;
    let mut device = tun::with_offloads(&args.device)?;
    let mut flows = HashMap::new();
    let (mut packet, block) = (vec![0; VNET_HEADER + 65536], vec![0; SCRATCH]);
    peer_common::ready()?;
    loop {
        let length = device.read(&mut packet)?;
        let Some(segment) = packet.get(VNET_HEADER..length).and_then(Segment::parse) else {
            continue;
        };
        let peer = segment.ends.peer();
        if segment.flags & (RST | SYN) != 0 {
            flows.remove(&peer);
        }
        if segment.flags & SYN != 0 {
            let flow = flows.entry(peer).or_insert_with(|| Flow::begin(&segment));
            send(&mut device, flow, SYN, &[])?;
            continue;
        }
        let Some(flow) = flows.get_mut(&peer) else { continue };
        answer(&mut device, flow, &segment, &block)?;
        send_bulk(&mut device, flow, &block)?;
    }
}
