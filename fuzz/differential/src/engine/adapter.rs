//! The adapter of the engine.

use std::time::Duration;

use plimsoll_buf::{Pool, Slice, Slices};
use plimsoll_tcp as tcp;

use super::{At, Engine, Figures, How, Known, News, Open, Opt, Outcome};
use super::{NONE, Packet, Segment, Setting, WriteFlags};

/// One connection.
pub struct Side {
    conn: Option<tcp::Connection>,
    time_wait: Option<tcp::time_wait::TimeWait>,
    reader_waits: bool,
    /// Does what must not matter.
    otherwise: bool,
    config: tcp::Config,
    counters: tcp::Counters,
    pool: Pool,
}

impl Default for Side {
    fn default() -> Side {
        Side {
            conn: None,
            time_wait: None,
            reader_waits: false,
            otherwise: false,
            config: tcp::Config::default(),
            counters: tcp::Counters::new(),
            pool: Pool::new(),
        }
    }
}

const ERRORS: [tcp::ConnectionError; 12] = [
    tcp::ConnectionError::Refused,
    tcp::ConnectionError::HostUnreachable,
    tcp::ConnectionError::NetworkUnreachable,
    tcp::ConnectionError::ProtocolUnreachable,
    tcp::ConnectionError::SourceRouteFailed,
    tcp::ConnectionError::HostDown,
    tcp::ConnectionError::HostIsolated,
    tcp::ConnectionError::Prohibited,
    tcp::ConnectionError::ParameterProblem,
    tcp::ConnectionError::DeviceGone,
    tcp::ConnectionError::TimedOut,
    tcp::ConnectionError::Reset,
];

fn error(index: u8) -> tcp::ConnectionError {
    ERRORS[usize::from(index) % ERRORS.len()]
}

fn micros(value: u64) -> Duration {
    Duration::from_micros(value)
}

fn number(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn tail(value: u64) -> tcp::TsoTail {
    tcp::TsoTail::ALL[value as usize % tcp::TsoTail::ALL.len()]
}

fn algorithm(value: u64) -> tcp::CongestionAlgorithm {
    match value {
        0 => tcp::CongestionAlgorithm::NewReno,
        _ => tcp::CongestionAlgorithm::Cubic,
    }
}

fn stamps(value: u64) -> tcp::TxTimestamps {
    tcp::TxTimestamps {
        sched: value & 1 != 0,
        software: value & 2 != 0,
        ack: value & 4 != 0,
        opt_id: value & 8 != 0,
    }
}

fn ecn(field: u8) -> tcp::Ecn {
    match field & 3 {
        0 => tcp::Ecn::NotEct,
        1 => tcp::Ecn::Ect1,
        2 => tcp::Ecn::Ect0,
        _ => tcp::Ecn::Ce,
    }
}

fn ecn_field(ecn: tcp::Ecn) -> u8 {
    match ecn {
        tcp::Ecn::NotEct => 0,
        tcp::Ecn::Ect1 => 1,
        tcp::Ecn::Ect0 => 2,
        tcp::Ecn::Ce => 3,
    }
}

fn kind(kind: tcp::SendKind) -> &'static str {
    match kind {
        tcp::SendKind::Syn => "syn",
        tcp::SendKind::SynAck => "syn-ack",
        tcp::SendKind::New => "new",
        tcp::SendKind::Retransmit => "retransmit",
        tcp::SendKind::WindowProbe => "window-probe",
        tcp::SendKind::Keepalive => "keepalive",
        tcp::SendKind::Ack => "ack",
        tcp::SendKind::ChallengeAck => "challenge-ack",
        tcp::SendKind::Rst => "rst",
    }
}

fn flags(flags: WriteFlags) -> tcp::WriteFlags {
    tcp::WriteFlags {
        more: flags.more,
        eor: flags.eor,
        urgent: flags.urgent,
        zerocopy: flags.zerocopy,
    }
}

fn words<T, E: std::fmt::Debug>(result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{error:?}"))
}

