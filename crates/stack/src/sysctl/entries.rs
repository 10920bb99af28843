//! The list of all settings.

use plimsoll_tcp::{CongestionAlgorithm, Duration, TsoTail};

use super::value::{
    Outcome, bits, number, port_range, show_time, switch, three_pages, three_sizes, time,
};
use super::{Settings, SysctlError};
use crate::fast_open::FastOpenKeys;
use crate::qdisc::Kind;

/// One setting.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) get: fn(&Settings) -> String,
    pub(super) set: fn(&mut Settings, &str) -> Outcome,
}

/// What the key is shown as while none is set.
const NO_KEY: &str = "00000000-00000000-00000000-00000000";

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);
const MICRO: Duration = Duration::from_micros(1);

/// The entry `$name` for the field `$field`, which `$parse` reads and `$show` prints.
macro_rules! entry {
    (switch $name:literal, $($field:ident).+, $doc:literal) => {
        Entry {
            name: $name,
            doc: $doc,
            get: |settings| u8::from(settings.$($field).+).to_string(),
            set: |settings, text| switch(&mut settings.$($field).+, text),
        }
    };
    (number $range:expr, $name:literal, $($field:ident).+, $doc:literal) => {
        Entry {
            name: $name,
            doc: $doc,
            get: |settings| settings.$($field).+.to_string(),
            set: |settings, text| number(&mut settings.$($field).+, text, $range),
        }
    };
    (time $unit:ident $range:expr, $name:literal, $($field:ident).+, $doc:literal) => {
        Entry {
            name: $name,
            doc: $doc,
            get: |settings| show_time(settings.$($field).+, $unit),
            set: |settings, text| time(&mut settings.$($field).+, text, $unit, $range),
        }
    };
    (sizes $name:literal, $($field:ident).+, $doc:literal) => {
        Entry {
            name: $name,
            doc: $doc,
            get: |settings| settings.$($field).+.map(|size| size.to_string()).join("\t"),
            set: |settings, text| three_sizes(&mut settings.$($field).+, text),
        }
    };
    (pages $name:literal, $($field:ident).+, $doc:literal) => {
        Entry {
            name: $name,
            doc: $doc,
            get: |settings| settings.$($field).+.map(|pages| pages.to_string()).join("\t"),
            set: |settings, text| three_pages(&mut settings.$($field).+, text),
        }
    };
}

