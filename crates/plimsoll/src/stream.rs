//! TCP connections: [`TcpStream`], which behaves as std's does.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use plimsoll_stack::{Interest, SocketError, TcpSocket};
use plimsoll_tcp::{Info, Options, Record, State, WriteFlags};
use portable_atomic::AtomicU64;

use crate::error::{io_error, would_block};
use crate::park;
use crate::resolve::ToSocketAddrs;
use crate::spin::{Outcome, Spinning};
use crate::stack::Stack;

/// A TCP connection of a [`Stack`]. It behaves as [`std::net::TcpStream`]: reads and writes block
/// unless [`set_nonblocking`](Self::set_nonblocking) says otherwise, a clone refers to the same
/// connection, and dropping the last clone closes it in order.
///
/// ```
/// use std::io::{Read, Write};
/// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
/// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
/// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
/// let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
/// let mut stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
/// stream.write_all(b"ahoy")?;
/// let (mut peer, _address) = listener.accept()?;
/// let mut word = [0; 4];
/// peer.read_exact(&mut word)?;
/// assert_eq!(&word, b"ahoy");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpStream {
    shared: Arc<Shared>,
}

/// A stream that this does not keep open.
pub(crate) struct WeakStream(Weak<Shared>);

impl WeakStream {
    /// The stream, unless it is closed.
    pub(crate) fn upgrade(&self) -> Option<TcpStream> {
        self.0.upgrade().map(|shared| TcpStream { shared })
    }

    /// Whether a stream handle exists.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// SO_LINGER is off.
const NO_LINGER: u64 = u64::MAX;

/// The state that all clones share.
struct Shared {
    socket: Arc<TcpSocket>,
    stack: Stack,
    nonblocking: AtomicBool,
    /// Nanoseconds; 0 is "no timeout".
    read_timeout: AtomicU64,
    /// Nanoseconds; 0 is "no timeout".
    write_timeout: AtomicU64,
    /// SO_LINGER in nanoseconds; with 0 the last close resets the connection. [`NO_LINGER`] is off.
    linger: AtomicU64,
    /// The number of an error that came in the middle of a call that succeeded in part; 0 is none.
    /// The socket reports an error once, so it is kept here for the next call.
    deferred: AtomicI32,
    /// A cork is set, or the last write announced more data. [`Write::flush`] releases the data.
    held: AtomicBool,
    spinning: Spinning,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.linger.load(Ordering::Relaxed) == 0 {
            self.socket.abort(self.stack.now());
        } else {
            self.socket.close(self.stack.now());
        }
    }
}

/// How to open a connection: what [`TcpStream::connect`] leaves at its default.
///
/// ```no_run
/// # fn example(stack: &plimsoll::Stack) -> std::io::Result<()> {
/// let options = plimsoll::Options::default().nodelay(true);
/// let stream = plimsoll::Connector::new(stack)
///     .local("192.0.2.1:4000".parse().expect("a literal address"))
///     .options(options)
///     .connect("192.0.2.2:7".parse().expect("a literal address"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    stack: Stack,
    local: Option<SocketAddr>,
    options: Options,
    timeout: Option<Duration>,
}

impl Connector {
    /// With all defaults: any local port, the stack's options, no timeout but the engine's.
    pub fn new(stack: &Stack) -> Connector {
        let stack = stack.clone();
        Connector { stack, local: None, options: Options::default(), timeout: None }
    }

    /// The address to connect from; port 0 lets the stack choose.
    pub fn local(mut self, local: SocketAddr) -> Connector {
        self.local = Some(local);
        self
    }

    /// The options of the socket, in force from the SYN on.
    pub fn options(mut self, options: Options) -> Connector {
        self.options = options;
        self
    }

    /// The longest time that [`connect`](Self::connect) takes.
    pub fn timeout(mut self, timeout: Duration) -> Connector {
        self.timeout = Some(timeout);
        self
    }

    /// Connects and waits until the connection is established.
    ///
    /// # Errors
    /// As [`std::net::TcpStream::connect_timeout`].
    pub fn connect(&self, remote: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.start(remote)?;
        self.wait(stream)
    }

