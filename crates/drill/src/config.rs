//! How a script is run: the options of the command line and of the script itself.
//!
//! Both have the same names, those of the original tool. What the command line says wins.

use std::net::{IpAddr, Ipv4Addr};

use crate::host::Network;

/// Which addresses packets and sockets have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4 sockets and packets.
    #[default]
    V4,
    /// IPv6 sockets and packets.
    V6,
    /// IPv6 sockets with IPv4 packets.
    Mapped,
}

/// The options, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which addresses packets and sockets have.
    pub ip_version: IpVersion,
    /// Our address.
    pub local_ip: Option<IpAddr>,
    /// The address that packets come from.
    pub remote_ip: Option<IpAddr>,
    /// The far end of the device.
    pub gateway_ip: Option<IpAddr>,
    /// The length of our network's prefix.
    pub prefix: Option<u8>,
    /// MTU of the device.
    pub mtu: u16,
    /// Segment size of inbound super-segments.
    pub mss: Option<u16>,
    /// The port that `bind(...)` takes.
    pub bind_port: u16,
    /// The port that `connect(...)` takes.
    pub connect_port: u16,
    /// How far an event may be from its time, in microseconds.
    pub tolerance_usecs: i64,
    /// The same as a share of the time since the event before, in percent.
    pub tolerance_percent: f64,
    /// Microseconds per tick of outbound timestamps; 0 does not check them.
    pub tcp_ts_tick_usecs: u32,
    /// An inbound echoed timestamp need not be one that was sent.
    pub tcp_ts_ecr_scaled: bool,
    /// Every super-segment must appear as written.
    pub strict_segments: bool,
    /// Names that the script may use, with their values.
    pub defines: Vec<(String, String)>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ip_version: IpVersion::V4,
            local_ip: None,
            remote_ip: None,
            gateway_ip: None,
            prefix: None,
            mtu: 1500,
            mss: None,
            bind_port: 8080,
            connect_port: 8080,
            tolerance_usecs: 4000,
            tolerance_percent: 12.5,
            tcp_ts_tick_usecs: 0,
            tcp_ts_ecr_scaled: false,
            strict_segments: false,
            defines: Vec::new(),
        }
    }
}

/// Options of the original tool that mean nothing here.
const IGNORED: &[&str] = &[
    "send_omit_free",
    "code_command",
    "code_format",
    "code_sockopt",
    "init_scripts",
    "speed",
    "debug",
    "verbose",
    "so_filename",
    "so_flags",
];

impl Config {
    /// Takes one option, named as in `--name=value` without the dashes.
    ///
    /// # Errors
    /// If there is no such option or the value makes no sense; the text says so.
    pub fn apply(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = value.unwrap_or_default();
        match name.replace('-', "_").as_str() {
            "ip_version" => self.ip_version = ip_version(text)?,
            "local_ip" => self.local_ip = Some(self.address(name, text)?),
            "remote_ip" => self.remote_ip = Some(self.address(name, text)?),
            "gateway_ip" => self.gateway_ip = Some(self.address(name, text)?),
            "netmask_ip" => self.prefix = Some(netmask(text)?),
            "mtu" => self.mtu = number(name, text, 576, 65_535)?,
            "mss" => self.mss = Some(number(name, text, 1, 65_495)?),
            "bind_port" => self.bind_port = number(name, text, 1, 65_535)?,
            "connect_port" => self.connect_port = number(name, text, 1, 65_535)?,
            "tolerance_usecs" => self.tolerance_usecs = number(name, text, 0, u32::MAX)?.into(),
            "tolerance_percent" => {
                let share = text.parse::<f64>().ok().filter(|share| (0.0..=1000.0).contains(share));
                self.tolerance_percent = share.ok_or_else(|| bad(name, text))?;
            }
            "tcp_ts_tick_usecs" => self.tcp_ts_tick_usecs = number(name, text, 0, 1_000_000)?,
            "tcp_ts_ecr_scaled" => self.tcp_ts_ecr_scaled = true,
            "strict_segments" => self.strict_segments = true,
            "define" | "D" => {
                let (name, value) =
                    text.split_once('=').ok_or("a definition looks like --define NAME=VALUE")?;
                self.defines.push((name.to_owned(), value.to_owned()));
            }
            other if IGNORED.contains(&other) => {}
            _ => return Err(format!("there is no option --{name}")),
        }
        Ok(())
    }

    /// Reads an address; a prefix length behind it is left out.
    fn address(&self, name: &str, text: &str) -> Result<IpAddr, String> {
        let ip = text.split('/').next().unwrap_or(text);
        ip.parse().map_err(|_| bad(name, text))
    }

