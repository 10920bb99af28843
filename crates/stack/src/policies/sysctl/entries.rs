//! The list of all settings: the only place where one is named, described and given its range.
//!
//! `cargo xtask docs` makes `docs/sysctls.md` from it, and `plimsoll sysctl --explain` prints it. A
//! description is one sentence with its unit. The allowed values and the default are read from the
//! entry itself, so they cannot differ from the code.

use plimsoll_tcp::{CongestionAlgorithm, TsoTail};

use super::value::{
    MICROSECONDS, MILLISECONDS, NANOSECONDS, Outcome, SECONDS, bits, number, port_range, show_time,
    switch, three_pages, three_sizes, time,
};
use super::{Settings, SysctlError};
use crate::qdisc::Kind;
use crate::sockets::backlog::Rule as BacklogRule;
use crate::sockets::fast_open::FastOpenKeys;

/// One setting.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Its effect, in one sentence.
    pub(super) doc: &'static str,
    /// The socket option that overrides it, or empty.
    pub(super) socket: &'static str,
    /// The difference from Linux's setting of that name, or Linux's equivalent of a setting that
    /// only this stack has.
    pub(super) linux: &'static str,
    pub(super) get: fn(&Settings) -> String,
    pub(super) set: fn(&mut Settings, &str) -> Outcome,
}

/// How a value is read and written as text.
struct Access {
    get: fn(&Settings) -> String,
    set: fn(&mut Settings, &str) -> Outcome,
}

/// The names of all congestion control algorithms.
const AVAILABLE: &str = "reno cubic bbr dctcp";

/// A setting of the whole stack.
const fn entry(name: &'static str, access: Access, doc: &'static str) -> Entry {
    Entry { name, doc, socket: "", linux: "", get: access.get, set: access.set }
}

impl Entry {
    /// Sets the socket option that overrides it.
    const fn socket(mut self, what: &'static str) -> Entry {
        self.socket = what;
        self
    }

    /// How it is unlike Linux's.
    const fn linux(mut self, how: &'static str) -> Entry {
        self.linux = how;
        self
    }
}

/// The displayed key while none is set.
const NO_KEY: &str = "00000000-00000000-00000000-00000000";

/// 0 or 1.
macro_rules! switch {
    ($($field:ident).+) => {
        Access {
            get: |settings| u8::from(settings.$($field).+).to_string(),
            set: |settings, text| switch(&mut settings.$($field).+, text),
        }
    };
}

/// A whole number within a range, of something or of nothing in particular.
macro_rules! number {
    ($range:expr, $unit:literal, $($field:ident).+) => {
        Access {
            get: |settings| settings.$($field).+.to_string(),
            set: |settings, text| number(&mut settings.$($field).+, text, $range, $unit),
        }
    };
}

/// A time, as a whole number of units.
macro_rules! time {
    ($range:expr, $unit:ident, $($field:ident).+) => {
        Access {
            get: |settings| show_time(settings.$($field).+, &$unit),
            set: |settings, text| time(&mut settings.$($field).+, text, &$unit, $range),
        }
    };
}

/// Three numbers that `$parse` reads.
macro_rules! three {
    ($parse:ident, $($field:ident).+) => {
        Access {
            get: |settings| settings.$($field).+.map(|number| number.to_string()).join("\t"),
            set: |settings, text| $parse(&mut settings.$($field).+, text),
        }
    };
}