fn configure(config: &mut tcp::Config, setting: Setting, v: u64) {
    match setting {
        Setting::SndbufRaw => config.tcp_sndbuf_raw = v as u32,
        Setting::RmemMin => config.tcp_rmem[0] = v as usize,
        Setting::RmemDefault => config.tcp_rmem[1] = v as usize,
        Setting::RmemMax => config.tcp_rmem[2] = v as usize,
        Setting::WmemMin => config.tcp_wmem[0] = v as usize,
        Setting::WmemDefault => config.tcp_wmem[1] = v as usize,
        Setting::WmemMax => config.tcp_wmem[2] = v as usize,
        Setting::ModerateRcvbuf => config.tcp_moderate_rcvbuf = v != 0,
        Setting::Sack => config.tcp_sack = v != 0,
        Setting::Dsack => config.tcp_dsack = v != 0,
        Setting::Timestamps => config.tcp_timestamps = v != 0,
        Setting::WindowScaling => config.tcp_window_scaling = v != 0,
        Setting::SynRetries => config.tcp_syn_retries = v as u8,
        Setting::SynLinearTimeouts => config.tcp_syn_linear_timeouts = v as u8,
        Setting::SynackRetries => config.tcp_synack_retries = v as u8,
        Setting::Retries2 => config.tcp_retries2 = v as u8,
        Setting::OrphanRetries => config.tcp_orphan_retries = v as u8,
        Setting::KeepaliveTime => config.tcp_keepalive_time = micros(v),
        Setting::KeepaliveIntvl => config.tcp_keepalive_intvl = micros(v),
        Setting::KeepaliveProbes => config.tcp_keepalive_probes = v as u8,
        Setting::FinTimeout => config.tcp_fin_timeout = micros(v),
        Setting::RtoMin => config.tcp_rto_min = micros(v),
        Setting::RtoMax => config.tcp_rto_max = micros(v),
        Setting::CongestionControl => config.tcp_congestion_control = algorithm(v),
        Setting::SlowStartAfterIdle => config.tcp_slow_start_after_idle = v != 0,
        Setting::Reordering => config.tcp_reordering = v as u8,
        Setting::MaxReordering => config.tcp_max_reordering = v as u16,
        Setting::Recovery => config.tcp_recovery = v as u8,
        Setting::EarlyRetrans => config.tcp_early_retrans = v as u8,
        Setting::Frto => config.tcp_frto = v as u8,
        Setting::Ecn => config.tcp_ecn = v as u8,
        Setting::EcnFallback => config.tcp_ecn_fallback = v != 0,
        Setting::Initcwnd => config.initcwnd = v as u32,
        _ => configure_output(config, setting, v),
    }
}

fn configure_output(config: &mut tcp::Config, setting: Setting, v: u64) {
    match setting {
        Setting::MinTsoSegs => config.tcp_min_tso_segs = v as u32,
        Setting::TsoRttLog => config.tcp_tso_rtt_log = v as u8,
        Setting::TsoWinDivisor => config.tcp_tso_win_divisor = v as u8,
        Setting::TsoDefer => config.tcp_tso_defer = v != 0,
        Setting::NagleBound => config.tcp_nagle_bound = v != 0,
        Setting::TsoTail => config.tcp_tso_tail = tail(v),
        Setting::Autocorking => config.tcp_autocorking = v != 0,
        Setting::LimitOutputBytes => config.tcp_limit_output_bytes = v as u32,
        Setting::PacingSsRatio => config.tcp_pacing_ss_ratio = v as u32,
        Setting::PacingCaRatio => config.tcp_pacing_ca_ratio = v as u32,
        Setting::MinSndMss => config.tcp_min_snd_mss = v as u16,
        Setting::InvalidRatelimit => config.tcp_invalid_ratelimit = micros(v),
        Setting::DelackMin => config.tcp_delack_min = micros(v),
        Setting::DelackMax => config.tcp_delack_max = micros(v),
        Setting::BacklogAckDefer => config.tcp_backlog_ack_defer = v != 0,
        Setting::Pingpong => config.tcp_pingpong = v != 0,
        Setting::CompSackDelay => config.tcp_comp_sack_delay = micros(v),
        Setting::CompSackSlack => config.tcp_comp_sack_slack = micros(v),
        Setting::CompSackNr => config.tcp_comp_sack_nr = v as u8,
        Setting::CompSackRttPercent => config.tcp_comp_sack_rtt_percent = v as u32,
        Setting::NotsentLowat => config.tcp_notsent_lowat = v as u32,
        Setting::AbortOnOverflow => config.tcp_abort_on_overflow = v != 0,
        Setting::DecisionLog => config.decision_log = v as u32,
        Setting::Rfc1337 => config.tcp_rfc1337 = v != 0,
        _ => unreachable!("{setting:?} has no place"),
    }
}

