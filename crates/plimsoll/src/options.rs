//! The options of a [`TcpStream`].

use std::io;
use std::time::Duration;

use plimsoll_stack::limits::MIN_MEMORY_BUDGET;
use plimsoll_tcp::limits::MIN_WINDOW_CLAMP;
use plimsoll_tcp::{CongestionAlgorithm, Options, PathMtuDiscovery, SetOption, TsoTail};

use crate::error::refused;
use crate::stack::Stack;
use crate::stream::TcpStream;

/// How an idle connection finds out that its peer has vanished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// Idle time before the first probe (TCP_KEEPIDLE); `None` leaves it.
    pub idle: Option<Duration>,
    /// Time between probes (TCP_KEEPINTVL); `None` leaves it.
    pub interval: Option<Duration>,
    /// Unanswered probes before the connection fails (TCP_KEEPCNT); `None` leaves it.
    pub count: Option<u8>,
}

impl Keepalive {
    /// Sets the idle time before the first probe, up to 32767 s.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Keepalive {
        self.idle = Some(idle);
        self
    }

    /// Sets the time between probes, up to 32767 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Keepalive {
        self.interval = Some(interval);
        self
    }

    /// Sets how many probes may stay unanswered before the connection fails, 1 to 127.
    #[must_use]
    pub fn count(mut self, count: u8) -> Keepalive {
        self.count = Some(count);
        self
    }
}

impl TcpStream {
    /// Sets any option of the engine.
    ///
    /// # Errors
    /// `InvalidInput` if the value is out of range.
    pub fn set_option(&self, option: SetOption) -> io::Result<()> {
        check(&option)?;
        if let SetOption::Cork(true) = option {
            self.note_held();
        }
        self.socket().set_option(self.now(), option);
        Ok(())
    }

    /// All options, as they are now.
    pub fn options(&self) -> Options {
        self.socket().options()
    }

