//! The host's name servers, and the files that lead the command to ours.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::{GATEWAY, GATEWAY_V6, NAME_SERVER};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The host's name inside.
const HOST: &str = "host.plimsoll";
/// The port of DNS.
pub(crate) const PORT: u16 = 53;

/// The first name server of a `resolv.conf` (resolv.conf(5)). Queries go to it as they are.
fn name_server(text: &str) -> Option<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next() == Some("nameserver");
        let address: IpAddr = words.next().filter(|_| is_one)?.parse().ok()?;
        Some(SocketAddr::new(address, PORT))
    };
    text.lines().find_map(server)
}

/// The command's `resolv.conf`: ours is the name server, and search lists and options stay.
fn resolv_conf(hosts: &str) -> String {
    let kept = |line: &&str| {
        let word = line.split_whitespace().next();
        matches!(word, Some("search" | "domain" | "options"))
    };
    let mut text = format!("nameserver {NAME_SERVER}\n");
    for line in hosts.lines().filter(kept) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The host's first name server at this moment.
pub(crate) fn host_name_server() -> Option<SocketAddr> {
    name_server(&fs::read_to_string(RESOLV_CONF).ok()?)
}

/// Writes the files that replace those of the host into `folder`.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn write_files(folder: &Path) -> io::Result<()> {
    let read = |path: &str| match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    };
    let (resolv, hosts) = (read(RESOLV_CONF)?, read("/etc/hosts")?);
    fs::write(folder.join("resolv.conf"), resolv_conf(&resolv))?;
    let ours = format!("\n{GATEWAY} {HOST}\n{GATEWAY_V6} {HOST}\n");
    fs::write(folder.join("hosts"), hosts + &ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_server_counts_and_the_rest_stays() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\n\
                    nameserver 2001:db8::1\noptions ndots:2\n";
        assert_eq!(name_server(text), Some("192.0.2.1:53".parse().unwrap()));
        assert_eq!(name_server("nameserver fe80::1%eth0\n"), None);
        assert_eq!(name_server(""), None);
        let ours = "nameserver 10.0.2.3\nsearch example.org\noptions ndots:2\n";
        assert_eq!(resolv_conf(text), ours);
    }
}