    /// Waits until `stream`, which has just begun to open, is established.
    fn wait(&self, stream: TcpStream) -> io::Result<TcpStream> {
        if self.timeout == Some(Duration::ZERO) {
            stream.shared.socket.abort(self.stack.now());
            return Err(zero_duration());
        }
        let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        stream.shared.nonblocking.store(false, Ordering::Relaxed);
        match park::wait(deadline, |_, waker| stream.poll_connected(waker), |_| ()) {
            Some(result) => result.map(|()| stream),
            None => {
                stream.shared.socket.abort(self.stack.now());
                Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"))
            }
        }
    }

    /// Connects with `data` in the SYN if the peer has given out a cookie before (TCP Fast Open,
    /// RFC 7413), waits until the connection is established, and writes the data that the SYN did
    /// not take. Without a cookie the SYN asks for one. The peer may receive the request twice,
    /// because the SYN was retransmitted: that must do no harm.
    ///
    /// # Errors
    /// As [`connect`](Self::connect) and `write`; `Unsupported` unless `net.ipv4.tcp_fastopen` has
    /// bit 1 set.
    pub fn connect_with_data(&self, remote: SocketAddr, data: &[u8]) -> io::Result<TcpStream> {
        let (stream, taken) = self.start_with_data(remote, data)?;
        let rest = &data[taken..];
        stream.shared.socket.set_write_pending(!rest.is_empty());
        let stream = self.wait(stream)?;
        (&stream).write_all(rest)?;
        Ok(stream)
    }

    /// As [`connect_with_data`](Self::connect_with_data), but returns at once, with how many bytes
    /// the SYN took along. The stream is non-blocking.
    ///
    /// # Errors
    /// As [`start`](Self::start), and `Unsupported` as
    /// [`connect_with_data`](Self::connect_with_data).
    pub fn start_with_data(
        &self,
        remote: SocketAddr,
        data: &[u8],
    ) -> io::Result<(TcpStream, usize)> {
        let core = self.stack.core();
        let options = self.options.clone();
        let opened = core.connect_with_data(self.stack.now(), remote, self.local, options, &[data]);
        let (socket, taken) = opened.map_err(|error| io_error(core, error))?;
        Ok((self.begun(socket), taken))
    }

    /// Sends the SYN and returns at once. The stream is non-blocking; [`TcpStream::poll_connected`]
    /// is ready when it is established.
    ///
    /// # Errors
    /// If there is no route, no address or no free port to connect from.
    pub fn start(&self, remote: SocketAddr) -> io::Result<TcpStream> {
        let core = self.stack.core();
        let opened = core.connect(self.stack.now(), remote, self.local, self.options.clone());
        let socket = opened.map_err(|error| io_error(core, error))?;
        Ok(self.begun(socket))
    }

    /// A stream that has just begun to open.
    fn begun(&self, socket: Arc<TcpSocket>) -> TcpStream {
        let stream = TcpStream::from_socket(socket, self.stack.clone());
        stream.shared.nonblocking.store(true, Ordering::Relaxed);
        stream.shared.held.store(self.options.cork, Ordering::Relaxed);
        stream
    }
}

impl TcpStream {
    pub(crate) fn from_socket(socket: Arc<TcpSocket>, stack: Stack) -> TcpStream {
        TcpStream {
            shared: Arc::new(Shared {
                socket,
                stack,
                nonblocking: AtomicBool::new(false),
                read_timeout: AtomicU64::new(0),
                write_timeout: AtomicU64::new(0),
                linger: AtomicU64::new(NO_LINGER),
                deferred: AtomicI32::new(0),
                held: AtomicBool::new(false),
                spinning: Spinning::default(),
            }),
        }
    }