    /// Switches Nagle's rule off (TCP_NODELAY).
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_option(SetOption::NoDelay(nodelay))
    }

    /// Whether Nagle's rule is off.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options().nodelay)
    }

    /// Holds data of less than a segment until more is written or the cork is removed (TCP_CORK),
    /// 200 ms at most.
    ///
    /// # Errors
    /// None so far.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.set_option(SetOption::Cork(cork))
    }

    /// Whether the cork is in.
    ///
    /// # Errors
    /// None.
    pub fn cork(&self) -> io::Result<bool> {
        Ok(self.options().cork)
    }

    /// Switches automatic corking of this stream on or off, whatever `net.ipv4.tcp_autocorking`
    /// says; `None` follows the setting.
    ///
    /// # Errors
    /// None so far.
    pub fn set_autocork(&self, autocork: Option<bool>) -> io::Result<()> {
        self.set_option(SetOption::Autocork(autocork))
    }

    /// Sets how this stream treats the tails of super-segments, regardless of
    /// `plimsoll.tcp_tso_tail`; `None` follows the setting.
    ///
    /// # Errors
    /// None so far.
    pub fn set_tso_tail(&self, policy: Option<TsoTail>) -> io::Result<()> {
        self.set_option(SetOption::TsoTail(policy))
    }

    /// The most that this stream sends, in bytes per second (SO_MAX_PACING_RATE); `None` is no
    /// limit.
    ///
    /// # Errors
    /// `InvalidInput` if it is zero.
    pub fn set_max_pacing_rate(&self, rate: Option<u64>) -> io::Result<()> {
        self.set_option(SetOption::MaxPacingRate(rate.unwrap_or(u64::MAX)))
    }

    /// The stream is not writable while this many bytes were never sent (TCP_NOTSENT_LOWAT);
    /// `None` follows `net.ipv4.tcp_notsent_lowat`.
    ///
    /// # Errors
    /// None so far.
    pub fn set_notsent_lowat(&self, bytes: Option<u32>) -> io::Result<()> {
        self.set_option(SetOption::NotsentLowat(bytes.unwrap_or(0)))
    }

    /// A read that finds no data waits until this many bytes can be read (SO_RCVLOWAT), and wakers
    /// fire then; `None` is one byte. The end of the stream and errors are returned at once. The
    /// receive buffer grows to fit the mark; a mark above the buffer's limit is capped.
    ///
    /// # Errors
    /// None so far.
    pub fn set_rcvlowat(&self, bytes: Option<u32>) -> io::Result<()> {
        self.set_option(SetOption::RcvLowat(bytes.unwrap_or(1)))
    }

    /// A read that finds nothing polls the devices itself for this long before it sleeps
    /// (SO_BUSY_POLL); zero is not at all, `None` follows `net.core.busy_read`. It saves the time
    /// of being woken and costs a CPU while it lasts: counters `plimsoll.BusyPolls`,
    /// `plimsoll.BusyPollHits` and `plimsoll.BusyPollMicros` show how much. One thread at a time
    /// spins on one stack, and one that finds nothing spins for less the next time. For all clones.
    ///
    /// # Errors
    /// None; the result is there because every setter has one.
    pub fn set_busy_poll(&self, time: Option<Duration>) -> io::Result<()> {
        self.spinning().set(time);
        Ok(())
    }

    /// Switches keepalive on with these parameters, or off (SO_KEEPALIVE).
    ///
    /// # Errors
    /// `InvalidInput` if a time or the count is out of range.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        let Some(parameters) = keepalive else {
            return self.set_option(SetOption::KeepAlive(false));
        };
        if let Some(idle) = parameters.idle {
            self.set_option(SetOption::KeepIdle(idle))?;
        }
        if let Some(interval) = parameters.interval {
            self.set_option(SetOption::KeepIntvl(interval))?;
        }
        if let Some(count) = parameters.count {
            self.set_option(SetOption::KeepCnt(count))?;
        }
        self.set_option(SetOption::KeepAlive(true))
    }

    /// Whether keepalive is on (SO_KEEPALIVE).
    ///
    /// # Errors
    /// None; the result is there because every getter has one.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.options().keepalive)
    }

    /// Acknowledges at once, or as a conversation does, until the pattern of the traffic changes
    /// that again (TCP_QUICKACK).
    ///
    /// # Errors
    /// None; the result is there because every setter has one.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.set_option(SetOption::QuickAck(quickack))
    }

    /// The value set by [`set_quickack`](Self::set_quickack); `true` if it was never set.
    ///
    /// # Errors
    /// None; the result is there because every getter has one.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.options().quickack.unwrap_or(true))
    }

    /// The hop limit of packets (IP_TTL, IPV6_UNICAST_HOPS), 1 to 255.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.set_option(SetOption::Ttl(ttl_of(ttl)?))
    }

    /// The hop limit of packets.
    ///
    /// # Errors
    /// None; the result is there because std's method has it.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(told_ttl(self.options().ttl, self.stack()))
    }

    /// The class of packets (IP_TOS, IPV6_TCLASS), 0 to 255. The two bits of ECN are TCP's own and
    /// are left out.
    ///
    /// # Errors
    /// `InvalidInput` if it is out of that range.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        self.set_option(SetOption::Tos(tos_of(tos)?))
    }

    /// The class of packets.
    ///
    /// # Errors
    /// None; the result is there because every getter has one.
    pub fn tos(&self) -> io::Result<u32> {
        Ok(u32::from(self.options().tos))
    }

    /// The longest time that written data may stay unacknowledged (TCP_USER_TIMEOUT). `None`
    /// leaves it to the retransmission limit.
    ///
    /// # Errors
    /// None so far; a time of any length is taken.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SetOption::UserTimeout(timeout.unwrap_or_default()))
    }

    /// The least retransmission timeout (TCP_RTO_MIN_US), which is also the least addition to the
    /// smoothed round trip. `None` follows `net.ipv4.tcp_rto_min_us`. A running timer keeps its
    /// time.
    ///
    /// # Errors
    /// `InvalidInput` if it is not from 1 microsecond to 120 seconds.
    pub fn set_rto_min(&self, least: Option<Duration>) -> io::Result<()> {
        self.set_option(SetOption::RtoMin(least))
    }

    /// The greatest retransmission timeout (TCP_RTO_MAX_MS), also that of a SYN. `None` follows
    /// `net.ipv4.tcp_rto_max_ms`. A running timer keeps its time.
    ///
    /// # Errors
    /// `InvalidInput` if it is not from 1 to 120 seconds.
    pub fn set_rto_max(&self, greatest: Option<Duration>) -> io::Result<()> {
        self.set_option(SetOption::RtoMax(greatest))
    }

    /// How long the connection may stay while one side has closed and no data moves in either
    /// direction; then it is reset. `None` is no limit. See
    /// [`TcpListener::set_half_close_timeout`](crate::TcpListener::set_half_close_timeout).
    ///
    /// # Errors
    /// None so far; a time of zero is no limit.
    pub fn set_half_close_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SetOption::HalfCloseTimeout(timeout.unwrap_or_default()))
    }

    /// Bounds the memory that the queues of this connection bind, in bytes; `None`, which is the
    /// default, leaves it to the buffers and to the budgets of the listener and the stack. From two
    /// thirds on its windows are small, at the bound its writers wait.
    ///
    /// # Errors
    /// `InvalidInput` if it is less than 65,536.
    pub fn set_memory_budget(&self, bytes: Option<usize>) -> io::Result<()> {
        let set = self.socket().set_memory_budget(self.now(), bytes);
        set.map_err(|error| refused(self.socket().stack(), error))
    }

    /// The most memory that the queues of this connection may bind, in bytes; `None` if it has no
    /// separate budget.
    pub fn memory_budget(&self) -> Option<usize> {
        self.socket().options().memory_budget
    }

    /// Fixes the send buffer (SO_SNDBUF); it does not grow by itself any more. As on Linux, the
    /// buffer is twice this size, since the memory that holds the data counts as well.
    ///
    /// # Errors
    /// None so far; a value out of range is moved into it.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SetOption::SndBuf(bytes))
    }

    /// Fixes the receive buffer in bytes of data (SO_RCVBUF); it does not grow by itself any more.
    ///
    /// # Errors
    /// None so far; a value out of range is moved into it.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SetOption::RcvBuf(bytes))
    }

    /// Bounds the window that the peer is offered, in bytes (TCP_WINDOW_CLAMP). With `None`, the
    /// default, the receive buffer alone bounds it. A window that was offered before is not
    /// withdrawn. To bound the window from the handshake on, set the option of a listener or of a
    /// connect ([`Options::window_clamp`]).
    ///
    /// # Errors
    /// `InvalidInput` if it is less than 1,152.
    pub fn set_window_clamp(&self, bytes: Option<u32>) -> io::Result<()> {
        self.set_option(SetOption::WindowClamp(bytes))
    }

    /// The bound of the window that the peer is offered, in bytes; `None` if there is none but the
    /// receive buffer.
    ///
    /// # Errors
    /// None; the result is there because every getter has one.
    pub fn window_clamp(&self) -> io::Result<Option<u32>> {
        Ok(self.options().window_clamp)
    }

    /// Whether packets may be fragmented, and whether the stack believes routers about the path's
    /// MTU (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER).
    ///
    /// # Errors
    /// None; the result is there because every setter has one.
    pub fn set_path_mtu_discovery(&self, discovery: PathMtuDiscovery) -> io::Result<()> {
        self.set_option(SetOption::PathMtuDiscovery(discovery))
    }

    /// Whether packets may be fragmented, and whether the stack believes routers about the path's
    /// MTU.
    ///
    /// # Errors
    /// None; the result is there because every getter has one.
    pub fn path_mtu_discovery(&self) -> io::Result<PathMtuDiscovery> {
        Ok(self.options().path_mtu_discovery)
    }

    /// The headers of the SYN that opened this connection, those of IP and TCP with their options
    /// as they arrived (TCP_SAVED_SYN). They are returned once. `None` without
    /// [`TcpListener::set_save_syn`](crate::TcpListener::set_save_syn), for a SYN that was answered
    /// with a cookie, and for a connection that we opened.
    pub fn take_saved_syn(&self) -> Option<Box<[u8]>> {
        self.socket().take_saved_syn()
    }

    /// The send buffer in bytes, including the memory that holds the data: twice the size that was
    /// set.
    ///
    /// # Errors
    /// None.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        Ok(self.info().sndbuf)
    }

    /// The receive buffer in bytes.
    ///
    /// # Errors
    /// None.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        Ok(self.info().rcvbuf)
    }

    /// Chooses the congestion control by Linux's name (TCP_CONGESTION): `reno`, `cubic`, `bbr`
    /// (version 3) or `dctcp`. BBR paces data, whatever the queueing discipline is.
    ///
    /// # Errors
    /// `NotFound` if there is no such algorithm.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        let algorithm = CongestionAlgorithm::from_name(name).ok_or_else(|| {
            let message =
                format!("unknown congestion control '{name}'; known: reno, cubic, bbr, dctcp");
            io::Error::new(io::ErrorKind::NotFound, message)
        })?;
        self.set_option(SetOption::Congestion(algorithm))
    }
}

