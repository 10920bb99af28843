//! Settings: the stack's sysctls as the engine reads them, and the options of one socket.

use crate::algorithm::CongestionAlgorithm;
use crate::route::{PathMtuDiscovery, RouteMetrics};
use crate::send::error_queue::TxTimestamps;
use crate::signature::Md5Key;
use crate::time::Duration;

/// Policies for the part of a super-segment below one MSS, its *tail*: the four values of
/// `plimsoll.tcp_tso_tail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TsoTail {
    /// The tail is cut off and leaves at once in a separate packet, unless Nagle's rule with
    /// Minshall's condition holds it (Linux before 3.14).
    Split,
    /// The tail stays in a super-segment that empties the send buffer; a packet of less than a
    /// segment is subject to RFC 896 (FreeBSD).
    Empty,
    /// A super-segment never carries a tail while data may follow, unless TCP_NODELAY is set; the
    /// tail is subject to RFC 896.
    Trim,
    /// The tail stays in the super-segment unless Nagle's algorithm with Minshall's condition holds
    /// it (Linux since 3.14).
    #[default]
    Nagle,
}

impl TsoTail {
    /// All policies.
    pub const ALL: [TsoTail; 4] = [TsoTail::Split, TsoTail::Empty, TsoTail::Trim, TsoTail::Nagle];

