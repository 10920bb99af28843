//! The task of a stack: it moves packets between the program's device and the stack, and runs the
//! stack in between.
//!
//! One task does all three, so that a packet of the device is processed, and its answer written,
//! without a switch to another task. Packets that were read wait for the stack in `arrived`, at
//! most one batch. Packets that the stack sends wait in `leaving`. A device that does not keep up
//! fills the stack's queues and slows its connections down; no packet is dropped in between.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use plimsoll::device::channel::{Channel, ChannelReceiver, ChannelSender};
use plimsoll::net::Driver;
use plimsoll::{ChunkWriter, Packet, Pool, StackError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::arrival::Arrival;
use crate::error::IpStackError;
use crate::inner_waker::InnerWaker;
use crate::stream::IpStackStream;
use crate::unknown::{IpStackUnknownTransport, RawSender};

/// Packets that are read, or written, before others have their turn.
const BATCH: usize = 64;

/// Turns of reading, running the stack and writing before other tasks of the thread have theirs.
const TURNS: usize = 32;

/// The longest IP packet.
const MAX_PACKET: usize = 65_535;

/// Bytes before each packet that name the version of IP, where there are such.
const PREFIX_LEN: usize = 4;

/// Bytes that packets are copied into, one behind the other.
const CHUNK: usize = 65_536;

/// Why there is nothing to accept any more. It is set before the queues end.
#[derive(Debug, Default)]
pub(crate) struct End(OnceLock<Failure>);

/// An error of the device, in a form that can be returned more than once.
#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    text: String,
}

impl End {
    /// The error that `accept` returns when a queue has ended with `error`.
    pub(crate) fn error(&self, error: IpStackError) -> IpStackError {
        match self.0.get() {
            Some(failure) => io::Error::new(failure.kind, failure.text.clone()).into(),
            // Without a failure, streams and packets have come to their end.
            None if matches!(error, IpStackError::IoError(_)) => IpStackError::AcceptError,
            None => error,
        }
    }
}

/// The task's ends of the queues that it shares with the program.
pub(crate) struct Ends {
    /// Packets that are neither TCP nor UDP.
    pub(crate) to_program: mpsc::Sender<IpStackStream>,
    /// Packets that the program has made.
    pub(crate) raw: mpsc::Receiver<Vec<u8>>,
    /// The sender with which the program makes such packets.
    pub(crate) raw_sender: RawSender,
    /// Completes when the program has dropped the stack.
    pub(crate) stop: oneshot::Receiver<()>,
}

/// The task. It is over when the stack is.
pub(crate) struct Carrier<D> {
    /// `None` when the device has come to its end, or the program has dropped the stack.
    link: Option<Link<D>>,
    driver: Driver,
    stop: oneshot::Receiver<()>,
    end: Arc<End>,
    waker: Arc<InnerWaker>,
}

/// Why a link ends.
enum Ended {
    /// The program has dropped the stack, or the stack has ended.
    Dropped,
    /// The device gives no packets any more.
    Over,
    Failed(io::Error),
    /// The stack has come to its end by itself.
    Stack(StackError),
}

impl<D: AsyncRead + AsyncWrite + Unpin> Carrier<D> {
    pub(crate) fn new(
        device: D,
        packet_information: bool,
        channel: Channel,
        driver: Driver,
        ends: Ends,
        end: Arc<End>,
    ) -> Carrier<D> {
        let (to_stack, from_stack) = channel.split();
        let Ends { to_program, raw, raw_sender, stop } = ends;
        let prefix = packet_information;
        let reader = Reader {
            prefix,
            scratch: vec![0; PREFIX_LEN + MAX_PACKET].into_boxed_slice(),
            pool: Pool::new(),
            chunk: None,
            arrived: VecDeque::new(),
            to_stack,
            to_program,
            raw_sender,
        };
        let writer = Writer {
            prefix,
            from_stack,
            raw,
            leaving: Vec::new(),
            frame: Vec::new(),
            written: 0,
            flushed: true,
        };
        let link = Some(Link { device, reader, writer });
        Carrier { link, driver, stop, end, waker: InnerWaker::new() }
    }

    /// Ends the link: the device is dropped, and so the interface goes down.
    fn cut(&mut self, ended: Ended) {
        let Some(link) = self.link.take() else { return };
        let (failure, why) = match ended {
            Ended::Dropped => (None, "the program has dropped the IpStack".to_owned()),
            Ended::Over => (None, "the device gives no packets any more".to_owned()),
            Ended::Failed(error) => (Some(error.kind()), format!("the device has failed: {error}")),
            Ended::Stack(error) => {
                (Some(ErrorKind::Other), format!("the stack has failed: {error}"))
            }
        };
        if let Some(kind) = failure {
            self.end.0.get_or_init(|| Failure { kind, text: why.clone() });
        }
        link.reader.to_stack.close(why);
    }

