//! A rule: what it covers, and how it is written.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::policy::embedded;

/// How a rule is written.
pub const GRAMMAR: &str = "\
a rule is [tcp://|udp://|icmp://|dns://]HOST[+private][:PORTS], a profile or @FILE
  HOST     a name (api.example.com), all names below one (*.example.com), an address
           (192.0.2.1, [2001:db8::1]), a network (10.0.0.0/8, [2001:db8::]/32), or * or
           nothing for every host
  PORTS    80, 80,443 or 8000-8999; without them all ports
  +private after an exact name: also where the name leads to a private address
  dns://   allows the lookup of a name and no connection
  profiles public, private, none
  @FILE    a file with one rule a line; # begins a comment";

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// Echo requests.
    Icmp,
    /// Lookups of names.
    Dns,
}

impl Protocol {
    /// The word before a rule.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
            Protocol::Dns => "dns",
        }
    }
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// All addresses that are not private.
    Public,
    /// All private addresses.
    Private,
    None,
    Network(IpAddr, u8),
    Name {
        name: String,
        private: bool,
    },
    Below(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As it was written.
    text: String,
    /// `None` is all.
    protocol: Option<Protocol>,
    hosts: Hosts,
    /// None are all ports.
    ports: Vec<RangeInclusive<u16>>,
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    rule: String,
    column: usize,
    what: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleError { rule, column, what } = self;
        write!(f, "the rule '{rule}' is wrong at column {column}: {what}\n{GRAMMAR}")
    }
}

impl std::error::Error for RuleError {}

/// Whether an address is of no public host: of private networks (RFC 1918, RFC 4193, RFC 6598), of
/// a link or of the host itself.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let shared = a == 100 && (b & 0xc0) == 64;
            let special = ip.is_loopback() || ip.is_link_local() || a == 0;
            ip.is_private() || shared || special
        }
        IpAddr::V6(ip) => {
            let inner = embedded(ip).is_some_and(|ip| is_private(ip.into()));
            let special = ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local();
            // The deprecated site-local addresses, fec0::/10.
            let site_local = ip.segments()[0] & 0xffc0 == 0xfec0;
            ip.is_unique_local() || site_local || special || inner
        }
    }
}