    /// The name in settings: `split`, `empty`, `trim` or `nagle`.
    pub const fn name(self) -> &'static str {
        match self {
            TsoTail::Split => "split",
            TsoTail::Empty => "empty",
            TsoTail::Trim => "trim",
            TsoTail::Nagle => "nagle",
        }
    }

    /// The policy with the name `name`.
    pub fn from_name(name: &str) -> Option<TsoTail> {
        TsoTail::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The stack-wide settings that the engine reads. Fields have the names of Linux's sysctls under
/// `net.ipv4`, and Linux's defaults. A change takes effect at the next call; settings that an open
/// uses (options offered, first buffers, the algorithm) take effect with the next connection.
///
/// The ranges of the fields are those that `crates/stack` accepts for the settings. The engine does
/// not check them: it accepts any value, and values outside the range may be useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// If not 0, a send buffer holds as many bytes of data as SO_SNDBUF, as on BSD. A writer then
    /// continues only when this many bytes are free or its remaining data fits (BSD: `sb_lowat`). 0
    /// counts as Linux does. An open socket keeps its buffer.
    pub tcp_sndbuf_raw: u32,
    /// Receive buffer in bytes: minimum, default, maximum that autotuning reaches.
    pub tcp_rmem: [usize; 3],
    /// Send buffer in bytes: minimum, default, maximum that autotuning reaches.
    pub tcp_wmem: [usize; 3],
    /// Scaled windows follow the free buffer, even when it shrinks, which RFC 9293 advises against
    /// (section 3.8.6).
    pub tcp_shrink_window: bool,
    /// Grow receive buffers with the amount that the application reads per round trip.
    pub tcp_moderate_rcvbuf: bool,
    /// Offer and accept SACK.
    pub tcp_sack: bool,
    /// Send DSACK blocks (RFC 2883).
    pub tcp_dsack: bool,
    /// Offer and accept timestamps.
    pub tcp_timestamps: bool,
    /// Offer and accept window scaling.
    pub tcp_window_scaling: bool,
    /// Retransmissions of a SYN before the open fails.
    pub tcp_syn_retries: u8,
    /// Retransmissions of a SYN before their interval begins to double. They do not count against
    /// `tcp_syn_retries`.
    pub tcp_syn_linear_timeouts: u8,
    /// Retransmissions of a SYN-ACK before the open fails.
    pub tcp_synack_retries: u8,
    /// Retransmission timeouts before the path is suspected of dropping long packets, 0 to 255.
    pub tcp_retries1: u8,
    /// Retransmission timeouts before the connection is given up.
    pub tcp_retries2: u8,
    /// The same for a connection that no application holds any more (0 means 8).
    pub tcp_orphan_retries: u8,
    /// Idle time before the first keepalive probe.
    pub tcp_keepalive_time: Duration,
    /// Time between keepalive probes.
    pub tcp_keepalive_intvl: Duration,
    /// Unanswered keepalive probes before the connection is given up.
    pub tcp_keepalive_probes: u8,
    /// The lifetime of an orphan in FIN-WAIT-2, and the length of TIME-WAIT (Linux has 60 s for
    /// both).
    pub tcp_fin_timeout: Duration,
    /// Lower bound of the retransmission timeout, 1 us to 120 s (Linux: `tcp_rto_min_us`). If it is
    /// above `tcp_rto_max`, `tcp_rto_max` applies.
    pub tcp_rto_min: Duration,
    /// Upper bound of the retransmission timeout, 1 s to 120 s (Linux: `tcp_rto_max_ms`).
    pub tcp_rto_max: Duration,
    /// The time for which a round trip counts as the minimum, up to a day. BBR has its own time.
    pub tcp_min_rtt_wlen: Duration,
    /// The algorithm of new connections.
    pub tcp_congestion_control: CongestionAlgorithm,
    /// Start again from the initial window after an idle time of one RTO.
    pub tcp_slow_start_after_idle: bool,
    /// Duplicate ACKs (or SACKed segments) that mean loss, as long as no reordering was seen: 1 to
    /// 127.
    pub tcp_reordering: u8,
    /// Bound of the reordering that a connection learns, in segments: 1 to 65,535.
    pub tcp_max_reordering: u16,
    /// Bits of RACK: 1 is always on, 2 a fixed reordering window, 4 no threshold of duplicates.
    pub tcp_recovery: u8,
    /// Tail loss probes: on with 3 and 4, off with 0 to 2.
    pub tcp_early_retrans: u8,
    /// F-RTO (RFC 5682) after a timeout, unless 0.
    pub tcp_frto: u8,
    /// ECN: 0 never, 1 request and accept, 2 accept only (RFC 3168). Accurate ECN (RFC 9768): 3
    /// request and accept, 4 request RFC 3168 and accept either, 5 accept either only.
    pub tcp_ecn: u8,
    /// The option of Accurate ECN: 0 never, 1 where it is needed, 2 wherever it fits, 3 also if the
    /// peer sends none.
    pub tcp_ecn_option: u8,
    /// The least number of Accurate ECN options per round trip, 0 to 255, if `tcp_ecn_option` is 1;
    /// 0 means no minimum.
    pub tcp_ecn_option_beacon: u8,
    /// Marks reduce the window less than losses: to 80 % with NewReno and 85 % with CUBIC (RFC
    /// 8511).
    pub tcp_abe: bool,
    /// HyStart++ (RFC 9406) instead of HyStart ends the first slow start of CUBIC. New connections.
    pub tcp_hystart_plus_plus: bool,
    /// A window that the application does not use is kept for five minutes, and reduced further if
    /// that was wrong (RFC 7661). This replaces `tcp_slow_start_after_idle`. New connections.
    pub tcp_rfc7661: bool,
    /// A retransmitted SYN does not request ECN; one that requests Accurate ECN is tried twice. If
    /// our SYN or SYN-ACK arrived with a codepoint that no router may have written, our later
    /// packets are not ECN-capable.
    pub tcp_ecn_fallback: bool,
    /// Initial congestion window in segments, 1 to 1,024 (RFC 6928; Linux: route attribute
    /// `initcwnd`).
    pub initcwnd: u32,
    /// Wire segments that a super-segment may always have, even for a slow sender: 1 to 65,535.
    pub tcp_min_tso_segs: u32,
    /// The extra size of a super-segment for short round trips halves with every 2^n microseconds
    /// of the least round trip, where n is this field; 0 means no extra size.
    pub tcp_tso_rtt_log: u8,
    /// A super-segment that is not full waits only while it is less than this fraction of the
    /// window; 0 means a fixed limit.
    pub tcp_tso_win_divisor: u8,
    /// Wait a little for an ACK that allows a fuller super-segment.
    pub tcp_tso_defer: bool,
    /// Nagle's algorithm holds data for at most two round trips and a millisecond: an ACK that
    /// takes longer is delayed by a peer that waits for the held data. Linux has no such limit.
    pub tcp_nagle_bound: bool,
    /// Whether tails of super-segments travel with them.
    pub tcp_tso_tail: TsoTail,
    /// A small write waits for the completion of its connection's packets below.
    pub tcp_autocorking: bool,
    /// The most bytes that a connection without pacing has below it.
    pub tcp_limit_output_bytes: u32,
    /// Pacing rate in slow start, in percent of one window per round trip: 0 to 1,000. BBR has its
    /// own rates.
    pub tcp_pacing_ss_ratio: u32,
    /// Pacing rate in congestion avoidance, in percent of one window per round trip: 0 to 1,000.
    pub tcp_pacing_ca_ratio: u32,
    /// The smallest MSS that is ever used, in bytes with options: 1 to 65,535.
    pub tcp_min_snd_mss: u16,
    /// Probes of the path MTU (RFC 4821): 0 never, 1 once timeouts suggest that the path drops long
    /// packets, 2 always.
    pub tcp_mtu_probing: u8,
    /// The MSS with which such a search begins, in payload bytes: 48 to 65,495.
    pub tcp_base_mss: u16,
    /// The lowest MSS of such a search, in payload bytes: 48 to 65,495.
    pub tcp_mtu_probe_floor: u16,
    /// A search ends when its range has fewer bytes than this: 1 to 65,495.
    pub tcp_probe_threshold: u16,
    /// Time between the starts of two searches, if the first has ended by then: up to 4,000,000 s.
    pub tcp_probe_interval: Duration,
    /// The time for which a router's report of a smaller MTU is valid, 1 s to a day (Linux:
    /// `net.ipv4.route.mtu_expires`).
    pub mtu_expires: Duration,
    /// Least time between two ACKs for invalid segments, up to 600 s (Linux:
    /// `tcp_invalid_ratelimit`).
    pub tcp_invalid_ratelimit: Duration,
    /// Shortest delayed ACK, 1 ms to 1 s (Linux: `TCP_DELACK_MIN`).
    pub tcp_delack_min: Duration,
    /// Longest delayed ACK, 1 ms to 1 s (Linux: `TCP_DELACK_MAX`).
    pub tcp_delack_max: Duration,
    /// The ACKs that a batch of segments requires become one at its end.
    pub tcp_backlog_ack_defer: bool,
    /// 1: answers carry the ACKs of what they answer. 2: only of requests of up to one segment, as
    /// on Linux. 0: never.
    pub tcp_pingpong: u8,
    /// Longest delay of compressed ACKs, up to 100 ms; zero disables compression.
    pub tcp_comp_sack_delay: Duration,
    /// The extra delay that Linux allows the timer of compressed ACKs. It has no effect here.
    pub tcp_comp_sack_slack: Duration,
    /// The most ACKs that are compressed into one; 0 disables compression.
    pub tcp_comp_sack_nr: u8,
    /// Delay of compressed ACKs in percent of the round-trip time, 1 to 1,000.
    pub tcp_comp_sack_rtt_percent: u32,
    /// Number of unsent bytes from which a write takes no more; a blocked writer continues below
    /// half of it.
    pub tcp_notsent_lowat: u32,
    /// Reset on accept-queue overflow rather than drop.
    pub tcp_abort_on_overflow: bool,
    /// SYNs that one listener keeps without a completed handshake.
    pub tcp_max_syn_backlog: u32,
    /// Number of decisions in each new connection's log; 0 disables the log.
    pub decision_log: u32,
    /// RFC 1337: ignore resets in TIME-WAIT.
    pub tcp_rfc1337: bool,
}

