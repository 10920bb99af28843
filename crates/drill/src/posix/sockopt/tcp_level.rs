//! SOL_TCP.

use plimsoll_stack::Stack;
use plimsoll_tcp::limits::MIN_WINDOW_CLAMP;
use plimsoll_tcp::{CongestionAlgorithm, Duration, Instant, SetOption, State};

use super::{Arg, Value, setting};
use crate::posix::call::{Out, Reply};
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::Outcome;
use crate::posix::socket::{Link, Socket};
use crate::posix::tcp_info;

/// Bounds of options, as Linux has them.
const LEAST_MSS: i32 = 88;
const MOST_MSS: i32 = 32_767;
const MOST_KEEP_SECONDS: i32 = 32_767;
const MOST_KEEP_COUNT: i32 = 127;
const MOST_SYN_COUNT: i32 = 127;
/// Longest time in FIN-WAIT-2 that can be asked for.
const MOST_LINGER2: i32 = 120;
/// No timeout is longer.
const MOST_RTO_SECONDS: i32 = 120;
/// Bounds of those of the retransmission timeout. Linux takes no least one below its tick.
const MOST_RTO_MIN_US: i32 = 200_000;
const LEAST_RTO_MAX_MS: i32 = 1000;
const MOST_RTO_MAX_MS: i32 = 120_000;
/// Room that Linux has for the name of an algorithm.
const NAME_LEN: usize = 16;

impl Socket {
    pub(super) fn set_tcp_level(
        &mut self,
        now: Instant,
        stack: &Stack,
        name: i32,
        arg: Arg<'_>,
    ) -> Result<(), Errno> {
        match name {
            TCP_CONGESTION => return self.set_congestion(now, arg),
            TCP_FASTOPEN_KEY => return self.set_fastopen_key(arg),
            TCP_MD5SIG | TCP_MD5SIG_EXT => return self.set_md5(name, arg),
            _ => {}
        }
        let value = arg.int()?;
        let on = value != 0;
        match name {
            TCP_NODELAY => self.change_tcp(now, |tcp| tcp.nodelay = on, SetOption::NoDelay(on)),
            TCP_CORK => self.change_tcp(now, |tcp| tcp.cork = on, SetOption::Cork(on)),
            TCP_QUICKACK => {
                self.change_tcp(now, |tcp| tcp.quickack = Some(on), SetOption::QuickAck(on));
            }
            TCP_MAXSEG => {
                if value != 0 && !(LEAST_MSS..=MOST_MSS).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                let mss = value as u16;
                let stored = Some(mss).filter(|&mss| mss > 0);
                self.change_tcp(now, |tcp| tcp.maxseg = stored, SetOption::MaxSeg(mss));
            }
            TCP_KEEPIDLE | TCP_KEEPINTVL | TCP_KEEPCNT => self.set_keepalive(now, name, value)?,
            TCP_USER_TIMEOUT => {
                let millis = u64::try_from(value).map_err(|_| Errno::EINVAL)?;
                let time = Duration::from_millis(millis);
                let set = SetOption::UserTimeout(time);
                self.change_tcp(now, |tcp| tcp.user_timeout = Some(time), set);
            }
            TCP_RTO_MIN_US | TCP_RTO_MAX_MS => self.set_rto_bound(now, name, value)?,
            TCP_NOTSENT_LOWAT => {
                let low = value as u32;
                let set = SetOption::NotsentLowat(low);
                self.change_tcp(now, |tcp| tcp.notsent_lowat = Some(low), set);
            }
            TCP_SYNCNT => {
                if !(1..=MOST_SYN_COUNT).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                let count = value as u8;
                let set = SetOption::SynRetries(count);
                self.change_tcp(now, |tcp| tcp.syn_retries = Some(count), set);
            }
            TCP_DEFER_ACCEPT => {
                let timeouts = timeouts_in(value);
                let set = SetOption::DeferAccept(timeouts);
                self.change_tcp(now, |tcp| tcp.defer_accept = timeouts, set);
            }
            TCP_WINDOW_CLAMP => self.set_window_clamp(now, value)?,
            TCP_LINGER2 => self.set_linger2(now, value),
            _ => return self.set_other_tcp(stack, name, value),
        }
        Ok(())
    }

