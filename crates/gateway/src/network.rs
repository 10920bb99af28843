//! The addresses of the command's network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use anyhow::Result;

use crate::names;
use crate::routing::Routes;

/// The networks to choose from, in this order.
const CANDIDATES: [Ipv4Addr; 5] = [
    Ipv4Addr::new(10, 0, 2, 0),
    Ipv4Addr::new(172, 31, 254, 0),
    Ipv4Addr::new(192, 168, 254, 0),
    Ipv4Addr::new(10, 254, 2, 0),
    Ipv4Addr::new(100, 127, 254, 0),
];
/// The command's IPv4 and IPv6 address, each counted from the network's first one.
const COMMAND: (u8, u16) = (15, 0x15);
/// The same in an existing namespace.
const ATTACHED: (u8, u16) = (100, 0x100);

/// An IPv4 network, and an IPv6 network of 64 bits, for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first address.
    first: Ipv4Addr,
    prefix: u8,
    /// The first half of the IPv6 addresses.
    v6: [u16; 4],
    /// See [`COMMAND`].
    guest: (u8, u16),
    has_name_server: bool,
}

impl Network {
    /// The prefix length of the IPv6 network.
    pub const PREFIX_V6: u8 = 64;

    /// The network of a command, with 24 bits.
    fn of_command(first: Ipv4Addr) -> Network {
        let [_, b, c, _] = first.octets();
        let v6 = [0xfd70, 0x6c69, 0x6d73, u16::from_be_bytes([b, c])];
        Network { first, prefix: 24, v6, guest: COMMAND, has_name_server: true }
    }

    /// The network of an existing namespace, with the addresses that slirp4netns(1) has.
    ///
    /// # Errors
    /// If the text is no network of 1 to 25 bits such as 10.0.2.0/24.
    pub fn attached(text: &str) -> Result<Network, String> {
        let invalid = || format!("invalid CIDR: '{text}' is not a network such as 10.0.2.0/24");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        if !(1..=25).contains(&prefix) {
            return Err(format!(
                "prefix length needs to be 1-25: '{text}' has no room for the addresses"
            ));
        }
        let first = Ipv4Addr::from(u32::from(address) & (u32::MAX << (32 - u32::from(prefix))));
        if first != address {
            return Err(format!(
                "CIDR needs to be a network address like {first}/{prefix}, not like {text}"
            ));
        }
        let v6 = [0xfd00, 0, 0, 0];
        Ok(Network { first, prefix, v6, guest: ATTACHED, has_name_server: true })
    }

    /// The same network without a name server.
    #[must_use]
    pub fn without_name_server(self) -> Network {
        Network { has_name_server: false, ..self }
    }

    /// The first network to which the host has no route but a default one. Without any, the first.
    ///
    /// # Errors
    /// If netlink cannot be used.
    pub fn choose() -> Result<Network> {
        let mut routes = Routes::default();
        for network in CANDIDATES.map(Network::of_command) {
            if !routes.has_network(network.guest().into())? {
                return Ok(network);
            }
        }
        Ok(Network::of_command(CANDIDATES[0]))
    }

    /// Whether it is the first choice.
    pub fn is_first_choice(&self) -> bool {
        self.first == CANDIDATES[0]
    }

    /// The prefix length of the IPv4 network.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    fn v4(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first) + u32::from(host))
    }

    fn v6(self, host: u16) -> Ipv6Addr {
        let [a, b, c, d] = self.v6;
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, host)
    }

    /// The command's address.
    pub fn guest(self) -> Ipv4Addr {
        self.v4(self.guest.0)
    }

    /// The command's IPv6 address.
    pub fn guest_v6(self) -> Ipv6Addr {
        self.v6(self.guest.1)
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

    /// Whether the gateway's name server answers there.
    pub(crate) fn serves_names_at(self, to: SocketAddr) -> bool {
        self.has_name_server && to == SocketAddr::new(self.name_server().into(), names::PORT)
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
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    /// The network of a command.
    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("'{text}' is not a network such as 10.0.2.0/24");
        let address = text.strip_suffix("/24").ok_or_else(wrong)?;
        let [a, b, c, _] = address.parse::<Ipv4Addr>().map_err(|_| wrong())?.octets();
        Ok(Network::of_command(Ipv4Addr::new(a, b, c, 0)))
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
        assert_eq!(network.guest_v6().to_string(), "fd70:6c69:6d73:2::15");
        assert_eq!(network.gateway_v6().to_string(), "fd70:6c69:6d73:2::2");
        assert!("10.0.2.0/16".parse::<Network>().unwrap_err().contains("10.0.2.0/16"));
    }

    #[test]
    fn a_network_to_attach_has_the_addresses_of_slirp4netns() {
        let network = Network::attached("10.0.135.128/25").unwrap();
        assert_eq!(network.to_string(), "10.0.135.128/25");
        let addresses = [network.guest(), network.gateway(), network.name_server()];
        assert_eq!(addresses.map(|ip| ip.octets()[3]), [228, 130, 131]);
        assert_eq!(network.guest_v6().to_string(), "fd00::100");
        let at = SocketAddr::new(network.name_server().into(), 53);
        assert!(network.serves_names_at(at));
        assert!(!network.without_name_server().serves_names_at(at));
        for (wrong, said) in [
            ("24", "invalid CIDR"),
            ("10.0.2.0", "invalid CIDR"),
            ("10.0.2.0/x", "invalid CIDR"),
            ("fd00::/64", "invalid CIDR"),
            ("10.0.2.0/0", "1-25"),
            ("10.0.2.0/26", "1-25"),
            ("10.0.2.0/33", "1-25"),
            ("10.0.2.100/24", "like 10.0.2.0/24, not like 10.0.2.100/24"),
        ] {
            let error = Network::attached(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