/// Linux's values, where it has the setting.
const DEFAULT: Config = Config {
    tcp_sndbuf_raw: 0,
    tcp_rmem: [4096, 131_072, 33_554_432],
    tcp_wmem: [4096, 16_384, 4_194_304],
    tcp_shrink_window: false,
    tcp_moderate_rcvbuf: true,
    tcp_sack: true,
    tcp_dsack: true,
    tcp_timestamps: true,
    tcp_window_scaling: true,
    tcp_syn_retries: 6,
    tcp_syn_linear_timeouts: 4,
    tcp_synack_retries: 5,
    tcp_retries1: 3,
    tcp_retries2: 15,
    tcp_orphan_retries: 0,
    tcp_keepalive_time: Duration::from_secs(7200),
    tcp_keepalive_intvl: Duration::from_secs(75),
    tcp_keepalive_probes: 9,
    tcp_fin_timeout: Duration::from_secs(60),
    tcp_rto_min: Duration::from_millis(200),
    tcp_rto_max: Duration::from_secs(120),
    tcp_min_rtt_wlen: Duration::from_secs(300),
    tcp_congestion_control: CongestionAlgorithm::Cubic,
    tcp_slow_start_after_idle: true,
    tcp_reordering: 3,
    tcp_max_reordering: 300,
    tcp_recovery: 1,
    tcp_early_retrans: 3,
    tcp_frto: 2,
    tcp_ecn: 2,
    tcp_ecn_option: 2,
    tcp_ecn_option_beacon: 3,
    tcp_abe: false,
    tcp_hystart_plus_plus: false,
    tcp_rfc7661: false,
    tcp_ecn_fallback: true,
    initcwnd: 10,
    tcp_min_tso_segs: 2,
    tcp_tso_rtt_log: 9,
    tcp_tso_win_divisor: 3,
    tcp_tso_defer: true,
    tcp_nagle_bound: false,
    tcp_tso_tail: TsoTail::Nagle,
    tcp_autocorking: true,
    tcp_limit_output_bytes: 4_194_304,
    tcp_pacing_ss_ratio: 200,
    tcp_pacing_ca_ratio: 120,
    tcp_min_snd_mss: 48,
    tcp_mtu_probing: 0,
    tcp_base_mss: 1024,
    tcp_mtu_probe_floor: 48,
    tcp_probe_threshold: 8,
    tcp_probe_interval: Duration::from_secs(600),
    mtu_expires: Duration::from_secs(600),
    tcp_invalid_ratelimit: Duration::from_millis(500),
    tcp_delack_min: Duration::from_millis(40),
    tcp_delack_max: Duration::from_millis(200),
    tcp_backlog_ack_defer: true,
    tcp_pingpong: 1,
    tcp_comp_sack_delay: Duration::from_millis(1),
    tcp_comp_sack_slack: Duration::from_micros(100),
    tcp_comp_sack_nr: 44,
    tcp_comp_sack_rtt_percent: 5,
    tcp_notsent_lowat: u32::MAX,
    tcp_abort_on_overflow: false,
    tcp_max_syn_backlog: 1024,
    decision_log: 0,
    tcp_rfc1337: false,
};