pub(super) static ENTRIES: &[Entry] = &[
    entry(
        "net.core.somaxconn",
        number!(0..=65_535, "connections", somaxconn),
        "The backlog of a new listener, in connections that wait to be accepted, is cut to this, \
         and so is its queue of Fast Open.",
    )
    .socket("the backlog of `TcpListener::bind_with`, below this"),
    entry(
        "net.core.default_qdisc",
        Access {
            get: |settings| settings.default_qdisc.name().to_owned(),
            set: |settings, text| {
                let known = Kind::parse(text, u16::MAX).ok().filter(|_| !text.contains(' '));
                settings.default_qdisc = known.ok_or("pfifo or fq")?;
                Ok(())
            },
        },
        "Queueing discipline of interfaces without an explicit one, also of open ones.",
    )
    .linux(
        "Linux has more disciplines, its default is pfifo_fast, and existing interfaces keep \
            theirs.",
    ),
    entry(
        "net.ipv4.ip_default_ttl",
        number!(1..=255, "hops", ip_default_ttl),
        "TTL of the IPv4 packets that are sent.",
    )
    .socket("IP_TTL (`SetOption::Ttl`)"),
    entry(
        "net.ipv6.conf.all.hop_limit",
        number!(1..=255, "hops", hop_limit),
        "Hop limit of the IPv6 packets that are sent.",
    )
    .socket("IPV6_UNICAST_HOPS (`SetOption::Ttl`)"),
    entry(
        "net.ipv4.ip_local_port_range",
        Access {
            get: |settings| {
                let (low, high) = settings.ip_local_port_range;
                format!("{low}\t{high}")
            },
            set: |settings, text| port_range(&mut settings.ip_local_port_range, text),
        },
        "First and last port that a connect without an explicit port may use.",
    )
    .socket("a local port (`Connector::local`)"),
    entry(
        "net.ipv4.tcp_fastopen",
        Access {
            get: |settings| settings.tcp_fastopen.to_string(),
            set: |settings, text| bits(&mut settings.tcp_fastopen, text),
        },
        "Fast Open, a sum of: 1 connect, 2 listen, 4 connect without cookies, \
         512 listen without cookies, 1024 on every new listener.",
    )
    .socket("`TcpListener::set_fast_open_queue`, `Options::fastopen_no_cookie`"),
    entry(
        "net.ipv4.tcp_fastopen_key",
        Access {
            get: |settings| match settings.tcp_fastopen_key {
                Some(keys) => keys.to_string(),
                None => NO_KEY.to_owned(),
            },
            set: |settings, text| {
                let keys = FastOpenKeys::parse(text);
                settings.tcp_fastopen_key = Some(keys.ok_or(
                    "one or two keys like \
                    00112233-44556677-8899aabb-ccddeeff, with a comma between them",
                )?);
                Ok(())
            },
        },
        "Key of Fast Open cookies, and after a comma an older one whose cookies are still valid; \
         without one, a key derived from the stack's secret.",
    ),
    entry(
        "net.ipv4.tcp_fastopen_blackhole_timeout_sec",
        Access {
            get: |settings| show_time(settings.tcp_fastopen_blackhole_timeout, &SECONDS),
            set: |settings, text| {
                time(&mut settings.tcp_fastopen_blackhole_timeout, text, &SECONDS, 0..=1 << 20)?;
                let generation = &mut settings.tcp_fastopen_blackhole_generation;
                *generation = generation.wrapping_add(1);
                Ok(())
            },
        },
        "Seconds of the first pause of Fast Open after the path dropped such a SYN; each further \
         pause is twice as long. 0 is no pause, and writing it ends one.",
    ),
    entry(
        "net.ipv4.icmp_echo_ignore_all",
        switch!(icmp_echo_ignore_all),
        "1: echo requests (ping) are not answered.",
    ),
    entry(
        "net.ipv4.icmp_ratelimit",
        time!(0..=600_000, MILLISECONDS, icmp_ratelimit),
        "Milliseconds between two ICMP errors to one host, after a burst of six, of the types in \
         net.ipv4.icmp_ratemask; 0 is no limit, and there is none over loopback. Echo replies obey \
         the limit on all hosts together only.",
    ),
    entry(
        "net.ipv4.icmp_ratemask",
        Access {
            get: |settings| settings.icmp_ratemask.to_string(),
            set: |settings, text| bits(&mut settings.icmp_ratemask, text),
        },
        "The types of ICMP messages that are limited, as a sum of 2 to the power of each: 8 is \
         destination unreachable, 1 is echo reply, also that of ICMPv6.",
    )
    .linux("Linux has net.ipv6.icmp.ratemask for ICMPv6."),
    entry(
        "net.ipv6.icmp.ratelimit",
        time!(0..=600_000, MILLISECONDS, icmp6_ratelimit),
        "As net.ipv4.icmp_ratelimit, for ICMPv6 errors.",
    ),
    entry(
        "net.ipv4.icmp_msgs_per_sec",
        number!(0..=1_000_000, "messages", icmp_msgs_per_sec),
        "The most ICMP and ICMPv6 errors, limited echo replies, and resets for stray segments per \
         second, each.",
    )
    .linux("Linux limits only ICMP messages with it."),
    entry(
        "net.ipv4.icmp_msgs_burst",
        number!(1..=1_000_000, "messages", icmp_msgs_burst),
        "The most messages in one burst, of those that net.ipv4.icmp_msgs_per_sec limits.",
    ),
    entry(
        "net.ipv4.route.mtu_expires",
        time!(1..=86_400, SECONDS, tcp.mtu_expires),
        "Seconds after which a path MTU learnt from ICMP expires; then open connections use the \
         link's MTU again.",
    ),
    entry(
        "net.ipv4.route.min_pmtu",
        number!(552..=65_535, "bytes", min_pmtu),
        "The least path MTU, in bytes, that ICMP may set on IPv4. After a message with less, \
         packets are at most this long, and routers may fragment them.",
    ),
    entry(
        "net.ipv4.ipfrag_time",
        time!(1..=600, SECONDS, ipfrag_time),
        "Seconds for which a reassembly, also of IPv6, waits for missing fragments.",
    ),
    entry(
        "plimsoll.any_address_hop",
        switch!(any_address_hop),
        "1: a stack for any address answers a packet whose TTL is 1 with time exceeded, like a \
         router in front of that host; 0: it answers like the host.",
    ),
    entry(
        "plimsoll.icmp_echo_any",
        switch!(icmp_echo_any),
        "1: a stack for any address answers echo requests (ping) to all of them.",
    ),
    entry(
        "plimsoll.tcp_sndbuf_raw",
        number!(0..=1 << 20, "bytes", tcp.tcp_sndbuf_raw),
        "If not 0, send buffers count only bytes of data, and a blocked writer continues when \
         this many bytes are free; for new sockets.",
    )
    .linux(
        "Linux has only what 0 means: overhead counts, and a writer waits for a third of the \
            buffer.",
    ),
    entry(
        "net.ipv4.tcp_rmem",
        three!(three_sizes, tcp.tcp_rmem),
        "Receive buffer of a socket in bytes: least, at first, and most that it grows to; the \
         second is for new connections, and so is the window scale, which follows from the third.",
    )
    .socket("SO_RCVBUF (`TcpStream::set_recv_buffer_size`)"),
    entry(
        "net.ipv4.tcp_wmem",
        three!(three_sizes, tcp.tcp_wmem),
        "Send buffer of a socket in bytes: least, at first, and most that it grows to; the second \
         is for new connections.",
    )
    .socket("SO_SNDBUF (`TcpStream::set_send_buffer_size`)"),
    entry(
        "net.ipv4.tcp_moderate_rcvbuf",
        switch!(tcp.tcp_moderate_rcvbuf),
        "1: receive buffers grow with the data that is read in a round trip.",
    )
    .socket("off with SO_RCVBUF (`TcpStream::set_recv_buffer_size`)"),
    entry(
        "net.ipv4.tcp_shrink_window",
        switch!(tcp.tcp_shrink_window),
        "1: a scaled window follows the free receive buffer, and shrinks when memory is short; 0: \
         an offered window is never taken back (RFC 9293, section 3.8.6).",
    ),
    entry(
        "net.ipv4.tcp_sack",
        switch!(tcp.tcp_sack),
        "1: new connections offer and accept selective acknowledgements (RFC 2018).",
    ),
    entry(
        "net.ipv4.tcp_dsack",
        switch!(tcp.tcp_dsack),
        "1: data that arrives twice is reported in DSACK blocks (RFC 2883).",
    ),
    entry(
        "net.ipv4.tcp_timestamps",
        switch!(tcp.tcp_timestamps),
        "1: new connections offer and accept timestamps (RFC 7323), with a random offset per \
         connection.",
    )
    .linux("Linux also takes 2, timestamps without an offset."),
    entry(
        "net.ipv4.tcp_window_scaling",
        switch!(tcp.tcp_window_scaling),
        "1: new connections offer and accept window scaling (RFC 7323).",
    ),
    entry(
        "net.ipv4.tcp_syn_linear_timeouts",
        number!(0..=127, "timeouts", tcp.tcp_syn_linear_timeouts),
        "Timeouts of a SYN before the interval doubles; they do not count as retries.",
    ),
    entry(
        "net.ipv4.tcp_syn_retries",
        number!(1..=127, "", tcp.tcp_syn_retries),
        "How often a SYN is retransmitted before the connect fails.",
    )
    .socket("TCP_SYNCNT (`SetOption::SynRetries`)"),
    entry(
        "net.ipv4.tcp_synack_retries",
        number!(0..=127, "", tcp.tcp_synack_retries),
        "How often a SYN-ACK is retransmitted before the half-open connection ends.",
    ),
    entry(
        "net.ipv4.tcp_retries1",
        number!(0..=255, "timeouts", tcp.tcp_retries1),
        "After the time that this many timeouts take, counted from the least retransmission \
         timeout, the path is suspected to drop long packets (net.ipv4.tcp_mtu_probing).",
    )
    .linux("Linux also looks up another route."),
    entry(
        "net.ipv4.tcp_retries2",
        number!(0..=255, "timeouts", tcp.tcp_retries2),
        "A connection without an answer ends after the time that this many timeouts take, counted \
         from the least retransmission timeout.",
    )
    .socket("TCP_USER_TIMEOUT (`TcpStream::set_user_timeout`)"),
    entry(
        "net.ipv4.tcp_orphan_retries",
        number!(0..=255, "timeouts", tcp.tcp_orphan_retries),
        "Timeouts after which a connection that its application has closed ends, as for \
         net.ipv4.tcp_retries2; 0 means 8.",
    ),
    entry(
        "net.ipv4.tcp_keepalive_time",
        time!(1..=32_767, SECONDS, tcp.tcp_keepalive_time),
        "Seconds without traffic before the first keepalive probe of a socket with SO_KEEPALIVE.",
    )
    .socket("TCP_KEEPIDLE (`TcpStream::set_keepalive`)"),
    entry(
        "net.ipv4.tcp_keepalive_intvl",
        time!(1..=32_767, SECONDS, tcp.tcp_keepalive_intvl),
        "Seconds between keepalive probes.",
    )
    .socket("TCP_KEEPINTVL (`TcpStream::set_keepalive`)"),
    entry(
        "net.ipv4.tcp_keepalive_probes",
        number!(1..=127, "probes", tcp.tcp_keepalive_probes),
        "Unanswered keepalive probes after which a connection ends.",
    )
    .socket("TCP_KEEPCNT (`TcpStream::set_keepalive`)"),
    entry(
        "net.ipv4.tcp_fin_timeout",
        time!(1..=3600, SECONDS, tcp.tcp_fin_timeout),
        "Seconds that FIN-WAIT-2 of a closed socket, and TIME-WAIT, last.",
    )
    .socket("TCP_LINGER2 (`SetOption::Linger2`), for FIN-WAIT-2")
    .linux("Linux's TIME-WAIT lasts 60 seconds whatever this says."),
    entry(
        "net.ipv4.tcp_rto_min_us",
        time!(1..=120_000_000, MICROSECONDS, tcp.tcp_rto_min),
        "Least retransmission timeout in microseconds.",
    )
    .socket("TCP_RTO_MIN_US (`TcpStream::set_rto_min`)"),
    entry(
        "net.ipv4.tcp_rto_max_ms",
        time!(1000..=120_000, MILLISECONDS, tcp.tcp_rto_max),
        "Greatest retransmission timeout in milliseconds.",
    )
    .socket("TCP_RTO_MAX_MS (`TcpStream::set_rto_max`)"),
    entry(
        "net.ipv4.tcp_min_rtt_wlen",
        time!(0..=86_400, SECONDS, tcp.tcp_min_rtt_wlen),
        "Seconds after which the least round trip of a connection is measured again.",
    ),
    entry(
        "net.ipv4.tcp_congestion_control",
        Access {
            get: |settings| settings.tcp.tcp_congestion_control.name().to_owned(),
            set: |settings, text| {
                let found = CongestionAlgorithm::from_name(text);
                settings.tcp.tcp_congestion_control = found.ok_or("reno, cubic, bbr or dctcp")?;
                Ok(())
            },
        },
        "Congestion control algorithm of new connections.",
    )
    .socket("TCP_CONGESTION (`TcpStream::set_congestion`)")
    .linux("bbr is version 3 of it; mainline Linux has version 1."),
    entry(
        "net.ipv4.tcp_available_congestion_control",
        Access {
            get: |_| AVAILABLE.to_owned(),
            set: |_, text| match text.trim() {
                AVAILABLE => Ok(()),
                _ => Err("no other value".into()),
            },
        },
        "The available congestion control algorithms; read-only.",
    ),
    entry(
        "net.ipv4.tcp_slow_start_after_idle",
        switch!(tcp.tcp_slow_start_after_idle),
        "1: a connection that sent nothing for a retransmission timeout restarts from its initial \
         window.",
    ),
    entry(
        "net.ipv4.tcp_reordering",
        number!(1..=127, "segments", tcp.tcp_reordering),
        "Duplicate ACKs, or segments acknowledged behind a hole, that count as loss until a new \
         connection has seen reordering.",
    ),
    entry(
        "net.ipv4.tcp_max_reordering",
        number!(1..=65_535, "segments", tcp.tcp_max_reordering),
        "The most segments of reordering that a connection adapts to.",
    ),
    entry(
        "net.ipv4.tcp_recovery",
        number!(0..=255, "", tcp.tcp_recovery),
        "RACK, a sum of: 1 on, 2 a reordering window that does not grow, 4 no threshold of \
         duplicates; loss detection by time cannot be turned off.",
    ),
    entry(
        "net.ipv4.tcp_early_retrans",
        number!(0..=4, "", tcp.tcp_early_retrans),
        "Tail loss probes: on with 3 and 4, else off.",
    ),
    entry(
        "net.ipv4.tcp_frto",
        number!(0..=255, "", tcp.tcp_frto),
        "Detection of spurious retransmission timeouts (F-RTO, RFC 5682): off with 0, else on.",
    ),
    entry(
        "net.ipv4.tcp_ecn",
        number!(0..=5, "", tcp.tcp_ecn),
        "Explicit congestion notification of new connections: 0 never, 1 asked for and agreed to, \
         2 agreed to if the peer asks (RFC 3168); 3 Accurate ECN (RFC 9768) asked for and agreed \
         to, 4 RFC 3168 asked for and either agreed to, 5 either agreed to.",
    )
    .linux("Linux takes 3 to 5 from 7.0 on."),
    entry(
        "net.ipv4.tcp_ecn_option",
        number!(0..=3, "", tcp.tcp_ecn_option),
        "The option of Accurate ECN: 0 never sent, 1 where it is needed, 2 wherever it fits, 3 \
         also if the peer sends none.",
    ),
    entry(
        "net.ipv4.tcp_ecn_option_beacon",
        number!(0..=255, "options", tcp.tcp_ecn_option_beacon),
        "Least number of Accurate ECN options per round trip while net.ipv4.tcp_ecn_option is 1; \
         0 is no minimum.",
    ),
    entry(
        "net.ipv4.tcp_ecn_fallback",
        switch!(tcp.tcp_ecn_fallback),
        "1: a retransmitted SYN does not ask for ECN; one that asks for Accurate ECN is tried \
         twice. If our SYN or SYN-ACK arrived with a codepoint that no router may have written, \
         the connection no longer sends ECN-capable packets.",
    ),
    entry(
        "plimsoll.tcp_abe",
        switch!(tcp.tcp_abe),
        "1: congestion marks reduce the window of reno to 80 % and that of cubic to 85 %, less \
         than a loss does (RFC 8511).",
    ),
    entry(
        "plimsoll.tcp_hystart_plus_plus",
        switch!(tcp.tcp_hystart_plus_plus),
        "1: HyStart++ (RFC 9406), instead of HyStart, ends the first slow start of new \
         connections with cubic.",
    ),
    entry(
        "plimsoll.tcp_rfc7661",
        switch!(tcp.tcp_rfc7661),
        "1: the window of a new connection whose application pauses or sends little is kept for \
         five minutes, and reduced further if a loss shows that to be wrong (RFC 7661); not with \
         bbr. 0: it halves for each retransmission timeout that passes without data, and shrinks \
         while less of it is used (RFC 2861), if net.ipv4.tcp_slow_start_after_idle is 1.",
    ),
    entry(
        "net.ipv4.tcp_min_tso_segs",
        number!(1..=65_535, "segments", tcp.tcp_min_tso_segs),
        "Wire segments that one packet may have at any sending rate.",
    ),
    entry(
        "net.ipv4.tcp_tso_rtt_log",
        number!(0..=31, "", tcp.tcp_tso_rtt_log),
        "Packets may be larger over short round trips, by an allowance that halves with every 2^n \
         microseconds of the least round trip, where n is this setting; 0 is no allowance.",
    ),
    entry(
        "net.ipv4.tcp_tso_win_divisor",
        number!(0..=255, "", tcp.tcp_tso_win_divisor),
        "A packet that the windows cut short does not wait for an ACK once 1/n of the window is \
         free, where n is this setting; 0 is more than three segments.",
    ),
    entry(
        "plimsoll.tcp_tso_defer",
        switch!(tcp.tcp_tso_defer),
        "1: a packet that the windows cut short waits, at most a millisecond, for the ACK that \
         opens them.",
    )
    .linux("Linux always does, and has no timer that ends the wait."),
    entry(
        "plimsoll.tcp_nagle_bound",
        switch!(tcp.tcp_nagle_bound),
        "1: Nagle's rule holds data for at most two of the least round trips and a millisecond, \
         so it does not wait for a delayed ACK.",
    )
    .socket("TCP_NODELAY (`TcpStream::set_nodelay`) ends the rule altogether")
    .linux("Linux has no such bound."),
    entry(
        "plimsoll.tcp_tso_tail",
        Access {
            get: |settings| settings.tcp.tcp_tso_tail.name().to_owned(),
            set: |settings, text| {
                let found = TsoTail::from_name(text);
                settings.tcp.tcp_tso_tail = found.ok_or("split, empty, trim or nagle")?;
                Ok(())
            },
        },
        "The tail of a packet that is less than a segment is cut off (split), sent along (empty), \
         kept for more data (trim), or subject to Nagle's rule (nagle).",
    )
    .socket("`TcpStream::set_tso_tail`")
    .linux("Linux is nagle, and was split before 3.14; FreeBSD is empty."),
    entry(
        "net.ipv4.tcp_autocorking",
        switch!(tcp.tcp_autocorking),
        "1: a small write waits for the completion of what its connection still has in the queue \
         or in the device.",
    )
    .socket("`TcpStream::set_autocork`")
    .linux("Linux has no option for one socket."),
    entry(
        "net.ipv4.tcp_limit_output_bytes",
        number!(1..=u32::MAX, "bytes", tcp.tcp_limit_output_bytes),
        "The most bytes that a connection without pacing has in the queue and in the device, with \
         an overhead for each packet.",
    ),
    entry(
        "net.ipv4.tcp_pacing_ss_ratio",
        number!(0..=1000, "", tcp.tcp_pacing_ss_ratio),
        "Pacing rate in slow start, in percent of a congestion window per round trip.",
    )
    .socket("SO_MAX_PACING_RATE (`TcpStream::set_max_pacing_rate`) bounds it"),
    entry(
        "net.ipv4.tcp_pacing_ca_ratio",
        number!(0..=1000, "", tcp.tcp_pacing_ca_ratio),
        "Pacing rate from half of the slow-start threshold on, in percent of a congestion window \
         per round trip.",
    )
    .socket("SO_MAX_PACING_RATE (`TcpStream::set_max_pacing_rate`) bounds it"),
    entry(
        "net.ipv4.tcp_min_snd_mss",
        number!(1..=65_535, "bytes", tcp.tcp_min_snd_mss),
        "The least MSS, in bytes with options, that is used, also if the peer or ICMP ask for \
         less; for new connections, and after the next ICMP message.",
    ),
    entry(
        "net.ipv4.tcp_mtu_probing",
        number!(0..=2, "", tcp.tcp_mtu_probing),
        "Probes of the path MTU with longer segments (RFC 4821): 0 never; 1 on a connection whose \
         timeouts suggest that the path drops long packets; 2 on all new connections, where \
         active opens start with net.ipv4.tcp_base_mss.",
    ),
    entry(
        "net.ipv4.tcp_base_mss",
        number!(48..=65_495, "bytes", tcp.tcp_base_mss),
        "Payload bytes of a segment at the start of the search for the path MTU.",
    ),
    entry(
        "net.ipv4.tcp_mtu_probe_floor",
        number!(48..=65_495, "bytes", tcp.tcp_mtu_probe_floor),
        "The least payload bytes to which timeouts reduce a segment while \
         net.ipv4.tcp_mtu_probing searches for the path MTU.",
    ),
    entry(
        "net.ipv4.tcp_probe_threshold",
        number!(1..=65_495, "bytes", tcp.tcp_probe_threshold),
        "The search for the path MTU ends when its range is this small, in bytes.",
    ),
    entry(
        "net.ipv4.tcp_probe_interval",
        time!(0..=4_000_000, SECONDS, tcp.tcp_probe_interval),
        "Seconds from the start of a search for the path MTU until the next one may start.",
    ),
    entry(
        "plimsoll.initcwnd",
        number!(1..=1024, "segments", tcp.initcwnd),
        "Initial congestion window of new connections in segments (RFC 6928).",
    )
    .linux("Linux: a constant.")
    .socket("`RouteMetrics::initcwnd` of its route"),
    entry(
        "net.ipv4.tcp_invalid_ratelimit",
        time!(0..=600_000, MILLISECONDS, tcp.tcp_invalid_ratelimit),
        "Least time in milliseconds between two ACKs of one connection that answer invalid \
         segments.",
    ),
    entry(
        "plimsoll.tcp_delack_min",
        time!(1..=1000, MILLISECONDS, tcp.tcp_delack_min),
        "Shortest time in milliseconds for which an ACK is delayed.",
    )
    .socket("TCP_QUICKACK (`SetOption::QuickAck`), for a while")
    .linux("Linux: the constant TCP_DELACK_MIN."),
    entry(
        "plimsoll.tcp_delack_max",
        time!(1..=1000, MILLISECONDS, tcp.tcp_delack_max),
        "Longest time in milliseconds for which an ACK is delayed.",
    )
    .socket("TCP_QUICKACK (`SetOption::QuickAck`), for a while")
    .linux("Linux: the constant TCP_DELACK_MAX."),
    entry(
        "net.ipv4.tcp_backlog_ack_defer",
        switch!(tcp.tcp_backlog_ack_defer),
        "1: the segments of one batch, from a device or a backlog, are acknowledged by one ACK.",
    )
    .linux("Linux does so for backlogs only."),
    entry(
        "plimsoll.tcp_pingpong",
        number!(0..=2, "", tcp.tcp_pingpong),
        "1: if the application answers what it receives, the answers carry the ACKs; 2: of \
         requests of one segment only; 0: never.",
    )
    .socket("TCP_QUICKACK (`SetOption::QuickAck`), for a while")
    .linux("Linux has no setting; 2 is nearest to it."),
    entry(
        "net.ipv4.tcp_comp_sack_delay_ns",
        time!(0..=100_000_000, NANOSECONDS, tcp.tcp_comp_sack_delay),
        "Longest time in nanoseconds for which ACKs of out-of-order data wait to be merged; 0 \
         turns waiting off.",
    ),
    entry(
        "net.ipv4.tcp_comp_sack_slack_ns",
        time!(0..=100_000_000, NANOSECONDS, tcp.tcp_comp_sack_slack),
        "No effect: kept for scripts that set it. Linux lets the timer of such ACKs fire this \
         many nanoseconds later, to share an interrupt; here timers fire when they are due.",
    ),
    entry(
        "net.ipv4.tcp_comp_sack_nr",
        number!(0..=255, "ACKs", tcp.tcp_comp_sack_nr),
        "The most ACKs of out-of-order data that are merged into one; 0 turns merging off.",
    ),
    entry(
        "net.ipv4.tcp_comp_sack_rtt_percent",
        number!(1..=1000, "", tcp.tcp_comp_sack_rtt_percent),
        "Time for which ACKs of out-of-order data wait to be merged, in percent of the round trip.",
    )
    .linux("Newer than Linux 6.18; there 33 is the default."),
    entry(
        "net.ipv4.tcp_low_latency",
        switch!(tcp_low_latency),
        "0: segments for a thread that is blocked in a read wait in a prequeue, and that thread \
         processes them; 1: the stack processes them at once.",
    )
    .linux(
        "Linux had 0 as its default until it removed the prequeue in 4.14; since then the \
            setting has no effect.",
    ),
    entry(
        "plimsoll.tcp_backlog_limit",
        Access {
            get: |settings| (settings.tcp_backlog_limit as u8).to_string(),
            set: |settings, text| {
                settings.tcp_backlog_limit = match text {
                    "1" => BacklogRule::Once,
                    "2" => BacklogRule::Twice,
                    _ => return Err("1 or 2".into()),
                };
                Ok(())
            },
        },
        "2: a socket's backlog holds at most twice its receive buffer, half its send buffer and \
         64 KiB; 1: the receive buffer counts once, and unread and processed data count too.",
    )
    .linux(
        "Linux has had the limit of 2 since 6.10 and that of 1 before; it counts unread and \
         processed data in both.",
    ),
    entry(
        "plimsoll.tcp_prequeue_pure_ack",
        switch!(prequeue_pure_ack),
        "1: an ACK without data enters an empty prequeue and wakes the reader; 0: the stack \
         processes it and wakes no thread.",
    )
    .linux("Linux behaved like 1 until 2013, and like 0 from then on."),
    entry(
        "plimsoll.gro",
        switch!(gro),
        "1: consecutive segments of one connection in a batch are merged.",
    )
    .linux("Linux: ethtool -K DEV gro."),
    entry(
        "net.core.busy_read",
        number!(0..=1_000_000, "microseconds", busy_read),
        "Microseconds for which a read that finds nothing polls the devices before it sleeps.",
    )
    .socket("SO_BUSY_POLL (`TcpStream::set_busy_poll`)"),
    entry(
        "net.ipv4.tcp_mem",
        three!(three_pages, tcp_mem),
        "Memory of the queues of all connections in pages of 4096 bytes: up to the first there is \
         no pressure, from the second on there is, the third is the limit.",
    )
    .linux(
        "The default follows the memory of the machine, as on Linux; this is the one for 16 \
            GiB.",
    ),
    entry(
        "net.ipv4.udp_mem",
        three!(three_pages, udp_mem),
        "Memory of the receive queues of all UDP sockets in pages of 4096 bytes: the third is the \
         limit, and with more datagrams are dropped. Buffers count whole, however little of one is \
         unread.",
    )
    .linux(
        "The first two have no effect; on Linux, too, only the limit matters to a socket. The \
         default follows the memory of the machine; this is the one for 16 GiB.",
    ),
    entry(
        "net.core.rmem_default",
        number!(2048..=1_073_741_824, "bytes", rmem_default),
        "Bytes that unread datagrams may cost on a new UDP socket; each datagram costs 128 bytes \
         in addition to its own.",
    )
    .socket("SO_RCVBUF (`UdpSocket::set_recv_buffer_size`)")
    .linux(
        "Linux counts the size of its buffers, which is several times as much for small \
            datagrams.",
    ),
    entry(
        "net.core.rmem_max",
        number!(2048..=1_073_741_824, "bytes", rmem_max),
        "The most that SO_RCVBUF of a UDP socket is set to, in bytes.",
    )
    .linux("Linux's default is 212992, and for TCP sockets it is a limit as well."),
    entry(
        "net.core.wmem_default",
        number!(2048..=1_073_741_824, "bytes", wmem_default),
        "Bytes that unsent datagrams may cost on a new UDP socket; each datagram costs 128 bytes \
         in addition to its own.",
    )
    .socket("SO_SNDBUF (`UdpSocket::set_send_buffer_size`)"),
    entry(
        "net.core.wmem_max",
        number!(2048..=1_073_741_824, "bytes", wmem_max),
        "The most that SO_SNDBUF of a UDP socket is set to, in bytes.",
    )
    .linux("Linux's default is 212992, and for TCP sockets it is a limit as well."),
    entry(
        "net.ipv4.tcp_notsent_lowat",
        number!(1..=u32::MAX, "bytes", tcp.tcp_notsent_lowat),
        "A write accepts no data while this many bytes are unsent, and a blocked writer continues \
         below half of it.",
    )
    .socket("TCP_NOTSENT_LOWAT (`TcpStream::set_notsent_lowat`)"),
    entry(
        "net.ipv4.tcp_abort_on_overflow",
        switch!(tcp.tcp_abort_on_overflow),
        "1: a handshake that ends while the accept queue is full is reset; 0: its last ACK is \
         dropped.",
    ),
    entry(
        "net.ipv4.tcp_max_syn_backlog",
        number!(1..=1_000_000, "connections", tcp.tcp_max_syn_backlog),
        "Without SYN cookies, the most half-open connections of a listener; the last quarter is \
         not used.",
    ),
    entry(
        "net.ipv4.tcp_syncookies",
        number!(0..=2, "", tcp_syncookies),
        "SYN cookies: 0 never, 1 while the SYN queue of a listener is full, 2 always.",
    ),
    entry(
        "plimsoll.decision_log",
        number!(0..=65_536, "decisions", tcp.decision_log),
        "Decisions that each new connection logs, for `plimsoll ss --why`; 0 is none.",
    )
    .socket("`SetOption::DecisionLog`"),
    entry(
        "net.ipv4.tcp_rfc1337",
        switch!(tcp.tcp_rfc1337),
        "1: resets do not end TIME-WAIT (RFC 1337).",
    ),
    entry(
        "plimsoll.max_connections",
        number!(1..=4_194_304, "connections", max_connections),
        "The most connections in any state except TIME-WAIT; a further connect fails, and a \
         further SYN is refused, also when a gate accepts it.",
    ),
    entry(
        "plimsoll.max_half_open",
        number!(1..=4_194_304, "connections", max_half_open),
        "Connections of all listeners whose handshake is not complete, and attempts that wait at \
         gates; a further SYN is answered with a cookie where those are on, and refused otherwise. \
         Connections that a gate has accepted, or that Fast Open has opened early, do not count.",
    ),
    entry(
        "net.ipv4.tcp_max_orphans",
        number!(0..=4_000_000, "connections", tcp_max_orphans),
        "The most connections that still exist after their application has closed them; one more \
         is reset.",
    ),
    entry(
        "net.ipv4.tcp_max_tw_buckets",
        number!(0..=4_000_000, "connections", tcp_max_tw_buckets),
        "The most connections in TIME-WAIT; one more ends at once.",
    ),
    entry(
        "net.ipv4.tcp_tw_reuse",
        number!(0..=2, "", tcp_tw_reuse),
        "Whether a connect may take the place of a connection in TIME-WAIT after a second (RFC \
         6191): 0 never, 1 always, 2 on loopback addresses.",
    )
    .linux("Linux's default is 2; the link in memory is such a loopback, without the addresses."),
];

/// The entry with the name `name`.
pub(super) fn find(name: &str) -> Result<&'static Entry, SysctlError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let last = name.rsplit('.').next().unwrap_or(name);
        let alike = |entry: &&Entry| entry.name.rsplit('.').next() == Some(last);
        let suggestion = ENTRIES.iter().find(alike).map(|entry| entry.name);
        SysctlError::Unknown { name: name.to_owned(), suggestion }
    })
}
