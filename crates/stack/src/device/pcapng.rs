//! Capture: a device wrapper that writes every packet into a pcapng file.
//!
//! # Theory of operation
//!
//! Packets are written as they are passed on: a super-segment is one packet, far longer than the
//! MTU, and a checksum left to the device is incomplete. A comment of the packet notes both,
//! because a tool would otherwise report a wrong checksum. Without offloads there are no such
//! packets, and every checksum in the file is right.
//!
//! A TCP packet that leaves has a comment with the reasons: the hold before it and its duration,
//! the limit of its length, the treatment of its tail, and why it acknowledges or is retransmitted.
//! The engine makes these notes as numbers, for captures only; they become words here.
//!
//! Packets that the device itself drops are in the file, too; packets that it leaves in the queue
//! are not, until it takes them. Blocks are buffered and written once a second and at the end. If
//! writing fails (the disk is full), the capture ends and packets still pass. A file is then
//! truncated after its last whole block, so that it can be read, and [`Capture::error`] and
//! [`Capture::on_error`] report it.
//!
//! The format is that of the IETF draft "PCAP Next Generation": a section header, an interface
//! description (raw IP, nanoseconds), and enhanced packet blocks with direction flags.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_buf::Pool;
use plimsoll_tcp::{Duration, Instant};

use super::{
    Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, LinkEvent, TxProgress, earlier,
};
use crate::packet::{ChecksumState, Packet};

/// Packets that are captured in one go on transmission.
const BATCH: usize = 64;
/// Bytes that are gathered before they are written.
const BUFFER: usize = 256 << 10;
/// Bytes that are gathered stay at most this long.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Block types and option codes of pcapng.
mod code {
    pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const PACKET: u32 = 6;
    pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const APPLICATION: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const LINKTYPE_RAW: u16 = 101;
}

/// The settings of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureConfig {
    /// Bytes kept of each packet.
    pub snap_len: usize,
    /// The time since 1970 at [`Instant::ZERO`], which is added to every time stamp.
    pub epoch: Duration,
}

plimsoll_tcp::setters!(CaptureConfig { snap_len: usize, epoch: Duration });