impl Default for Config {
    fn default() -> Config {
        DEFAULT
    }
}

/// The options of one socket. `None` selects the stack's setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// TCP_NODELAY: disables Nagle's algorithm.
    pub nodelay: bool,
    /// TCP_CORK: less than a segment waits, but no longer than a retransmission timeout or 200 ms,
    /// whichever is longer.
    pub cork: bool,
    /// SO_ZEROCOPY: writes may request a report when their buffers are free again.
    pub zerocopy: bool,
    /// Automatic corking of this socket; `None` selects `tcp_autocorking`.
    pub autocork: Option<bool>,
    /// The policy for tails of this socket's super-segments; `None` selects `tcp_tso_tail`.
    pub tso_tail: Option<TsoTail>,
    /// SO_MAX_PACING_RATE: the most bytes per second that the socket sends.
    pub max_pacing_rate: Option<u64>,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// TCP_KEEPIDLE.
    pub keep_idle: Option<Duration>,
    /// TCP_KEEPINTVL.
    pub keep_intvl: Option<Duration>,
    /// TCP_KEEPCNT.
    pub keep_cnt: Option<u8>,
    /// TCP_USER_TIMEOUT (RFC 5482); zero or `None` is off.
    pub user_timeout: Option<Duration>,
    /// TCP_RTO_MIN_US: lower bound of the retransmission timeout, 1 us to 120 s; zero or `None`
    /// selects `tcp_rto_min`.
    pub rto_min: Option<Duration>,
    /// TCP_RTO_MAX_MS: upper bound of the retransmission timeout, also that of a SYN, 1 s to 120 s;
    /// zero or `None` selects `tcp_rto_max`.
    pub rto_max: Option<Duration>,
    /// The time after which a half-closed connection without data in either direction is reset.
    /// Zero or `None` means no limit, as on Linux.
    pub half_close_timeout: Option<Duration>,
    /// Limit of the memory of the connection's queues, in bytes, for both directions together:
    /// 65,536 at least; `None` means no limit except that of the buffers. The engine ignores it;
    /// the stack passes the available memory with each call.
    pub memory_budget: Option<usize>,
    /// SO_SNDBUF as it was set; the buffer counts twice as much (see
    /// [`Connection::sndbuf`](crate::Connection::sndbuf)). Disables send autotuning.
    pub sndbuf: Option<usize>,
    /// SO_RCVBUF as it was set, which is the amount of data that the buffer holds. Disables receive
    /// autotuning.
    pub rcvbuf: Option<usize>,
    /// TCP_WINDOW_CLAMP: the largest window offered, 1,152 bytes at least. Earlier offers stay
    /// valid. `None` means no limit except that of the buffer.
    pub window_clamp: Option<u32>,
    /// TCP_MAXSEG: upper bound for the MSS in both directions.
    pub maxseg: Option<u16>,
    /// TCP_CONGESTION.
    pub congestion: Option<CongestionAlgorithm>,
    /// Number of decisions in the connection's log; 0 disables the log, `None` selects
    /// `decision_log`.
    pub decision_log: Option<u32>,
    /// TCP_NOTSENT_LOWAT in bytes; 0 is the same as `None`.
    pub notsent_lowat: Option<u32>,
    /// SO_RCVLOWAT in bytes; 0 and 1 have the same effect.
    pub rcvlowat: u32,
    /// SO_OOBINLINE: urgent data stays in the stream.
    pub oobinline: bool,
    /// TCP_QUICKACK as last set; `None` if never.
    pub quickack: Option<bool>,
    /// The attributes of the route to the peer. It has no setter: when a connection opens, the
    /// stack overwrites it from the routes ([`RouteMetrics`]).
    pub route: RouteMetrics,
    /// TCP_LINGER2: stay in FIN-WAIT-2.
    pub linger2: Option<Duration>,
    /// TCP_SYNCNT.
    pub syn_retries: Option<u8>,
    /// TCP_DEFER_ACCEPT, as timeouts of the SYN-ACK: until then an ACK without data does not
    /// complete the handshake. 0 disables it.
    pub defer_accept: u8,
    /// TCP_SAVE_SYN, of a listener: saves the headers of SYNs for the application that accepts. The
    /// engine ignores it.
    pub save_syn: bool,
    /// TCP_FASTOPEN_NO_COOKIE: Fast Open without cookies.
    pub fastopen_no_cookie: bool,
    /// TCP_MD5SIG: the key that signs every segment.
    pub md5_key: Option<Md5Key>,
    /// IP_MTU_DISCOVER or IPV6_MTU_DISCOVER. The engine ignores it.
    pub path_mtu_discovery: PathMtuDiscovery,
    /// IP_TOS or IPV6_TCLASS, without the ECN bits. The engine ignores it.
    pub tos: u8,
    /// IP_TTL or IPV6_UNICAST_HOPS; 0 selects the stack's setting. The engine ignores it.
    pub ttl: u8,
}

