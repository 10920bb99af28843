//! Changes the imports of a test file of others.

use anyhow::{Context, Result};

/// A test that is left out.
pub(super) struct Excluded {
    pub(super) file: &'static str,
    pub(super) test: &'static str,
    pub(super) why: &'static str,
}

/// What stands in the place of another text, on one line.
pub(super) type Replacements = &'static [(&'static str, &'static str)];

/// For tokio's tests. The sockets of tokio are ours; those of std and socket2, which the tests use
/// beside them, are stand-ins that find the same stack.
pub(super) const TOKIO: Replacements = &[
    ("tokio::net::Tcp", "plimsoll::net::Tcp"),
    ("tokio::net::{Tcp", "plimsoll::net::{Tcp"),
    (
        "use tokio::{io::ReadBuf, net::UdpSocket, time};",
        "use plimsoll::net::UdpSocket;\nuse tokio::{io::ReadBuf, time};",
    ),
    ("use std::{net, thread};", "use outside::std_net as net;\nuse std::thread;"),
    ("use std::{io::Write, net};", "use outside::std_net as net;\nuse std::io::Write;"),
    ("std::net::TcpStream::connect(", "outside::std_net::TcpStream::connect("),
    ("socket2::SockRef", "outside::socket2::SockRef"),
    // The type is meant.
    ("std::net::TcpStream)", "plimsoll::TcpStream)"),
];

/// For quinn's tests. The file that is part of quinn's own crate names it `crate` and `super`;
/// outside of it, it is `quinn`. Endpoints and the sockets that they are made of are stand-ins.
pub(super) const QUINN: Replacements = &[
    ("SocketAddr, UdpSocket}", "SocketAddr}"),
    (
        "use crate::runtime::TokioRuntime;",
        "use outside::{Endpoint, UdpSocket};\nuse quinn::TokioRuntime;",
    ),
    ("use crate::{Duration, Instant};", "use std::time::{Duration, Instant};"),
    (
        "use super::{ClientConfig, Endpoint, EndpointConfig",
        "use quinn::{ClientConfig, EndpointConfig",
    ),
    ("quinn::Endpoint::server(", "outside::Endpoint::server("),
    ("crate::", "quinn::"),
];

/// `text` with these replacements, and without the `excluded` tests.
pub(super) fn rewritten(
    text: &str,
    replacements: Replacements,
    excluded: &[&Excluded],
) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let changed = replacements.iter();
        lines.push(changed.fold(line.to_owned(), |line, (from, to)| line.replace(from, to)));
    }
    for one in excluded {
        let head = format!("fn {}(", one.test);
        let at = lines.iter().position(|line| line.contains(&head));
        let mut at = at.with_context(|| format!("{} has no test {}", one.file, one.test))?;
        while at > 0 && lines[at - 1].trim_start().starts_with("#[") {
            at -= 1;
        }
        lines.insert(at, "#[cfg(any())]".to_owned());
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_change_and_what_is_excluded_is_left_out() {
        let text = "use tokio::net::{TcpListener, TcpStream};\nuse std::{net, thread};\n\
                    use std::net::SocketAddr;\n\n#[test]\n#[ignore]\nfn one() {}\n";
        let one = Excluded { file: "file", test: "one", why: "because" };
        let expected = "use plimsoll::net::{TcpListener, TcpStream};\n\
                        use outside::std_net as net;\nuse std::thread;\nuse std::net::SocketAddr;\n\
                        \n#[cfg(any())]\n#[test]\n#[ignore]\nfn one() {}\n";
        assert_eq!(rewritten(text, TOKIO, &[&one]).unwrap(), expected);
        let two = Excluded { file: "file", test: "two", why: "because" };
        assert!(rewritten(text, TOKIO, &[&two]).is_err());
    }

    #[test]
    fn a_file_of_quinns_crate_becomes_one_outside_of_it() {
        let text = "use std::net::{SocketAddr, UdpSocket};\nuse crate::runtime::TokioRuntime;\n\
                    use super::{ClientConfig, Endpoint, EndpointConfig};\n\
                    let config = crate::ClientConfig::new();\n";
        let expected = "use std::net::{SocketAddr};\nuse outside::{Endpoint, UdpSocket};\n\
                        use quinn::TokioRuntime;\nuse quinn::{ClientConfig, EndpointConfig};\n\
                        let config = quinn::ClientConfig::new();\n";
        assert_eq!(rewritten(text, QUINN, &[]).unwrap(), expected);
    }
}