/// Sets an option of a socket that is not open yet.
fn prepare(options: &mut tcp::Options, option: Opt, v: u64) {
    let given = Some(v).filter(|&v| v != NONE);
    match option {
        Opt::NoDelay => options.nodelay = v != 0,
        Opt::Cork => options.cork = v != 0,
        Opt::ZeroCopy => options.zerocopy = v != 0,
        Opt::Autocork => options.autocork = given.map(|v| v != 0),
        Opt::TsoTail => options.tso_tail = given.map(tail),
        Opt::MaxPacingRate => options.max_pacing_rate = given,
        Opt::DecisionLog => options.decision_log = Some(v as u32),
        Opt::TxTimestamps => {}
        Opt::Tos => options.tos = v as u8 & !3,
        Opt::Ttl => options.ttl = v as u8,
        Opt::SynRetries => options.syn_retries = Some(v as u8),
        Opt::DeferAccept => options.defer_accept = v as u8,
        Opt::MaxSeg => options.maxseg = Some(v as u16).filter(|&v| v > 0),
        Opt::KeepAlive => options.keepalive = v != 0,
        Opt::KeepIdle => options.keep_idle = Some(micros(v)),
        Opt::KeepIntvl => options.keep_intvl = Some(micros(v)),
        Opt::KeepCnt => options.keep_cnt = Some(v as u8),
        Opt::UserTimeout => options.user_timeout = Some(micros(v)),
        Opt::SndBuf => options.sndbuf = Some(v as usize),
        Opt::RcvBuf => options.rcvbuf = Some(v as usize),
        Opt::Congestion => options.congestion = Some(algorithm(v)),
        Opt::NotsentLowat => options.notsent_lowat = Some(v as u32),
        Opt::RcvLowat => options.rcvlowat = v as u32,
        Opt::OobInline => options.oobinline = v != 0,
        Opt::QuickAck => options.quickack = Some(v != 0),
        Opt::Linger2 => options.linger2 = Some(micros(v)),
        Opt::RouteQuickAck => options.route.quickack = v != 0,
        Opt::FastopenNoCookie => options.fastopen_no_cookie = v != 0,
        Opt::Md5Key => options.md5_key = tcp::Md5Key::new(b"key"),
    }
}

/// The change of an option of an open socket, if there is such a change.
fn change(option: Opt, v: u64) -> Option<tcp::SetOption> {
    let given = Some(v).filter(|&v| v != NONE);
    Some(match option {
        Opt::NoDelay => tcp::SetOption::NoDelay(v != 0),
        Opt::Cork => tcp::SetOption::Cork(v != 0),
        Opt::ZeroCopy => tcp::SetOption::ZeroCopy(v != 0),
        Opt::Autocork => tcp::SetOption::Autocork(given.map(|v| v != 0)),
        Opt::TsoTail => tcp::SetOption::TsoTail(given.map(tail)),
        Opt::MaxPacingRate => tcp::SetOption::MaxPacingRate(v),
        Opt::DecisionLog => tcp::SetOption::DecisionLog(v as u32),
        Opt::TxTimestamps => tcp::SetOption::TxTimestamps(stamps(v)),
        Opt::Tos => tcp::SetOption::Tos(v as u8),
        Opt::Ttl => tcp::SetOption::Ttl(v as u8),
        Opt::SynRetries => tcp::SetOption::SynRetries(v as u8),
        Opt::DeferAccept => tcp::SetOption::DeferAccept(v as u8),
        Opt::MaxSeg => tcp::SetOption::MaxSeg(v as u16),
        Opt::KeepAlive => tcp::SetOption::KeepAlive(v != 0),
        Opt::KeepIdle => tcp::SetOption::KeepIdle(micros(v)),
        Opt::KeepIntvl => tcp::SetOption::KeepIntvl(micros(v)),
        Opt::KeepCnt => tcp::SetOption::KeepCnt(v as u8),
        Opt::UserTimeout => tcp::SetOption::UserTimeout(micros(v)),
        Opt::SndBuf => tcp::SetOption::SndBuf(v as usize),
        Opt::RcvBuf => tcp::SetOption::RcvBuf(v as usize),
        Opt::Congestion => tcp::SetOption::Congestion(algorithm(v)),
        Opt::NotsentLowat => tcp::SetOption::NotsentLowat(v as u32),
        Opt::RcvLowat => tcp::SetOption::RcvLowat(v as u32),
        Opt::OobInline => tcp::SetOption::OobInline(v != 0),
        Opt::QuickAck => tcp::SetOption::QuickAck(v != 0),
        Opt::Linger2 => tcp::SetOption::Linger2(micros(v)),
        Opt::RouteQuickAck | Opt::FastopenNoCookie | Opt::Md5Key => return None,
    })
}