    /// Connects to `address`. If it resolves to several addresses, they are tried in order. A name
    /// is looked up as [`Stack::lookup_host`] does.
    ///
    /// # Errors
    /// As [`std::net::TcpStream::connect`]: `ConnectionRefused`, `TimedOut`, `HostUnreachable`,
    /// `NetworkUnreachable`, `AddrNotAvailable`, and so on.
    pub fn connect(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let connector = Connector::new(stack);
        let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to connect to");
        for address in stack.lookup_host(address)? {
            match connector.connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to `address`, for no longer than `timeout`.
    ///
    /// # Errors
    /// `TimedOut` after that time; `InvalidInput` if it is zero; else as
    /// [`connect`](Self::connect).
    pub fn connect_timeout(
        stack: &Stack,
        address: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<TcpStream> {
        Connector::new(stack).timeout(timeout).connect(*address)
    }

    /// A handle that does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakStream {
        WeakStream(Arc::downgrade(&self.shared))
    }

    /// Another handle for the same connection.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(TcpStream { shared: self.shared.clone() })
    }

    /// The address of the peer.
    ///
    /// # Errors
    /// `NotConnected` if the connection is not established yet, or has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self.socket().state() {
            State::SynSent | State::Closed => Err(SocketError::NotConnected.into()),
            _ => Ok(self.socket().peer_addr()),
        }
    }

    /// Our address.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket().local_addr())
    }

    /// Ends one or both directions. After `Write` the peer reads the end of the stream once it has
    /// read all data before it; reading remains possible.
    ///
    /// # Errors
    /// `NotConnected` if the connection is not established or has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket().shutdown(self.now(), how).map_err(|error| self.told(error))
    }

    /// Reads without taking the bytes out.
    ///
    /// # Errors
    /// As `read`.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.blocking_read(|| self.socket().peek(buf))
    }

    /// Sends the last byte of `data` as urgent (MSG_OOB).
    ///
    /// # Errors
    /// As `write`, but it never blocks.
    pub fn send_urgent(&self, data: &[u8]) -> io::Result<usize> {
        self.socket().write_urgent(self.now(), data).map_err(|error| self.told(error))
    }

    /// Takes the peer's urgent byte, if one has arrived and is not read in line.
    ///
    /// # Errors
    /// `InvalidInput` if there is none, as recv with MSG_OOB.
    pub fn read_urgent(&self) -> io::Result<u8> {
        self.socket()
            .read_urgent()
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no urgent data"))
    }

    /// The error that ended the connection, if no call has returned it yet (SO_ERROR).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = self.socket().take_error().map(|error| self.told(error.into()));
        Ok(error.or_else(|| self.take_deferred()))
    }

    /// Reads and writes return `WouldBlock` rather than wait. Holds for all clones.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The longest time that a read waits; then it fails with `WouldBlock`. Holds for all clones.
    ///
    /// # Errors
    /// `InvalidInput` if it is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        store_timeout(&self.shared.read_timeout, timeout)
    }

    /// The longest time that a write waits; then it fails with `WouldBlock`, or returns the number
    /// of bytes written. Holds for all clones.
    ///
    /// # Errors
    /// `InvalidInput` if it is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        store_timeout(&self.shared.write_timeout, timeout)
    }

    /// The time set by [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(load_timeout(&self.shared.read_timeout))
    }

    /// The time set by [`set_write_timeout`](Self::set_write_timeout).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(load_timeout(&self.shared.write_timeout))
    }

    /// With a time of zero, dropping the last clone resets the connection (SO_LINGER). `None`
    /// closes in order, in the background.
    ///
    /// # Errors
    /// `InvalidInput` for a time above zero: a drop never blocks.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if linger.is_some_and(|time| !time.is_zero()) {
            let message = "a linger time above zero is not supported: closing never blocks";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        self.keep_linger(linger);
        Ok(())
    }

    /// The time set by [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        let nanos = self.shared.linger.load(Ordering::Relaxed);
        Ok((nanos != NO_LINGER).then(|| Duration::from_nanos(nanos)))
    }

    /// As [`set_linger`](Self::set_linger), for sockets whose closing is not expected to block: a
    /// time above zero is stored, and has the meaning of `None`.
    pub(crate) fn keep_linger(&self, linger: Option<Duration>) {
        let nanos = linger.map_or(NO_LINGER, |time| {
            u64::try_from(time.as_nanos()).unwrap_or(NO_LINGER).min(NO_LINGER - 1)
        });
        self.shared.linger.store(nanos, Ordering::Relaxed);
    }

    /// The last decisions of the connection, the oldest first: why data was held and for how long,
    /// how packets were cut, why acknowledgements were sent or delayed, what was retransmitted,
    /// which wakers were woken. There are none unless the log was switched on. To switch it on for
    /// this stream, use [`SetOption::DecisionLog`](crate::SetOption::DecisionLog); for all new
    /// ones, the setting `plimsoll.decision_log`. Both take the number of decisions to keep.
    ///
    /// ```
    /// # use std::io::Write;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// # let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// let mut stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// stream.set_option(plimsoll::SetOption::DecisionLog(100))?;
    /// stream.write_all(b"ahoy")?;
    /// let words: Vec<String> =
    ///     stream.decisions().iter().map(|record| record.decision.to_string()).collect();
    /// assert!(words.contains(&"4 bytes, all that waits".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decisions(&self) -> Vec<Record> {
        self.socket().decisions()
    }

    /// The connection's state in figures: Linux's TCP_INFO.
    pub fn info(&self) -> Info {
        self.socket().info(self.now())
    }

    /// The stack's queue that works for the connection. A program with a
    /// [`QueueLoop`](crate::QueueLoop) for each queue runs the users of the stream in that loop, so
    /// that no other thread has to be woken.
    ///
    /// It is the queue by which the SYN came; for our own connects, the queues take turns. This
    /// holds as long as the device delivers the flow's packets by the queue by which ours leave, as
    /// TUN does. If data keeps arriving by another queue, the connection moves there
    /// (`plimsoll.QueueMoves`), at most once in 10 ms. So a program that hands streams between its
    /// loops checks again when it is woken.
    pub fn queue(&self) -> usize {
        self.socket().queue()
    }

    /// The stack that the connection belongs to.
    pub fn stack(&self) -> &Stack {
        &self.shared.stack
    }

    /// Bytes that have arrived and can be read now (SIOCINQ).
    pub fn readable_bytes(&self) -> usize {
        self.socket().readable_bytes()
    }

    /// Bytes written and not yet acknowledged by the peer (SIOCOUTQ).
    pub fn unacknowledged_bytes(&self) -> usize {
        self.socket().send_queue_len()
    }

    /// Whether the connection is established. If it is neither that nor failed, `waker` is woken
    /// when to ask again.
    ///
    /// ```no_run
    /// # fn example(stream: plimsoll::TcpStream, waker: std::task::Waker) {
    /// if let std::task::Poll::Ready(Err(error)) = stream.poll_connected(&waker) {
    ///     eprintln!("cannot connect: {error}");
    /// }
    /// # }
    /// ```
    pub fn poll_connected(&self, waker: &Waker) -> Poll<io::Result<()>> {
        self.socket().poll_connected(waker).map_err(|error| self.told(error))
    }

    /// Whether a read would not block. If it would, `waker` is woken when to ask again. Only the
    /// waker of the latest call is kept: if several wait for the stream, each uses
    /// [`readable`](Self::readable).
    pub fn poll_readable(&self, waker: &Waker) -> bool {
        self.socket().poll_readable(waker).is_ready()
    }

    /// Whether a write would not block. If it would, `waker` is woken when enough space is free.
    /// Only the waker of the latest call is kept, that of [`poll_connected`](Self::poll_connected)
    /// included: if several wait for the stream, each uses [`writable`](Self::writable).
    pub fn poll_writable(&self, waker: &Waker) -> bool {
        self.socket().poll_writable(waker).is_ready()
    }

    /// Whether the connection has ended: by a reset, an error, or since both sides have closed. If
    /// not, `waker` is woken when to ask again, also after the peer's data and its end were read.
    /// It takes the place of the waker of [`poll_readable`](Self::poll_readable).
    pub fn poll_ended(&self, waker: &Waker) -> bool {
        self.socket().poll_ended(waker).is_ready()
    }

    /// Whether there was a connection and is none any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.socket().state() == State::Closed
    }

    /// Keeps an error for the next call.
    pub(crate) fn defer(&self, error: &io::Error) {
        let number = match error.kind() {
            ErrorKind::NetworkDown => SocketError::NetworkDown.errno(),
            _ => error.raw_os_error().unwrap_or(0),
        };
        self.shared.deferred.store(number, Ordering::Relaxed);
    }

    /// The error that was kept, once.
    pub(crate) fn take_deferred(&self) -> Option<io::Error> {
        let number = self.shared.deferred.swap(0, Ordering::Relaxed);
        match number {
            0 => None,
            number if number == SocketError::NetworkDown.errno() => {
                Some(self.told(SocketError::NetworkDown))
            }
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    /// An error of the socket, with the reason if the stack has come to its end.
    pub(crate) fn told(&self, error: SocketError) -> io::Error {
        io_error(self.shared.stack.core(), error)
    }

    /// The time, by the clock of the stack.
    pub(crate) fn now(&self) -> plimsoll_tcp::Instant {
        self.shared.stack.now()
    }

    pub(crate) fn spinning(&self) -> &Spinning {
        &self.shared.spinning
    }

    pub(crate) fn socket(&self) -> &TcpSocket {
        &self.shared.socket
    }

    /// Runs `attempt` until it does something else than block.
    pub(crate) fn blocking_read(
        &self,
        mut attempt: impl FnMut() -> Result<usize, SocketError>,
    ) -> io::Result<usize> {
        let mut deadline = None;
        loop {
            match attempt() {
                Err(SocketError::WouldBlock) if !self.is_nonblocking() => {}
                read => return self.told_of_read(read),
            }
            let until = *deadline.get_or_insert_with(|| deadline_of(&self.shared.read_timeout));
            let (spinning, stack) = (self.spinning(), self.stack());
            let spun = spinning.spin(stack, self.socket(), until);
            if spun == Outcome::Found {
                continue;
            }
            let socket = self.socket();
            let ready = park::wait(
                until,
                |key, waker| socket.poll_readable_blocked(key, waker),
                |key| socket.end_blocked_read(self.now(), key),
            );
            if let Outcome::Missed(since) = spun {
                spinning.slept(stack.core(), self.now().since(since));
            }
            if ready.is_none() {
                return Err(would_block());
            }
        }
    }

    /// The result of a read: also, instead of the end, an error that no call has returned yet.
    pub(crate) fn told_of_read(&self, read: Result<usize, SocketError>) -> io::Result<usize> {
        match read {
            Err(SocketError::WouldBlock) => Err(would_block()),
            Ok(0) => self.take_deferred().map_or(Ok(0), Err),
            other => other.map_err(|error| self.told(error)),
        }
    }

    fn is_nonblocking(&self) -> bool {
        self.shared.nonblocking.load(Ordering::Relaxed)
    }

    fn read_from(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.blocking_read(|| self.socket().read(self.now(), buf))
    }

    /// Reads available data into `buf` and never waits.
    pub(crate) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.told_of_read(self.socket().read(self.now(), buf))
    }

    /// As [`try_read`](Self::try_read), but leaves the bytes where they are.
    pub(crate) fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.told_of_read(self.socket().peek(buf))
    }

    /// Fills `bufs` one after the other. `first` reads into the first of them and may wait; the
    /// others take the available data.
    pub(crate) fn read_parts(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        first: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut bufs = bufs.iter_mut().filter(|buf| !buf.is_empty());
        let Some(begin) = bufs.next() else { return Ok(0) };
        let mut total = first(begin)?;
        if total < begin.len() {
            return Ok(total);
        }
        for buf in bufs {
            match self.socket().read(self.now(), buf) {
                Ok(count) if count == buf.len() => total += count,
                Ok(count) => return Ok(total + count),
                Err(SocketError::WouldBlock) => break,
                Err(error) => {
                    self.defer(&self.told(error));
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Writes all of `data`, unless the stream is non-blocking, the timeout comes, or it fails.
    fn write_from(&self, data: &[u8]) -> io::Result<usize> {
        if self.socket().write_corked(data) {
            return Ok(data.len());
        }
        self.write_by(data.len(), |from| self.socket().write(self.now(), &data[from..]))
    }

    /// Writes as much as there is space for and never waits.
    pub(crate) fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        if self.socket().write_corked(data) {
            return Ok(data.len());
        }
        let attempt = |from: usize| self.socket().write(self.now(), &data[from..]);
        self.write_while(data.len(), attempt, || Err(would_block()))
    }

    /// Writes `len` bytes with `attempt`, which gets how many of them were written before, unless
    /// the stream is non-blocking, the timeout comes, or it fails.
    pub(crate) fn write_by(
        &self,
        len: usize,
        attempt: impl FnMut(usize) -> Result<usize, SocketError>,
    ) -> io::Result<usize> {
        let mut deadline = None;
        self.write_while(len, attempt, || {
            if self.is_nonblocking() {
                return Err(would_block());
            }
            let until = *deadline.get_or_insert_with(|| deadline_of(&self.shared.write_timeout));
            let socket = self.socket();
            let ready = park::wait(
                until,
                |key, waker| socket.wait_writable(key, waker),
                |key| socket.cancel_wait(Interest::Write, key),
            );
            ready.ok_or_else(would_block)
        })
    }

    /// As [`write_by`](Self::write_by); `wait` is called when there is no space, and its error ends
    /// the write.
    pub(crate) fn write_while(
        &self,
        len: usize,
        mut attempt: impl FnMut(usize) -> Result<usize, SocketError>,
        mut wait: impl FnMut() -> io::Result<()>,
    ) -> io::Result<usize> {
        let mut written = 0;
        let stopped = loop {
            match attempt(written) {
                Ok(count) => {
                    written += count;
                    if written == len {
                        return Ok(written);
                    }
                }
                Err(SocketError::WouldBlock) => {
                    if let Err(error) = wait() {
                        break error;
                    }
                }
                Err(error) => {
                    let error = self.take_deferred().unwrap_or_else(|| self.told(error));
                    if written > 0 {
                        self.defer(&error);
                    }
                    break error;
                }
            }
        };
        // Report the bytes written so far; the next call returns the error.
        if written > 0 { Ok(written) } else { Err(stopped) }
    }

    /// Notes that data written now may be held until more follows.
    pub(crate) fn note_held(&self) {
        self.shared.held.store(true, Ordering::Relaxed);
    }

    /// Sends data held by a cork or by a write with `WriteFlags::more`; a cork stays set. Does not
    /// wait for acknowledgements.
    pub(crate) fn push_held(&self) {
        if self.shared.held.load(Ordering::Relaxed) {
            let corked = self.socket().options().cork;
            self.shared.held.store(corked, Ordering::Relaxed);
            self.socket().push(self.now());
        }
    }
}

fn zero_duration() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "cannot set a 0 duration timeout")
}

fn store_timeout(cell: &AtomicU64, timeout: Option<Duration>) -> io::Result<()> {
    if timeout == Some(Duration::ZERO) {
        return Err(zero_duration());
    }
    let nanos = timeout.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    cell.store(nanos, Ordering::Relaxed);
    Ok(())
}

fn load_timeout(cell: &AtomicU64) -> Option<Duration> {
    Some(cell.load(Ordering::Relaxed)).filter(|&nanos| nanos > 0).map(Duration::from_nanos)
}

fn deadline_of(cell: &AtomicU64) -> Option<Instant> {
    load_timeout(cell).and_then(|timeout| Instant::now().checked_add(timeout))
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_from(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_parts(bufs, |first| self.read_from(first))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_from(data)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_with(bufs, WriteFlags::default())
    }

    /// Sends data held by a cork or by a write with `WriteFlags::more`; a cork stays set. Does not
    /// wait for acknowledgements.
    fn flush(&mut self) -> io::Result<()> {
        self.push_held();
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_from(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_from(data)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("addr", &self.socket().local_addr())
            .field("peer", &self.socket().peer_addr())
            .finish_non_exhaustive()
    }
}