/// Whether `ip` is in the network.
fn contains(network: IpAddr, prefix: u8, ip: IpAddr) -> bool {
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            let differs = u32::from(network) ^ u32::from(ip);
            differs.checked_shr(32 - u32::from(prefix)).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            let differs = u128::from(network) ^ u128::from(ip);
            differs.checked_shr(128 - u32::from(prefix)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl Rule {
    /// Whether it is of a name, or of all below one.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(self.hosts, Hosts::Name { .. } | Hosts::Below(_))
    }

    pub(crate) fn covers_port(&self, protocol: Protocol, port: u16) -> bool {
        let of_protocol = self.protocol.is_none_or(|own| own == protocol);
        of_protocol && (self.ports.is_empty() || self.ports.iter().any(|it| it.contains(&port)))
    }

    pub(crate) fn covers_all_ports(&self) -> bool {
        self.ports.is_empty()
    }

    /// Whether it covers this address by itself. Names never do.
    pub(crate) fn covers_address(&self, protocol: Protocol, to: SocketAddr) -> bool {
        let ip = to.ip().to_canonical();
        let of_host = match &self.hosts {
            Hosts::All => true,
            Hosts::Public => !is_private(ip),
            Hosts::Private => is_private(ip),
            Hosts::Network(network, prefix) => contains(*network, *prefix, ip),
            Hosts::None | Hosts::Name { .. } | Hosts::Below(_) => false,
        };
        of_host && self.covers_port(protocol, to.port())
    }

    /// Whether it covers this name, on its own, for lookups.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        match &self.hosts {
            Hosts::Name { name: own, .. } => own == name,
            Hosts::Below(above) => {
                let front = name.strip_suffix(above.as_str());
                // A dot inside a label has a backslash before it (RFC 1035, section 5.1).
                front.is_some_and(|front| front.ends_with('.') && !front.ends_with("\\."))
            }
            _ => false,
        }
    }

    /// Whether lookups of every name come with it: all public hosts are open anyway.
    pub(crate) fn covers_all_names(&self) -> bool {
        let open = matches!(self.hosts, Hosts::All | Hosts::Public);
        open && self.protocol != Some(Protocol::Icmp)
    }

    /// Whether it opens an address to which this name leads.
    pub(crate) fn opens(&self, name: &str, protocol: Protocol, to: SocketAddr) -> bool {
        let private = matches!(&self.hosts, Hosts::Name { private: true, .. });
        self.covers_name(name)
            && self.covers_port(protocol, to.port())
            && (private || !is_private(to.ip()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text of a rule that is being read.
struct Text<'a> {
    all: &'a str,
    /// Where the rest begins.
    at: usize,
}

impl<'a> Text<'a> {
    fn rest(&self) -> &'a str {
        &self.all[self.at..]
    }

    fn error(&self, at: usize, what: impl Into<String>) -> RuleError {
        let column = self.all.get(..at).map_or(0, |front| front.chars().count()) + 1;
        RuleError { rule: self.all.to_owned(), column, what: what.into() }
    }

    /// The protocol before the host.
    fn protocol(&mut self) -> Result<Protocol, RuleError> {
        let Some((word, _)) = self.rest().split_once("://") else { return Ok(Protocol::Tcp) };
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp, Protocol::Dns];
        let Some(protocol) = all.into_iter().find(|it| it.word() == word) else {
            return Err(self.error(0, format!("'{word}' is no protocol")));
        };
        self.at += word.len() + "://".len();
        Ok(protocol)
    }

    /// The host as text, without brackets, and where it begins.
    fn host(&mut self) -> Result<(String, usize), RuleError> {
        let (rest, at) = (self.rest(), self.at);
        if let Some(inner) = rest.strip_prefix('[') {
            let Some((address, after)) = inner.split_once(']') else {
                return Err(self.error(at, "'[' has no ']'"));
            };
            let prefix = after.split(':').next().unwrap_or_default();
            if !prefix.is_empty() && !prefix.starts_with('/') {
                let at = at + address.len() + 2;
                return Err(self.error(at, format!("'{prefix}' is not expected here")));
            }
            self.at += 1 + address.len() + 1 + prefix.len();
            return Ok((format!("{address}{prefix}"), at + 1));
        }
        // An IPv6 address without brackets has no port.
        let is_v6 = rest.matches(':').count() > 1;
        let len = if is_v6 { rest.len() } else { rest.find(':').unwrap_or(rest.len()) };
        self.at += len;
        Ok((rest[..len].to_owned(), at))
    }

    fn ports(&mut self) -> Result<Vec<RangeInclusive<u16>>, RuleError> {
        let Some(list) = self.rest().strip_prefix(':') else {
            return match self.rest() {
                "" => Ok(Vec::new()),
                rest => Err(self.error(self.at, format!("'{rest}' is not expected here"))),
            };
        };
        let mut at = self.at + 1;
        let mut ports = Vec::new();
        for word in list.split(',') {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            let number = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
            match (number(from), number(to)) {
                (Some(from), Some(to)) if from <= to => ports.push(from..=to),
                _ => {
                    let what = format!("'{word}' is no port from 1 to 65535, and no range of them");
                    return Err(self.error(at, what));
                }
            }
            at += word.len() + 1;
        }
        Ok(ports)
    }
}