pub(super) static ENTRIES: &[Entry] = &[
    entry!(number 0..=65_535, "net.core.somaxconn", somaxconn, "Upper bound of a listener's backlog."),
    Entry {
        name: "net.core.default_qdisc",
        doc: "Queueing discipline of interfaces that were given no other: pfifo or fq.",
        get: |settings| settings.default_qdisc.name().to_owned(),
        set: |settings, text| {
            let known = Kind::parse(text, u16::MAX).ok().filter(|_| !text.contains(' '));
            settings.default_qdisc = known.ok_or("pfifo or fq")?;
            Ok(())
        },
    },
    entry!(number 1..=255, "net.ipv4.ip_default_ttl", ip_default_ttl, "TTL of IPv4 packets."),
    entry!(number 1..=255, "net.ipv6.conf.all.hop_limit", hop_limit, "Hop limit of IPv6 packets."),
    Entry {
        name: "net.ipv4.ip_local_port_range",
        doc: "First and last port that connections take by themselves.",
        get: |settings| {
            let (low, high) = settings.ip_local_port_range;
            format!("{low}\t{high}")
        },
        set: |settings, text| port_range(&mut settings.ip_local_port_range, text),
    },
    Entry {
        name: "net.ipv4.tcp_fastopen",
        doc: "Fast Open, a sum of: 1 connect, 2 listen, 4 connect without cookies, 512 listen without cookies, 1024 on every listener.",
        get: |settings| settings.tcp_fastopen.to_string(),
        set: |settings, text| bits(&mut settings.tcp_fastopen, text),
    },
    Entry {
        name: "net.ipv4.tcp_fastopen_key",
        doc: "Key of Fast Open cookies, and after a comma an older one whose cookies are still good.",
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
    Entry {
        name: "net.ipv4.tcp_fastopen_blackhole_timeout_sec",
        doc: "First pause of Fast Open after something swallowed it, in seconds; 0 is none.",
        get: |settings| show_time(settings.tcp_fastopen_blackhole_timeout, SECOND),
        set: |settings, text| {
            time(&mut settings.tcp_fastopen_blackhole_timeout, text, SECOND, 0..=1 << 20)?;
            let generation = &mut settings.tcp_fastopen_blackhole_generation;
            *generation = generation.wrapping_add(1);
            Ok(())
        },
    },
    entry!(switch "net.ipv4.icmp_echo_ignore_all", icmp_echo_ignore_all, "Answer no echo requests."),
    entry!(number 0..=1_000_000, "net.ipv4.icmp_msgs_per_sec", icmp_msgs_per_sec, "ICMP errors and stray resets per second, each."),
    entry!(number 1..=1_000_000, "net.ipv4.icmp_msgs_burst", icmp_msgs_burst, "How many of them may come in one burst."),
    entry!(time SECOND 1..=86_400, "net.ipv4.route.mtu_expires", mtu_expires, "Seconds that a learnt path MTU is believed."),
    entry!(number 552..=65_535, "net.ipv4.route.min_pmtu", min_pmtu, "Least path MTU that is believed for IPv4."),
    entry!(time SECOND 1..=600, "net.ipv4.ipfrag_time", ipfrag_time, "Seconds that a reassembly waits for its fragments."),
    entry!(number 0..=1 << 20, "plimsoll.tcp_sndbuf_raw", tcp.tcp_sndbuf_raw, "Not 0: SO_SNDBUF counts data, writers wait for so much."),
    entry!(sizes "net.ipv4.tcp_rmem", tcp.tcp_rmem, "Receive buffer in bytes: least, default, most."),
    entry!(sizes "net.ipv4.tcp_wmem", tcp.tcp_wmem, "Send buffer in bytes: least, default, most."),
    entry!(switch "net.ipv4.tcp_moderate_rcvbuf", tcp.tcp_moderate_rcvbuf, "Grow receive buffers by what is read per round trip."),
    entry!(switch "net.ipv4.tcp_sack", tcp.tcp_sack, "Offer and accept SACK."),
    entry!(switch "net.ipv4.tcp_dsack", tcp.tcp_dsack, "Send DSACK blocks."),
    entry!(switch "net.ipv4.tcp_timestamps", tcp.tcp_timestamps, "Offer and accept timestamps."),
    entry!(switch "net.ipv4.tcp_window_scaling", tcp.tcp_window_scaling, "Offer and accept window scaling."),
    entry!(number 0..=127, "net.ipv4.tcp_syn_linear_timeouts", tcp.tcp_syn_linear_timeouts, "SYN timeouts that do not double."),
    entry!(number 1..=127, "net.ipv4.tcp_syn_retries", tcp.tcp_syn_retries, "Retransmissions of a SYN before the open fails."),
    entry!(number 0..=127, "net.ipv4.tcp_synack_retries", tcp.tcp_synack_retries, "Retransmissions of a SYN-ACK before the open fails."),
    entry!(number 0..=255, "net.ipv4.tcp_retries2", tcp.tcp_retries2, "Timeouts before a connection is given up."),
    entry!(number 0..=255, "net.ipv4.tcp_orphan_retries", tcp.tcp_orphan_retries, "The same for an orphan; 0 means 8."),
    entry!(time SECOND 1..=32_767, "net.ipv4.tcp_keepalive_time", tcp.tcp_keepalive_time, "Idle seconds before the first keepalive probe."),
    entry!(time SECOND 1..=32_767, "net.ipv4.tcp_keepalive_intvl", tcp.tcp_keepalive_intvl, "Seconds between keepalive probes."),
    entry!(number 1..=127, "net.ipv4.tcp_keepalive_probes", tcp.tcp_keepalive_probes, "Unanswered probes before a connection is given up."),
    entry!(time SECOND 1..=3600, "net.ipv4.tcp_fin_timeout", tcp.tcp_fin_timeout, "Seconds of an orphan's FIN-WAIT-2, and of TIME-WAIT."),
    entry!(time MICRO 1..=120_000_000, "net.ipv4.tcp_rto_min_us", tcp.tcp_rto_min, "Least retransmission timeout, in microseconds."),
    entry!(time MILLI 1000..=120_000, "net.ipv4.tcp_rto_max_ms", tcp.tcp_rto_max, "Greatest retransmission timeout, in milliseconds."),
    Entry {
        name: "net.ipv4.tcp_congestion_control",
        doc: "The congestion control algorithm of new connections.",
        get: |settings| settings.tcp.tcp_congestion_control.name().to_owned(),
        set: |settings, text| {
            let found = CongestionAlgorithm::from_name(text);
            settings.tcp.tcp_congestion_control = found.ok_or("reno or cubic")?;
            Ok(())
        },
    },
    entry!(switch "net.ipv4.tcp_slow_start_after_idle", tcp.tcp_slow_start_after_idle, "Begin again from the initial window after idling."),
    entry!(number 1..=127, "net.ipv4.tcp_reordering", tcp.tcp_reordering, "Duplicate ACKs that mean loss."),
    entry!(number 1..=65_535, "net.ipv4.tcp_max_reordering", tcp.tcp_max_reordering, "Bound of the reordering that a connection learns."),
    entry!(number 0..=255, "net.ipv4.tcp_recovery", tcp.tcp_recovery, "RACK: 1 on, 2 fixed reordering window, 4 no duplicate threshold."),
    entry!(number 0..=4, "net.ipv4.tcp_early_retrans", tcp.tcp_early_retrans, "Tail loss probes: 3 and 4 on, else off."),
    entry!(number 0..=255, "net.ipv4.tcp_frto", tcp.tcp_frto, "F-RTO after a timeout; 0 is off."),
    entry!(number 0..=2, "net.ipv4.tcp_ecn", tcp.tcp_ecn, "ECN: 0 never, 1 ask and agree, 2 agree only."),
    entry!(switch "net.ipv4.tcp_ecn_fallback", tcp.tcp_ecn_fallback, "A SYN sent again does not ask for ECN."),
    entry!(number 1..=65_535, "net.ipv4.tcp_min_tso_segs", tcp.tcp_min_tso_segs, "Wire segments that a packet of a slow sender may have."),
    entry!(number 0..=31, "net.ipv4.tcp_tso_rtt_log", tcp.tcp_tso_rtt_log, "Super-segments halve with every 2^n us of round trip."),
    entry!(number 0..=255, "net.ipv4.tcp_tso_win_divisor", tcp.tcp_tso_win_divisor, "A packet waits for 1/n of the window."),
    entry!(switch "plimsoll.tcp_nagle_bound", tcp.tcp_nagle_bound, "Nagle's rule does not wait for an ACK that the peer delays."),
    entry!(switch "plimsoll.tcp_tso_defer", tcp.tcp_tso_defer, "Wait a little for a fuller super-segment."),
    Entry {
        name: "plimsoll.tcp_tso_tail",
        doc: "Tails of super-segments: split, empty, trim or nagle.",
        get: |settings| settings.tcp.tcp_tso_tail.name().to_owned(),
        set: |settings, text| {
            let found = TsoTail::from_name(text);
            settings.tcp.tcp_tso_tail = found.ok_or("split, empty, trim or nagle")?;
            Ok(())
        },
    },
    entry!(switch "net.ipv4.tcp_autocorking", tcp.tcp_autocorking, "A small write waits for a completion."),
    entry!(number 1..=u32::MAX, "net.ipv4.tcp_limit_output_bytes", tcp.tcp_limit_output_bytes, "Most bytes of a connection below it."),
    entry!(number 0..=1000, "net.ipv4.tcp_pacing_ss_ratio", tcp.tcp_pacing_ss_ratio, "Pacing in slow start, percent of a window per RTT."),
    entry!(number 0..=1000, "net.ipv4.tcp_pacing_ca_ratio", tcp.tcp_pacing_ca_ratio, "The same in congestion avoidance."),
    entry!(number 1..=65_535, "net.ipv4.tcp_min_snd_mss", tcp.tcp_min_snd_mss, "Least MSS that is ever used."),
    entry!(number 1..=1024, "plimsoll.initcwnd", tcp.initcwnd, "Initial congestion window in segments (Linux: a route's initcwnd)."),
    entry!(time MILLI 0..=600_000, "net.ipv4.tcp_invalid_ratelimit", tcp.tcp_invalid_ratelimit, "Least time between challenge ACKs (ms)."),
    entry!(time MILLI 1..=1000, "plimsoll.tcp_delack_min", tcp.tcp_delack_min, "Shortest delayed ACK, in milliseconds."),
    entry!(time MILLI 1..=1000, "plimsoll.tcp_delack_max", tcp.tcp_delack_max, "Longest delayed ACK, in milliseconds."),
    entry!(switch "net.ipv4.tcp_backlog_ack_defer", tcp.tcp_backlog_ack_defer, "The ACKs that a batch asks for become one."),
    entry!(switch "plimsoll.tcp_pingpong", tcp.tcp_pingpong, "Answers of an application carry the ACKs."),
    entry!(time NANO 0..=100_000_000, "net.ipv4.tcp_comp_sack_delay_ns", tcp.tcp_comp_sack_delay, "Longest delay of compressed ACKs."),
    entry!(time NANO 0..=100_000_000, "net.ipv4.tcp_comp_sack_slack_ns", tcp.tcp_comp_sack_slack, "Slack of compressed ACKs."),
    entry!(number 0..=255, "net.ipv4.tcp_comp_sack_nr", tcp.tcp_comp_sack_nr, "Most ACKs compressed into one."),
    entry!(number 1..=1000, "net.ipv4.tcp_comp_sack_rtt_percent", tcp.tcp_comp_sack_rtt_percent, "Their delay in percent of the RTT."),
    entry!(switch "net.ipv4.tcp_low_latency", tcp_low_latency, "0: who waits in a read works on what arrives (prequeue)."),
    entry!(switch "plimsoll.tcp_prequeue_pure_ack", prequeue_pure_ack, "Pure ACKs enter an empty prequeue and wake its reader."),
    entry!(switch "plimsoll.gro", gro, "Coalesce segments that arrive one behind the other."),
    entry!(number 0..=1_000_000, "net.core.busy_read", busy_read, "Microseconds that a read spins before it sleeps."),
    entry!(pages "net.ipv4.tcp_mem", tcp_mem, "Memory of all connections in pages: no pressure, pressure, limit."),
    entry!(number 1..=u32::MAX, "net.ipv4.tcp_notsent_lowat", tcp.tcp_notsent_lowat, "Unsent bytes above which a socket is not writable."),
    entry!(switch "net.ipv4.tcp_abort_on_overflow", tcp.tcp_abort_on_overflow, "Reset on accept-queue overflow rather than drop."),
    entry!(number 1..=1_000_000, "net.ipv4.tcp_max_syn_backlog", tcp.tcp_max_syn_backlog, "Half-open without SYN cookies."),
    entry!(number 0..=2, "net.ipv4.tcp_syncookies", tcp_syncookies, "SYN cookies: 0 never, 1 while the SYN queue is full, 2 always."),
    entry!(number 0..=65_536, "plimsoll.decision_log", tcp.decision_log, "Decisions kept per new connection, for `ss --why`; 0 is off."),
    entry!(switch "net.ipv4.tcp_rfc1337", tcp.tcp_rfc1337, "Ignore resets in TIME-WAIT."),
    entry!(number 0..=4_000_000, "net.ipv4.tcp_max_orphans", tcp_max_orphans, "Connections without an application; one more is reset."),
    entry!(number 0..=4_000_000, "net.ipv4.tcp_max_tw_buckets", tcp_max_tw_buckets, "Entries in TIME-WAIT; one more ends at once."),
    entry!(number 0..=2, "net.ipv4.tcp_tw_reuse", tcp_tw_reuse, "Connects may reuse TIME-WAIT: 0 never, 1 always, 2 on loopback."),
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