    /// Options that only these calls act on, or that are only kept.
    fn set_other_tcp(&mut self, stack: &Stack, name: i32, value: i32) -> Result<(), Errno> {
        let on = value != 0;
        match name {
            TCP_INQ | TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE
                if !(0..=1).contains(&value) =>
            {
                return Err(Errno::EINVAL);
            }
            TCP_INQ => self.set.inq = on,
            TCP_FASTOPEN_CONNECT => {
                if !super::may_fast_open(stack) {
                    return Err(Errno::EOPNOTSUPP);
                }
                if !matches!(self.link, Link::Idle) {
                    return Err(Errno::EINVAL);
                }
                self.set.fastopen_connect = on;
            }
            TCP_FASTOPEN_NO_COOKIE => {
                if !matches!(self.link, Link::Idle | Link::Listener(_)) {
                    return Err(Errno::EINVAL);
                }
                self.change_listening(|tcp| tcp.fastopen_no_cookie = on);
            }
            TCP_FASTOPEN => return self.set_fastopen(stack, value),
            TCP_SAVE_SYN => {
                // 2 asks for the header of the link as well, which devices of IP packets have not.
                if !(0..=2).contains(&value) {
                    return Err(Errno::EINVAL);
                }
                self.set.save_syn = value;
                self.change_listening(|tcp| tcp.save_syn = on);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    fn set_congestion(&mut self, now: Instant, arg: Arg<'_>) -> Result<(), Errno> {
        if arg.len < 1 {
            return Err(Errno::EINVAL);
        }
        let given = arg.value.ok_or(Errno::EFAULT)?;
        let given = &given[..given.len().min(arg.len).min(NAME_LEN - 1)];
        let end = given.iter().position(|&byte| byte == 0).unwrap_or(given.len());
        let name = std::str::from_utf8(&given[..end]).map_err(|_| Errno::ENOENT)?;
        let algorithm = CongestionAlgorithm::from_name(name).ok_or(Errno::ENOENT)?;
        let set = SetOption::Congestion(algorithm);
        self.change_tcp(now, |tcp| tcp.congestion = Some(algorithm), set);
        Ok(())
    }

    fn set_keepalive(&mut self, now: Instant, name: i32, value: i32) -> Result<(), Errno> {
        let most = if name == TCP_KEEPCNT { MOST_KEEP_COUNT } else { MOST_KEEP_SECONDS };
        if !(1..=most).contains(&value) {
            return Err(Errno::EINVAL);
        }
        let time = Duration::from_secs(u64::from(value.unsigned_abs()));
        match name {
            TCP_KEEPIDLE => {
                self.change_tcp(now, |tcp| tcp.keep_idle = Some(time), SetOption::KeepIdle(time));
            }
            TCP_KEEPINTVL => {
                let set = SetOption::KeepIntvl(time);
                self.change_tcp(now, |tcp| tcp.keep_intvl = Some(time), set);
            }
            _ => {
                let count = value as u8;
                self.change_tcp(now, |tcp| tcp.keep_cnt = Some(count), SetOption::KeepCnt(count));
            }
        }
        Ok(())
    }

    /// A negative time is none at all, and a long one the longest.
    fn set_linger2(&mut self, now: Instant, value: i32) {
        let kept = if value > MOST_LINGER2 { MOST_LINGER2 } else { value.max(-1) };
        self.keep(SOL_TCP, TCP_LINGER2, i64::from(kept));
        let time = Duration::from_secs(u64::try_from(kept).unwrap_or(0));
        self.change_tcp(now, |tcp| tcp.linger2 = Some(time), SetOption::Linger2(time));
    }

    /// As on Linux a bound is taken off only before the socket is used, and a small one, or a
    /// negative one, is the least that there is.
    fn set_window_clamp(&mut self, now: Instant, value: i32) -> Result<(), Errno> {
        if value == 0 && self.state() != State::Closed {
            return Err(Errno::EINVAL);
        }
        let clamp = (value != 0).then(|| value.max(0).cast_unsigned().max(MIN_WINDOW_CLAMP));
        self.change_tcp(now, |tcp| tcp.window_clamp = clamp, SetOption::WindowClamp(clamp));
        Ok(())
    }

    /// In microseconds the least timeout, in milliseconds the greatest.
    fn set_rto_bound(&mut self, now: Instant, name: i32, value: i32) -> Result<(), Errno> {
        let least = name == TCP_RTO_MIN_US;
        let allowed = if least { 1..=MOST_RTO_MIN_US } else { LEAST_RTO_MAX_MS..=MOST_RTO_MAX_MS };
        let value = Some(value).filter(|value| allowed.contains(value)).ok_or(Errno::EINVAL)?;
        let value = u64::from(value.unsigned_abs());
        if least {
            let time = Some(Duration::from_micros(value));
            self.change_tcp(now, |tcp| tcp.rto_min = time, SetOption::RtoMin(time));
        } else {
            let time = Some(Duration::from_millis(value));
            self.change_tcp(now, |tcp| tcp.rto_max = time, SetOption::RtoMax(time));
        }
        Ok(())
    }

    pub(super) fn get_tcp_level(
        &mut self,
        now: Instant,
        stack: &Stack,
        name: i32,
    ) -> Result<Value, Errno> {
        let tcp = self.tcp_options();
        let seconds = |time: Option<Duration>, setting_name: &str, default: i64| {
            let set = time.map(|time| time.as_millis() as i64 / 1000);
            set.or_else(|| setting(stack, setting_name, 0)).unwrap_or(default) as i32
        };
        let value = match name {
            TCP_NODELAY => i32::from(tcp.nodelay),
            TCP_CORK => i32::from(tcp.cork),
            TCP_QUICKACK => i32::from(tcp.quickack.unwrap_or(true)),
            TCP_MAXSEG => self.maxseg(tcp.maxseg),
            TCP_KEEPIDLE => seconds(tcp.keep_idle, "net.ipv4.tcp_keepalive_time", 7200),
            TCP_KEEPINTVL => seconds(tcp.keep_intvl, "net.ipv4.tcp_keepalive_intvl", 75),
            TCP_KEEPCNT => count(tcp.keep_cnt, stack, "net.ipv4.tcp_keepalive_probes"),
            TCP_SYNCNT => count(tcp.syn_retries, stack, "net.ipv4.tcp_syn_retries"),
            TCP_LINGER2 => match self.kept(SOL_TCP, name, 0) {
                0 => seconds(None, "net.ipv4.tcp_fin_timeout", 60),
                kept => kept as i32,
            },
            TCP_USER_TIMEOUT => {
                tcp.user_timeout.map_or(0, |time| i32::try_from(time.as_millis()).unwrap_or(0))
            }
            TCP_RTO_MIN_US => {
                let set = tcp.rto_min.map(|time| (time.as_nanos() / 1000) as i64);
                set.or_else(|| setting(stack, "net.ipv4.tcp_rto_min_us", 0)).unwrap_or(0) as i32
            }
            TCP_RTO_MAX_MS => {
                let set = tcp.rto_max.map(|time| time.as_millis() as i64);
                set.or_else(|| setting(stack, "net.ipv4.tcp_rto_max_ms", 0)).unwrap_or(0) as i32
            }
            TCP_NOTSENT_LOWAT => tcp.notsent_lowat.unwrap_or(0) as i32,
            TCP_INQ => i32::from(self.set.inq),
            TCP_FASTOPEN => self.fastopen(),
            TCP_FASTOPEN_KEY => return Ok(self.fastopen_key(stack)),
            TCP_FASTOPEN_CONNECT => i32::from(self.set.fastopen_connect),
            TCP_FASTOPEN_NO_COOKIE => i32::from(tcp.fastopen_no_cookie),
            TCP_DEFER_ACCEPT => seconds_of_timeouts(tcp.defer_accept),
            TCP_WINDOW_CLAMP => tcp.window_clamp.unwrap_or(0) as i32,
            TCP_SAVE_SYN => self.set.save_syn,
            TCP_INFO => return Ok(Value::Bytes(self.tcp_info(now))),
            TCP_CC_INFO => return Ok(Value::Bytes(self.cc_info(now))),
            TCP_CONGESTION => return Ok(self.congestion(stack, tcp.congestion)),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(Value::Int(value))
    }

    /// The headers of the SYN, once. If they do not fit, the length says how many bytes they need.
    pub(super) fn saved_syn(&self, capacity: usize, null: bool) -> Outcome {
        let len = self.stream().map_or(0, |stream| stream.saved_syn_len());
        let len_told = i32::try_from(len).unwrap_or(i32::MAX);
        if len > capacity {
            let out = Out::Option { value: Vec::new(), len: len_told };
            return Ok(Reply { result: Err(Errno::EINVAL), out });
        }
        if null && len > 0 {
            return Err(Errno::EFAULT);
        }
        let headers = self.stream().and_then(|stream| stream.take_saved_syn());
        let value = headers.map_or_else(Vec::new, Vec::from);
        Ok(Reply { result: Ok(0), out: Out::Option { value, len: len_told } })
    }

    fn tcp_info(&self, now: Instant) -> Vec<u8> {
        match &self.link {
            Link::Stream(stream) => tcp_info::bytes(&stream.info(now), self.state()),
            Link::Listener(listener) => {
                let (queued, backlog) = listener.queue_lengths();
                tcp_info::listener(queued as u32, backlog as u32)
            }
            Link::Idle => tcp_info::closed(),
        }
    }

    /// What the congestion control knows, if it tells: BBR does, once data has left.
    fn cc_info(&self, now: Instant) -> Vec<u8> {
        let info = self.stream().map(|stream| stream.info(now));
        info.and_then(|info| info.bbr).map_or_else(Vec::new, |model| tcp_info::bbr(&model))
    }

    /// What was set, until a handshake has settled it.
    fn maxseg(&self, set: Option<u16>) -> i32 {
        let opening = matches!(self.state(), State::Closed | State::SynSent);
        i32::from(match (self.stream(), set) {
            (_, Some(set)) if opening => set,
            (Some(stream), _) if !opening => stream.mss(),
            _ => 536,
        })
    }

    fn congestion(&self, stack: &Stack, set: Option<CongestionAlgorithm>) -> Value {
        let setting = || stack.sysctl().get("net.ipv4.tcp_congestion_control").ok();
        let name = set.map(|algorithm| algorithm.name().to_owned()).or_else(setting);
        let mut bytes = name.unwrap_or_default().into_bytes();
        bytes.resize(NAME_LEN, 0);
        Value::Bytes(bytes)
    }
}

fn count(set: Option<u8>, stack: &Stack, name: &str) -> i32 {
    set.map_or_else(|| setting(stack, name, 0).unwrap_or(0) as i32, i32::from)
}

/// Timeouts of a SYN-ACK that together are as long as so many seconds: the first is one second, and
/// each of the others twice as long as the one before.
fn timeouts_in(seconds: i32) -> u8 {
    let mut timeouts = 0;
    while seconds > seconds_of_timeouts(timeouts) && timeouts < u8::MAX {
        timeouts += 1;
    }
    timeouts
}

fn seconds_of_timeouts(timeouts: u8) -> i32 {
    (0..u32::from(timeouts)).map(|doublings| (1 << doublings.min(7)).min(MOST_RTO_SECONDS)).sum()
}