    /// Has the link do what it can in one direction.
    fn carry(
        &mut self,
        cx: &mut Context<'_>,
        carry: impl FnOnce(&mut Link<D>, &mut Context<'_>) -> Poll<Result<(), Ended>>,
    ) {
        let Some(link) = &mut self.link else { return };
        match carry(link, cx) {
            // There may be more; the others first.
            Poll::Ready(Ok(())) => cx.waker().wake_by_ref(),
            Poll::Ready(Err(ended)) => self.cut(ended),
            Poll::Pending => {}
        }
    }
}

impl<D: AsyncRead + AsyncWrite + Unpin> Carrier<D> {
    /// Reads, runs the stack, and writes, as far as each can go on and up to a batch.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.link.is_some() && Pin::new(&mut self.stop).poll(cx).is_ready() {
            self.cut(Ended::Dropped);
        }
        self.carry(cx, Link::poll_read);
        if let Poll::Ready(over) = Pin::new(&mut self.driver).poll(cx) {
            self.cut(over.map_or_else(Ended::Stack, |()| Ended::Dropped));
            return Poll::Ready(());
        }
        self.carry(cx, Link::poll_write);
        Poll::Pending
    }
}

impl<D: AsyncRead + AsyncWrite + Unpin> Future for Carrier<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = self.waker.clone();
        inner.enter(cx.waker());
        let waker = Waker::from(inner.clone());
        let mut inside = Context::from_waker(&waker);
        let mut polled = Poll::Pending;
        for _turn in 0..TURNS {
            inner.take_mark();
            polled = self.turn(&mut inside);
            if polled.is_ready() || !inner.is_marked() {
                break;
            }
        }
        inner.leave();
        polled
    }
}

/// The program's device and what is on its way in both directions.
struct Link<D> {
    device: D,
    reader: Reader,
    writer: Writer,
}

impl<D: AsyncRead + AsyncWrite + Unpin> Link<D> {
    /// Reads a batch at most. Ready is that there may be more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let reader = &mut self.reader;
        ready!(reader.poll_hand_over(cx))?;
        let mut read = Poll::Ready(Ok(()));
        // Count the packets that the device gives, not those that the stack gets. Otherwise a
        // device that is never empty of packets for others would hold the task.
        for _packet in 0..BATCH {
            if !read.is_ready() {
                break;
            }
            let mut buf = ReadBuf::new(&mut reader.scratch);
            read = match Pin::new(&mut self.device).poll_read(cx, &mut buf) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => continue,
                Poll::Ready(Err(error)) => Poll::Ready(Err(Ended::Failed(error))),
                Poll::Ready(Ok(())) if buf.filled().is_empty() => Poll::Ready(Err(Ended::Over)),
                Poll::Ready(Ok(())) => {
                    let len = buf.filled().len();
                    reader.arrive(len);
                    Poll::Ready(Ok(()))
                }
            };
            if matches!(read, Poll::Ready(Err(_))) {
                break;
            }
        }
        let handed = reader.poll_hand_over(cx);
        match (read, handed) {
            (Poll::Ready(Err(ended)), _) | (_, Poll::Ready(Err(ended))) => Poll::Ready(Err(ended)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    /// Writes a batch at most. Ready is that there may be more.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        for _packet in 0..BATCH {
            ready!(self.writer.poll_frame(&mut self.device, cx))?;
            let Some(packet) = ready!(self.writer.poll_next(&mut self.device, cx))? else {
                return Poll::Ready(Err(Ended::Dropped));
            };
            ready!(self.writer.poll_packet(&mut self.device, cx, &packet))?;
        }
        Poll::Ready(Ok(()))
    }
}

/// From the device to the stack.
struct Reader {
    prefix: bool,
    /// The buffer of a read. A device may give more than the MTU.
    scratch: Box<[u8]>,
    pool: Pool,
    chunk: Option<ChunkWriter>,
    arrived: VecDeque<Packet>,
    to_stack: ChannelSender,
    to_program: mpsc::Sender<IpStackStream>,
    raw_sender: RawSender,
}

impl Reader {
    /// A packet of `len` bytes, with what is before it, is in the buffer.
    fn arrive(&mut self, len: usize) {
        let begin = if self.prefix { PREFIX_LEN.min(len) } else { 0 };
        let packet = &self.scratch[begin..len];
        // If the queue is full, the program does not take what it is given: it is dropped, as IP
        // allows.
        match Arrival::of(packet) {
            Arrival::Stack => self.keep(begin, len),
            Arrival::Unknown => {
                let _ = self.to_program.try_send(IpStackStream::UnknownNetwork(packet.to_vec()));
            }
            Arrival::Program(other) => {
                let unknown = IpStackUnknownTransport::new(packet, other, self.raw_sender.clone());
                let _ = self.to_program.try_send(IpStackStream::UnknownTransport(unknown));
            }
            Arrival::StackAndProgram(other) => {
                let unknown = IpStackUnknownTransport::new(packet, other, self.raw_sender.clone());
                let _ = self.to_program.try_send(IpStackStream::UnknownTransport(unknown));
                self.keep(begin, len);
            }
        }
    }

