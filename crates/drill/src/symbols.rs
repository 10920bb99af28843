//! Names of constants, with Linux's values.

/// The value of a constant, or of an error name (positive).
pub fn value(name: &str) -> Option<i64> {
    let found = TABLE.iter().find(|(known, _)| *known == name);
    found.map(|&(_, value)| value).or_else(|| {
        let errno = crate::posix::Errno::from_name(name)?;
        Some(i64::from(errno.0))
    })
}

/// The bits of `flags` as names of `table`, joined as a script writes them.
pub fn flags(table: &[(&str, i64)], flags: i64) -> String {
    let mut rest = flags;
    let mut names = Vec::new();
    for &(name, bit) in table {
        if bit != 0 && rest & bit == bit {
            names.push(name.to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 || names.is_empty() {
        names.push(if rest == 0 { "0".to_owned() } else { format!("{rest:#x}") });
    }
    names.join("|")
}

/// Events of `poll`.
pub const POLL: &[(&str, i64)] = &[
    ("POLLIN", 1),
    ("POLLPRI", 2),
    ("POLLOUT", 4),
    ("POLLERR", 8),
    ("POLLHUP", 0x10),
    ("POLLNVAL", 0x20),
    ("POLLRDNORM", 0x40),
    ("POLLRDBAND", 0x80),
    ("POLLWRNORM", 0x100),
    ("POLLWRBAND", 0x200),
    ("POLLMSG", 0x400),
    ("POLLREMOVE", 0x1000),
    ("POLLRDHUP", 0x2000),
];

/// Events of `epoll`.
pub const EPOLL: &[(&str, i64)] = &[
    ("EPOLLIN", 1),
    ("EPOLLPRI", 2),
    ("EPOLLOUT", 4),
    ("EPOLLERR", 8),
    ("EPOLLHUP", 0x10),
    ("EPOLLRDNORM", 0x40),
    ("EPOLLRDBAND", 0x80),
    ("EPOLLWRNORM", 0x100),
    ("EPOLLWRBAND", 0x200),
    ("EPOLLMSG", 0x400),
    ("EPOLLRDHUP", 0x2000),
    ("EPOLLEXCLUSIVE", 1 << 28),
    ("EPOLLWAKEUP", 1 << 29),
    ("EPOLLONESHOT", 1 << 30),
    ("EPOLLET", 1 << 31),
];

/// Flags of the calls that send and receive.
pub const MSG: &[(&str, i64)] = &[
    ("MSG_OOB", 1),
    ("MSG_PEEK", 2),
    ("MSG_DONTROUTE", 4),
    ("MSG_CTRUNC", 8),
    ("MSG_PROXY", 0x10),
    ("MSG_TRUNC", 0x20),
    ("MSG_DONTWAIT", 0x40),
    ("MSG_EOR", 0x80),
    ("MSG_WAITALL", 0x100),
    ("MSG_FIN", 0x200),
    ("MSG_SYN", 0x400),
    ("MSG_CONFIRM", 0x800),
    ("MSG_RST", 0x1000),
    ("MSG_ERRQUEUE", 0x2000),
    ("MSG_NOSIGNAL", 0x4000),
    ("MSG_MORE", 0x8000),
    ("MSG_WAITFORONE", 0x10000),
    ("MSG_ZEROCOPY", 0x400_0000),
    ("MSG_FASTOPEN", 0x2000_0000),
    ("MSG_CMSG_CLOEXEC", 0x4000_0000),
];

static TABLE: std::sync::LazyLock<Vec<(&'static str, i64)>> =
    std::sync::LazyLock::new(|| [SOCKETS, TCP, TIMESTAMPING, FILES, POLL, EPOLL, MSG].concat());

const SOCKETS: &[(&str, i64)] = &[
    ("NULL", 0),
    ("AF_UNSPEC", 0),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("PF_INET", 2),
    ("PF_INET6", 10),
    ("SOCK_STREAM", 1),
    ("SOCK_DGRAM", 2),
    ("SOCK_RAW", 3),
    ("SOCK_NONBLOCK", 0x800),
    ("SOCK_CLOEXEC", 0x80000),
    ("IPPROTO_IP", 0),
    ("IPPROTO_ICMP", 1),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("IPPROTO_IPV6", 41),
    ("IPPROTO_ICMPV6", 58),
    ("IPPROTO_RAW", 255),
    ("SHUT_RD", 0),
    ("SHUT_WR", 1),
    ("SHUT_RDWR", 2),
    ("SOL_IP", 0),
    ("SOL_SOCKET", 1),
    ("SOL_TCP", 6),
    ("SOL_UDP", 17),
    ("SOL_IPV6", 41),
    ("SO_DEBUG", 1),
    ("SO_REUSEADDR", 2),
    ("SO_TYPE", 3),
    ("SO_ERROR", 4),
    ("SO_DONTROUTE", 5),
    ("SO_BROADCAST", 6),
    ("SO_SNDBUF", 7),
    ("SO_RCVBUF", 8),
    ("SO_KEEPALIVE", 9),
    ("SO_OOBINLINE", 10),
    ("SO_NO_CHECK", 11),
    ("SO_PRIORITY", 12),
    ("SO_LINGER", 13),
    ("SO_BSDCOMPAT", 14),
    ("SO_REUSEPORT", 15),
    ("SO_RCVLOWAT", 18),
    ("SO_SNDLOWAT", 19),
    ("SO_RCVTIMEO", 20),
    ("SO_SNDTIMEO", 21),
    ("SO_BINDTODEVICE", 25),
    ("SO_TIMESTAMP", 29),
    ("SO_ACCEPTCONN", 30),
    ("SO_SNDBUFFORCE", 32),
    ("SO_RCVBUFFORCE", 33),
    ("SO_MARK", 36),
    ("SO_TIMESTAMPING", 37),
    ("SO_PROTOCOL", 38),
    ("SO_DOMAIN", 39),
    ("SO_MAX_PACING_RATE", 47),
    ("SO_MEMINFO", 55),
    ("SO_INCOMING_NAPI_ID", 56),
    ("SO_ZEROCOPY", 60),
    ("SO_EE_ORIGIN_NONE", 0),
    ("SO_EE_ORIGIN_LOCAL", 1),
    ("SO_EE_ORIGIN_ICMP", 2),
    ("SO_EE_ORIGIN_ICMP6", 3),
    ("SO_EE_ORIGIN_TIMESTAMPING", 4),
    ("SO_EE_ORIGIN_ZEROCOPY", 5),
    ("SO_EE_CODE_ZEROCOPY_COPIED", 1),
    ("IP_TOS", 1),
    ("IP_TTL", 2),
    ("IP_MTU_DISCOVER", 10),
    ("IP_RECVERR", 11),
    ("IP_MTU", 14),
    ("IP_FREEBIND", 15),
    ("IP_MINTTL", 21),
    ("IP_PMTUDISC_DONT", 0),
    ("IP_PMTUDISC_WANT", 1),
    ("IP_PMTUDISC_DO", 2),
    ("IP_PMTUDISC_PROBE", 3),
    ("IPV6_UNICAST_HOPS", 16),
    ("IPV6_MTU_DISCOVER", 23),
    ("IPV6_MTU", 24),
    ("IPV6_RECVERR", 25),
    ("IPV6_V6ONLY", 26),
    ("IPV6_HOPLIMIT", 52),
    ("IPV6_TCLASS", 67),
];

const TCP: &[(&str, i64)] = &[
    ("TCP_NODELAY", 1),
    ("TCP_MAXSEG", 2),
    ("TCP_CORK", 3),
    ("TCP_KEEPIDLE", 4),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 6),
    ("TCP_SYNCNT", 7),
    ("TCP_LINGER2", 8),
    ("TCP_DEFER_ACCEPT", 9),
    ("TCP_WINDOW_CLAMP", 10),
    ("TCP_INFO", 11),
    ("TCP_QUICKACK", 12),
    ("TCP_CONGESTION", 13),
    ("TCP_MD5SIG", 14),
    ("TCP_COOKIE_TRANSACTIONS", 15),
    ("TCP_THIN_LINEAR_TIMEOUTS", 16),
    ("TCP_THIN_DUPACK", 17),
    ("TCP_USER_TIMEOUT", 18),
    ("TCP_FASTOPEN", 23),
    ("TCP_TIMESTAMP", 24),
    ("TCP_NOTSENT_LOWAT", 25),
    ("TCP_CC_INFO", 26),
    ("TCP_SAVE_SYN", 27),
    ("TCP_SAVED_SYN", 28),
    ("TCP_FASTOPEN_CONNECT", 30),
    ("TCP_ULP", 31),
    ("TCP_MD5SIG_EXT", 32),
    ("TCP_FASTOPEN_KEY", 33),
    ("TCP_FASTOPEN_NO_COOKIE", 34),
    ("TCP_ZEROCOPY_RECEIVE", 35),
    ("TCP_INQ", 36),
    ("TCP_CM_INQ", 36),
    ("TCP_TX_DELAY", 37),
    ("TCP_RTO_MAX_MS", 44),
    ("TCP_RTO_MIN_US", 45),
    ("TCP_NLA_PAD", 0),
    ("TCP_NLA_BUSY", 1),
    ("TCP_NLA_RWND_LIMITED", 2),
    ("TCP_NLA_SNDBUF_LIMITED", 3),
    ("TCP_NLA_DATA_SEGS_OUT", 4),
    ("TCP_NLA_TOTAL_RETRANS", 5),
    ("TCP_NLA_PACING_RATE", 6),
    ("TCP_NLA_DELIVERY_RATE", 7),
    ("TCP_NLA_SND_CWND", 8),
    ("TCP_NLA_REORDERING", 9),
    ("TCP_NLA_MIN_RTT", 10),
    ("TCP_NLA_RECUR_RETRANS", 11),
    ("TCP_NLA_DELIVERY_RATE_APP_LMT", 12),
    ("TCP_NLA_SNDQ_SIZE", 13),
    ("TCP_NLA_CA_STATE", 14),
    ("TCP_NLA_SND_SSTHRESH", 15),
    ("TCP_NLA_DELIVERED", 16),
    ("TCP_NLA_DELIVERED_CE", 17),
    ("TCP_NLA_BYTES_SENT", 18),
    ("TCP_NLA_BYTES_RETRANS", 19),
    ("TCP_NLA_DSACK_DUPS", 20),
    ("TCP_NLA_REORD_SEEN", 21),
    ("TCP_NLA_SRTT", 22),
    ("TCP_CA_OPEN", 0),
    ("TCP_CA_DISORDER", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_RECOVERY", 3),
    ("TCP_CA_LOSS", 4),
    ("TCP_INFINITE_SSTHRESH", 0x7fff_ffff),
];

const TIMESTAMPING: &[(&str, i64)] = &[
    ("SOF_TIMESTAMPING_TX_HARDWARE", 1),
    ("SOF_TIMESTAMPING_TX_SOFTWARE", 2),
    ("SOF_TIMESTAMPING_RX_HARDWARE", 4),
    ("SOF_TIMESTAMPING_RX_SOFTWARE", 8),
    ("SOF_TIMESTAMPING_SOFTWARE", 0x10),
    ("SOF_TIMESTAMPING_SYS_HARDWARE", 0x20),
    ("SOF_TIMESTAMPING_RAW_HARDWARE", 0x40),
    ("SOF_TIMESTAMPING_OPT_ID", 0x80),
    ("SOF_TIMESTAMPING_TX_SCHED", 0x100),
    ("SOF_TIMESTAMPING_TX_ACK", 0x200),
    ("SOF_TIMESTAMPING_OPT_CMSG", 0x400),
    ("SOF_TIMESTAMPING_OPT_TSONLY", 0x800),
    ("SOF_TIMESTAMPING_OPT_STATS", 0x1000),
    ("SOF_TIMESTAMPING_OPT_PKTINFO", 0x2000),
    ("SOF_TIMESTAMPING_OPT_TX_SWHW", 0x4000),
    ("SOF_TIMESTAMPING_BIND_PHC", 0x8000),
    ("SOF_TIMESTAMPING_OPT_ID_TCP", 0x10000),
    ("SCM_TIMESTAMPING", 37),
    ("SCM_TIMESTAMPING_OPT_STATS", 54),
    ("SCM_TSTAMP_SND", 0),
    ("SCM_TSTAMP_SCHED", 1),
    ("SCM_TSTAMP_ACK", 2),
];

const FILES: &[(&str, i64)] = &[
    ("O_RDONLY", 0),
    ("O_WRONLY", 1),
    ("O_RDWR", 2),
    ("O_ACCMODE", 3),
    ("O_CREAT", 0o100),
    ("O_EXCL", 0o200),
    ("O_NOCTTY", 0o400),
    ("O_TRUNC", 0o1000),
    ("O_APPEND", 0o2000),
    ("O_NONBLOCK", 0o4000),
    ("O_CLOEXEC", 0o2_000_000),
    ("F_DUPFD", 0),
    ("F_GETFD", 1),
    ("F_SETFD", 2),
    ("F_GETFL", 3),
    ("F_SETFL", 4),
    ("F_DUPFD_CLOEXEC", 1030),
    ("FD_CLOEXEC", 1),
    ("SIOCINQ", 0x541b),
    ("FIONREAD", 0x541b),
    ("SIOCOUTQ", 0x5411),
    ("TIOCOUTQ", 0x5411),
    ("SIOCOUTQNSD", 0x894b),
    ("SIOCATMARK", 0x8905),
    ("FIONBIO", 0x5421),
    ("EPOLL_CTL_ADD", 1),
    ("EPOLL_CTL_DEL", 2),
    ("EPOLL_CTL_MOD", 3),
    ("EPOLL_CLOEXEC", 0x80000),
    ("SPLICE_F_MOVE", 1),
    ("SPLICE_F_NONBLOCK", 2),
    ("SPLICE_F_MORE", 4),
    ("SPLICE_F_GIFT", 8),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_flags() {
        assert_eq!(value("EPOLLET"), Some(0x8000_0000));
        assert_eq!(value("EAGAIN"), Some(11));
        assert_eq!(value("NO_SUCH_NAME"), None);
        assert_eq!(flags(POLL, 0x5), "POLLIN|POLLOUT");
        assert_eq!(flags(POLL, 0), "0");
        assert_eq!(flags(POLL, 0x4001), "POLLIN|0x4000");
        let mut names: Vec<_> = TABLE.iter().map(|&(name, _)| name).collect();
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before, "no name twice");
    }
}