fn segment(segment: &Segment) -> tcp::Segment {
    tcp::Segment {
        repr: segment.repr.clone(),
        payload: segment.payload.clone(),
        segs: segment.segs,
        ecn: ecn(segment.ecn),
    }
}

fn packet(transmit: tcp::Transmit) -> Packet {
    Packet {
        repr: transmit.repr,
        payload: transmit.payload,
        segment_size: transmit.segment_size,
        segs: transmit.segs,
        departure: transmit.departure.as_nanos(),
        kind: kind(transmit.kind),
        serial: transmit.serial.map(|serial| serial.0),
        ecn: ecn_field(transmit.ecn),
        note: transmit.note.map(|note| note.to_string()),
    }
}

fn context<'a>(at: At, config: &'a tcp::Config, counters: &'a tcp::Counters) -> tcp::Context<'a> {
    let below = tcp::Below {
        bytes: at.below.bytes,
        completed: tcp::Serial(at.below.completed),
        completions: at.below.completions,
        takes_notes: at.below.takes_notes,
        keeps_departures: at.below.keeps_departures,
        memory: tcp::MemoryRoom { pressure: at.below.pressure, bytes: at.below.room },
    };
    tcp::Context { now: tcp::Instant::from_nanos(at.now), below, config, counters }
}

/// The place of a hold among the names. Nobody here refuses anything.
fn hold_at(hold: tcp::Hold) -> Option<usize> {
    Some(match hold {
        tcp::Hold::Autocork => 0,
        tcp::Hold::Pacing => 1,
        tcp::Hold::Cwnd => 2,
        tcp::Hold::Rwnd => 3,
        tcp::Hold::SillyWindow => 4,
        tcp::Hold::Nagle => 5,
        tcp::Hold::Cork => 6,
        tcp::Hold::TsoDefer => 7,
        tcp::Hold::SmallQueue => 8,
        _ => return None,
    })
}

/// The numbers of `TCP_INFO`, in the order of the names.
fn info_figures(info: &tcp::Info) -> [u64; 79] {
    let mut figures = [0; 79];
    figures[..32].copy_from_slice(&info_state(info));
    figures[32..61].copy_from_slice(&info_sums(info));
    for (hold, (&count, &time)) in info.holds.iter().zip(&info.hold_times).enumerate() {
        let Some(at) = hold_at(tcp::Hold::ALL[hold]) else { continue };
        figures[61 + at] = count;
        figures[70 + at] = number(time);
    }
    figures
}

fn info_state(info: &tcp::Info) -> [u64; 32] {
    [
        info.state as u64,
        info.congestion as u64,
        info.timestamps.into(),
        info.sack.into(),
        info.snd_wscale.into(),
        info.rcv_wscale.into(),
        info.window_scaling.into(),
        number(info.rto),
        number(info.ato),
        info.snd_mss.into(),
        info.rcv_mss.into(),
        info.advmss.into(),
        info.pmtu.into(),
        info.unacked.into(),
        info.sacked.into(),
        info.lost.into(),
        info.retrans.into(),
        info.total_retrans.into(),
        info.backoff.into(),
        info.retransmits.into(),
        info.probes.into(),
        number(info.rtt),
        number(info.rttvar),
        info.min_rtt.map_or(u64::MAX, number),
        info.snd_cwnd.into(),
        info.snd_ssthresh.into(),
        info.reordering.into(),
        info.reord_seen.into(),
        info.snd_wnd.into(),
        info.rcv_wnd.into(),
        info.rcv_ssthresh.into(),
        info.rcv_space.into(),
    ]
}

