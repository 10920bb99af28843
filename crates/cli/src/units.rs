//! Parsers for what people type on the command line: addresses, faults, and numbers within the
//! bounds of a flag. Sizes, rates, times and shares are read by [`plimsoll_sim::units`].
//!
//! Every parser names what it did not understand and shows one example that it would take. They
//! are used by clap as value parsers, so their messages end up behind the name of the flag.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use plimsoll_lab::workload::RequestResponse;
pub(crate) use plimsoll_sim::units::{
    parse_link_rate as link_rate, parse_share as fraction, parse_size as size, parse_time_in,
};

/// A whole number from `low` to `high`.
pub(crate) fn whole<T>(text: &str, low: T, high: T) -> Result<T, String>
where
    T: FromStr + Display + PartialOrd,
{
    text.trim()
        .parse()
        .ok()
        .filter(|number| (&low..=&high).contains(&number))
        .ok_or_else(|| format!("'{text}' is not a whole number from {low} to {high}"))
}

/// The number of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    whole(text, 1, i32::MAX as u32)
        .map_err(|_| format!("'{text}' is not the number of a process, as in --pid 1234"))
}

/// An address with a port: `192.0.2.1:5001`, `[2001:db8::1]:5001`.
pub(crate) fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        let whole = SocketAddr::new(address, 5001);
        return Err(format!("'{text}' has no port; add one, as in {whole}"));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err("the port must not be 0".into()),
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "'{text}' is not an address with a port; try 192.0.2.1:5001 or [2001:db8::1]:5001"
        )),
    }
}

/// A number of bytes that fits into memory and is at least 1.
pub(crate) fn buffer_size(text: &str) -> Result<usize, String> {
    match size(text)? {
        0 => Err("must be at least 1 byte".into()),
        bytes if bytes > 1 << 30 => Err("must be at most 1GiB".into()),
        bytes => Ok(bytes as usize),
    }
}

/// The share of packets that a link in memory loses.
pub(crate) fn link_loss(text: &str) -> Result<f64, String> {
    match fraction(text)? {
        1.0 => Err("nothing would arrive, and no connection could be opened; try 0.01".into()),
        share => Ok(share),
    }
}

/// The one-way delay of a link in memory.
pub(crate) fn link_delay(text: &str) -> Result<Duration, String> {
    match delay(text)? {
        time if time > LONGEST_DELAY => Err(format!(
            "with a delay of {text} no connection would be open before it is given up; give at \
             most {} s",
            LONGEST_DELAY.as_secs()
        )),
        time => Ok(time),
    }
}

/// See [`link_delay`].
const LONGEST_DELAY: Duration = Duration::from_secs(20);

/// A length of time: `3`, `3s`, `250ms`, `50us`, `2m`. A bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_time_in(text, "s")
}

/// A delay: as [`duration`], but a bare number is milliseconds, as for `tc netem`.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    parse_time_in(text, "ms")
}

/// A length of time above zero.
pub(crate) fn run_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero; try 3s".into()),
        time => Ok(time),
    }
}

/// The time between two looks at a running process.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    match duration(text)? {
        time if bounds.contains(&time) => Ok(time),
        _ => Err("must be from 100 ms to 1 h; try 1s".into()),
    }
}

/// An address with the length of its prefix, as in `192.0.2.2/24` or `2001:db8::2/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    /// The address of the stack.
    pub address: IpAddr,
    /// Leading bits that name the network.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let (address, prefix) = text
            .split_once('/')
            .ok_or_else(|| format!("'{text}' has no prefix length; try {text}/24"))?;
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("'{address}' is not an IPv4 or IPv6 address; try 192.0.2.2/24"))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix
            .parse()
            .ok()
            .filter(|&prefix| prefix <= longest)
            .ok_or_else(|| format!("'/{prefix}' is not a prefix length from 0 to {longest}"))?;
        match unusable(address, prefix) {
            Some(why) => {
                Err(format!("{address} {why}; give the stack another address, as in 192.0.2.2/24"))
            }
            None => Ok(Cidr { address, prefix }),
        }
    }
}

/// Why no stack can have an address.
fn unusable(address: IpAddr, prefix: u8) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("is a loopback address, which no packet on a device can have");
    }
    if address.is_unspecified() {
        return Some("stands for no address");
    }
    if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Some("stands for many hosts");
    }
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("is no IPv6 address on the wire"),
        IpAddr::V4(v4) if prefix <= 30 => {
            let host = u32::MAX >> prefix;
            match v4.to_bits() & host {
                0 => Some("is the name of the network itself"),
                bits if bits == host => Some("is the broadcast address of its network"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `NAME=VALUE` of a sysctl.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("'{text}' is not NAME=VALUE; try net.ipv4.tcp_sack=0")),
    }
}

/// Request and response size of an rr workload: `1,1`, `4096,4096`, `128` (both).
pub(crate) fn request_response(text: &str) -> Result<RequestResponse, String> {
    let (request, response) = text.split_once(',').unwrap_or((text, text));
    Ok(RequestResponse { request: buffer_size(request)?, response: buffer_size(response)? })
}