crate::setters!(Options {
    nodelay: bool,
    cork: bool,
    zerocopy: bool,
    autocork: Option<bool>,
    tso_tail: Option<TsoTail>,
    max_pacing_rate: Option<u64>,
    keepalive: bool,
    keep_idle: Option<Duration>,
    keep_intvl: Option<Duration>,
    keep_cnt: Option<u8>,
    user_timeout: Option<Duration>,
    rto_min: Option<Duration>,
    rto_max: Option<Duration>,
    half_close_timeout: Option<Duration>,
    memory_budget: Option<usize>,
    sndbuf: Option<usize>,
    rcvbuf: Option<usize>,
    window_clamp: Option<u32>,
    maxseg: Option<u16>,
    congestion: Option<CongestionAlgorithm>,
    decision_log: Option<u32>,
    notsent_lowat: Option<u32>,
    rcvlowat: u32,
    oobinline: bool,
    quickack: Option<bool>,
    linger2: Option<Duration>,
    syn_retries: Option<u8>,
    defer_accept: u8,
    save_syn: bool,
    fastopen_no_cookie: bool,
    md5_key: Option<Md5Key>,
    path_mtu_discovery: PathMtuDiscovery,
    tos: u8,
    ttl: u8,
});

impl Options {
    /// The initial congestion window in segments: that of the route, or otherwise of the settings.
    pub(crate) fn initial_cwnd(&self, config: &Config) -> u32 {
        self.route.initcwnd.unwrap_or(config.initcwnd)
    }
}