fn info_sums(info: &tcp::Info) -> [u64; 29] {
    [
        info.bytes_acked,
        info.bytes_received,
        info.bytes_sent,
        info.bytes_retrans,
        info.segs_out,
        info.segs_in,
        info.data_segs_out,
        info.data_segs_in,
        info.notsent_bytes.into(),
        info.delivered.into(),
        info.delivered_ce.into(),
        info.dsack_dups.into(),
        info.rcv_ooopack.into(),
        number(info.rcv_rtt),
        number(info.busy_time),
        number(info.rwnd_limited),
        number(info.sndbuf_limited),
        number(info.last_data_sent),
        number(info.last_data_recv),
        number(info.last_ack_recv),
        info.ca_state.into(),
        info.options.into(),
        info.fastopen_client_fail.into(),
        info.pacing_rate,
        info.max_pacing_rate,
        info.sndbuf as u64,
        info.rcvbuf as u64,
        info.hold.and_then(hold_at).map_or(0, |at| at as u64 + 1),
        number(info.held_for),
    ]
}

impl Side {
    /// One that does otherwise what must not matter: it writes down why packets leave where the
    /// script does not ask for that, and not where it does, and it gives memory back as soon as it
    /// may.
    pub fn otherwise() -> Side {
        Side { otherwise: true, ..Side::default() }
    }

    /// Gives back what only data needs, if nobody waits for that and no timer is due.
    fn give_back(&mut self, at: At) {
        let now = tcp::Instant::from_nanos(at.now);
        let Some(conn) = self.conn.as_mut().filter(|_| self.otherwise) else { return };
        let idle = conn.releases_at().is_some_and(|at| at <= now);
        if idle && conn.poll_timeout().is_none_or(|at| at > now) {
            conn.handle(&context(at, &self.config, &self.counters), tcp::Input::Timeout);
        }
    }

    /// Calls the connection, if there is one.
    fn with<T>(
        &mut self,
        at: At,
        none: T,
        call: impl FnOnce(&mut tcp::Connection, &tcp::Context) -> T,
    ) -> T {
        let mut at = at;
        at.below.takes_notes ^= self.otherwise;
        self.give_back(at);
        match &mut self.conn {
            Some(conn) => call(conn, &context(at, &self.config, &self.counters)),
            None => none,
        }
    }

    fn input(&mut self, at: At, input: tcp::Input) {
        self.with(at, (), |conn, cx| {
            let _ = conn.handle(cx, input);
        });
    }

    fn conn(&self) -> Option<&tcp::Connection> {
        self.conn.as_ref()
    }
}

impl Engine for Side {
    fn configure(&mut self, setting: Setting, value: u64) {
        configure(&mut self.config, setting, value);
    }

    fn open(&mut self, at: At, open: &Open, how: &How) -> bool {
        let mut options = tcp::Options::default();
        for &(option, value) in &open.options {
            prepare(&mut options, option, value);
        }
        let params = tcp::OpenParams {
            local_port: open.ports.0,
            remote_port: open.ports.1,
            iss: open.iss,
            ts_offset: open.ts_offset,
            seed: 1,
            mtu: open.mtu.into(),
            ip_header_len: open.ip_header_len,
            max_super_segment: open.max_super_segment,
            options: options.into(),
            pool: self.pool.clone(),
        };
        let cx = context(at, &self.config, &self.counters);
        let conn = match how {
            How::Connect => Some(tcp::Connection::connect(&cx, params)),
            How::ConnectDeferred => Some(tcp::Connection::connect_deferred(&cx, params)),
            How::Accept(syn) => Some(tcp::Connection::accept(&cx, params, &segment(syn))),
            How::AcceptFastOpen(syn, option, early) => {
                let answer = tcp::FastOpenAnswer { option: *option, early: *early };
                let syn = segment(syn);
                Some(tcp::Connection::accept_with(&cx, params, &syn, answer))
            }
            How::AcceptCookie(ack, index) => {
                tcp::Connection::accept_cookie(&cx, params, &segment(ack), *index)
            }
        };
        self.conn = conn;
        self.conn.is_some()
    }

    fn begin_fast_open(&mut self, at: At, known: &Known, data: &[u8]) -> usize {
        let known = tcp::FastOpen {
            option: known.option,
            data: known.data,
            mss: known.mss,
            probing: known.probing,
        };
        self.with(at, 0, |conn, cx| conn.begin_fast_open(cx, known, &[data]))
    }

    fn is_deferred(&self) -> bool {
        self.conn().is_some_and(tcp::Connection::is_deferred)
    }

    fn adopt(&mut self) {
        self.with(At::default(), (), |conn, _| conn.adopt());
    }

