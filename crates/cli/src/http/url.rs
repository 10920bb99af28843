//! `http://` URLs with a literal address.

use std::net::{IpAddr, SocketAddr};

/// Where a URL points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Address and port.
    pub addr: SocketAddr,
    /// The value of the Host field.
    pub host: String,
    /// Path and query, beginning with a slash.
    pub target: String,
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let rest = text.strip_prefix("http://").ok_or_else(|| {
            format!("'{text}' is not an http:// URL; try http://192.0.2.1:8080/file")
        })?;
        let rest = rest.split('#').next().unwrap_or_default();
        let path = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(path);
        if target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("a space or control character in the path; write it as %20".into());
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Url { addr: address(host)?, host: host.to_owned(), target: format!("{slash}{target}") })
    }
}

fn address(host: &str) -> Result<SocketAddr, String> {
    let (address, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => match port.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None => return Err(format!("'{port}' after the address is not a port")),
        },
        None if host.matches(':').count() > 1 => (host, None),
        None => match host.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (host, None),
        },
    };
    let address: IpAddr = address.parse().map_err(|_| {
        format!("'{address}' is not an IP address (names are not resolved); try http://192.0.2.1/")
    })?;
    if address.is_ipv6() != host.starts_with('[') {
        return Err(format!("write an IPv6 address in brackets: http://[{address}]/"));
    }
    let port = match port {
        None => 80,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or_else(|| format!("'{port}' is not a port from 1 to 65535"))?,
    };
    Ok(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good() {
        let url: Url = "http://192.0.2.1:8080/a/b?c#d".parse().unwrap();
        assert_eq!(url.addr, "192.0.2.1:8080".parse().unwrap());
        assert_eq!((url.host.as_str(), url.target.as_str()), ("192.0.2.1:8080", "/a/b?c"));
        let url: Url = "http://[2001:db8::1]".parse().unwrap();
        assert_eq!(url.addr, "[2001:db8::1]:80".parse().unwrap());
        assert_eq!(url.target, "/");
        assert_eq!("http://1.2.3.4?x".parse::<Url>().unwrap().target, "/?x");
    }

    #[test]
    fn bad() {
        for (text, part) in [
            ("https://1.2.3.4/", "http://"),
            ("http://example.org/", "not resolved"),
            ("http://1.2.3.4:0/", "not a port"),
            ("http://[2001:db8::1]x/", "is not a port"),
            ("http://2001:db8::1/", "brackets"),
            ("http://1.2.3.4/a b", "%20"),
        ] {
            let message = text.parse::<Url>().unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