impl Default for CaptureConfig {
    fn default() -> CaptureConfig {
        CaptureConfig { snap_len: 262_144, epoch: Duration::ZERO }
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The stack received it.
    Inbound = 1,
    /// The stack sent it.
    Outbound = 2,
}

/// Where blocks go.
enum Out {
    /// It can be cut.
    File(File),
    Other(Box<dyn Write + Send>),
}

impl Out {
    /// Writes all of `bytes`. An error comes with how many of them were written before it.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let out: &mut dyn Write = match self {
            Out::File(file) => file,
            Out::Other(other) => other,
        };
        let mut written = 0;
        while written < bytes.len() {
            match out.write(&bytes[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        out.flush().map_err(|error| (written, error))
    }
}

/// The callback for the reason why a capture has ended.
type Tell = Box<dyn FnOnce(&str) + Send>;

/// Writes pcapng blocks for one interface.
struct Writer {
    out: Out,
    config: CaptureConfig,
    /// One block, while it is put together.
    block: Vec<u8>,
    /// Blocks that are to be written.
    gathered: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// Bytes of all blocks that were written.
    written: u64,
    /// When bytes that are gathered must be flushed.
    flush_at: Option<Instant>,
    packets: u64,
    error: Option<String>,
    tell: Option<Tell>,
}

impl Writer {
    fn new(out: Out, config: CaptureConfig, name: &str) -> Writer {
        let mut writer = Writer {
            out,
            config,
            block: Vec::new(),
            gathered: Vec::new(),
            ends: Vec::new(),
            written: 0,
            flush_at: None,
            packets: 0,
            error: None,
            tell: None,
        };
        writer.section_header();
        writer.interface(name);
        writer
    }

    fn section_header(&mut self) {
        self.begin(code::SECTION_HEADER);
        self.put(&code::BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a length that is not known.
        self.put(&[1, 0, 0, 0]);
        self.put(&u64::MAX.to_le_bytes());
        self.option(code::APPLICATION, b"plimsoll");
        self.option(code::END, &[]);
        self.end();
    }

    fn interface(&mut self, name: &str) {
        self.begin(code::INTERFACE);
        self.put(&code::LINKTYPE_RAW.to_le_bytes());
        self.put(&[0, 0]);
        self.put(&(self.config.snap_len as u32).to_le_bytes());
        self.option(code::IF_NAME, name.as_bytes());
        // Ten to the minus ninth.
        self.option(code::IF_TSRESOL, &[9]);
        self.option(code::END, &[]);
        self.end();
    }

    fn packet(&mut self, now: Instant, direction: Direction, packet: &Packet) {
        if self.error.is_some() {
            return;
        }
        let at = now + self.config.epoch;
        let len = packet.len();
        let kept = len.min(self.config.snap_len);
        self.begin(code::PACKET);
        self.put(&0_u32.to_le_bytes());
        self.put(&((at.as_nanos() >> 32) as u32).to_le_bytes());
        self.put(&(at.as_nanos() as u32).to_le_bytes());
        self.put(&(kept as u32).to_le_bytes());
        self.put(&(len as u32).to_le_bytes());
        let mut rest = kept;
        for part in packet.parts() {
            let take = rest.min(part.len());
            self.put(&part[..take]);
            rest -= take;
        }
        self.pad();
        self.option(code::EPB_FLAGS, &(direction as u32).to_le_bytes());
        // Two comments rather than one long one: first the reason why it leaves, then its contents.
        let note = packet.note.as_ref().filter(|_| direction == Direction::Outbound);
        if let Some(note) = note {
            self.option(code::COMMENT, note.to_string().as_bytes());
        }
        if let Some(comment) = comment(packet) {
            self.option(code::COMMENT, comment.as_bytes());
        }
        self.option(code::END, &[]);
        self.end();
        self.packets += 1;
        self.flush_at.get_or_insert(now + FLUSH_AFTER);
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        // The length is set at the end.
        self.put(&[0; 4]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    fn end(&mut self) {
        let len = (self.block.len() as u32 + 4).to_le_bytes();
        self.put(&len);
        self.block[4..8].copy_from_slice(&len);
        self.gathered.extend_from_slice(&self.block);
        self.ends.push(self.gathered.len());
        if self.gathered.len() >= BUFFER {
            self.flush();
        }
    }

    /// Writes the buffered blocks. The capture ends at the first error.
    fn flush(&mut self) {
        self.flush_at = None;
        if self.error.is_none() {
            match self.out.write_all(&self.gathered) {
                Ok(()) => self.written += self.gathered.len() as u64,
                Err((count, error)) => self.end_with(count, &error),
            }
        }
        self.gathered.clear();
        self.ends.clear();
    }

    fn flush_if_due(&mut self, now: Instant) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush();
        }
    }

    /// Ends the capture, after `count` bytes of the buffered blocks were written.
    fn end_with(&mut self, count: usize, error: &io::Error) {
        let whole = self.ends.iter().take_while(|&&end| end <= count).last().copied().unwrap_or(0);
        self.written += whole as u64;
        if let Out::File(file) = &self.out {
            // A pipe or a device cannot be cut. Its reader sees that the last block is not whole.
            let _ = file.set_len(self.written);
        }
        let error = self.error.insert(error.to_string());
        if let Some(tell) = self.tell.take() {
            tell(error);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Facts that a tool cannot see in the bytes.
fn comment(packet: &Packet) -> Option<String> {
    let partial = packet.csum == ChecksumState::Partial;
    match (packet.gso, partial) {
        (None, false) => None,
        (None, true) => Some("checksum left to the device".into()),
        (Some(gso), _) => {
            let tail = if partial { ", checksum left to the device" } else { "" };
            Some(format!("super-segment of {} x {} bytes{tail}", gso.segs, gso.size))
        }
    }
}

/// A handle to a running capture.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Writer>>);

impl Capture {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A writer that panicked in the middle leaves at worst one damaged block.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of packets written so far.
    pub fn packets(&self) -> u64 {
        self.writer().packets
    }

    /// The reason why the capture has ended, if it has.
    pub fn error(&self) -> Option<String> {
        self.writer().error.clone()
    }

    /// Registers `tell`, which is called when the capture ends with an error, at once if it has
    /// already. It runs on the capturing thread and must not call the capture.
    pub fn on_error(&self, tell: impl FnOnce(&str) + Send + 'static) {
        let mut writer = self.writer();
        match &writer.error {
            Some(error) => tell(error),
            None => writer.tell = Some(Box::new(tell)),
        }
    }

    /// Writes the buffered blocks.
    pub fn flush(&self) {
        self.writer().flush();
    }
}

/// Captures all packets of `device` into `out`, whole, with times since [`Instant::ZERO`].
pub fn wrap(device: Device, out: impl Write + Send + 'static) -> Device {
    wrap_with(device, out, CaptureConfig::default()).0
}

/// Captures the packets of `device` into `out`. The handle reports its progress.
pub fn wrap_with(
    device: Device,
    out: impl Write + Send + 'static,
    config: CaptureConfig,
) -> (Device, Capture) {
    wrap_out(device, Out::Other(Box::new(out)), config)
}

/// As [`wrap_with`], for a file, which is truncated after the last whole block if writing fails.
pub fn wrap_file(device: Device, file: File, config: CaptureConfig) -> (Device, Capture) {
    wrap_out(device, Out::File(file), config)
}

fn wrap_out(device: Device, out: Out, config: CaptureConfig) -> (Device, Capture) {
    let writer = Writer::new(out, config, &device.tx.caps().name);
    let capture = Capture(Arc::new(Mutex::new(writer)));
    let tx = CaptureTx {
        inner: device.tx,
        capture: capture.clone(),
        batch: VecDeque::with_capacity(BATCH),
        copies: Vec::with_capacity(BATCH),
    };
    let rx = CaptureRx { inner: device.rx, capture: capture.clone() };
    (Device { tx: Box::new(tx), rx: Box::new(rx), wait: device.wait }, capture)
}

struct CaptureTx {
    inner: Box<dyn DeviceTx>,
    capture: Capture,
    /// Packets on offer to the device inside; empty between calls.
    batch: VecDeque<Packet>,
    /// Copies of the offered packets, which share their bytes; empty between calls.
    copies: Vec<Packet>,
}

impl CaptureTx {
    /// Offers the front of `queue` to the device inside and captures the packets that it takes.
    fn offer(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let count = queue.len().min(BATCH);
        self.copies.extend(queue.iter().take(count).map(Packet::share));
        self.batch.extend(queue.drain(..count));
        // Locked all the while, so that an answer is not written before its question.
        let mut writer = self.capture.writer();
        let result = self.inner.transmit(now, &mut self.batch);
        let taken = count - self.batch.len();
        for packet in &self.copies[..taken] {
            writer.packet(now, Direction::Outbound, packet);
        }
        writer.flush_if_due(now);
        drop(writer);
        self.copies.clear();
        while let Some(packet) = self.batch.pop_back() {
            queue.push_front(packet);
        }
        result
    }
}

impl DeviceTx for CaptureTx {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn takes_notes(&self) -> bool {
        true
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut total = TxProgress::done(0);
        loop {
            let progress = self.offer(now, queue)?;
            total.packets += progress.packets;
            total.status = progress.status;
            total.caps_changed |= progress.caps_changed;
            if queue.is_empty() || progress.packets == 0 {
                return Ok(total);
            }
        }
    }

    fn poll_completions(&mut self, now: Instant) -> Result<usize, DeviceError> {
        self.capture.writer().flush_if_due(now);
        self.inner.poll_completions(now)
    }

    fn next_event(&self) -> Option<Instant> {
        earlier(self.inner.next_event(), self.capture.writer().flush_at)
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

struct CaptureRx {
    inner: Box<dyn DeviceRx>,
    capture: Capture,
}

impl DeviceRx for CaptureRx {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        let before = out.len();
        let result = self.inner.receive(now, pool, out, max);
        if out.len() > before {
            let mut writer = self.capture.writer();
            for packet in &out[before..] {
                writer.packet(now, Direction::Inbound, packet);
            }
        }
        result
    }

    fn may_hold_more(&self) -> bool {
        self.inner.may_hold_more()
    }

    fn take_event(&mut self) -> Option<LinkEvent> {
        self.inner.take_event()
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn on_idle(&mut self) {
        self.inner.on_idle();
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests;