/// One option to change on an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetOption {
    /// TCP_NODELAY. Setting it sends data that Nagle's algorithm or a cork held.
    NoDelay(bool),
    /// TCP_CORK. Clearing it sends the data that it held.
    Cork(bool),
    /// SO_ZEROCOPY.
    ZeroCopy(bool),
    /// Automatic corking of this socket; `None` selects the stack's setting.
    Autocork(Option<bool>),
    /// The policy for tails of super-segments; `None` selects the stack's setting.
    TsoTail(Option<TsoTail>),
    /// SO_MAX_PACING_RATE in bytes per second; `u64::MAX` is no limit.
    MaxPacingRate(u64),
    /// Number of decisions in the connection's log; 0 disables it. Earlier entries are dropped.
    DecisionLog(u32),
    /// The transmit timestamps of SO_TIMESTAMPING.
    TxTimestamps(TxTimestamps),
    /// IP_TOS or IPV6_TCLASS.
    Tos(u8),
    /// IP_TTL or IPV6_UNICAST_HOPS; 0 is the stack's setting.
    Ttl(u8),
    /// TCP_SYNCNT.
    SynRetries(u8),
    /// TCP_DEFER_ACCEPT, which has no effect on an existing connection.
    DeferAccept(u8),
    /// TCP_MAXSEG. It bounds the MSS that an open negotiates; an open connection keeps its own.
    MaxSeg(u16),
    /// SO_KEEPALIVE.
    KeepAlive(bool),
    /// TCP_KEEPIDLE.
    KeepIdle(Duration),
    /// TCP_KEEPINTVL.
    KeepIntvl(Duration),
    /// TCP_KEEPCNT.
    KeepCnt(u8),
    /// TCP_USER_TIMEOUT.
    UserTimeout(Duration),
    /// TCP_RTO_MIN_US; `None` selects the stack's setting.
    RtoMin(Option<Duration>),
    /// TCP_RTO_MAX_MS; `None` selects the stack's setting.
    RtoMax(Option<Duration>),
    /// The bound on a half-closed connection on which no data moves; zero is none.
    HalfCloseTimeout(Duration),
    /// The bound on the memory of the connection's queues, in bytes.
    MemoryBudget(Option<usize>),
    /// SO_SNDBUF, as setsockopt takes it: the buffer counts twice as much.
    SndBuf(usize),
    /// SO_RCVBUF, as setsockopt takes it.
    RcvBuf(usize),
    /// TCP_WINDOW_CLAMP in bytes; `None` is no bound.
    WindowClamp(Option<u32>),
    /// IP_MTU_DISCOVER or IPV6_MTU_DISCOVER.
    PathMtuDiscovery(PathMtuDiscovery),
    /// TCP_CONGESTION.
    Congestion(CongestionAlgorithm),
    /// TCP_NOTSENT_LOWAT.
    NotsentLowat(u32),
    /// SO_RCVLOWAT.
    RcvLowat(u32),
    /// SO_OOBINLINE.
    OobInline(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// TCP_LINGER2.
    Linger2(Duration),
}
