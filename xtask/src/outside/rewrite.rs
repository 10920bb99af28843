//! Changes the imports of a test file.

use anyhow::{Context, Result};

/// A test that is left out.
pub(super) struct Excluded {
    pub(super) file: &'static str,
    pub(super) test: &'static str,
    pub(super) why: &'static str,
}

/// Paths that name another thing here. The sockets of tokio are ours; those of std and socket2,
/// which the tests use beside them, are stand-ins that find the same stack.
const PATHS: [(&str, &str); 7] = [
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
];

/// The same where the type is meant.
const STREAM: (&str, &str) = ("std::net::TcpStream)", "plimsoll::TcpStream)");

/// `text` with other imports, without the `excluded` tests, and with a stack for the process.
pub(super) fn rewritten(text: &str, excluded: &[&Excluded]) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let changed = PATHS.iter().chain([&STREAM]);
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
    lines.push("outside::begin!();\n".to_owned());
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
                        \n#[cfg(any())]\n#[test]\n#[ignore]\nfn one() {}\noutside::begin!();\n";
        assert_eq!(rewritten(text, &[&one]).unwrap(), expected);
        let two = Excluded { file: "file", test: "two", why: "because" };
        assert!(rewritten(text, &[&two]).is_err());
    }
}