    /// The network that these options describe.
    ///
    /// # Errors
    /// If addresses are of the wrong family or no host's, or the MTU is too small for it.
    pub fn network(&self) -> Result<Network, String> {
        let v6 = self.ip_version == IpVersion::V6;
        let pick = |given: Option<IpAddr>, v4: [u8; 4], low: [u16; 8]| {
            given.unwrap_or(if v6 { IpAddr::from(low) } else { IpAddr::from(v4) })
        };
        let network = Network {
            local: pick(self.local_ip, [192, 0, 2, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
            prefix: self.prefix.filter(|_| !v6).unwrap_or(if v6 { 64 } else { 24 }),
            gateway: pick(self.gateway_ip, [192, 0, 2, 2], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2]),
            remote: pick(self.remote_ip, [198, 51, 100, 1], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]),
            mtu: self.mtu,
            inbound_mss: self.mss,
            mapped: self.ip_version == IpVersion::Mapped,
        };
        let addresses = [
            ("local_ip", network.local),
            ("remote_ip", network.remote),
            ("gateway_ip", network.gateway),
        ];
        for (name, ip) in addresses {
            if ip.is_ipv6() != v6 {
                return Err(format!("--{name}={ip} is not of the family that --ip_version says"));
            }
            if ip.is_unspecified() || ip.is_multicast() {
                return Err(format!("--{name}={ip} is not the address of a host"));
            }
        }
        if network.local == network.remote {
            return Err(format!("--local_ip and --remote_ip are both {}", network.local));
        }
        if v6 && self.mtu < MIN_MTU_V6 {
            return Err(format!("--mtu: IPv6 needs {MIN_MTU_V6} bytes, not {}", self.mtu));
        }
        Ok(network)
    }
}

/// The least MTU of a link that carries IPv6 (RFC 8200 section 5).
const MIN_MTU_V6: u16 = 1280;

fn bad(name: &str, text: &str) -> String {
    format!("--{name}: `{text}` makes no sense here")
}

fn ip_version(text: &str) -> Result<IpVersion, String> {
    match text {
        "ipv4" => Ok(IpVersion::V4),
        "ipv6" => Ok(IpVersion::V6),
        "ipv4-mapped-ipv6" => Ok(IpVersion::Mapped),
        _ => Err(format!("--ip_version: `{text}` is none of ipv4, ipv6, ipv4-mapped-ipv6")),
    }
}

fn number<T>(name: &str, text: &str, low: T, high: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse::<T>() {
        Ok(value) if (&low..=&high).contains(&&value) => Ok(value),
        _ => Err(format!("--{name}: `{text}` is not a number from {low} to {high}")),
    }
}

/// The prefix length of a mask such as 255.255.0.0.
fn netmask(text: &str) -> Result<u8, String> {
    let mask = text.parse::<Ipv4Addr>().map_err(|_| bad("netmask_ip", text))?.to_bits();
    if mask.leading_ones() + mask.trailing_zeros() < 32 {
        return Err(bad("netmask_ip", text));
    }
    Ok(mask.leading_ones() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_network() {
        let mut config = Config::default();
        config.apply("local_ip", Some("192.0.2.7")).unwrap();
        config.apply("netmask-ip", Some("255.255.0.0")).unwrap();
        config.apply("tcp_ts_ecr_scaled", None).unwrap();
        config.apply("tolerance_usecs", Some("7000")).unwrap();
        config.apply("D", Some("A=b")).unwrap();
        let network = config.network().unwrap();
        assert_eq!(network.local.to_string(), "192.0.2.7");
        assert_eq!((network.prefix, config.tolerance_usecs), (16, 7000));
        config.apply("ip_version", Some("ipv6")).unwrap();
        assert!(config.network().unwrap_err().contains("local_ip"));
        config.apply("local_ip", Some("2001:db8::7")).unwrap();
        config.network().unwrap();
        for (name, value) in
            [("mtu", "1279"), ("gateway_ip", "192.0.2.2"), ("remote_ip", "2001:db8::7")]
        {
            let mut config = config.clone();
            config.apply(name, Some(value)).unwrap();
            assert!(config.network().unwrap_err().contains(name), "{name}={value}");
        }
        for (name, value) in [("mtu", "3"), ("nonsense", "1"), ("netmask_ip", "255.0.255.0")] {
            assert!(config.apply(name, Some(value)).is_err(), "{name}={value}");
        }
    }
}