/// A hop limit as setsockopt takes it.
pub(crate) fn ttl_of(ttl: u32) -> io::Result<u8> {
    u8::try_from(ttl).ok().filter(|&ttl| ttl > 0).ok_or_else(|| {
        let message = format!("a TTL of {ttl} is not between 1 and 255");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// A hop limit as getsockopt returns it: 0 means the stack's setting.
pub(crate) fn told_ttl(ttl: u8, stack: &Stack) -> u32 {
    const DEFAULT: u32 = 64;
    if ttl > 0 {
        return u32::from(ttl);
    }
    let setting = stack.sysctl("net.ipv4.ip_default_ttl");
    setting.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT)
}

/// A class as setsockopt takes it.
pub(crate) fn tos_of(tos: u32) -> io::Result<u8> {
    u8::try_from(tos).map(|tos| tos & !3).map_err(|_| {
        let message = format!("a class of {tos} is not between 0 and 255");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// No retransmission timeout is longer.
const MOST_RTO: Duration = Duration::from_secs(120);

/// Refuses what setsockopt refuses.
fn check(option: &SetOption) -> io::Result<()> {
    // The bounds of Linux, except that times below one second are taken.
    let valid = match option {
        SetOption::KeepIdle(time) | SetOption::KeepIntvl(time) => {
            !time.is_zero() && time.as_secs() <= 32_767
        }
        SetOption::WindowClamp(Some(bytes)) => *bytes >= MIN_WINDOW_CLAMP,
        SetOption::MaxPacingRate(rate) => *rate > 0,
        SetOption::RtoMin(Some(time)) => (Duration::from_micros(1)..=MOST_RTO).contains(time),
        SetOption::RtoMax(Some(time)) => (Duration::from_secs(1)..=MOST_RTO).contains(time),
        SetOption::MemoryBudget(Some(bytes)) => *bytes >= MIN_MEMORY_BUDGET,
        SetOption::KeepCnt(count) => (1..=127).contains(count),
        _ => true,
    };
    if valid {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the value of the option is out of range"))
    }
}
