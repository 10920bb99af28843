//! The kernel's counters of one namespace, by the names that `nstat` has for them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::Context;

use crate::figures::Counters;

/// Counters that are told even if they are zero, since figures are made of them, or tables show
/// them.
const ALWAYS: [&str; 8] = [
    "IpOutRequests",
    "IpExtOutOctets",
    "TcpOutSegs",
    "TcpRetransSegs",
    "TcpExtTCPOrigDataSent",
    "TcpExtTCPAutoCorking",
    "TcpExtTCPBacklogCoalesce",
    "TcpExtTCPBacklogDrop",
];

/// What counts nothing: settings and states.
const NO_COUNTERS: [&str; 7] = [
    "IpForwarding",
    "IpDefaultTTL",
    "TcpRtoAlgorithm",
    "TcpRtoMin",
    "TcpRtoMax",
    "TcpMaxConn",
    "TcpCurrEstab",
];

/// The files of the counters. An open one belongs to the namespace in which it was opened, and has
/// new contents whenever it is read from its beginning.
pub(super) struct Files([File; 2]);

impl Files {
    /// Those of the calling thread's namespace.
    pub(super) fn open() -> anyhow::Result<Files> {
        let open = |name: &str| {
            // /proc/net is that of the process.
            let path = format!("/proc/thread-self/net/{name}");
            File::open(&path).with_context(|| format!("cannot open {path}"))
        };
        Ok(Files([open("snmp")?, open("netstat")?]))
    }

    /// The counters of IP and TCP as they are now; none if they cannot be read.
    pub(super) fn read(&self) -> Counters {
        let mut counters = Counters::new();
        for file in &self.0 {
            let Ok(text) = contents(file) else { return Counters::new() };
            parse(&text, &mut counters);
        }
        counters
    }
}

/// All of a file, from its beginning.
fn contents(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 64 << 10];
    let mut len = 0;
    loop {
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            count => len += count,
        }
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
    }
    bytes.truncate(len);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Reads pairs of lines, of names and of values behind the same word.
fn parse(text: &str, counters: &mut Counters) {
    let mut lines = text.lines();
    while let Some((names, values)) = lines.next().zip(lines.next()) {
        let Some((group, names)) = names.split_once(':') else { continue };
        if !matches!(group, "Ip" | "IpExt" | "Tcp" | "TcpExt") {
            continue;
        }
        let values = values.split_whitespace().skip(1);
        for (name, value) in names.split_whitespace().zip(values) {
            let name = format!("{group}{name}");
            // One that is negative has no limit, and is no counter.
            let Ok(value) = value.parse() else { continue };
            if value == 0 && !ALWAYS.contains(&name.as_str()) {
                continue;
            }
            if !NO_COUNTERS.contains(&name.as_str()) {
                counters.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let text = "Ip: Forwarding DefaultTTL OutRequests\nIp: 1 64 7\n\
                    Icmp: InMsgs\nIcmp: 3\n\
                    Tcp: MaxConn OutSegs RetransSegs InErrs\nTcp: -1 5 0 0\n\
                    TcpExt: TCPOrigDataSent\nTcpExt: 4\nTcpExt: ends here";
        let mut counters = Counters::new();
        parse(text, &mut counters);
        let names = ["IpOutRequests", "TcpExtTCPOrigDataSent", "TcpOutSegs", "TcpRetransSegs"];
        let expected = names.map(str::to_owned).into_iter().zip([7, 4, 5, 0]).collect();
        assert_eq!(counters, expected);
    }

    #[test]
    fn a_file_is_read_anew() {
        let files = Files::open().unwrap();
        let counters = files.read();
        assert!(counters.contains_key("TcpExtTCPBacklogDrop"), "{counters:?}");
        assert!(files.read()["IpOutRequests"] >= counters["IpOutRequests"]);
    }
}
