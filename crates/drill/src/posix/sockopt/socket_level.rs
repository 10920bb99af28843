//! SOL_SOCKET.

use std::sync::Arc;

use plimsoll_stack::{Stack, TcpSocket};
use plimsoll_tcp::{Duration, Instant, SetOption, TxTimestamps};

use super::{Arg, Value, setting};
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::socket::{Link, Socket};

/// The most that SO_SNDBUF and SO_RCVBUF take without FORCE (net.core.wmem_max, rmem_max).
const MOST_BUFFER: i32 = 212_992;
/// The least that they make of it.
const LEAST_SNDBUF: i64 = 4608;
const LEAST_RCVBUF: i64 = 2304;
/// Ticks of Linux's clock per second, in which it keeps times.
const HZ: i64 = 1000;

impl Socket {
    pub(super) fn set_socket_level(
        &mut self,
        now: Instant,
        name: i32,
        arg: Arg<'_>,
    ) -> Result<(), Errno> {
        let value = arg.int()?;
        let on = value != 0;
        match name {
            SO_REUSEADDR => self.set.reuse_addr = on,
            SO_REUSEPORT => self.set.reuse_port = on,
            SO_KEEPALIVE => {
                self.change_tcp(now, |tcp| tcp.keepalive = on, SetOption::KeepAlive(on));
            }
            SO_OOBINLINE => {
                self.change_tcp(now, |tcp| tcp.oobinline = on, SetOption::OobInline(on));
            }
            SO_SNDBUF => self.set_sndbuf(now, value.min(MOST_BUFFER)),
            SO_SNDBUFFORCE => self.set_sndbuf(now, value.max(0)),
            SO_RCVBUF => self.set_rcvbuf(now, value.min(MOST_BUFFER)),
            SO_RCVBUFFORCE => self.set_rcvbuf(now, value.max(0)),
            SO_RCVLOWAT => {
                let low = if value < 0 { i32::MAX } else { value.max(1) } as u32;
                self.change_tcp(now, |tcp| tcp.rcvlowat = low, SetOption::RcvLowat(low));
            }
            SO_LINGER => self.set_linger(arg)?,
            SO_RCVTIMEO => self.set.rcvtimeo = time(arg)?,
            SO_SNDTIMEO => self.set.sndtimeo = time(arg)?,
            SO_ZEROCOPY => {
                if !(0..=1).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                self.change_tcp(now, |tcp| tcp.zerocopy = on, SetOption::ZeroCopy(on));
            }
            SO_TIMESTAMPING => self.set_timestamping(now, value as u32)?,
            SO_MAX_PACING_RATE => {
                let rate = match value {
                    _ if arg.len >= 8 => arg.long_at(0)? as u64,
                    -1 => u64::MAX,
                    rate => u64::from(rate as u32),
                };
                let bound = Some(rate).filter(|&rate| rate < u64::MAX);
                let set = SetOption::MaxPacingRate(rate);
                self.change_tcp(now, |tcp| tcp.max_pacing_rate = bound, set);
            }
            SO_BUSY_POLL if value < 0 => return Err(Errno::EINVAL),
            SO_PRIORITY | SO_MARK | SO_BUSY_POLL | SO_INCOMING_CPU => {
                self.keep(SOL_SOCKET, name, i64::from(value));
            }
            SO_BROADCAST | SO_DONTROUTE | SO_DEBUG => {
                self.keep(SOL_SOCKET, name, i64::from(on));
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    fn set_sndbuf(&mut self, now: Instant, value: i32) {
        // As on Linux, a negative one is a large one.
        let bytes = (value as u32).min(i32::MAX as u32 / 2) as usize;
        self.change_tcp(now, |tcp| tcp.sndbuf = Some(bytes), SetOption::SndBuf(bytes));
    }

    fn set_rcvbuf(&mut self, now: Instant, value: i32) {
        let bytes = (value as u32).min(i32::MAX as u32 / 2) as usize;
        self.change_tcp(now, |tcp| tcp.rcvbuf = Some(bytes), SetOption::RcvBuf(bytes));
    }

    fn set_linger(&mut self, arg: Arg<'_>) -> Result<(), Errno> {
        if arg.len < 8 {
            return Err(Errno::EINVAL);
        }
        let on = arg.int_at(0)? != 0;
        let seconds = if on { arg.int_at(4)? } else { self.set.linger.1 };
        // As on Linux, a negative one is a large one.
        self.set.linger = (on, seconds);
        Ok(())
    }

    fn set_timestamping(&mut self, now: Instant, flags: u32) -> Result<(), Errno> {
        if flags & !SOF_TIMESTAMPING_ALL != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & SOF_TIMESTAMPING_OPT_ID != 0
            && self.set.timestamping & SOF_TIMESTAMPING_OPT_ID == 0
            && !matches!(self.link, Link::Stream(_))
        {
            return Err(Errno::EINVAL);
        }
        self.set.timestamping = flags;
        if let Some(stream) = self.stream().cloned() {
            self.apply_timestamping(&stream, now);
        }
        Ok(())
    }

    /// Tells a connection which transmit timestamps are wanted.
    pub(crate) fn apply_timestamping(&self, stream: &Arc<TcpSocket>, now: Instant) {
        let has = |flag: u32| self.set.timestamping & flag != 0;
        let stamps = TxTimestamps {
            sched: has(SOF_TIMESTAMPING_TX_SCHED),
            software: has(SOF_TIMESTAMPING_TX_SOFTWARE),
            ack: has(SOF_TIMESTAMPING_TX_ACK),
            opt_id: has(SOF_TIMESTAMPING_OPT_ID),
        };
        stream.set_option(now, SetOption::TxTimestamps(stamps));
    }

    /// `room` is how many bytes the program has for it.
    pub(super) fn get_socket_level(
        &mut self,
        stack: &Stack,
        name: i32,
        room: usize,
    ) -> Result<Value, Errno> {
        let tcp = self.tcp_options();
        let value = match name {
            SO_REUSEADDR => i32::from(self.set.reuse_addr),
            SO_REUSEPORT => i32::from(self.set.reuse_port),
            SO_TYPE => SOCK_STREAM,
            SO_DOMAIN => self.domain,
            SO_PROTOCOL => IPPROTO_TCP,
            SO_ERROR => self.take_error().map_or(0, |errno| errno.0),
            SO_ACCEPTCONN => i32::from(self.listener().is_some()),
            SO_KEEPALIVE => i32::from(tcp.keepalive),
            SO_OOBINLINE => i32::from(tcp.oobinline),
            SO_RCVLOWAT => tcp.rcvlowat.max(1) as i32,
            SO_SNDLOWAT => 1,
            SO_SNDBUF => self.sndbuf(stack),
            SO_RCVBUF => self.rcvbuf(stack),
            SO_ZEROCOPY => i32::from(tcp.zerocopy),
            SO_LINGER => {
                let (on, seconds) = self.set.linger;
                return Ok(pair(i32::from(on), seconds));
            }
            SO_RCVTIMEO => return Ok(timeval(self.set.rcvtimeo)),
            SO_SNDTIMEO => return Ok(timeval(self.set.sndtimeo)),
            SO_TIMESTAMPING => return Ok(pair(self.set.timestamping as i32, 0)),
            SO_MAX_PACING_RATE => {
                let rate = tcp.max_pacing_rate.unwrap_or(u64::MAX);
                let short = u32::try_from(rate).unwrap_or(u32::MAX);
                return Ok(Value::Bytes(match room {
                    0..8 => short.to_ne_bytes().to_vec(),
                    _ => rate.to_ne_bytes().to_vec(),
                }));
            }
            SO_INCOMING_CPU => return Ok(self.kept_int(SOL_SOCKET, name, -1)),
            SO_PRIORITY | SO_MARK | SO_BUSY_POLL | SO_BROADCAST | SO_DONTROUTE | SO_DEBUG => {
                return Ok(self.kept_int(SOL_SOCKET, name, 0));
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(Value::Int(value))
    }

    fn sndbuf(&self, stack: &Stack) -> i32 {
        let bytes = match (self.stream(), self.tcp.sndbuf) {
            (Some(stream), _) => stream.sndbuf() as i64,
            (None, Some(asked)) => (2 * asked as i64).max(LEAST_SNDBUF),
            (None, None) => setting(stack, "net.ipv4.tcp_wmem", 1).unwrap_or(16_384),
        };
        i32::try_from(bytes).unwrap_or(i32::MAX)
    }

    fn rcvbuf(&self, stack: &Stack) -> i32 {
        let bytes = match (self.stream(), self.tcp.rcvbuf) {
            (Some(stream), _) => stream.rcvbuf() as i64,
            (None, Some(asked)) => (2 * asked as i64).max(LEAST_RCVBUF),
            (None, None) => setting(stack, "net.ipv4.tcp_rmem", 1).unwrap_or(131_072),
        };
        i32::try_from(bytes).unwrap_or(i32::MAX)
    }

    pub(crate) fn rcvlowat(&self, stream: &TcpSocket) -> u32 {
        stream.options().rcvlowat.max(1)
    }
}

/// Two ints in a row.
fn pair(first: i32, second: i32) -> Value {
    let mut bytes = first.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&second.to_ne_bytes());
    Value::Bytes(bytes)
}

/// A `struct timeval` to set. Zero is for ever; a negative one is no time at all.
fn time(arg: Arg<'_>) -> Result<Option<Duration>, Errno> {
    if arg.len < 16 {
        return Err(Errno::EINVAL);
    }
    let (seconds, micros) = (arg.long_at(0)?, arg.long_at(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    Ok(match u64::try_from(seconds) {
        Err(_) => Some(Duration::ZERO),
        Ok(0) if micros == 0 => None,
        Ok(seconds) => {
            let whole = seconds.saturating_mul(1_000_000);
            // Kept in ticks, rounded up.
            let tick = 1_000_000 / HZ as u64;
            let micros = whole.saturating_add(micros as u64).div_ceil(tick).saturating_mul(tick);
            Some(Duration::from_micros(micros))
        }
    })
}

fn timeval(time: Option<Duration>) -> Value {
    let micros = time.map_or(0, |time| time.as_micros()) as i64;
    let mut bytes = (micros / 1_000_000).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&(micros % 1_000_000).to_ne_bytes());
    Value::Bytes(bytes)
}
