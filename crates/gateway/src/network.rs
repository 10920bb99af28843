//! The addresses of the command's network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::Result;

use crate::routing::Routes;

/// The networks to choose from, in this order.
const CANDIDATES: [[u8; 3]; 5] =
    [[10, 0, 2], [172, 31, 254], [192, 168, 254], [10, 254, 2], [100, 127, 254]];

/// A network of 24 bits, and an IPv6 network of 64 bits, for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network([u8; 3]);

impl Network {
    /// The prefix length of the IPv4 network.
    pub const PREFIX: u8 = 24;
    /// The prefix length of the IPv6 network.
    pub const PREFIX_V6: u8 = 64;

    /// The first network to which the host has no route but a default one. Without any, the first.
    ///
    /// # Errors
    /// If netlink cannot be used.
    pub fn choose() -> Result<Network> {
        let mut routes = Routes::default();
        for base in CANDIDATES {
            let network = Network(base);
            if !routes.has_network(network.guest().into())? {
                return Ok(network);
            }
        }
        Ok(Network(CANDIDATES[0]))
    }

    /// Whether it is the first choice.
    pub fn is_first_choice(&self) -> bool {
        self.0 == CANDIDATES[0]
    }

    fn v4(self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.0;
        Ipv4Addr::new(a, b, c, host)
    }

    fn v6(self, host: u16) -> Ipv6Addr {
        let [_, b, c] = self.0;
        Ipv6Addr::new(0xfd70, 0x6c69, 0x6d73, u16::from_be_bytes([b, c]), 0, 0, 0, host)
    }

    /// The command's address.
    pub fn guest(self) -> Ipv4Addr {
        self.v4(15)
    }

    /// The command's IPv6 address.
    pub fn guest_v6(self) -> Ipv6Addr {
        self.v6(0x15)
    }

    /// The gateway's address: the command's default route.
    pub fn gateway(self) -> Ipv4Addr {
        self.v4(2)
    }

    /// The gateway's IPv6 address.
    pub fn gateway_v6(self) -> Ipv6Addr {
        self.v6(2)
    }

    /// The gateway's name server.
    pub fn name_server(self) -> Ipv4Addr {
        self.v4(3)
    }

    /// Whether `ip` is the gateway: then its loopback address, of the same version.
    pub(crate) fn loopback_for(self, ip: IpAddr) -> Option<IpAddr> {
        match ip {
            IpAddr::V4(ip) if ip == self.gateway() => Some(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip == self.gateway_v6() => Some(Ipv6Addr::LOCALHOST.into()),
            _ => None,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.v4(0), Network::PREFIX)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("'{text}' is not a network such as 10.0.2.0/24");
        let address = text.strip_suffix("/24").ok_or_else(wrong)?;
        let [a, b, c, _] = address.parse::<Ipv4Addr>().map_err(|_| wrong())?.octets();
        Ok(Network([a, b, c]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_reads_as_it_writes() {
        let network: Network = "10.0.2.0/24".parse().unwrap();
        assert!(network.is_first_choice());
        assert_eq!(network.to_string(), "10.0.2.0/24");
        assert_eq!(network.guest().to_string(), "10.0.2.15");
        assert_eq!(network.gateway_v6().to_string(), "fd70:6c69:6d73:2::2");
        assert!("10.0.2.0/16".parse::<Network>().unwrap_err().contains("10.0.2.0/16"));
    }
}
