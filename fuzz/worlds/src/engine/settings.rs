//! The settings of the stack that an input chooses, at the beginning and while connections run.

use arbitrary::Arbitrary;
use plimsoll_tcp::{Config, CongestionAlgorithm, Duration, TsoTail};

const BUFFERS: [usize; 6] = [1 << 17, 1 << 12, 1 << 14, 1 << 20, 2000, 1 << 16];

/// What is fixed when connections open.
#[derive(Arbitrary, Clone, Debug)]
pub struct Fixed {
    sack: bool,
    timestamps: bool,
    window_scaling: bool,
    newreno: bool,
    buffers: [u8; 2],
    /// 0 is Linux's way of counting, else BSD's.
    sndbuf_raw: u8,
    initcwnd: u8,
    ecn: u8,
}

impl Fixed {
    /// The settings with which a world begins.
    pub fn config(&self) -> Config {
        let buffers = self.buffers.map(|index| BUFFERS[usize::from(index) % BUFFERS.len()]);
        Config {
            tcp_sack: self.sack,
            tcp_timestamps: self.timestamps,
            tcp_window_scaling: self.window_scaling,
            // The upper values of a field that has few stand for more of them.
            tcp_congestion_control: match (self.newreno, self.ecn / 3 % 3) {
                (true, _) => CongestionAlgorithm::NewReno,
                (false, 0) => CongestionAlgorithm::Cubic,
                (false, 1) => CongestionAlgorithm::Bbr,
                (false, _) => CongestionAlgorithm::Dctcp,
            },
            tcp_wmem: [4096, buffers[0], buffers[0].max(1 << 18)],
            tcp_rmem: [2304, buffers[1], buffers[1].max(1 << 18)],
            tcp_sndbuf_raw: if self.sndbuf_raw < 200 { 0 } else { u32::from(self.sndbuf_raw) * 8 },
            initcwnd: u32::from(self.initcwnd % 32).max(1),
            tcp_ecn: self.ecn % 6,
            tcp_ecn_option: self.ecn / 8 % 4,
            tcp_abe: self.ecn >= 0x80,
            tcp_hystart_plus_plus: self.ecn / 32 % 2 == 1,
            tcp_rfc7661: self.ecn / 64 % 2 == 1,
            ..Config::default()
        }
    }
}

/// A setting to change while connections run: those of the five mechanisms and of what they rest
/// on, and those of loss recovery and acknowledgements.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Setting {
    /// `tcp_autocorking`.
    Autocorking(bool),
    /// `tcp_tso_tail`, one of four.
    TsoTail(u8),
    /// `tcp_tso_defer`.
    TsoDefer(bool),
    /// `tcp_tso_win_divisor`.
    TsoWinDivisor(u8),
    /// `tcp_tso_rtt_log`.
    TsoRttLog(u8),
    /// `tcp_min_tso_segs`.
    MinTsoSegs(u8),
    /// `tcp_nagle_bound`.
    NagleBound(bool),
    /// `tcp_limit_output_bytes` in units of 512 bytes.
    LimitOutput(u16),
    /// `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`.
    PacingRatios(u8, u8),
    /// `tcp_backlog_ack_defer`.
    BacklogAckDefer(bool),
    /// `tcp_pingpong`.
    Pingpong(u8),
    /// `tcp_comp_sack_nr`, and whether there is a delay.
    CompressedSack(u8, bool),
    /// `tcp_notsent_lowat` in bytes; 0 is no mark.
    NotsentLowat(u16),
    /// `tcp_dsack`.
    Dsack(bool),
    /// `tcp_moderate_rcvbuf`.
    ModerateRcvbuf(bool),
    /// `tcp_slow_start_after_idle`.
    SlowStartAfterIdle(bool),
    /// `tcp_recovery`, `tcp_early_retrans` and `tcp_frto`.
    Recovery(u8, u8, u8),
    /// `tcp_reordering`.
    Reordering(u8),
    /// `tcp_rfc1337`.
    Rfc1337(bool),
}

impl Setting {
    /// Changes it.
    pub fn apply(self, config: &mut Config) {
        match self {
            Setting::Autocorking(on) => config.tcp_autocorking = on,
            Setting::TsoTail(which) => {
                config.tcp_tso_tail = TsoTail::ALL[usize::from(which) % TsoTail::ALL.len()];
            }
            Setting::TsoDefer(on) => config.tcp_tso_defer = on,
            Setting::TsoWinDivisor(divisor) => config.tcp_tso_win_divisor = divisor % 8,
            Setting::TsoRttLog(log) => config.tcp_tso_rtt_log = log % 20,
            Setting::MinTsoSegs(segs) => config.tcp_min_tso_segs = u32::from(segs % 17),
            Setting::NagleBound(on) => config.tcp_nagle_bound = on,
            Setting::LimitOutput(units) => {
                config.tcp_limit_output_bytes = u32::from(units).max(1) * 512;
            }
            Setting::PacingRatios(ss, ca) => {
                config.tcp_pacing_ss_ratio = u32::from(ss) * 4;
                config.tcp_pacing_ca_ratio = u32::from(ca) * 4;
            }
            Setting::BacklogAckDefer(on) => config.tcp_backlog_ack_defer = on,
            _ => self.apply_to_receiver(config),
        }
    }

    fn apply_to_receiver(self, config: &mut Config) {
        match self {
            Setting::Pingpong(value) => config.tcp_pingpong = value % 3,
            Setting::CompressedSack(most, delays) => {
                config.tcp_comp_sack_nr = most;
                config.tcp_comp_sack_delay = Duration::from_millis(u64::from(delays));
            }
            Setting::NotsentLowat(bytes) => {
                config.tcp_notsent_lowat = if bytes == 0 { u32::MAX } else { bytes.into() };
            }
            Setting::Dsack(on) => config.tcp_dsack = on,
            Setting::ModerateRcvbuf(on) => config.tcp_moderate_rcvbuf = on,
            Setting::SlowStartAfterIdle(on) => config.tcp_slow_start_after_idle = on,
            Setting::Recovery(recovery, early, frto) => {
                config.tcp_recovery = 1 | recovery & 6;
                config.tcp_early_retrans = early % 5;
                config.tcp_frto = frto % 3;
            }
            Setting::Reordering(segs) => config.tcp_reordering = segs.max(1),
            Setting::Rfc1337(on) => config.tcp_rfc1337 = on,
            _ => {}
        }
    }
}
