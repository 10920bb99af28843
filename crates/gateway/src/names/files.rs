//! The host's name servers and table of names, and the files that replace them for the command.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::{HOST, PORT};
use crate::network::Network;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// Name servers that are used, as many as the C library does.
const MAX_SERVERS: usize = 3;

/// The name servers of a `resolv.conf` (resolv.conf(5)).
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next() == Some("nameserver");
        let address: IpAddr = words.next().filter(|_| is_one)?.parse().ok()?;
        Some(SocketAddr::new(address, PORT))
    };
    text.lines().filter_map(server).take(MAX_SERVERS).collect()
}

/// The command's `resolv.conf`: ours is the name server, and search lists and options stay.
fn resolv_conf(network: Network, hosts: &str) -> String {
    let kept = |line: &&str| {
        let word = line.split_whitespace().next();
        matches!(word, Some("search" | "domain" | "options"))
    };
    let mut text = format!("nameserver {}\n", network.name_server());
    for line in hosts.lines().filter(kept) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The host's name servers at this moment.
pub(crate) fn host_name_servers() -> Vec<SocketAddr> {
    fs::read_to_string(RESOLV_CONF).map(|text| name_servers(&text)).unwrap_or_default()
}

/// The addresses of a name in the host's table of names (hosts(5)) at this moment.
pub(super) fn addresses_in_hosts(name: &str) -> Vec<IpAddr> {
    fs::read_to_string(HOSTS).map(|text| addresses(&text, name)).unwrap_or_default()
}

fn addresses(hosts: &str, name: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok();
        address.filter(|_| words.any(|word| word.eq_ignore_ascii_case(name)))
    };
    hosts.lines().filter_map(address).collect()
}

/// The lines of a table of names that are of the loopback interface.
fn loopback_lines(hosts: &str) -> String {
    let is_loopback = |line: &&str| {
        let address = line.split_whitespace().next().and_then(|word| word.parse().ok());
        address.is_some_and(|ip: IpAddr| ip.is_loopback())
    };
    hosts.lines().filter(is_loopback).flat_map(|line| [line, "\n"]).collect()
}

/// Writes the files that replace those of the host into `folder`. With rules the names of the
/// host's table are to be looked up, so only those of the loopback interface are in the file.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn write_files(network: Network, folder: &Path, with_rules: bool) -> io::Result<()> {
    let read = |path: &str| match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    };
    let (resolv, mut hosts) = (read(RESOLV_CONF)?, read(HOSTS)?);
    if with_rules {
        hosts = loopback_lines(&hosts);
    }
    fs::write(folder.join("resolv.conf"), resolv_conf(network, &resolv))?;
    let ours = format!("\n{} {HOST}\n{} {HOST}\n", network.gateway(), network.gateway_v6());
    fs::write(folder.join("hosts"), hosts + &ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_and_the_rest_stays() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\n\
                    nameserver fe80::1%eth0\nnameserver 2001:db8::1\noptions ndots:2\n";
        let servers: Vec<String> = name_servers(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
        assert_eq!(name_servers(""), []);
        let ours = "nameserver 10.0.2.3\nsearch example.org\noptions ndots:2\n";
        assert_eq!(resolv_conf("10.0.2.0/24".parse().unwrap(), text), ours);
    }

    #[test]
    fn a_table_of_names_has_several_addresses_and_names() {
        let text =
            "192.0.2.1 a.example A2 # b.example\n2001:db8::1\ta.example\n#192.0.2.2 a.example\n";
        let of = |name| addresses(text, name).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(of("A.EXAMPLE"), ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(of("a2"), ["192.0.2.1"]);
        assert!(of("b.example").is_empty());
    }
}