/// The faults that `--fault` requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FaultSpec {
    /// Share of packets dropped.
    pub loss: f64,
    /// Share of packets that later ones overtake.
    pub reorder: f64,
    /// Share of packets sent twice.
    pub duplicate: f64,
    /// Share of packets with a flipped bit.
    pub corrupt: f64,
    /// Extra delay of every packet.
    pub delay: Duration,
    /// Seed of the dice.
    pub seed: u64,
}

impl FromStr for FaultSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultSpec, String> {
        let mut spec = FaultSpec { seed: 1, ..FaultSpec::default() };
        for item in text.split(',').filter(|item| !item.trim().is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                format!("'{item}' is not NAME=VALUE; try loss=0.02,reorder=0.02,seed=1")
            })?;
            match name.trim() {
                "loss" => spec.loss = fraction(value)?,
                "reorder" => spec.reorder = fraction(value)?,
                "duplicate" => spec.duplicate = fraction(value)?,
                "corrupt" => spec.corrupt = fraction(value)?,
                "delay" => spec.delay = delay(value)?,
                "seed" => {
                    spec.seed =
                        value.trim().parse().map_err(|_| format!("'{value}' is not a seed"))?;
                }
                other => {
                    return Err(format!(
                        "unknown fault '{other}'; known: loss, reorder, duplicate, corrupt, delay, \
                         seed"
                    ));
                }
            }
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers() {
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(delay("3"), Ok(Duration::from_millis(3)));
        assert_eq!(delay("50us"), Ok(Duration::from_micros(50)));
        assert!(buffer_size("0").is_err());
        assert!(run_time("0").is_err());
        assert!(duration("3 weeks").is_err());
    }

    #[test]
    fn addresses() {
        let cidr: Cidr = "192.0.2.2/24".parse().unwrap();
        assert_eq!((cidr.address.to_string().as_str(), cidr.prefix), ("192.0.2.2", 24));
        assert!("192.0.2.2".parse::<Cidr>().unwrap_err().contains("192.0.2.2/24"));
        assert!("192.0.2.2/33".parse::<Cidr>().is_err());
        assert!("2001:db8::2/64".parse::<Cidr>().is_ok());
        assert!("host/24".parse::<Cidr>().is_err());
        for (text, part) in [
            ("127.0.0.1/8", "loopback"),
            ("::1/128", "loopback"),
            ("0.0.0.0/0", "no address"),
            ("224.0.0.1/4", "many hosts"),
            ("255.255.255.255/32", "many hosts"),
            ("192.0.2.0/24", "network itself"),
            ("192.0.2.255/24", "broadcast"),
            ("::ffff:192.0.2.1/96", "no IPv6 address"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.contains(part) && error.contains("192.0.2.2/24"), "{text}: {error}");
        }
        assert!("192.0.2.0/31".parse::<Cidr>().is_ok(), "two hosts and nothing else");
    }

    #[test]
    fn ports() {
        assert_eq!(address_and_port("192.0.2.1:9").unwrap().port(), 9);
        assert_eq!(address_and_port("[2001:db8::1]:9").unwrap().port(), 9);
        for (text, part) in [
            ("192.0.2.1", "has no port; add one, as in 192.0.2.1:5001"),
            ("2001:db8::1", "as in [2001:db8::1]:5001"),
            ("[2001:db8::1]", "as in [2001:db8::1]:5001"),
            ("host:9", "try 192.0.2.1:5001"),
            ("192.0.2.1:0", "must not be 0"),
            ("192.0.2.1:99999", "try 192.0.2.1:5001"),
        ] {
            let error = address_and_port(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(whole("8", 1_u8, 8), Ok(8));
        for text in ["0", "9", "-1", "1.5", "x", "", "300"] {
            let error = whole(text, 1_u8, 8).unwrap_err();
            assert!(error.ends_with("is not a whole number from 1 to 8"), "{error}");
        }
        assert!(pid("abc").unwrap_err().contains("--pid 1234"));
        assert!(duration("-1").unwrap_err().contains("must not be negative"));
        assert!(delay("-5ms").unwrap_err().contains("must not be negative"));
    }

    #[test]
    fn links_that_would_seem_to_hang() {
        assert!(link_rate("10").unwrap_err().contains("1200 s"));
        assert_eq!(link_rate("10kbit"), Ok(10_000));
        assert!(link_delay("1h").unwrap_err().contains("at most 20 s"));
        assert_eq!(link_delay("20s"), Ok(Duration::from_secs(20)));
        assert!(link_loss("100%").unwrap_err().contains("try 0.01"));
        assert_eq!(link_loss("0.99"), Ok(0.99));
    }

    #[test]
    fn faults() {
        let spec: FaultSpec = "loss=0.02,reorder=2%,duplicate=0.01,seed=7".parse().unwrap();
        assert_eq!((spec.loss, spec.reorder, spec.duplicate, spec.seed), (0.02, 0.02, 0.01, 7));
        assert!("lost=1".parse::<FaultSpec>().unwrap_err().contains("known:"));
        assert!("loss=2".parse::<FaultSpec>().is_err());
    }

    #[test]
    fn request_and_response() {
        let both = request_response("128").unwrap();
        assert_eq!((both.request, both.response), (128, 128));
        let two = request_response("1,4096").unwrap();
        assert_eq!((two.request, two.response), (1, 4096));
        assert!(request_response("0,1").is_err());
    }
}
