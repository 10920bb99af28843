//! One connection.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddrV4;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

use crate::packet::{ACK, FIN, HEADERS, Outgoing, RST, SYN, Segment};

/// Bytes that wait for the reader at most, and bytes that are kept for the peer. It is more than a
/// path without delay needs, and less than the queue of a TUN device holds.
const BUFFER: usize = 512 << 10;
/// Shift of the windows that are announced.
const SCALE: u8 = 7;
/// How long nothing may be acknowledged before it is sent again.
const PATIENCE: Duration = Duration::from_millis(200);
/// Where sequence numbers of ours begin. A peer that can guess it is no peer of a measurement.
const ISS: u32 = 1;

/// What [`crate::IpStack`] runs on.
pub(crate) trait Device: AsyncRead + AsyncWrite + Send {}

impl<D: AsyncRead + AsyncWrite + Send> Device for D {}

/// The device, and the memory in which packets are built.
pub(crate) struct Wire {
    pub(crate) device: Pin<Box<dyn Device>>,
    packet: Vec<u8>,
}

/// The device, of driver and connections.
pub(crate) type SharedDevice = Arc<Mutex<Wire>>;

pub(crate) fn share(device: Pin<Box<dyn Device>>) -> SharedDevice {
    Arc::new(Mutex::new(Wire { device, packet: Vec::new() }))
}

/// A lock. A thread that panicked with it was ending anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection with its two addresses.
pub(crate) struct Flow {
    client: SocketAddrV4,
    server: SocketAddrV4,
    state: Mutex<State>,
}

struct State {
    mss: usize,
    /// Shift of the windows that the peer announces; none if it does not scale.
    scale: Option<u8>,
    rcv_nxt: u32,
    snd_una: u32,
    snd_nxt: u32,
    /// The highest that SND.NXT has been: it goes back when data is sent again.
    snd_max: u32,
    snd_wnd: usize,
    /// What is not acknowledged, from SND.UNA on, sent or not.
    outgoing: VecDeque<u8>,
    incoming: VecDeque<u8>,
    /// The window that was announced last.
    announced: usize,
    ack_due: bool,
    duplicates: u32,
    /// While SND.UNA is before this, all is being sent again already: duplicate ACKs are of that.
    recover: u32,
    progress: Instant,
    ended: bool,
    shut: bool,
    fin_sent: bool,
    dead: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Flow {
    /// The connection that a SYN begins.
    pub(crate) fn new(syn: &Segment<'_>, mtu: usize) -> Flow {
        let mss = syn.option(2).and_then(|value| value.try_into().ok()).map(u16::from_be_bytes);
        let state = State {
            mss: usize::from(mss.unwrap_or(536)).min(mtu - HEADERS),
            scale: syn
                .option(3)
                .and_then(|value| value.first().copied())
                .map(|shift| shift.min(14)),
            rcv_nxt: syn.seq.wrapping_add(1),
            // The SYN-ACK is sent again for each SYN, so it need not count as in flight.
            snd_una: ISS + 1,
            snd_nxt: ISS + 1,
            snd_max: ISS + 1,
            snd_wnd: usize::from(syn.window),
            outgoing: VecDeque::new(),
            incoming: VecDeque::new(),
            announced: 0,
            ack_due: false,
            duplicates: 0,
            recover: ISS + 1,
            progress: Instant::now(),
            ended: false,
            shut: false,
            fin_sent: false,
            dead: false,
            reader: None,
            writer: None,
        };
        Flow { client: syn.client, server: syn.server, state: Mutex::new(state) }
    }

    pub(crate) fn client(&self) -> SocketAddrV4 {
        self.client
    }

    pub(crate) fn server(&self) -> SocketAddrV4 {
        self.server
    }

    /// Whether nothing will come of the connection any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.dead || (state.ended && state.fin_sent && state.snd_una == state.snd_nxt)
    }