fn network(text: &str) -> Option<Result<(IpAddr, u8), String>> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = match address.parse() {
        Ok(address) => address,
        Err(_) => return prefix.map(|_| Err(format!("'{address}' is no address"))),
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix.map(str::parse::<u8>) {
        None => bits,
        Some(Ok(prefix)) if prefix <= bits => prefix,
        Some(_) => return Some(Err(format!("the length of a network is from 0 to {bits}"))),
    };
    let masked = match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
        }
    };
    if masked != address {
        return Some(Err(format!(
            "{address} is not the first address of the network; {masked} is"
        )));
    }
    // Packets to an IPv4-mapped address are those to the IPv4 address.
    match (address.to_canonical(), prefix) {
        (ip @ IpAddr::V4(_), 96..) if address.is_ipv6() => Some(Ok((ip, prefix - 96))),
        (ip, _) if ip.is_ipv4() == address.is_ipv4() => Some(Ok((ip, prefix))),
        _ => Some(Ok((address, prefix))),
    }
}

/// A name in small letters, or the place and the text of its fault.
fn name(text: &str) -> Result<String, (usize, String)> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if let Some((at, c)) = text.char_indices().find(|&(_, c)| !is_good(c)) {
        let help = if c.is_ascii() { "" } else { "; give the name in its xn-- form" };
        return Err((at, format!("'{c}' cannot be in a name{help}")));
    }
    let mut at = 0;
    for label in text.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err((at, "a part of a name has 1 to 63 letters".to_owned()));
        }
        at += label.len() + 1;
    }
    // The C library takes these for addresses (inet_aton(3)), as 127.1 or 0x7f000001.
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    if is_number {
        return Err((0, format!("'{text}' is neither a name nor a whole address")));
    }
    if text.len() > 253 {
        return Err((0, "a name has at most 253 letters".to_owned()));
    }
    Ok(text.to_ascii_lowercase())
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(all: &str) -> Result<Rule, RuleError> {
        let rule = |protocol, hosts, ports| Rule { text: all.to_owned(), protocol, hosts, ports };
        match all {
            "public" => return Ok(rule(None, Hosts::Public, Vec::new())),
            "private" => return Ok(rule(None, Hosts::Private, Vec::new())),
            "none" => return Ok(rule(None, Hosts::None, Vec::new())),
            _ => {}
        }
        let mut text = Text { all, at: 0 };
        let protocol = text.protocol()?;
        let (host, at) = text.host()?;
        let ports_at = text.at;
        let ports = text.ports()?;
        let portless = matches!(protocol, Protocol::Icmp | Protocol::Dns);
        if portless && !ports.is_empty() {
            return Err(text.error(ports_at, format!("{} has no ports", protocol.word())));
        }
        if all.is_empty() {
            return Err(text.error(0, "it is empty"));
        }
        let (plain, private) = match host.strip_suffix("+private") {
            Some(plain) => (plain, true),
            None => (&*host, false),
        };
        let private_at = at + plain.len();
        let hosts = if plain.is_empty() || plain == "*" {
            Hosts::All
        } else if let Some(above) = plain.strip_prefix("*.") {
            let above = name(above).map_err(|(place, what)| text.error(at + 2 + place, what))?;
            if psl::domain(above.as_bytes()).is_none() {
                let what = format!("'{above}' is a public suffix: its names have many owners");
                return Err(text.error(at + 2, what));
            }
            Hosts::Below(above)
        } else if let Some(network) = network(plain) {
            let (ip, prefix) = network.map_err(|what| text.error(at, what))?;
            Hosts::Network(ip, prefix)
        } else {
            let name = name(plain).map_err(|(place, what)| text.error(at + place, what))?;
            Hosts::Name { name, private }
        };
        if private && !matches!(hosts, Hosts::Name { .. }) {
            return Err(text.error(private_at, "'+private' is for an exact name"));
        }
        if protocol == Protocol::Dns && matches!(hosts, Hosts::Network(..)) {
            return Err(text.error(at, "dns:// is for a name"));
        }
        Ok(rule(Some(protocol), hosts, ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_covered_by_network_port_and_protocol() {
        let cases = [
            ("10.0.0.0/8:22", "10.255.0.1:22", true),
            ("10.0.0.0/8:22", "10.255.0.1:23", false),
            ("10.0.0.0/8:22", "11.0.0.1:22", false),
            ("0.0.0.0/0", "11.0.0.1:22", true),
            ("0.0.0.0/0", "[2001:db8::1]:22", false),
            ("[2001:db8::1]:443", "[2001:db8::1]:443", true),
            ("2001:db8::/32", "[2001:db8:7::1]:1", true),
            ("[2001:db8::]/32:443,8000-8999", "[2001:db8::9]:8080", true),
            ("[2001:db8::]/32:443,8000-8999", "[2001:db8::9]:9000", false),
            ("::ffff:192.0.2.1", "192.0.2.1:80", true),
            ("192.0.2.1", "[::ffff:192.0.2.1]:80", true),
            (":8080", "198.51.100.1:8080", true),
            ("*:8080", "198.51.100.1:8081", false),
            ("udp://1.1.1.1:53", "1.1.1.1:53", false),
            ("public", "198.51.100.1:9", true),
            ("public", "10.0.0.1:9", false),
            ("public", "100.64.0.1:9", false),
            ("public", "[64:ff9b::a00:1]:9", false),
            ("private", "[fd00::1]:9", true),
            ("none", "198.51.100.1:9", false),
            ("a.example.com", "198.51.100.1:9", false),
        ];
        for (text, to, expected) in cases {
            let found = rule(text).covers_address(Protocol::Tcp, to.parse().unwrap());
            assert_eq!(found, expected, "{text} {to}");
        }
        let to = "1.1.1.1:53".parse().unwrap();
        assert!(rule("udp://1.1.1.1:53").covers_address(Protocol::Udp, to));
        assert!(rule("public").covers_address(Protocol::Icmp, "1.1.1.1:0".parse().unwrap()));
    }

    #[test]
    fn names_open_public_addresses_and_private_ones_if_so_said() {
        let (public, private) = ("192.0.2.1:443".parse().unwrap(), "10.0.0.1:443".parse().unwrap());
        let tcp = Protocol::Tcp;
        assert!(rule("API.Example.com.:443").opens("api.example.com", tcp, public));
        assert!(!rule("api.example.com:443").opens("api.example.com", tcp, private));
        assert!(rule("api.example.com+private:443").opens("api.example.com", tcp, private));
        assert!(!rule("api.example.com:80").opens("api.example.com", tcp, public));
        assert!(!rule("api.example.com").opens("api.example.com", Protocol::Udp, public));
        assert!(!rule("dns://api.example.com").opens("api.example.com", tcp, public));
        assert!(rule("dns://api.example.com").covers_name("api.example.com"));
        let below = rule("*.example.com");
        assert!(below.opens("a.b.example.com", tcp, public));
        for name in ["example.com", "badexample.com", "example.com.evil.net", "a\\.example.com"] {
            assert!(!below.covers_name(name), "{name}");
        }
    }

    #[test]
    fn a_wrong_rule_is_named_with_its_column() {
        let cases = [
            ("", 1, "empty"),
            ("http://a.example", 1, "'http' is no protocol"),
            ("a.example:0", 11, "'0' is no port"),
            ("a.example:80,x", 14, "'x' is no port"),
            ("a.example:90-80", 11, "'90-80'"),
            ("*.com", 3, "public suffix"),
            ("tcp://*.co.uk:443", 9, "public suffix"),
            ("10.0.0.0/33", 1, "from 0 to 32"),
            ("10.0.0.1/8", 1, "10.0.0.0 is"),
            ("a/8", 1, "'a' is no address"),
            ("[::1", 1, "no ']'"),
            ("[::1]x", 6, "not expected"),
            ("127.1", 1, "neither a name"),
            ("0x7f000001", 1, "neither a name"),
            ("a..example", 3, "1 to 63"),
            ("b\u{fc}cher.example", 2, "xn--"),
            ("a_b c", 4, "cannot be in a name"),
            ("*.example.com+private", 14, "exact name"),
            ("icmp://a.example:1", 17, "no ports"),
            ("dns://192.0.2.1", 7, "for a name"),
        ];
        for (text, column, what) in cases {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }
}
