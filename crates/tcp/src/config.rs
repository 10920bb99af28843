//! Settings: the stack's sysctls as the engine reads them, and the options of one socket.

use crate::algorithm::CongestionAlgorithm;
use crate::route::{PathMtuDiscovery, RouteMetrics};
use crate::send::error_queue::TxTimestamps;
use crate::signature::Md5Key;
use crate::time::Duration;

/// Whether the part of a super-segment below one MSS travels with it: the four policies of
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
    /// The tail stays unless Nagle's rule with Minshall's condition holds it (Linux since 3.14).
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
/// `net.ipv4`, defaults are Linux's. A change takes effect at the next call; what an open decides
/// (options offered, first buffers, the algorithm), with the next connection.
///
/// Where a field names a range, it is what `crates/stack` accepts for the setting. The engine does
/// not check it: it accepts any value, and values outside the range may be useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// If not 0, a send buffer holds as many bytes of data as SO_SNDBUF says, as on BSD, and a
    /// writer goes on only when this many are free or all that it has left fits (BSD: `sb_lowat`).
    /// 0 is Linux's way of counting. An open socket keeps the buffer that it has.
    pub tcp_sndbuf_raw: u32,
    /// Receive buffer in bytes: minimum, default, maximum that autotuning reaches.
    pub tcp_rmem: [usize; 3],
    /// Send buffer in bytes: minimum, default, maximum that autotuning reaches.
    pub tcp_wmem: [usize; 3],
    /// Scaled windows follow the free buffer, also where that shrinks, which RFC 9293 advises
    /// against (section 3.8.6).
    pub tcp_shrink_window: bool,
    /// Grow receive buffers by what the application reads per round trip.
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
    /// Retransmissions of a SYN before their distance begins to double. They do not count against
    /// `tcp_syn_retries`.
    pub tcp_syn_linear_timeouts: u8,
    /// Retransmissions of a SYN-ACK before the open fails.
    pub tcp_synack_retries: u8,
    /// Retransmission timeouts before the path is suspected to swallow long packets, 0 to 255.
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
    /// How long an orphan stays in FIN-WAIT-2; also the length of TIME-WAIT (Linux has 60 s for
    /// both).
    pub tcp_fin_timeout: Duration,
    /// Lower bound of the retransmission timeout, 1 us to 120 s (Linux: `tcp_rto_min_us`). If it is
    /// above `tcp_rto_max`, that holds.
    pub tcp_rto_min: Duration,
    /// Upper bound of the retransmission timeout, 1 s to 120 s (Linux: `tcp_rto_max_ms`).
    pub tcp_rto_max: Duration,
    /// How long a round trip counts as the least, up to a day. BBR has its own time.
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
    /// ECN: 0 never, 1 ask and agree, 2 agree only (RFC 3168); Accurate ECN (RFC 9768): 3 ask and
    /// agree, 4 ask for RFC 3168 and agree to either, 5 agree to either only.
    pub tcp_ecn: u8,
    /// The option of Accurate ECN: 0 never, 1 where it is needed, 2 wherever it fits, 3 also if
    /// none comes back.
    pub tcp_ecn_option: u8,
    /// Options of Accurate ECN per round trip at least, 0 to 255, where `tcp_ecn_option` is 1; 0 is
    /// no minimum.
    pub tcp_ecn_option_beacon: u8,
    /// Marks reduce the window less than losses: to 80 % with NewReno and 85 % with CUBIC (RFC
    /// 8511).
    pub tcp_abe: bool,
    /// HyStart++ (RFC 9406) ends the first slow start of CUBIC, and not HyStart. New connections.
    pub tcp_hystart_plus_plus: bool,
    /// A window that the application does not use is kept for five minutes, and reduced further if
    /// that was wrong (RFC 7661), in place of what `tcp_slow_start_after_idle` says. New
    /// connections.
    pub tcp_rfc7661: bool,
    /// A SYN that is retransmitted does not ask for ECN; one that asks for Accurate ECN is tried
    /// twice. If our SYN or SYN-ACK arrived with a codepoint that no router may have written,
    /// nothing of ours is ECN-capable any more.
    pub tcp_ecn_fallback: bool,
    /// Initial congestion window in segments, 1 to 1,024 (RFC 6928; Linux: route attribute
    /// `initcwnd`).
    pub initcwnd: u32,
    /// Wire segments that a super-segment may have however slow the sender is: 1 to 65,535.
    pub tcp_min_tso_segs: u32,
    /// The allowance of a super-segment for short round trips halves with every so many
    /// microseconds, a power of two; 0 is no allowance.
    pub tcp_tso_rtt_log: u8,
    /// A super-segment that is not full waits only while it is less than this part of the window;
    /// 0 is a fixed bound.
    pub tcp_tso_win_divisor: u8,
    /// Wait a little for an ACK that lets a fuller super-segment go.
    pub tcp_tso_defer: bool,
    /// Nagle's rule holds for two round trips and a millisecond at most: an ACK that takes longer
    /// is delayed by a peer that waits for what is held. Linux has no such bound.
    pub tcp_nagle_bound: bool,
    /// Whether tails of super-segments travel with them.
    pub tcp_tso_tail: TsoTail,
    /// A small write waits for the completion of what its connection still has below it.
    pub tcp_autocorking: bool,
    /// Most bytes that a connection without pacing has below it.
    pub tcp_limit_output_bytes: u32,
    /// Pacing rate in slow start, in percent of one window per round trip: 0 to 1,000. BBR has its
    /// own rates.
    pub tcp_pacing_ss_ratio: u32,
    /// Pacing rate in congestion avoidance, in percent of one window per round trip: 0 to 1,000.
    pub tcp_pacing_ca_ratio: u32,
    /// Least MSS that is ever used, in bytes with options: 1 to 65,535.
    pub tcp_min_snd_mss: u16,
    /// Probes of the path MTU (RFC 4821): 0 never, 1 once timeouts suggest that the path swallows
    /// long packets, 2 always.
    pub tcp_mtu_probing: u8,
    /// The MSS with which such a search begins, in payload bytes: 48 to 65,495.
    pub tcp_base_mss: u16,
    /// The least MSS that it comes down to, in payload bytes: 48 to 65,495.
    pub tcp_mtu_probe_floor: u16,
    /// A search rests when its range has fewer bytes than this: 1 to 65,495.
    pub tcp_probe_threshold: u16,
    /// Time from the beginning of a search to that of the next one, if it rests by then: up to
    /// 4,000,000 s.
    pub tcp_probe_interval: Duration,
    /// How long a router's report of a smaller MTU is believed, 1 s to a day (Linux:
    /// `net.ipv4.route.mtu_expires`).
    pub mtu_expires: Duration,
    /// Least time between two ACKs for invalid segments, up to 600 s (Linux:
    /// `tcp_invalid_ratelimit`).
    pub tcp_invalid_ratelimit: Duration,
    /// Shortest delayed ACK, 1 ms to 1 s (Linux: `TCP_DELACK_MIN`).
    pub tcp_delack_min: Duration,
    /// Longest delayed ACK, 1 ms to 1 s (Linux: `TCP_DELACK_MAX`).
    pub tcp_delack_max: Duration,
    /// The ACKs that a batch of segments asks for become one at its end.
    pub tcp_backlog_ack_defer: bool,
    /// An application that answers what it receives has its answers carry the ACKs.
    pub tcp_pingpong: bool,
    /// Longest delay of compressed ACKs, up to 100 ms; zero is no compression.
    pub tcp_comp_sack_delay: Duration,
    /// How much later Linux lets the timer of compressed ACKs fire. It has no effect here.
    pub tcp_comp_sack_slack: Duration,
    /// Most ACKs that are compressed into one; 0 is no compression.
    pub tcp_comp_sack_nr: u8,
    /// Delay of compressed ACKs in percent of the round-trip time, 1 to 1,000.
    pub tcp_comp_sack_rtt_percent: u32,
    /// Unsent bytes from which on a write takes no more; a blocked writer goes on below half of it.
    pub tcp_notsent_lowat: u32,
    /// Reset on accept-queue overflow rather than drop.
    pub tcp_abort_on_overflow: bool,
    /// SYNs that one listener keeps without a completed handshake.
    pub tcp_max_syn_backlog: u32,
    /// Decisions that each new connection keeps to tell why it did what it did; 0 is off.
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
    tcp_pingpong: true,
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