    fn set_write_pending(&mut self, pending: bool) {
        self.with(At::default(), (), |conn, _| conn.set_write_pending(pending));
    }

    fn report_syn_data(&mut self) {
        self.with(At::default(), (), |conn, _| conn.report_syn_data());
    }

    fn poll_fast_open(&mut self) -> Option<String> {
        self.conn.as_mut()?.poll_fast_open().map(|outcome| format!("{outcome:?}"))
    }

    fn segment(&mut self, at: At, arrived: &Segment, batched: bool) -> (String, bool) {
        if let Some(time_wait) = &mut self.time_wait {
            let cx = context(at, &self.config, &self.counters);
            let action = time_wait.handle_segment(&cx, &segment(arrived), true);
            let again = time_wait.may_connect_again(cx.now);
            let told = format!("{action:?} {:?} {again:?}", time_wait.expires());
            return (told, batched);
        }
        let batch = batched.then_some(tcp::Batch::Backlog);
        let reader = if self.reader_waits { tcp::Reader::Waiting } else { tcp::Reader::Absent };
        let arrival = tcp::Arrival { batch, reader };
        let waits = self.with(at, batched, |conn, cx| {
            let due = conn.handle(cx, tcp::Input::Segment(&mut segment(arrived), arrival));
            due == tcp::OutputDue::EndOfBatch
        });
        (String::new(), waits)
    }

    fn timeout(&mut self, at: At) {
        self.input(at, tcp::Input::Timeout);
    }

    fn path(&mut self, at: At, news: News) {
        let event = match news {
            News::Mtu(mtu) => tcp::PathEvent::Mtu(mtu),
            News::Soft(index) => tcp::PathEvent::SoftError(error(index)),
            News::Hard(index) => tcp::PathEvent::HardError(error(index)),
        };
        self.input(at, tcp::Input::Path(event));
    }

    fn completion(&mut self, at: At) {
        self.input(at, tcp::Input::Completion);
    }

    fn awaits_completion(&self) -> bool {
        self.conn().is_some_and(tcp::Connection::awaits_completion)
    }

    fn memory(&mut self, at: At) {
        self.input(at, tcp::Input::Memory);
    }

    fn awaits_memory(&self) -> bool {
        self.conn().is_some_and(tcp::Connection::awaits_memory)
    }

    fn write(&mut self, at: At, parts: &[&[u8]], ask: WriteFlags) -> Outcome<usize> {
        self.with(at, Ok(0), |conn, cx| words(conn.write_with(cx, parts, flags(ask))))
    }

    fn write_shared(&mut self, at: At, parts: &[Slice], ask: WriteFlags) -> Outcome<usize> {
        self.with(at, Ok(0), |conn, cx| words(conn.write_shared(cx, parts, flags(ask))))
    }

    fn write_corked(&mut self, data: &[u8]) -> bool {
        self.with(At::default(), false, |conn, _| conn.write_corked(data))
    }

    fn read(&mut self, at: At, out: &mut [u8]) -> Outcome<usize> {
        self.with(at, Ok(0), |conn, cx| words(conn.read(cx, out)))
    }

    fn read_shared(&mut self, at: At, max: usize) -> Outcome<Slices> {
        self.with(at, Ok(Slices::new()), |conn, cx| words(conn.read_shared(cx, max)))
    }

    fn peek(&self, out: &mut [u8]) -> Outcome<usize> {
        self.conn().map_or(Ok(0), |conn| words(conn.peek(out)))
    }

    fn read_urgent(&mut self) -> Option<u8> {
        self.conn.as_mut()?.read_urgent()
    }

    fn shutdown(&mut self, at: At) {
        self.with(at, (), |conn, cx| conn.shutdown(cx));
    }

    fn close(&mut self, at: At) {
        self.with(at, (), |conn, cx| conn.close(cx));
    }

    fn abort(&mut self, at: At) {
        self.with(at, (), |conn, cx| conn.abort(cx));
    }

    fn set_option(&mut self, at: At, option: Opt, value: u64) {
        if let Some(change) = change(option, value) {
            self.with(at, (), |conn, cx| conn.set_option(cx, change));
        }
    }

    fn take_error(&mut self) -> Option<String> {
        self.conn.as_mut()?.take_error().map(|error| format!("{error:?}"))
    }

    fn take_report(&mut self) -> Option<String> {
        self.conn.as_mut()?.take_report().map(|report| format!("{report:?}"))
    }

