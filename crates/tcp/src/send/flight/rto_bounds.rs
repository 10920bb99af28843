//! The bounds of the retransmission timeout: those of the settings, or of the socket
//! (TCP_RTO_MIN_US, TCP_RTO_MAX_MS) and its route (`rto_min`).

use crate::config::{Config, Options};
use crate::time::{Duration, Nanos};

/// The bounds that hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtoBounds {
    pub(crate) min: Nanos,
    pub(crate) max: Nanos,
}

impl RtoBounds {
    /// Those of the settings.
    #[cfg(test)]
    pub(super) fn of_settings(config: &Config) -> RtoBounds {
        RtoBounds { min: Nanos::from(config.tcp_rto_min), max: Nanos::from(config.tcp_rto_max) }
    }
}

/// The bounds set for a socket, in microseconds; 0 selects the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnRtoBounds {
    min: u32,
    max: u32,
}

impl OwnRtoBounds {
    pub(crate) const NONE: OwnRtoBounds = OwnRtoBounds { min: 0, max: 0 };

    /// Those of a socket. The route's lower bound takes precedence over the socket's, as on Linux.
    pub(crate) fn of(options: &Options) -> OwnRtoBounds {
        OwnRtoBounds::new(options.route.rto_min.or(options.rto_min), options.rto_max)
    }

    /// `None`, and zero, select the settings.
    pub(crate) fn new(min: Option<Duration>, max: Option<Duration>) -> OwnRtoBounds {
        let micros = |time: Option<Duration>| {
            let nanos = time.map_or(0, |time| Nanos::from(time).as_nanos());
            u32::try_from(nanos.div_ceil(1000)).unwrap_or(u32::MAX)
        };
        OwnRtoBounds { min: micros(min), max: micros(max) }
    }

    pub(super) fn or_settings(self, config: &Config) -> RtoBounds {
        let or = |micros: u32, setting: Duration| match micros {
            0 => setting.into(),
            micros => Nanos::from_micros(micros.into()),
        };
        RtoBounds { min: or(self.min, config.tcp_rto_min), max: or(self.max, config.tcp_rto_max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::RouteMetrics;

    #[test]
    fn a_route_goes_before_the_socket_and_that_before_the_settings() {
        let config = Config::default();
        let least = |options: &Options| OwnRtoBounds::of(options).or_settings(&config).min;
        let millis = |millis| Some(Duration::from_millis(millis));
        let socket = Options::default().rto_min(millis(100));
        assert_eq!(least(&Options::default()), Nanos::from(config.tcp_rto_min));
        assert_eq!(Some(least(&socket).to_duration()), millis(100));
        let route = RouteMetrics::default().rto_min(millis(50));
        assert_eq!(Some(least(&Options { route, ..socket }).to_duration()), millis(50));
    }
}