/// The options of one socket. `None` means "as the stack's setting says".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// TCP_NODELAY: Nagle off.
    pub nodelay: bool,
    /// TCP_CORK: less than a segment waits, but not longer than a retransmission timeout or 200 ms,
    /// whichever is longer.
    pub cork: bool,
    /// SO_ZEROCOPY: writes may ask for a report when their buffers are free again.
    pub zerocopy: bool,
    /// Automatic corking of this socket; `None` is as `tcp_autocorking` says.
    pub autocork: Option<bool>,
    /// What happens to tails of this socket's super-segments; `None` is as `tcp_tso_tail` says.
    pub tso_tail: Option<TsoTail>,
    /// SO_MAX_PACING_RATE: bytes per second that the socket sends at most.
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
    /// TCP_RTO_MIN_US: lower bound of the retransmission timeout, 1 us to 120 s; zero or `None` is
    /// as `tcp_rto_min` says.
    pub rto_min: Option<Duration>,
    /// TCP_RTO_MAX_MS: upper bound of the retransmission timeout, also that of a SYN, 1 s to 120 s;
    /// zero or `None` is as `tcp_rto_max` says.
    pub rto_max: Option<Duration>,
    /// How long a connection of which one half is closed may stay while no data moves in either
    /// direction; then it is reset. Zero or `None` is no limit, as on Linux.
    pub half_close_timeout: Option<Duration>,
    /// Bytes of memory that the queues of the connection may bind, in both directions together:
    /// 65,536 at least; `None` is no bound but that of the buffers. The engine does not look at it;
    /// the stack tells it how much memory there is.
    pub memory_budget: Option<usize>,
    /// SO_SNDBUF as it was set; the buffer counts twice as much (see
    /// [`Connection::sndbuf`](crate::Connection::sndbuf)). Switches send autotuning off.
    pub sndbuf: Option<usize>,
    /// SO_RCVBUF as it was set, which is what the buffer holds of data. Switches receive autotuning
    /// off.
    pub rcvbuf: Option<usize>,
    /// TCP_WINDOW_CLAMP: the most bytes that the window offers, 1,152 at least. What the peer was
    /// offered before stays offered. `None` is no bound but that of the buffer.
    pub window_clamp: Option<u32>,
    /// TCP_MAXSEG: upper bound for the MSS in both directions.
    pub maxseg: Option<u16>,
    /// TCP_CONGESTION.
    pub congestion: Option<CongestionAlgorithm>,
    /// Decisions that the connection keeps to tell why it did what it did; 0 is off, `None` as
    /// `decision_log` says.
    pub decision_log: Option<u32>,
    /// TCP_NOTSENT_LOWAT in bytes; 0 is the same as `None`.
    pub notsent_lowat: Option<u32>,
    /// SO_RCVLOWAT in bytes; 0 and 1 are the same.
    pub rcvlowat: u32,
    /// SO_OOBINLINE: urgent data stays in the stream.
    pub oobinline: bool,
    /// TCP_QUICKACK as last set; `None` if never.
    pub quickack: Option<bool>,
    /// What the route to the peer says. It has no setter: the stack fills it in when a connection
    /// opens, whatever is in it before, from the routes ([`RouteMetrics`]).
    pub route: RouteMetrics,
    /// TCP_LINGER2: stay in FIN-WAIT-2.
    pub linger2: Option<Duration>,
    /// TCP_SYNCNT.
    pub syn_retries: Option<u8>,
    /// TCP_DEFER_ACCEPT, as timeouts of the SYN-ACK: until then an ACK without data does not
    /// complete the handshake. 0 is off.
    pub defer_accept: u8,
    /// TCP_SAVE_SYN, of a listener: the headers of SYNs are kept for the application that accepts.
    /// The engine does not look at it.
    pub save_syn: bool,
    /// TCP_FASTOPEN_NO_COOKIE: Fast Open without cookies.
    pub fastopen_no_cookie: bool,
    /// TCP_MD5SIG: the key that signs every segment.
    pub md5_key: Option<Md5Key>,
    /// IP_MTU_DISCOVER or IPV6_MTU_DISCOVER. The engine does not look at it.
    pub path_mtu_discovery: PathMtuDiscovery,
    /// IP_TOS or IPV6_TCLASS, without the ECN bits. The engine does not look at it.
    pub tos: u8,
    /// IP_TTL or IPV6_UNICAST_HOPS; 0 is as the stack's setting says. As `tos`.
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
    /// The initial congestion window in segments: that of the route, or else of the settings.
    pub(crate) fn initial_cwnd(&self, config: &Config) -> u32 {
        self.route.initcwnd.unwrap_or(config.initcwnd)
    }
}