    /// Keeps a packet for the stack. Packets lie one behind the other, so that small ones cost
    /// little.
    fn keep(&mut self, begin: usize, end: usize) {
        let packet = &self.scratch[begin..end];
        if let Some(chunk) = &mut self.chunk
            && chunk.remaining() < packet.len()
            && !chunk.rewind()
        {
            self.chunk = None;
        }
        let chunk = self.chunk.get_or_insert_with(|| self.pool.chunk(CHUNK));
        self.arrived.push_back(chunk.append(packet).into());
    }

    /// Gives the stack what has arrived. Pending is that it has no room for all.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        while !self.arrived.is_empty() {
            let sent = ready!(self.to_stack.poll_send_many(cx, &mut self.arrived));
            sent.map_err(|_closed| Ended::Dropped)?;
        }
        Poll::Ready(Ok(()))
    }
}

/// From the stack to the device.
struct Writer {
    prefix: bool,
    from_stack: ChannelReceiver,
    raw: mpsc::Receiver<Vec<u8>>,
    /// The packets that the stack has sent, the last first.
    leaving: Vec<Packet>,
    /// The bytes of a packet that the device has not taken yet.
    frame: Vec<u8>,
    /// How many of them it has taken.
    written: usize,
    /// Nothing was written since the device was flushed.
    flushed: bool,
}

impl Writer {
    /// The next packet; `None` when the stack has ended. If there is none, the device is flushed.
    fn poll_next<D: AsyncWrite + Unpin>(
        &mut self,
        device: &mut D,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Packet>, Ended>> {
        if let Some(packet) = self.leaving.pop() {
            return Poll::Ready(Ok(Some(packet)));
        }
        if let Poll::Ready(Some(bytes)) = self.raw.poll_recv(cx) {
            return Poll::Ready(Ok(Some(bytes.into())));
        }
        if let Poll::Ready(count) = self.from_stack.poll_recv_many(cx, &mut self.leaving, BATCH) {
            self.leaving.reverse();
            debug_assert_eq!(count, self.leaving.len());
            return Poll::Ready(Ok(self.leaving.pop()));
        }
        if !self.flushed {
            let flushed = ready!(Pin::new(device).poll_flush(cx));
            self.flushed = true;
            flushed.or_else(about_packet)?;
        }
        Poll::Pending
    }

    /// Writes `packet`, or keeps what the device does not take of it.
    ///
    /// It is copied together first. A vectored write would save that, but devices pass it on to
    /// the standard library's, which writes the first part only, as a packet of its own: so does
    /// `tun::AsyncDevice`.
    fn poll_packet<D: AsyncWrite + Unpin>(
        &mut self,
        device: &mut D,
        cx: &mut Context<'_>,
        packet: &Packet,
    ) -> Poll<Result<(), Ended>> {
        let prefix = prefix(packet.headers().first().is_some_and(|first| first >> 4 == 6));
        let prefix = &prefix[..if self.prefix { PREFIX_LEN } else { 0 }];
        self.flushed = false;
        self.frame.extend_from_slice(prefix);
        packet.parts().for_each(|part| self.frame.extend_from_slice(part));
        self.poll_frame(device, cx)
    }

    /// Writes what the device has not taken yet.
    fn poll_frame<D: AsyncWrite + Unpin>(
        &mut self,
        device: &mut D,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Ended>> {
        while self.written < self.frame.len() {
            let rest = &self.frame[self.written..];
            match ready!(Pin::new(&mut *device).poll_write(cx, rest)) {
                Ok(0) => return Poll::Ready(Err(refuses())),
                Ok(bytes) => self.written += bytes,
                Err(error) => {
                    about_packet(error)?;
                    self.written = self.frame.len();
                }
            }
        }
        self.frame.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

fn refuses() -> Ended {
    let what = "it takes no byte of a packet";
    Ended::Failed(io::Error::new(ErrorKind::WriteZero, what))
}

/// Handles an error of a write. A packet that the device refuses is lost, as on any link, and so is
/// one for an interface that is down. Only an error that means that the device is gone ends the
/// stack.
fn about_packet(error: io::Error) -> Result<(), Ended> {
    match error.kind() {
        ErrorKind::BrokenPipe
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::WriteZero
        | ErrorKind::UnexpectedEof => Err(Ended::Failed(error)),
        _ => Ok(()),
    }
}

/// The bytes in front of a packet where packet information is on: flags, and the protocol in the
/// format of the system's TUN devices.
fn prefix(is_v6: bool) -> [u8; PREFIX_LEN] {
    let apple = cfg!(any(target_os = "macos", target_os = "ios"));
    match (apple, is_v6) {
        // The numbers of Ethernet.
        (false, false) => [0, 0, 0x08, 0x00],
        (false, true) => [0, 0, 0x86, 0xdd],
        // AF_INET and AF_INET6.
        (true, false) => [0, 0, 0, 2],
        (true, true) => [0, 0, 0, 30],
    }
}
