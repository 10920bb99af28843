//! The configuration of a program, and its meaning for the stack.
//!
//! The fields and their defaults are those of ipstack, whose TCP has one timeout, one size or one
//! number where Plimsoll measures or grows. So a field of [`TcpConfig`] with its default, except
//! `timeout` and `options`, leaves the decision to the stack; another value is taken as a bound.
//! [`IpStackConfig::plan`] refuses values without a counterpart.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{Options, UdpFlowConfig};

use crate::error::{IpStackError, Result};

/// The least MTU that [`IpStackConfig::mtu`] takes (RFC 8200, section 5).
const MIN_MTU: u16 = 1280;

/// The configuration of an [`IpStack`](crate::IpStack). The first
/// [`accept`](crate::IpStack::accept) returns an error if a value cannot be honoured, since no
/// earlier call can fail.
///
/// ```
/// use std::time::Duration;
/// let mut config = ipstack::IpStackConfig::default();
/// config.mtu(1500)?.udp_timeout(Duration::from_secs(10)).packet_information(false);
/// assert_eq!(config.mtu, 1500);
/// assert!(config.mtu(576).is_err());
/// # Ok::<(), ipstack::IpStackError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IpStackConfig {
    /// The longest IP packet of the device in bytes; 1280 unless set.
    pub mtu: u16,
    /// Every packet of the device has four bytes before it, of which the last two name the IP
    /// version, as a TUN device without `IFF_NO_PI` gives them. Off unless set; only on Unix.
    pub packet_information: bool,
    /// The settings of TCP.
    pub tcp_config: Arc<TcpConfig>,
    /// After how long without a datagram either way a UDP stream ends; 30 s unless set. One to port
    /// 53 ends after 10 s at most once it was answered.
    pub udp_timeout: Duration,
}

impl Default for IpStackConfig {
    fn default() -> IpStackConfig {
        IpStackConfig {
            mtu: MIN_MTU,
            packet_information: false,
            tcp_config: Arc::default(),
            udp_timeout: Duration::from_secs(30),
        }
    }
}

impl IpStackConfig {
    /// Sets [`tcp_config`](Self#structfield.tcp_config).
    pub fn with_tcp_config(&mut self, config: TcpConfig) -> &mut Self {
        self.tcp_config = Arc::new(config);
        self
    }

    /// Sets [`udp_timeout`](Self#structfield.udp_timeout).
    pub fn udp_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.udp_timeout = timeout;
        self
    }

    /// Sets [`mtu`](Self#structfield.mtu), in bytes.
    ///
    /// # Errors
    /// [`IpStackError::InvalidMtuSize`] below 1280.
    pub fn mtu(&mut self, mtu: u16) -> Result<&mut Self, IpStackError> {
        if mtu < MIN_MTU {
            return Err(IpStackError::InvalidMtuSize(mtu));
        }
        Ok(self.mtu_unchecked(mtu))
    }

    /// Sets [`mtu`](Self#structfield.mtu), in bytes, also below 1280. Below 576 there is no TCP,
    /// and [`accept`](crate::IpStack::accept) says so.
    pub fn mtu_unchecked(&mut self, mtu: u16) -> &mut Self {
        self.mtu = mtu;
        self
    }

    /// Sets [`packet_information`](Self#structfield.packet_information).
    pub fn packet_information(&mut self, packet_information: bool) -> &mut Self {
        self.packet_information = packet_information;
        self
    }

    /// The stack's settings, or the field that cannot be honoured, and why.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let tcp = &*self.tcp_config;
        if tcp.timeout.is_zero() {
            return Err("tcp_config.timeout is 0: every connection would end at once".to_owned());
        }
        Ok(Plan {
            mtu: self.mtu,
            packet_information: self.packet_information && cfg!(unix),
            options: tcp.socket_options()?,
            sysctls: tcp.sysctls()?,
            tcp_timeout: tcp.timeout,
            udp: UdpFlowConfig::default().idle_timeout(self.udp_timeout),
        })
    }
}