    /// The stream was dropped.
    pub(crate) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.dead |= !state.shut || !state.ended;
    }

    /// Answers a SYN.
    pub(crate) fn answer(&self, cx: &mut Context<'_>, device: &SharedDevice) {
        let state = lock(&self.state);
        let mss = 1460_u16.to_be_bytes();
        let options = [2, 4, mss[0], mss[1], 3, 3, SCALE, 1];
        let len = if state.scale.is_some() { options.len() } else { 4 };
        let outgoing = Outgoing {
            client: self.client,
            server: self.server,
            seq: ISS,
            ack: state.rcv_nxt,
            flags: SYN | ACK,
            window: u16::MAX,
            options: &options[..len],
            payload: [&[], &[]],
        };
        send(cx, device, &outgoing);
    }

    /// Takes a segment of the established connection. Returns whether it has data, so that
    /// [`finish`](Self::finish) is to be called.
    pub(crate) fn take(
        &self,
        cx: &mut Context<'_>,
        segment: &Segment<'_>,
        device: &SharedDevice,
    ) -> bool {
        let mut state = lock(&self.state);
        if segment.flags & RST != 0 {
            state.dead = true;
            state.wake_all();
            return false;
        }
        state.take_ack(segment);
        state.take_payload(segment);
        self.push(&mut state, cx, device);
        !segment.payload.is_empty() || segment.flags & FIN != 0
    }

    /// The batch of packets has ended: sends the ACK that is due, and wakes the reader.
    pub(crate) fn finish(&self, cx: &mut Context<'_>, device: &SharedDevice) {
        let mut state = lock(&self.state);
        if state.ack_due {
            self.acknowledge(&mut state, cx, device);
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Sends again what has not been acknowledged for long.
    pub(crate) fn tick(&self, cx: &mut Context<'_>, device: &SharedDevice) {
        let mut state = lock(&self.state);
        if state.snd_nxt != state.snd_una && state.progress.elapsed() > PATIENCE {
            state.go_back();
        }
        self.push(&mut state, cx, device);
    }

    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        device: &SharedDevice,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        if state.dead {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let waiting = state.incoming.as_slices().0;
        let len = waiting.len().min(buf.remaining());
        if len == 0 && !state.ended {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        buf.put_slice(&waiting[..len]);
        state.incoming.drain(..len);
        if state.announced < BUFFER / 4 && state.window() > BUFFER / 2 {
            self.acknowledge(&mut state, cx, device);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        device: &SharedDevice,
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        if state.dead || state.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let len = data.len().min(BUFFER.saturating_sub(state.outgoing.len()));
        if len == 0 && !data.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.outgoing.extend(&data[..len]);
        self.push(&mut state, cx, device);
        Poll::Ready(Ok(len))
    }

    pub(crate) fn shutdown(&self, cx: &mut Context<'_>, device: &SharedDevice) {
        let mut state = lock(&self.state);
        state.shut = true;
        self.push(&mut state, cx, device);
    }

    /// Sends what the window takes: full segments, and a shorter one if nothing is in flight.
    fn push(&self, state: &mut State, cx: &mut Context<'_>, device: &SharedDevice) {
        loop {
            let in_flight = state.in_flight();
            let unsent = state.outgoing.len().saturating_sub(in_flight);
            let room = state.snd_wnd.saturating_sub(in_flight);
            let len = unsent.min(room).min(state.mss);
            let last = state.shut && len == unsent;
            if len == 0 || (len < state.mss && in_flight > 0 && !last) {
                break;
            }
            self.segment(state, cx, device, (in_flight, len), ACK);
            state.sent(len as u32);
        }
        if state.shut && !state.fin_sent && state.in_flight() >= state.outgoing.len() {
            self.segment(state, cx, device, (0, 0), FIN | ACK);
            state.sent(1);
            state.fin_sent = true;
        }
    }

    /// Sends `len` bytes of what is kept, from `from` on.
    fn segment(
        &self,
        state: &mut State,
        cx: &mut Context<'_>,
        device: &SharedDevice,
        (from, len): (usize, usize),
        flags: u8,
    ) {
        state.ack_due = false;
        state.announced = state.window();
        let (front, back) = state.outgoing.as_slices();
        let middle = from.min(front.len());
        let taken = (front.len() - middle).min(len);
        let behind = from - middle;
        let outgoing = Outgoing {
            client: self.client,
            server: self.server,
            seq: state.snd_nxt,
            ack: state.rcv_nxt,
            flags,
            window: state.window_field(),
            options: &[],
            payload: [&front[middle..middle + taken], &back[behind..behind + len - taken]],
        };
        send(cx, device, &outgoing);
    }

    fn acknowledge(&self, state: &mut State, cx: &mut Context<'_>, device: &SharedDevice) {
        self.segment(state, cx, device, (0, 0), ACK);
    }
}

impl State {
    fn in_flight(&self) -> usize {
        (self.snd_nxt.wrapping_sub(self.snd_una) as usize).min(self.outgoing.len())
    }

    /// Moves SND.NXT over what was sent.
    fn sent(&mut self, len: u32) {
        if self.snd_nxt == self.snd_una {
            self.progress = Instant::now();
        }
        self.snd_nxt = self.snd_nxt.wrapping_add(len);
        let ahead = self.snd_nxt.wrapping_sub(self.snd_una);
        if ahead > self.snd_max.wrapping_sub(self.snd_una) {
            self.snd_max = self.snd_nxt;
        }
    }

    fn window(&self) -> usize {
        BUFFER.saturating_sub(self.incoming.len())
    }

    fn window_field(&self) -> u16 {
        let shift = if self.scale.is_some() { SCALE } else { 0 };
        u16::try_from(self.window() >> shift).unwrap_or(u16::MAX)
    }

    fn take_ack(&mut self, segment: &Segment<'_>) {
        if segment.flags & ACK == 0 {
            return;
        }
        let window = usize::from(segment.window) << self.scale.unwrap_or(0);
        let acked = segment.ack.wrapping_sub(self.snd_una) as usize;
        let sent = self.snd_max.wrapping_sub(self.snd_una) as usize;
        if acked > sent {
            return;
        }
        if acked > 0 {
            // One more than there is data: the FIN.
            self.fin_sent |= acked > self.outgoing.len();
            self.outgoing.drain(..acked.min(self.outgoing.len()));
            let in_flight = self.snd_nxt.wrapping_sub(self.snd_una) as usize;
            self.snd_una = segment.ack;
            if acked > in_flight {
                self.snd_nxt = segment.ack;
            }
            (self.duplicates, self.progress) = (0, Instant::now());
        } else if sent > 0
            && segment.payload.is_empty()
            && window == self.snd_wnd
            && (self.recover.wrapping_sub(self.snd_una) as i32) <= 0
        {
            self.duplicates += 1;
            if self.duplicates == 3 {
                self.go_back();
            }
        }
        self.snd_wnd = window;
        if self.outgoing.len() < BUFFER / 2
            && let Some(writer) = self.writer.take()
        {
            writer.wake();
        }
    }

    fn take_payload(&mut self, segment: &Segment<'_>) {
        let fin = segment.flags & FIN != 0;
        if segment.payload.is_empty() && !fin {
            return;
        }
        self.ack_due = true;
        // What is not next comes again: there is no queue for it.
        if segment.seq != self.rcv_nxt || segment.payload.len() > self.window() {
            return;
        }
        self.incoming.extend(segment.payload);
        self.rcv_nxt = self.rcv_nxt.wrapping_add(segment.payload.len() as u32);
        if fin {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.ended = true;
        }
    }

    /// Sends all again from SND.UNA on.
    fn go_back(&mut self) {
        self.recover = self.snd_max;
        self.snd_nxt = self.snd_una;
        self.fin_sent = false;
        self.progress = Instant::now();
    }

    fn wake_all(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// Writes a packet. What the device does not take now is lost. That must not be because the task
/// has used up its budget with the runtime: every task that writes to a stream comes here.
fn send(cx: &mut Context<'_>, device: &SharedDevice, outgoing: &Outgoing<'_>) {
    let mut wire = lock(device);
    let Wire { device, packet } = &mut *wire;
    outgoing.write(packet);
    let write = unconstrained(poll_fn(|cx| device.as_mut().poll_write(cx, packet)));
    let _ = pin!(write).poll(cx);
}