    fn poll_writable(&mut self) -> usize {
        match &mut self.conn {
            Some(conn) => conn.poll_writable(&self.config),
            None => 0,
        }
    }

    fn set_reader_waiting(&mut self, waiting: bool) {
        self.reader_waits = waiting;
    }

    fn wake(&mut self, at: At, readers: bool, writers: bool) {
        self.input(at, tcp::Input::Woken { readers, writers });
    }

    fn keep_time_wait(&mut self) {
        self.time_wait = self.conn.take().map(|conn| conn.time_wait());
    }

    fn poll_transmit(&mut self, at: At) -> Option<Packet> {
        self.with(at, None, |conn, cx| conn.poll_transmit(cx)).map(packet)
    }

    fn poll_event(&mut self) -> u16 {
        const EVENTS: [tcp::Events; 8] = [
            tcp::Events::CONNECTED,
            tcp::Events::READABLE,
            tcp::Events::WRITABLE,
            tcp::Events::ERROR,
            tcp::Events::TIME_WAIT,
            tcp::Events::CLOSED,
            tcp::Events::DRAINED,
            tcp::Events::REPORT,
        ];
        let Some(conn) = &mut self.conn else { return 0 };
        let events = conn.poll_event();
        let bits = EVENTS.iter().enumerate();
        bits.filter(|(_, event)| events.contains(**event)).map(|(bit, _)| 1 << bit).sum()
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.conn()?.poll_timeout().map(tcp::Instant::as_nanos)
    }

    fn figures(&self, at: At, out: &mut Figures) {
        out.fill(0);
        let Some(conn) = self.conn() else { return };
        let info = conn.info_at(&self.config, tcp::Instant::from_nanos(at.now));
        let told = info_figures(&info);
        out[..told.len()].copy_from_slice(&told);
        let urgent = conn.urgent_byte().map_or(0, |byte| u64::from(byte) + 1);
        let error = conn.error().map_or(0, |error| error as u64 + 1);
        let flush = conn.ack_cannot_wait().map_or(0, |reason| reason as u64 + 1);
        let rest: [u64; 25] = [
            conn.readable() as u64,
            conn.is_readable().into(),
            conn.read_closed().into(),
            conn.inq_hint() as u64,
            conn.rcvbuf(&self.config) as u64,
            conn.sndbuf() as u64,
            conn.mss().into(),
            conn.writable(&self.config) as u64,
            conn.send_queue_len() as u64,
            conn.unsent_len() as u64,
            conn.is_drained().into(),
            conn.memory_held() as u64,
            conn.has_error().into(),
            error,
            conn.has_report().into(),
            urgent,
            conn.awaits_urgent().into(),
            conn.at_urgent_mark().into(),
            conn.awaits_completion().into(),
            conn.awaits_memory().into(),
            conn.is_orphan().into(),
            conn.is_early().into(),
            conn.is_deferred().into(),
            flush,
            conn.is_in_flight(plimsoll_wire::SeqNum(0)).into(),
        ];
        out[told.len()..].copy_from_slice(&rest);
    }

    fn counters(&self, out: &mut Vec<u64>) {
        out.clear();
        out.extend(tcp::Counter::ALL.iter().map(|&counter| self.counters.get(counter)));
    }

    fn counter_names(&self) -> Vec<&'static str> {
        tcp::Counter::ALL.iter().map(|counter| counter.name()).collect()
    }

    fn decisions(&self) -> Vec<String> {
        let log = self.conn().map(tcp::Connection::decisions).unwrap_or_default();
        log.iter().map(ToString::to_string).collect()
    }

    fn state(&self) -> Option<&'static str> {
        if self.time_wait.is_some() {
            return Some("TIME-WAIT (kept)");
        }
        Some(match self.conn()?.state() {
            tcp::State::Closed => "CLOSED",
            tcp::State::SynSent => "SYN-SENT",
            tcp::State::SynReceived => "SYN-RECEIVED",
            tcp::State::Established => "ESTABLISHED",
            tcp::State::FinWait1 => "FIN-WAIT-1",
            tcp::State::FinWait2 => "FIN-WAIT-2",
            tcp::State::CloseWait => "CLOSE-WAIT",
            tcp::State::Closing => "CLOSING",
            tcp::State::LastAck => "LAST-ACK",
            tcp::State::TimeWait => "TIME-WAIT",
        })
    }
}