/// The TCP settings of an [`IpStack`](crate::IpStack).
///
/// `timeout` and `options` apply as they are. Of the other fields, the default value lets the stack
/// decide; any other value is a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpConfig {
    /// How often the FIN of a dropped stream is retransmitted before the stack forgets it, 1 to 255
    /// (`tcp_orphan_retries`).
    pub last_ack_max_retries: usize,
    /// The time between those. It follows the measured round-trip time: only the default is taken.
    pub last_ack_timeout: Duration,
    /// How long a half-closed connection lives while no data moves.
    pub close_wait_timeout: Duration,
    /// After how long without data either way a stream that is being read ends with `TimedOut`, and
    /// its peer is reset; 60 s unless set.
    pub timeout: Duration,
    /// How long TIME-WAIT lasts, in whole seconds, 1 to 3600 (`tcp_fin_timeout`).
    pub two_msl: Duration,
    /// Bytes that were written and are not acknowledged, at most, as SO_SNDBUF.
    pub max_unacked_bytes: u32,
    /// Bytes that arrived and were not read, at most, as SO_RCVBUF.
    pub read_buffer_size: usize,
    /// Duplicate ACKs that mean loss, 1 to 127 (`tcp_reordering`).
    pub max_count_for_dup_ack: usize,
    /// The least retransmission timeout, 1 µs to 120 s (`tcp_rto_min_us`).
    pub rto: Duration,
    /// Retransmission timeouts before a connection is given up, 1 to 255 (`tcp_retries2`).
    pub max_retransmit_count: usize,
    /// Options of the SYN-ACK.
    pub options: Option<Vec<TcpOptions>>,
}

/// An option of the SYN-ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOptions {
    /// The longest segment, in bytes of data, that goes either way; at least 1. The MTU bounds it
    /// as well.
    MaximumSegmentSize(u16),
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            last_ack_max_retries: 3,
            last_ack_timeout: Duration::from_millis(500),
            close_wait_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            two_msl: Duration::from_secs(2),
            max_unacked_bytes: 16 * 1024,
            read_buffer_size: 16 * 1024,
            max_count_for_dup_ack: 3,
            rto: Duration::from_secs(1),
            max_retransmit_count: 3,
            options: None,
        }
    }
}

impl TcpConfig {
    /// The options of every connection.
    fn socket_options(&self) -> Result<Options, String> {
        let default = TcpConfig::default();
        let mut options = Options::default();
        if self.max_unacked_bytes != default.max_unacked_bytes {
            let bytes = usize::try_from(self.max_unacked_bytes).unwrap_or(usize::MAX);
            options.sndbuf = Some(at_least_one("tcp_config.max_unacked_bytes", bytes)?);
        }
        if self.read_buffer_size != default.read_buffer_size {
            let bytes = at_least_one("tcp_config.read_buffer_size", self.read_buffer_size)?;
            options.rcvbuf = Some(bytes);
        }
        if self.close_wait_timeout != default.close_wait_timeout {
            if self.close_wait_timeout.is_zero() {
                let why = "is 0: every half-closed connection would end at once";
                return Err(format!("tcp_config.close_wait_timeout {why}"));
            }
            options.half_close_timeout = Some(self.close_wait_timeout);
        }
        for option in self.options.iter().flatten() {
            let TcpOptions::MaximumSegmentSize(bytes) = *option;
            at_least_one("tcp_config.options: MaximumSegmentSize", usize::from(bytes))?;
            options.maxseg = Some(bytes);
        }
        Ok(options)
    }

    /// The settings of the stack that differ from its own.
    fn sysctls(&self) -> Result<Vec<(&'static str, String)>, String> {
        let default = TcpConfig::default();
        let mut sysctls = Vec::new();
        if self.last_ack_timeout != default.last_ack_timeout {
            return Err(format!(
                "tcp_config.last_ack_timeout: {:?} cannot be honoured, since the time between \
                 retransmissions follows the round-trip time; leave it at {:?}",
                self.last_ack_timeout, default.last_ack_timeout
            ));
        }
        if self.last_ack_max_retries != default.last_ack_max_retries {
            let field = "tcp_config.last_ack_max_retries";
            let number = within(field, self.last_ack_max_retries, 1, 255)?;
            sysctls.push(("net.ipv4.tcp_orphan_retries", number.to_string()));
        }
        if self.max_retransmit_count != default.max_retransmit_count {
            let field = "tcp_config.max_retransmit_count";
            let number = within(field, self.max_retransmit_count, 1, 255)?;
            sysctls.push(("net.ipv4.tcp_retries2", number.to_string()));
        }
        if self.max_count_for_dup_ack != default.max_count_for_dup_ack {
            let field = "tcp_config.max_count_for_dup_ack";
            let number = within(field, self.max_count_for_dup_ack, 1, 127)?;
            sysctls.push(("net.ipv4.tcp_reordering", number.to_string()));
        }
        if self.rto != default.rto {
            let micros = within("tcp_config.rto in µs", self.rto.as_micros(), 1, 120_000_000)?;
            sysctls.push(("net.ipv4.tcp_rto_min_us", micros.to_string()));
        }
        if self.two_msl != default.two_msl {
            if self.two_msl.subsec_nanos() != 0 {
                let what = "takes whole seconds";
                return Err(format!("tcp_config.two_msl {what}, not {:?}", self.two_msl));
            }
            let seconds = within("tcp_config.two_msl in s", self.two_msl.as_secs(), 1, 3600)?;
            sysctls.push(("net.ipv4.tcp_fin_timeout", seconds.to_string()));
        }
        Ok(sysctls)
    }
}