/// One option to change on an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetOption {
    /// TCP_NODELAY. Setting it sends what Nagle or a cork held.
    NoDelay(bool),
    /// TCP_CORK. Clearing it sends what it held.
    Cork(bool),
    /// SO_ZEROCOPY.
    ZeroCopy(bool),
    /// Automatic corking of this socket; `None` is as the stack's setting says.
    Autocork(Option<bool>),
    /// What happens to tails of super-segments; `None` is as the stack's setting says.
    TsoTail(Option<TsoTail>),
    /// SO_MAX_PACING_RATE in bytes per second; `u64::MAX` is no limit.
    MaxPacingRate(u64),
    /// Decisions that the connection keeps to tell why it did what it did; 0 is off. What it kept
    /// before is forgotten.
    DecisionLog(u32),
    /// SO_TIMESTAMPING, as far as it asks for transmit timestamps.
    TxTimestamps(TxTimestamps),
    /// IP_TOS or IPV6_TCLASS.
    Tos(u8),
    /// IP_TTL or IPV6_UNICAST_HOPS; 0 is the stack's setting.
    Ttl(u8),
    /// TCP_SYNCNT.
    SynRetries(u8),
    /// TCP_DEFER_ACCEPT, which means nothing to a connection that exists.
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
    /// TCP_RTO_MIN_US; `None` is as the stack's setting says.
    RtoMin(Option<Duration>),
    /// TCP_RTO_MAX_MS; `None` is as the stack's setting says.
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
