//! SOL_IP and SOL_IPV6.

use plimsoll_stack::Stack;
use plimsoll_tcp::{Instant, PathMtuDiscovery, SetOption};

use super::{Arg, Value, setting};
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::socket::{Link, Socket};

/// The bits of IP_TOS that are not the ECN field, which TCP keeps to itself.
const TOS_WITHOUT_ECN: i32 = 0xfc;

impl Socket {
    pub(super) fn set_ip(&mut self, now: Instant, name: i32, arg: Arg<'_>) -> Result<(), Errno> {
        let value = match arg.len {
            0 => 0,
            1..4 => i32::from(arg.bytes(1)?[0]),
            _ => arg.int_at(0)?,
        };
        let in_range = match name {
            IP_TTL => value == -1 || (1..=255).contains(&value),
            IP_MTU_DISCOVER => (0..=5).contains(&value),
            _ => true,
        };
        if !in_range || (matches!(name, IP_TTL | IP_FREEBIND) && arg.len < 1) {
            return Err(Errno::EINVAL);
        }
        match name {
            IP_FREEBIND => self.set.freebind = value != 0,
            IP_TOS => {
                let tos = (value & TOS_WITHOUT_ECN) as u8;
                self.keep(SOL_IP, name, i64::from(tos));
                self.change_tcp(now, |tcp| tcp.tos = tos, SetOption::Tos(tos));
            }
            IP_TTL => {
                self.keep(SOL_IP, name, i64::from(value));
                self.set_ttl(now, value);
            }
            IP_MTU_DISCOVER => self.set_mtu_discover(now, SOL_IP, name, value),
            IP_RECVERR | IP_BIND_ADDRESS_NO_PORT => {
                self.keep(SOL_IP, name, i64::from(value != 0));
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    pub(super) fn get_ip(
        &mut self,
        now: Instant,
        stack: &Stack,
        name: i32,
    ) -> Result<Value, Errno> {
        Ok(match name {
            IP_FREEBIND => Value::Int(i32::from(self.set.freebind)),
            IP_TTL => match self.kept(SOL_IP, name, -1) {
                -1 => Value::Int(setting(stack, "net.ipv4.ip_default_ttl", 0).unwrap_or(64) as i32),
                ttl => Value::Int(ttl as i32),
            },
            IP_MTU => Value::Int(self.mtu(now)?),
            IP_MTU_DISCOVER => self.kept_int(SOL_IP, name, 1),
            IP_TOS | IP_RECVERR | IP_BIND_ADDRESS_NO_PORT => self.kept_int(SOL_IP, name, 0),
            _ => return Err(Errno::ENOPROTOOPT),
        })
    }

    pub(super) fn set_ipv6(&mut self, now: Instant, name: i32, arg: Arg<'_>) -> Result<(), Errno> {
        let value = match arg.value {
            None => 0,
            Some(_) if arg.len < 4 => 0,
            Some(_) => arg.int_at(0)?,
        };
        let in_range = match name {
            IPV6_UNICAST_HOPS => (-1..=255).contains(&value),
            IPV6_TCLASS => (-1..=255).contains(&value),
            IPV6_MTU_DISCOVER => (0..=5).contains(&value),
            IPV6_MTU => value == 0 || value >= 1280,
            _ => true,
        };
        if arg.len < 4 || !in_range {
            return Err(Errno::EINVAL);
        }
        match name {
            IPV6_V6ONLY => {
                if self.bound.is_some() || !matches!(self.link, Link::Idle) {
                    return Err(Errno::EINVAL);
                }
                self.set.v6only = value != 0;
            }
            IPV6_FREEBIND => self.set.freebind = value != 0,
            IPV6_TCLASS => {
                let class = (value.max(0) & TOS_WITHOUT_ECN) as u8;
                self.keep(SOL_IPV6, name, i64::from(class));
                self.change_tcp(now, |tcp| tcp.tos = class, SetOption::Tos(class));
            }
            IPV6_UNICAST_HOPS => {
                self.keep(SOL_IPV6, name, i64::from(value));
                self.set_ttl(now, value);
            }
            IPV6_MTU_DISCOVER => self.set_mtu_discover(now, SOL_IPV6, name, value),
            IPV6_RECVERR => self.keep(SOL_IPV6, name, i64::from(value != 0)),
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    pub(super) fn get_ipv6(&mut self, now: Instant, name: i32) -> Result<Value, Errno> {
        Ok(match name {
            IPV6_V6ONLY => Value::Int(i32::from(self.set.v6only)),
            IPV6_FREEBIND => Value::Int(i32::from(self.set.freebind)),
            IPV6_MTU => Value::Int(self.mtu(now)?),
            IPV6_MTU_DISCOVER => self.kept_int(SOL_IPV6, name, 1),
            IPV6_UNICAST_HOPS => match self.kept(SOL_IPV6, name, -1) {
                -1 => Value::Int(64),
                hops => Value::Int(hops as i32),
            },
            IPV6_TCLASS | IPV6_RECVERR => self.kept_int(SOL_IPV6, name, 0),
            _ => return Err(Errno::ENOPROTOOPT),
        })
    }

    /// -1 is the default, which the stack says with 0.
    fn set_ttl(&mut self, now: Instant, value: i32) {
        let ttl = u8::try_from(value).unwrap_or(0);
        self.change_tcp(now, |tcp| tcp.ttl = ttl, SetOption::Ttl(ttl));
    }

    /// For a connection the last two kinds (IP_PMTUDISC_INTERFACE, IP_PMTUDISC_OMIT) are as the
    /// first: packets may be fragmented, and ICMP is not heeded.
    fn set_mtu_discover(&mut self, now: Instant, level: i32, name: i32, value: i32) {
        self.keep(level, name, i64::from(value));
        let discovery = match value {
            1 => PathMtuDiscovery::Fragment,
            2 => PathMtuDiscovery::DontFragment,
            3 => PathMtuDiscovery::Probe,
            _ => PathMtuDiscovery::Never,
        };
        let set = SetOption::PathMtuDiscovery(discovery);
        self.change_tcp(now, |tcp| tcp.path_mtu_discovery = discovery, set);
    }

    /// The MTU of the path, which only a connection has.
    fn mtu(&self, now: Instant) -> Result<i32, Errno> {
        let stream = self.stream().ok_or(Errno::ENOTCONN)?;
        Ok(i32::try_from(stream.info(now).pmtu).unwrap_or(i32::MAX))
    }
}