fn at_least_one(field: &str, value: usize) -> Result<usize, String> {
    within(field, value, 1, usize::MAX)
}

fn within<T: Display + PartialOrd>(field: &str, value: T, least: T, most: T) -> Result<T, String> {
    match value >= least && value <= most {
        true => Ok(value),
        false => Err(format!("{field} is {value}; it can be {least} to {most}")),
    }
}

/// A configuration as the stack is to have it.
pub(crate) struct Plan {
    pub(crate) mtu: u16,
    pub(crate) packet_information: bool,
    /// Of every connection.
    pub(crate) options: Options,
    pub(crate) sysctls: Vec<(&'static str, String)>,
    pub(crate) tcp_timeout: Duration,
    pub(crate) udp: UdpFlowConfig,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut TcpConfig)) -> String {
        let mut config = IpStackConfig::default();
        let mut tcp = TcpConfig::default();
        change(&mut tcp);
        config.with_tcp_config(tcp).plan().err().expect("it is refused")
    }

    #[test]
    fn defaults_leave_the_stack_as_it_is() {
        let plan = IpStackConfig::default().plan().unwrap();
        assert_eq!(plan.options, Options::default());
        assert_eq!(plan.sysctls, []);
        assert_eq!((plan.mtu, plan.packet_information), (1280, false));
        assert_eq!(plan.tcp_timeout, Duration::from_secs(60));
        assert_eq!(plan.udp.idle_timeout, Duration::from_secs(30));
    }

    #[test]
    fn what_differs_is_a_bound() {
        let tcp = TcpConfig {
            last_ack_max_retries: 4,
            close_wait_timeout: Duration::from_secs(9),
            two_msl: Duration::from_secs(3),
            max_unacked_bytes: 262_144,
            read_buffer_size: 65_536,
            max_count_for_dup_ack: 5,
            rto: Duration::from_millis(300),
            max_retransmit_count: 7,
            options: Some(vec![TcpOptions::MaximumSegmentSize(1000)]),
            ..TcpConfig::default()
        };
        let plan = IpStackConfig::default().with_tcp_config(tcp).plan().unwrap();
        let options = Options::default()
            .sndbuf(Some(262_144))
            .rcvbuf(Some(65_536))
            .half_close_timeout(Some(Duration::from_secs(9)))
            .maxseg(Some(1000));
        assert_eq!(plan.options, options);
        let expected = [
            ("net.ipv4.tcp_orphan_retries", "4"),
            ("net.ipv4.tcp_retries2", "7"),
            ("net.ipv4.tcp_reordering", "5"),
            ("net.ipv4.tcp_rto_min_us", "300000"),
            ("net.ipv4.tcp_fin_timeout", "3"),
        ];
        assert_eq!(plan.sysctls, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        let said = refusal(|tcp| tcp.last_ack_timeout = Duration::from_secs(1));
        assert!(said.starts_with("tcp_config.last_ack_timeout: 1s cannot be honoured"), "{said}");
        let said = refusal(|tcp| tcp.max_count_for_dup_ack = 128);
        assert_eq!(said, "tcp_config.max_count_for_dup_ack is 128; it can be 1 to 127");
        let said = refusal(|tcp| tcp.two_msl = Duration::from_millis(1500));
        assert_eq!(said, "tcp_config.two_msl takes whole seconds, not 1.5s");
        let said = refusal(|tcp| tcp.timeout = Duration::ZERO);
        assert!(said.starts_with("tcp_config.timeout is 0"), "{said}");
        let said = refusal(|tcp| tcp.close_wait_timeout = Duration::ZERO);
        assert!(said.starts_with("tcp_config.close_wait_timeout is 0"), "{said}");
        let said = refusal(|tcp| tcp.options = Some(vec![TcpOptions::MaximumSegmentSize(0)]));
        assert!(said.starts_with("tcp_config.options: MaximumSegmentSize is 0"), "{said}");
        let said = refusal(|tcp| tcp.rto = Duration::ZERO);
        assert!(said.starts_with("tcp_config.rto in µs is 0"), "{said}");
    }
}
