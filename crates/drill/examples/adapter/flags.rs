//! What travels in `--so_flags`: the network, as `name=value` words with commas between.

use std::net::IpAddr;

use plimsoll_drill::host::Network;

/// Reads the flags. Both addresses must be there; the rest has defaults.
///
/// # Errors
/// A sentence that names the word that is wrong.
pub(crate) fn parse(text: &str) -> Result<Network, String> {
    let word = |name: &str| {
        let mut found = text.split(',').filter_map(|word| word.split_once('='));
        found.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let name = part.split('=').next().unwrap_or("");
        if !NAMES.contains(&name) {
            return Err(format!("--so_flags: `{part}` is none of {}", NAMES.join(", ")));
        }
    }
    let address = |name: &str| match word(name) {
        Some(value) => read::<IpAddr>(name, value),
        None => Err(format!("--so_flags: {name}=ADDRESS is missing")),
    };
    let (local, remote) = (address("local")?, address("remote")?);
    let prefix = if local.is_ipv4() { "24" } else { "64" };
    Ok(Network {
        local,
        prefix: read("prefix", word("prefix").unwrap_or(prefix))?,
        gateway: word("gateway").map_or(Ok(remote), |value| read("gateway", value))?,
        remote,
        mtu: read("mtu", word("mtu").unwrap_or("1500"))?,
        inbound_mss: word("mss").map(|mss| read("mss", mss)).transpose()?,
        mapped: word("ip_version") == Some("ipv4-mapped-ipv6"),
    })
}

const NAMES: [&str; 7] = ["ip_version", "local", "prefix", "gateway", "remote", "mtu", "mss"];

fn read<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("--so_flags: {name}={value} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_the_addresses_are_needed() {
        let network = parse("local=198.51.100.1,remote=192.0.2.1").unwrap();
        assert_eq!((network.prefix, network.gateway), (24, network.remote));
        assert_eq!((network.mtu, network.inbound_mss, network.mapped), (1500, None, false));
        let network = parse("local=2001:db8::1,remote=2001:db8:1::1,ip_version=ipv6").unwrap();
        assert_eq!(network.prefix, 64);
    }

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let start = "local=198.51.100.1,remote=192.0.2.1";
        let network = parse(&format!("{start},mtu=1520,mss=1000,ip_version=ipv4-mapped-ipv6"));
        let network = network.unwrap();
        assert_eq!((network.mtu, network.inbound_mss, network.mapped), (1520, Some(1000), true));
        assert!(parse(&format!("{start},mtu=x")).unwrap_err().contains("mtu"));
        assert!(parse(&format!("{start},speed=3")).unwrap_err().contains("speed"));
        assert!(parse("remote=192.0.2.1").unwrap_err().contains("local"));
    }
}
